package fsm

import (
	"errors"
	"testing"

	"raftmq/fsm/command"
	"raftmq/fsm/metadata"

	"github.com/hashicorp/raft"
)

// TestSegmentSum: the command is refused on every node alike for what is no sealed segment of the log at its entry, also while a restart replays it over
// a log that has more by then, and a trim forgets what it hides.
func TestSegmentSum(t *testing.T) {
	logs := script(t, 9)[:14] // without a trim
	index := logs[len(logs)-1].Index
	for _, from := range []int64{0, testSegment, 1, 1 << 40} {
		index++
		b, err := command.AppendJSON(command.AppendEntryHead(nil), command.KindSegmentSum, command.SegmentSum{From: from, Sum: uint32(from + 5)})
		if err != nil {
			t.Fatal(err)
		}
		logs = append(logs, &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: b})
	}
	more := script(t, 9)[14:16]
	for _, l := range more {
		index++
		logs = append(logs, &raft.Log{Index: index, Term: 3, Type: raft.LogCommand, Data: l.Data})
	}
	logs = append(logs, trimEntry(t, index+1, testSegment))
	dir := t.TempDir()
	var first []error
	for round := range 2 { // the second replays
		r := openReplica(t, dir, nil)
		var got []error
		for _, l := range logs {
			res := r.fsm.Apply(l).(command.Results)
			if r.fatal != nil {
				t.Fatal(r.fatal)
			}
			if l.Index > logs[13].Index && l.Index <= logs[17].Index {
				got = append(got, res[0].Err)
			}
		}
		_, end := r.store.LogRange()
		if end < 2*testSegment {
			t.Fatalf("the log has %d bytes", end)
		}
		if got[0] != nil || !errors.Is(got[2], metadata.ErrSegment) || !errors.Is(got[3], metadata.ErrSegment) {
			t.Fatalf("round %d: %v", round, got)
		}
		if round == 0 {
			first = got
		}
		for i := range got {
			if (got[i] == nil) != (first[i] == nil) {
				t.Errorf("entry %d: %v, and %v in the replay", i, first[i], got[i])
			}
		}
		if _, ok := r.tables.SegmentSum(0); ok {
			t.Error("a trimmed segment has a checksum")
		}
		if err := r.store.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
