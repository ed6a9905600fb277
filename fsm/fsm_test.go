package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"raftmq/commitlog/store"
	"raftmq/fsm/command"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

func TestRefusalsAreAnswersAndFailuresStopTheNode(t *testing.T) {
	r := openReplica(t, t.TempDir(), nil)
	defer r.store.Close()
	logs := script(t, 1)
	r.fsm.ApplyBatch(logs[:3])

	entry, err := command.AppendJSON(command.AppendEntryHead(nil), command.KindTopicDelete, command.TopicDelete{Topic: "no such topic"})
	if err != nil {
		t.Fatal(err)
	}
	refused := r.fsm.Apply(&raft.Log{Index: 5, Term: 1, Type: raft.LogCommand, Data: entry}).(command.Results)
	if len(refused) != 1 || refused[0].Err == nil || r.fatal != nil {
		t.Fatalf("a refusal: %+v, fatal %v", refused, r.fatal)
	}

	unknown := append(command.AppendEntryHead(nil), 99, 1, 0, 0, 0, 0)
	stoppedBy := r.fsm.Apply(&raft.Log{Index: 6, Term: 1, Type: raft.LogCommand, Data: unknown}).(command.Results)
	if len(stoppedBy) != 1 || !errors.Is(stoppedBy[0].Err, ErrStopped) || !errors.Is(r.fatal, command.ErrUnknown) {
		t.Fatalf("an unknown command: %+v, fatal %v", stoppedBy, r.fatal)
	}
	if r.fsm.Applied() != 5 {
		t.Errorf("applied index %d moved past the entry that was not applied", r.fsm.Applied())
	}
	after := r.fsm.Apply(&raft.Log{Index: 7, Term: 1, Type: raft.LogCommand, Data: logs[3].Data}).(command.Results)
	if !errors.Is(after[0].Err, ErrStopped) {
		t.Errorf("applied after the fatal error: %+v", after)
	}
	if _, err := r.fsm.Snapshot(); !errors.Is(err, ErrStopped) {
		t.Errorf("snapshot after the fatal error: %v", err)
	}
}

func TestOtherSettingsStopTheNode(t *testing.T) {
	r := openReplica(t, t.TempDir(), nil)
	defer r.store.Close()
	wrong := errors.New("configured otherwise")
	r.fsm.cfg.CheckSettings = func(command.Settings) error { return wrong }
	r.fsm.Apply(script(t, 1)[0])
	if !errors.Is(r.fatal, wrong) {
		t.Fatalf("fatal %v", r.fatal)
	}
	if _, ok := r.tables.Settings(); ok {
		t.Error("the settings were taken over")
	}
}

// failing makes the n-th call of the store fail.
type failing struct {
	Store
	left int
}

var errDisk = errors.New("injected disk fault")

func (f *failing) fail() error {
	f.left--
	if f.left < 0 {
		return errDisk
	}
	return nil
}

func (f *failing) BeginEntry(i, term uint64) error {
	if err := f.fail(); err != nil {
		return err
	}
	return f.Store.BeginEntry(i, term)
}

func (f *failing) Append(topic []byte, q int32, records []byte, n int) (store.Appended, error) {
	if err := f.fail(); err != nil {
		return store.Appended{}, err
	}
	return f.Store.Append(topic, q, records, n)
}

func (f *failing) EndEntry() error {
	if err := f.fail(); err != nil {
		return err
	}
	return f.Store.EndEntry()
}

// TestDiskErrorInApplyStopsTheNode: whichever operation fails, nothing is answered as done afterwards (Apply-Never-Waits), and what was
// acknowledged before is there after a restart.
func TestDiskErrorInApplyStopsTheNode(t *testing.T) {
	logs := script(t, 3)
	for i := 0; ; i++ {
		dir := t.TempDir()
		r := openReplica(t, dir, func(s Store) Store { return &failing{s, i} })
		acked := 0
		for _, l := range logs[:12] {
			res := r.fsm.Apply(l).(command.Results)
			if r.fatal == nil {
				acked++
				continue
			}
			for _, one := range res {
				if !errors.Is(one.Err, ErrStopped) {
					t.Fatalf("operation %d failed, entry %d answered %+v", i, l.Index, res)
				}
			}
		}
		_ = r.store.Close()
		if r.fatal == nil {
			if i < 20 {
				t.Fatalf("only %d operations", i)
			}
			return
		}
		if !errors.Is(r.fatal, errDisk) {
			t.Fatalf("operation %d: fatal %v", i, r.fatal)
		}
		again := openReplica(t, dir, nil)
		again.fsm.ApplyBatch(logs[:12])
		if again.fatal != nil {
			t.Fatalf("operation %d: after a restart: %v", i, again.fatal)
		}
		_ = again.store.Close()
	}
}

