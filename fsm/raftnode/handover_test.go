package raftnode

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestHandOverLosesNothingInFlight: writers go on while leadership moves. What was taken is committed and answered; nothing ends with an unknown
// outcome, and nothing with a refusal after it was taken.
func TestHandOverLosesNothingInFlight(t *testing.T) {
	c := startCluster(t, nil)
	c.leader(t)
	var stop atomic.Bool
	var wg sync.WaitGroup
	var stored, refused atomic.Int64
	for range 8 {
		wg.Go(func() {
			done := make(chan outcomeOf, 1)
			for !stop.Load() {
				took := false
				for _, n := range c.nodes {
					err := n.Propose(&message{data: []byte("m"), done: done})
					if errors.Is(err, ErrNotLeader) {
						refused.Add(1)
						continue
					}
					if err != nil {
						t.Errorf("propose: %v", err)
						return
					}
					took = true
					if o := <-done; o.err != nil {
						t.Errorf("taken, then: %v", o.err)
						return
					}
					stored.Add(1)
				}
				if !took {
					time.Sleep(time.Millisecond) // as the broker holds a write that finds no leader
				}
			}
		})
	}
	for range 6 {
		before := stored.Load()
		from := c.leader(t)
		eventually(t, 20*time.Second, "load", func() bool { return stored.Load() > before+50 })
		eventually(t, 20*time.Second, "leadership moves", func() bool {
			err := c.nodes[from].TransferLeadershipTo("")
			return err == nil || errors.Is(err, ErrNotLeader)
		})
		eventually(t, 20*time.Second, "another leader", func() bool {
			for i, n := range c.nodes {
				if i != from && n.State().Ready {
					return true
				}
			}
			return c.nodes[from].State().Ready // an election gave it back
		})
	}
	stop.Store(true)
	wg.Wait()
	t.Logf("%d stored, %d refused before they were taken", stored.Load(), refused.Load())
}

// TestHandOverThatFails: the named node is gone. This one takes writes again.
func TestHandOverThatFails(t *testing.T) {
	c := startCluster(t, nil)
	leader := c.leader(t)
	gone := (leader + 1) % 3
	if err := c.nodes[gone].Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.nodes[leader].TransferLeadershipTo(c.configs[gone].NodeID); err == nil {
		t.Fatal("leadership went to a node that is gone")
	}
	eventually(t, 20*time.Second, "writes are taken again", func() bool {
		done := make(chan outcomeOf, 1)
		for _, n := range c.nodes {
			if n != c.nodes[gone] && n.Propose(&message{data: []byte("m"), done: done}) == nil {
				return (<-done).err == nil
			}
		}
		return false
	})
}
