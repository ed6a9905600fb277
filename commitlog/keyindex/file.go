package keyindex

import (
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"raftmq/commitlog/mappedfile"
)

// nameLayout is a file's name as a time; nameDigits how long it is.
const (
	nameLayout = "20060102150405.000"
	nameDigits = 17
)

// file is one mapped index file.
type file struct {
	name   int64 // its digits
	path   string
	handle mappedfile.Handle
	table  Table
	refs   atomic.Int32 // the index's own and one for each reader; unmapped at zero

	header Header // of the file that is written: the writer's, under Index.mu; of others for good
	// allocated bytes from the start have blocks: the writer's.
	allocated int64

	// Flush's: entries [1, summed) are durable, and sum is theirs.
	summed int32
	sum    uint32
	named  bool // size and directory entry are durable
	whole  bool // all of a full file is durable, slots too
}

func fileName(name int64) string { return fmt.Sprintf("%0*d", nameDigits, name) }

// parseName reads the name of an index file.
func parseName(s string) (name int64, ok bool) {
	if len(s) != nameDigits {
		return 0, false
	}
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return 0, false
		}
		name = name*10 + int64(c-'0')
	}
	return name, true
}

// nameOf is the name of a file made at t, local time.
func nameOf(t time.Time) int64 {
	s := t.Format(nameLayout)
	name, _ := parseName(s[:14] + s[15:])
	return name
}

// nameAfter is the first name that is later: a millisecond by the digits, if they are a time.
func nameAfter(name int64) int64 {
	s := fileName(name)
	t, err := time.Parse(nameLayout, s[:14]+"."+s[14:]) // UTC: digits only
	if err != nil {
		return name + 1
	}
	return max(name+1, nameOf(t.Add(time.Millisecond)))
}

// create makes, allocates and maps the file that follows one with header prev. Nothing is
// left behind when it fails, and nothing is durable yet.
func (ix *Index) create(name int64, prev Header) (*file, error) {
	f := &file{name: name, path: filepath.Join(ix.c.Dir, fileName(name)), summed: 1}
	var err error
	if f.handle, err = ix.fs.Create(f.path, ix.fileSize()); err != nil {
		return nil, fmt.Errorf("keyindex: %w", err)
	}
	// Slots are written anywhere, so all of them need their blocks now.
	err = f.allocate(ix, FileSize(ix.c.Slots, 1))
	if err == nil {
		err = f.mapBytes(ix)
	}
	if err != nil {
		return nil, errors.Join(err, f.handle.Close(), ix.fs.Remove(f.path))
	}
	f.header = Header{
		BeginTimestamp: prev.EndTimestamp, EndTimestamp: prev.EndTimestamp,
		BeginPhyOffset: prev.EndPhyOffset, EndPhyOffset: prev.EndPhyOffset, Count: 1,
	}
	f.refs.Store(1)
	return f, nil
}

// open maps an existing file of the right size.
func (ix *Index) open(name int64) (*file, error) {
	f := &file{name: name, path: filepath.Join(ix.c.Dir, fileName(name)), summed: 1}
	var err error
	if f.handle, err = ix.fs.Open(f.path, false); err != nil {
		return nil, fmt.Errorf("keyindex: %w", err)
	}
	if err := f.mapBytes(ix); err != nil {
		return nil, errors.Join(err, f.handle.Close())
	}
	f.refs.Store(1)
	return f, nil
}

// mapBytes maps for access at random: a flush of few entries shall not write large folios,
// nor a query read ahead.
func (f *file) mapBytes(ix *Index) error {
	b, err := f.handle.Map(ix.fileSize(), true)
	if err == nil {
		f.table, err = NewTable(b, ix.c.Slots)
	}
	if err != nil {
		return fmt.Errorf("keyindex: map %s: %w", f.path, err)
	}
	return nil
}

// allocate takes blocks for the first n bytes, in steps behind the slots.
func (f *file) allocate(ix *Index, n int64) error {
	if n <= f.allocated {
		return nil
	}
	step := ix.c.AllocateStep
	if slots := FileSize(ix.c.Slots, 0); n > slots {
		n = slots + (n-slots+step-1)/step*step
	}
	n = min(n, ix.fileSize())
	err := f.handle.Allocate(f.allocated, n-f.allocated)
	if errors.Is(err, mappedfile.ErrUnsupported) {
		if !ix.warned {
			ix.warned = true
			ix.logger.Warn("file system cannot reserve blocks, a full disk will be a page fault", "dir", ix.c.Dir, "error", err)
		}
		err = nil
	}
	if err != nil {
		return fmt.Errorf("keyindex: allocate %s bytes %d to %d: %w", f.path, f.allocated, n, err)
	}
	f.allocated = n
	return nil
}

func (f *file) acquire() bool {
	for {
		n := f.refs.Load()
		if n <= 0 {
			return false
		}
		if f.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (f *file) release() {
	switch n := f.refs.Add(-1); {
	case n == 0:
		f.table = Table{}
		if err := f.handle.Close(); err != nil {
			panic(fmt.Sprintf("keyindex: Views-Are-Counted: %v", err))
		}
	case n < 0:
		panic("keyindex: Views-Are-Counted: " + f.path + " released too often")
	}
}
