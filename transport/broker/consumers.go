package broker

import (
	"context"
	"time"

	"raftmq/transport"
	"raftmq/transport/remoting"
)

const (
	// learnTime is how long after its start a node may not know all members yet: clients send heartbeats every 30 s.
	learnTime = 35 * time.Second
	learnPoll = 50 * time.Millisecond
)

// consumerList serves GET_CONSUMER_LIST_BY_GROUP (ConsumerManageProcessor) from what heartbeats told
// this node: consumers send them to every node of a route. A node that has just started knows too little to say that a group has no
// members: it waits for a heartbeat first.
func (b *Broker) consumerList(r transport.Responder, cmd *remoting.Command) {
	var h remoting.ConsumerGroupHeader
	if err := h.Decode(cmd); err != nil {
		badRequest(r, err)
		return
	}
	group := h.ConsumerGroup
	if b.replyConsumers(r, group) {
		return
	}
	noConsumer := "no consumer for this group, " + group
	if b.cfg.Now().Sub(b.start) >= learnTime {
		emptyExt(r, remoting.ResponseSystemError, noConsumer)
		return
	}
	if !b.spawn(func() {
		if !b.awaitConsumers(r, group) {
			emptyExt(r, remoting.ResponseSystemError, noConsumer)
		}
	}) {
		emptyExt(r, remoting.ResponseSystemError, noConsumer)
	}
}

func (b *Broker) awaitConsumers(r transport.Responder, group string) bool {
	ctx, cancel := context.WithTimeout(b.ctx, authorityWait)
	defer cancel()
	tick := time.NewTicker(learnPoll)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if b.replyConsumers(r, group) {
				return true
			}
		case <-ctx.Done():
			return false
		}
	}
}

// replyConsumers answers if the group has members.
func (b *Broker) replyConsumers(r transport.Responder, group string) bool {
	ids := b.cfg.Groups.Consumers(group)
	if len(ids) == 0 {
		return false
	}
	r.Reply(&remoting.Command{Ext: []remoting.Field{}, Body: (&remoting.ConsumerList{ConsumerIDList: ids}).Encode()})
	return true
}
