package transport

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
)

const (
	earlyWake       = 64 << 10  // bytes queued inside a burst that wake the writer before its end
	keptWriteBuffer = 128 << 10 // a larger write buffer is let go when it has not been needed for shrinkAfter writes,
	maxWriteBuffer  = 1 << 20   // one larger than this as soon as it is written
	keptViews       = 512       // the same two bounds for the list of views
	maxViews        = 16 << 10
	slotsGrowth     = 64
	fairBacklog     = 64 << 10 // what each connection may have queued when the server's backlog is full
	// What a queued answer takes in memory beside its bytes, and each of its views (which are not copied): they count too, or
	// pulls of many small messages would take several times what the limits say.
	answerCost       = 512
	viewCost         = 256
	initialWriteSize = 4 << 10
)

// Reasons of a connection's end.
var (
	// ErrConnClosed is returned for work on a connection that is gone or closing.
	ErrConnClosed = errors.New("transport: connection closed")
	// ErrSlowPeer is why a connection ends whose peer does not read what it asked for.
	ErrSlowPeer = errors.New("transport: peer does not read its answers")
)

// view is bytes that are written from where they lie, after buf[:at].
type view struct {
	at      int
	data    []byte
	release func() // of the last view of an answer; nil in the others
}

// batch is what one write call takes: appended frames and the views between them.
type batch struct {
	buf     []byte
	views   []view
	answers uint64 // frames that answer a request
	size    int64  // bytes of buf and views

	unneeded int // writes since the memory was needed in its size
}

func (b *batch) empty() bool { return len(b.buf) == 0 && len(b.views) == 0 }

// reset keeps the memory for the next round, within bounds, and no pointer to a view.
func (b *batch) reset() {
	b.unneeded++
	if len(b.buf) > keptWriteBuffer || len(b.views) > keptViews {
		b.unneeded = 0
	}
	shrink := b.unneeded >= shrinkAfter
	if cap(b.buf) > maxWriteBuffer || cap(b.buf) > keptWriteBuffer && shrink {
		b.buf = nil
	}
	clear(b.views)
	if cap(b.views) > maxViews || cap(b.views) > keptViews && shrink {
		b.views = nil
	}
	b.buf, b.views, b.answers, b.size = b.buf[:0], b.views[:0], 0, 0
}

// releaseViews gives all views back. Called exactly once for each batch that held any.
func (b *batch) releaseViews() {
	for i := range b.views {
		if release := b.views[i].release; release != nil {
			b.views[i].release = nil
			release()
		}
	}
}

// backlog is what all connections of a server have queued.
type backlog struct {
	bytes atomic.Int64
	limit int64
}

// outbox is the write side of a connection and its account of requests: frames gather in
// one batch while the writer goroutine writes the other. The writer is woken once for
// all that gathers until it looks again; while the reader works on a burst of requests it is
// not woken at all before the burst ends or much has gathered. What has gathered by then the
// reader writes itself, if the writer sleeps: a lone request then costs 5.9 us instead of 9.2 with
// both ends, and a peer that doesn't read is not read from.
//
// A request that wants an answer holds a slot from its dispatch to its answer. The
// generation of a slot tells the owed answer from a second one, which is dropped.
type outbox struct {
	mu sync.Mutex // guards all fields but crowded, wake and room

	next  batch // gathering
	spare batch // empty memory, nil buffers while the writer is on it

	awake    bool // the writer is running or has been signalled
	direct   bool // the reader is writing; the writer keeps off
	inBurst  bool // the reader is dispatching; it wakes the writer at the end
	draining bool // no more requests; ends when all owed answers are written
	closing  bool // ends when what is queued is written
	finished bool // the writer has ended: nothing is accepted any more
	dead     bool // the socket is closed: nothing is accepted any more
	wantRoom bool // the reader waits for answers to go out

	queued     int64 // bytes gathered and being written, with their cost
	limit      int64 // of queued
	backlog    *backlog
	dispatched uint64 // requests that were given a slot, as of the last burst's end
	written    uint64 // answers that are with the kernel

	gens  []uint32 // by slot: generation whose answer is owed
	freed []uint32 // answered slots, for the reader to use again

	crowded atomic.Bool // set under mu while too much is queued to take more requests; read by the reader without

	wake chan struct{} // to the writer, capacity 1
	room chan struct{} // to the reader, capacity 1
}

