package consumequeue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"raftmq/commitlog/mappedfile"
)

// Queue is the units of one topic and queue id. Its methods may be called from any goroutine
// and stay safe (ErrClosed) after the set was closed or cleared.
type Queue struct {
	topic  string
	id     int32
	dir    string
	opts   *mappedfile.Options // the set's; Dir is filled in by openFiles
	inFile int64               // units in a file

	min, max atomic.Int64 // readable units are [min, max)
	begin    atomic.Int64 // the first file's first unit, at or below min

	// files is nil before the first write and while the pool has closed it. Its own end is not
	// ours: after Open it is the end of the last file, and [min, max) says what is readable.
	files  atomic.Pointer[mappedfile.Queue]
	pool   *pool
	opened int  // files the pool counts; its mu guards it
	gone   bool // the set was cleared; the pool's mu guards it
	used   atomic.Bool
	// rw is held shared by who writes or flushes, and exclusively by who closes.
	rw    sync.RWMutex
	dirty atomic.Bool // has units that no flush has covered yet; set with rw held

	// The rest belongs to Batch's goroutine.
	name []byte // topic, for callbacks
	slot int    // place in the running batch, -1 when it has no unit there
}

func newQueue(opts *mappedfile.Options, pool *pool, topic string, id int32) *Queue {
	return &Queue{
		topic: topic, id: id, opts: opts, pool: pool, name: []byte(topic), slot: -1,
		dir:    filepath.Join(opts.Dir, topic, strconv.Itoa(int(id))),
		inFile: opts.FileSize / UnitSize,
	}
}

// Topic is the queue's topic.
func (q *Queue) Topic() string { return q.topic }

// ID is the queue id.
func (q *Queue) ID() int32 { return q.id }

// Min is the first queue offset that has a unit; equal to Max when there is none.
func (q *Queue) Min() int64 { return q.min.Load() }

// Max is the queue offset after the last readable unit.
func (q *Queue) Max() int64 { return q.max.Load() }

// View is a counted run of units. Units may be used until Release.
type View struct {
	Units Units
	held  mappedfile.View
}

// Release gives the view back, once.
func (v *View) Release() { v.held.Release() }

// View returns the units from offset n on, at most max of them and at least one, as far as
// they are in one file. ErrRange when n is not in [Min, Max).
func (q *Queue) View(n int64, max int) (View, error) {
	lo, hi := q.min.Load(), q.max.Load()
	if n < lo || n >= hi || max <= 0 {
		return View{}, fmt.Errorf("%w: %s/%d offset %d, has [%d, %d)", ErrRange, q.topic, q.id, n, lo, hi)
	}
	// Not beyond max: units that a batch is still writing are nobody's business.
	count := min(hi-n, int64(max))
	for {
		files, err := q.pool.get(q)
		if err != nil {
			return View{}, err
		}
		held, err := files.View(n*UnitSize, int(count)*UnitSize)
		if errors.Is(err, mappedfile.ErrClosed) {
			continue // by the pool, just now; or for good, which get will say
		}
		if err != nil {
			return View{}, fmt.Errorf("consumequeue %s/%d: %w", q.topic, q.id, err)
		}
		b := held.Bytes
		return View{Units: Units(b[:len(b)-len(b)%UnitSize]), held: held}, nil
	}
}

// At returns unit n. ErrRange when there is none.
func (q *Queue) At(n int64) (Unit, error) {
	v, err := q.View(n, 1)
	if err != nil {
		return Unit{}, err
	}
	defer v.Release()
	return v.Units.At(0), nil
}

// Search returns the smallest n in [Min, Max] for which f(n, unit n) is true, Max when there is
// none; f must be false up to some unit and true from there on.
func (q *Queue) Search(f func(int64, Unit) (bool, error)) (int64, error) {
	return search(q.Min(), q.Max(), func(n int64) (bool, error) {
		u, err := q.At(n)
		if err != nil {
			return false, err
		}
		return f(n, u)
	})
}

