package broker

import (
	"container/heap"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"raftmq/commitlog/store"
	"raftmq/fsm/raftnode"
	"raftmq/transport/remoting"
)

const (
	pollSweep = 5 * time.Second
	// queueKept is how many sweeps a queue without parked pulls is remembered.
	queueKept = 12
	// steerWait is how long pulls at a deposed leader stay parked until the next one is known.
	steerWait = time.Second
)

// pollList holds parked pulls by topic and queue (RocketMQ PullRequestHoldService). A pull is in
// the list or owned by whoever took it out, never both. Waking only moves it to a line; one
// goroutine runs the woken ones again, watches deadlines and sweeps.
//
// The window between "nothing there" and "parked" (F77) is closed by looking again after
// parking: a record that dispatch published before that is seen, one published later finds the
// pull in the list.
type pollList struct {
	b      *Broker
	parked atomic.Int64

	mu struct {
		sync.Mutex
		topics    map[string]map[int32]*pollQueue
		conns     map[uint64]*pull // first of each connection
		deadlines deadlineHeap
		woken     []*pull
		closed    bool
		steerAt   time.Time // when to answer all after a loss of leadership; zero: nothing to do
		steerTo   int64     // the broker id to suggest then
	}
	wake chan struct{}
}

// pollQueue is the parked pulls of one queue.
type pollQueue struct {
	topic string
	id    int32
	first *pull // guarded by pollList.mu
	idle  int   // sweeps without pulls
}

// probe is the second look at a queue after parking.
type probe struct {
	topic []byte
	req   store.GetRequest
	res   store.GetResult
}

func (l *pollList) init(b *Broker) {
	l.b = b
	l.mu.topics = map[string]map[int32]*pollQueue{}
	l.mu.conns = map[uint64]*pull{}
	l.wake = make(chan struct{}, 1)
}

// park puts p into the list, or answers it when that is not possible.
func (l *pollList) park(p *pull) {
	if l.parked.Load() >= int64(l.b.cfg.MaxHeldPulls) {
		p.refuse(refuse(remoting.ResponseSystemBusy, remarkOverload))
		return
	}
	p.keep()
	pr := l.b.probes.Get().(*probe)
	pr.set(p)
	conn, id := p.r.Conn, p.r.Conn.ID()
	l.mu.Lock()
	q := l.queueLocked(p)
	closed := l.mu.closed
	p.queue = q
	if !closed {
		l.insertLocked(p, q)
	}
	l.mu.Unlock()
	// From here on p belongs to the list.
	if closed {
		p.answerRetry(l.b.suggestion())
		l.b.probes.Put(pr)
		return
	}
	if l.b.cfg.Store.MaxOffset(q.topic, q.id) > pr.req.Offset && pr.found(l.b.cfg.Store) {
		l.wakeOne(q, p)
	}
	l.b.probes.Put(pr)
	select {
	case <-conn.Done():
		l.drop(id) // OnClose may have run before p was in the list
	default:
	}
}

// keep makes p own what its header points to.
func (p *pull) keep() {
	if len(p.h.Topic) > 0 && len(p.own) > 0 && &p.h.Topic[0] == &p.own[0] {
		return // parked again
	}
	p.own = append(p.own[:0], p.h.Topic...)
	p.own = append(p.own, p.h.ConsumerGroup...)
	p.own = append(p.own, p.h.Subscription...)
	p.own = append(p.own, p.h.ExpressionType...)
	rest := p.own
	view := func(of []byte) []byte {
		v := rest[:len(of):len(of)]
		rest = rest[len(of):]
		return v
	}
	p.h.Topic, p.h.ConsumerGroup = view(p.h.Topic), view(p.h.ConsumerGroup)
	p.h.Subscription, p.h.ExpressionType = view(p.h.Subscription), view(p.h.ExpressionType)
	p.h.BrokerName = nil
}

func (pr *probe) set(p *pull) {
	pr.topic = append(pr.topic[:0], p.h.Topic...)
	pr.req = p.req
	pr.req.Topic, pr.req.MaxMsgs = pr.topic, 1
}

// found reports whether the queue has something to answer now.
func (pr *probe) found(s *store.Store) bool {
	s.Get(&pr.req, &pr.res)
	code, _ := verdict(&pr.res, pr.req.Offset, false)
	pr.res.Release()
	return code != remoting.ResponsePullNotFound && code != codeBehind
}

