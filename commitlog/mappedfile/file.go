package mappedfile

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// File is one file of a queue, mapped or cold.
type File struct {
	q    *Queue
	from int64 // offset of byte 0
	path string

	// refs counts the queue's own reference and one for each view, the writer and whoever works on the file; the
	// file is closed at zero. The bit cold says that it is not mapped: then the queue's is the only reference.
	refs atomic.Int32
	used atomic.Bool // since the evictor last came by
	// removed is set before the name goes: a cold file can't be mapped any more then.
	removed atomic.Bool
	mapMu   sync.Mutex // serialises mapping and unmapping
	dropped bool       // the queue's own reference is gone, or about to go; guarded by mapMu
	// handle and data are nil while the file is cold; they may be used by who holds a reference of his own.
	handle Handle
	data   []byte
	// buffer is lent by the pool while the writer is in this file. Its bytes up to the readable end are in the file.
	buffer []byte

	warmed atomic.Bool
	locked atomic.Bool
	left   atomic.Int64 // Unix ns when the writer went on to the next file

	allocated atomic.Int64 // bytes from the start that have blocks; grows only, but for Truncate
	named     atomic.Bool  // size and directory entry are durable
	// hanged counts, for the queue, removed files whose space the last view still holds; nil before the removal.
	hanged atomic.Pointer[atomic.Int64]
}

// cold is the bit of refs.
const cold = 1 << 30

// fileName is the 20-digit name of the file that starts at off.
func fileName(off int64) string { return fmt.Sprintf("%0*d", nameLen, off) }

// createFile makes, allocates and maps the file that starts at from. At least need bytes of it get
// blocks. It leaves nothing behind when it fails. Nothing is durable yet.
func (q *Queue) createFile(from, need int64) (*File, error) {
	path := filepath.Join(q.o.Dir, fileName(from))
	h, err := q.fs.Create(path, q.o.FileSize)
	if err != nil {
		return nil, err
	}
	f := &File{q: q, from: from, path: path, handle: h}
	err = q.allocate(f, q.allocateStep(), need)
	if err == nil {
		f.data, err = h.Map(q.o.FileSize, q.o.Random)
	}
	if err != nil {
		return nil, errors.Join(err, h.Close(), q.fs.Remove(path))
	}
	f.refs.Store(1)
	f.used.Store(true)
	q.mapped.Add(1)
	return f, nil
}

// openFile takes an existing file, mapped if all are.
func (q *Queue) openFile(from int64, recreate bool) (*File, error) {
	f := &File{q: q, from: from, path: filepath.Join(q.o.Dir, fileName(from))}
	if q.o.MaxMapped > 0 && !recreate {
		f.refs.Store(1 | cold)
		return f, nil // not named: a process that was killed may have made it and synced nothing
	}
	h, err := q.fs.Open(f.path, q.o.ReadOnly)
	if err != nil {
		return nil, err
	}
	f.handle = h
	if recreate {
		err = h.Truncate(q.o.FileSize)
	}
	if err == nil {
		f.data, err = h.Map(q.o.FileSize, q.o.Random)
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	f.refs.Store(1)
	q.mapped.Add(1)
	return f, nil
}

func (q *Queue) allocateStep() int64 {
	if q.o.AllocateStep <= 0 {
		return q.o.FileSize
	}
	return q.o.AllocateStep
}

// scantStep is the step on a disk that has no room for a whole one.
const scantStep = 256 << 10

// allocate gives the first n bytes of f blocks, rounded up to the step, or on a full disk at least need.
// Idempotent, and may run in the pre-allocation goroutine and the writer at once: blocks that are
// there stay. The caller holds a reference.
func (q *Queue) allocate(f *File, n, need int64) error {
	have := f.allocated.Load()
	if n <= have {
		return nil
	}
	want := q.roundUp(n, q.allocateStep())
	err := q.allocateTo(f, have, want)
	if !errors.Is(err, ErrNoSpace) {
		return err
	}
	if need <= have {
		return nil
	}
	if less := q.roundUp(need, scantStep); less < want {
		return q.allocateTo(f, have, less)
	}
	return err
}

func (q *Queue) roundUp(n, step int64) int64 { return min((n+step-1)/step*step, q.o.FileSize) }

// allocateHeld is allocate for who holds no reference.
func (q *Queue) allocateHeld(f *File, n, need int64) error {
	if n <= f.allocated.Load() {
		return nil
	}
	ok, err := f.acquire()
	if err != nil || !ok {
		return fmt.Errorf("allocate %s: %w", f.path, errOrClosed(err))
	}
	defer f.release()
	return q.allocate(f, n, need)
}

// allocateTo takes blocks for [have, n).
func (q *Queue) allocateTo(f *File, have, n int64) error {
	err := f.handle.Allocate(have, n-have)
	if errors.Is(err, ErrUnsupported) {
		if q.warned.CompareAndSwap(false, true) {
			q.logger.Warn("file system cannot reserve blocks, a full disk will be a page fault", "dir", q.o.Dir, "error", err)
		}
		err = nil
	}
	if err != nil {
		return fmt.Errorf("allocate %s bytes %d to %d: %w", f.path, have, n, err)
	}
	for have < n && !f.allocated.CompareAndSwap(have, n) {
		have = f.allocated.Load()
	}
	return nil
}

// drop gives the queue's own reference back. From then on the last reference is a view's, and evict must not take it for the queue's.
func (f *File) drop() {
	f.mapMu.Lock()
	f.dropped = true
	f.mapMu.Unlock()
	f.release()
}

// release gives one reference back. An error of unmapping is unreachable for the holder of a
// view and means a broken invariant (a foreign or doubled unmap).
func (f *File) release() {
	switch n := f.refs.Add(-1); {
	case n == 0:
		f.data = nil
		if err := f.handle.Close(); err != nil {
			panic(fmt.Sprintf("mappedfile: Views-Are-Counted: %v", err))
		}
		f.q.mapped.Add(-1)
		f.gone()
	case n == cold:
		f.gone()
	case n < 0:
		panic("mappedfile: Views-Are-Counted: " + f.path + " released too often")
	}
}

func (f *File) gone() {
	if hanged := f.hanged.Load(); hanged != nil {
		hanged.Add(-1)
	}
}
