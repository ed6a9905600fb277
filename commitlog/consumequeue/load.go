package consumequeue

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"

	"raftmq/commitlog/mappedfile"
)

// load opens every <topic>/<queue id> folder. Other things there are not ours: told, left alone.
func (s *Set) load(point Point) error {
	topics, err := os.ReadDir(s.opts.Dir)
	if err != nil {
		return fmt.Errorf("consumequeue: %w", err)
	}
	var found []*Queue
	for _, t := range topics {
		dir := filepath.Join(s.opts.Dir, t.Name())
		if !t.IsDir() || !ValidTopic(t.Name()) {
			s.logger.Warn("ignoring what is no topic's folder", "path", dir)
			continue
		}
		ids, err := os.ReadDir(dir)
		if err != nil {
			return fmt.Errorf("consumequeue: %w", err)
		}
		for _, d := range ids {
			id, err := strconv.ParseInt(d.Name(), 10, 32)
			if err != nil || id < 0 || strconv.FormatInt(id, 10) != d.Name() || !d.IsDir() {
				s.logger.Warn("ignoring what is no queue's folder", "path", filepath.Join(dir, d.Name()))
				continue
			}
			found = append(found, newQueue(&s.opts, s.pool, t.Name(), int32(id)))
		}
	}
	return s.loadAll(found, point)
}

// loadAll opens queues side by side: with tens of thousands of them it is all system calls.
func (s *Set) loadAll(found []*Queue, point Point) error {
	var (
		wg   sync.WaitGroup
		mu   sync.Mutex // guards next, errs
		next int
		errs []error
	)
	take := func() *Queue {
		mu.Lock()
		defer mu.Unlock()
		if next == len(found) || len(errs) > 0 {
			return nil
		}
		next++
		return found[next-1]
	}
	for range min(len(found), 2*runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for q := take(); q != nil; q = take() {
				err := q.load(point.PhyOffset)
				if err != nil {
					mu.Lock()
					errs = append(errs, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	for _, q := range found {
		if q.max.Load() == 0 {
			continue
		}
		s.queues[key{q.topic, q.id}] = q
		s.count.Add(1)
		s.total.Add(q.max.Load())
		s.raised.firsts += q.min.Load() // nobody else is here yet
	}
	return errors.Join(errs...)
}

// compare checks the sums of the point, which a lost folder, file or range of units changes.
func (s *Set) compare(want Point) error {
	got := s.Point(want.PhyOffset)
	if got.Begin > want.Begin {
		// Old segments went, and files of old units with them, since the point was written.
		want.Begin, want.Firsts = got.Begin, max(got.Firsts, want.Firsts)
	}
	if got != want {
		return fmt.Errorf("%w: %s has %+v, expected %+v", ErrDamaged, s.opts.Dir, got, want)
	}
	return nil
}

// load finds min and max among what is on disk. A file sequence is, up to power loss,
//
//	filler*  units of records below the point  units behind it, or zeroes
//
// and only the middle part is durable. A queue without a middle part is removed: dispatch
// makes it again.
func (q *Queue) load(point int64) error {
	files, err := q.openFiles()
	if errors.Is(err, mappedfile.ErrLayout) {
		return fmt.Errorf("%w: %s/%d: %w", ErrDamaged, q.topic, q.id, err)
	}
	if err != nil {
		return fmt.Errorf("consumequeue %s/%d: %w", q.topic, q.id, err)
	}
	lo, hi, err := q.extent(files, point)
	if err == nil && lo < hi {
		err = q.cut(files, hi)
	}
	if err != nil || lo == hi {
		if cerr := files.Close(); err == nil {
			err = cerr
		}
		if err == nil {
			err = Remove(q.dir)
		}
		return err
	}
	q.min.Store(lo)
	q.max.Store(hi)
	q.begin.Store(files.MinOffset() / UnitSize)
	return q.pool.offer(q, files)
}

// cut zeroes what is behind max. After a clean stop there is nothing, and thousands of queues
// shall not cost a sync each to say so: units are written in order, so a zero unit at max
// means that the rest is zero too. After a power loss it may not be, if the page of max was
// lost and a later one wasn't; such units are written again, with the same bytes, before a
// later point can reach their records, so no Open takes them for what they are not.
func (q *Queue) cut(files *mappedfile.Queue, max int64) error {
	if max*UnitSize == files.MaxOffset() {
		return nil
	}
	if u, err := q.unit(files, max); err != nil || u == (Unit{}) {
		return err
	}
	if err := files.Truncate(max * UnitSize); err != nil {
		return fmt.Errorf("consumequeue %s/%d: %w", q.topic, q.id, err)
	}
	return nil
}

// unit reads unit n of files whose extent is not known yet.
func (q *Queue) unit(files *mappedfile.Queue, n int64) (Unit, error) {
	v, err := files.View(n*UnitSize, UnitSize)
	if err != nil {
		return Unit{}, fmt.Errorf("consumequeue %s/%d: %w", q.topic, q.id, err)
	}
	defer v.Release()
	return Units(v.Bytes).At(0), nil
}

// gallop is search with growing steps from lo on. Most queues of many are short: looking in
// the middle of their files would bring in pages of nothing, for each of them.
func gallop(lo, hi int64, f func(int64) (bool, error)) (int64, error) {
	step := int64(1)
	for at := lo; at < hi; at, step = at+step, step*2 {
		ok, err := f(at)
		if err != nil {
			return 0, err
		}
		if ok {
			return search(lo, at, f)
		}
		lo = at + 1
	}
	return search(lo, hi, f)
}

// extent finds the middle part, [lo, hi), by searching, and looks at both ends of each
// file, so that a file of something else does not pass.
func (q *Queue) extent(files *mappedfile.Queue, point int64) (lo, hi int64, err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	begin, end := files.MinOffset()/UnitSize, files.MaxOffset()/UnitSize
	unit := func(n int64) (Unit, error) { return q.unit(files, n) }
	lo, err = gallop(begin, end, func(n int64) (bool, error) {
		u, err := unit(n)
		return !u.IsFiller(), err
	})
	if err != nil {
		return 0, 0, err
	}
	hi, err = gallop(lo, end, func(n int64) (bool, error) {
		u, err := unit(n)
		return !u.IsRecord() || u.End() > point, err
	})
	if err != nil || lo == hi {
		return 0, 0, err
	}
	var before Unit
	for at := lo; at < hi; at += q.inFile - at%q.inFile {
		for _, n := range [2]int64{at, min(hi, at+q.inFile-at%q.inFile) - 1} {
			u, err := unit(n)
			if err != nil {
				return 0, 0, err
			}
			if !u.IsRecord() || u.End() > point || u != before && u.PhyOffset < before.End() {
				return 0, 0, fmt.Errorf("%w: %s/%d: unit %d {%d %d %d} among units below physical offset %d",
					ErrDamaged, q.topic, q.id, n, u.PhyOffset, u.Size, u.TagsCode, point)
			}
			before = u
		}
	}
	return lo, hi, nil
}
