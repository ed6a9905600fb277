package broker

import (
	"sync"
	"sync/atomic"
	"time"

	"raftmq/fsm/raftnode"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// gate is what a node may do with a write now.
type gate uint8

const (
	gateOpen   gate = iota // this node leads and takes writes
	gateHold               // it will be known soon who does
	gateRelay              // another node leads, and this one passes writes on to it
	gateRefuse             // another node leads, or this one is stopping
)

func gateOf(s raftnode.State) gate {
	switch {
	case s.Ready:
		return gateOpen
	case s.Role == raftnode.Leader:
		return gateHold // its barrier is under way
	case s.LeaderID != "" || s.Role == raftnode.Stopped:
		return gateRefuse
	}
	return gateHold
}

// gate is gateOf, and whether this node passes on what it does not take itself.
func (b *Broker) gate() gate {
	s := b.cfg.Raft.State()
	g := gateOf(s)
	if g == gateRefuse && s.Role != raftnode.Stopped && b.relays() {
		return gateRelay
	}
	return g
}

// holdList keeps writes for which no leader is known, for a moment: a held request costs a
// client nothing, while a quick refusal burns its retries (wire notes §3.4). They are run again in the order
// they came, so that order within a connection holds (F95): as long as anything is pending, later writes
// queue up behind it.
type holdList struct {
	b       *Broker
	pending atomic.Int64 // held, or being run again

	mu struct {
		sync.Mutex
		queue  []heldWrite
		bytes  int
		closed bool
	}
	wake chan struct{}
}

type heldWrite struct {
	r        transport.Responder
	cmd      *remoting.Command // owned
	size     int
	deadline time.Time
}

func (h *holdList) init(b *Broker) {
	h.b = b
	h.wake = make(chan struct{}, 1)
}

// offer takes a copy of cmd, or reports false when the list is full or closed.
func (h *holdList) offer(r transport.Responder, cmd *remoting.Command) bool {
	if h.b.cfg.HoldWrites < 0 {
		return false
	}
	return h.add(heldWrite{r, cmd.Clone(), sizeOf(cmd), time.Now().Add(h.b.cfg.HoldWrites)})
}

func sizeOf(cmd *remoting.Command) int {
	size := len(cmd.Body)
	for i := range cmd.Ext {
		size += len(cmd.Ext[i].Key) + len(cmd.Ext[i].Value)
	}
	return size
}

// add puts a write behind the others, or reports false when the list is full or closed.
func (h *holdList) add(w heldWrite) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed || len(h.mu.queue) >= h.b.cfg.MaxHeldWrites || h.mu.bytes+w.size > h.b.cfg.MaxHeldBytes {
		return false
	}
	h.mu.queue = append(h.mu.queue, w)
	h.mu.bytes += w.size
	h.pending.Add(1)
	if len(h.mu.queue) == 1 {
		h.kick() // a deadline to watch
	}
	return true
}

// kick makes the loop look at the state again.
func (h *holdList) kick() {
	select {
	case h.wake <- struct{}{}:
	default:
	}
}

// run owns the list's time; it ends with the broker.
func (h *holdList) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		if next, ok := h.drain(); ok {
			timer.Reset(time.Until(next))
		}
		select {
		case <-h.wake:
		case <-timer.C:
		case <-h.b.ctx.Done():
			return
		}
	}
}

// drain runs or refuses what can be decided and returns when to look again at what still waits.
func (h *holdList) drain() (next time.Time, waiting bool) {
	for {
		verdict := h.b.gate()
		w, next, ok := h.take(verdict)
		if !ok {
			return next, !next.IsZero()
		}
		if !h.settle(w, verdict) {
			// Leadership was lost in between, and the change of state is about to arrive; or the leader is being dialled.
			if h.putBack(w) {
				return earlier(w.deadline, time.Now().Add(10*time.Millisecond)), true
			}
			h.b.refuseWrite(w.r)
		}
		h.pending.Add(-1) // only now: until here later writes must queue up behind it
	}
}

// settle ends a write that was taken: it is stored, passed on or refused. False: it must wait a little longer.
func (h *holdList) settle(w heldWrite, verdict gate) bool {
	switch {
	case gone(w.r):
		return true
	case verdict == gateOpen:
		return h.b.send(w.r, w.cmd)
	case verdict == gateRelay:
		return h.b.relay(w)
	}
	h.b.refuseWrite(w.r)
	return true
}

// gone reports whether nobody waits for the answer any more: the client has failed over or died, and storing
// the message now would make a duplicate.
func gone(r transport.Responder) bool {
	if r.OneWay {
		return false
	}
	select {
	case <-r.Conn.Done():
		return true
	default:
		return false
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// take removes the first write if it can be decided. Otherwise, if one waits, next is its deadline.
func (h *holdList) take(verdict gate) (w heldWrite, next time.Time, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.mu.queue) == 0 {
		return heldWrite{}, time.Time{}, false
	}
	w = h.mu.queue[0]
	if verdict == gateHold && time.Now().Before(w.deadline) {
		return heldWrite{}, w.deadline, false
	}
	h.mu.bytes -= w.size
	h.mu.queue[0] = heldWrite{}
	h.mu.queue = h.mu.queue[1:]
	if len(h.mu.queue) == 0 {
		h.mu.queue = nil
	}
	return w, time.Time{}, true
}

// putBack makes a taken write the first again; false when it may not wait any longer.
func (h *holdList) putBack(w heldWrite) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed || !time.Now().Before(w.deadline) {
		return false
	}
	h.mu.queue = append([]heldWrite{w}, h.mu.queue...)
	h.mu.bytes += w.size
	return true
}

// close refuses all that wait, and everything from now on.
func (h *holdList) close() {
	h.mu.Lock()
	queue := h.mu.queue
	h.mu.queue, h.mu.bytes, h.mu.closed = nil, 0, true
	h.mu.Unlock()
	for _, w := range queue {
		h.b.refuseWrite(w.r)
	}
	h.pending.Add(-int64(len(queue)))
}
