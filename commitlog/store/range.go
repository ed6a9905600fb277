package store

import (
	"errors"
	"fmt"
	"hash/crc32"

	"raftmq/commitlog"
	"raftmq/commitlog/mappedfile"
)

// Errors of LogBytes and LogSum.
var (
	// ErrRange: the range is not, or no longer, in this node's log.
	ErrRange = mappedfile.ErrOutOfRange
	// ErrDamaged: bytes of the range are damaged on this node; it says which.
	ErrDamaged = errors.New("store: damaged log bytes")
	// ErrUnsummed: the scrub has not come to the segment yet; ask later.
	ErrUnsummed = errors.New("store: the scrub has not read this segment yet")
)

// LogBytes are raw log bytes in counted views: Release them.
type LogBytes struct {
	Bufs    [][]byte // in order, one a segment
	Len     int
	CRC     uint32 // CRC-32C of all of them
	release []func()
}

// Release gives the views back.
func (b *LogBytes) Release() {
	for _, f := range b.release {
		f()
	}
	b.release = nil
}

// LogBytes returns the log bytes from off on, max of them or up to the log's end, for a peer: verified against what was applied
// (ErrDamaged), and without a copy. Trimmed bytes are served as long as their files are there. An offset outside of the log is
// ErrRange; at its very end there are no bytes.
func (s *Store) LogBytes(off int64, max int) (b LogBytes, err error) {
	if err := s.alive(); err != nil {
		return b, err
	}
	low, end := s.log.FileMin(), s.log.MaxOffset()
	if off < low || off > end || max < 0 {
		return b, fmt.Errorf("%w: %d, the log is [%d, %d)", ErrRange, off, low, end)
	}
	to := min(off+int64(max), end)
	if off == to {
		return b, nil
	}
	defer func() {
		if err != nil {
			b.Release()
			s.quarantine(err)
			b, err = LogBytes{}, damagedOr(err)
		}
	}()
	for at := off; at < to; at = off + int64(b.Len) {
		bytes, release, err := s.ReadLog(at, int(to-at))
		if err != nil {
			return b, err
		}
		b.Bufs, b.release, b.Len = append(b.Bufs, bytes), append(b.release, release), b.Len+len(bytes)
	}
	// The views are held: what is verified now is what will be sent, but for what the disk may yet do to it.
	if err := s.log.CheckServed(off, to); err != nil {
		return b, err
	}
	b.CRC, err = checksumOf(b.Bufs)
	return b, err
}

func checksumOf(bufs [][]byte) (sum uint32, err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	for _, b := range bufs {
		sum = crc32.Update(sum, castagnoli, b)
	}
	return sum, nil
}

// LogSum is commitlog.Log.Sum: a CRC-32C over log bytes [from, to) as they were applied, mostly without reading them.
func (s *Store) LogSum(from, to int64) (uint32, error) {
	if err := s.alive(); err != nil {
		return 0, err
	}
	sum, err := s.log.Sum(from, to)
	return sum, damagedOr(err)
}

// SegmentSum is LogSum of a sealed segment for whoever has time. Of one that came with an installation it is what the scrub has read, as reading it all at once would
// not be slow: ErrUnsummed until the scrub has been there.
func (s *Store) SegmentSum(from int64) (uint32, error) {
	if err := s.alive(); err != nil {
		return 0, err
	}
	to := from + s.cfg.SegmentSize
	if s.cfg.ScrubRate > 0 && s.log.Sealed(from) && !s.log.Journalled(from, to) {
		if sum, ok := s.scrubber.sumOf(from); ok {
			return sum, nil
		}
		return 0, fmt.Errorf("%w: segment %d", ErrUnsummed, from)
	}
	return s.LogSum(from, to)
}

// AppliedFrom is where the part of the log begins whose sums cost no reading of it.
func (s *Store) AppliedFrom() (int64, error) {
	from, err := s.log.AppliedFrom()
	return from, damagedOr(err)
}

func damagedOr(err error) error {
	if errors.Is(err, commitlog.ErrCorrupt) || errors.Is(err, commitlog.ErrQuarantined) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)
