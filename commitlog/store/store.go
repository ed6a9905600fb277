// Package store is the facade over the commit log, consume queues, dispatch and flush: it
// opens and recovers them in order, owns their goroutines, and offers append (to the FSM
// only), get and query (to the broker). It knows no Raft and no sockets.
//
// It does not decide what is committed (the FSM calls it for committed entries only), and it
// keeps no topics and no consumer progress.
//
// Invariants it adds to those of its parts (DESIGN.md tells why):
//
//   - The log is the truth: queues that are damaged, missing or of another file size are built
//     again from it; the log is never changed to fit a queue.
//   - Readable is dispatched: Get shows what dispatch has built, never what is only appended.
//   - Max offset is published: what was acknowledged here is below MaxOffset at once (F94),
//     and between the two bounds the answer is "nothing yet", never "illegal" (Never-Guess).
//   - Point-Behind-All: the recovery points never pass what of log and queues is durable.
//   - Hidden at once, removed later: a trim is in force with its entry; files go in the cleaner's
//     own time, never the last segment, never what is pinned, and not before queues are past them.
//   - Full is not failed: a full disk makes the node refuse messages; what was accepted is
//     still applied, and all clears by itself when space returns.
//   - Whole or nothing: a half-received Install is thrown away by the next Open.
//   - Fatal once: the first failure is told by OnFatal; from then on the store does nothing.
package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"

	"raftmq/commitlog"
	"raftmq/commitlog/consumequeue"
	"raftmq/commitlog/dispatch"
	"raftmq/commitlog/mappedfile"
	"raftmq/flush"
)

// Store is the open store.
type Store struct {
	cfg    Config
	logger hclog.Logger
	folder *folder
	log    *commitlog.Log
	queues *consumequeue.Set
	tails  *tails
	index  *index // nil without one (messageIndexEnable)

	// dispatcher is replaced by an installation.
	dispatcher atomic.Pointer[dispatch.Dispatcher]
	arrival    atomic.Pointer[func(topic []byte, queueID int32, next, tagsCode int64)]

	cold coldReads

	// pool and commit are nil without a transient store pool.
	pool   *mappedfile.Pool
	commit *flush.Commit

	points points
	// checkpoint is RocketMQ's file; nil when the disk was full at the start. points.flushMu guards it.
	checkpoint *flush.CheckpointFile
	flush      flusher
	cleaner    cleaner
	pins       pins
	running    running
	space      spaceWatch
	reserve    reserve
	slow       Throttle
	repairer   repairer
	scrubber   scrubber
	units      unitRepairer
	loops      sync.WaitGroup
	stop       chan struct{}

	installer *installer // that has not ended; the FSM goroutine's
	// replacing is set while an installer replaces the log and until the queues are built: reads
	// answer "nothing yet".
	replacing atomic.Bool

	opened    atomic.Bool // Open has returned: failures go to OnFatal
	failure   atomic.Pointer[error]
	closeOnce sync.Once
	closeErr  error
	closed    atomic.Bool

	putMessages, putBytes   atomic.Uint64
	verified, unitsRepaired atomic.Uint64 // by the scrub: bytes, and units, these by readers too
	indexRepairs            atomic.Uint64
}

// fatal stops the store: the first error goes to OnFatal, once. It returns what callers get.
func (s *Store) fatal(err error) error {
	stopped := fmt.Errorf("%w: %w", ErrStopped, err)
	if !s.failure.CompareAndSwap(nil, &stopped) {
		return *s.failure.Load()
	}
	s.logger.Error("store has failed", "error", err)
	s.flush.release(0, stopped)
	if s.opened.Load() {
		s.cfg.OnFatal(err)
	}
	return stopped
}

// alive is nil while the store works.
func (s *Store) alive() error {
	if err := s.failure.Load(); err != nil {
		return *err
	}
	if s.closed.Load() {
		return ErrClosed
	}
	return nil
}

// Close stops dispatch and flush, flushes everything and unmaps. After a failure it only
// closes. The FSM's side must have stopped; reads beside it get nothing more. It returns the
// first error; later calls return the same.
func (s *Store) Close() error {
	s.closeOnce.Do(func() { s.closeErr = s.close() })
	return s.closeErr
}

