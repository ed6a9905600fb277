package raftnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// badStore is a log store whose writes can be made to hang or to fail.
type badStore struct {
	backingStore
	fault *storeFault
}

type storeFault struct {
	hang     atomic.Pointer[chan struct{}] // writes wait until it is closed
	fail     atomic.Bool                   // writes fail and store nothing
	failures atomic.Int32                  // that many writes fail and store nothing
}

func (s *badStore) StoreLogs(logs []*raft.Log) error {
	if c := s.fault.hang.Load(); c != nil {
		<-*c
	}
	if s.fault.fail.Load() || s.fault.failures.Add(-1) >= 0 {
		return errInjected
	}
	return s.backingStore.StoreLogs(logs)
}

func (s *badStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

func (s *badStore) IsMonotonic() bool { return s.backingStore.(raft.MonotonicLogStore).IsMonotonic() }

// startBadCluster is three nodes with a fault each and a stall timeout of half a second.
func startBadCluster(t *testing.T) (*testCluster, []*storeFault, []chan error) {
	faults := []*storeFault{{}, {}, {}}
	fatal := []chan error{make(chan error, 4), make(chan error, 4), make(chan error, 4)}
	c := startCluster(t, func(i int, cfg *Config) {
		cfg.DiskStallTimeout = 500 * time.Millisecond
		cfg.OnFatal = func(err error) { fatal[i] <- err }
		cfg.wrapStore = func(s backingStore) backingStore { return &badStore{s, faults[i]} }
	})
	return c, faults, fatal
}

// propose proposes on whichever node leads until one takes it.
func (c *testCluster) propose(t *testing.T, text string) {
	t.Helper()
	eventually(t, 20*time.Second, "a leader commits "+text, func() bool {
		for _, n := range c.nodes {
			if !n.State().Ready {
				continue
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, _, err := n.ProposeWait(ctx, []byte(text))
			cancel()
			if err == nil {
				return true
			}
		}
		return false
	})
}

func (f *logFSM) has(text string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.entries, func(e []byte) bool { return bytes.Contains(e, []byte(text)) })
}

func (c *testCluster) keep() {
	for _, f := range c.fsms {
		f.mu.Lock()
		f.keep = true
		f.mu.Unlock()
	}
}

// anotherLeader waits until a node other than old is ready, and returns it.
func (c *testCluster) anotherLeader(t *testing.T, old int, within time.Duration) (leader int) {
	t.Helper()
	eventually(t, within, fmt.Sprintf("a leader other than n%d", old+1), func() bool {
		leader = slices.IndexFunc(c.nodes, func(n *Node) bool { return n.State().Ready })
		return leader >= 0 && leader != old
	})
	return leader
}

// F31: the leader's fsync hangs. Raft's main loop is stuck in it while heartbeats go on; the watchdog makes another node lead.
func TestF31LeadershipLeavesADiskThatStalls(t *testing.T) {
	t.Parallel()
	c, faults, fatal := startBadCluster(t)
	old := c.leader(t)
	c.keep()
	c.propose(t, "before")
	release := make(chan struct{})
	faults[old].hang.Store(&release)
	if err := c.nodes[old].Propose(&message{data: []byte("stuck"), done: make(chan outcomeOf, 1)}); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	eventually(t, 5*time.Second, "the stalled leader takes no more writes", func() bool { return !c.nodes[old].State().Ready })
	if took := time.Since(began); took > 500*time.Millisecond+2*time.Second {
		t.Errorf("leadership was given up after %v, the stall timeout is 500 ms", took)
	}
	if p := c.nodes[old].DiskProblem(); p == nil || p.Failed {
		t.Errorf("disk problem %+v", p)
	}
	// A dead leader's heartbeats are missed for one to two of 800 ms, then comes the election.
	leader := c.anotherLeader(t, old, 8*time.Second)
	t.Logf("another leader %v after the stall began", time.Since(began).Round(time.Millisecond))
	c.propose(t, "meanwhile")
	for begin := time.Now(); time.Since(begin) < time.Second; time.Sleep(10 * time.Millisecond) {
		if s := c.nodes[old].State(); s.Role == Leader {
			t.Fatalf("the stalled node leads: %+v", s)
		}
	}
	if c.nodes[leader].link.shut.Load() {
		t.Error("the new leader stands aside")
	}

	faults[old].hang.Store(nil)
	close(release)
	eventually(t, 15*time.Second, "the node comes back", func() bool { return c.nodes[old].DiskProblem() == nil })
	eventually(t, 15*time.Second, "the node follows again", func() bool { return c.fsms[old].has("meanwhile") })
	select {
	case err := <-fatal[old]:
		t.Errorf("a stall that ended is no failure: %v", err)
	default:
	}
}

// F29: the leader's Raft log can't be written. Another node leads; the bad one does not stand while its probe fails, and comes
// back when it is opened again.
func TestF29BadDiskLeaderDoesNotStand(t *testing.T) {
	t.Parallel()
	c, faults, fatal := startBadCluster(t)
	old := c.leader(t)
	c.keep()
	c.propose(t, "before")
	faults[old].fail.Store(true)
	began := time.Now()
	m := &message{data: []byte("refused"), done: make(chan outcomeOf, 1)}
	if err := c.nodes[old].Propose(m); err != nil {
		t.Fatal(err)
	}
	if o := <-m.done; !errors.Is(o.err, ErrLeadershipLost) {
		t.Errorf("a command that could not be stored: %v", o.err)
	}
	leader := c.anotherLeader(t, old, 8*time.Second)
	t.Logf("another leader %v after the failure", time.Since(began).Round(time.Millisecond))
	if err := <-fatal[old]; !errors.Is(err, ErrDisk) || !errors.Is(err, errInjected) {
		t.Errorf("fatal error %v", err)
	}
	term := c.nodes[leader].State().Term
	for begin := time.Now(); time.Since(begin) < 3*time.Second; time.Sleep(10 * time.Millisecond) {
		if s := c.nodes[old].State(); s.Role == Leader || s.Ready {
			t.Fatalf("the bad node leads: %+v", s)
		}
	}
	if s := c.nodes[leader].State(); s.Term != term || !s.Ready {
		t.Errorf("term %d became %d, leader ready: %v: the bad node disturbed", term, s.Term, s.Ready)
	}
	if err := Probe(c.configs[old]); !errors.Is(err, errInjected) {
		t.Errorf("probe of the bad disk: %v", err)
	}
	c.propose(t, "meanwhile")
	faults[old].fail.Store(false)
	if err := Probe(c.configs[old]); err != nil {
		t.Errorf("probe of the disk, which is well again: %v", err)
	}
	if err := c.nodes[old].Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	c.reopen(t, old)
	eventually(t, 15*time.Second, "the node follows again", func() bool { return c.fsms[old].has("before") && c.fsms[old].has("meanwhile") })
}

// F33: one fsync fails and the next ones would succeed. Nothing is acknowledged and no vote given until the store has been
// opened again.
func TestF33FirstFailedSyncPoisons(t *testing.T) {
	t.Parallel()
	c, faults, fatal := startBadCluster(t)
	leader := c.leader(t)
	c.keep()
	bad, third := (leader+1)%3, (leader+2)%3
	c.propose(t, "before")
	faults[bad].failures.Store(1)
	c.propose(t, "lost on the bad one")
	if err := <-fatal[bad]; !errors.Is(err, ErrDisk) {
		t.Errorf("fatal error %v", err)
	}
	// The leader and the bad one are no quorum, although every write of the bad one would succeed now.
	if err := c.nodes[third].Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, _, err := c.nodes[leader].ProposeWait(ctx, []byte("unacknowledged")); err == nil {
		t.Error("an entry was committed with the bad node's acknowledgement")
	}
	// Nor do the bad one and the third elect anybody.
	if err := c.nodes[leader].Close(); err != nil {
		t.Fatal(err)
	}
	c.reopen(t, third)
	for begin := time.Now(); time.Since(begin) < 4*time.Second; time.Sleep(10 * time.Millisecond) {
		if s := c.nodes[third].State(); s.Role == Leader {
			t.Fatalf("elected with the bad node's vote: %+v", s)
		}
	}
	if err := c.nodes[bad].Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	c.reopen(t, bad)
	c.propose(t, "after")
	eventually(t, 15*time.Second, "the reopened node has everything", func() bool {
		return c.fsms[bad].has("before") && c.fsms[bad].has("lost on the bad one") && c.fsms[bad].has("after")
	})
	c.reopen(t, leader)
}

// A term that can't be saved ends Raft's goroutine and not the process.
func TestFailingStableStoreEndsTheNodeOnly(t *testing.T) {
	t.Parallel()
	c, _, fatal := startBadCluster(t)
	leader := c.leader(t)
	bad := (leader + 1) % 3
	if err := c.nodes[bad].stable.Close(); err != nil { // writes fail from now on
		t.Fatal(err)
	}
	if err := c.nodes[leader].TransferLeadership(); err != nil {
		t.Logf("transfer: %v", err) // the bad one may have been asked to lead
	}
	select {
	case err := <-fatal[bad]:
		if !errors.Is(err, ErrDisk) {
			t.Errorf("fatal error %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("no fatal error")
	}
	if err := c.nodes[bad].Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	c.reopen(t, bad)
	c.propose(t, "after")
}

func TestCommitLogStallHandsLeadershipOver(t *testing.T) {
	t.Parallel()
	var busy [3]atomic.Int64
	c := startCluster(t, func(i int, cfg *Config) {
		cfg.DiskStallTimeout = 300 * time.Millisecond
		cfg.DiskBusy = func() (string, time.Time) {
			if at := busy[i].Load(); at > 0 {
				return "flush of the commit log", time.UnixMilli(at)
			}
			return "", time.Time{}
		}
	})
	old := c.leader(t)
	busy[old].Store(time.Now().UnixMilli())
	c.anotherLeader(t, old, 5*time.Second)
	if p := c.nodes[old].DiskProblem(); p == nil {
		t.Error("no disk problem")
	}
	busy[old].Store(0)
	eventually(t, 15*time.Second, "the node comes back", func() bool { return c.nodes[old].DiskProblem() == nil })
}
