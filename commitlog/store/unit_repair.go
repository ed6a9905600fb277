package store

import (
	"errors"
	"fmt"
	"sync"

	"raftmq/commitlog"
	"raftmq/commitlog/consumequeue"
	"raftmq/commitlog/dispatch"
	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
)

// unitRepairer writes units of consume queues again that a reader has found damaged. The log is the truth and is there, so this needs no
// other node: the records between the nearest units that are sound are read, and what they say is written. Meanwhile the reader is told to
// come again, and everything else is served.
type unitRepairer struct {
	wake chan struct{} // capacity 1

	mu      sync.Mutex
	pending map[*consumequeue.Queue]int64 // a damaged unit of each; guarded by mu
}

func (r *unitRepairer) add(q *consumequeue.Queue, n int64) {
	r.mu.Lock()
	if r.pending == nil {
		r.pending = map[*consumequeue.Queue]int64{}
	}
	if _, ok := r.pending[q]; !ok {
		r.pending[q] = n
	}
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *unitRepairer) has(q *consumequeue.Queue) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.pending[q]
	return ok
}

func (r *unitRepairer) next() (q *consumequeue.Queue, n int64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for q, n := range r.pending {
		return q, n, true
	}
	return nil, 0, false
}

func (r *unitRepairer) done(q *consumequeue.Queue) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pending, q)
}

// unitFailed has a unit repaired that contradicts the log, unless it is the log that is wrong.
func (s *Store) unitFailed(e *unitError) {
	if !s.opened.Load() || s.replacing.Load() || s.units.has(e.queue) {
		return
	}
	if u := e.unit; u.IsRecord() && u.PhyOffset >= s.log.MinOffset() && u.End() <= s.log.MaxOffset() && int64(u.Size) <= s.cfg.SegmentSize {
		switch damage := s.log.VerifyRange(u.PhyOffset, u.End()); {
		case damage == nil, errors.Is(damage, mappedfile.ErrOutOfRange):
		case s.quarantine(damage):
			return
		default:
			s.fatal(errors.Join(e, damage))
			return
		}
	}
	s.units.add(e.queue, e.n)
}

// unitRepairLoop ends with the store.
func (s *Store) unitRepairLoop() {
	for s.failure.Load() == nil {
		q, n, ok := s.units.next()
		if !ok {
			select {
			case <-s.units.wake:
				continue
			case <-s.stop:
				return
			}
		}
		switch err := s.repairUnits(q, n); {
		case errors.Is(err, commitlog.ErrQuarantined), isNoSpace(err):
			if !s.pause(repairPauseFirst) { // the log is repaired first, or space made
				return
			}
			continue
		case errors.Is(err, errStopping):
			return
		case errors.Is(err, consumequeue.ErrRange), errors.Is(err, consumequeue.ErrClosed), errors.Is(err, mappedfile.ErrOutOfRange), errors.Is(err, mappedfile.ErrClosed):
			// Trimmed meanwhile, or the log is being replaced, and the queues with it.
		case lostFile(err) && s.mend(q, err):
			continue
		case err != nil:
			err = fmt.Errorf("store: repair of a consume queue: %w; the queues are built again from the log at the next start", err)
			s.fatal(errors.Join(err, s.suspendPoints()))
			return
		}
		s.units.done(q)
	}
}

// repairUnits writes unit n of a queue again, and its damaged neighbours with it.
func (s *Store) repairUnits(q *consumequeue.Queue, n int64) (err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	first, from, err := s.soundBelow(q, n)
	if err != nil {
		return err
	}
	last, to, err := s.soundAbove(q, n)
	if err != nil {
		return err
	}
	written, err := s.rewriteUnits(q, from, to)
	if err != nil {
		return err
	}
	for k := max(first, q.Min()); k < last; k++ {
		if err := s.sound(q, k); err != nil {
			return err // the log has no such record, or another queue's file
		}
	}
	s.unitsRepaired.Add(uint64(written))
	s.points.much() // with a flush
	s.wakeUnits(q, first, last)
	s.logger.Warn("damaged consume queue units are written again from the log", "topic", q.Topic(), "queue", q.ID(), "from-queue-offset", first,
		"to-queue-offset", last, "written", written, "log-from", from, "log-to", to)
	return nil
}

