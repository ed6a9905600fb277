package fsm

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"raftmq/commitlog/store"
	"raftmq/fsm/command"

	"github.com/hashicorp/raft"
)

func raiseTo(t *testing.T, index uint64, level command.Level) *raft.Log {
	t.Helper()
	b, err := command.AppendJSON(command.AppendEntryHead(nil), command.KindLevel, command.Raise{Level: level})
	if err != nil {
		t.Fatal(err)
	}
	return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: b}
}

// TestF83_RaiseIsAppliedAndATooHighOneStopsTheNode: a node that cannot apply a level must not go on without it, whether it
// meets it as a command or in a snapshot.
func TestF83_RaiseIsAppliedAndATooHighOneStopsTheNode(t *testing.T) {
	r := openReplica(t, t.TempDir(), nil)
	defer r.store.Close()
	if res := r.fsm.Apply(raiseTo(t, 1, command.Newest)).(command.Results); res[0].Err != nil || r.tables.Level() != command.Newest {
		t.Fatalf("%v, level %d", res[0].Err, r.tables.Level())
	}
	if res := r.fsm.Apply(raiseTo(t, 2, command.Newest-1)).(command.Results); command.Newest > command.Oldest && res[0].Err == nil || r.fatal != nil {
		t.Fatalf("lowering: %v, fatal %v", res[0].Err, r.fatal)
	}
	if res := r.fsm.Apply(raiseTo(t, 3, command.Newest+1)).(command.Results); !errors.Is(res[0].Err, ErrStopped) || !errors.Is(r.fatal, command.ErrUnknown) || r.tables.Level() != command.Newest {
		t.Fatalf("%v, fatal %v, level %d", res[0].Err, r.fatal, r.tables.Level())
	}
}

func TestF83_SnapshotOfAHigherLevelStopsTheNode(t *testing.T) {
	r := openReplica(t, t.TempDir(), nil)
	defer r.store.Close()
	b, err := appendHead(nil, &head{Version: snapshotVersion, Applied: 3, Term: 1, Position: store.Position{RaftIndex: 3},
		Tables: []byte(`{"version":3,"nextNumber":1,"level":99}`)})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.fsm.Restore(io.NopCloser(bytes.NewReader(b))); !errors.Is(err, command.ErrUnknown) || !errors.Is(r.fatal, command.ErrUnknown) {
		t.Fatalf("restore: %v, fatal %v", err, r.fatal)
	}
}
