package store

import (
	"errors"
	"fmt"

	"raftmq/commitlog/consumequeue"
	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
)

// MinOffset is the first offset of a queue that can be read; 0 when the queue does not exist,
// equal to MaxOffset when it is empty.
func (s *Store) MinOffset(topic string, queueID int32) int64 {
	return s.boundsOf(topic, queueID).min
}

// MaxOffset is the next offset of a queue as of the last Publish, 0 when the queue does not
// exist: never below what was acknowledged here (F94). Units up to ReadableOffset can be read;
// the rest follows within the dispatch delay.
func (s *Store) MaxOffset(topic string, queueID int32) int64 {
	return s.boundsOf(topic, queueID).max
}

// ReadableOffset is the offset up to which Get finds messages: MaxOffset once dispatch has
// caught up.
func (s *Store) ReadableOffset(topic string, queueID int32) int64 {
	return s.boundsOf(topic, queueID).readable
}

func (s *Store) boundsOf(topic string, queueID int32) bounds {
	return s.boundsIn(s.queues.QueueOf(topic, queueID), s.tails.findOf(topic, queueID))
}

// OffsetByTime is the smallest offset whose store time is at or after millis (5.x's LOWER), the
// end of the readable units when all are older, 0 for a queue without any. It is exact, in a binary search: store times never decrease.
// An error is for a moment: what it had to look at is being repaired or replaced.
func (s *Store) OffsetByTime(topic string, queueID int32, millis int64) (int64, error) {
	n, _, err := s.searchTime(topic, queueID, func(t int64) bool { return t >= millis })
	return n, err
}

// LastOffsetByTime is the largest offset whose store time is at or before millis (5.x's UPPER), the first offset when all are newer. Errors
// are OffsetByTime's.
func (s *Store) LastOffsetByTime(topic string, queueID int32, millis int64) (int64, error) {
	n, low, err := s.searchTime(topic, queueID, func(t int64) bool { return t > millis })
	return max(n-1, low), err
}

// searchTime is the first offset of a queue whose store time is as wanted, which must hold for all later ones too, or the end of the
// readable units; low is the queue's minimum.
func (s *Store) searchTime(topic string, queueID int32, wanted func(storeTime int64) bool) (n, low int64, err error) {
	b := s.boundsOf(topic, queueID)
	if b.queue == nil {
		return b.min, b.min, nil
	}
	n, err = b.queue.Search(func(n int64, u consumequeue.Unit) (bool, error) {
		t, err := s.storeTime(b.queue, n, u)
		return err == nil && wanted(t), ignoreRemoved(err)
	})
	if err != nil {
		s.readFailed(err)
		return b.min, b.min, err
	}
	return n, b.min, nil
}

// StoreTimeAt is the store time of the record at a queue offset, ms, -1 when there is none.
func (s *Store) StoreTimeAt(topic string, queueID int32, offset int64) int64 {
	q := s.queues.QueueOf(topic, queueID)
	if q == nil {
		return -1
	}
	u, err := q.At(offset)
	if err != nil {
		return -1
	}
	t, err := s.storeTime(q, offset, u)
	if err != nil {
		s.readFailed(err)
		return -1
	}
	return t
}

// ignoreRemoved makes records before the log's first one older than any time.
func ignoreRemoved(err error) error {
	if errors.Is(err, mappedfile.ErrOutOfRange) {
		return nil
	}
	return err
}

// storeTime reads field 11 of the record of unit n of a queue.
func (s *Store) storeTime(q *consumequeue.Queue, n int64, u consumequeue.Unit) (t int64, err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	v, err := s.unitRecord(q, n, u)
	if err != nil {
		return 0, err
	}
	defer v.Release()
	return record.View(v.Bytes).StoreTimestamp(), nil
}

// unitRecord returns a counted view of the record that unit n of a queue names; a unitError when that is not the queue's n-th.
func (s *Store) unitRecord(q *consumequeue.Queue, n int64, u consumequeue.Unit) (mappedfile.View, error) {
	if !u.IsRecord() || u.End() > s.log.MaxOffset() {
		return mappedfile.View{}, damagedUnit(q, n, u)
	}
	v, err := s.log.View(u.PhyOffset, int(u.Size))
	if err != nil {
		return v, err
	}
	if _, err := record.Check(v.Bytes, false); err != nil || !names(u, v.Bytes, q, n) || string(record.View(v.Bytes).Topic()) != q.Topic() {
		v.Release()
		return mappedfile.View{}, damagedUnit(q, n, u)
	}
	return v, nil
}

