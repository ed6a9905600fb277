package raftnode

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// A lease is as long as the oldest of the newest majority of answers says, in the term that they are from.
func TestLease(t *testing.T) {
	const ms, length = time.Millisecond, 750 * time.Millisecond
	type answer struct {
		id   raft.ServerID
		term uint64
		at   time.Duration
	}
	for _, c := range []struct {
		name    string
		others  []raft.ServerID
		self    bool
		answers []answer
		term    uint64
		until   time.Duration // 0: never held
	}{
		{"nobody has answered", []raft.ServerID{"b", "c"}, true, nil, 2, 0},
		{"one of two others", []raft.ServerID{"b", "c"}, true, []answer{{"b", 2, 100 * ms}}, 2, 850 * ms},
		{"the newer of two", []raft.ServerID{"b", "c"}, true, []answer{{"b", 2, 100 * ms}, {"c", 2, 300 * ms}}, 2, 1050 * ms},
		{"an older answer takes nothing away", []raft.ServerID{"b", "c"}, true, []answer{{"b", 2, 300 * ms}, {"b", 2, 100 * ms}}, 2, 1050 * ms},
		{"the second of four others", []raft.ServerID{"b", "c", "d", "e"}, true, []answer{{"b", 2, 100 * ms}, {"c", 2, 300 * ms}, {"d", 2, 200 * ms}}, 2, 950 * ms},
		{"one of four others", []raft.ServerID{"b", "c", "d", "e"}, true, []answer{{"b", 2, 100 * ms}}, 2, 0},
		{"one other of two voters", []raft.ServerID{"b"}, true, []answer{{"b", 2, 100 * ms}}, 2, 850 * ms},
		{"this node is no voter any more", []raft.ServerID{"b", "c"}, false, []answer{{"b", 2, 100 * ms}}, 2, 0},
		{"of both, this node is no voter", []raft.ServerID{"b", "c"}, false, []answer{{"b", 2, 100 * ms}, {"c", 2, 300 * ms}}, 2, 850 * ms},
		{"a non-voter", []raft.ServerID{"b", "c"}, true, []answer{{"x", 2, 100 * ms}}, 2, 0},
		{"of an earlier term", []raft.ServerID{"b", "c"}, true, []answer{{"b", 2, 100 * ms}}, 3, 0},
		{"late, of an earlier term", []raft.ServerID{"b", "c"}, true, []answer{{"b", 3, 100 * ms}, {"c", 2, 300 * ms}}, 3, 850 * ms},
		{"earlier terms are forgotten", []raft.ServerID{"b", "c", "d", "e"}, true, []answer{{"b", 2, 100 * ms}, {"c", 3, 200 * ms}}, 3, 0},
		{"alone", nil, true, nil, 2, 1 << 40},
		{"alone and no voter", nil, false, nil, 2, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			var now time.Duration
			l := newLease(length, func() ([]raft.ServerID, bool) { return c.others, c.self })
			l.clock = func() time.Duration { return now }
			for _, a := range c.answers {
				l.answered(a.id, a.term, a.at)
			}
			if now = c.until - 1; c.until > 0 && !l.holds(c.term) {
				t.Errorf("lost before %v", c.until)
			}
			if now = c.until; now < 1<<40 && l.holds(c.term) {
				t.Errorf("held at %v", now)
			}
		})
	}
}

// A leader that asks for a transfer has no lease in that term any more: voters obey the one that it asks.
func TestRevokedLease(t *testing.T) {
	l := newLease(time.Second, func() ([]raft.ServerID, bool) { return []raft.ServerID{"b", "c"}, true })
	l.clock = func() time.Duration { return 0 }
	l.answered("b", 2, 0)
	l.revoke(2)
	l.answered("b", 2, 0)
	if l.holds(2) {
		t.Error("held after a transfer")
	}
	l.answered("b", 3, 0)
	if !l.holds(3) {
		t.Error("not held in the next term")
	}
}

// What confirms a leader is an answer to a call that began later, of a majority, in its term; answers that were on their way do not.
func TestConfirmed(t *testing.T) {
	l := newLease(time.Second, func() ([]raft.ServerID, bool) { return []raft.ServerID{"b", "c", "d", "e"}, true })
	for _, step := range []struct {
		id   raft.ServerID
		term uint64
		at   time.Duration
		want bool
	}{
		{"b", 2, 100, false}, {"c", 2, 99, false}, {"c", 1, 200, false}, {"d", 2, 100, true},
	} {
		ok, changed := l.confirmed(2, 100)
		if ok {
			t.Fatalf("%+v: confirmed before", step)
		}
		l.answered(step.id, step.term, step.at)
		if ok, _ := l.confirmed(2, 100); ok != step.want {
			t.Errorf("%+v: %v", step, ok)
		}
		if step.want {
			<-changed
		}
	}
	if ok, _ := l.confirmed(3, 100); ok {
		t.Error("confirmed in another term")
	}
	l.revoke(2)
	if ok, _ := l.confirmed(2, 100); !ok {
		t.Error("a transfer that failed does not matter: the answers are from after the reading")
	}
}

