package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"path/filepath"
)

// Layout of the recovery point's file, big-endian, 64 bytes:
//
//	0   4  magic "RMQP"
//	4   2  version, 1
//	6   2  flags: 1 reset under way
//	8   8  raft index
//	16  8  raft term
//	24  8  log end
//	32  8  journal end
//	40  8  log base: the log has no bytes below it (0 unless it was installed from a peer)
//	48  12 zero
//	60  4  CRC-32C of the 60 bytes before
const (
	pointName    = "recovery-point"
	pointSize    = 64
	pointMagic   = "RMQP"
	pointVersion = 1
	flagReset    = 1
)

// Point is the recovery point: everything up to RaftIndex is durable in log and journal.
type Point struct {
	RaftIndex, RaftTerm uint64
	LogEnd, JournalEnd  int64
	Base                int64
	resetting           bool // the log is to be emptied and to start at Base
}

func appendPoint(dst []byte, p Point) []byte {
	be := binary.BigEndian
	start := len(dst)
	dst = append(dst, pointMagic...)
	dst = be.AppendUint16(dst, pointVersion)
	var flags uint16
	if p.resetting {
		flags = flagReset
	}
	dst = be.AppendUint16(dst, flags)
	dst = be.AppendUint64(dst, p.RaftIndex)
	dst = be.AppendUint64(dst, p.RaftTerm)
	dst = be.AppendUint64(dst, uint64(p.LogEnd))
	dst = be.AppendUint64(dst, uint64(p.JournalEnd))
	dst = be.AppendUint64(dst, uint64(p.Base))
	dst = append(dst, make([]byte, 12)...)
	return be.AppendUint32(dst, crc32.Checksum(dst[start:], castagnoli))
}

var errPoint = errors.New("damaged recovery point")

func decodePoint(b []byte) (p Point, err error) {
	be := binary.BigEndian
	if len(b) != pointSize {
		return p, fmt.Errorf("%w: %d bytes, must be %d", errPoint, len(b), pointSize)
	}
	if want, got := be.Uint32(b[60:]), crc32.Checksum(b[:60], castagnoli); string(b[:4]) != pointMagic || want != got {
		return p, fmt.Errorf("%w: magic %q, checksum %#08x, computed %#08x", errPoint, b[:4], want, got)
	}
	flags := be.Uint16(b[6:])
	if v := be.Uint16(b[4:]); v != pointVersion || flags&^flagReset != 0 || [12]byte(b[48:60]) != [12]byte{} {
		return p, fmt.Errorf("%w: recovery point of version %d, flags %#x, this program reads version %d", ErrVersion, v, flags, pointVersion)
	}
	p = Point{
		RaftIndex: be.Uint64(b[8:]), RaftTerm: be.Uint64(b[16:]),
		LogEnd: int64(be.Uint64(b[24:])), JournalEnd: int64(be.Uint64(b[32:])), Base: int64(be.Uint64(b[40:])),
		resetting: flags&flagReset != 0,
	}
	if p.Base < 0 || p.LogEnd < p.Base || p.JournalEnd < 0 || p.JournalEnd%journalRecordSize != 0 {
		return Point{}, fmt.Errorf("%w: base %d, log end %d, journal end %d", errPoint, p.Base, p.LogEnd, p.JournalEnd)
	}
	return p, nil
}

// readPoint returns the recovery point; fs.ErrNotExist when there is none.
func readPoint(c *Config) (Point, error) {
	b, err := c.FS.ReadFile(c.pointPath())
	if errors.Is(err, fs.ErrNotExist) {
		return Point{}, err
	}
	if err != nil {
		return Point{}, fmt.Errorf("commitlog: recovery point: %w", err)
	}
	p, err := decodePoint(b)
	if errors.Is(err, ErrVersion) {
		return Point{}, fmt.Errorf("%s: %w", c.pointPath(), err)
	}
	if err != nil {
		return Point{}, fmt.Errorf("%w: %s: %w", ErrCorrupt, c.pointPath(), err)
	}
	return p, nil
}

// writePoint replaces the file by one that is whole and durable, or leaves the old one.
func writePoint(c *Config, p Point) error {
	path := c.pointPath()
	tmp := path + ".tmp"
	if err := c.FS.WriteFile(tmp, appendPoint(nil, p)); err != nil {
		return fmt.Errorf("commitlog: recovery point: %w", err)
	}
	if err := c.FS.Rename(tmp, path); err != nil {
		return fmt.Errorf("commitlog: recovery point: %w", err)
	}
	if err := c.FS.SyncDir(filepath.Dir(path)); err != nil {
		return fmt.Errorf("commitlog: recovery point: %w", err)
	}
	return nil
}

// RecoveryPoint is the point as it is on disk.
func (l *Log) RecoveryPoint() Point {
	l.point.Lock()
	defer l.point.Unlock()
	return l.point.Point
}

// SetRecoveryPoint makes everything that is published durable and stores how far that goes. The Raft
// log may drop what is at or below the returned index (Flush-Before-Truncate).
func (l *Log) SetRecoveryPoint() (Point, error) {
	l.point.Lock()
	defer l.point.Unlock()
	if l.closed.Load() {
		return l.point.Point, ErrClosed
	}
	return l.setPointLocked()
}

func (l *Log) setPointLocked() (Point, error) {
	// What is published now is what the flush below covers.
	l.published.Lock()
	t := l.published.tail
	l.published.Unlock()
	if _, err := l.Flush(0); err != nil {
		return l.point.Point, err
	}
	p := Point{RaftIndex: t.index, RaftTerm: t.term, LogEnd: t.end, JournalEnd: t.pos, Base: l.point.Base}
	if p == l.point.Point {
		return p, nil
	}
	if l.cfg.BeforePoint != nil {
		if err := l.cfg.BeforePoint(); err != nil {
			return l.point.Point, err
		}
	}
	if err := writePoint(&l.cfg, p); err != nil {
		return l.point.Point, err
	}
	l.point.Point = p
	return p, nil
}
