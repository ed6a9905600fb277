package keyindex

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
	"slices"

	"raftmq/commitlog/mappedfile"
)

// The recovery point tells which entries are durable and where in the log they end. There are
// two files, written in turn, so that a torn write leaves the other one:
//
//	0   4  magic "KIPT"
//	4   4  version, 1
//	8   8  sequence; the whole point with the higher one counts
//	16  8  physical offset: all keys of records below it are entered
//	24  4  of the record at it, so many keys are entered too
//	28  4  slots of each file
//	32  4  entries of each file
//	36  4  files
//	40     for each file, the oldest first:
//	         0   8   name
//	         8   40  header
//	         48  4   CRC-32C of its entries
//	end 4  CRC-32C of all before
const (
	pointMagic     = 0x4b495054
	pointVersion   = 1
	pointHeadSize  = 40
	pointFileSize  = 8 + headerSize + 4
	pointCheckSize = 4
)

// point is a decoded recovery point.
type point struct {
	sequence       uint64
	next           position
	slots, entries int32
	files          []pointed
}

// pointed is what a point says of one file.
type pointed struct {
	name   int64
	header Header
	sum    uint32
}

func appendPoint(b []byte, p *point) []byte {
	start := len(b)
	b = binary.BigEndian.AppendUint32(b, pointMagic)
	b = binary.BigEndian.AppendUint32(b, pointVersion)
	b = binary.BigEndian.AppendUint64(b, p.sequence)
	b = binary.BigEndian.AppendUint64(b, uint64(p.next.phyOffset))
	b = binary.BigEndian.AppendUint32(b, uint32(p.next.keys))
	b = binary.BigEndian.AppendUint32(b, uint32(p.slots))
	b = binary.BigEndian.AppendUint32(b, uint32(p.entries))
	b = binary.BigEndian.AppendUint32(b, uint32(len(p.files)))
	for _, f := range p.files {
		b = binary.BigEndian.AppendUint64(b, uint64(f.name))
		b = append(b, make([]byte, headerSize)...)
		putHeader(b[len(b)-headerSize:], f.header)
		b = binary.BigEndian.AppendUint32(b, f.sum)
	}
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// decodePoint reads a point. What it accepts is in itself consistent: files in order, counts
// and offsets in range, all but the last file full.
func decodePoint(b []byte) (*point, error) {
	if len(b) < pointHeadSize+pointCheckSize {
		return nil, fmt.Errorf("%w: point of %d bytes", ErrDamaged, len(b))
	}
	body := b[:len(b)-pointCheckSize]
	if magic := binary.BigEndian.Uint32(b); magic != pointMagic {
		return nil, fmt.Errorf("%w: point with magic %#x", ErrDamaged, magic)
	}
	if version := binary.BigEndian.Uint32(b[4:]); version != pointVersion {
		return nil, fmt.Errorf("%w: point of version %d", ErrDamaged, version)
	}
	if got, want := crc32.Checksum(body, castagnoli), binary.BigEndian.Uint32(b[len(body):]); got != want {
		return nil, fmt.Errorf("%w: point with checksum %#x, says %#x", ErrDamaged, got, want)
	}
	p := &point{
		sequence: binary.BigEndian.Uint64(b[8:]),
		next:     position{int64(binary.BigEndian.Uint64(b[16:])), int32(binary.BigEndian.Uint32(b[24:]))},
		slots:    int32(binary.BigEndian.Uint32(b[28:])), entries: int32(binary.BigEndian.Uint32(b[32:])),
	}
	n := int64(binary.BigEndian.Uint32(b[36:]))
	rest := body[pointHeadSize:]
	if n*pointFileSize != int64(len(rest)) || p.next.phyOffset < 0 || p.next.keys < 0 || p.slots < 1 || p.entries < minEntries {
		return nil, fmt.Errorf("%w: point with %d files in %d bytes", ErrDamaged, n, len(rest))
	}
	p.files = make([]pointed, 0, n)
	before := pointed{name: -1}
	for ; len(rest) > 0; rest = rest[pointFileSize:] {
		f := pointed{
			name: int64(binary.BigEndian.Uint64(rest)), header: decodeHeader(rest[8:]),
			sum: binary.BigEndian.Uint32(rest[8+headerSize:]),
		}
		last, h := len(rest) == pointFileSize, f.header
		if f.name <= before.name || h.Count > p.entries || !last && h.Count != p.entries ||
			h.BeginPhyOffset < before.header.EndPhyOffset || h.EndPhyOffset < h.BeginPhyOffset || h.EndPhyOffset > p.next.phyOffset {
			return nil, fmt.Errorf("%w: point at %+v of files of %d entries with file %d %+v behind %d %+v",
				ErrDamaged, p.next, p.entries, f.name, h, before.name, before.header)
		}
		p.files = append(p.files, f)
		before = f
	}
	return p, nil
}

// pointFile is the pair of files on disk, and what the valid one says.
type pointFile struct {
	fs      mappedfile.FS
	path    string
	written point
	named   [2]bool // entry in the folder is durable
}

// read finds the newest whole point; ok is false without one.
func (pf *pointFile) read() (p *point, ok bool, err error) {
	for i := range uint64(2) {
		b, err := pf.fs.ReadFile(pf.name(i))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, false, fmt.Errorf("keyindex: %w", err)
		}
		q, err := decodePoint(b)
		// One in the other's place would be overwritten by the next one.
		if err == nil && q.sequence%2 == i && (p == nil || q.sequence > p.sequence) {
			p = q
		}
	}
	return p, p != nil, nil
}

func (pf *pointFile) name(sequence uint64) string {
	return fmt.Sprintf("%s.%d", pf.path, sequence%2)
}

// forget removes the point, which needs no space: until the next write there is none.
func (pf *pointFile) forget() error {
	for i := range uint64(2) {
		if err := pf.fs.Remove(pf.name(i)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		pf.named[i] = false
	}
	return pf.fs.SyncDir(filepath.Dir(pf.path))
}

// replace is write for a point that must not stay as it is, whether there is space or not.
func (pf *pointFile) replace(p point) error {
	err := pf.write(p)
	if errors.Is(err, mappedfile.ErrNoSpace) {
		err = pf.forget()
		p.sequence = pf.written.sequence
		pf.written = p
	}
	return err
}

// write stores p durably, with the next sequence. What it says must be durable already. After an
// error the point before is still there.
func (pf *pointFile) write(p point) error {
	p.sequence = pf.written.sequence + 1
	i := p.sequence % 2
	if err := pf.fs.WriteFile(pf.name(i), appendPoint(nil, &p)); err != nil {
		return fmt.Errorf("write %s: %w", pf.name(i), err)
	}
	if !pf.named[i] {
		if err := pf.fs.SyncDir(filepath.Dir(pf.path)); err != nil {
			return err
		}
		pf.named[i] = true
	}
	p.files = slices.Clone(p.files)
	pf.written = p
	return nil
}
