package commitlog

import (
	"errors"
	"fmt"

	"raftmq/commitlog/mappedfile"
)

// Check verifies the entries from the one at or behind from on, until about max bytes are done or the published end is reached, and returns
// where to go on and what is damaged; what is in quarantine already is passed over. next == from: there is nothing more. An installed
// range of more than max bytes has one checksum for all of it and is passed over here; CheckSegment is for that. Errors
// that are ErrCorrupt are damage of the journal, others the device's.
func (l *Log) Check(from, max int64) (next int64, damages []Damage, err error) {
	l.published.Lock()
	end := l.published.pos
	l.published.Unlock()
	readable := l.log.MaxOffset() // less than the journal has, with a pool
	from = maxOf(from, l.log.MinOffset())
	next = from
	pos, err := l.journal.search(end, func(r *journalRecord) bool { return r.end > from })
	if err != nil {
		return next, nil, err
	}
	for done := int64(0); pos < end && done < max; pos += journalRecordSize {
		r, err := l.journal.read(pos)
		if errors.Is(err, mappedfile.ErrOutOfRange) && pos < l.journal.MinOffset() {
			continue // deleted meanwhile
		}
		if err != nil {
			return next, damages, l.journal.corrupt(pos, err)
		}
		if r.end > readable {
			break
		}
		if n := r.end - r.start; (n <= max || r.kind == kindEntry) && l.whole(r.start, r.end) == nil {
			done += n
			switch err := l.checkBytes(&r); {
			case err == nil:
			case errors.Is(err, mappedfile.ErrOutOfRange) && r.start < l.log.MinOffset(): // deleted, or the begin of it
			case isDamage(err):
				damages = append(damages, l.damage(r.start, r.end, r.index, err))
			default:
				return next, damages, fmt.Errorf("commitlog: log %s: %w", l.log.Path(r.start), err)
			}
		}
		next = r.end
	}
	return next, damages, nil
}

func maxOf(a, b int64) int64 {
	if a > b {
		return a
	}
	return b
}

// ChecksumFrom goes on from crc, a CRC-32C, with the published bytes [from, to); ErrQuarantined when some of them are damaged.
func (l *Log) ChecksumFrom(crc uint32, from, to int64) (uint32, error) {
	if err := l.whole(from, to); err != nil {
		return 0, err
	}
	return l.checksum(crc, from, to)
}

// Journalled tells that each byte of [from, to) is of an entry with a checksum of its own, and none came with an installation.
func (l *Log) Journalled(from, to int64) bool {
	pieces, err := l.pieces(from, to)
	if err != nil || len(pieces) == 0 || pieces[0].from > from || pieces[len(pieces)-1].to < to {
		return false
	}
	for i := range pieces {
		if pieces[i].record.kind != kindEntry {
			return false
		}
	}
	return true
}

// Sealed tells that the segment at from is full, published, and all there: it never changes again.
func (l *Log) Sealed(from int64) bool {
	return from%l.cfg.SegmentSize == 0 && from >= l.log.MinOffset() && from+l.cfg.SegmentSize <= l.log.MaxOffset()
}

// SegmentSum is the CRC-32C of a sealed segment as it stands on this node.
func (l *Log) SegmentSum(from int64) (uint32, error) {
	if !l.Sealed(from) {
		return 0, fmt.Errorf("%w: segment %d is not sealed, the log is [%d, %d)", mappedfile.ErrOutOfRange, from, l.log.MinOffset(), l.log.MaxOffset())
	}
	return l.Checksum(from, from+l.cfg.SegmentSize)
}

// DamageAt words damage of [from, to) that somebody has found by other means, for Quarantine.
func (l *Log) DamageAt(from, to int64, reason error) Damage { return l.damage(from, to, 0, reason) }
