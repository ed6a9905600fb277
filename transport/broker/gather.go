package broker

import (
	"sync"
	"time"

	"raftmq/fsm/command"
	"raftmq/fsm/raftnode"
	"raftmq/seam"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

const (
	gatherFull = 1024   // offsets in one command
	gatherKept = 50_000 // queues remembered before idle ones are forgotten
)

// gatherer collects consumer offsets for a moment and proposes them in one command. Only the
// leader gathers. An offset that is the committed one already costs nothing.
type gatherer struct {
	b *Broker

	mu struct {
		sync.Mutex
		keys    map[string]*gatherKey // by topic@group
		queues  int
		dirty   []*gatheredOffset
		waiters []transport.Responder // answered when dirty is applied
		readers []func(error)         // called then
		scratch []byte
		closed  bool
	}
	wake   chan struct{} // something is dirty
	urgent chan struct{} // flush now
}

type gatherKey struct {
	topic, group string
	queues       map[int32]*gatheredOffset
}

type gatheredOffset struct {
	key      *gatherKey
	queueID  int32
	offset   int64
	dirty    bool
	inFlight int // commands with an offset of this queue, proposed and not yet applied
}

func (g *gatherer) init(b *Broker) {
	g.b = b
	g.mu.keys = map[string]*gatherKey{}
	g.wake, g.urgent = make(chan struct{}, 1), make(chan struct{}, 1)
}

// add notes an offset. r, if not nil, is answered when it is applied. No allocation for a known queue.
func (g *gatherer) add(group, topic []byte, queueID int32, offset int64, r *transport.Responder) {
	g.mu.Lock()
	if g.mu.closed {
		g.mu.Unlock()
		if r != nil {
			answerRefusal(*r, g.b.unavailable())
		}
		return
	}
	o := g.offsetLocked(group, topic, queueID)
	if !o.dirty && o.inFlight == 0 {
		if have, ok := g.b.cfg.Tables.ConsumerOffset(o.key.group, o.key.topic, queueID); ok && have == offset {
			g.mu.Unlock()
			if r != nil {
				emptyExt(*r, remoting.ResponseSuccess, "")
			}
			return
		}
	}
	o.offset = offset
	g.markLocked(o)
	if seam.On(seam.AckOffset) && r != nil {
		emptyExt(*r, remoting.ResponseSuccess, "")
		r = nil
	}
	if r != nil {
		g.mu.waiters = append(g.mu.waiters, *r)
	}
	g.mu.Unlock()
}

func (g *gatherer) markLocked(o *gatheredOffset) {
	if !o.dirty {
		o.dirty = true
		g.mu.dirty = append(g.mu.dirty, o)
	}
	signal(g.wake)
	if len(g.mu.dirty) >= gatherFull {
		signal(g.urgent)
	}
}

func (g *gatherer) offsetLocked(group, topic []byte, queueID int32) *gatheredOffset {
	g.mu.scratch = append(append(append(g.mu.scratch[:0], topic...), '@'), group...)
	k := g.mu.keys[string(g.mu.scratch)]
	if k == nil {
		k = &gatherKey{topic: string(topic), group: string(group), queues: map[int32]*gatheredOffset{}}
		g.mu.keys[string(g.mu.scratch)] = k
	}
	o := k.queues[queueID]
	if o == nil {
		o = &gatheredOffset{key: k, queueID: queueID}
		k.queues[queueID] = o
		g.mu.queues++
	}
	return o
}

// settled calls f once every offset that was gathered for the queue is applied, with the error if that failed.
// It returns false, without calling f, when nothing is pending.
func (g *gatherer) settled(group, topic string, queueID int32, f func(error)) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := g.mu.keys[topic+"@"+group]
	if k == nil || g.mu.closed {
		return false
	}
	o := k.queues[queueID]
	if o == nil || !o.dirty && o.inFlight == 0 {
		return false
	}
	g.markLocked(o) // proposed once more if it is only in flight: the order of the log does the waiting
	g.mu.readers = append(g.mu.readers, f)
	signal(g.urgent)
	return true
}

// run is the gatherer's goroutine; it ends with the broker.
func (g *gatherer) run() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-g.wake:
		case <-g.b.ctx.Done():
			return
		}
		timer.Reset(g.b.cfg.OffsetGather)
		select {
		case <-timer.C:
		case <-g.urgent:
		case <-g.b.ctx.Done():
			return
		}
		g.flush()
	}
}

// gathered is one flush: what one command carries.
type gathered struct {
	offsets []*gatheredOffset
	commit  command.OffsetsCommit
	waiters []transport.Responder
	readers []func(error)
}

func (g *gatherer) takeLocked() gathered {
	batch := gathered{offsets: g.mu.dirty, waiters: g.mu.waiters, readers: g.mu.readers}
	g.mu.dirty, g.mu.waiters, g.mu.readers = nil, nil, nil
	for _, o := range batch.offsets {
		o.dirty = false
		o.inFlight++
		batch.commit.Offsets = append(batch.commit.Offsets, command.ConsumerOffset{Topic: o.key.topic, Group: o.key.group, QueueID: o.queueID, Offset: o.offset})
	}
	return batch
}

func (g *gatherer) flush() {
	g.mu.Lock()
	batch := g.takeLocked()
	g.mu.Unlock()
	if len(batch.offsets) == 0 {
		return
	}
	err := g.b.proposeTable(command.KindOffsetsCommit, batch.commit, func(err error) { g.done(batch, err) })
	if err != nil {
		g.done(batch, err)
	}
}

// done settles a batch. Offsets of a command that failed are dropped: clients tell them again every 5 s.
func (g *gatherer) done(batch gathered, err error) {
	g.mu.Lock()
	for _, o := range batch.offsets {
		o.inFlight--
	}
	if g.mu.queues > gatherKept {
		g.forgetIdleLocked()
	}
	g.mu.Unlock()
	var f *refusal
	if err != nil {
		f = refusalOf(err, 0)
	}
	for _, r := range batch.waiters {
		if f != nil {
			emptyExt(r, f.code, f.remark)
		} else {
			emptyExt(r, remoting.ResponseSuccess, "")
		}
	}
	for _, read := range batch.readers {
		read(err)
	}
}

func (g *gatherer) forgetIdleLocked() {
	for name, k := range g.mu.keys {
		for id, o := range k.queues {
			if !o.dirty && o.inFlight == 0 {
				delete(k.queues, id)
				g.mu.queues--
			}
		}
		if len(k.queues) == 0 {
			delete(g.mu.keys, name)
		}
	}
}

// lose drops what is gathered and not proposed, when leadership is lost.
func (g *gatherer) lose() {
	g.mu.Lock()
	batch := g.takeLocked()
	g.mu.Unlock()
	g.done(batch, raftnode.ErrNotLeader)
}

// close refuses what is gathered and everything from now on: nobody would flush it.
func (g *gatherer) close() {
	g.mu.Lock()
	g.mu.closed = true
	g.mu.Unlock()
	g.lose()
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
