package broker

import (
	"context"
	"slices"
	"time"

	"raftmq/transport"
	"raftmq/transport/remoting"
)

const learnPoll = 50 * time.Millisecond

// consumerList serves GET_CONSUMER_LIST_BY_GROUP (ConsumerManageProcessor) from what heartbeats told
// this node: consumers send them to every node of a route. A node that is learning adds what others know: members that it does not
// name would give up their queues. One that has just started knows too little to say that a group has no
// members: it waits for a heartbeat first.
func (b *Broker) consumerList(r transport.Responder, cmd *remoting.Command) {
	var h remoting.ConsumerGroupHeader
	if err := h.Decode(cmd); err != nil {
		badRequest(r, err)
		return
	}
	group := h.ConsumerGroup
	ids := b.cfg.Groups.Consumers(group)
	elsewhere := b.looksElsewhere(cmd, len(ids) > 0)
	wait := len(ids) == 0 && b.cfg.Now().Sub(b.start) < learnTime && cmd.Get(forwardedField) == nil
	if !elsewhere && !wait {
		replyConsumers(r, group, ids)
		return
	}
	if !b.apart(func() {
		if elsewhere {
			ids = append(ids, b.idsElsewhere(group)...)
		}
		if len(ids) == 0 && wait {
			ids = b.awaitConsumers(group)
		}
		slices.Sort(ids)
		replyConsumers(r, group, slices.Compact(ids))
	}) {
		busy(r)
	}
}

// awaitConsumers waits for a heartbeat of a consumer of the group, and returns none after a while.
func (b *Broker) awaitConsumers(group string) []string {
	ctx, cancel := context.WithTimeout(b.ctx, authorityWait)
	defer cancel()
	tick := time.NewTicker(learnPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if ids := b.cfg.Groups.Consumers(group); len(ids) > 0 {
				return ids
			}
		case <-ctx.Done():
			return nil
		}
	}
}

func replyConsumers(r transport.Responder, group string, ids []string) {
	if len(ids) == 0 {
		emptyExt(r, remoting.ResponseSystemError, "no consumer for this group, "+group)
		return
	}
	r.Reply(&remoting.Command{Ext: []remoting.Field{}, Body: (&remoting.ConsumerList{ConsumerIDList: ids}).Encode()})
}
