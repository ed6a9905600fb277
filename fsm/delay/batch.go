package delay

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"raftmq/commitlog/record"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
)

// batch is a delivery in the making.
type batch struct{ command.DelayDeliver }

// keptBytes bounds the memory that a level keeps between deliveries.
const keptBytes = 2 * batchBytes

func (b *batch) start(level int, progress int64) {
	records := b.Records[:0]
	if cap(records) > keptBytes {
		records = nil
	}
	b.DelayDeliver = command.DelayDeliver{Level: level, Expected: progress, Next: progress, Records: records}
}

// errUndeliverable: a delayed message has nowhere to go.
var errUndeliverable = errors.New("delay: no topic and queue to go to")

// maxQueueID is the commit log's bound.
const maxQueueID = 1 << 20

// add appends the message that v holds back (ScheduleMessageService.messageTimeup). The properties text stays as it
// is: DELAY, REAL_TOPIC and REAL_QID remain in it. The store time is set when it is proposed.
func (b *batch) add(v record.View) error {
	var m record.Message
	if _, err := record.Decode(v, &m); err != nil {
		return err
	}
	topic, _ := record.Property(m.Properties, record.PropertyRealTopic)
	id, _ := record.Property(m.Properties, record.PropertyRealQueueID)
	queueID, err := strconv.ParseInt(string(id), 10, 32)
	if err != nil || queueID < 0 || queueID > maxQueueID || !isTopic(topic) || string(topic) == metadata.HalfTopic {
		return fmt.Errorf("%w: REAL_TOPIC %.200q, REAL_QID %.20q", errUndeliverable, topic, id)
	}
	m.Topic, m.QueueID = topic, int32(queueID)
	m.PreparedTransactionOffset = 0
	b.Records = record.Append(b.Records, &m)
	b.Count++
	return nil
}

// isTopic tells whether the store takes a name.
func isTopic(name []byte) bool {
	for _, c := range name {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && c != '%' && c != '|' && c != '_' && c != '-' {
			return false
		}
	}
	return len(name) > 0 && len(name) <= record.MaxTopicLen
}

// propose waits until the command is applied, refused or lost, or ctx is done. The batch is free then: the command was
// taken while it was proposed.
func (b *batch) propose(ctx context.Context, propose func(Proposal) error) error {
	p := &proposal{batch: b, done: make(chan error, 1)}
	if err := propose(p); err != nil {
		return err
	}
	select {
	case err := <-p.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// proposal is a batch on its way.
type proposal struct {
	batch *batch // until Propose has returned
	done  chan error
}

// AppendCommand implements raftnode.Proposal.
func (p *proposal) AppendCommand(dst []byte, storeMillis int64) []byte {
	record.PatchStoreTimestamps(p.batch.Records, storeMillis)
	return command.AppendDelayDeliver(dst, &p.batch.DelayDeliver)
}

// Done implements raftnode.Proposal.
func (p *proposal) Done(entryResult any, i int, err error) {
	_, err = command.ResultOf(entryResult, i, err)
	p.done <- err
}
