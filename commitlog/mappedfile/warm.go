package mappedfile

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// warmChunk is how much is warmed between two looks at whether to go on: RocketMQ's 4096 pages.
const warmChunk = 4096 * PageSize

// warmer is a Handle whose mapping can be warmed.
type warmer interface {
	// Populate brings mapped bytes [off, off+n) into memory, clean.
	Populate(off, n int64) error
	// Lock keeps the whole mapping in memory until Unlock or Close.
	Lock() error
	Unlock() error
}

// Warm brings the files that were made ahead into memory and locks them there, in the order in which they will be needed (RocketMQ's
// warmMappedFile). Nothing is written for it: pages of blocks that were only reserved are zero, and clean. progress is called
// now and then and ends it with false. ErrLockLimit: they are warm and not locked.
func (q *Queue) Warm(progress func(file string, done, total int64) bool) error {
	for _, f := range q.ahead() {
		if f.warmed.Swap(true) {
			continue
		}
		ok, err := f.acquire()
		if err != nil || !ok {
			return err
		}
		err = f.warmUp(q.o.FileSize, progress)
		f.release()
		if err != nil {
			return err
		}
	}
	return nil
}

func (f *File) warmUp(size int64, progress func(string, int64, int64) bool) error {
	w, ok := f.handle.(warmer)
	if !ok {
		return nil
	}
	for off := int64(0); off < size; off += warmChunk {
		if !progress(f.path, off, size) {
			return nil
		}
		if err := w.Populate(off, min(warmChunk, size-off)); err != nil {
			return fmt.Errorf("warm %s: %w", f.path, err)
		}
	}
	if err := w.Lock(); err != nil {
		return fmt.Errorf("lock %s: %w", f.path, err)
	}
	f.locked.Store(true)
	return nil
}

// UnlockBehind unlocks files that the writer has left for longer than grace.
func (q *Queue) UnlockBehind(grace time.Duration) {
	for _, f := range q.list() {
		left := f.left.Load()
		if left == 0 || time.Since(time.Unix(0, left)) < grace || !f.locked.Swap(false) {
			continue
		}
		ok, err := f.acquire()
		if err != nil || !ok {
			continue
		}
		if w, ok := f.handle.(warmer); ok {
			err = w.Unlock()
		}
		f.release()
		if err != nil {
			q.logger.Warn("could not unlock a file", "file", f.path, "error", err)
		}
	}
}

func (h *osHandle) Populate(off, n int64) error {
	err := unix.Madvise(h.data[off:off+n], unix.MADV_POPULATE_READ)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.14
		err = unix.Madvise(h.data[off:off+n], unix.MADV_WILLNEED)
	}
	return err
}

func (h *osHandle) Lock() error   { return Lock(h.data) }
func (h *osHandle) Unlock() error { return unix.Munlock(h.data) }
