package raftnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

func TestProposalsKeepTheirOrderAndFindTheirResult(t *testing.T) {
	c := startCluster(t, func(_ int, cfg *Config) {
		cfg.MaxEntryCommands = 100
		cfg.EntryHead = func(b []byte) []byte { return append(b, "H:"...) }
	})
	leader := c.leader(t)
	for _, f := range c.fsms {
		f.mu.Lock()
		f.keep = true
		f.mu.Unlock()
	}
	const n = 5000
	done := make(chan outcomeOf, n)
	var want bytes.Buffer
	for i := range n {
		m := &message{data: fmt.Appendf(nil, "%05d;", i), done: done}
		want.Write(m.data)
		if err := c.nodes[leader].Propose(m); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		o := <-done
		if o.err != nil {
			t.Fatal(o.err)
		}
		entry := o.result.([]byte)
		if got, want := string(entry[2+6*o.i:2+6*o.i+6]), fmt.Sprintf("%05d;", i); got != want {
			t.Fatalf("proposal %d was answered with position %d of its entry, which holds %q", i, o.i, got)
		}
	}
	for i, f := range c.fsms {
		eventually(t, 10*time.Second, fmt.Sprintf("node %d has applied everything", i+1), func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			var got bytes.Buffer
			for _, e := range f.entries {
				got.Write(bytes.TrimPrefix(e, []byte("H:")))
			}
			return bytes.Equal(got.Bytes(), want.Bytes())
		})
	}
	if s := c.nodes[leader].Stats(); s.Commands != n || s.Entries >= n/2 || s.InFlightBytes != 0 {
		t.Errorf("stats %+v: want %d commands in far fewer entries and nothing in flight", s, n)
	}
}

func TestFollowerRefusesAndLeadershipMoves(t *testing.T) {
	c := startCluster(t, nil)
	leader := c.leader(t)
	for i, n := range c.nodes {
		err := n.Propose(&message{data: []byte("x"), done: make(chan outcomeOf, 1)})
		if wantErr := i != leader; wantErr != errors.Is(err, ErrNotLeader) {
			t.Fatalf("node %d, leader is %d: %v", i+1, leader+1, err)
		}
	}
	old := c.nodes[leader].State()
	if err := c.nodes[leader].TransferLeadership(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 10*time.Second, "another leader is ready and all know it", func() bool {
		for _, n := range c.nodes {
			if s := n.State(); s.LeaderID == "" || s.LeaderID == old.LeaderID {
				return false
			}
		}
		return true
	})
}

