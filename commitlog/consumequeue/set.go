package consumequeue

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"raftmq/commitlog/mappedfile"
)

// Defaults of Config.
const (
	DefaultFileSize     = 300_000 * UnitSize // RocketMQ's mappedFileSizeConsumeQueue
	DefaultAllocateStep = 64 << 10
)

// Config of a Set. Zero values take the defaults.
type Config struct {
	Dir      string // holds the topics' folders
	FileSize int64  // rounded up to whole units (6,000,000)
	// AllocateStep is how much disk a queue takes ahead of its end (64 KiB), so that thousands
	// of short queues don't take a whole file each.
	AllocateStep int64
	// MaxOpenFiles bounds the queue files that are open and mapped at a time (two fifths of the
	// process's descriptors, 64 to 16,384).
	MaxOpenFiles int
	Logger       hclog.Logger
	FS           mappedfile.FS // of the queue files (the operating system's)
}

type key struct {
	topic string
	id    int32
}

// Set is all queues of a store. A queue is made by its first unit, never by a read.
type Set struct {
	opts   mappedfile.Options
	logger hclog.Logger
	pool   *pool

	// mu guards queues against readers; only Batch's goroutine (and Clear, while there is
	// none) changes the map.
	mu     sync.RWMutex
	queues map[key]*Queue

	total atomic.Int64 // sum of all queues' Max
	count atomic.Int64 // queues
	// raised belongs together: a Point has both or neither.
	raised struct {
		sync.Mutex
		begin  int64 // what RaiseMin was last called with
		firsts int64 // sum of all queues' Min then
	}

	flushMu sync.Mutex // held through a flush
	dirty   struct {
		sync.Mutex
		queues []*Queue // have units that no flush has covered yet
		made   []*Queue // folders whose parents are not synced yet
	}
	closed atomic.Bool
}

// Point is a state of the set that is durable: every unit of a record that begins below
// PhyOffset. The sums let Open notice what is missing.
type Point struct {
	PhyOffset int64
	Begin     int64 // the log's first byte, as Firsts says
	Units     int64 // sum of all queues' Max
	Firsts    int64 // sum of all queues' Min
	Queues    int64 // queues that have units
}

func (c Config) options() mappedfile.Options {
	if c.FileSize <= 0 {
		c.FileSize = DefaultFileSize
	}
	if c.AllocateStep <= 0 {
		c.AllocateStep = DefaultAllocateStep
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	c.FileSize = (c.FileSize + UnitSize - 1) / UnitSize * UnitSize
	return mappedfile.Options{
		Dir: c.Dir, FileSize: c.FileSize, AllocateStep: min(c.AllocateStep, c.FileSize),
		Random: true, Logger: c.Logger.Named("consumequeue"), FS: c.FS,
	}
}

// Open opens the queues of c.Dir as of point: of each queue the units of records from begin,
// the log's first byte (or point.Begin, if that is more), up to point.PhyOffset; the rest is cut off and zeroed. ErrDamaged when
// files are odd or their sums are not the point's: then Remove the folder and dispatch the
// whole log again.
func Open(c Config, point Point, begin int64) (*Set, error) {
	o := c.options()
	s := &Set{opts: o, logger: o.Logger, pool: &pool{limit: c.MaxOpenFiles}, queues: map[key]*Queue{}}
	if s.pool.limit <= 0 {
		s.pool.limit = DefaultOpenFiles()
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("consumequeue: %w", err)
	}
	err := s.load(point)
	if err == nil {
		_, err = s.RaiseMin(max(begin, point.Begin))
	}
	if err == nil {
		err = s.compare(point)
	}
	if err != nil {
		s.pool.close() // the first error is the one to tell
		return nil, err
	}
	return s, nil
}

// Remove deletes the folder of a set that is not open.
func Remove(dir string) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("consumequeue: %w", err)
	}
	return nil
}

