package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
)

// ExtUnit is a unit of a queue's extension (RocketMQ's ConsumeQueueExt.CqExtUnit), big-endian:
//
//	0   2  size of the unit
//	2   8  tags code
//	10  8  store timestamp of the message, ms
//	18  2  size of the bitmap, bitmap
type ExtUnit struct {
	Address        int64 // as queue units have it
	Size           int32
	TagsCode       int64
	StoreTimestamp int64 // ms
	Bitmap         []byte
	File           string // relative to the store's root
	Offset         int64  // in the file
}

const (
	extHead = 20
	// A tags code at or below maxExtAddress is an address: byte offset − 2^63.
	maxExtAddress = -int64(math.MaxInt32) - 2
)

func isExtAddress(tagsCode int64) bool { return tagsCode <= maxExtAddress }

var errExtUnit = errors.New("damaged extension unit")

// decodeExt reads the unit at the start of b. The bitmap is a view of b.
func decodeExt(b []byte) (u ExtUnit, err error) {
	if len(b) < extHead {
		return u, fmt.Errorf("%w: %d bytes, at least %d", errExtUnit, len(b), extHead)
	}
	be := binary.BigEndian
	size, bitmap := int(int16(be.Uint16(b))), int(int16(be.Uint16(b[18:])))
	if size < extHead || size > len(b) || bitmap < 0 || extHead+bitmap != size {
		return u, fmt.Errorf("%w: size %d, bitmap of %d bytes, %d bytes there", errExtUnit, size, bitmap, len(b))
	}
	return ExtUnit{Size: int32(size), TagsCode: int64(be.Uint64(b[2:])), StoreTimestamp: int64(be.Uint64(b[10:])), Bitmap: b[extHead:size]}, nil
}

// extReader reads units of one queue's extension by address.
type extReader struct {
	s     *Store
	topic string
	id    int32
	files []QueueFile
	known bool
	src   *fileSource
	open  int
	buf   []byte
}

func (e *extReader) close() {
	if e.src != nil {
		_ = e.src.Close()
		e.src = nil
	}
}

// unit returns the unit of an address, nil when there is none.
func (e *extReader) unit(address int64) (*ExtUnit, error) {
	if !e.known {
		if err := e.list(); err != nil {
			return nil, err
		}
	}
	off := address - math.MinInt64
	i, found := slices.BinarySearchFunc(e.files, off, func(f QueueFile, off int64) int { return cmpInt(f.From, off) })
	if !found {
		i--
	}
	if i < 0 || off-e.files[i].From >= e.files[i].Size {
		return nil, nil
	}
	if e.src == nil || e.open != i {
		e.close()
		src, err := openSource(e.files[i].path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		e.src, e.open = src, i
	}
	if e.buf == nil {
		e.buf = make([]byte, math.MaxInt16)
	}
	n, err := e.src.ReadAt(e.buf, off-e.files[i].From)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	u, err := decodeExt(e.buf[:n])
	if err != nil {
		return nil, nil
	}
	u.Address, u.File, u.Offset = address, e.files[i].Path, off-e.files[i].From
	return &u, nil
}

func (e *extReader) list() error {
	e.known = true
	dir := filepath.Join(e.s.Dir, extDir, e.topic, strconv.Itoa(int(e.id)))
	list, err := listDir(dir)
	if err != nil {
		return err
	}
	for _, fi := range list {
		if from := nameOffset(fi.Name()); from >= 0 && !fi.IsDir() {
			path := filepath.Join(dir, fi.Name())
			e.files = append(e.files, QueueFile{Path: e.s.rel(path), From: from, Size: fi.Size(), path: path})
		}
	}
	slices.SortFunc(e.files, func(a, b QueueFile) int { return cmpInt(a.From, b.From) })
	return nil
}

// ExtUnits visits all units of a queue's extension in order. They live until visit returns.
func (s *Store) ExtUnits(topic string, id int32, visit func(ExtUnit) error) error {
	e := extReader{s: s, topic: topic, id: id}
	defer e.close()
	if err := e.list(); err != nil {
		return err
	}
	w := &window{}
	for _, f := range e.files {
		if err := s.extFile(w, &f, visit); err != nil {
			if errors.Is(err, ErrStop) {
				return nil
			}
			return err
		}
	}
	return nil
}

// extFile visits the units of one file, up to its end mark (−1), zeroes, or damage.
func (s *Store) extFile(w *window, f *QueueFile, visit func(ExtUnit) error) error {
	src, err := openSource(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer src.Close()
	w.reset(src)
	for pos := int64(0); ; {
		b, err := w.at(pos, math.MaxInt16)
		if err != nil {
			return err
		}
		u, err := decodeExt(b)
		if err != nil {
			return nil
		}
		u.Address, u.File, u.Offset = f.From+pos+math.MinInt64, f.Path, pos
		if err := visit(u); err != nil {
			return err
		}
		pos += int64(u.Size)
	}
}
