package fsm

import (
	"errors"
	"io"
	"path/filepath"
	"testing"
	"time"

	"raftmq/commitlog/store"
	"raftmq/fsm/command"

	"github.com/hashicorp/raft"
)

func trimEntry(t *testing.T, index uint64, minOffset int64) *raft.Log {
	t.Helper()
	b, err := command.AppendJSON(command.AppendEntryHead(nil), command.KindLogTrim, command.LogTrim{MinOffset: minOffset})
	if err != nil {
		t.Fatal(err)
	}
	return &raft.Log{Index: index, Term: 3, Type: raft.LogCommand, Data: b}
}

// TestTrimRefusals: what is no boundary is refused, the same on every node, and stops nobody.
func TestTrimRefusals(t *testing.T) {
	r := openReplica(t, t.TempDir(), nil)
	defer r.store.Close()
	r.fsm.ApplyBatch(script(t, 9)[:16]) // without a trim
	_, end := r.store.LogRange()
	if end < 2*testSegment {
		t.Fatalf("the log has %d bytes", end)
	}
	index := r.fsm.Applied()
	for _, minOffset := range []int64{-testSegment, 1, testSegment + 20, end, end / testSegment * testSegment * 2} {
		index++
		got := r.fsm.Apply(trimEntry(t, index, minOffset)).(command.Results)
		if low, _ := r.store.LogRange(); len(got) != 1 || !errors.Is(got[0].Err, store.ErrTrim) || low != 0 || r.fatal != nil {
			t.Errorf("trim to %d: %+v, minimum %d, fatal %v", minOffset, got, low, r.fatal)
		}
	}
	for _, minOffset := range []int64{testSegment, testSegment, 0} { // the second and third change nothing
		index++
		got := r.fsm.Apply(trimEntry(t, index, minOffset)).(command.Results)
		if low, _ := r.store.LogRange(); got[0].Err != nil || low != testSegment {
			t.Errorf("trim to %d: %+v, minimum %d", minOffset, got, low)
		}
	}
	bad := append(command.AppendEntryHead(nil), byte(command.KindLogTrim), 1, 0, 0, 0, 1, '{')
	r.fsm.Apply(&raft.Log{Index: index + 1, Term: 3, Type: raft.LogCommand, Data: bad})
	if !errors.Is(r.fatal, command.ErrMalformed) {
		t.Errorf("a malformed trim: fatal %v", r.fatal)
	}
}

// TestTransferKeepsItsSegments: the log bytes that a peer is being sent stay on disk until it has them, while consumers
// no longer see them; then they go.
func TestTransferKeepsItsSegments(t *testing.T) {
	logs := script(t, 9)
	leader := openFollower(t, t.TempDir())
	defer leader.store.Close()
	leader.fsm.ApplyBatch(logs[:22])
	leader.snapshot(t, logs[21].Index)
	list, err := leader.snaps.List()
	if err != nil || len(list) != 1 {
		t.Fatalf("%v %v", list, err)
	}
	meta, r, err := leader.snaps.Open(list[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 0, meta.Size)
	read := func(n int64) {
		t.Helper()
		b, err := io.ReadAll(io.LimitReader(r, n))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, b...)
	}
	read(meta.Size - testSegment - 1000) // the head, and all but the last segment and a bit
	_, end := leader.store.LogRange()
	last := (end - 1) / testSegment * testSegment
	if res := leader.fsm.Apply(trimEntry(t, leader.fsm.Applied()+1, last)).(command.Results); res[0].Err != nil {
		t.Fatal(res[0].Err)
	}
	if low, _ := leader.store.LogRange(); low != last {
		t.Fatalf("minimum %d, trimmed to %d", low, last)
	}
	// What the reader is past goes, what it is in stays.
	kept := (end - testSegment - 1000) / testSegment * testSegment
	for deadline := time.Now().Add(10 * time.Second); leader.store.Stats().FileMin != kept; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("files begin at %d, the reader is behind %d", leader.store.Stats().FileMin, kept)
		}
	}
	read(meta.Size)
	if int64(len(got)) != meta.Size {
		t.Fatalf("%d bytes of %d", len(got), meta.Size)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	awaitCleaned(t, leader.store)
	if low := leader.store.Stats().FileMin; low != last {
		t.Errorf("files begin at %d after the transfer", low)
	}

	// A transfer that starts now has what is left to send: nothing below the snapshot's end.
	f := openFollower(t, filepath.Join(t.TempDir(), "f"))
	defer f.store.Close()
	id, err := f.receive(t, leader, -1)
	if err != nil {
		t.Fatal(err)
	}
	f.restore(t, id)
	f.fsm.Apply(trimEntry(t, f.fsm.Applied()+1, last))
	if low, to := f.store.LogRange(); low != last || to != end || f.fatal != nil {
		t.Errorf("follower has [%d, %d), leader [%d, %d): %v", low, to, last, end, f.fatal)
	}
}
