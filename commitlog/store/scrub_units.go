package store

import (
	"errors"

	"raftmq/commitlog"
	"raftmq/commitlog/consumequeue"
	"raftmq/commitlog/dispatch"
	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
)

// scrubUnits compares the consume queue units of the records in [from, to), which were just verified, with them.
func (s *Store) scrubUnits(from, to int64) error {
	to = min(to, s.DispatchedTo())
	for from < to {
		n, err := s.scrubUnitsAt(from, to)
		switch {
		case errors.Is(err, commitlog.ErrQuarantined):
			n = s.damagedTo(from) - from // its units have their turn in the pass behind the repair
		case errors.Is(err, mappedfile.ErrOutOfRange):
			return nil // trimmed
		case lostFile(err) && s.scrubFiles():
			continue
		case err != nil:
			return err
		}
		from += n
	}
	return nil
}

// damagedTo is the end of the range in quarantine that off is in; off when it is in none.
func (s *Store) damagedTo(off int64) int64 {
	for _, d := range s.log.Damaged() {
		if d.From <= off && off < d.To {
			return d.To
		}
	}
	return off
}

func (s *Store) scrubUnitsAt(from, to int64) (done int64, err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	v, err := s.log.View(from, int(min(to-from, s.cfg.SegmentSize)))
	if err != nil {
		return 0, err
	}
	defer v.Release()
	levels := dispatch.Levels(s.cfg.DelayLevels)
	for b := v.Bytes; len(b) > 0; {
		n, err := record.Check(b, false)
		if n <= 0 || err != nil && !errors.Is(err, record.ErrBlank) {
			return int64(len(v.Bytes)), nil // from the middle of an installed range on: no record's begin
		}
		if err == nil {
			r := record.View(b[:n])
			if r.PhyOffset() == from+done && record.AssignsQueueOffset(r.SysFlag()) {
				if err := s.scrubUnit(r, levels.TagsCode(r)); err != nil {
					return done, err
				}
			}
		}
		done += int64(n)
		b = b[n:]
	}
	return done, nil
}

// scrubUnit compares one unit.
func (s *Store) scrubUnit(r record.View, tagsCode int64) error {
	want := consumequeue.Unit{PhyOffset: r.PhyOffset(), Size: int32(r.Size()), TagsCode: tagsCode}
	q := s.queues.Queue(r.Topic(), r.QueueID())
	if q == nil || r.QueueOffset() < q.Min() || r.QueueOffset() >= q.Max() {
		return nil // trimmed
	}
	got, err := q.At(r.QueueOffset())
	switch {
	case errors.Is(err, consumequeue.ErrRange), errors.Is(err, consumequeue.ErrClosed):
		return nil
	case err != nil:
		return err
	case got == want:
		return nil
	}
	return s.repairUnit(q, r.QueueOffset(), got, want)
}

// repairUnit writes a unit again that contradicts its record, which is whole.
func (s *Store) repairUnit(q *consumequeue.Queue, n int64, got, want consumequeue.Unit) error {
	if s.scrubber.news(q, n/(s.cfg.QueueFileSize/consumequeue.UnitSize)) {
		s.logger.Warn("a consume queue unit is damaged and written again from the log, as others of its file are if they are damaged too", "topic", q.Topic(), "queue", q.ID(), "queue-offset", n,
			"has-phy-offset", got.PhyOffset, "has-size", got.Size, "has-tags-code", got.TagsCode, "phy-offset", want.PhyOffset, "size", want.Size, "tags-code", want.TagsCode)
	}
	err := s.queues.Rewrite(q, n, want)
	if errors.Is(err, consumequeue.ErrRange) || errors.Is(err, consumequeue.ErrClosed) {
		return nil
	}
	if err == nil {
		s.unitsRepaired.Add(1)
		s.points.much() // with a flush
		s.arrived(q, n+1, want.TagsCode)
	}
	return err
}

// queueFile is one file of a queue.
type queueFile struct {
	queue *consumequeue.Queue
	n     int64
}

// news reports whether this is the first damaged unit of the file in this pass. The loop's.
func (sc *scrubber) news(q *consumequeue.Queue, file int64) bool {
	key := queueFile{q, file}
	if _, told := sc.told[key]; told {
		return false
	}
	if sc.told == nil {
		sc.told = map[queueFile]struct{}{}
	}
	sc.told[key] = struct{}{}
	return true
}
