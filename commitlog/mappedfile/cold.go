package mappedfile

import (
	"errors"
	"fmt"
	"io/fs"
)

// Files are mapped by use and unmapped by a clock: with terabytes of log, a mapping for each file would
// take page tables, address space and a descriptor for history that nobody reads.

// acquire takes a reference and maps the file if it is cold; false when the queue has let it go.
func (f *File) acquire() (bool, error) {
	for {
		n := f.refs.Load()
		if n&cold != 0 {
			ok, err := f.warm()
			if ok || err != nil || f.removed.Load() {
				return ok, err
			}
			if f.refs.Load() == cold {
				return false, nil
			}
			continue
		}
		if n <= 0 {
			return false, nil
		}
		if f.refs.CompareAndSwap(n, n+1) {
			if !f.used.Load() {
				f.used.Store(true)
			}
			return true, nil
		}
	}
}

// warm maps a cold file and takes a reference; false when it is cold no more, or gone.
func (f *File) warm() (bool, error) {
	ok, err := f.mapCold()
	if ok {
		f.q.evict()
	}
	return ok, err
}

func (f *File) mapCold() (bool, error) {
	f.mapMu.Lock()
	defer f.mapMu.Unlock()
	if f.refs.Load() != 1|cold {
		return false, nil
	}
	q := f.q
	h, err := q.fs.Open(f.path, q.o.ReadOnly)
	if errors.Is(err, fs.ErrNotExist) && (f.removed.Load() || f.refs.Load() == cold) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("map again: %w", err)
	}
	// Of staged files only the writer's is written: the others want their readahead.
	data, err := h.Map(q.o.FileSize, q.o.Random && (!q.o.Staged || f == q.last()))
	if err != nil {
		return false, fmt.Errorf("map again: %w", errors.Join(err, h.Close()))
	}
	f.handle, f.data = h, data
	f.used.Store(true)
	q.mapped.Add(1)
	if !f.refs.CompareAndSwap(1|cold, 2) { // removed meanwhile
		f.handle, f.data = nil, nil
		q.mapped.Add(-1)
		return false, h.Close()
	}
	return true, nil
}

// unmap makes a file cold that only the queue holds.
func (f *File) unmap() {
	f.mapMu.Lock()
	if f.dropped || !f.refs.CompareAndSwap(1, 1|cold) {
		f.mapMu.Unlock()
		return
	}
	h := f.handle
	f.handle, f.data = nil, nil
	f.mapMu.Unlock()
	f.q.mapped.Add(-1)
	if err := h.Close(); err != nil {
		f.q.logger.Warn("could not unmap a file", "file", f.path, "error", err)
	}
}

// evict unmaps files until no more than MaxMapped are mapped, or none can be: those that were not used since it last came by
// go first. What is not durable stays: its sync must go through the descriptor that wrote it.
func (q *Queue) evict() {
	limit := int64(q.o.MaxMapped)
	if limit <= 0 || q.mapped.Load() <= limit || !q.evictMu.TryLock() {
		return
	}
	defer q.evictMu.Unlock()
	files := q.list()
	durable := q.FlushedOffset()
	for looks := 2 * len(files); looks > 0 && q.mapped.Load() > limit; looks-- {
		if q.hand >= len(files) {
			q.hand = 0
		}
		f := files[q.hand]
		q.hand++
		if f.refs.Load() != 1 || f.from+q.o.FileSize > durable || f.used.Swap(false) {
			continue
		}
		f.unmap()
	}
}

// Mapped is how many files are mapped now, those made ahead included.
func (q *Queue) Mapped() int { return int(q.mapped.Load()) }
