package fsm

import (
	"bytes"
	"errors"
	"testing"

	"raftmq/fsm/command"

	"github.com/hashicorp/raft"
)

// headOf is the head of a snapshot of a replica with some state.
func headOf(t *testing.T) (*replica, []byte) {
	t.Helper()
	r := openReplica(t, t.TempDir(), nil)
	t.Cleanup(func() { _ = r.store.Close() })
	logs := script(t, 1)
	r.fsm.ApplyBatch(logs)
	node, err := command.AppendJSON(command.AppendEntryHead(nil), command.KindNodePut, command.NodePut{ID: "old", ClientAddr: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	r.fsm.ApplyBatch([]*raft.Log{{Index: logs[len(logs)-1].Index + 1, Term: 1, Type: raft.LogCommand, Data: node}})
	snapshot, err := r.fsm.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var sink memorySink
	if err := snapshot.Persist(&sink); err != nil {
		t.Fatal(err)
	}
	return r, sink.Bytes()
}

// TestDetach: the head for a new cluster has the same content under another id, and none of the former nodes.
func TestDetach(t *testing.T) {
	r, raw := headOf(t)
	saved, err := ReadSaved(raw)
	if err != nil {
		t.Fatal(err)
	}
	_, end := r.store.LogRange()
	if saved.Applied != r.fsm.Applied() || saved.Position.LogEnd != end || end == 0 || saved.Settings.ClusterID == "" || saved.Level != command.Oldest {
		t.Errorf("saved %+v, log ends at %d", saved, end)
	}
	detached, err := Detach(raw, "new-id")
	if err != nil {
		t.Fatal(err)
	}
	_, before, err := readSaved(raw)
	if err != nil {
		t.Fatal(err)
	}
	h, after, err := readSaved(detached)
	if err != nil {
		t.Fatal(err)
	}
	if s, _ := after.Settings(); s.ClusterID != "new-id" || len(after.Nodes()) != 0 || len(before.Nodes()) != 1 || h.Applied != saved.Applied {
		t.Errorf("settings %+v, nodes %v, before %v", s, after.Nodes(), before.Nodes())
	}
	// All else is equal: make the rest equal and compare.
	if err := before.Detach("new-id"); err != nil {
		t.Fatal(err)
	}
	a, _ := before.Export()
	b, _ := after.Export()
	if !bytes.Equal(a, b) {
		t.Errorf("tables differ:\n%s\n%s", a, b)
	}
}

func TestReadSavedRefusals(t *testing.T) {
	_, raw := headOf(t)
	flipped := bytes.Clone(raw)
	flipped[len(flipped)/2] ^= 1
	for name, b := range map[string][]byte{"empty": nil, "cut": raw[:len(raw)-1], "bytes behind": append(bytes.Clone(raw), 0), "flipped": flipped} {
		if _, err := ReadSaved(b); !errors.Is(err, ErrSnapshot) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Detach(raw[:10], "x"); !errors.Is(err, ErrSnapshot) {
		t.Errorf("detach of a cut head: %v", err)
	}
}
