package commitlog

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"

	"raftmq/commitlog/mappedfile"
)

// ErrBadCopy: what a peer sent for a damaged range does not match the journal, or is not all of it. Nothing was changed.
var ErrBadCopy = errors.New("commitlog: a peer's bytes do not match")

// Sums tells the checksum (CRC-32C) of a whole sealed segment as the replicas have agreed on it; false when there is none yet.
type Sums func(from int64) (sum uint32, ok bool)

// Fetch copies the log bytes [from, to) of a peer to w, in order.
type Fetch func(from, to int64, w io.Writer) error

// Repair brings a range that is in quarantine back: a stretch at a time, bytes of a peer are gathered, checked against the journal, and against
// the segment's checksum where that is known, and only then written over the damaged ones, made durable and given to readers. What has turned
// out to be whole needs no peer. ErrBadCopy and what fetch returns leave the rest in quarantine; any other error is
// the device's. After a crash at any step a range is in quarantine again, or whole. One call at a time; the log goes on beside it.
func (l *Log) Repair(d Damage, sums Sums, fetch Fetch) error {
	pieces, err := l.pieces(d.From, d.To)
	if err != nil {
		return err
	}
	if len(pieces) == 0 { // trimmed meanwhile
		return l.release(d.From, d.To)
	}
	var failed error
	for len(pieces) > 0 {
		n := l.stretch(pieces)
		if err := l.repairStretch(pieces[:n], sums, fetch); err != nil {
			failed = errors.Join(failed, err)
			if isDevice(err) {
				break
			}
		}
		pieces = pieces[n:]
	}
	return failed
}

// stretch is how many pieces are repaired together: as many as are gathered in memory, or one.
func (l *Log) stretch(pieces []piece) int {
	n := 1
	for n < len(pieces) && pieces[n].from == pieces[n-1].to && pieces[n].to-pieces[0].from <= l.inMemory {
		n++
	}
	return n
}

func (l *Log) repairStretch(pieces []piece, sums Sums, fetch Fetch) error {
	from, to := pieces[0].from, pieces[len(pieces)-1].to
	var bad []*piece
	for i := range pieces {
		err := l.checkPiece(&pieces[i], sums)
		if err != nil && !isDamage(err) {
			return err // the device fails
		}
		if err != nil {
			bad = append(bad, &pieces[i])
		}
	}
	if len(bad) == 0 {
		return l.release(from, to)
	}
	err := l.repairBad(from, to, bad, sums, fetch)
	if err == nil || len(pieces) == 1 || isDevice(err) {
		return err
	}
	// The copy has not all of it, or is damaged too, somewhere else perhaps: what it has whole is taken.
	var failed error
	for _, p := range bad {
		if l.whole(p.from, p.to) == nil {
			continue // it was good
		}
		if err := l.repairBad(p.from, p.to, []*piece{p}, sums, fetch); err != nil {
			failed = errors.Join(failed, err)
			if isDevice(err) {
				break
			}
		}
	}
	return failed
}

// isDevice tells a failure of this node's device from one of the copy.
func isDevice(err error) bool {
	return errors.Is(err, mappedfile.ErrFault) || errors.Is(err, mappedfile.ErrPoisoned) || errors.Is(err, mappedfile.ErrClosed) || errors.Is(err, mappedfile.ErrNoSpace)
}

func (l *Log) repairBad(from, to int64, bad []*piece, sums Sums, fetch Fetch) error {
	staged, drop, err := l.stage(to - from)
	if err != nil {
		return err
	}
	return errors.Join(l.repairFrom(staged, from, to, bad, sums, fetch), drop())
}

// repairFrom repairs the bad ones of the pieces in [from, to).
func (l *Log) repairFrom(staged []byte, from, to int64, bad []*piece, sums Sums, fetch Fetch) error {
	w := &filler{b: staged}
	if err := fetch(from, to, w); err != nil {
		return err
	}
	if w.n != len(staged) {
		return fmt.Errorf("%w: it sent %d of the bytes [%d, %d)", ErrBadCopy, w.n, from, to)
	}
	var refused error
	kept := map[*piece]bool{} // in quarantine
	for _, p := range bad {
		b := staged[p.from-from : p.to-from]
		if err := l.checkCopy(b, p, sums); err != nil {
			refused = errors.Join(refused, fmt.Errorf("%w: %w", ErrBadCopy, err))
			kept[p] = true
			continue
		}
		if err := mappedfile.Guard(func() error { return l.log.Overwrite(b, p.from) }); err != nil {
			return fmt.Errorf("commitlog: repair: %w", err)
		}
		if err := l.checkPiece(p, sums); err != nil {
			return fmt.Errorf("commitlog: repaired bytes read back otherwise: %w", err)
		}
	}
	if _, err := l.Flush(0); err != nil {
		return fmt.Errorf("commitlog: repair: %w", err)
	}
	at := from
	for _, p := range bad {
		if kept[p] {
			refused = errors.Join(refused, l.releaseSome(at, p.from))
			at = p.to
		}
	}
	return errors.Join(refused, l.releaseSome(at, to))
}