func (l *pollList) queueLocked(p *pull) *pollQueue {
	queues := l.mu.topics[string(p.h.Topic)]
	if q := queues[p.h.QueueID]; q != nil {
		return q
	}
	q := &pollQueue{topic: string(p.h.Topic), id: p.h.QueueID}
	if queues == nil {
		queues = map[int32]*pollQueue{}
		l.mu.topics[q.topic] = queues
	}
	queues[q.id] = q
	return q
}

func (l *pollList) insertLocked(p *pull, q *pollQueue) {
	q.idle = 0
	p.prev, p.next = nil, q.first
	if q.first != nil {
		q.first.prev = p
	}
	q.first = p
	id := p.r.Conn.ID()
	p.connPrev, p.connNext = nil, l.mu.conns[id]
	if p.connNext != nil {
		p.connNext.connPrev = p
	}
	l.mu.conns[id] = p
	heap.Push(&l.mu.deadlines, p)
	if p.heapIndex == 0 {
		l.kick() // an earlier deadline than all others
	}
	l.parked.Add(1)
}

// removeLocked takes p out; the caller owns it then.
func (l *pollList) removeLocked(p *pull) {
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		p.queue.first = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	}
	id := p.r.Conn.ID()
	switch {
	case p.connPrev != nil:
		p.connPrev.connNext = p.connNext
	case p.connNext != nil:
		l.mu.conns[id] = p.connNext
	default:
		delete(l.mu.conns, id)
	}
	if p.connNext != nil {
		p.connNext.connPrev = p.connPrev
	}
	heap.Remove(&l.mu.deadlines, p.heapIndex)
	p.prev, p.next, p.connPrev, p.connNext = nil, nil, nil, nil
	l.parked.Add(-1)
}

func (l *pollList) kick() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// wakeOne wakes p if it is still parked in q. p may be another pull by now: then that one runs again, which
// does no harm.
func (l *pollList) wakeOne(q *pollQueue, p *pull) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := q.first; at != nil; at = at.next {
		if at == p {
			l.wakeLocked(p)
			return
		}
	}
}

func (l *pollList) wakeLocked(p *pull) {
	l.removeLocked(p)
	l.mu.woken = append(l.mu.woken, p)
	l.kick()
}

// arrived is the store's arrival listener: it wakes the pulls that wait for less than next and
// whose filter lets the new record through.
func (l *pollList) arrived(topic []byte, queueID int32, next, tagsCode int64) {
	if l.parked.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.mu.topics[string(topic)][queueID]
	if q == nil {
		return
	}
	for p := q.first; p != nil; {
		after := p.next
		if next > p.h.QueueOffset && (p.match == nil || p.match(tagsCode)) {
			l.wakeLocked(p)
		}
		p = after
	}
}

// drop forgets the pulls of a closed connection.
func (l *pollList) drop(conn uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for p := l.mu.conns[conn]; p != nil; p = l.mu.conns[conn] {
		l.removeLocked(p)
		p.free()
	}
}

// run is the list's goroutine; it ends with the broker.
func (l *pollList) run() {
	sweep := time.NewTicker(pollSweep)
	defer sweep.Stop()
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var woken []*pull
	for {
		woken = l.takeWoken(woken[:0])
		for i, p := range woken {
			p.again(true)
			woken[i] = nil
		}
		next := l.expire(time.Now())
		timer.Reset(time.Until(next))
		select {
		case <-l.wake:
		case <-timer.C:
		case <-sweep.C:
			l.sweep()
		case <-l.b.ctx.Done():
			return
		}
	}
}

func (l *pollList) takeWoken(into []*pull) []*pull {
	l.mu.Lock()
	defer l.mu.Unlock()
	into = append(into, l.mu.woken...)
	clear(l.mu.woken)
	l.mu.woken = l.mu.woken[:0]
	return into
}

// again runs a pull that was parked.
func (p *pull) again(mayPark bool) {
	if f := p.check(); f != nil {
		p.refuse(f)
		return
	}
	p.run(mayPark && time.Now().Before(p.deadline))
}

