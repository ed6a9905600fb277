package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"raftmq/commitlog/dispatch"
	"raftmq/commitlog/keyindex"
	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
)

// Names below the data folder. The point is two files.
const (
	indexDir       = "index"
	indexPointName = "indexpoint"
)

// spaceInterval is how long the index waits for space on a full disk before it looks again.
const spaceInterval = time.Second

// index keeps the key index. It follows the log with a dispatcher of its own: the index is
// slower to build than queues, may be far behind while it is built again, and waits on a full
// disk, and none of that shall hold up a consumer or the start of the node.
type index struct {
	s  *Store
	ix *keyindex.Index

	// dispatcher is nil while there is none. It is replaced by run's goroutine.
	dispatcher atomic.Pointer[dispatch.Dispatcher]
	abort      chan struct{} // closed to end the dispatcher where it is; run's
	commands   chan indexCommand
	damaged    chan struct{} // a query found damage; capacity 1
	ended      chan struct{} // closed when run has ended

	full bool // waits for space on the disk; the dispatcher's goroutine's

	slow    Throttle // of flush's warnings; under points.flushMu
	turn    turnstile
	flushed atomic.Int64 // physical offset of the point
	told    Throttle     // of queries' warnings
}

type indexCommand struct {
	do   func() error
	done chan error
}

// turnstile lets queries wait until the index has come to a place in the log.
type turnstile struct {
	mu     sync.Mutex
	turned chan struct{} // closed at the next turn; nil when nobody waits
}

// next is closed at the next turn.
func (t *turnstile) next() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.turned == nil {
		t.turned = make(chan struct{})
	}
	return t.turned
}

func (t *turnstile) turn() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.turned != nil {
		close(t.turned)
		t.turned = nil
	}
}

