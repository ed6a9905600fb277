package fsm

import (
	"errors"
	"testing"

	"raftmq/commitlog/record"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"

	"github.com/hashicorp/raft"
)

// TestRelocationIsAllOrNothing: what an earlier command has done is not done again, and a refused
// command leaves no byte (F15, F17).
func TestRelocationIsAllOrNothing(t *testing.T) {
	r := openReplica(t, t.TempDir(), nil)
	defer r.store.Close()
	r.fsm.Apply(script(t, 1)[0])
	index := uint64(2)
	apply := func(entry []byte) command.Results {
		index++
		return r.fsm.Apply(&raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: entry}).(command.Results)
	}
	rec := record.Append(nil, &record.Message{Topic: []byte("T"), QueueID: 3, Body: []byte("x"), StoreTimestamp: 5})
	other := record.Append(nil, &record.Message{Topic: []byte("U"), Body: []byte("y"), StoreTimestamp: 5})
	deliver := func(from, to int64, records []byte, n int) []byte {
		return command.AppendDelayDeliver(nil, &command.DelayDeliver{Level: 2, Expected: from, Next: to, Count: n, Records: records})
	}
	end := func(o command.Outcome, half int64, records []byte, n int) []byte {
		return command.AppendTransactionEnd(nil, &command.TransactionEnd{Outcome: o, Half: half, Count: n, Records: records})
	}
	both := append(append([]byte{}, rec...), other...)
	entry := command.AppendEntryHead(nil)
	for _, c := range [][]byte{deliver(0, 5, both, 2), deliver(0, 5, both, 2), deliver(5, 6, nil, 0), deliver(5, 7, rec, 1), deliver(6, 7, rec, 1)} {
		entry = append(entry, c...)
	}
	got := apply(entry)
	for i, refused := range []bool{false, true, false, true, false} {
		if errors.Is(got[i].Err, metadata.ErrDelayProgress) != refused {
			t.Errorf("delivery %d: %v", i, got[i].Err)
		}
	}
	if a, b := r.store.MaxOffset("T", 3), r.store.MaxOffset("U", 0); a != 2 || b != 1 || r.tables.DelayProgress(2) != 7 {
		t.Errorf("T/3 has %d messages, U/0 %d, level 2 stands at %d; want 2, 1, 7", a, b, r.tables.DelayProgress(2))
	}
	if got[4].QueueOffset != 1 || got[4].PhyOffset <= got[0].PhyOffset {
		t.Errorf("offsets of the first and the last delivery: %+v %+v", got[0], got[4])
	}

	_, before := r.store.LogRange()
	got = apply(append(command.AppendEntryHead(nil), end(command.RolledBack, 1, other, 1)...))
	_, after := r.store.LogRange()
	if got[0].Err != nil || after <= before {
		t.Errorf("rollback: %+v, the log grew by %d", got[0], after-before)
	}
	for _, o := range []command.Outcome{command.Committed, command.RolledBack, command.GivenUp} {
		got = apply(append(command.AppendEntryHead(nil), end(o, 1, both, 2)...))
		if !errors.Is(got[0].Err, metadata.ErrTransactionEnded) {
			t.Errorf("second end %d: %+v", o, got[0])
		}
	}
	if _, end := r.store.LogRange(); end != after {
		t.Errorf("refused ends stored %d bytes", end-after)
	}
	got = apply(append(command.AppendEntryHead(nil), end(command.Committed, 0, both, 2)...))
	if got[0].Err != nil || got[0].QueueOffset != 2 || r.tables.NextOpenHalf(0) != 2 {
		t.Errorf("commit: %+v, next open half message %d", got[0], r.tables.NextOpenHalf(0))
	}
	if r.fatal != nil {
		t.Fatal(r.fatal)
	}

	// A malformed one stops the node, as every entry that cannot be understood.
	cut := apply(append(command.AppendEntryHead(nil), end(command.Committed, 7, both[:len(both)-1], 2)...))
	if !errors.Is(cut[0].Err, ErrStopped) || !errors.Is(r.fatal, command.ErrMalformed) {
		t.Errorf("cut records: %+v, fatal %v", cut, r.fatal)
	}
}
