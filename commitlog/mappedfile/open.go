package mappedfile

import (
	"fmt"
	"math"
	"path/filepath"
	"strconv"

	"github.com/hashicorp/go-hclog"
)

// Open lists, checks and maps the files of o.Dir. All positions start at the end of the last
// file, as if everything were written and flushed; the owner's recovery sets them (Truncate,
// SetFlushed). A tail file of zero length, which a crash during creation leaves, is made
// again (F39); any other file that does not belong is ErrLayout and nothing is changed.
func Open(o Options) (*Queue, error) {
	switch {
	case o.FileSize <= 0 || o.AllocateStep < 0:
		return nil, fmt.Errorf("mappedfile: file size %d, allocate step %d: must be positive", o.FileSize, o.AllocateStep)
	case o.Pool != nil && (!o.Staged || o.Pool.size < o.FileSize):
		return nil, fmt.Errorf("mappedfile: pool of %d bytes a buffer, files of %d, staged %v", o.Pool.size, o.FileSize, o.Staged)
	}
	q := &Queue{o: o, fs: o.FS, logger: o.Logger}
	q.rewritten.Store(math.MaxInt64)
	if q.fs == nil {
		q.fs = OS{}
	}
	if q.logger == nil {
		q.logger = hclog.NewNullLogger()
	}
	if !o.ReadOnly {
		if err := q.fs.MkdirAll(o.Dir); err != nil {
			return nil, err
		}
	}
	entries, err := q.fs.ReadDir(o.Dir)
	if err != nil {
		return nil, err
	}
	entries, beyond := splitBeyond(o, entries)
	firstEmpty, err := checkLayout(o, entries)
	if err != nil {
		return nil, err
	}
	if err := q.dropBeyond(beyond); err != nil {
		return nil, err
	}
	if o.ReadOnly {
		entries, firstEmpty = entries[:firstEmpty], len(entries)
	}
	files := make([]*File, 0, len(entries))
	for i, e := range entries {
		remake := i >= firstEmpty || e.Size != o.FileSize
		if remake {
			q.logger.Warn("making a file whole again that a crash left short", "file", filepath.Join(o.Dir, e.Name), "size", e.Size, "file-size", o.FileSize)
		}
		f, err := q.openFile(offsetOf(e.Name), remake)
		if err != nil {
			for _, f := range files {
				f.release()
			}
			return nil, err
		}
		f.named.Store(o.Recover && f.from < o.DurableEnd && !remake)
		files = append(files, f)
	}
	q.files.Store(&files)
	if len(files) > 0 {
		end := files[len(files)-1].from + o.FileSize
		q.wrote = end
		q.minOffset.Store(files[0].from)
		q.published.Store(end)
		q.readable.Store(end)
		q.flushed.Store(end)
	}
	q.entriesDirty.Store(len(entries) > 0)
	return q, nil
}

func offsetOf(name string) int64 {
	off, err := strconv.ParseInt(name, 10, 64)
	if err != nil || off < 0 || len(name) != nameLen || name[0] == '+' {
		return -1
	}
	return off
}

// checkLayout checks names, sizes and that there is no gap. It returns the index of the first
// file of the empty tail.
func checkLayout(o Options, entries []Entry) (firstEmpty int, err error) {
	firstEmpty = len(entries)
	for firstEmpty > 0 && entries[firstEmpty-1].Size == 0 && !entries[firstEmpty-1].Dir && !(o.Recover && offsetOf(entries[firstEmpty-1].Name) < o.DurableEnd) {
		firstEmpty--
	}
	for i, e := range entries {
		path := filepath.Join(o.Dir, e.Name)
		off := offsetOf(e.Name)
		switch {
		case e.Dir || off < 0:
			return 0, fmt.Errorf("%w: %s: the name is not a %d-digit offset", ErrLayout, path, nameLen)
		case off%o.FileSize != 0:
			return 0, fmt.Errorf("%w: %s: the offset is no multiple of the file size %d", ErrLayout, path, o.FileSize)
		case i < firstEmpty && e.Size != o.FileSize && !mayBeShort(o, off, e.Size):
			return 0, fmt.Errorf("%w: %s has %d bytes, expected %d", ErrLayout, path, e.Size, o.FileSize)
		case i > 0 && off != offsetOf(entries[i-1].Name)+o.FileSize:
			return 0, fmt.Errorf("%w: %s: the file before it is %s, %d is missing", ErrLayout, path,
				entries[i-1].Name, offsetOf(entries[i-1].Name)+o.FileSize)
		}
	}
	return firstEmpty, nil
}

// mayBeShort tells whether all that a short file lacks is behind the durable end.
func mayBeShort(o Options, from, size int64) bool {
	return o.Recover && size < o.FileSize && from+size >= o.DurableEnd
}

// splitBeyond finds what stands behind a hole that begins at or behind the durable end, or behind a last
// file that is too long: a crash can't have left it, and nothing in it was durable.
func splitBeyond(o Options, entries []Entry) (keep, beyond []Entry) {
	if !o.Recover || o.ReadOnly {
		return entries, nil
	}
	for i, e := range entries {
		off := offsetOf(e.Name)
		if e.Dir || off < 0 || off%o.FileSize != 0 {
			return entries, nil // refused, whatever stands behind it
		}
		hole := i > 0 && off != offsetOf(entries[i-1].Name)+o.FileSize
		if hole && offsetOf(entries[i-1].Name)+o.FileSize >= o.DurableEnd || e.Size > o.FileSize && off >= o.DurableEnd {
			return entries[:i], entries[i:]
		}
	}
	return entries, nil
}

// dropBeyond removes those files, the last first.
func (q *Queue) dropBeyond(beyond []Entry) error {
	for i := len(beyond) - 1; i >= 0; i-- {
		path := filepath.Join(q.o.Dir, beyond[i].Name)
		q.logger.Warn("removing a file behind the end of what was ever durable", "file", path, "size", beyond[i].Size)
		if err := q.fs.Remove(path); err != nil {
			return err
		}
	}
	return nil
}
