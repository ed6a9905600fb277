package raftnode

import (
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// TestVoteOfAStranger: each case is one round of answers in order; a stranger's is marked.
func TestVoteOfAStranger(t *testing.T) {
	type answer struct {
		asked    string
		stranger bool
		granted  bool
		counts   bool
	}
	for name, answers := range map[string][]answer{
		"no stranger":                     {{"n2", false, true, true}, {"n3", false, false, false}},
		"a stranger and a refusal":        {{"n2", true, true, false}, {"n3", false, false, false}},
		"a refusal and a stranger":        {{"n3", false, false, false}, {"n2", true, true, false}},
		"a stranger and a grant":          {{"n2", true, true, true}, {"n3", false, true, true}},
		"two strangers":                   {{"n2", true, true, true}, {"n3", true, true, true}},
		"a stranger refuses":              {{"n2", true, false, false}, {"n3", false, true, true}},
		"a stranger, the other is silent": {{"n2", true, true, false}},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBallots(func() []raft.ServerID { return []raft.ServerID{"n2", "n3"} }, time.Second, hclog.NewNullLogger())
			for _, pre := range []bool{false, true} {
				// The round before leaves nothing behind.
				b.counts(pre, 6, "n2", []byte("n2"), true)
				b.counts(pre, 6, "n3", []byte("n3"), true)
				got := make([]bool, len(answers))
				for i, a := range answers {
					go func() {
						time.Sleep(time.Duration(i) * time.Millisecond)
						answered := a.asked
						if a.stranger {
							answered += "'"
						}
						got[i] = b.counts(pre, 7, raft.ServerID(a.asked), []byte(answered), a.granted)
					}()
				}
				time.Sleep(2 * time.Second)
				synctest.Wait()
				for i, a := range answers {
					if got[i] != a.counts {
						t.Errorf("%s: answer %d of %s counts: %v", name, i, a.asked, got[i])
					}
				}
			}
		})
	}
}

// wipe makes node i, which has been closed, a node without data at the same address.
func (c *testCluster) wipe(tb testing.TB, i int, incarnation string) {
	tb.Helper()
	dir := tb.TempDir()
	snaps, err := raft.NewFileSnapshotStoreWithLogger(filepath.Join(dir, "snapshots"), 2, hclog.NewNullLogger())
	if err != nil {
		tb.Fatal(err)
	}
	c.configs[i].Dir, c.configs[i].Snapshots, c.configs[i].Incarnation = filepath.Join(dir, "raft"), snaps, incarnation
}

func (c *testCluster) close(tb testing.TB, i int) {
	tb.Helper()
	if err := c.nodes[i].Close(); err != nil {
		tb.Fatal(err)
	}
}

// TestWipedNodeDoesNotVoteForALaggard is F57's amnesia: an entry is committed by the leader and one follower; that follower is wiped,
// the leader is down. The third node lacks the entry and must not lead with the help of the wiped one.
func TestWipedNodeDoesNotVoteForALaggard(t *testing.T) {
	c := startCluster(t, nil)
	lead := c.leader(t)
	wiped, late := (lead+1)%3, (lead+2)%3
	c.close(t, late)
	m := &message{data: []byte("acknowledged"), done: make(chan outcomeOf, 1)}
	if err := c.nodes[lead].Propose(m); err != nil {
		t.Fatal(err)
	}
	if o := <-m.done; o.err != nil {
		t.Fatal(o.err)
	}
	c.close(t, lead)
	c.close(t, wiped)
	c.wipe(t, wiped, "new")
	c.reopen(t, wiped)
	c.reopen(t, late)

	// The laggard asks again and again: nobody leads.
	deadline := time.Now().Add(5 * time.Second)
	for time.Now().Before(deadline) {
		for _, i := range []int{wiped, late} {
			if s := c.nodes[i].State(); s.Role == Leader || s.LeaderID != "" {
				t.Fatalf("%s leads in term %d without the acknowledged entry", s.LeaderID, s.Term)
			}
		}
		time.Sleep(10 * time.Millisecond)
	}
	// The one that has it comes back, and leads with the laggard's vote.
	c.reopen(t, lead)
	if got := c.leader(t); got != lead {
		t.Fatalf("n%d leads", got+1)
	}
	eventually(t, 10*time.Second, "the entry is everywhere", func() bool {
		for _, f := range c.fsms {
			f.mu.Lock()
			found := len(f.entries) > 0 && string(f.entries[len(f.entries)-1]) == "acknowledged"
			f.mu.Unlock()
			if !found {
				return false
			}
		}
		return true
	})
}

// TestTwoWipedNodesLetTheThirdLead is F57: there is nobody else who could know more.
func TestTwoWipedNodesLetTheThirdLead(t *testing.T) {
	c := startCluster(t, nil)
	lead := c.leader(t)
	m := &message{data: []byte("kept"), done: make(chan outcomeOf, 1)}
	if err := c.nodes[lead].Propose(m); err != nil {
		t.Fatal(err)
	}
	if o := <-m.done; o.err != nil {
		t.Fatal(o.err)
	}
	for i := range c.nodes {
		c.close(t, i)
	}
	for i := range c.nodes {
		if i != lead {
			c.wipe(t, i, fmt.Sprint("new", i))
			c.reopen(t, i)
		}
	}
	c.reopen(t, lead)
	if got := c.leader(t); got != lead {
		t.Fatalf("n%d leads", got+1)
	}
}
