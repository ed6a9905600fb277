package store

import (
	"errors"

	"raftmq/commitlog/consumequeue"
	"raftmq/commitlog/dispatch"
	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
)

// A reader that met damage was told "nothing yet", and waits for an arrival. What has been repaired arrives again: listeners take an arrival for a hint, and look.

// arrived tells the listeners that a unit below next is readable.
func (s *Store) arrived(q *consumequeue.Queue, next, tagsCode int64) {
	if f := s.arrival.Load(); f != nil {
		(*f)([]byte(q.Topic()), q.ID(), next, tagsCode)
	}
}

// wakeUnits tells of units [from, to) of a queue, once for each tags code.
func (s *Store) wakeUnits(q *consumequeue.Queue, from, to int64) {
	told := map[int64]struct{}{}
	for n := max(from, q.Min()); n < to; n++ {
		u, err := q.At(n)
		if err != nil {
			return // trimmed, or closed
		}
		if _, ok := told[u.TagsCode]; !ok {
			told[u.TagsCode] = struct{}{}
			s.arrived(q, to, u.TagsCode)
		}
	}
}

// wakeRecords tells of the records in log bytes [from, to), which begin with one if anything was waited for there.
func (s *Store) wakeRecords(from, to int64) {
	f := s.arrival.Load()
	if f == nil {
		return
	}
	levels := dispatch.Levels(s.cfg.DelayLevels)
	for from < min(to, s.DispatchedTo()) && !s.stopping() {
		n, err := s.wakeRecordsAt(*f, levels, from, to)
		if n <= 0 || err != nil {
			return // the sweep of whoever waits finds the rest
		}
		from += n
	}
}

func (s *Store) wakeRecordsAt(f func([]byte, int32, int64, int64), levels dispatch.Levels, from, to int64) (done int64, err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	v, err := s.log.View(from, int(min(to-from, s.cfg.SegmentSize)))
	if err != nil {
		return 0, err
	}
	defer v.Release()
	for b := v.Bytes; len(b) > 0; {
		n, err := record.Check(b, false)
		if n <= 0 || err != nil && !errors.Is(err, record.ErrBlank) {
			return int64(len(v.Bytes)), nil // a range that begins in the middle of a record
		}
		if err == nil {
			if r := record.View(b[:n]); record.AssignsQueueOffset(r.SysFlag()) {
				f(r.Topic(), r.QueueID(), r.QueueOffset()+1, levels.TagsCode(r))
			}
		}
		done += int64(n)
		b = b[n:]
	}
	return done, nil
}