// search is sort.Search over [lo, hi) with errors.
func search(lo, hi int64, f func(int64) (bool, error)) (int64, error) {
	for lo < hi {
		mid := lo + (hi-lo)/2
		ok, err := f(mid)
		if err != nil {
			return 0, err
		}
		if ok {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo, nil
}

// raiseMin is Set.RaiseMin for one queue; it returns by how much Min grew.
func (q *Queue) raiseMin(begin int64) (int64, error) {
	n, err := q.Search(func(_ int64, u Unit) (bool, error) { return u.PhyOffset >= begin, nil })
	old := q.min.Load()
	if err != nil || n <= old {
		return 0, err
	}
	q.min.Store(n)
	return n - old, nil
}

// openFiles opens or creates the queue's folder. Set.Flush makes a new folder durable, so
// that thousands of new queues do not cost thousands of syncs in dispatch.
func (q *Queue) openFiles() (*mappedfile.Queue, error) {
	if err := os.MkdirAll(q.dir, 0o755); err != nil {
		return nil, err
	}
	o := *q.opts
	o.Dir = q.dir
	return mappedfile.Open(o)
}

// removeObsolete removes leading files that end at or below Min.
func (q *Queue) removeObsolete() (int, error) {
	min := q.min.Load()
	if q.begin.Load()/q.inFile == min/q.inFile {
		return 0, nil
	}
	q.rw.RLock()
	defer q.rw.RUnlock()
	for {
		files, err := q.pool.get(q)
		if err != nil {
			return 0, err
		}
		n, err := files.DeleteBefore(min * UnitSize)
		if errors.Is(err, mappedfile.ErrClosed) {
			continue // by the pool, just now; or for good, which get will say
		}
		q.begin.Store(files.MinOffset() / UnitSize)
		if err != nil {
			return n, fmt.Errorf("consumequeue %s/%d: %w", q.topic, q.id, err)
		}
		return n, nil
	}
}

// write stores the units of offsets [first, first+len(units)) and makes them readable. It
// returns by how much Max grew. On a full disk it may be called again.
func (q *Queue) write(s *Set, units Units, first int64) (grew int64, err error) {
	q.rw.RLock()
	defer q.rw.RUnlock()
	// Before the files are looked up: the pool leaves a dirty queue's alone.
	made := q.max.Load() == 0
	s.touch(q)
	files, err := q.pool.get(q)
	if err != nil {
		return 0, err
	}
	if made {
		s.noteMade(q) // the folder is there now: a flush may sync its parent
	}
	// And after it: a flush that ran meanwhile has not seen these units, and took the mark off.
	defer s.touch(q)
	if made && first > 0 {
		if err := q.fill(files, first); err != nil {
			return 0, err
		}
	}
	if err := files.WriteAt(units, first*UnitSize); err != nil {
		return 0, fmt.Errorf("consumequeue %s/%d: %w", q.topic, q.id, err)
	}
	if made {
		q.min.Store(first)
		q.begin.Store(first - first%q.inFile)
		s.raised.Lock()
		s.raised.firsts += first
		s.raised.Unlock()
		s.count.Add(1)
	}
	end, old := first+int64(units.Len()), q.max.Load()
	if end <= old {
		return 0, nil
	}
	q.max.Store(end)
	return end - old, nil
}

// fill puts filler units before first, from the start of its file on: a reader of the files,
// ours or RocketMQ's, tells them from units that were lost.
func (q *Queue) fill(files *mappedfile.Queue, first int64) error {
	const chunk = 1024
	filler := make([]byte, 0, chunk*UnitSize)
	for range chunk {
		filler = AppendUnit(filler, Unit{Size: fillerSize})
	}
	for at := first - first%q.inFile; at < first; {
		n := min(first-at, chunk)
		if err := files.WriteAt(filler[:n*UnitSize], at*UnitSize); err != nil {
			return fmt.Errorf("consumequeue %s/%d: fill: %w", q.topic, q.id, err)
		}
		at += n
	}
	return nil
}

// flush makes durable what was written before the call.
func (q *Queue) flush() error {
	q.rw.RLock()
	defer q.rw.RUnlock()
	// Before the flush: a unit written during it makes the queue dirty again.
	q.dirty.Store(false)
	files := q.files.Load()
	if files == nil {
		return nil // cleared
	}
	if _, err := files.Flush(0); err != nil {
		return fmt.Errorf("consumequeue %s/%d: %w", q.topic, q.id, err)
	}
	return nil
}
