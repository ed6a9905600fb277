package group

import (
	"sync"
	"time"

	"raftmq/seam"
)

const (
	// LockLease is how long a queue stays locked after its owner's last request
	// (RocketMQ RebalanceLockManager).
	LockLease = 60 * time.Second
	// LockQuiet is how long a new leader grants nothing when it cannot know all that the former one granted: a client counts
	// on a lock for 30 s after its last renewal (RocketMQ ProcessQueue).
	LockQuiet = 30 * time.Second
)

// Queue names a queue to be locked.
type Queue struct {
	Topic      string
	BrokerName string
	QueueID    int32
}

// Lock is a queue that a consumer of a group owns, or is to own.
type Lock struct {
	Group, Owner string
	Queue        Queue
	// From is the owner that a new one replaces, as its lease has run out.
	From string
}

// lease is a lock as the leader sees it. Time is its own, since its leadership began: replicas do not compare clocks.
type lease struct {
	owner    string
	until    time.Time
	recorded bool // it was handed to a recorder
}

// locks are the leader's leases. The recorders that its methods take are called with mu held, so that what is recorded is recorded in the order in
// which it was decided; they must be quick and must not call back. What a recorder refuses does not happen.
type locks struct {
	mu     sync.Mutex
	groups map[string]map[Queue]lease
	quiet  time.Time // before it nothing is granted
}

// BeginLockTerm starts a leadership: each of the recorded owners has a whole lease from now on, since none can have been renewed later than
// this. Nothing is granted until quiet has passed; 0 if owners are all that clients may count on.
func (r *Registry) BeginLockTerm(quiet time.Duration, owners []Lock) {
	l := &r.locks
	now := r.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.groups)
	l.quiet = now.Add(quiet)
	for _, o := range owners {
		l.putLocked(o.Group, o.Queue, lease{o.Owner, now.Add(LockLease), true})
	}
}

func (l *locks) putLocked(group string, q Queue, have lease) {
	if l.groups[group] == nil {
		l.groups[group] = map[Queue]lease{}
	}
	l.groups[group][q] = have
}

// LockQueues locks or renews queues for a client and returns those that it now owns, in the order asked for. record, if not nil, gets them
// too, unless there are none, and those of them that were not recorded as the client's yet; its error is returned.
func (r *Registry) LockQueues(group, clientID string, queues []Queue, record func(locked []Queue, take []Lock) error) ([]Queue, error) {
	l := &r.locks
	now := r.now()
	locked := make([]Queue, 0, len(queues))
	var take []Lock
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.quiet) {
		return locked, nil
	}
	for _, q := range queues {
		have, ok := l.groups[group][q]
		if ok && have.owner != clientID && now.Before(have.until) && !seam.On(seam.TwoOwners) {
			continue
		}
		locked = append(locked, q)
		switch {
		case !ok || !have.recorded:
			take = append(take, Lock{Group: group, Owner: clientID, Queue: q})
		case have.owner != clientID:
			take = append(take, Lock{Group: group, Owner: clientID, Queue: q, From: have.owner})
		}
	}
	if record != nil && len(locked) > 0 {
		if err := record(locked, take); err != nil {
			return nil, err
		}
	}
	for _, q := range locked {
		recorded := record != nil || l.groups[group][q].recorded && l.groups[group][q].owner == clientID
		l.putLocked(group, q, lease{clientID, now.Add(LockLease), recorded})
	}
	return locked, nil
}

// ExtendLocks begins the leases of queues that LockQueues has recorded anew, before their owner is told, and returns those that the client still owns. owner
// says who is recorded by now. agree is false if the leases say something else than the records, which is to be mended with BeginLockTerm.
func (r *Registry) ExtendLocks(group, clientID string, queues []Queue, owner func(Queue) string) (owned []Queue, agree bool) {
	l := &r.locks
	now := r.now()
	owned, agree = make([]Queue, 0, len(queues)), true
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range queues {
		have, ok := l.groups[group][q]
		switch {
		case !ok || have.owner != clientID: // given up or lost since
		case owner(q) != clientID:
			agree = false
		default:
			l.putLocked(group, q, lease{clientID, now.Add(LockLease), true})
			owned = append(owned, q)
		}
	}
	return owned, agree
}

// UnlockQueues gives queues up that the client owns. record, if not nil, gets those that were recorded, if there are any; its error is returned.
func (r *Registry) UnlockQueues(group, clientID string, queues []Queue, record func(gone []Lock) error) error {
	l := &r.locks
	l.mu.Lock()
	defer l.mu.Unlock()
	var gone []Lock
	for _, q := range queues {
		if have, ok := l.groups[group][q]; ok && have.owner == clientID {
			gone = append(gone, Lock{Group: group, Owner: clientID, Queue: q})
		}
	}
	return l.removeLocked(gone, record)
}

// ExpireLocks gives up what has run out, as UnlockQueues does. To be called every 10 s or so.
func (r *Registry) ExpireLocks(record func(gone []Lock) error) error {
	l := &r.locks
	now := r.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	var gone []Lock
	for name, queues := range l.groups {
		for q, have := range queues {
			if !now.Before(have.until) {
				gone = append(gone, Lock{Group: name, Owner: have.owner, Queue: q})
			}
		}
	}
	return l.removeLocked(gone, record)
}

func (l *locks) removeLocked(gone []Lock, record func([]Lock) error) error {
	var recorded []Lock
	for _, g := range gone {
		if l.groups[g.Group][g.Queue].recorded {
			recorded = append(recorded, g)
		}
	}
	if record != nil && len(recorded) > 0 {
		if err := record(recorded); err != nil {
			return err
		}
	}
	for _, g := range gone {
		delete(l.groups[g.Group], g.Queue)
		if len(l.groups[g.Group]) == 0 {
			delete(l.groups, g.Group)
		}
	}
	return nil
}

// RecordLocks hands all locks that were not recorded to record, once every lock that a client may count on is known: not
// before quiet has passed. It reports whether record was called.
func (r *Registry) RecordLocks(record func(all []Lock) error) (bool, error) {
	l := &r.locks
	now := r.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.quiet) {
		return false, nil
	}
	var all []Lock
	for name, queues := range l.groups {
		for q, have := range queues {
			if !have.recorded && now.Before(have.until) {
				all = append(all, Lock{Group: name, Owner: have.owner, Queue: q})
			}
		}
	}
	if err := record(all); err != nil {
		return false, err
	}
	for _, a := range all {
		have := l.groups[a.Group][a.Queue]
		have.recorded = true
		l.groups[a.Group][a.Queue] = have
	}
	return true, nil
}

func (l *locks) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, g := range l.groups {
		n += len(g)
	}
	return n
}
