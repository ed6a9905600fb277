package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"
)

// Layout of an index file (RocketMQ's IndexFile and IndexHeader), big-endian:
//
//	0    8  store time of the first key, ms
//	8    8  store time of the last key
//	16   8  physical offset of the first key's record
//	24   8  physical offset of the last key's record
//	32   4  slots used
//	36   4  entries + 1: entry 0 is never used
//	40      slots, 4 bytes each: the slot's newest entry
//	        entries, 20 bytes each: key hash 4, physical offset 8, seconds since the first key 4,
//	        the entry before it in the slot 4
const (
	indexHeaderSize = 40
	slotSize        = 4
	entrySize       = 20
	defaultSlots    = 5_000_000
	defaultIndexMax = 20_000_000
)

// IndexHeader is an index file's header.
type IndexHeader struct {
	BeginTimestamp, EndTimestamp int64 // ms
	BeginPhyOffset, EndPhyOffset int64
	HashSlotCount, IndexCount    int32
}

func decodeIndexHeader(b []byte) (h IndexHeader, ok bool) {
	if len(b) < indexHeaderSize {
		return h, false
	}
	be := binary.BigEndian
	return IndexHeader{int64(be.Uint64(b)), int64(be.Uint64(b[8:])), int64(be.Uint64(b[16:])), int64(be.Uint64(b[24:])),
		int32(be.Uint32(b[32:])), int32(be.Uint32(b[36:]))}, true
}

// entries is how many entries the header speaks of.
func (h *IndexHeader) entries() int64 { return int64(max(h.IndexCount, 1)) - 1 }

// IndexEntry is one entry.
type IndexEntry struct {
	KeyHash   int32
	PhyOffset int64
	Seconds   int32 // since the file's first key
	Previous  int32 // the entry before it in its slot, 0 for none
}

func decodeEntry(b []byte) (e IndexEntry, ok bool) {
	if len(b) < entrySize {
		return e, false
	}
	be := binary.BigEndian
	return IndexEntry{int32(be.Uint32(b)), int64(be.Uint64(b[4:])), int32(be.Uint32(b[12:])), int32(be.Uint32(b[16:]))}, true
}

// IndexFile is one file of the key index.
type IndexFile struct {
	Path string // relative to the store's root
	Size int64
	IndexHeader
	Slots      int64 // hash slots; 0 when that can't be found out
	MaxEntries int64 // entry 0 included; 0 without Slots

	path string
	open bool // more may be in it than header and slots say
}

// entryAt is where entry i is.
func (f *IndexFile) entryAt(i int64) int64 {
	return indexHeaderSize + f.Slots*slotSize + i*entrySize
}

// slot is the slot of a hash (RocketMQ's IndexFile.putKey).
func (f *IndexFile) slot(hash int32) int64 { return int64(hash) % f.Slots }

// IndexFiles lists the index files, oldest first, with their headers.
func (s *Store) IndexFiles() ([]IndexFile, error) { return s.indexFiles(nil) }

