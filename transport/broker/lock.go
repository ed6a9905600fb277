package broker

import (
	"time"

	"raftmq/membership/group"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// beginLockTerm starts the leadership of a term with no locks. Nothing is granted for a while, as clients still count on
// what the former leader granted, unless there is no message that anybody could be working on.
func (b *Broker) beginLockTerm(term uint64) {
	quiet := time.Duration(group.LockQuiet)
	if _, end := b.cfg.Store.LogRange(); end == 0 {
		quiet = 0
	}
	b.cfg.Groups.BeginLockTerm(quiet)
	b.lockTerm.Store(term)
}

// locksValid reports whether the lock table belongs to the current leadership.
func (b *Broker) locksValid() bool {
	s := b.cfg.Raft.State()
	return s.Ready && s.Term == b.lockTerm.Load()
}

// lockQueues serves LOCK_BATCH_MQ on the leader (AdminBrokerProcessor.lockBatchMQ).
func (b *Broker) lockQueues(r transport.Responder, cmd *remoting.Command) {
	var in remoting.LockBatchRequest
	if err := in.Decode(cmd.Body); err != nil {
		badRequest(r, err)
		return
	}
	var out remoting.LockBatchResponse
	if b.locksValid() {
		for _, q := range b.cfg.Groups.LockQueues(in.ConsumerGroup, in.ClientID, lockQueuesOf(in.MQSet)) {
			out.LockOKMQSet = append(out.LockOKMQSet, remoting.MessageQueue{BrokerName: q.BrokerName, QueueID: q.QueueID, Topic: q.Topic})
		}
	}
	successBody(r, out.Encode())
}

// unlockQueues serves UNLOCK_BATCH_MQ on the leader.
func (b *Broker) unlockQueues(r transport.Responder, cmd *remoting.Command) {
	var in remoting.LockBatchRequest
	if err := in.Decode(cmd.Body); err != nil {
		badRequest(r, err)
		return
	}
	b.cfg.Groups.UnlockQueues(in.ConsumerGroup, in.ClientID, lockQueuesOf(in.MQSet))
	success(r)
}

func lockQueuesOf(set []remoting.MessageQueue) []group.Queue {
	queues := make([]group.Queue, len(set))
	for i, q := range set {
		queues[i] = group.Queue{Topic: q.Topic, BrokerName: q.BrokerName, QueueID: q.QueueID}
	}
	return queues
}