// A leader that a majority does not answer any more says so, within its lease; one that handed over does not.
func TestQuorumLost(t *testing.T) {
	t.Parallel()
	c := startCluster(t, nil)
	old := c.leader(t)
	if err := c.nodes[old].TransferLeadership(); err != nil {
		t.Fatal(err)
	}
	leader := c.anotherLeader(t, old, 10*time.Second)
	for i, n := range c.nodes {
		if n.QuorumLost() {
			t.Errorf("n%d says that it lost its quorum after a transfer from n%d to n%d", i+1, old+1, leader+1)
		}
		if i != leader {
			if err := n.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	eventually(t, 10*time.Second, "the leader without followers steps down", func() bool { return !c.nodes[leader].State().Ready })
	if !c.nodes[leader].QuorumLost() {
		t.Errorf("%+v, and it does not say that it lost its quorum", c.nodes[leader].State())
	}
	c.reopen(t, old)
	c.leader(t)
	eventually(t, 10*time.Second, "the deposed leader knows who leads", func() bool { return !c.nodes[leader].QuorumLost() })
}

func TestBoundOnBytesInFlight(t *testing.T) {
	c := startCluster(t, func(_ int, cfg *Config) { cfg.InFlightBytes = 10_000; cfg.MaxCommandBytes = 4000 })
	leader := c.nodes[c.leader(t)]
	if err := leader.Propose(&message{data: make([]byte, 4001)}); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("a command above the limit: %v", err)
	}
	done := make(chan outcomeOf, 10_000)
	busy, accepted := 0, 0
	for range 10_000 {
		switch err := leader.Propose(&message{data: make([]byte, 1000), done: done}); {
		case errors.Is(err, ErrBusy):
			busy++
		case err != nil:
			t.Fatal(err)
		default:
			accepted++
		}
		if f := leader.Stats().InFlightBytes; f > 11_000 {
			t.Fatalf("%d bytes in flight, bound 10000 plus one command", f)
		}
	}
	if busy == 0 {
		t.Error("nothing was refused")
	}
	for range accepted {
		if o := <-done; o.err != nil {
			t.Fatal(o.err)
		}
	}
	eventually(t, 5*time.Second, "all bytes given back", func() bool { return leader.Stats().InFlightBytes == 0 })
}

func TestStampNeverGoesBack(t *testing.T) {
	var clock atomic.Int64
	clock.Store(1_000_000)
	c := startCluster(t, func(_ int, cfg *Config) { cfg.Now = func() time.Time { return time.UnixMilli(clock.Load()) } })
	leader := c.nodes[c.leader(t)]
	var last int64
	for _, at := range []int64{1_000_000, 5_000_000, 1_000, 5_000_001} {
		clock.Store(at)
		s := &stampProbe{done: make(chan struct{})}
		if err := leader.Propose(s); err != nil {
			t.Fatalf("F67: refused after a clock step: %v", err)
		}
		<-s.done
		if s.millis < last {
			t.Fatalf("stamp went from %d back to %d", last, s.millis)
		}
		last = s.millis
	}
}

type stampProbe struct {
	millis int64
	done   chan struct{}
}

func (s *stampProbe) AppendCommand(dst []byte, millis int64) []byte {
	s.millis = millis
	return append(dst, 'x')
}
func (s *stampProbe) Done(any, int, error) { close(s.done) }

func TestSnapshotsFollowBytes(t *testing.T) {
	c := startCluster(t, func(_ int, cfg *Config) { cfg.SnapshotBytes, cfg.TrailingBytes = 4<<20, 2<<20; cfg.LogStore = Bolt })
	leader := c.nodes[c.leader(t)]
	for range 24 {
		if _, _, err := leader.ProposeWait(context.Background(), make([]byte, 1<<19)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, 15*time.Second, "a snapshot was taken and the log cut", func() bool {
		first, err := leader.logs.FirstIndex()
		if err != nil {
			t.Fatal(err)
		}
		return leader.Indexes().Snapshot > 0 && first > 1
	})
	// One more command, so that there is something new, and a snapshot right now: what stays is TrailingBytes.
	if _, _, err := leader.ProposeWait(context.Background(), make([]byte, 1<<19)); err != nil {
		t.Fatal(err)
	}
	if err := leader.Snapshot(); err != nil {
		t.Fatal(err)
	}
	first, _ := leader.logs.FirstIndex()
	if behind := leader.Indexes().Last - first; behind < 2 || behind > 6 {
		t.Errorf("%d entries of 512 KiB stayed behind the snapshot, want about 2 MiB", behind)
	}
}

func TestLogStoreKindIsKept(t *testing.T) {
	for _, tc := range []struct {
		have string
		want LogStoreKind
	}{{"wal", Bolt}, {"log.db", WAL}} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, tc.have), 0o755); err != nil {
			t.Fatal(err)
		}
		if _, err := openLogStore(Config{Dir: dir, LogStore: tc.want}); err == nil {
			t.Errorf("a folder with %s was opened as %s", tc.have, tc.want)
		}
	}
}

// TestF91 is the pipeline deadlock of hashicorp/raft: a follower whose log store fails for a second and heals
// must get entries again without help. Its first failed write poisons the store (F33), so its owner opens it again when a probe
// passes, as the server does.
func TestF91FollowerStoreFaultHeals(t *testing.T) {
	var faulty atomic.Int32 // index of the failing node, -1 for none
	faulty.Store(-1)
	var fatal [3]atomic.Int32
	c := startCluster(t, func(i int, cfg *Config) {
		cfg.OnFatal = func(error) { fatal[i].Add(1) }
		cfg.wrapStore = func(s backingStore) backingStore {
			return &faultyStore{backingStore: s, failing: func() bool { return faulty.Load() == int32(i) }}
		}
	})
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	for round := range rounds {
		leader := c.leader(t)
		follower := (leader + 1 + round%2) % 3
		stop := make(chan struct{})
		var writers sync.WaitGroup
		for range 8 {
			writers.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
						_, _, _ = c.nodes[leader].ProposeWait(ctx, make([]byte, 512))
						cancel()
					}
				}
			})
		}
		faulty.Store(int32(follower))
		time.Sleep(time.Second) // the fault's duration, not a wait for anything
		faulty.Store(-1)
		healed := time.Now()
		commit := c.nodes[leader].raft.CommitIndex()
		if fatal[follower].Swap(0) > 0 {
			if err := Probe(c.configs[follower]); err != nil {
				t.Fatal(err)
			}
			if err := c.nodes[follower].Close(); err != nil {
				t.Fatal(err)
			}
			c.reopen(t, follower)
		}
		eventually(t, 15*time.Second, fmt.Sprintf("round %d: the healed follower applied what the leader had committed", round), func() bool {
			return c.nodes[follower].raft.AppliedIndex() >= commit
		})
		t.Logf("round %d: follower caught up %v after it healed", round, time.Since(healed).Round(time.Millisecond))
		close(stop)
		writers.Wait()
	}
}

type faultyStore struct {
	backingStore
	failing func() bool
}

func (s *faultyStore) StoreLogs(logs []*raft.Log) error {
	if s.failing() {
		time.Sleep(200 * time.Millisecond) // the fault: each write hangs this long and fails
		return errInjected
	}
	return s.backingStore.StoreLogs(logs)
}

func (s *faultyStore) IsMonotonic() bool {
	return s.backingStore.(raft.MonotonicLogStore).IsMonotonic()
}