// TestF25DamagedSnapshotIsIgnored: a flipped bit in a snapshot makes it no snapshot; nothing is deleted.
func TestF25DamagedSnapshotIsIgnored(t *testing.T) {
	logs := script(t, 9)
	dir := t.TempDir()
	f := openFollower(t, dir, nil)
	defer f.store.Close()
	f.fsm.ApplyBatch(logs[:10])
	f.snapshot(t, logs[9].Index)
	files, err := filepath.Glob(filepath.Join(dir, "snapshots", "*", "state.bin"))
	if err != nil || len(files) != 1 {
		t.Fatalf("%v %v", files, err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range whole {
		if i%7 != 0 && i > 32 {
			continue
		}
		b := bytes.Clone(whole)
		b[i] ^= 1 << (i % 8)
		if _, _, err := readHead(bytes.NewReader(b)); err == nil {
			t.Fatalf("bit %d of byte %d flipped and not noticed", i%8, i)
		}
		if _, _, err := readHead(bytes.NewReader(whole[:i])); err == nil {
			t.Fatalf("cut at %d and not noticed", i)
		}
	}
	whole[len(whole)/2] ^= 4
	if err := os.WriteFile(files[0], whole, 0o644); err != nil {
		t.Fatal(err)
	}
	if list, err := f.snaps.List(); err != nil || len(list) != 0 {
		t.Fatalf("a damaged snapshot is listed: %v %v", list, err)
	}
	if _, err := os.Stat(files[0]); err != nil {
		t.Errorf("the damaged file was removed: %v", err)
	}
}

// TestNewerSnapshotIsNotIgnored: a snapshot of a newer raftmq is no damage. Passing over it would let an older
// program start from the one before, or tell the operator to wipe a healthy node.
func TestNewerSnapshotIsNotIgnored(t *testing.T) {
	f := openFollower(t, t.TempDir(), nil)
	defer f.store.Close()
	layout, err := appendHead(nil, &head{Version: snapshotVersion, Tables: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	layout[len(snapshotMagic)-1]++
	content, err := appendHead(nil, &head{Version: snapshotVersion + 1, Tables: []byte(`{}`)})
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"layout": layout, "content": content} {
		inner := raft.NewInmemSnapshotStore()
		sink, err := inner.Create(raft.SnapshotVersionMax, 3, 1, raft.Configuration{}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sink.Write(b); err != nil {
			t.Fatal(err)
		}
		s := NewSnapshotStore(inner, f.store, f.staging, hclog.NewNullLogger())
		if list, err := s.List(); !errors.Is(err, ErrSnapshotVersion) || !errors.Is(err, command.ErrUnknown) {
			t.Errorf("%s: %v, %v", name, list, err)
		}
	}
}

func FuzzReadHead(f *testing.F) {
	h := &head{Version: snapshotVersion, Applied: 3, Term: 1, Position: store.Position{RaftIndex: 3, LogEnd: 9, QueueOffsets: []store.QueueOffset{{Topic: "T", QueueID: 1, Next: 2}}}, Tables: []byte(`{"version":1}`)}
	b, err := appendHead(nil, h)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[:10])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, n, err := readHead(bytes.NewReader(b))
		if err != nil {
			return
		}
		again, err := appendHead(nil, h)
		if err != nil {
			t.Fatal(err)
		}
		twice, _, err := readHead(bytes.NewReader(again))
		if err != nil || fmt.Sprint(twice) != fmt.Sprint(h) || n > int64(len(b)) {
			t.Fatalf("decode∘encode changed %+v to %+v (%v)", h, twice, err)
		}
	})
}