func (l *Log) releaseSome(from, to int64) error {
	if from >= to {
		return nil
	}
	return l.release(from, to)
}

// filler is a buffer that takes no more than its length.
type filler struct {
	b []byte
	n int
}

// Write implements io.Writer.
func (f *filler) Write(p []byte) (int, error) {
	if len(p) > len(f.b)-f.n {
		return 0, fmt.Errorf("%w: it sent more than %d bytes", ErrBadCopy, len(f.b))
	}
	f.n += copy(f.b[f.n:], p)
	return len(p), nil
}

// stagedInMemory is the largest piece that is gathered in memory; a larger one, part of an installed range, goes through a file.
const stagedInMemory = 16 << 20

func (l *Log) stage(size int64) (b []byte, drop func() error, err error) {
	if size <= l.inMemory {
		return make([]byte, size), func() error { return nil }, nil
	}
	c := &l.cfg
	if err := c.FS.MkdirAll(c.QuarantineDir); err != nil {
		return nil, nil, fmt.Errorf("commitlog: repair: %w", err)
	}
	path := filepath.Join(c.QuarantineDir, "repair.tmp")
	_ = c.FS.Remove(path) // a crash left it
	h, err := c.FS.Create(path, size)
	if err != nil {
		return nil, nil, fmt.Errorf("commitlog: repair: %w", err)
	}
	drop = func() error { return errors.Join(h.Close(), c.FS.Remove(path)) }
	if err = h.Allocate(0, size); errors.Is(err, mappedfile.ErrUnsupported) {
		err = nil
	}
	if err == nil {
		b, err = h.Map(size, false)
	}
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("commitlog: repair: %w", err), drop())
	}
	return b, drop, nil
}

// checkPiece checks a piece as it stands in the log. A piece whose file has gone meanwhile is fine.
func (l *Log) checkPiece(p *piece, sums Sums) error {
	if p.from < l.log.MinOffset() {
		return nil
	}
	if p.record.kind == kindEntry {
		return l.checkBytes(&p.record)
	}
	if segment, want, ok := l.sumOf(p, sums); ok {
		got, err := l.checksum(0, segment, segment+l.cfg.SegmentSize)
		if err == nil && got != want {
			err = fmt.Errorf("%w: segment %d: checksum %#08x, the replicas have %#08x", errBytes, segment, got, want)
		}
		return err
	}
	end, _, err := l.walkRecords(p.from, p.to)
	if err == nil && end != p.to {
		err = fmt.Errorf("%w: the records of [%d, %d) end at %d", errBytes, p.from, p.to, end)
	}
	if err == nil && p.from == p.record.start && p.to == p.record.end {
		err = l.checkBytes(&p.record)
	}
	return err
}

// checkCopy checks a peer's bytes for a piece.
func (l *Log) checkCopy(b []byte, p *piece, sums Sums) error {
	if p.from == p.record.start && p.to == p.record.end {
		if got := crc32.Checksum(b, castagnoli); got != p.record.crc {
			return fmt.Errorf("%w: bytes [%d, %d): checksum %#08x, journal has %#08x", errBytes, p.from, p.to, got, p.record.crc)
		}
		return nil
	}
	if segment, want, ok := l.sumOf(p, sums); ok {
		sum, err := l.checksum(0, segment, p.from)
		if err != nil {
			return err
		}
		if sum, err = l.checksum(crc32.Update(sum, castagnoli, b), p.to, segment+l.cfg.SegmentSize); err != nil {
			return err
		}
		if sum != want {
			return fmt.Errorf("%w: with bytes [%d, %d) segment %d has checksum %#08x, the replicas have %#08x", errBytes, p.from, p.to, segment, sum, want)
		}
		return nil
	}
	for at := p.from; len(b) > 0; {
		n, err := l.itemAt(b, at)
		if err != nil {
			return err
		}
		at, b = at+int64(n), b[n:]
	}
	return nil
}

// sumOf is the agreed checksum of a piece's segment.
func (l *Log) sumOf(p *piece, sums Sums) (segment int64, want uint32, ok bool) {
	segment = p.from - p.from%l.cfg.SegmentSize
	if sums == nil || segment < l.log.MinOffset() {
		return segment, 0, false
	}
	want, ok = sums(segment)
	return segment, want, ok
}
