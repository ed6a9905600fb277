package broker

import (
	"errors"
	"strconv"

	"raftmq/commitlog/store"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// maxOffset serves GET_MAX_OFFSET: the next offset to be assigned, 0 for an unknown queue.
func (b *Broker) maxOffset(r transport.Responder, cmd *remoting.Command) {
	topic, queueID, f := queueOf(cmd)
	if f != nil {
		emptyExt(r, f.code, f.remark)
		return
	}
	_, n := b.bounds(topic, queueID)
	success(r, "offset", strconv.FormatInt(n, 10))
}

// minOffset serves GET_MIN_OFFSET.
func (b *Broker) minOffset(r transport.Responder, cmd *remoting.Command) {
	topic, queueID, f := queueOf(cmd)
	if f != nil {
		emptyExt(r, f.code, f.remark)
		return
	}
	n, _ := b.bounds(topic, queueID)
	success(r, "offset", strconv.FormatInt(n, 10))
}

// searchOffset serves SEARCH_OFFSET_BY_TIMESTAMP with the LOWER rule of 5.x, which satisfies every client: the
// smallest offset stored at or after the time, the max offset when all are older.
func (b *Broker) searchOffset(r transport.Responder, cmd *remoting.Command) {
	topic, queueID, f := queueOf(cmd)
	var millis int64
	if f == nil {
		millis, f = number(cmd, "timestamp", 64)
	}
	if f != nil {
		emptyExt(r, f.code, f.remark)
		return
	}
	first, next := b.bounds(topic, queueID)
	n := b.cfg.Store.OffsetByTime(topic, queueID, millis)
	success(r, "offset", strconv.FormatInt(min(max(n, first), next), 10))
}

// earliestStoreTime serves GET_EARLIEST_MSG_STORETIME: -1 for an empty queue.
func (b *Broker) earliestStoreTime(r transport.Responder, cmd *remoting.Command) {
	topic, queueID, f := queueOf(cmd)
	if f != nil {
		emptyExt(r, f.code, f.remark)
		return
	}
	success(r, "timestamp", strconv.FormatInt(b.storeTime(topic, queueID), 10))
}

// storeTime is the store time of a queue's first message, -1 when it has none.
func (b *Broker) storeTime(topic string, queueID int32) int64 {
	first, next := b.bounds(topic, queueID)
	if first >= next {
		return -1
	}
	return b.cfg.Store.StoreTimeAt(topic, queueID, first)
}

// viewMessage serves VIEW_MESSAGE_BY_ID. Every node has every record that was ever named to a
// client, unless it is behind: then the leader is asked.
func (b *Broker) viewMessage(r transport.Responder, cmd *remoting.Command) {
	offset, f := number(cmd, "offset", 64)
	if f != nil {
		answerRefusal(r, f)
		return
	}
	if done, _ := b.replyRecord(r, offset); done {
		return
	}
	b.leaderOnly(refuseUnavailable, func(r transport.Responder, _ *remoting.Command) {
		if done, err := b.replyRecord(r, offset); err != nil {
			r.ReplyError(remoting.ResponseSystemError, "the message could not be read: "+err.Error())
		} else if !done {
			r.ReplyError(remoting.ResponseSystemError, "can not find message by the offset, "+strconv.FormatInt(offset, 10))
		}
	})(r, cmd)
}

// replyRecord answers with the record at a physical offset, if there is one.
func (b *Broker) replyRecord(r transport.Responder, offset int64) (done bool, err error) {
	if offset < 0 {
		return false, nil
	}
	rec, release, err := b.cfg.Store.RecordAt(offset)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	}
	r.ReplyViews(&remoting.Command{}, [][]byte{rec}, release)
	return true, nil
}
