package raftnode

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// Two of three nodes are gone for good; the third is made the only voter and goes on with what it holds.
func TestRecoverFromLostQuorum(t *testing.T) {
	for _, kind := range []LogStoreKind{WAL, Bolt} {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, func(_ int, cfg *Config) { cfg.LogStore = kind })
			c.keep()
			c.propose(t, "before")
			const last = 1
			eventually(t, 5*time.Second, "n2 has it", func() bool { return c.fsms[last].has("before") })
			if err := c.nodes[last].Snapshot(); err != nil {
				t.Fatal(err)
			}
			c.propose(t, "behind the snapshot")
			eventually(t, 5*time.Second, "n2 has it", func() bool { return c.fsms[last].has("behind the snapshot") })
			if _, err := Recover(c.configs[last], nil); !errors.Is(err, ErrInUse) {
				t.Errorf("recovery of a running node: %v", err)
			}
			for i := range c.nodes {
				c.close(t, i)
			}
			before, err := Inspect(c.configs[last])
			if err != nil || len(before.Servers) != 3 || before.SnapshotIndex == 0 || before.LastIndex <= before.SnapshotIndex {
				t.Fatalf("before: %+v, %v", before, err)
			}
			other := c.configs[last]
			other.Incarnation = "another"
			if _, err := Recover(other, nil); err == nil {
				t.Error("a folder was recovered for a node that is no member")
			}
			for range 2 { // again it does no harm
				after, err := Recover(c.configs[last], []byte("told by recovery"))
				if err != nil {
					t.Fatal(err)
				}
				if len(after.Servers) != 1 || after.Servers[0].ID != "n2" || !after.Servers[0].Voter || after.LastIndex != before.LastIndex+2 || after.Term <= before.Term {
					t.Errorf("before %+v, after %+v", before, after)
				}
				before = after
			}
			c.reopen(t, last)
			eventually(t, 10*time.Second, "n2 leads alone", func() bool { return c.nodes[last].State().Ready })
			for _, text := range []string{"behind the snapshot", "told by recovery"} {
				if !c.fsms[last].has(text) {
					t.Errorf("%q is lost", text)
				}
			}
			c.propose(t, "after")
			// One of the others comes back empty and is added.
			c.wipe(t, 0, "new")
			c.reopen(t, 0)
			if err := c.nodes[last].AddVoter(Server{ID: "n1", Incarnation: "new", RaftAddr: c.addrs[0]}); err != nil {
				t.Fatal(err)
			}
			eventually(t, 10*time.Second, "n1 has everything", func() bool { return c.fsms[0].has("after") })
		})
	}
}

func TestInspectOfNoFolder(t *testing.T) {
	if _, err := Inspect(Config{NodeID: "n1", Dir: t.TempDir(), Snapshots: raft.NewDiscardSnapshotStore()}); err == nil {
		t.Error("an empty folder was read as a node's")
	}
}
