package commitlog

import (
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"sort"

	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
)

// The recovery point and the journal can be lost or damaged like any file. They are derived again from what is left, with the
// help of the newest snapshot: what it covers was durable before it was taken (Flush-Before-Truncate), and what is behind it
// is in the Raft log, so its end takes the recovery point's place.
//
// A lost point with a whole journal: the journal record that ends at the snapshot's log end tells the rest.
//
// A lost or damaged journal: the bytes up to the snapshot's end are verified record by record, as an installation from a
// peer is, and get one journal record of that kind. What is behind is copied away and comes again from the Raft log.

// floor is the newest snapshot's position. why is told when nobody can say.
func (l *Log) floor(why error) (Position, error) {
	if l.cfg.Snapshot == nil {
		return Position{}, why
	}
	f, err := l.cfg.Snapshot()
	if err != nil {
		return f, fmt.Errorf("%w; and the newest snapshot can't be read: %w", why, err)
	}
	return f, nil
}

// derivePoint finds the recovery point at f in a whole journal. why tells what makes the journal unfit.
func (l *Log) derivePoint(f Position) (p Point, why, err error) {
	first, end := l.journal.MinOffset(), l.journal.MaxOffset()
	// What can't be read counts as behind: right for what was never written, and the check below finds the rest.
	n := sort.Search(int((end-first)/journalRecordSize), func(i int) bool {
		r, e := l.journal.read(first + int64(i)*journalRecordSize)
		if e != nil && !isDamage(e) {
			err = l.journal.corrupt(first+int64(i)*journalRecordSize, e)
		}
		return e != nil || r.end > f.LogEnd
	})
	if err != nil {
		return p, nil, err
	}
	pos := first + int64(n)*journalRecordSize
	p = Point{RaftIndex: f.RaftIndex, RaftTerm: f.RaftTerm, LogEnd: f.LogEnd, JournalEnd: pos}
	var before tail
	if pos > first {
		r, err := l.journal.read(pos - journalRecordSize)
		if err != nil {
			err = l.journal.corrupt(pos-journalRecordSize, err)
			return p, asDamage(err), notDamage(err)
		}
		before = tail{index: r.index, end: r.end}
	}
	if before.end != f.LogEnd || before.index > f.RaftIndex {
		return p, fmt.Errorf("%w: the journal has no entry that ends at %d, where the snapshot of index %d ends", ErrCorrupt, f.LogEnd, f.RaftIndex), nil
	}
	if first == 0 && pos > 0 {
		// Files of the journal only go together with segments, so this is the log's first record.
		r, err := l.journal.read(0)
		if err != nil {
			err = l.journal.corrupt(0, err)
			return p, asDamage(err), notDamage(err)
		}
		if r.start > l.log.MinOffset() {
			p.Base = r.start
		}
	}
	return p, nil, nil
}

// rebuildJournal gives the bytes up to f one journal record, and stores the recovery point. p is the point as far as it is known.
// Nothing is changed before the bytes are verified.
func (l *Log) rebuildJournal(p Point, f Position, why error) (Point, error) {
	l.logger.Warn("building the journal again from log and snapshot", "reason", why, "snapshot-index", f.RaftIndex, "snapshot-log-end", f.LogEnd)
	next := Point{RaftIndex: f.RaftIndex, RaftTerm: f.RaftTerm, LogEnd: f.LogEnd}
	low, end := l.log.MinOffset(), l.log.MaxOffset()
	if l.log.Files() == 0 {
		low, end = f.LogEnd, f.LogEnd
		if p.LogEnd > p.Base {
			return p, fmt.Errorf("%w; and %s has no segments", why, l.cfg.Dir)
		}
	}
	if end < f.LogEnd {
		return p, fmt.Errorf("%w; and the log ends at %d, below the newest snapshot's %d", why, end, f.LogEnd)
	}
	var crc uint32
	base := f.LogEnd // all of it comes again
	if low < f.LogEnd {
		var err error
		if base, err = l.findBase(max(low, p.Base)); err != nil {
			return p, fmt.Errorf("%w; and the log has no first record: %w", why, err)
		}
		to := int64(0)
		if to, crc, err = l.walkRecords(base, f.LogEnd); err != nil || to != f.LogEnd {
			d := l.damage(to, f.LogEnd, 0, errors.Join(err, fmt.Errorf("%w: the records end at %d, the newest snapshot at %d", errBytes, to, f.LogEnd)))
			return p, errors.Join(why, &DamageError{Damages: []Damage{d}})
		}
	}
	if base > low {
		next.Base = base
	}
	if err := l.keepBehind(f.LogEnd); err != nil {
		return p, err
	}
	if err := l.newJournal(); err != nil {
		return p, err
	}
	if low > f.LogEnd {
		if err := l.log.Reset(base); err != nil {
			return p, fmt.Errorf("commitlog: %w", err)
		}
	}
	if base < f.LogEnd {
		err := l.writeJournal(&journalRecord{
			kind: kindInstall, index: f.RaftIndex, term: f.RaftTerm, start: base, end: f.LogEnd, lastStoreTimestamp: f.LastStoreTimestamp, crc: crc,
		})
		if err != nil {
			return p, fmt.Errorf("commitlog: %w", err)
		}
		l.journal.Commit(journalRecordSize)
		next.JournalEnd = journalRecordSize
		if _, err := l.journal.Flush(0); err != nil {
			return p, fmt.Errorf("commitlog: %w", err)
		}
	}
	return next, writePoint(&l.cfg, next)
}