// Point is the set's state when Batch's goroutine has come to phyOffset; for that goroutine
// only. It is durable after the next Flush.
func (s *Set) Point(phyOffset int64) Point {
	s.raised.Lock()
	defer s.raised.Unlock()
	return Point{PhyOffset: phyOffset, Begin: s.raised.begin, Units: s.total.Load(), Firsts: s.raised.firsts, Queues: s.count.Load()}
}

// RaiseMin moves each queue's Min to its first unit whose record begins at or after begin, the
// log's first byte (RocketMQ's correctMinOffset). All obsolete: Min becomes Max, and the queue goes on from there
// (F09). Units and files stay. It returns by how much the sum of all Min grew. One caller at a time, beside Batch: the units of
// records below begin must all be written.
func (s *Set) RaiseMin(begin int64) (grew int64, err error) {
	err = mappedfile.Guard(func() error {
		var err error
		s.Range(func(q *Queue) bool {
			var n int64
			n, err = q.raiseMin(begin)
			grew += n
			return err == nil
		})
		return err
	})
	if err != nil {
		return 0, err
	}
	s.raised.Lock()
	defer s.raised.Unlock()
	s.raised.begin = max(s.raised.begin, begin)
	s.raised.firsts += grew
	return grew, nil
}

// RemoveObsolete removes leading files of queues that hold nothing from Min on, never a queue's last one
// (RocketMQ's deleteExpiredFile). pause is called after each few files; false ends it. Beside RaiseMin it
// must not run. It returns how many files went.
func (s *Set) RemoveObsolete(pause func() bool) (removed int, err error) {
	const few = 10
	next := few
	s.Range(func(q *Queue) bool {
		var n int
		n, err = q.removeObsolete()
		removed += n
		if err == nil && removed >= next {
			next = removed + few
			return pause()
		}
		return err == nil
	})
	return removed, err
}

// Begin is the log's first byte of the last RaiseMin: no unit from a queue's Min on names a record below it.
func (s *Set) Begin() int64 {
	s.raised.Lock()
	defer s.raised.Unlock()
	return s.raised.begin
}

// Queue finds a queue, nil when it has never had a unit. It does not allocate.
func (s *Set) Queue(topic []byte, queueID int32) *Queue {
	s.mu.RLock()
	q := s.queues[key{string(topic), queueID}]
	s.mu.RUnlock()
	return visible(q)
}

// QueueOf is Queue for a string.
func (s *Set) QueueOf(topic string, queueID int32) *Queue {
	s.mu.RLock()
	q := s.queues[key{topic, queueID}]
	s.mu.RUnlock()
	return visible(q)
}

// visible hides a queue whose first units are still being written.
func visible(q *Queue) *Queue {
	if q == nil || q.Max() == 0 {
		return nil
	}
	return q
}

// Len is the number of queues.
func (s *Set) Len() int { return int(s.count.Load()) }

// Range calls f for every queue, in no order, until it returns false.
func (s *Set) Range(f func(*Queue) bool) {
	s.mu.RLock()
	all := make([]*Queue, 0, len(s.queues))
	for _, q := range s.queues {
		if q.Max() > 0 {
			all = append(all, q)
		}
	}
	s.mu.RUnlock()
	for _, q := range all {
		if !f(q) {
			return
		}
	}
}

// create makes a queue in memory; its files come with its first write.
func (s *Set) create(topic []byte, queueID int32) (*Queue, error) {
	if !ValidTopic(topic) {
		return nil, fmt.Errorf("%w %q", ErrTopic, topic)
	}
	if queueID < 0 {
		return nil, fmt.Errorf("%w %d of %s", ErrQueueID, queueID, topic)
	}
	q := newQueue(&s.opts, s.pool, string(topic), queueID)
	s.mu.Lock()
	s.queues[key{q.topic, queueID}] = q
	s.mu.Unlock()
	return q, nil
}

