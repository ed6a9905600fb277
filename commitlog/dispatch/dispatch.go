// Package dispatch follows the commit log: one goroutine reads what was published, record by
// record, hands it to builders (consume queues, or the key index), and tells who waits.
// It does not write the log, and knows of queues and indexes only what Builder says.
//
// Invariants:
//
//   - Never skip: every record below To went through every builder, in log order. A record
//     that can't be parsed, a builder's error and a panic end the goroutine and the node
//     (OnFatal), with the file and offset; they are never stepped over.
//     Bytes in quarantine are waited for: the loop stands still there until a Wake finds them repaired.
//   - Never ahead: nothing at or after the log's published end is read. With the FSM as the
//     only writer this is what is committed and applied.
//   - To moves only after the builders' Commit, so a reader that saw To finds it all built.
//   - Wake-ups are not lost: the published end is stored before Wake and read after it.
package dispatch

import (
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
)

// ErrBlocked: bytes before the position are in quarantine (mappedfile.ErrQuarantined); the loop goes on when they are repaired.
var ErrBlocked = errors.New("dispatch: waits for the repair of damaged log bytes")

// DefaultBatchBytes is how much log is taken through the builders at once: much, so that each
// queue gets few writes, but little enough that the first message of it is not kept waiting.
const DefaultBatchBytes = 1 << 20

// ErrStopped: the dispatcher was closed or died before it reached the position.
var ErrStopped = errors.New("dispatch: stopped")

// Log is the published log.
type Log interface {
	// MaxOffset is the published end. It never decreases.
	MaxOffset() int64
	// View returns published bytes from off on, at most max, within a segment.
	View(off int64, max int) (mappedfile.View, error)
}

// Builder is fed by dispatch's goroutine.
type Builder interface {
	// Add takes the record at v.PhyOffset; tagsCode is Levels.TagsCode. v is valid until Add
	// returns.
	Add(v record.View, tagsCode int64) error
	// Commit makes everything added readable; to is the end of it.
	Commit(to int64) error
}

// Config of a Dispatcher.
type Config struct {
	Log      Log
	From     int64 // start of a record (or blank filler), or the published end
	Builders []Builder
	Levels   Levels // nil takes DefaultLevels
	// Committed is called after each batch, when To tells of it. On dispatch's goroutine.
	Committed func(to int64)
	// OnFatal is called once, on dispatch's goroutine, when it has to give up.
	OnFatal    func(error)
	BatchBytes int // (1 MiB)
	// SegmentSize names the segment file in errors; 0 leaves it out.
	SegmentSize int64
	Logger      hclog.Logger
}

// Dispatcher is the running loop.
type Dispatcher struct {
	Config
	wake chan struct{} // capacity 1: wake-ups collapse
	stop chan struct{}
	done chan struct{}
	to   atomic.Int64
	err  error // before done is closed

	waiters struct {
		sync.Mutex
		list  []waiter
		count atomic.Int64 // len(list), to look at without the lock
		ended bool
		// blocked: To does not move before a repair; nobody is kept waiting for what is behind it.
		blocked bool
	}
}

type waiter struct {
	end  int64
	done func(error)
}

// Start starts the loop at c.From; Close joins it.
func Start(c Config) *Dispatcher {
	if c.BatchBytes <= 0 {
		c.BatchBytes = DefaultBatchBytes
	}
	if c.Levels == nil {
		c.Levels = DefaultLevels()
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	d := &Dispatcher{
		Config: c,
		wake:   make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{}),
	}
	d.to.Store(c.From)
	d.Wake()
	go d.run()
	return d
}

// Wake tells that the published end moved. It never blocks.
func (d *Dispatcher) Wake() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

// To is the physical offset up to which everything is built.
func (d *Dispatcher) To() int64 { return d.to.Load() }

// Wait calls done(nil) once To reaches end: at once on this goroutine, or later on dispatch's;
// it must be quick. done(ErrStopped) when dispatch ends before, done(ErrBlocked) when it stands still before.
func (d *Dispatcher) Wait(end int64, done func(error)) {
	if d.to.Load() >= end {
		done(nil)
		return
	}
	w := &d.waiters
	w.Lock()
	// count first, then look at To again: dispatch stores To first, then looks at count.
	w.count.Add(1)
	reached, ended, blocked := d.to.Load() >= end, w.ended, w.blocked
	if reached || ended || blocked {
		w.count.Add(-1)
		w.Unlock()
		switch {
		case reached:
			done(nil)
		case ended:
			done(d.stopped())
		default:
			done(ErrBlocked)
		}
		return
	}
	w.list = append(w.list, waiter{end, done})
	w.Unlock()
}

// Close lets the loop reach the published end, joins it and returns what it died of, if
// anything. Later calls return the same.
func (d *Dispatcher) Close() error {
	d.waiters.Lock()
	select {
	case <-d.stop:
	default:
		close(d.stop)
	}
	d.waiters.Unlock()
	<-d.done
	return d.err
}

// Done is closed when the loop has ended; Err tells why then.
func (d *Dispatcher) Done() <-chan struct{} { return d.done }

// Err is what the loop died of. After Done.
func (d *Dispatcher) Err() error { return d.err }

// stopped is what waiters get. The loop has ended.
func (d *Dispatcher) stopped() error {
	if d.err != nil {
		return fmt.Errorf("%w: %w", ErrStopped, d.err)
	}
	return ErrStopped
}

