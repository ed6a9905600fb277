package fsm

import (
	"bytes"
	"io"
	"testing"

	"raftmq/fsm/command"

	"github.com/hashicorp/raft"
)

// TestF79_LocksAreReplicated: two replicas that apply the same entries name the same owners, and so does one that is filled with a snapshot.
func TestF79_LocksAreReplicated(t *testing.T) {
	queues := func(from string, ids ...int32) (out []command.LockedQueue) {
		for _, id := range ids {
			out = append(out, command.LockedQueue{QueueName: command.QueueName{Topic: "T", QueueID: id}, From: from})
		}
		return out
	}
	entry := func(index uint64, kind command.Kind, payload any) *raft.Log {
		b, err := command.AppendJSON(command.AppendEntryHead(nil), kind, payload)
		if err != nil {
			t.Fatal(err)
		}
		return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: b}
	}
	logs := []*raft.Log{
		raiseTo(t, 1, command.Newest),
		entry(2, command.KindQueueLocksAdopt, command.QueueLocksAdopt{Locks: []command.QueueLock{{Group: "g", Owner: "old", Queues: queues("", 7)}}}),
		entry(3, command.KindQueueLock, command.QueueLock{Group: "g", Owner: "a", Queues: queues("", 0, 1, 7)}),
		entry(4, command.KindQueueLock, command.QueueLock{Group: "g", Owner: "b", Queues: queues("a", 1, 7)}),
		entry(5, command.KindQueueLock, command.QueueLock{Group: "g", Owner: "a"}),
		entry(6, command.KindQueueUnlock, command.QueueUnlock{Locks: []command.QueueLock{{Group: "g", Owner: "a", Queues: queues("", 0, 1)}}}),
	}
	want := `"locks":[{"g":"g","c":"b","qs":[{"t":"T","q":1}]},{"g":"g","c":"old","qs":[{"t":"T","q":7}]}],"allLocks":true`
	r := openReplica(t, t.TempDir(), nil)
	defer r.store.Close()
	for _, l := range logs {
		if res := r.fsm.Apply(l).(command.Results); res[0].Err != nil || r.fatal != nil {
			t.Fatalf("entry %d: %v, fatal %v", l.Index, res[0].Err, r.fatal)
		}
	}
	snap, err := r.fsm.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var sink memorySink
	if err := snap.Persist(&sink); err != nil {
		t.Fatal(err)
	}
	filled := openReplica(t, t.TempDir(), nil)
	defer filled.store.Close()
	if err := filled.fsm.Restore(io.NopCloser(&sink.Buffer)); err != nil {
		t.Fatal(err)
	}
	for _, replica := range []*replica{r, filled} {
		if tables, err := replica.tables.Export(); err != nil || !bytes.Contains(tables, []byte(want)) {
			t.Errorf("tables %s (%v), want %s in them", tables, err, want)
		}
	}
}