// close goes the way of Open backwards: first who makes work (the loops, the flush services),
// then dispatch, which takes the rest of the log, then a last flush of it all.
func (s *Store) close() error {
	failed := s.failure.Load() != nil
	var errs []error
	if s.commit != nil { // what was published becomes readable, for those who build from it
		errs = append(errs, s.commit.Close())
		s.committed()
	}
	close(s.stop)
	s.loops.Wait()
	s.index.join()
	errs = append(errs, s.flush.close())
	if d := s.dispatcher.Load(); d != nil {
		if err := d.Close(); !errors.Is(err, errStopping) { // the disk is full: the next Open goes on from the point
			errs = append(errs, err)
		}
	}
	whole := !failed && !s.replacing.Load() && errors.Join(errs...) == nil
	if whole {
		errs = append(errs, s.flushAll())
	}
	s.closed.Store(true)
	if failed {
		errs = nil // told by OnFatal; what follows from it is no news
	}
	errs = append(errs, s.index.close(), s.queues.Close(), s.log.Close(), s.closePool(), s.points.close(), s.closeCheckpoint())
	if whole && errors.Join(errs...) == nil {
		errs = append(errs, s.folder.markStopped())
	}
	return errors.Join(append(errs, s.folder.close())...)
}

// Replacing tells that the log is being replaced by a peer's bytes: a queue's offsets that are
// asked for now say nothing (Never-Guess).
func (s *Store) Replacing() bool { return s.replacing.Load() }

// Mode returns the flush mode.
func (s *Store) Mode() FlushMode { return s.cfg.FlushMode }

// LogRange is the readable physical range.
func (s *Store) LogRange() (min, max int64) { return s.log.MinOffset(), s.log.MaxOffset() }

// ReadLog returns a counted view of raw log bytes from off, at most max, within a segment; release it. Pin what is to
// be read later: below the log's minimum it is there as long as its file is.
func (s *Store) ReadLog(off int64, max int) (bytes []byte, release func(), err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	v, err := s.log.ViewKept(off, max)
	if err != nil {
		return nil, nil, err
	}
	whole := false
	defer func() {
		if !whole { // a fault, which CatchFault takes after this
			v.Release()
		}
	}()
	touch(v.Bytes)
	whole = true
	return v.Bytes, v.Release, nil
}

// touch reads a byte of each page: a device that fails shows it here, under a guard, and not to whoever goes through the
// bytes (F37). The caller has armed CatchFault. Inlined, it would be nothing: nobody wants the sum.
//
//go:noinline
func touch(b []byte) (sum byte) {
	// The begin line by line: such loads run side by side, and those of the checksum behind them then find their bytes in a cache.
	// Waiting for memory is most of what reading a record costs.
	const line, soon = 64, 2048
	i := 0
	for ; i < min(len(b), soon); i += line {
		sum ^= b[i]
	}
	for ; i < len(b); i += mappedfile.PageSize {
		sum ^= b[i]
	}
	if len(b) > 0 {
		sum ^= b[len(b)-1]
	}
	return sum
}

// Fault tells the store that bytes of a view could not be read outside of it, by the kernel for instance. The node must stop.
func (s *Store) Fault(err error) { s.fatal(fmt.Errorf("store: read: %w", err)) }

// Checksum is a CRC-32C over log bytes [from, to).
func (s *Store) Checksum(from, to int64) (uint32, error) { return s.log.Checksum(from, to) }

// DispatchedTo is the physical offset up to which queues are built.
func (s *Store) DispatchedTo() int64 { return s.dispatcher.Load().To() }

// WaitDispatched calls done once queues are built up to end: at once, or on dispatch's
// goroutine, where it must be quick. When the store closes or fails before, done is called
// too: nobody is left waiting, and whoever must know asks DispatchedTo.
func (s *Store) WaitDispatched(end int64, done func()) {
	s.dispatcher.Load().Wait(end, func(error) { done() })
}

// OnArrival registers another listener that dispatch calls, one goroutine, after new records of
// a queue are readable: next is the queue offset after them, tagsCode that of all of them (one
// call for each stretch of equal codes). topic must not be kept. Before Publish is first called,
// from one goroutine.
func (s *Store) OnArrival(f func(topic []byte, queueID int32, next int64, tagsCode int64)) {
	if earlier := s.arrival.Load(); earlier != nil {
		last := f
		f = func(topic []byte, queueID int32, next, tagsCode int64) {
			(*earlier)(topic, queueID, next, tagsCode)
			last(topic, queueID, next, tagsCode)
		}
	}
	s.arrival.Store(&f)
}
