package broker

import (
	"time"

	"raftmq/fsm/command"
	"raftmq/membership/group"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// replicatedLocks is the feature level from which on owners of queues are in the tables.
const replicatedLocks = command.Level(2)

// beginLocks makes the registry's leases those of this leadership: its owners are the ones in the tables. Nothing is granted for a while if the tables
// may not have all that a former leader granted, unless there is no message that anybody could be working on. It returns false unless
// this node leads.
func (b *Broker) beginLocks() bool {
	s := b.cfg.Raft.State()
	if !s.Ready {
		return false
	}
	b.locks.Lock()
	defer b.locks.Unlock()
	switch {
	case b.locks.term == s.Term:
		return true
	case b.locks.term > s.Term:
		return false // s is of yesterday
	}
	quiet := time.Duration(group.LockQuiet)
	recorded, all := b.cfg.Tables.QueueLocks()
	if _, end := b.cfg.Store.LogRange(); all || end == 0 {
		quiet = 0
	}
	var owners []group.Lock
	for _, l := range recorded {
		for _, q := range l.Queues {
			owners = append(owners, group.Lock{Group: l.Group, Owner: l.Owner, Queue: b.lockedQueue(q.QueueName)})
		}
	}
	b.cfg.Groups.BeginLockTerm(quiet, owners)
	b.locks.term = s.Term
	return true
}

// lockQueues serves LOCK_BATCH_MQ on the leader (AdminBrokerProcessor.lockBatchMQ). Each request that locks or renews anything is a command, so that
// its answer is this node's as a leader; one that only renews names no queues.
func (b *Broker) lockQueues(r transport.Responder, cmd *remoting.Command) {
	var in remoting.LockBatchRequest
	if err := in.Decode(cmd.Body); err != nil {
		badRequest(r, err)
		return
	}
	if !b.beginLocks() {
		answerRefusal(r, b.unavailable())
		return
	}
	b.adoptLocks()
	proposed := false
	record := func(locked []group.Queue, take []group.Lock) error {
		proposed = true
		lock := command.QueueLock{Group: in.ConsumerGroup, Owner: in.ClientID}
		for _, l := range take {
			lock.Queues = append(lock.Queues, command.LockedQueue{QueueName: b.queueName(l.Queue), From: l.From})
		}
		return b.proposeTable(command.KindQueueLock, lock, func(err error) { b.locked(r, &in, locked, err) })
	}
	if b.cfg.Tables.Level() < replicatedLocks {
		record = nil
	}
	locked, err := b.cfg.Groups.LockQueues(in.ConsumerGroup, in.ClientID, lockQueuesOf(in.MQSet), record)
	switch {
	case err != nil:
		answerRefusal(r, refusalOf(err, 0))
	case !proposed:
		replyLocked(r, locked)
	}
}

// locked answers when the command of a request has been applied.
func (b *Broker) locked(r transport.Responder, in *remoting.LockBatchRequest, locked []group.Queue, err error) {
	if err != nil {
		b.resetLocks()
		answerRefusal(r, refusalOf(err, 0))
		return
	}
	owned, agree := b.cfg.Groups.ExtendLocks(in.ConsumerGroup, in.ClientID, locked, func(q group.Queue) string {
		return b.cfg.Tables.QueueLockOwner(in.ConsumerGroup, b.queueName(q))
	})
	if !agree {
		b.resetLocks()
	}
	replyLocked(r, owned)
}

// resetLocks has the leases begin again with what the tables say, at the next request: a command was not applied, which may happen to a leader that stays
// one, when it could not hand over.
func (b *Broker) resetLocks() {
	b.locks.Lock()
	b.locks.term = 0
	b.locks.Unlock()
}

func replyLocked(r transport.Responder, locked []group.Queue) {
	var out remoting.LockBatchResponse
	for _, q := range locked {
		out.LockOKMQSet = append(out.LockOKMQSet, remoting.MessageQueue{BrokerName: q.BrokerName, QueueID: q.QueueID, Topic: q.Topic})
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
	if !b.beginLocks() {
		answerRefusal(r, b.unavailable())
		return
	}
	proposed := false
	err := b.cfg.Groups.UnlockQueues(in.ConsumerGroup, in.ClientID, lockQueuesOf(in.MQSet), func(gone []group.Lock) error {
		proposed = true
		return b.proposeTable(command.KindQueueUnlock, command.QueueUnlock{Locks: b.byOwner(gone)}, func(err error) {
			if err != nil {
				b.resetLocks()
				answerRefusal(r, refusalOf(err, 0))
				return
			}
			success(r)
		})
	})
	switch {
	case err != nil:
		answerRefusal(r, refusalOf(err, 0))
	case !proposed:
		success(r)
	}
}

// adoptLocks puts what was granted before locks were replicated into the tables. What fails is done at the next request.
func (b *Broker) adoptLocks() {
	if b.cfg.Tables.Level() < replicatedLocks || b.cfg.Tables.AllQueueLocks() {
		return
	}
	if _, err := b.cfg.Groups.RecordLocks(func(all []group.Lock) error {
		return b.proposeTable(command.KindQueueLocksAdopt, command.QueueLocksAdopt{Locks: b.byOwner(all)}, b.recorded)
	}); err != nil {
		b.logger.Debug("queue locks were not adopted, the next request tries again", "error", err)
	}
}

// expireLocks forgets owners that have been silent for a lease.
func (b *Broker) expireLocks() {
	if !b.beginLocks() {
		return
	}
	if err := b.cfg.Groups.ExpireLocks(func(gone []group.Lock) error {
		return b.proposeTable(command.KindQueueUnlock, command.QueueUnlock{Locks: b.byOwner(gone)}, b.recorded)
	}); err != nil {
		b.logger.Debug("queue locks that ran out were not given up, it will be tried again", "error", err)
	}
}

// recorded takes the outcome of a command that nobody waits for.
func (b *Broker) recorded(err error) {
	if err != nil {
		b.resetLocks()
	}
}

// byOwner gathers locks by group and owner.
func (b *Broker) byOwner(locks []group.Lock) (out []command.QueueLock) {
	type key struct{ group, owner string }
	at := map[key]int{}
	for _, l := range locks {
		k := key{l.Group, l.Owner}
		i, ok := at[k]
		if !ok {
			i = len(out)
			at[k] = i
			out = append(out, command.QueueLock{Group: l.Group, Owner: l.Owner})
		}
		out[i].Queues = append(out[i].Queues, command.LockedQueue{QueueName: b.queueName(l.Queue)})
	}
	return out
}

// queueName and lockedQueue turn a queue as clients name it into the tables' form, and back.
func (b *Broker) queueName(q group.Queue) command.QueueName {
	name := command.QueueName{Topic: q.Topic, Broker: q.BrokerName, QueueID: q.QueueID}
	if name.Broker == b.cfg.BrokerName {
		name.Broker = ""
	}
	return name
}

func (b *Broker) lockedQueue(q command.QueueName) group.Queue {
	if q.Broker == "" {
		q.Broker = b.cfg.BrokerName
	}
	return group.Queue{Topic: q.Topic, BrokerName: q.Broker, QueueID: q.QueueID}
}

func lockQueuesOf(set []remoting.MessageQueue) []group.Queue {
	queues := make([]group.Queue, len(set))
	for i, q := range set {
		queues[i] = group.Queue{Topic: q.Topic, BrokerName: q.BrokerName, QueueID: q.QueueID}
	}
	return queues
}