// sound is nil when unit n names the queue's n-th record and has its tags code.
func (s *Store) sound(q *consumequeue.Queue, n int64) error {
	u, err := q.At(n)
	if err != nil {
		return err
	}
	v, err := s.unitRecord(q, n, u)
	if err != nil {
		return err
	}
	defer v.Release()
	if u.TagsCode != dispatch.Levels(s.cfg.DelayLevels).TagsCode(record.View(v.Bytes)) {
		return damagedUnit(q, n, u)
	}
	return nil
}

// soundBelow goes down from unit n to one that is sound: first is the offset behind it, from where its record ends.
func (s *Store) soundBelow(q *consumequeue.Queue, n int64) (first, from int64, err error) {
	low := q.Min()
	for k := n - 1; k >= low; k-- {
		if s.stopping() {
			return 0, 0, errStopping
		}
		switch err := s.sound(q, k); {
		case err == nil:
			u, err := q.At(k)
			return k + 1, u.End(), err
		case !errors.Is(err, errDamagedUnit):
			return 0, 0, err
		}
	}
	return low, s.log.MinOffset(), nil
}

// soundAbove goes up: last is the offset of the sound unit, to where its record begins.
func (s *Store) soundAbove(q *consumequeue.Queue, n int64) (last, to int64, err error) {
	to = s.DispatchedTo()
	end := q.Max() // units may follow meanwhile; those are not what was damaged
	for k := n + 1; k < end; k++ {
		if s.stopping() {
			return 0, 0, errStopping
		}
		switch err := s.sound(q, k); {
		case err == nil:
			u, err := q.At(k)
			return k, u.PhyOffset, err
		case !errors.Is(err, errDamagedUnit):
			return 0, 0, err
		}
	}
	return end, max(to, s.DispatchedTo()), nil
}

// rewriteUnits compares the units of a queue's records in [from, to), which begins and ends between records, and writes those that differ.
func (s *Store) rewriteUnits(q *consumequeue.Queue, from, to int64) (written int, err error) {
	levels := dispatch.Levels(s.cfg.DelayLevels)
	for from < to {
		if s.stopping() {
			return written, errStopping
		}
		v, err := s.log.View(from, int(min(to-from, s.cfg.SegmentSize)))
		if err != nil {
			return written, err
		}
		n, err := s.rewriteUnitsOf(q, v.Bytes, levels, &written)
		v.Release()
		if err != nil {
			return written, fmt.Errorf("log at %d: %w", from+int64(n), err)
		}
		from += int64(n)
	}
	return written, nil
}

func (s *Store) rewriteUnitsOf(q *consumequeue.Queue, log []byte, levels dispatch.Levels, written *int) (done int, err error) {
	for done < len(log) {
		n, err := record.Check(log[done:], false)
		if errors.Is(err, record.ErrBlank) && n > 0 {
			done += n
			continue
		}
		if err != nil {
			return done, err
		}
		v := record.View(log[done : done+n])
		done += n
		if v.QueueID() != q.ID() || string(v.Topic()) != q.Topic() || !record.AssignsQueueOffset(v.SysFlag()) || v.QueueOffset() < q.Min() {
			continue
		}
		want := consumequeue.Unit{PhyOffset: v.PhyOffset(), Size: int32(v.Size()), TagsCode: levels.TagsCode(v)}
		if got, err := q.At(v.QueueOffset()); err != nil {
			return done, err
		} else if got == want {
			continue
		}
		if err := s.queues.Rewrite(q, v.QueueOffset(), want); err != nil {
			return done, err
		}
		*written++
	}
	return done, nil
}

// stopping tells that the store's loops shall end.
func (s *Store) stopping() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}
