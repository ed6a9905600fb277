package inspect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// source is a file, or bytes in a test.
type source interface {
	io.ReaderAt
	Size() int64
}

type fileSource struct {
	*os.File
	size int64
}

func (f fileSource) Size() int64 { return f.size }

// openSource opens a file read-only; its size is what it is now.
func openSource(path string) (*fileSource, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	fi, err := f.Stat()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("inspect: %w", err), f.Close())
	}
	return &fileSource{f, fi.Size()}, nil
}

// window reads a source front to back, a stretch at a time.
type window struct {
	src  source
	size int64
	buf  []byte
	from int64 // of buf in the source
	read int64 // bytes read in all
}

func newWindow(src source) *window { return &window{src: src, size: src.Size()} }

// reset goes on with another source and the same memory.
func (w *window) reset(src source) {
	w.src, w.size, w.buf, w.from = src, src.Size(), w.buf[:0], 0
}

// at returns the n bytes at pos, fewer at the end of the source. They live until the next call.
func (w *window) at(pos int64, n int) ([]byte, error) {
	if pos < 0 || pos >= w.size {
		return nil, nil
	}
	n = int(min(int64(n), w.size-pos))
	if i := pos - w.from; i >= 0 && i+int64(n) <= int64(len(w.buf)) {
		return w.buf[i : int(i)+n], nil
	}
	want := int(min(int64(max(n, windowSize)), w.size-pos))
	if cap(w.buf) < want {
		w.buf = make([]byte, 0, want)
		w.from = pos
	} else if cap(w.buf) > 2*windowSize && want <= windowSize {
		w.buf = make([]byte, 0, windowSize) // a huge record was before
		w.from = pos
	}
	kept := 0
	if i := pos - w.from; i >= 0 && i < int64(len(w.buf)) {
		kept = copy(w.buf[:cap(w.buf)], w.buf[i:])
	}
	w.buf, w.from = w.buf[:want], pos
	kept = min(kept, want)
	got, err := w.src.ReadAt(w.buf[kept:], pos+int64(kept))
	w.read += int64(got)
	w.buf = w.buf[:kept+got]
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	// The file was cut meanwhile: what is there counts.
	return w.buf[:min(n, len(w.buf))], nil
}

var zeroPage [pageSize]byte

func allZero(b []byte) bool {
	for len(b) > pageSize {
		if !bytes.Equal(b[:pageSize], zeroPage[:]) {
			return false
		}
		b = b[pageSize:]
	}
	return bytes.Equal(b, zeroPage[:len(b)])
}

// firstByte finds the first byte of [from, to) that is not zero, to when there is none. Holes of
// sparse files are passed over without reading.
func (w *window) firstByte(from, to int64) (int64, error) {
	to = min(to, w.size)
	for pos := from; pos < to; {
		pos = w.skipHole(pos)
		if pos >= to {
			break
		}
		b, err := w.at(pos, int(min(to-pos, windowSize)))
		if err != nil {
			return 0, err
		}
		if len(b) == 0 {
			break
		}
		if !allZero(b) {
			i := bytes.IndexFunc(b, func(r rune) bool { return r != 0 })
			return pos + int64(i), nil
		}
		pos += int64(len(b))
	}
	return to, nil
}

// lastByte finds the end of the last byte of [from, to) that is not zero, from when there is none.
func (w *window) lastByte(from, to int64) (int64, error) {
	last := from
	for pos := from; pos < to; {
		first, err := w.firstByte(pos, to)
		if err != nil {
			return 0, err
		}
		if first >= to {
			break
		}
		b, err := w.at(first, int(min(to-first, windowSize)))
		if err != nil {
			return 0, err
		}
		last = first + int64(len(bytes.TrimRight(b, "\x00")))
		pos = first + int64(max(len(b), 1))
	}
	return last, nil
}

const seekData = 3 // SEEK_DATA of lseek(2)

// skipHole returns where data begins at or behind pos; pos itself if that can't be told.
func (w *window) skipHole(pos int64) int64 {
	f, ok := w.src.(*fileSource)
	if !ok {
		return pos
	}
	data, err := f.Seek(pos, seekData)
	switch {
	case errors.Is(err, syscall.ENXIO):
		return w.size
	case err != nil || data < pos:
		return pos
	}
	return data
}
