package broker

import (
	"encoding/json"
	"time"

	"raftmq/membership/group"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// lockData is the body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ (RocketMQ LockBatchRequestBody).
type lockData struct {
	ConsumerGroup string         `json:"consumerGroup"`
	ClientID      string         `json:"clientId"`
	MQSet         []messageQueue `json:"mqSet"`
}

// messageQueue is RocketMQ's MessageQueue, keys in Java's order.
type messageQueue struct {
	BrokerName string `json:"brokerName"`
	QueueID    int32  `json:"queueId"`
	Topic      string `json:"topic"`
}

func (l *lockData) queues() []group.Queue {
	queues := make([]group.Queue, len(l.MQSet))
	for i, q := range l.MQSet {
		queues[i] = group.Queue{Topic: q.Topic, BrokerName: q.BrokerName, QueueID: q.QueueID}
	}
	return queues
}

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
	in, ok := readLock(r, cmd)
	if !ok {
		return
	}
	out := struct {
		LockOKMQSet []messageQueue `json:"lockOKMQSet"`
	}{LockOKMQSet: []messageQueue{}}
	if b.locksValid() {
		for _, q := range b.cfg.Groups.LockQueues(in.ConsumerGroup, in.ClientID, in.queues()) {
			out.LockOKMQSet = append(out.LockOKMQSet, messageQueue{q.BrokerName, q.QueueID, q.Topic})
		}
	}
	replyJSON(r, out)
}

// unlockQueues serves UNLOCK_BATCH_MQ on the leader.
func (b *Broker) unlockQueues(r transport.Responder, cmd *remoting.Command) {
	if in, ok := readLock(r, cmd); ok {
		b.cfg.Groups.UnlockQueues(in.ConsumerGroup, in.ClientID, in.queues())
		success(r)
	}
}

func readLock(r transport.Responder, cmd *remoting.Command) (in lockData, ok bool) {
	if err := json.Unmarshal(cmd.Body, &in); err != nil {
		r.ReplyError(remoting.ResponseSystemError, "the lock request cannot be read: "+err.Error())
		return in, false
	}
	return in, true
}

// replyJSON answers 0 with a JSON body.
func replyJSON(r transport.Responder, body any) {
	b, err := json.Marshal(body)
	if err != nil {
		r.ReplyError(remoting.ResponseSystemError, "the answer cannot be written: "+err.Error())
		return
	}
	successBody(r, b)
}