// RecordAt returns a counted view of the record that starts at a physical offset within what is
// published; release it. An offset outside, or inside a record, is ErrNotFound: a record is
// believed when its lengths agree, it names this offset as its own, and its queue's unit
// points to it, so that a body that imitates a record does not pass. (Records of prepared and
// rollback type have no unit; this broker writes none, RocketMQ's transactions neither.)
func (s *Store) RecordAt(phyOffset int64) (rec []byte, release func(), err error) {
	if s.pool != nil && phyOffset >= s.log.MaxOffset() {
		// It may be acknowledged and not yet committed: "not found" would be wrong.
		if err := s.commitNow(); err != nil {
			return nil, nil, s.fatal(err)
		}
	}
	v, n, err := s.recordAt(phyOffset)
	if errors.Is(err, mappedfile.ErrFault) || errors.Is(err, errDamagedUnit) {
		s.readFailed(err)
	}
	if err != nil {
		return nil, nil, err
	}
	return v.Bytes[:n:n], v.Release, nil
}

func (s *Store) recordAt(phyOffset int64) (v mappedfile.View, n int, err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	v, err = s.log.View(phyOffset, int(s.cfg.SegmentSize))
	if errors.Is(err, mappedfile.ErrOutOfRange) {
		low, end := s.LogRange()
		return v, 0, fmt.Errorf("%w: physical offset %d, the log is [%d, %d)", ErrNotFound, phyOffset, low, end)
	}
	if err != nil {
		return v, 0, err
	}
	found := false
	defer func() {
		if !found { // or a fault, which CatchFault takes after this
			v.Release()
		}
	}()
	if n, err = record.Check(v.Bytes, false); err != nil {
		return v, 0, fmt.Errorf("%w: physical offset %d: %w", ErrNotFound, phyOffset, err)
	}
	switch err = s.begins(record.View(v.Bytes[:n]), phyOffset); {
	case errors.Is(err, errNoRecord), errors.Is(err, consumequeue.ErrRange):
		return v, 0, fmt.Errorf("%w: physical offset %d: %w", ErrNotFound, phyOffset, err)
	case err != nil:
		return v, 0, fmt.Errorf("store: physical offset %d: %w", phyOffset, err) // it could not be looked up (Never-Guess)
	}
	touch(v.Bytes[:n])
	found = true
	return v, n, nil
}

// errNoRecord: bytes that look like a record are none.
var errNoRecord = errors.New("no record begins here")

// begins checks that the bytes at phyOffset, which look like a record, are one.
func (s *Store) begins(v record.View, phyOffset int64) error {
	if got := v.PhyOffset(); got != phyOffset {
		return fmt.Errorf("%w: what is there names physical offset %d", errNoRecord, got)
	}
	if !record.AssignsQueueOffset(v.SysFlag()) {
		return nil
	}
	if dispatched := s.DispatchedTo(); phyOffset >= dispatched {
		return s.follows(dispatched, phyOffset)
	}
	q := s.queues.Queue(v.Topic(), v.QueueID())
	if q == nil {
		return fmt.Errorf("%w: there is no queue %s/%d", errNoRecord, v.Topic(), v.QueueID())
	}
	u, err := q.At(v.QueueOffset())
	if err != nil {
		return err
	}
	if u.PhyOffset != phyOffset || int(u.Size) != v.Size() {
		// Unless it is the unit that is wrong: then nobody can know yet.
		switch other, err := s.unitRecord(q, v.QueueOffset(), u); {
		case errors.Is(err, errDamagedUnit), errors.Is(err, mappedfile.ErrOutOfRange):
			return damagedUnit(q, v.QueueOffset(), u)
		case err != nil:
			return err
		default:
			other.Release()
		}
		return fmt.Errorf("%w: queue %s/%d has another record at %d", errNoRecord, v.Topic(), v.QueueID(), v.QueueOffset())
	}
	return nil
}

// follows walks the records that are not dispatched yet, from one known start on.
func (s *Store) follows(from, to int64) error {
	for from < to {
		v, err := s.log.View(from, int(to-from)+record.BlankMinSize)
		if err != nil {
			return err
		}
		n, err := record.Check(v.Bytes, false)
		v.Release()
		// A record that reaches behind to is cut off here: the size is known all the same.
		if err != nil && !errors.Is(err, record.ErrBlank) && !errors.Is(err, record.ErrTruncated) || n <= 0 {
			return fmt.Errorf("record at %d: %w", from, err)
		}
		from += int64(n)
	}
	if from > to {
		return fmt.Errorf("%w: it is inside the record that ends at %d", errNoRecord, from)
	}
	return nil
}