func (o *outbox) init(limit int, all *backlog) {
	o.limit, o.backlog = int64(limit), all
	o.wake = make(chan struct{}, 1)
	o.room = make(chan struct{}, 1)
	o.next.buf = make([]byte, 0, initialWriteSize)
	o.spare.buf = make([]byte, 0, initialWriteSize)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wakeLocked makes sure that the writer will look at the batch. A writing reader does so when it is done.
func (o *outbox) wakeLocked() {
	if !o.awake && !o.direct {
		o.awake = true
		signal(o.wake)
	}
}

// roomLocked lets a waiting reader look again.
func (o *outbox) roomLocked() {
	if o.wantRoom {
		o.wantRoom = false
		signal(o.room)
	}
}

func (o *outbox) stoppedLocked() bool { return o.dead || o.finished }

// takeSlotLocked consumes the right to answer.
func (o *outbox) takeSlotLocked(slot uint32) {
	o.gens[slot]++
	o.freed = append(o.freed, slot)
}

// slotsLocked adds free slots to those that the reader holds.
func (o *outbox) slotsLocked(free []uint32) []uint32 {
	if len(o.freed) > 0 {
		free, o.freed = append(free, o.freed...), o.freed[:0]
		return free
	}
	first := len(o.gens)
	o.gens = append(o.gens, make([]uint32, slotsGrowth)...)
	for slot := first; slot < len(o.gens); slot++ {
		free = append(free, uint32(slot))
	}
	return free
}

// gatheredLocked accounts for n bytes added to the batch and wakes the writer if it
// is time. It reports whether the peer has let too much gather.
func (o *outbox) gatheredLocked(n int) (slow bool) {
	o.next.size += int64(n)
	o.queued += int64(n)
	o.backlog.bytes.Add(int64(n))
	if o.crowdedLocked() {
		o.crowded.Store(true)
	}
	if !o.inBurst || o.next.size >= earlyWake {
		o.wakeLocked()
	}
	return o.queued > o.limit
}

// crowdedLocked reports whether the peer must read before it may ask for more. It is looked at again whenever
// something was written, and a crowded connection has something to write.
func (o *outbox) crowdedLocked() bool {
	return o.queued > o.limit/2 || o.queued > fairBacklog && o.backlog.bytes.Load() > o.backlog.limit
}

// beginBurst is called by the reader before it cuts frames. It returns how many answers
// are written, and false when requests are not wanted any more.
func (o *outbox) beginBurst() (written uint64, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.stoppedLocked() || o.draining || o.closing {
		return 0, false
	}
	o.inBurst = true
	return o.written, true
}

// endBurst publishes the reader's count. It returns true when b is now what has gathered and the reader is to write it
// and to call wrote; otherwise the writer does.
func (o *outbox) endBurst(dispatched uint64, b *batch) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.next.empty() || o.awake || o.stoppedLocked() || o.next.size >= earlyWake {
		o.endBurstLocked(dispatched)
		return false
	}
	o.inBurst = false
	o.dispatched = dispatched
	o.direct = true
	o.swapLocked(b)
	return true
}

func (o *outbox) endBurstLocked(dispatched uint64) {
	o.inBurst = false
	o.dispatched = dispatched
	o.lookLocked()
}

// lookLocked wakes the writer if there is anything to do for it.
func (o *outbox) lookLocked() {
	if !o.next.empty() || o.draining || o.closing {
		o.wakeLocked()
	}
}

// wrote ends the reader's turn as the writer.
func (o *outbox) wrote(b *batch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.settleLocked(b)
	o.direct = false
	o.lookLocked()
}

// swapLocked moves what has gathered to b, which is empty and whose memory settleLocked has given back.
func (o *outbox) swapLocked(b *batch) { *b, o.next, o.spare = o.next, o.spare, batch{} }

// settleLocked accounts for a batch that was written, empties it and takes its memory back.
func (o *outbox) settleLocked(b *batch) {
	o.queued -= b.size
	o.backlog.bytes.Add(-b.size)
	o.written += b.answers
	if o.crowded.Load() && !o.crowdedLocked() {
		o.crowded.Store(false)
	}
	b.reset()
	o.spare, *b = *b, batch{}
	o.roomLocked()
}

// waitRoom parks the reader inside a burst until fewer than limit answers are outstanding and the
// queue is not crowded. So a peer that asks faster than it reads is held back, and dropped only
// when answers that it asked for before, long polls for instance, pass the limit all the same.
// It returns as beginBurst does.
func (o *outbox) waitRoom(dispatched uint64, limit int) (written uint64, ok bool) {
	for {
		o.mu.Lock()
		if o.stoppedLocked() || o.draining || o.closing {
			o.mu.Unlock()
			return 0, false
		}
		if dispatched-o.written < uint64(limit) && !o.crowded.Load() {
			o.inBurst = true
			written = o.written
			o.mu.Unlock()
			return written, true
		}
		o.endBurstLocked(dispatched)
		o.wantRoom = true
		o.mu.Unlock()
		<-o.room
	}
}

// take accounts for the batch b that was written, waits for the next one and moves it to b.
// false: the writer is to end; graceful tells whether the peer should hear a proper end of the stream.
func (o *outbox) take(b *batch) (ok, graceful bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if b.size > 0 {
		o.settleLocked(b)
	}
	for !o.dead {
		switch {
		case o.direct: // the reader wakes the writer if need be
		case !o.next.empty():
			o.swapLocked(b)
			return true, false
		case o.doneLocked():
			o.finished = true
			o.roomLocked()
			return false, true
		}
		o.awake = false
		o.mu.Unlock()
		<-o.wake
		o.mu.Lock()
	}
	return false, false
}

// doneLocked reports whether a connection that is to end has nothing left to write.
func (o *outbox) doneLocked() bool {
	return o.closing || o.draining && !o.inBurst && o.written == o.dispatched
}

// abandon releases what was gathered and never written. Nothing is added after dead or finished.
func (o *outbox) abandon() {
	o.mu.Lock()
	b := o.next
	o.next = batch{}
	o.backlog.bytes.Add(-o.queued)
	o.queued = 0
	o.mu.Unlock()
	b.releaseViews()
}

// pending is the number of requests whose answer is not yet written.
func (o *outbox) pending() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	// Inside a burst answers may be written before the reader publishes its count.
	return max(0, int64(o.dispatched-o.written))
}

// vectors lists a batch as the pieces of one writev call, reusing iov.
func (b *batch) vectors(iov net.Buffers) net.Buffers {
	from := 0
	for i := range b.views {
		v := &b.views[i]
		if v.at > from {
			iov = append(iov, b.buf[from:v.at])
			from = v.at
		}
		if len(v.data) > 0 {
			iov = append(iov, v.data)
		}
	}
	if len(b.buf) > from {
		iov = append(iov, b.buf[from:])
	}
	return iov
}
