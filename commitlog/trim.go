package commitlog

import (
	"errors"
	"fmt"

	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
)

// Trim moves the log's minimum to a segment boundary: readers see nothing below it from now on. Files stay
// until DeleteBefore removes them, so it touches no disk. A minimum at or below the present one
// changes nothing. ErrTrim depends on the entries only (Deterministic-Apply).
func (l *Log) Trim(minOffset int64) error {
	switch {
	case l.failed != nil:
		return l.failed
	case minOffset < 0 || minOffset%l.cfg.SegmentSize != 0:
		return fmt.Errorf("%w: %d is no multiple of the segment size %d", ErrTrim, minOffset, l.cfg.SegmentSize)
	case minOffset > lastSegment(l.pos, l.cfg.SegmentSize):
		return fmt.Errorf("%w: %d, the last segment begins at %d", ErrTrim, minOffset, lastSegment(l.pos, l.cfg.SegmentSize))
	}
	l.trim(max(l.trimmed, minOffset))
	return nil
}

func (l *Log) trim(minOffset int64) {
	l.trimmed = minOffset
	l.hidden.Store(minOffset)
}

// lastSegment is where the segment of the byte before end begins: the one that is never removed.
func lastSegment(end, size int64) int64 { return max(end-1, 0) / size * size }

// DeleteBefore removes whole segments that end at or before off and lie below the recovery point,
// and the journal files that name nothing else. Views on them stay valid. It returns how many
// segments went.
func (l *Log) DeleteBefore(off int64) (int, error) {
	l.point.Lock()
	defer l.point.Unlock()
	if l.closed.Load() {
		return 0, ErrClosed
	}
	p := l.point.Point
	removed, err := l.log.DeleteBefore(min(off, p.LogEnd))
	if removed == 0 || err != nil {
		return removed, err
	}
	min := l.log.MinOffset()
	if err := l.forgetDamaged(min); err != nil {
		return removed, err
	}
	// The record right below the recovery point stays: Open compares the two.
	pos, err := l.journal.search(p.JournalEnd-journalRecordSize, func(r *journalRecord) bool { return r.end > min })
	if err == nil {
		_, err = l.journal.DeleteBefore(pos)
	}
	return removed, err
}

// Hanged is how many removed segments are still mapped, because somebody has views on them: their space comes back
// with the last view.
func (l *Log) Hanged() int { return l.log.Hanged() }

// Room is how many bytes can be appended without asking the disk for more, as far as was made ready ahead.
func (l *Log) Room() int64 { return l.log.Room() }

// NewestBefore is a bound for the store timestamps of all records below a segment boundary within the log, in
// ms: no record there is newer, and the newest is that old but for what one entry lasted. It
// reads a few records of the journal and one of the log, not the segment.
func (l *Log) NewestBefore(boundary int64) (millis int64, err error) {
	l.published.Lock()
	end := l.published.pos
	l.published.Unlock()
	// Store timestamps never decrease along the log, so the first record behind the boundary is a bound.
	millis, err = l.storeTimeAt(boundary)
	if err != nil {
		return 0, err
	}
	// A tighter one, when nothing was stored for long between the two segments: the entry before the one that crosses.
	pos, err := l.journal.search(end, func(r *journalRecord) bool { return r.end > boundary })
	if err != nil || pos >= end || pos <= l.journal.MinOffset() {
		return millis, err
	}
	crossing, err := l.journal.read(pos)
	if err != nil {
		return 0, l.journal.corrupt(pos, err)
	}
	before, err := l.journal.read(pos - journalRecordSize)
	if errors.Is(err, mappedfile.ErrOutOfRange) {
		return millis, nil // deleted just now
	}
	if err != nil {
		return 0, l.journal.corrupt(pos-journalRecordSize, err)
	}
	if blank, err := l.blankAt(crossing.start); crossing.start < boundary && (err != nil || !blank) {
		return millis, err // the crossing entry has records below the boundary
	}
	return min(millis, before.lastStoreTimestamp), nil
}

// StoreTimestampUpTo is the store timestamp of the last record of the newest entry that ends at or before off, ms; 0 when there is
// none.
func (l *Log) StoreTimestampUpTo(off int64) (millis int64, err error) {
	l.published.Lock()
	end := l.published.pos
	l.published.Unlock()
	pos, err := l.journal.search(end, func(r *journalRecord) bool { return r.end > off })
	if err != nil || pos <= l.journal.MinOffset() {
		return 0, err
	}
	r, err := l.journal.read(pos - journalRecordSize)
	if errors.Is(err, mappedfile.ErrOutOfRange) {
		return 0, nil // deleted just now
	}
	if err != nil {
		return 0, l.journal.corrupt(pos-journalRecordSize, err)
	}
	return r.lastStoreTimestamp, nil
}

// SegmentByTime is the start of the first segment that has a record stored at or after millis, the last segment's when all are older
// (MappedFileQueue.getMappedFileByTime). RocketMQ takes the file's modification time, which differs from node to
// node; here it is the journal's, so all nodes give one answer.
func (l *Log) SegmentByTime(millis int64) (from int64, err error) {
	l.published.Lock()
	end := l.published.tail
	l.published.Unlock()
	pos, err := l.journal.search(end.pos, func(r *journalRecord) bool { return r.lastStoreTimestamp >= millis })
	if err != nil {
		return 0, err
	}
	off := end.end - 1
	if pos < end.pos {
		r, err := l.journal.read(pos)
		if err != nil {
			return 0, l.journal.corrupt(pos, err)
		}
		off = r.start
		// A filler at its begin belongs to the segment before, and is no record.
		if blank, err := l.blankAt(off); err == nil && blank {
			off = (off/l.cfg.SegmentSize + 1) * l.cfg.SegmentSize
		}
	}
	off = max(off, l.MinOffset(), 0)
	return off - off%l.cfg.SegmentSize, nil
}

// storeTimeAt is the store timestamp of the record that starts at off.
func (l *Log) storeTimeAt(off int64) (millis int64, err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	v, err := l.log.View(off, int(l.cfg.SegmentSize))
	if err != nil {
		return 0, err
	}
	defer v.Release()
	if _, err := record.Check(v.Bytes, false); err != nil {
		return 0, fmt.Errorf("commitlog: record at %d: %w", off, err)
	}
	return record.View(v.Bytes).StoreTimestamp(), nil
}

// blankAt tells whether a filler starts at off.
func (l *Log) blankAt(off int64) (blank bool, err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	v, err := l.log.View(off, record.BlankMinSize)
	if err != nil {
		return false, err
	}
	defer v.Release()
	return len(v.Bytes) == record.BlankMinSize && record.View(v.Bytes).Magic() == record.MagicBlank, nil
}
