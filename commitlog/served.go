package commitlog

import (
	"errors"
	"fmt"
	"sync"

	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
)

// longRecord is from how many bytes on an installed range is checked by the messages in it instead of as a whole.
const longRecord = 8 << 20

// CheckServed verifies what a peer is about to get, the published bytes [from, to), and little more: entries that have bytes there by
// their journal records; of a long range that an installation brought, which has one record for all of it, the messages by their own
// lengths, offsets and checksums. What is in quarantine already is ErrQuarantined, fresh
// damage a DamageError, which is remembered (Suspect). Any goroutine.
func (l *Log) CheckServed(from, to int64) error {
	if err := l.whole(from, to); err != nil {
		return err
	}
	l.published.Lock()
	end := l.published.pos
	l.published.Unlock()
	pos, err := l.journal.search(end, func(r *journalRecord) bool { return r.end > from })
	if err != nil {
		return err
	}
	var damages []Damage
	for ; pos < end; pos += journalRecordSize {
		r, err := l.journal.read(pos)
		if errors.Is(err, mappedfile.ErrOutOfRange) && pos < l.journal.MinOffset() {
			continue // deleted meanwhile
		}
		if err != nil {
			return l.report(damages, nil, l.journal.corrupt(pos, err))
		}
		if r.start >= to {
			break
		}
		low, high := r.start, r.end
		if r.start < l.FileMin() || r.kind == kindInstall && r.end-r.start > l.served.long { // its begin is deleted, or it is long
			low, high = max(from, r.start, l.FileMin()), min(to, r.end)
			err = l.checkMessages(low, high, &r)
		} else {
			err = l.checkBytes(&r)
		}
		switch {
		case err == nil:
		case errors.Is(err, mappedfile.ErrOutOfRange) && low < l.FileMin(): // deleted meanwhile
		case isDamage(err):
			damages = merge(damages, l.damage(low, high, r.index, err))
		default:
			return l.report(damages, nil, fmt.Errorf("commitlog: log %s: %w", l.log.Path(low), err))
		}
	}
	return l.report(damages, nil, nil)
}

// boundaries remember where messages begin, one place a segment, so that a peer that reads on need not be followed from the
// segment's begin each time. They are hints: what begins there is looked at all the same.
type boundaries struct {
	long int64 // from how many bytes on a range is long (longRecord)
	mu   sync.Mutex
	at   map[int64]int64 // segment → begin of a message; guarded by mu
}

const keptBoundaries = 16

func (b *boundaries) get(segment int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.at[segment]
}

func (b *boundaries) put(segment, at int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.at == nil || len(b.at) >= keptBoundaries {
		b.at = map[int64]int64{}
	}
	b.at[segment] = at
}

// checkMessages verifies the messages that have bytes in [from, to), a part of what r names.
func (l *Log) checkMessages(from, to int64, r *journalRecord) error {
	size := l.cfg.SegmentSize
	for from < to {
		segment := from - from%size
		end := min(segment+size, to)
		if err := l.checkSegment(max(segment, r.start, l.log.MinOffset()), from, end); err != nil {
			return err
		}
		from = end
	}
	return nil
}

// checkSegment follows the messages of one segment from begin, where one begins, and verifies those in [from, to).
func (l *Log) checkSegment(begin, from, to int64) (err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	size := l.cfg.SegmentSize
	segment := begin - begin%size
	if hint := l.served.get(segment); hint > begin && hint <= from {
		begin = hint
	}
	v, err := l.log.View(begin, int(size))
	if err != nil {
		return err
	}
	defer v.Release()
	at, last := begin, begin
	for b := v.Bytes; at < to; b = v.Bytes[at-begin:] {
		n, err := record.Check(b, false)
		inside := err == nil && at+int64(n) > from
		if inside {
			_, err = record.Check(b, true)
		}
		switch {
		case errors.Is(err, record.ErrBlank) && at+int64(n) == segment+size:
		case err != nil:
			return fmt.Errorf("%w: message at %d: %w", errBytes, at, err)
		case record.View(b).PhyOffset() != at:
			return fmt.Errorf("%w: message at %d says that it is at %d", errBytes, at, record.View(b).PhyOffset())
		}
		last = at
		at += int64(n)
	}
	l.served.put(segment, last)
	return nil
}
