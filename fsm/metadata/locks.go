package metadata

import (
	"cmp"
	"maps"
	"slices"

	"raftmq/fsm/command"
)

// queueLocks says which consumer of a group owns a queue. There is no time in it: that an owner was silent for too long is for the
// leader to say, in the command that names a new one.
type queueLocks struct {
	owners map[string]map[command.QueueName]string // by group
	all    bool                                    // every lock that a client may count on is here
}

// take gives queues to owners where they have none, or the one that the entry names.
func (l *queueLocks) take(locks []command.QueueLock) {
	for _, lock := range locks {
		for _, q := range lock.Queues {
			owner, ok := l.owners[lock.Group][q.QueueName]
			if ok && owner != q.From {
				continue
			}
			if l.owners[lock.Group] == nil {
				l.owners[lock.Group] = map[command.QueueName]string{}
			}
			l.owners[lock.Group][q.QueueName] = lock.Owner
		}
	}
}

// list returns the locks by group and owner, queues sorted.
func (l *queueLocks) list() (locks []command.QueueLock) {
	for _, group := range slices.Sorted(maps.Keys(l.owners)) {
		byOwner := map[string][]command.LockedQueue{}
		for q, owner := range l.owners[group] {
			byOwner[owner] = append(byOwner[owner], command.LockedQueue{QueueName: q})
		}
		for _, owner := range slices.Sorted(maps.Keys(byOwner)) {
			slices.SortFunc(byOwner[owner], func(a, b command.LockedQueue) int {
				return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Broker, b.Broker), cmp.Compare(a.QueueID, b.QueueID))
			})
			locks = append(locks, command.QueueLock{Group: group, Owner: owner, Queues: byOwner[owner]})
		}
	}
	return locks
}

// LockQueues makes a consumer the owner of queues. What another owns than the command says is passed over: see QueueLockOwner.
func (t *Tables) LockQueues(l command.QueueLock) error {
	if len(l.Queues) == 0 {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.locks.take([]command.QueueLock{l})
	return nil
}

// UnlockQueues takes queues away from those who own them.
func (t *Tables) UnlockQueues(u command.QueueUnlock) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, lock := range u.Locks {
		queues := t.locks.owners[lock.Group]
		for _, q := range lock.Queues {
			if owner, ok := queues[q.QueueName]; ok && owner == lock.Owner {
				delete(queues, q.QueueName)
			}
		}
		if queues != nil && len(queues) == 0 {
			delete(t.locks.owners, lock.Group)
		}
	}
	return nil
}

// AdoptQueueLocks takes in locks of before they were replicated. From here on the tables have all.
func (t *Tables) AdoptQueueLocks(a command.QueueLocksAdopt) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.locks.take(a.Locks)
	t.locks.all = true
	return nil
}

// QueueLockOwner is the consumer that owns a queue in a group; empty for none.
func (t *Tables) QueueLockOwner(group string, q command.QueueName) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.locks.owners[group][q]
}

// QueueLocks lists who owns which queues. all is false as long as clients may count on locks that are not in the tables.
func (t *Tables) QueueLocks() (locks []command.QueueLock, all bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.locks.list(), t.locks.all
}

// AllQueueLocks is the second result of QueueLocks.
func (t *Tables) AllQueueLocks() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.locks.all
}
