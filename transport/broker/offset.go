package broker

import (
	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// badRequest answers a header or body that cannot be read, as a Java broker answers the exception.
func badRequest(r transport.Responder, err error) {
	emptyExt(r, remoting.ResponseSystemError, err.Error())
}

// replyOffset answers with an offset.
func replyOffset(r transport.Responder, offset int64) {
	resp := remoting.Command{}
	(&remoting.OffsetResponse{Offset: offset}).Encode(&resp)
	r.Reply(&resp)
}

func answerOffset(offset int64) func(transport.Responder) {
	return func(r transport.Responder) { replyOffset(r, offset) }
}

// updateConsumerOffset serves UPDATE_CONSUMER_OFFSET (ConsumerManageProcessor) on the leader. Negative
// offsets are answered and ignored, as Go clients send -1 after a start that found none.
func (b *Broker) updateConsumerOffset(r transport.Responder, cmd *remoting.Command) {
	var h remoting.UpdateConsumerOffsetHeader
	switch err := h.Decode(cmd); {
	case err != nil:
		badRequest(r, err)
	case h.CommitOffset < 0:
		emptyExt(r, remoting.ResponseSuccess, "")
	case r.OneWay:
		b.gather.add(cmd.Get("consumerGroup"), cmd.Get("topic"), h.QueueID, h.CommitOffset, nil)
	default:
		b.gather.add(cmd.Get("consumerGroup"), cmd.Get("topic"), h.QueueID, h.CommitOffset, &r)
	}
}

// queryConsumerOffset serves QUERY_CONSUMER_OFFSET (ConsumerManageProcessor) on the leader. What this
// leader has gathered is waited for first.
func (b *Broker) queryConsumerOffset(r transport.Responder, cmd *remoting.Command) {
	var h remoting.QueryConsumerOffsetHeader
	if err := h.Decode(cmd); err != nil {
		badRequest(r, err)
		return
	}
	if owned := cmd.Clone(); b.gather.settled(h.ConsumerGroup, h.Topic, h.QueueID, func(error) {
		b.leaderOnly(closeConnection, b.queryConsumerOffset)(r, owned)
	}) {
		return
	}
	b.leaderReads(closeConnection, b.consumerOffset)(r, cmd)
}

func (b *Broker) consumerOffset(cmd *remoting.Command) func(transport.Responder) {
	var h remoting.QueryConsumerOffsetHeader
	if err := h.Decode(cmd); err != nil {
		return func(r transport.Responder) { badRequest(r, err) }
	}
	offset, ok := b.cfg.Tables.ConsumerOffset(h.ConsumerGroup, h.Topic, h.QueueID)
	if !ok && h.SetZeroIfNotFound {
		offset, ok = b.youngQueue(h.Topic, h.QueueID)
	}
	if !ok {
		return func(r transport.Responder) {
			emptyExt(r, remoting.ResponseQueryNotFound, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
		}
	}
	return answerOffset(offset)
}

// youngQueue is where a new group begins in a queue of which nothing has been removed yet and
// whose first record is still in memory: at its start, whatever its consumeFromWhere says (wire notes §8).
func (b *Broker) youngQueue(topic string, queueID int32) (int64, bool) {
	floor := b.cfg.Tables.QueueFloor([]byte(topic), queueID)
	first, next := b.bounds(topic, queueID)
	if first > floor {
		return 0, false
	}
	if first >= next {
		return first, true
	}
	req := store.GetRequest{Topic: []byte(topic), QueueID: queueID, Offset: first, MaxMsgs: 1, MinFloor: floor}
	var res store.GetResult
	b.cfg.Store.Get(&req, &res)
	defer res.Release()
	if res.Status != store.Found || len(res.Buffers) == 0 {
		return 0, false
	}
	return first, b.cfg.Store.Hot(record.View(res.Buffers[0]).PhyOffset())
}