// at words a place in the log.
func (d *Dispatcher) at(off int64) string {
	if d.SegmentSize <= 0 {
		return fmt.Sprintf("physical offset %d", off)
	}
	return fmt.Sprintf("physical offset %d (file %020d, position %d)", off, off-off%d.SegmentSize, off%d.SegmentSize)
}

func (d *Dispatcher) run() {
	// A fault on a mapped page of a failing device becomes a panic here, and a panic an error.
	debug.SetPanicOnFault(true)
	d.err = d.loop()
	d.releaseAll()
	// Before OnFatal: it may well close the store, and so this.
	close(d.done)
	if d.err != nil && d.OnFatal != nil {
		d.OnFatal(d.err)
	}
}

func (d *Dispatcher) loop() (err error) {
	defer func() {
		if p := recover(); p != nil {
			d.Logger.Error("dispatch panicked", "phy-offset", d.to.Load(), "panic", p, "stack", string(debug.Stack()))
			err = fmt.Errorf("dispatch: panic behind physical offset %d: %v", d.to.Load(), p)
		}
	}()
	for {
		blocked := false
		for d.to.Load() < d.Log.MaxOffset() && !blocked {
			switch err := d.batch(); {
			case errors.Is(err, mappedfile.ErrQuarantined):
				blocked = true
				d.block(err)
			case err != nil:
				return err
			default:
				d.unblock()
			}
		}
		select {
		case <-d.wake:
		case <-d.stop:
			// Stopped is the writer too: one more look takes what it published last.
			if blocked || d.to.Load() >= d.Log.MaxOffset() {
				return nil
			}
		}
	}
}

// block lets go of who waits: nothing is built before a repair.
func (d *Dispatcher) block(why error) {
	w := &d.waiters
	w.Lock()
	first := !w.blocked
	left := w.list
	w.list, w.blocked = nil, true
	w.count.Store(0)
	w.Unlock()
	if first {
		d.Logger.Warn("dispatch waits for the repair of damaged log bytes", "phy-offset", d.to.Load(), "reason", why)
	}
	for _, x := range left {
		x.done(ErrBlocked)
	}
}

func (d *Dispatcher) unblock() {
	w := &d.waiters
	w.Lock()
	was := w.blocked
	w.blocked = false
	w.Unlock()
	if was {
		d.Logger.Info("dispatch goes on, the damaged log bytes are repaired", "phy-offset", d.to.Load())
	}
}

// Blocked tells that the loop waits for a repair.
func (d *Dispatcher) Blocked() bool {
	d.waiters.Lock()
	defer d.waiters.Unlock()
	return d.waiters.blocked
}

// batch takes some log through the builders.
func (d *Dispatcher) batch() error {
	from := d.to.Load()
	end := d.Log.MaxOffset()
	to := from
	for to < end && to-from < int64(d.BatchBytes) {
		n, err := d.segment(to, end, d.BatchBytes-int(to-from))
		if errors.Is(err, mappedfile.ErrQuarantined) && to > from {
			break // up to there it is whole
		}
		if err != nil {
			return err
		}
		to += n
	}
	for _, b := range d.Builders {
		if err := b.Commit(to); err != nil {
			return fmt.Errorf("dispatch: commit physical offsets [%d, %d): %w", from, to, err)
		}
	}
	d.to.Store(to)
	if d.waiters.count.Load() > 0 {
		d.release(to)
	}
	if d.Committed != nil {
		d.Committed(to)
	}
	return nil
}

// segment adds records from off on, within off's segment, until end or until about max bytes
// are done. It returns how far it came.
func (d *Dispatcher) segment(off, end int64, max int) (int64, error) {
	view, err := d.Log.View(off, int(end-off))
	if err != nil {
		return 0, fmt.Errorf("dispatch: read at %s: %w", d.at(off), err)
	}
	defer view.Release()
	b := view.Bytes
	if len(b) == 0 {
		return 0, fmt.Errorf("dispatch: no bytes at %s, published end %d", d.at(off), end)
	}
	at := 0
	for at < len(b) && at < max {
		n, err := record.Check(b[at:], false)
		if errors.Is(err, record.ErrBlank) {
			at += n
			continue
		}
		if err != nil {
			return 0, fmt.Errorf("dispatch: record at %s: %w", d.at(off+int64(at)), err)
		}
		v := record.View(b[at : at+n])
		if got, want := v.PhyOffset(), off+int64(at); got != want {
			return 0, fmt.Errorf("dispatch: record at %s says it is at %d", d.at(want), got)
		}
		tagsCode := d.Levels.TagsCode(v)
		for _, builder := range d.Builders {
			if err := builder.Add(v, tagsCode); err != nil {
				return 0, fmt.Errorf("dispatch: record at %s: %w", d.at(off+int64(at)), err)
			}
		}
		at += n
	}
	return int64(at), nil
}

// release calls the waiters that to satisfies, without the lock.
func (d *Dispatcher) release(to int64) {
	w := &d.waiters
	w.Lock()
	var ready []waiter
	kept := w.list[:0]
	for _, x := range w.list {
		if x.end <= to {
			ready = append(ready, x)
		} else {
			kept = append(kept, x)
		}
	}
	clear(w.list[len(kept):])
	w.list = kept
	w.count.Store(int64(len(kept)))
	w.Unlock()
	for _, x := range ready {
		x.done(nil)
	}
}

// releaseAll ends whoever still waits: nothing more will be built.
func (d *Dispatcher) releaseAll() {
	w := &d.waiters
	w.Lock()
	left := w.list
	w.list, w.ended = nil, true
	w.count.Store(0)
	w.Unlock()
	for _, x := range left {
		x.done(d.stopped())
	}
}
