package commitlog

import "raftmq/seam"

// forget moves the recovery point p back to where a planted bug (package seam) ends the log: before the first damaged entry, or before the first
// that the Raft log has no more.
func (l *Log) forget(p Point) (Point, error) {
	var gone func(*journalRecord) bool
	switch {
	case seam.On(seam.TruncateLog):
		damages, why, err := l.scan(l.log.MinOffset(), p.JournalEnd, 0)
		if err != nil || why != nil || len(damages) == 0 {
			return p, err
		}
		gone = func(r *journalRecord) bool { return r.end > damages[0].From }
	case l.cfg.RaftLast != nil:
		last, err := l.cfg.RaftLast()
		if err != nil || p.RaftIndex <= last {
			return p, err
		}
		gone = func(r *journalRecord) bool { return r.index > last }
	default:
		return p, nil
	}
	pos, err := l.journal.search(p.JournalEnd, gone)
	if err != nil || pos == p.JournalEnd {
		return p, err
	}
	r, err := l.journal.read(pos)
	if err != nil {
		return p, err
	}
	back := Point{LogEnd: r.start, JournalEnd: pos, Base: p.Base}
	if pos > l.journal.MinOffset() {
		if r, err = l.journal.read(pos - journalRecordSize); err != nil {
			return p, err
		}
		back.RaftIndex, back.RaftTerm = r.index, r.term
	}
	l.damaged.Store(nil)
	return back, writePoint(&l.cfg, back)
}
