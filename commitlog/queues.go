package commitlog

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// maxQueueID bounds the memory that one command can take.
const maxQueueID = 1 << 20

// queueTable holds the next offset of every queue (RocketMQ's topicQueueTable). The writer's.
type queueTable struct {
	topics map[string][]int64 // by queue id; -1 for a queue never written
}

// counters returns the offsets of topic with room for queueID. No allocation once it is there.
func (t *queueTable) counters(topic []byte, queueID int32) ([]int64, error) {
	offsets := t.topics[string(topic)]
	if int(queueID) < len(offsets) && queueID >= 0 {
		return offsets, nil
	}
	if queueID < 0 || queueID > maxQueueID {
		return nil, fmt.Errorf("%w: queue id %d, must be 0 to %d", ErrRecords, queueID, maxQueueID)
	}
	for len(offsets) <= int(queueID) {
		offsets = append(offsets, -1)
	}
	if t.topics == nil {
		t.topics = make(map[string][]int64)
	}
	t.topics[string(topic)] = offsets
	return offsets, nil
}

// load replaces the table.
func (t *queueTable) load(list []QueueOffset) error {
	t.topics = nil
	for _, q := range list {
		offsets, err := t.counters([]byte(q.Topic), q.QueueID)
		if err != nil {
			return err
		}
		offsets[q.QueueID] = q.Next
	}
	return nil
}

// list returns the queues that were written, sorted by topic and queue.
func (t *queueTable) list() []QueueOffset {
	var list []QueueOffset
	for topic, offsets := range t.topics {
		for id, next := range offsets {
			if next >= 0 {
				list = append(list, QueueOffset{Topic: topic, QueueID: int32(id), Next: next})
			}
		}
	}
	slices.SortFunc(list, func(a, b QueueOffset) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.QueueID, b.QueueID))
	})
	return list
}

// QueueNext is the next offset of a queue, 0 if it was never written. FSM goroutine only.
func (l *Log) QueueNext(topic []byte, queueID int32) int64 {
	if offsets := l.queues.topics[string(topic)]; queueID >= 0 && int(queueID) < len(offsets) {
		return max(0, offsets[queueID])
	}
	return 0
}

// Position returns the current replicated position (for a snapshot). FSM goroutine only.
func (l *Log) Position() Position {
	return Position{
		RaftIndex: l.lastIndex, RaftTerm: l.lastTerm, LogEnd: l.pos,
		LastStoreTimestamp: l.lastStoreTimestamp, MinOffset: l.trimmed, QueueOffsets: l.queues.list(),
	}
}
