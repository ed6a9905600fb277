package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"
)

// indexPoint is the recovery point of RaftMQ's key index: which entries are durable, and up to where in the log. It stands
// in two files, indexpoint.0 and indexpoint.1, written in turn, big-endian:
//
//	0   4  magic "KIPT"
//	4   4  version, 1
//	8   8  sequence; the whole point with the higher one counts, in the file of its parity
//	16  8  physical offset: all keys of records below it are entered
//	24  4  of the record at it, so many keys are entered too
//	28  4  slots of each file
//	32  4  entries of each file
//	36  4  files
//	40     for each file, the oldest first: name 8, header 40, CRC-32C of its entries 4
//	end 4  CRC-32C of all before
type indexPoint struct {
	sequence       uint64
	phyOffset      int64
	slots, entries int64
	files          []pointedFile
}

type pointedFile struct {
	name   int64
	header IndexHeader
}

const (
	indexPointName  = "indexpoint"
	indexPointMagic = "KIPT"
	indexPointHead  = 40
	indexPointFile  = 8 + indexHeaderSize + 4
)

var errIndexPoint = errors.New("damaged index point")

func decodeIndexPoint(b []byte) (p indexPoint, err error) {
	be := binary.BigEndian
	if len(b) < indexPointHead+4 || (len(b)-indexPointHead-4)%indexPointFile != 0 {
		return p, fmt.Errorf("%w: %d bytes", errIndexPoint, len(b))
	}
	body := b[:len(b)-4]
	if want, got := be.Uint32(b[len(body):]), crc32.Checksum(body, castagnoli); string(b[:4]) != indexPointMagic || want != got {
		return p, fmt.Errorf("%w: magic %q, checksum stored %#08x, computed %#08x", errIndexPoint, b[:4], want, got)
	}
	if v := be.Uint32(b[4:]); v != 1 {
		return p, fmt.Errorf("%w: version %d is unknown", errIndexPoint, v)
	}
	p = indexPoint{sequence: be.Uint64(b[8:]), phyOffset: int64(be.Uint64(b[16:])), slots: int64(be.Uint32(b[28:])), entries: int64(be.Uint32(b[32:]))}
	for rest := body[indexPointHead:]; len(rest) > 0; rest = rest[indexPointFile:] {
		f := pointedFile{name: int64(be.Uint64(rest))}
		f.header, _ = decodeIndexHeader(rest[8:])
		p.files = append(p.files, f)
	}
	if n := int(be.Uint32(b[36:])); n != len(p.files) || p.phyOffset < 0 || p.slots < 1 || p.entries < 2 {
		return p, fmt.Errorf("%w: %d files of %d slots and %d entries", errIndexPoint, n, p.slots, p.entries)
	}
	return p, nil
}

// readIndexPoint reads the point that counts; nil with an error when neither file holds one: fs.ErrNotExist when there
// is no file.
func readIndexPoint(dir string) (*indexPoint, error) {
	var point *indexPoint
	var damage error
	for i := range uint64(2) {
		b, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%s.%d", indexPointName, i)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var p indexPoint
		if err == nil {
			p, err = decodeIndexPoint(b)
		}
		switch {
		case err != nil:
			damage = err
		case p.sequence%2 == i && (point == nil || p.sequence > point.sequence):
			point = &p
		}
	}
	switch {
	case point != nil:
		return point, nil
	case damage != nil:
		return nil, damage
	}
	return nil, fs.ErrNotExist
}

// indexFileName is an index file's name as a number.
func indexFileName(path string) (n int64) {
	_, _ = fmt.Sscan(filepath.Base(path), &n)
	return n
}
