package broker

import (
	"context"
	"errors"
	"time"

	"raftmq/commitlog/store"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

const (
	// defaultQueryMaxNum is how many messages a query for a unique key may get, whatever it asks for (RocketMQ's
	// BrokerConfig.defaultQueryMaxNum).
	defaultQueryMaxNum = 32
	// queryWait is how long a query waits for the index to come to what is published; clients wait 3 s or more.
	queryWait = 2 * time.Second

	remarkNoMessage = "can not find message, maybe time range not correct"
)

// queryMessage serves QUERY_MESSAGE: records by key or unique key and store time. Any node answers from what it has
// applied; when that is nothing, only the leader may say so (Never-Guess).
func (b *Broker) queryMessage(r transport.Responder, cmd *remoting.Command) {
	var h remoting.QueryMessageHeader
	if err := h.Decode(cmd); err != nil {
		badRequest(r, err)
		return
	}
	q := store.QueryRequest{
		Topic: h.Topic, Key: h.Key, Unique: h.UniqueKey, Max: int(h.MaxNum), Begin: h.BeginTimestamp, End: h.EndTimestamp,
	}
	if q.Unique {
		q.Max = defaultQueryMaxNum
	}
	if !b.authoritative() {
		if res, err := b.query(q); err == nil && len(res.Records) > 0 {
			replyQuery(r, res)
			return
		}
	}
	b.leaderOnly(refuseUnavailable, func(r transport.Responder, _ *remoting.Command) {
		res, err := b.query(q)
		switch {
		case errors.Is(err, store.ErrIndexOff):
			r.ReplyError(remoting.ResponseSystemError, "the broker keeps no key index, messageIndexEnable is false there")
		case errors.Is(err, store.ErrIndexBehind), errors.Is(err, context.DeadlineExceeded):
			r.ReplyError(remoting.ResponseSystemBusy, "the query cannot be answered now: "+err.Error())
		case err != nil:
			r.ReplyError(remoting.ResponseSystemError, "the query failed: "+err.Error())
		default:
			replyQuery(r, res)
		}
	})(r, cmd)
}

func (b *Broker) query(q store.QueryRequest) (*store.QueryResult, error) {
	ctx, cancel := context.WithTimeout(b.ctx, queryWait)
	defer cancel()
	return b.cfg.Store.Query(ctx, q)
}

func replyQuery(r transport.Responder, res *store.QueryResult) {
	resp := &remoting.Command{}
	(&remoting.QueryMessageResponse{
		IndexLastUpdateTimestamp: res.LastUpdateTimestamp, IndexLastUpdatePhyOffset: res.LastUpdatePhyOffset,
	}).Encode(resp)
	if len(res.Records) == 0 {
		resp.Code, resp.Remark = remoting.ResponseQueryNotFound, remarkNoMessage
		r.Reply(resp)
		return
	}
	r.ReplyViews(resp, res.Records, res.Release)
}
