package mappedfile

import (
	"fmt"
	"math"
)

// Flush makes everything up to the readable end durable when at least leastPages pages
// wait (0: any) or a file is full, and returns the durable end. A failed flush poisons the
// queue: every later call returns ErrPoisoned wrapping the first error, and so do writes.
func (q *Queue) Flush(leastPages int) (int64, error) {
	q.flushMu.Lock()
	defer q.flushMu.Unlock()
	from := q.FlushedOffset()
	if err := q.writable(); err != nil {
		return from, err
	}
	end := q.readable.Load()
	if end <= from {
		return from, nil
	}
	sameFile := from/q.o.FileSize == end/q.o.FileSize
	if leastPages > 0 && sameFile && end/PageSize-from/PageSize < int64(leastPages) {
		return from, nil
	}
	// What WriteAt rewrites from here on belongs to the next Flush.
	from = min(from, q.rewritten.Swap(math.MaxInt64))
	if err := q.flushRange(max(from, q.minOffset.Load()), end); err != nil {
		return from, q.fail(err)
	}
	for {
		flushed := q.flushed.Load() // DeleteBefore may have moved it on
		if flushed >= end || q.flushed.CompareAndSwap(flushed, end) {
			break
		}
	}
	return q.FlushedOffset(), nil
}

// flushRange makes [off, end) durable: first that the files exist and have their size
// (Named-Before-Durable), then the bytes.
func (q *Queue) flushRange(off, end int64) error {
	files := q.list()
	if err := q.nameFiles(files); err != nil {
		return err
	}
	for _, f := range files {
		to := min(end, f.from+q.o.FileSize)
		start := max(off, f.from)
		if start >= to {
			continue
		}
		ok, err := f.acquire()
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		err = f.handle.SyncRange(start-f.from, to-start)
		f.release()
		if err != nil {
			return err
		}
	}
	return nil
}

// nameFiles makes size and directory entry of files durable. One at a time: who finds the work
// done must not find it half done.
func (q *Queue) nameFiles(files []*File) error {
	q.nameMu.Lock()
	defer q.nameMu.Unlock()
	// Who failed while we waited has taken the mark of the dirty folder with it (F33, F35).
	if err := q.writable(); err != nil {
		return err
	}
	for _, f := range files {
		if f.named.Load() {
			continue
		}
		ok, err := f.acquire()
		if err != nil {
			return err
		}
		if !ok { // removed meanwhile
			continue
		}
		err = f.handle.SyncSize()
		f.release()
		if err != nil {
			return q.fail(err)
		}
	}
	if q.entriesDirty.Swap(false) {
		if err := q.fs.SyncDir(q.o.Dir); err != nil {
			return q.fail(err)
		}
	}
	for _, f := range files {
		f.named.Store(true)
	}
	return nil
}

// fail poisons the queue with the first error and returns what every later call returns.
func (q *Queue) fail(err error) error {
	q.poison.CompareAndSwap(nil, fmt.Errorf("%w: %w", ErrPoisoned, err))
	return q.poisoned()
}
