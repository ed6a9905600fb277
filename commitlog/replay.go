package commitlog

import "fmt"

// replayState walks the journal while entries that are in the log already arrive again.
type replayState struct {
	pos     int64 // of the next record to compare; last.pos when there is none
	next    journalRecord
	have    bool // next is the record at pos
	scratch []byte
}

// Restore sets the replay position from a snapshot, before the first entry after it. Entries at or
// below the log's last index are then recomputed and compared with the journal, not written. A
// snapshot ahead of the log is ErrBehind: ResetTo or WriteRaw must bring the bytes first, then
// Restore makes them part of the log, durable on return. ErrDiverged: the log is not the
// snapshot's. After Open the position is that of an empty snapshot.
func (l *Log) Restore(p Position) error {
	switch {
	case l.failed != nil:
		return l.failed
	case l.closed.Load():
		return ErrClosed
	case l.entry.open:
		return fmt.Errorf("%w: restore inside entry %d", ErrIndex, l.entry.index)
	}
	if l.raw.open {
		if err := l.endInstall(p); err != nil {
			return err
		}
	}
	return l.restore(p)
}

func (l *Log) restore(p Position) error {
	t := l.last
	if p.MinOffset < 0 || p.MinOffset > p.LogEnd {
		return fmt.Errorf("%w: the snapshot has minimum %d and ends at %d", ErrDiverged, p.MinOffset, p.LogEnd)
	}
	if p.LogEnd > t.end {
		return fmt.Errorf("%w: it ends at %d (index %d), the snapshot at %d (index %d)", ErrBehind, t.end, t.index, p.LogEnd, p.RaftIndex)
	}
	if p.RaftIndex == t.index && p.RaftTerm != t.term {
		return fmt.Errorf("%w: entry %d has term %d here, %d in the snapshot", ErrDiverged, p.RaftIndex, t.term, p.RaftTerm)
	}
	pos, end := t.pos, t.end
	if p.RaftIndex < t.index {
		var err error
		if pos, end, err = l.findReplay(&p); err != nil {
			return err
		}
	}
	if p.LogEnd != end {
		return fmt.Errorf("%w: at index %d the snapshot ends at %d, the log at %d", ErrDiverged, p.RaftIndex, p.LogEnd, end)
	}
	var queues queueTable
	if err := queues.load(p.QueueOffsets); err != nil {
		return err
	}
	l.queues, l.lastStoreTimestamp = queues, p.LastStoreTimestamp
	l.lastIndex, l.lastTerm, l.pos = p.RaftIndex, p.RaftTerm, p.LogEnd
	l.trim(p.MinOffset)
	l.replay.pos, l.replay.have = pos, false
	if p.RaftIndex >= t.index {
		// Entries without bytes may lie between.
		l.last.index, l.last.term = p.RaftIndex, p.RaftTerm
		l.publishIndex()
	}
	return nil
}

// findReplay returns the position of the first journal record above a snapshot that is below the log's
// last index, and where the log ended at the snapshot.
func (l *Log) findReplay(p *Position) (pos, end int64, err error) {
	t := l.last
	pos, err = l.journal.search(t.pos, func(r *journalRecord) bool { return r.index > p.RaftIndex })
	if err != nil {
		return 0, 0, err
	}
	before := tail{}
	end = t.end
	after := t.term
	if pos < t.pos {
		r, err := l.journal.read(pos)
		if err != nil {
			return 0, 0, l.journal.corrupt(pos, err)
		}
		end, after = r.start, r.term
		if pos == l.journal.MinOffset() && (pos > 0 || r.start > 0) {
			end = min(end, p.LogEnd) // the records before were deleted with their bytes, or the log was installed and has begun here
		}
	}
	if pos > l.journal.MinOffset() {
		r, err := l.journal.read(pos - journalRecordSize)
		if err != nil {
			return 0, 0, l.journal.corrupt(pos-journalRecordSize, err)
		}
		before.index, before.term = r.index, r.term
	}
	if p.RaftTerm < before.term || p.RaftTerm > after || p.RaftIndex == before.index && p.RaftTerm != before.term {
		return 0, 0, fmt.Errorf("%w: the snapshot has term %d at index %d, the journal %d before and %d after it", ErrDiverged,
			p.RaftTerm, p.RaftIndex, before.term, after)
	}
	return pos, end, nil
}

// publishIndex publishes a tail that differs by its index only.
func (l *Log) publishIndex() {
	l.published.Lock()
	defer l.published.Unlock()
	l.published.tail = l.last
}

// beginReplay tells whether entry index is in the log already. Every journal record below index must
// have been met.
func (l *Log) beginReplay(index uint64) (bool, error) {
	if l.replay.pos < l.last.pos && !l.replay.have {
		r, err := l.journal.read(l.replay.pos)
		if err != nil {
			return false, l.journal.corrupt(l.replay.pos, err)
		}
		l.replay.next, l.replay.have = r, true
	}
	if l.replay.have && l.replay.next.index < index {
		return false, fmt.Errorf("%w: entry %d produced bytes %d to %d once and none now, entry %d is next", ErrDiverged,
			l.replay.next.index, l.replay.next.start, l.replay.next.end, index)
	}
	if index <= l.last.index {
		return true, nil
	}
	if l.pos != l.last.end {
		return false, fmt.Errorf("%w: replay ends at %d, the log at %d (index %d)", ErrDiverged, l.pos, l.last.end, l.last.index)
	}
	return false, nil
}

// endReplay compares what an entry would have written with what it wrote once.
func (l *Log) endReplay(r *journalRecord) error {
	if r.end == r.start {
		if l.replay.have && l.replay.next.index == r.index {
			return fmt.Errorf("%w: entry %d produced bytes %d to %d once and none now", ErrDiverged,
				r.index, l.replay.next.start, l.replay.next.end)
		}
		return nil
	}
	if l.replay.pos > 0 && l.replay.pos == l.journal.MinOffset() && l.replay.have && r.index < l.replay.next.index && r.end <= l.replay.next.start {
		return nil // its record was deleted with its bytes
	}
	if !l.replay.have {
		return fmt.Errorf("%w: entry %d produces bytes %d to %d, the journal has none for it", ErrDiverged, r.index, r.start, r.end)
	}
	if *r != l.replay.next {
		return fmt.Errorf("%w: entry %d gives %+v, the journal has %+v", ErrDiverged, r.index, *r, l.replay.next)
	}
	l.replay.pos += journalRecordSize
	l.replay.have = false
	return nil
}
