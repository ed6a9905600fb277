package consumequeue

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

// The point file has two slots on different pages, written in turn, so that a torn write
// leaves the other one:
//
//	0   4  magic "CQPT"
//	4   4  version, 1
//	8   8  sequence; the valid slot with the higher one counts
//	16  8  physical offset
//	24  8  the log's first byte
//	32  8  units
//	40  8  firsts
//	48  8  queues
//	56  4  CRC-32C of the 56 bytes before
const (
	pointMagic    = 0x43515054
	pointVersion  = 1
	pointSlotSize = 4096
	pointSize     = 60
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// PointFile stores the set's recovery point.
type PointFile struct {
	f        *os.File
	sequence uint64
}

// OpenPointFile opens or creates the file and reads the newest whole point; ok is false when
// there is none.
func OpenPointFile(path string) (pf *PointFile, p Point, ok bool, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, p, false, fmt.Errorf("consumequeue: %w", err)
	}
	pf = &PointFile{f: f}
	var b [pointSize]byte
	for slot := range int64(2) {
		_, err := f.ReadAt(b[:], slot*pointSlotSize)
		if errors.Is(err, io.EOF) {
			continue
		}
		if err != nil {
			f.Close()
			return nil, p, false, fmt.Errorf("consumequeue: %w", err)
		}
		if sequence, q, valid := decodePoint(b[:]); valid && sequence >= pf.sequence {
			pf.sequence, p, ok = sequence, q, true
		}
	}
	if ok {
		return pf, p, true, nil
	}
	// The name must not vanish with the first point in it.
	if err := syncDir(filepath.Dir(path)); err != nil {
		f.Close()
		return nil, p, false, err
	}
	return pf, p, false, nil
}

// Write stores p durably. What it says must be durable already.
func (pf *PointFile) Write(p Point) error {
	pf.sequence++
	var b [pointSize]byte
	at := int64(pf.sequence%2) * pointSlotSize
	if _, err := pf.f.WriteAt(appendPoint(b[:0], pf.sequence, p), at); err != nil {
		return fmt.Errorf("consumequeue: %w", err)
	}
	if err := pf.f.Sync(); err != nil {
		return fmt.Errorf("consumequeue: sync %s: %w", pf.f.Name(), err)
	}
	return nil
}

// Close closes the file.
func (pf *PointFile) Close() error { return pf.f.Close() }

func appendPoint(b []byte, sequence uint64, p Point) []byte {
	start := len(b)
	b = binary.BigEndian.AppendUint32(b, pointMagic)
	b = binary.BigEndian.AppendUint32(b, pointVersion)
	b = binary.BigEndian.AppendUint64(b, sequence)
	b = binary.BigEndian.AppendUint64(b, uint64(p.PhyOffset))
	b = binary.BigEndian.AppendUint64(b, uint64(p.Begin))
	b = binary.BigEndian.AppendUint64(b, uint64(p.Units))
	b = binary.BigEndian.AppendUint64(b, uint64(p.Firsts))
	b = binary.BigEndian.AppendUint64(b, uint64(p.Queues))
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

func decodePoint(b []byte) (sequence uint64, p Point, ok bool) {
	if len(b) < pointSize || binary.BigEndian.Uint32(b) != pointMagic ||
		binary.BigEndian.Uint32(b[4:]) != pointVersion ||
		binary.BigEndian.Uint32(b[56:]) != crc32.Checksum(b[:56], castagnoli) {
		return 0, p, false
	}
	for i, field := range []*int64{&p.PhyOffset, &p.Begin, &p.Units, &p.Firsts, &p.Queues} {
		*field = int64(binary.BigEndian.Uint64(b[16+8*i:]))
		if *field < 0 {
			return 0, Point{}, false
		}
	}
	return binary.BigEndian.Uint64(b[8:]), p, true
}
