package broker

import (
	"strconv"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// queueOf reads the fields that name a queue.
func queueOf(cmd *remoting.Command) (topic string, queueID int32, f *refusal) {
	topic = cmd.GetString("topic")
	n, f := number(cmd, "queueId", 32)
	return topic, int32(n), f
}

// number reads a required numeric field.
func number(cmd *remoting.Command, key string, bits int) (int64, *refusal) {
	v := cmd.Get(key)
	if v == nil {
		return 0, refuse(remoting.ResponseSystemError, "the field %s of the request header is missing", key)
	}
	n, err := strconv.ParseInt(string(v), 10, bits)
	if err != nil {
		return 0, refuse(remoting.ResponseSystemError, "the field %s of the request header is %q, a number expected", key, v[:min(len(v), 64)])
	}
	return n, nil
}

func parseInt32(b []byte) (int32, bool) {
	n, err := strconv.ParseInt(string(b), 10, 32)
	return int32(n), err == nil
}

// updateConsumerOffset serves UPDATE_CONSUMER_OFFSET (ConsumerManageProcessor) on the leader. Negative
// offsets are answered and ignored, as Go clients send -1 after a start that found none.
func (b *Broker) updateConsumerOffset(r transport.Responder, cmd *remoting.Command) {
	_, queueID, f := queueOf(cmd)
	var offset int64
	if f == nil {
		offset, f = number(cmd, "commitOffset", 64)
	}
	switch {
	case f != nil:
		emptyExt(r, f.code, f.remark)
	case offset < 0:
		emptyExt(r, remoting.ResponseSuccess, "")
	case r.OneWay:
		b.gather.add(cmd.Get("consumerGroup"), cmd.Get("topic"), queueID, offset, nil)
	default:
		b.gather.add(cmd.Get("consumerGroup"), cmd.Get("topic"), queueID, offset, &r)
	}
}

// queryConsumerOffset serves QUERY_CONSUMER_OFFSET (ConsumerManageProcessor) on the leader. What this
// leader has gathered is waited for first.
func (b *Broker) queryConsumerOffset(r transport.Responder, cmd *remoting.Command) {
	topic, queueID, f := queueOf(cmd)
	if f != nil {
		emptyExt(r, f.code, f.remark)
		return
	}
	group := cmd.GetString("consumerGroup")
	if owned := cmd.Clone(); b.gather.settled(group, topic, queueID, func(error) {
		b.leaderOnly(closeConnection, b.queryConsumerOffset)(r, owned)
	}) {
		return
	}
	offset, ok := b.cfg.Tables.ConsumerOffset(group, topic, queueID)
	if !ok {
		offset, ok = b.youngQueue(topic, queueID)
	}
	if !ok {
		emptyExt(r, remoting.ResponseQueryNotFound, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
		return
	}
	success(r, "offset", strconv.FormatInt(offset, 10))
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
	_, end := b.cfg.Store.LogRange()
	return first, end-record.View(res.Buffers[0]).PhyOffset() <= b.cfg.HotBytes
}