// findBase is where the first record at or behind low stands: low itself, unless the log was installed from the middle of a segment
// on and nobody knows any more from where.
func (l *Log) findBase(low int64) (base int64, err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	v, err := l.log.View(low, int(l.cfg.SegmentSize))
	if err != nil {
		return 0, err
	}
	defer v.Release()
	at := 0
	for at < len(v.Bytes) && v.Bytes[at] == 0 {
		at++
	}
	// A record begins with its size, whose first bytes are zero.
	for start := max(0, at-3); start <= at && start < len(v.Bytes); start++ {
		if n, err := l.itemAt(v.Bytes[start:], low+int64(start)); err == nil && n > 0 {
			return low + int64(start), nil
		}
	}
	return 0, fmt.Errorf("%w: no record begins at %d, the first byte that is not zero", errBytes, low+int64(at))
}

// itemAt is the size of the record or filler at off, whose bytes b begins with.
func (l *Log) itemAt(b []byte, off int64) (int, error) {
	n, err := record.Check(b, true)
	room := l.cfg.SegmentSize - off%l.cfg.SegmentSize
	switch {
	case errors.Is(err, record.ErrBlank) && int64(n) == room:
		return n, nil
	case err != nil:
		return 0, fmt.Errorf("%w: at %d: %w", errBytes, off, err)
	case record.View(b).PhyOffset() != off || int64(n)+record.BlankMinSize > room:
		return 0, fmt.Errorf("%w: the record at %d names offset %d and has %d bytes", errBytes, off, record.View(b).PhyOffset(), n)
	}
	return n, nil
}

// walkRecords goes from record to record, as far as they are whole and not behind to, and returns where that is and the checksum of
// what it passed.
func (l *Log) walkRecords(from, to int64) (end int64, crc uint32, err error) {
	for from < to {
		n, sum, err := l.walkSegment(from, to, crc)
		if err != nil {
			return from + n, sum, err
		}
		if n == 0 {
			break
		}
		from, crc = from+n, sum
	}
	return from, crc, nil
}

func (l *Log) walkSegment(from, to int64, crc uint32) (done int64, sum uint32, err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	v, err := l.log.View(from, int(min(to-from, l.cfg.SegmentSize)))
	if err != nil {
		return 0, crc, err
	}
	defer v.Release()
	for b := v.Bytes; len(b) > 0; {
		n, err := l.itemAt(b, from+done)
		if err != nil {
			return done, crc, err
		}
		crc = crc32.Update(crc, castagnoli, b[:n])
		done += int64(n)
		b = b[n:]
	}
	return done, crc, nil
}

// keepBehind copies the records behind off to the quarantine: the Raft log brings them again, so this is for the case that it
// can't.
func (l *Log) keepBehind(off int64) error {
	off = max(off, l.log.MinOffset())
	end, _, err := l.walkRecords(off, l.log.MaxOffset()) // up to what is no record
	if err != nil && !isDamage(err) {
		return fmt.Errorf("commitlog: %w", err)
	}
	if end <= off {
		return nil
	}
	l.logger.Warn("log bytes behind the newest snapshot come again from the raft log, a copy is kept", "from", off, "to", end, "folder", l.cfg.QuarantineDir)
	if err := l.quarantineRange(off, end); err != nil {
		return fmt.Errorf("commitlog: quarantine: %w", err)
	}
	return nil
}

func (l *Log) recordsDir() string { return filepath.Join(l.cfg.JournalDir, "records") }

// newJournal moves the journal's files away and opens an empty one.
func (l *Log) newJournal() error {
	if l.journal != nil {
		if err := l.journal.Close(); err != nil {
			return fmt.Errorf("commitlog: %w", err)
		}
		l.journal = nil
	}
	entries, err := l.cfg.FS.ReadDir(l.recordsDir())
	if err != nil {
		return fmt.Errorf("commitlog: %w", err)
	}
	for i := len(entries) - 1; i >= 0; i-- {
		if err := l.quarantineFile(filepath.Join(l.recordsDir(), entries[i].Name), "journal-"+entries[i].Name); err != nil {
			return fmt.Errorf("commitlog: quarantine: %w", err)
		}
	}
	if err := l.cfg.FS.SyncDir(l.recordsDir()); err != nil {
		return fmt.Errorf("commitlog: %w", err)
	}
	return l.openJournal(false, 0)
}