func (s *Store) indexFiles(note func(Finding)) ([]IndexFile, error) {
	if note == nil {
		note = func(Finding) {}
	}
	dir := filepath.Join(s.Dir, indexDir)
	list, err := listDir(dir)
	if err != nil {
		return nil, err
	}
	var files []IndexFile
	for _, fi := range list {
		path := filepath.Join(dir, fi.Name())
		if fi.IsDir() || fi.Name() == "" || strings.Trim(fi.Name(), "0123456789") != "" {
			note(Finding{Kind: KindFileName, Notice: true, File: s.rel(path), Detail: "not an index file: the name is no number"})
			continue
		}
		f := IndexFile{Path: s.rel(path), Size: fi.Size(), path: path}
		if err := s.readIndexHeader(&f); errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	s.sizeIndex(files)
	for i := range files {
		f := &files[i]
		switch {
		case f.Size == 0:
			note(Finding{Kind: KindFileEmpty, File: f.Path, Detail: "0 bytes"})
		case f.Size < indexHeaderSize+slotSize+2*entrySize:
			note(Finding{Kind: KindFileSize, File: f.Path, Offset: f.Size, Detail: fmt.Sprintf("%d bytes, the header alone has %d", f.Size, indexHeaderSize)})
		case f.Slots > 0 && (f.Size-f.entryAt(0))%entrySize != 0:
			note(Finding{Kind: KindFileSize, File: f.Path, Offset: f.Size, Detail: fmt.Sprintf("%d bytes: not a header, %d slots and whole entries", f.Size, f.Slots)})
		}
	}
	return files, nil
}

func (s *Store) readIndexHeader(f *IndexFile) error {
	src, err := openSource(f.path)
	if err != nil {
		return err
	}
	defer src.Close()
	var b [indexHeaderSize]byte
	n, err := src.ReadAt(b[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("inspect: %w", err)
	}
	f.IndexHeader, _ = decodeIndexHeader(b[:n])
	return nil
}

// sizeIndex finds out the slot count, which no index file tells: given, that of RaftMQ's point, RocketMQ's default, or the one with which
// header, first and last entry and the last entry's slot agree. All files of a store have the same.
func (s *Store) sizeIndex(files []IndexFile) {
	slots := int64(s.opts.IndexSlots)
	if p := s.points.indexPoint; p != nil && slots == 0 {
		slots = p.slots
	}
	for i := 0; i < len(files) && slots == 0; i++ {
		f := &files[i]
		if f.Size == indexHeaderSize+defaultSlots*slotSize+defaultIndexMax*entrySize {
			slots = defaultSlots
			break
		}
		src, err := openSource(f.path)
		if err != nil {
			continue
		}
		slots = findSlots(src, &f.IndexHeader)
		_ = src.Close()
	}
	for i := range files {
		f := &files[i]
		if f.Slots = slots; slots > 0 && f.Size > f.entryAt(0) {
			f.MaxEntries = (f.Size - f.entryAt(0)) / entrySize
		}
	}
}

// findSlots tries every slot count with which the rest of the file is whole entries.
func findSlots(src source, h *IndexHeader) int64 {
	n := h.entries()
	size := src.Size()
	if n < 1 || (size-indexHeaderSize)%slotSize != 0 {
		return 0
	}
	w := newWindow(src)
	rest := (size - indexHeaderSize) / slotSize
	slots := rest % (entrySize / slotSize)
	if slots == 0 {
		slots = entrySize / slotSize
	}
	for ; slots < rest; slots += entrySize / slotSize {
		base := indexHeaderSize + slots*slotSize
		if base+(n+1)*entrySize > size {
			return 0
		}
		b, err := w.at(base+entrySize, entrySize)
		if err != nil {
			return 0
		}
		if e, ok := decodeEntry(b); !ok || e.PhyOffset != h.BeginPhyOffset || e.KeyHash < 0 || e.Previous != 0 {
			continue
		}
		var last [entrySize]byte
		if _, err := src.ReadAt(last[:], base+n*entrySize); err != nil {
			continue
		}
		e, _ := decodeEntry(last[:])
		if e.PhyOffset != h.EndPhyOffset || e.KeyHash < 0 || int64(e.Previous) >= n {
			continue
		}
		var slot [slotSize]byte
		if _, err := src.ReadAt(slot[:], indexHeaderSize+int64(e.KeyHash)%slots*slotSize); err != nil {
			continue
		}
		if int64(binary.BigEndian.Uint32(slot[:])) == n {
			return slots
		}
	}
	return 0
}

// IndexEntries visits the entries of a file that its header speaks of, from 1 on.
func (s *Store) IndexEntries(f *IndexFile, visit func(i int64, e IndexEntry) error) error {
	if f.Slots == 0 {
		return nil
	}
	src, err := openSource(f.path)
	if err != nil {
		return err
	}
	defer src.Close()
	w := newWindow(src)
	for i := int64(1); i <= f.entries(); i++ {
		b, err := w.at(f.entryAt(i), entrySize)
		if err != nil {
			return err
		}
		e, ok := decodeEntry(b)
		if !ok {
			return nil
		}
		if err := visit(i, e); err != nil {
			if errors.Is(err, ErrStop) {
				return nil
			}
			return err
		}
	}
	return nil
}

// IndexSlots visits the slots of a file that are in use.
func (s *Store) IndexSlots(f *IndexFile, visit func(slot int64, entry int32) error) error {
	src, err := openSource(f.path)
	if err != nil {
		return err
	}
	defer src.Close()
	return eachSlot(newWindow(src), f, func(slot int64, entry int32) error {
		if entry == 0 {
			return nil
		}
		return visit(slot, entry)
	})
}

func eachSlot(w *window, f *IndexFile, visit func(slot int64, entry int32) error) error {
	const stretch = 1 << 14
	for slot := int64(0); slot < f.Slots; {
		n := min(stretch, f.Slots-slot)
		b, err := w.at(indexHeaderSize+slot*slotSize, int(n*slotSize))
		if err != nil {
			return err
		}
		if len(b) < slotSize {
			return nil
		}
		for ; len(b) >= slotSize; b = b[slotSize:] {
			if err := visit(slot, int32(binary.BigEndian.Uint32(b))); err != nil {
				return err
			}
			slot++
		}
	}
	return nil
}
