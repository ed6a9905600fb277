package fsm

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"raftmq/commitlog/store"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// follower is a replica with snapshots, staging and catch-up around it, as a node has them.
type follower struct {
	*replica
	dir     string
	snaps   *SnapshotStore
	staging *store.Staging
	catchUp *CatchUp
	sources map[string]*source // by node id
}

func openFollower(t *testing.T, dir string, peers map[string]*follower) *follower {
	t.Helper()
	f := &follower{replica: openReplica(t, filepath.Join(dir, "store"), nil), dir: dir, sources: map[string]*source{}}
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, 2, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	if f.staging, err = store.OpenStaging(lazyFS{}, filepath.Join(dir, "staging")); err != nil {
		t.Fatal(err)
	}
	for id, peer := range peers {
		f.sources[id] = &source{peer: peer.store, sent: map[int64]int{}}
	}
	f.catchUp = NewCatchUp(CatchUpConfig{Store: f.store, Staging: f.staging, Piece: 4000, Hold: 20 * time.Millisecond, Retry: time.Millisecond,
		Dial: func(_ context.Context, id string) (LogSource, error) {
			s := f.sources[id]
			if s == nil {
				return nil, fmt.Errorf("nobody is at %q", id)
			}
			return s, nil
		}})
	f.fsm.cfg.CatchUp = f.catchUp
	f.snaps = NewSnapshotStore(files, f.store, f.staging, hclog.NewNullLogger())
	return f
}

// close stops all but what a crash leaves.
func (f *follower) close() {
	_ = f.catchUp.Close()
	_ = f.store.Close()
}

// source serves another replica's log in this process.
type source struct {
	peer   *store.Store
	pin    bool
	before func(off int64) error     // called before each answer
	change func(off int64, b []byte) // of what is answered

	mu    sync.Mutex
	sent  map[int64]int // offset → how often it was asked for; guarded by mu
	bytes int64         // guarded by mu
	stops int
}

func (s *source) Range(ctx context.Context, off, n int64) ([]byte, error) {
	if s.pin {
		s.peer.Pin("follower", off)
	}
	if s.before != nil {
		if err := s.before(off); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b, err := s.peer.LogBytes(off, int(n))
	if errors.Is(err, store.ErrRange) {
		return nil, fmt.Errorf("%w: %w", ErrSourceOutside, err)
	}
	if err != nil {
		return nil, err
	}
	defer b.Release()
	out := bytes.Join(b.Bufs, nil)
	if s.change != nil {
		s.change(off, out)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent[off]++
	s.bytes += int64(len(out))
	return out, nil
}

func (s *source) Sum(_ context.Context, from, to int64) (uint32, int64, error) {
	if s.pin {
		s.peer.Pin("follower", from)
	}
	low := s.peer.Stats().FileMin
	sum, err := s.peer.LogSum(from, to)
	if errors.Is(err, store.ErrRange) {
		err = fmt.Errorf("%w: %w", ErrSourceOutside, err)
	}
	return sum, low, err
}

func (s *source) Close() error {
	s.peer.Unpin("follower")
	return nil
}

func (f *follower) snapshot(t *testing.T, index uint64) {
	t.Helper()
	snap, err := f.fsm.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	_, tr := raft.NewInmemTransport("")
	s, err := f.snaps.Create(1, index, 1, raft.Configuration{}, 1, tr)
	if err != nil {
		t.Fatal(err)
	}
	if err := snap.Persist(s); err != nil {
		t.Fatal(err)
	}
}

// newest reads a node's newest snapshot, as Raft does to send it.
func (f *follower) newest(t *testing.T) (meta *raft.SnapshotMeta, snapshot []byte) {
	t.Helper()
	list, err := f.snaps.List()
	if err != nil || len(list) == 0 {
		t.Fatalf("snapshots: %v %v", list, err)
	}
	meta, r, err := f.snaps.Open(list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if snapshot, err = io.ReadAll(r); err != nil || int64(len(snapshot)) != meta.Size {
		t.Fatalf("%d bytes of %d, %v", len(snapshot), meta.Size, err)
	}
	return meta, snapshot
}

// receive asks, as a leader's link does, until the snapshot's log bytes are here.
func (f *follower) receive(t *testing.T, leader string, snapshot []byte) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := f.catchUp.Receive(t.Context(), leader, snapshot)
		if err == nil {
			return
		}
		if !errors.Is(err, ErrNotYet) || time.Now().After(deadline) {
			t.Fatalf("receive: %v; %+v", err, f.catchUp.Status())
		}
	}
}

// store takes the snapshot in, as Raft does before it restores it.
func (f *follower) take(t *testing.T, meta *raft.SnapshotMeta, snapshot []byte) (id string, err error) {
	t.Helper()
	_, tr := raft.NewInmemTransport("")
	s, err := f.snaps.Create(1, meta.Index, meta.Term, raft.Configuration{}, 1, tr)
	if err != nil {
		t.Fatal(err)
	}
	for b := snapshot; len(b) > 0; {
		n, err := s.Write(b[:min(len(b), 1000)])
		if err != nil {
			return "", errors.Join(err, s.Cancel())
		}
		b = b[n:]
	}
	return s.ID(), s.Close()
}

func (f *follower) restore(t *testing.T, id string) {
	t.Helper()
	_, r, err := f.snaps.Open(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.fsm.Restore(r); err != nil {
		t.Fatal(err)
	}
}

// install is all of it, from the node "leader".
func (f *follower) install(t *testing.T, leader *follower) {
	t.Helper()
	meta, snapshot := leader.newest(t)
	f.receive(t, "leader", snapshot)
	id, err := f.take(t, meta, snapshot)
	if err != nil {
		t.Fatal(err)
	}
	f.restore(t, id)
}

// stagedFiles are the names in the staging folder.
func (f *follower) stagedFiles(t *testing.T) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(f.dir, "staging", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return names
}
