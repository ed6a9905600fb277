package store

import (
	"fmt"

	"raftmq/commitlog"
	"raftmq/commitlog/consumequeue"
	"raftmq/commitlog/record"
	"raftmq/seam"
)

// Position is what a snapshot says about the log: replicated, equal on all nodes at equal RaftIndex.
type Position = commitlog.Position

// QueueOffset is the next offset of one queue.
type QueueOffset = commitlog.QueueOffset

// Appended tells where a command's records went.
type Appended = commitlog.Appended

// Recovered is the position of the last whole journalled entry on disk (zero when empty).
// Its QueueOffsets is nil.
func (s *Store) Recovered() Position {
	index, term, end := s.log.Recovered()
	return Position{RaftIndex: index, RaftTerm: term, LogEnd: end}
}

// Restore sets the replay position from a snapshot, before the first entry after it. Entries
// at or below the recovered index are then recomputed and compared with the journal, not written.
// A snapshot that is ahead of the recovered log is ErrBehind (the bytes must be installed
// first), one that contradicts it ErrDiverged.
func (s *Store) Restore(p Position) error {
	if err := s.alive(); err != nil {
		return err
	}
	if seam.Built {
		p = s.short(p)
	}
	if err := s.log.Restore(p); err != nil {
		return err
	}
	// Queues whose messages are all gone go on where they were (F09).
	s.tails.restore(p.QueueOffsets)
	s.cleaner.kick() // a trim that was not carried out
	return nil
}

// BeginEntry starts the bytes of one Raft entry.
func (s *Store) BeginEntry(raftIndex, raftTerm uint64) error {
	if err := s.alive(); err != nil {
		return err
	}
	s.beginBatch()
	return s.log.BeginEntry(raftIndex, raftTerm)
}

// Append copies n contiguous records of one topic and queue into the log, all in one segment (the
// blank filler and roll before them if they do not fit), assigns their queue and physical
// offsets, and raises a store timestamp that is below the log's last one. An error here must
// stop the node (Apply-Never-Waits), but for ErrRecords: a topic or queue id that can be no
// queue, which is refused on every node alike with nothing written (F69).
func (s *Store) Append(topic []byte, queueID int32, records []byte, n int) (Appended, error) {
	if !consumequeue.ValidTopic(topic) || queueID < 0 || n < 1 || len(records) < record.MinSize {
		return Appended{}, fmt.Errorf("%w: topic %q, queue %d, %d records in %d bytes", ErrRecords, topic, queueID, n, len(records))
	}
	a, err := s.log.Append(topic, queueID, records, n)
	if err != nil {
		return a, err
	}
	// Dispatch has been past what a replay brings again, and never past what is new.
	replayed := a.PhyOffset < s.DispatchedTo()
	// Prepared and rollback types have no place in a queue.
	if record.AssignsQueueOffset(record.View(records).SysFlag()) {
		s.tails.append(topic, queueID, a.QueueOffset, n, replayed)
	}
	if !replayed {
		s.putMessages.Add(uint64(n))
		s.putBytes.Add(uint64(len(records)))
	}
	return a, nil
}

// EndEntry writes the entry's journal record if it produced bytes. Readers see it after Publish.
func (s *Store) EndEntry() error { return s.log.EndEntry() }

// Publish makes all ended entries readable, or leaves that to the commit thread, and wakes who works on them. Once per Apply
// batch.
func (s *Store) Publish() {
	s.log.Publish()
	// After the log: an offset that is below a max offset is in the log.
	s.tails.publish()
	if s.commit != nil {
		s.commit.Wake() // it wakes the others
	} else {
		s.committed()
	}
	s.endBatch()
}

// Position returns the current replicated position (for a snapshot). FSM goroutine only.
func (s *Store) Position() Position { return s.log.Position() }
