package raftnode

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	"golang.org/x/sys/unix"
)

// Lease-Before-Answer: State.Ready says what Raft's loop has noticed so far. A leader whose process was stopped and goes on, or whose
// machine slept, is Ready until the loop has run, and another one may have taken writes meanwhile. So what must not be old is answered
// only by a node that Certain, asked after the value was read, says yes to, or Confirm.

// lease is until when no other node can lead. A voter that has answered a leader's call grants its vote to nobody else for
// HeartbeatTimeout after it got that call (Raft refuses votes while it hears a leader, and young does after a restart). While a majority
// has answered calls that began less than that ago, nobody else can be elected.
type lease struct {
	length time.Duration
	clock  func() time.Duration // time that goes on while the machine sleeps
	// voters are the other voters of the latest configuration, and whether this node is one.
	voters func() (others []raft.ServerID, self bool)

	granted atomic.Pointer[grant]

	mu      sync.Mutex
	term    uint64                          // guarded by mu
	asked   map[raft.ServerID]time.Duration // guarded by mu: when the newest call that was answered began
	heard   time.Duration                   // guarded by mu: a majority has answered calls that began then or later; negative for none
	void    uint64                          // guarded by mu: the term in which a transfer was tried
	changed chan struct{}                   // guarded by mu: closed when heard grows; nil: nobody waits
}

// grant is what a majority has granted.
type grant struct {
	term  uint64
	until time.Duration
}

func newLease(length time.Duration, voters func() ([]raft.ServerID, bool)) *lease {
	return &lease{length: length, clock: sinceBoot, voters: voters, heard: -1, asked: map[raft.ServerID]time.Duration{}}
}

// sinceBoot is a monotonic clock that counts the time in which the machine was suspended, which Go's does not.
func sinceBoot() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &t); err != nil {
		panic(fmt.Sprintf("raftnode: CLOCK_BOOTTIME: %v", err)) // Linux has it since 2.6.39
	}
	return time.Duration(t.Nano())
}

// answered notes that a voter has taken this node for its leader in a term, in answer to a call that began at asked.
func (l *lease) answered(id raft.ServerID, term uint64, asked time.Duration) {
	others, self := l.voters()
	l.mu.Lock()
	defer l.mu.Unlock()
	if term < l.term {
		return
	}
	if term > l.term {
		l.term, l.heard = term, -1
		clear(l.asked)
	}
	l.asked[id] = max(l.asked[id], asked)
	need := len(others)/2 + 1
	if self {
		need = (len(others) + 1) / 2
	}
	times := make([]time.Duration, 0, 8)
	for _, o := range others {
		if at, ok := l.asked[o]; ok {
			times = append(times, at)
		}
	}
	if need == 0 || len(times) < need {
		return
	}
	slices.SortFunc(times, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	if l.heard = times[need-1]; l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
	if l.void != term {
		l.granted.Store(&grant{term: term, until: l.heard + l.length})
	}
}

// confirmed reports whether a majority has answered calls of a term that began at since or later; if not, changed is closed when another
// one has been answered.
func (l *lease) confirmed(term uint64, since time.Duration) (ok bool, changed <-chan struct{}) {
	others, self := l.voters()
	l.mu.Lock()
	defer l.mu.Unlock()
	if self && len(others) == 0 || l.term == term && l.heard >= since {
		return true, nil
	}
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return false, l.changed
}

// revoke ends the lease of a term for good: its leader asks for a transfer, and voters obey that even if it seems to fail.
func (l *lease) revoke(term uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.void = max(l.void, term)
	l.granted.Store(nil)
}

// holds reports whether nobody else can have been elected after this node in term, up to now.
func (l *lease) holds(term uint64) bool {
	if g := l.granted.Load(); g != nil {
		return g.term == term && l.clock() < g.until
	}
	others, self := l.voters()
	return self && len(others) == 0 // nobody is asked, nobody else can be elected
}

// Certain reports whether this node is Ready and no other node can have led in its place until now. It is cheap (one look at a clock)
// and says no when a majority was not heard for most of HeartbeatTimeout, however well this node is: then Confirm knows.
func (n *Node) Certain() bool {
	s := n.State()
	return s.Ready && n.lease.holds(s.Term)
}

// Confirm waits until a majority has answered calls that began after it was called, and returns nil then: what was read before, while
// this node was Ready, was not old. ErrNotLeader when this node leads no more, or ctx's error.
//
// Raft's own VerifyLeader does not do: it counts an answer that was on its way when it was called, and a process that was stopped has such
// answers waiting. It is called all the same, since it makes Raft send heartbeats at once.
func (n *Node) Confirm(ctx context.Context) error {
	s := n.State()
	if !s.Ready {
		return ErrNotLeader
	}
	since := n.lease.clock()
	deposed := make(chan error, 1)
	go func() { // ends with the round, or with Raft
		if err := n.raft.VerifyLeader().Error(); err != nil {
			deposed <- err
		}
	}()
	for {
		ok, changed := n.lease.confirmed(s.Term, since)
		if ok {
			return nil
		}
		select {
		case <-changed:
		case err := <-deposed:
			return fmt.Errorf("%w: %w", ErrNotLeader, err)
		case <-ctx.Done():
			return fmt.Errorf("raftnode: leadership was not confirmed: %w", ctx.Err())
		case <-n.stop:
			return ErrClosed
		}
	}
}

// young turns candidates away for a while after a restart: this node may have answered a leader just before it went down, and its answer is
// part of that leader's lease.
type young struct {
	inner <-chan raft.RPC
	outer chan raft.RPC
	until time.Duration
	clock func() time.Duration
}

// run passes calls of other nodes on to Raft until stop is closed.
func (y *young) run(stop <-chan struct{}) {
	for {
		var rpc raft.RPC
		select {
		case rpc = <-y.inner:
		case <-stop:
			return
		}
		if y.refuses(&rpc) {
			continue
		}
		select {
		case y.outer <- rpc:
		case <-stop:
			return
		}
	}
}

// refuses answers a candidate while this node is young. One that its leader sent is let through: that leader knows.
func (y *young) refuses(rpc *raft.RPC) bool {
	switch c := rpc.Command.(type) {
	case *raft.RequestVoteRequest:
		if c.LeadershipTransfer || y.clock() >= y.until {
			return false
		}
		rpc.Respond(&raft.RequestVoteResponse{RPCHeader: c.RPCHeader, Term: c.Term}, nil)
		return true
	case *raft.RequestPreVoteRequest:
		if y.clock() >= y.until {
			return false
		}
		rpc.Respond(&raft.RequestPreVoteResponse{RPCHeader: c.RPCHeader, Term: c.Term}, nil)
		return true
	}
	return false
}