// expire runs pulls whose time is over a last time, and returns when the next is due.
func (l *pollList) expire(now time.Time) time.Time {
	for {
		l.mu.Lock()
		if at := l.mu.steerAt; !at.IsZero() && !now.Before(at) {
			to := l.mu.steerTo
			l.mu.steerAt = time.Time{}
			l.mu.Unlock()
			l.answerAll(to)
			continue
		}
		next := now.Add(time.Hour)
		if at := l.mu.steerAt; !at.IsZero() {
			next = at
		}
		if len(l.mu.deadlines) == 0 {
			l.mu.Unlock()
			return next
		}
		p := l.mu.deadlines[0]
		if due := p.deadline; now.Before(due) {
			l.mu.Unlock() // p may be another pull from here on
			return earlier(next, due)
		}
		l.removeLocked(p)
		l.mu.Unlock()
		p.again(false)
	}
}

// sweep looks at all queues again: a pull whose filter let nothing through moves on, and a wake-up that was
// missed would show.
func (l *pollList) sweep() {
	l.mu.Lock()
	queues := make([]*pollQueue, 0, 64)
	for topic, m := range l.mu.topics {
		for id, q := range m {
			if q.first != nil {
				queues = append(queues, q)
			} else if q.idle++; q.idle > queueKept {
				delete(m, id)
			}
		}
		if len(m) == 0 {
			delete(l.mu.topics, topic)
		}
	}
	l.mu.Unlock()
	for _, q := range queues {
		next := l.b.cfg.Store.MaxOffset(q.topic, q.id)
		l.mu.Lock()
		for p := q.first; p != nil; {
			after := p.next
			if next > p.h.QueueOffset {
				l.wakeLocked(p)
			}
			p = after
		}
		l.mu.Unlock()
	}
}

// leaderChanged has the parked pulls of a node that led answered: nothing else tells their clients of the next
// leader (wire notes §1.6, §3.7). It waits a moment for that one to be known.
func (l *pollList) leaderChanged(last, now raftnode.State) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case now.Role == raftnode.Leader:
		l.mu.steerAt = time.Time{}
		return
	case last.Role == raftnode.Leader:
		l.mu.steerAt, l.mu.steerTo = time.Now().Add(steerWait), 0
	case l.mu.steerAt.IsZero():
		return
	}
	if now.LeaderID != "" {
		l.mu.steerAt, l.mu.steerTo = time.Now(), l.b.cfg.BrokerIDOf(now.LeaderID)
	}
	l.kick()
}

// suggestion is the broker id of another node that leads, 0 when there is none.
func (b *Broker) suggestion() int64 {
	s := b.cfg.Raft.State()
	if s.Role == raftnode.Leader || s.LeaderID == "" {
		return 0
	}
	return b.cfg.BrokerIDOf(s.LeaderID)
}

// ReleaseParked answers all parked pulls: ask again. It is for a node that is about to let its clients go: a pull that loses its connection
// costs a stock Go client 30 s.
func (b *Broker) ReleaseParked() { b.polls.answerAll(b.suggestion()) }

// answerAll answers all parked pulls: ask again, at broker id suggest.
func (l *pollList) answerAll(suggest int64) {
	l.mu.Lock()
	all := slices.Clone(l.mu.deadlines)
	for _, p := range all {
		l.removeLocked(p)
	}
	l.mu.Unlock()
	for _, p := range all {
		p.answerRetry(suggest)
	}
}

// close answers all parked and woken pulls, and every later one at once.
func (l *pollList) close() {
	l.mu.Lock()
	l.mu.closed = true
	woken := l.mu.woken
	l.mu.woken = nil
	l.mu.Unlock()
	for _, p := range woken {
		p.answerRetry(l.b.suggestion())
	}
	l.answerAll(l.b.suggestion())
}

// deadlineHeap orders parked pulls by deadline.
type deadlineHeap []*pull

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, j int) bool { return h[i].deadline.Before(h[j].deadline) }
func (h deadlineHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].heapIndex, h[j].heapIndex = i, j
}

// Push implements heap.Interface.
func (h *deadlineHeap) Push(x any) {
	p := x.(*pull)
	p.heapIndex = len(*h)
	*h = append(*h, p)
}

// Pop implements heap.Interface.
func (h *deadlineHeap) Pop() any {
	old := *h
	p := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return p
}