// openIndex opens the index and starts its dispatcher, which may have much to do: nobody waits
// for it here.
func (s *Store) openIndex() error {
	if !s.cfg.MessageIndexEnable {
		return nil
	}
	low, end := s.LogRange()
	ix, err := keyindex.Open(keyindex.Config{
		Dir: filepath.Join(s.cfg.Dir, indexDir), Point: filepath.Join(s.cfg.Dir, indexPointName),
		Slots: s.cfg.MaxHashSlotNum, Entries: s.cfg.MaxIndexNum, Logger: s.logger, FS: s.cfg.FS,
	}, low, end)
	if err != nil {
		return err
	}
	s.index = &index{
		s: s, ix: ix, commands: make(chan indexCommand), damaged: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	s.index.flushed.Store(ix.From())
	s.index.start(ix.From())
	return nil
}

// forgetIndex removes an index that is switched off: it must not meet the log that comes.
func (s *Store) forgetIndex() error {
	return s.folder.remove(indexPointName+".0", indexPointName+".1", indexDir)
}

// start starts the dispatcher at a record boundary. On run's goroutine, or before run.
func (x *index) start(from int64) {
	x.abort = make(chan struct{})
	x.dispatcher.Store(dispatch.Start(dispatch.Config{
		Log: x.s.log, From: from, Builders: []dispatch.Builder{indexBuilder{x, x.abort}}, Levels: dispatch.Levels{},
		SegmentSize: x.s.cfg.SegmentSize, Logger: x.s.logger.Named("index-dispatch"),
		Committed: func(int64) { x.turn.turn() },
	}))
}

// errAborted ends a dispatcher that has more to do.
var errAborted = errors.New("store: index dispatch ended early")

// halt ends the dispatcher wherever it is.
func (x *index) halt() error {
	d := x.dispatcher.Swap(nil)
	if d == nil {
		return nil
	}
	close(x.abort)
	err := d.Close()
	if errors.Is(err, errAborted) {
		err = nil
	}
	x.turn.turn()
	return err
}

// run owns the dispatcher. Store.close joins it.
func (x *index) run() {
	err := x.loop()
	// Before OnFatal: it may well close the store, and so this.
	close(x.ended)
	if err != nil {
		x.s.fatal(err)
	}
}

func (x *index) loop() error {
	for {
		var died <-chan struct{}
		if d := x.dispatcher.Load(); d != nil {
			died = d.Done()
		}
		var err error
		select {
		case c := <-x.commands:
			c.done <- c.do()
		case <-x.damaged:
			err = x.rebuild()
		case <-died:
			err = x.revive()
		case <-x.s.stop:
			return x.finish()
		}
		if err != nil {
			return err
		}
	}
}

// do runs f on run's goroutine.
func (x *index) do(f func() error) error {
	c := indexCommand{f, make(chan error, 1)}
	select {
	case x.commands <- c:
		return <-c.done
	case <-x.ended:
		return ErrClosed
	}
}

// rebuild drops what a query found damaged and feeds the log again from there (F43).
func (x *index) rebuild() error {
	if x.dispatcher.Load() == nil {
		return nil // the log is being replaced, and the index with it
	}
	if err := x.halt(); err != nil {
		return err
	}
	if err := x.ix.Repair(x.s.log.MinOffset()); err != nil {
		return err
	}
	x.flushed.Store(x.ix.From())
	x.start(x.ix.From())
	return nil
}

// revive goes on when the log's old segments went before the index had come to them; any other
// end of the dispatcher is the store's.
func (x *index) revive() error {
	d := x.dispatcher.Load()
	err := d.Err()
	if errors.Is(err, errAborted) {
		return nil // the store stops, and run sees that next
	}
	low := x.s.log.MinOffset()
	if !errors.Is(err, mappedfile.ErrOutOfRange) || d.To() >= low {
		return fmt.Errorf("store: key index: %w", err)
	}
	x.s.logger.Warn("log segments were removed before their keys were indexed", "from", d.To(), "to", low)
	x.start(low)
	return nil
}

// finish takes the rest of the log, or leaves it to the next Open when it is much.
func (x *index) finish() error {
	d := x.dispatcher.Load()
	if d == nil {
		return nil
	}
	if x.s.failure.Load() != nil || x.s.log.MaxOffset()-d.To() > x.s.cfg.PointBytes {
		return x.halt()
	}
	err := d.Close()
	if errors.Is(err, errAborted) {
		err = nil // it waits for space
	}
	x.turn.turn()
	return err
}

// emptyIndex empties the index, before its log goes, and leaves it without a dispatcher.
func (s *Store) emptyIndex(low int64) error {
	x := s.index
	if x == nil {
		return s.forgetIndex()
	}
	return x.do(func() error {
		if err := x.halt(); err != nil {
			return err
		}
		x.flushed.Store(low)
		return x.ix.Reset(low)
	})
}

// The following are for a store with or without an index.

// restart follows the log again, from its begin.
func (x *index) restart() error {
	if x == nil {
		return nil
	}
	return x.do(func() error {
		low := x.s.log.MinOffset()
		if err := x.ix.Reset(low); err != nil {
			return err
		}
		x.flushed.Store(low)
		x.start(low)
		return nil
	})
}

// wake tells that the published end moved.
func (x *index) wake() {
	if x == nil {
		return
	}
	if d := x.dispatcher.Load(); d != nil {
		d.Wake()
	}
}

// mark is what the next flush takes in, if the log is durable by then.
func (x *index) mark() (m keyindex.Mark) {
	if x != nil {
		m = x.ix.Mark()
	}
	return m
}

// dirty tells whether a flush would move the index's point.
func (x *index) dirty() bool {
	return x != nil && x.ix.Mark().PhyOffset() != x.flushed.Load()
}

// flush makes m durable, when all of it is below logEnd, which is durable; and removes files
// whose records the log no longer has.
func (x *index) flush(m keyindex.Mark, logEnd int64) error {
	if x == nil || m.PhyOffset() > logEnd {
		return nil
	}
	err := x.ix.Flush(m)
	if err == nil {
		x.flushed.Store(x.ix.Flushed())
		_, err = x.ix.DeleteBefore(x.s.log.MinOffset())
	}
	if isNoSpace(err) {
		// The other points need no space, and must move for old files to go.
		if ok, unsaid := x.slow.Allow(x.s.cfg.Now()); ok {
			x.s.logger.Warn("could not move the key index's recovery point, the disk is full", "error", err, "unsaid", unsaid)
		}
		return nil
	}
	return err
}

// join waits until nothing more is put. The store is stopping.
func (x *index) join() {
	if x != nil {
		<-x.ended
	}
}

// abandon ends an index whose store does not open after all; run has not begun. What fails is a consequence.
func (x *index) abandon() {
	if x != nil {
		_ = x.halt()
		_ = x.close()
	}
}

func (x *index) close() error {
	if x == nil {
		return nil
	}
	return x.ix.Close()
}

// indexBuilder feeds the index from dispatch (RocketMQ's CommitLogDispatcherBuildIndex): all
// transaction types but rollback.
type indexBuilder struct {
	x     *index
	abort <-chan struct{}
}

func (b indexBuilder) Add(v record.View, _ int64) error {
	select {
	case <-b.abort:
		return errAborted
	default:
	}
	if record.TransactionType(v.SysFlag()) == record.SysFlagRollback {
		return nil
	}
	uniqKey, keys := indexKeys(v)
	if uniqKey == nil && keys == nil {
		return nil
	}
	for {
		err := b.x.ix.Put(v.Topic(), uniqKey, keys, v.PhyOffset(), v.StoreTimestamp())
		if again, err := b.again(err); !again {
			return err
		}
	}
}

func (b indexBuilder) Commit(to int64) error {
	for {
		err := b.x.ix.Commit(to)
		again, err := b.again(err)
		if again {
			continue
		}
		if to-b.x.flushed.Load() >= b.x.s.cfg.PointBytes {
			b.x.s.points.much()
		}
		return err
	}
}

// again waits a moment when the disk is full: it lets the index fall behind, and nothing
// else (F27).
func (b indexBuilder) again(err error) (again bool, _ error) {
	x := b.x
	if !errors.Is(err, mappedfile.ErrNoSpace) {
		if x.full && err == nil {
			x.full = false
			x.s.running.set(FlagIndexError, false)
			x.s.logger.Info("key index goes on, the disk has space again")
		}
		return false, err
	}
	if !x.full {
		x.full = true
		x.s.running.set(FlagIndexError, true)
		x.s.logger.Warn("key index waits for space on the disk", "error", err)
	}
	select {
	case <-time.After(spaceInterval):
		return true, nil
	case <-b.abort:
	case <-x.s.stop:
	}
	return false, errAborted
}

// indexKeys are the UNIQ_KEY and KEYS of a record, nil when there are none.
func indexKeys(v record.View) (uniqKey, keys []byte) {
	properties := v.Properties()
	uniqKey, _ = record.Property(properties, record.PropertyUniqKey)
	keys, _ = record.Property(properties, record.PropertyKeys)
	return uniqKey, keys
}