// touch notes that q has units that are not durable.
func (s *Set) touch(q *Queue) {
	if q.dirty.Load() {
		return
	}
	s.dirty.Lock()
	defer s.dirty.Unlock()
	if !q.dirty.Swap(true) {
		s.dirty.queues = append(s.dirty.queues, q)
	}
}

// noteMade notes that q's folder is not durable.
func (s *Set) noteMade(q *Queue) {
	s.dirty.Lock()
	defer s.dirty.Unlock()
	s.dirty.made = append(s.dirty.made, q)
}

// Flush makes everything durable that was written before the call.
func (s *Set) Flush() error {
	s.flushMu.Lock()
	defer s.flushMu.Unlock()
	if s.closed.Load() {
		return ErrClosed
	}
	return s.flush()
}

// manyDirty is how many queues are cheaper to flush by syncing the whole file system: a new
// queue alone costs three syncs.
const manyDirty = 64

func (s *Set) flush() error {
	s.dirty.Lock()
	queues, made := s.dirty.queues, s.dirty.made
	s.dirty.queues, s.dirty.made = nil, nil
	s.dirty.Unlock()
	if _, real := s.opts.FS.(mappedfile.OS); len(queues) > manyDirty && (real || s.opts.FS == nil) {
		return s.flushAll(queues)
	}
	for _, q := range queues {
		if err := q.flush(); err != nil {
			return err
		}
	}
	return s.syncParents(made)
}

// flushAll makes everything durable at once, folders included.
func (s *Set) flushAll(queues []*Queue) error {
	for _, q := range queues {
		q.rw.RLock()
		q.dirty.Store(false)
	}
	defer func() {
		for _, q := range queues {
			q.rw.RUnlock()
		}
	}()
	d, err := os.Open(s.opts.Dir)
	if err != nil {
		return fmt.Errorf("consumequeue: %w", err)
	}
	defer d.Close()
	if err := unix.Syncfs(int(d.Fd())); err != nil {
		return fmt.Errorf("consumequeue: sync file system of %s: %w", s.opts.Dir, err)
	}
	return nil
}

// syncParents makes the folders of new queues durable, each parent once.
func (s *Set) syncParents(made []*Queue) error {
	if len(made) == 0 {
		return nil
	}
	seen := map[string]bool{s.opts.Dir: true}
	for _, q := range made {
		topic := filepath.Dir(q.dir)
		if seen[topic] {
			continue
		}
		seen[topic] = true
		if err := syncDir(topic); err != nil {
			return err
		}
	}
	return syncDir(s.opts.Dir)
}

func syncDir(dir string) error {
	if err := (mappedfile.OS{}).SyncDir(dir); err != nil {
		return fmt.Errorf("consumequeue: sync folder %s: %w", dir, err)
	}
	return nil
}

// Clear closes and removes all queues. No Batch may be in use; make a new one after it.
// Readers of the old queues get errors.
func (s *Set) Clear() error {
	s.flushMu.Lock()
	defer s.flushMu.Unlock()
	s.mu.Lock()
	old := s.queues
	s.queues = map[key]*Queue{}
	s.mu.Unlock()
	s.dirty.Lock()
	s.dirty.queues, s.dirty.made = nil, nil
	s.dirty.Unlock()
	s.total.Store(0)
	s.raised.Lock()
	s.raised.begin, s.raised.firsts = 0, 0
	s.raised.Unlock()
	s.count.Store(0)
	if err := s.pool.closeAll(old); err != nil {
		return err
	}
	if err := Remove(s.opts.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(s.opts.Dir, 0o755); err != nil {
		return fmt.Errorf("consumequeue: %w", err)
	}
	return syncDir(filepath.Dir(s.opts.Dir))
}

// Close unmaps all queues once their views are released. It does not flush.
func (s *Set) Close() error {
	s.flushMu.Lock()
	defer s.flushMu.Unlock()
	if s.closed.Swap(true) {
		return nil
	}
	return s.pool.close()
}
