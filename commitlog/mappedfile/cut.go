package mappedfile

import (
	"errors"
	"fmt"
	"math"
)

// Truncate sets the readable and written end to off, zeroes the rest of that file and
// removes later files, all of it durable on return; the flushed end moves back to off when it was
// behind it. For recovery, and for the writer to give up what it has not committed: no reader
// may hold views behind off. Bytes below off that an earlier process wrote and did not
// flush are not flushed by it: an owner that has such bytes calls SetFlushed and Flush afterwards.
func (q *Queue) Truncate(off int64) error {
	if err := q.writable(); err != nil {
		return err
	}
	q.flushMu.Lock()
	defer q.flushMu.Unlock()
	q.commitMu.Lock()
	defer q.commitMu.Unlock()
	if q.o.Pool != nil {
		if _, err := q.commitBuffersLocked(0); err != nil {
			return err
		}
	}
	if off < q.minOffset.Load() || off > q.readable.Load() {
		return fmt.Errorf("%w: truncate to %d, readable is %d to %d", ErrOutOfRange, off, q.MinOffset(), q.MaxOffset())
	}
	q.makeMu.Lock()
	defer q.makeMu.Unlock()
	if err := q.dropPrepared(); err != nil {
		return err
	}
	q.leave()
	files := q.list()
	q.dropBuffers(files)
	keep := len(files)
	// From the last one on, so that a crash leaves no gap. A file that starts at off goes too.
	for keep > 0 && files[keep-1].from >= off {
		keep--
		if err := q.fs.Remove(files[keep].path); err != nil {
			return err
		}
	}
	q.setFiles(files[:keep])
	for _, f := range files[keep:] {
		f.drop()
	}
	cut := q.fileAt(files[:keep], off)
	changed := false
	if cut != nil {
		ok, err := cut.acquire()
		if err != nil || !ok {
			return fmt.Errorf("cut %s: %w", cut.path, errOrClosed(err))
		}
		defer cut.release()
		pos := off - cut.from
		if changed, err = cut.handle.Zero(pos, q.o.FileSize-pos); err != nil {
			return fmt.Errorf("zero %s from %d: %w", cut.path, pos, err)
		}
		cut.allocated.Store(0) // blocks may be gone; taking them again leaves the others alone
	}
	if keep < len(files) || changed {
		q.entriesDirty.Store(true)
		if err := q.nameFiles(files[:keep]); err != nil {
			return err
		}
	}
	if changed {
		if err := cut.handle.Sync(); err != nil {
			return q.fail(err)
		}
	}
	q.wrote = off
	q.published.Store(off)
	q.readable.Store(off)
	q.flushed.Store(min(off, q.flushed.Load()))
	return nil
}

// dropPrepared removes the files made ahead, the last first, before the files that they follow go. makeMu is held. All are
// unmapped, also when one can't be removed.
func (q *Queue) dropPrepared() (err error) {
	ahead := q.ahead()
	q.prepared.Store(nil)
	for i := len(ahead) - 1; i >= 0; i-- {
		ahead[i].drop()
		if err == nil { // or it would leave a gap
			err = q.fs.Remove(ahead[i].path)
		}
	}
	return err
}

func (q *Queue) setFiles(files []*File) {
	q.filesMu.Lock()
	defer q.filesMu.Unlock()
	q.files.Store(&files)
}

// SetFlushed moves the flushed end back to off: what is behind it was found in the page cache, not
// written by this process, so the next Flush takes it in. Its pages are made dirty first: the
// process before may have stopped because a sync had failed, and the kernel then calls pages clean
// that are not on disk (F33). Recovery only.
func (q *Queue) SetFlushed(off int64) error {
	if err := q.writable(); err != nil {
		return err
	}
	off = max(q.minOffset.Load(), min(off, q.flushed.Load()))
	end := q.readable.Load()
	for _, f := range q.list() {
		start, to := max(off, f.from), min(end, f.from+q.o.FileSize)
		if start >= to {
			continue
		}
		if err := q.allocateHeld(f, to-f.from, to-f.from); err != nil {
			return err
		}
		ok, err := f.acquire()
		if err != nil || !ok {
			return fmt.Errorf("%s: %w", f.path, errOrClosed(err))
		}
		err = f.handle.Dirty(start-f.from, to-start)
		f.release()
		if err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
	}
	q.flushed.Store(off)
	return nil
}

// SetMinOffset says that readable bytes begin at off, inside the first file, as after Reset.
// Recovery only.
func (q *Queue) SetMinOffset(off int64) error {
	files := q.list()
	if len(files) == 0 || off < files[0].from || off >= files[0].from+q.o.FileSize {
		return fmt.Errorf("%w: minimum %d is not in the first file", ErrOutOfRange, off)
	}
	q.minOffset.Store(off)
	return nil
}

// Reset removes all files and lets the empty queue begin at off, in the middle of a file if need be;
// durable on return. No writer beside it; readers get ErrOutOfRange.
func (q *Queue) Reset(off int64) error {
	if err := q.writable(); err != nil {
		return err
	}
	if off < 0 {
		return fmt.Errorf("%w: reset to %d", ErrOutOfRange, off)
	}
	q.flushMu.Lock()
	defer q.flushMu.Unlock()
	q.commitMu.Lock()
	defer q.commitMu.Unlock()
	q.makeMu.Lock()
	defer q.makeMu.Unlock()
	q.leave()
	files := q.list()
	q.dropBuffers(files)
	err := q.dropPrepared()
	for i := len(files) - 1; i >= 0 && err == nil; i-- {
		err = q.fs.Remove(files[i].path)
	}
	if err == nil {
		err = q.fs.SyncDir(q.o.Dir)
	}
	if err != nil {
		return q.fail(err)
	}
	q.setFiles(nil)
	q.wrote = off
	q.minOffset.Store(off)
	q.published.Store(off)
	q.readable.Store(off)
	q.flushed.Store(off)
	q.rewritten.Store(math.MaxInt64)
	for _, f := range files {
		f.drop()
	}
	return nil
}

// DeleteBefore removes whole files that end at or before off, never the last. Files with
// views out are removed from the queue at once and unmapped at zero.
func (q *Queue) DeleteBefore(off int64) (removed int, err error) {
	if err := q.writable(); err != nil {
		return 0, err
	}
	q.removeMu.Lock()
	defer q.removeMu.Unlock()
	files := q.list()
	for removed < len(files)-1 && files[removed].from+q.o.FileSize <= off {
		// Hidden before it goes: a reader that finds the name gone must know why. From the first one on, so that a crash
		// leaves no gap.
		q.minOffset.Store(max(q.minOffset.Load(), files[removed+1].from))
		files[removed].removed.Store(true)
		if err = q.fs.Remove(files[removed].path); err != nil {
			break
		}
		removed++
	}
	if removed == 0 {
		return 0, err
	}
	first := files[removed].from
	q.filesMu.Lock()
	now := append([]*File(nil), q.list()[removed:]...) // the writer may have added one
	q.files.Store(&now)
	q.filesMu.Unlock()
	for _, f := range files[:removed] {
		q.hanged.Add(1) // until the last view lets go
		f.hanged.Store(&q.hanged)
		f.drop()
	}
	for {
		flushed := q.flushed.Load()
		if flushed >= first || q.flushed.CompareAndSwap(flushed, first) {
			break
		}
	}
	return removed, errors.Join(err, q.fs.SyncDir(q.o.Dir))
}
