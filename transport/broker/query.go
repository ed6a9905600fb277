package broker

import (
	"errors"
	"strconv"
	"strings"

	"raftmq/commitlog/store"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// onQueue decodes a header that names a queue and calls f with the queue's bounds.
func (b *Broker) onQueue(cmd *remoting.Command, f func(h *remoting.QueueHeader, first, next int64) func(transport.Responder)) func(transport.Responder) {
	var h remoting.QueueHeader
	if err := h.Decode(cmd); err != nil {
		return func(r transport.Responder) { badRequest(r, err) }
	}
	first, next := b.bounds(h.Topic, h.QueueID)
	return f(&h, first, next)
}

// maxOffset serves GET_MAX_OFFSET: the next offset to be assigned, 0 for an unknown queue.
func (b *Broker) maxOffset(cmd *remoting.Command) func(transport.Responder) {
	return b.onQueue(cmd, func(_ *remoting.QueueHeader, _, next int64) func(transport.Responder) { return answerOffset(next) })
}

// minOffset serves GET_MIN_OFFSET.
func (b *Broker) minOffset(cmd *remoting.Command) func(transport.Responder) {
	return b.onQueue(cmd, func(_ *remoting.QueueHeader, first, _ int64) func(transport.Responder) { return answerOffset(first) })
}

// searchOffset serves SEARCH_OFFSET_BY_TIMESTAMP with the rules of 5.x. LOWER, the default, satisfies 4.9's clients too: the
// smallest offset stored at or after the time, the max offset when all are older. UPPER: the largest stored at or before it.
func (b *Broker) searchOffset(cmd *remoting.Command) func(transport.Responder) {
	var h remoting.SearchOffsetHeader
	if err := h.Decode(cmd); err != nil {
		return func(r transport.Responder) { badRequest(r, err) }
	}
	first, next := b.bounds(h.Topic, h.QueueID)
	search := b.cfg.Store.OffsetByTime
	if strings.EqualFold(h.BoundaryType, "upper") {
		search = b.cfg.Store.LastOffsetByTime
	}
	offset, err := search(h.Topic, h.QueueID, h.Timestamp)
	if err != nil {
		return func(r transport.Responder) {
			r.ReplyError(remoting.ResponseSystemBusy, "the offset cannot be told now: "+err.Error())
		}
	}
	return answerOffset(min(max(offset, first), next))
}

// earliestStoreTime serves GET_EARLIEST_MSG_STORETIME: -1 for an empty queue.
func (b *Broker) earliestStoreTime(cmd *remoting.Command) func(transport.Responder) {
	return b.onQueue(cmd, func(h *remoting.QueueHeader, first, next int64) func(transport.Responder) {
		t := int64(-1)
		if first < next {
			t = b.cfg.Store.StoreTimeAt(h.Topic, h.QueueID, first)
		}
		return func(r transport.Responder) {
			resp := remoting.Command{}
			(&remoting.TimestampResponse{Timestamp: t}).Encode(&resp)
			r.Reply(&resp)
		}
	})
}

// viewMessage serves VIEW_MESSAGE_BY_ID. Every node has every record that was ever named to a
// client, unless it is behind: then the leader is asked.
func (b *Broker) viewMessage(r transport.Responder, cmd *remoting.Command) {
	var h remoting.ViewMessageHeader
	if err := h.Decode(cmd); err != nil {
		badRequest(r, err)
		return
	}
	offset := h.Offset
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
