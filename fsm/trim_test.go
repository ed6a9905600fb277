package fsm

import (
	"errors"
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

// TestTransferKeepsItsSegments: the log bytes that a peer is fetching stay on disk until it has them, while consumers
// no longer see them; then they go. A peer that begins afterwards takes what is left.
func TestTransferKeepsItsSegments(t *testing.T) {
	logs := script(t, 9)
	leader := openFollower(t, t.TempDir(), nil)
	defer leader.close()
	leader.fsm.ApplyBatch(logs[:22])
	leader.snapshot(t, logs[21].Index)
	first, end := leader.store.LogRange()
	last := (end - 1) / testSegment * testSegment
	f := openFollower(t, t.TempDir(), map[string]*follower{"leader": leader})
	defer f.close()
	src := f.sources["leader"]
	src.pin = true
	src.before = func(off int64) error {
		if off < 2*testSegment || src.stops > 0 {
			return nil
		}
		src.stops++
		if res := leader.fsm.Apply(trimEntry(t, leader.fsm.Applied()+1, last)).(command.Results); res[0].Err != nil {
			t.Error(res[0].Err)
		}
		if low, _ := leader.store.LogRange(); low != last {
			t.Errorf("minimum %d, trimmed to %d", low, last)
		}
		// What the peer is past goes, what it is in stays.
		kept := off / testSegment * testSegment
		for deadline := time.Now().Add(10 * time.Second); leader.store.Stats().FileMin != kept; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("files begin at %d, the peer is at %d", leader.store.Stats().FileMin, off)
				break
			}
		}
		return nil
	}
	f.install(t, leader)
	if src.stops == 0 {
		t.Fatal("nothing was trimmed meanwhile")
	}
	if low, to := f.store.LogRange(); low != first || to != end || f.fatal != nil {
		t.Errorf("the follower has [%d, %d), expected [%d, %d): %v", low, to, first, end, f.fatal)
	}
	awaitCleaned(t, leader.store)
	if low := leader.store.Stats().FileMin; low != last {
		t.Errorf("files begin at %d after the transfer", low)
	}

	// A transfer that starts now has what is left.
	g := openFollower(t, t.TempDir(), map[string]*follower{"leader": leader})
	defer g.close()
	g.install(t, leader)
	g.fsm.Apply(trimEntry(t, g.fsm.Applied()+1, last))
	if low, to := g.store.LogRange(); low != last || to != end || g.fatal != nil {
		t.Errorf("follower has [%d, %d), leader [%d, %d): %v", low, to, last, end, g.fatal)
	}
}