// The clock is the machine's since boot, and costs nothing to speak of.
func TestSinceBoot(t *testing.T) {
	a := sinceBoot()
	time.Sleep(2 * time.Millisecond)
	if b := sinceBoot(); a <= 0 || b-a < 2*time.Millisecond || b-a > time.Minute {
		t.Errorf("%v, then %v", a, b)
	}
	if n := testing.AllocsPerRun(100, func() { sinceBoot() }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// A leader that is well is certain; one that was stopped is not when it goes on, whatever State says, until a majority has answered. So is one
// that is cut off, and it can't be confirmed.
func TestCertain(t *testing.T) {
	c := startCluster(t, nil)
	leader := c.nodes[c.leader(t)]
	var slept atomic.Int64
	leader.lease.mu.Lock()
	leader.lease.clock = func() time.Duration { return sinceBoot() + time.Duration(slept.Load()) }
	leader.lease.mu.Unlock()
	eventually(t, 10*time.Second, "certain", leader.Certain)
	for _, n := range c.nodes {
		if n != leader && (n.Certain() || !errors.Is(n.Confirm(t.Context()), ErrNotLeader)) {
			t.Errorf("%s, a follower, is certain", n.cfg.NodeID)
		}
	}
	if err := leader.Confirm(t.Context()); err != nil {
		t.Errorf("the leader is not confirmed: %v", err)
	}
	// It wakes up: the clock has gone on, nothing else has been noticed.
	for range 20 {
		slept.Add(int64(time.Hour))
		if leader.State().Ready && leader.Certain() {
			// An answer to a call that began after the sleep may have come in between.
			g := leader.lease.granted.Load()
			if g == nil || g.until < sinceBoot()+time.Duration(slept.Load()) {
				t.Fatal("certain with a lease from before")
			}
		}
		eventually(t, 10*time.Second, "certain again", leader.Certain)
	}
	leader.link.shut.Store(true) // nobody hears it any more
	eventually(t, 10*time.Second, "doubt", func() bool { return !leader.Certain() })
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := leader.Confirm(ctx); err == nil {
		t.Error("confirmed by nobody")
	}
}

// A node that has just come back turns candidates away for as long as its answers from before may be part of a lease, and nobody else.
func TestYoung(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now time.Duration
		inner := make(chan raft.RPC)
		y := &young{inner: inner, outer: make(chan raft.RPC), until: 10, clock: func() time.Duration { return now }}
		stop := make(chan struct{})
		go y.run(stop)
		defer func() { close(stop); synctest.Wait() }()
		type answer struct {
			passed, granted bool
			term            uint64
		}
		ask := func(command any) answer {
			respond := make(chan raft.RPCResponse, 1)
			inner <- raft.RPC{Command: command, RespChan: respond}
			select {
			case <-y.outer:
				return answer{passed: true}
			case r := <-respond:
				switch r := r.Response.(type) {
				case *raft.RequestVoteResponse:
					return answer{granted: r.Granted, term: r.Term}
				case *raft.RequestPreVoteResponse:
					return answer{granted: r.Granted, term: r.Term}
				}
			}
			return answer{}
		}
		commands := []any{&raft.RequestVoteRequest{Term: 7}, &raft.RequestPreVoteRequest{Term: 7},
			&raft.RequestVoteRequest{Term: 7, LeadershipTransfer: true}, &raft.AppendEntriesRequest{Term: 7}, &raft.TimeoutNowRequest{}}
		var got []answer
		for _, now = range []time.Duration{9, 10} {
			for _, c := range commands {
				got = append(got, ask(c))
			}
		}
		refused, passed := answer{term: 7}, answer{passed: true}
		if want := []answer{refused, refused, passed, passed, passed, passed, passed, passed, passed, passed}; !slices.Equal(got, want) {
			t.Errorf("%+v", got)
		}
	})
}

func BenchmarkCertain(b *testing.B) {
	l := newLease(time.Hour, func() ([]raft.ServerID, bool) { return []raft.ServerID{"b"}, true })
	l.answered("b", 2, sinceBoot())
	b.ReportAllocs()
	for b.Loop() {
		if !l.holds(2) {
			b.Fatal("not held")
		}
	}
}
