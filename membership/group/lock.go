package group

import (
	"sync"
	"time"
)

const (
	// LockLease is how long a queue stays locked after its owner's last request
	// (RocketMQ RebalanceLockManager).
	LockLease = 60 * time.Second
	// LockQuiet is how long a new leader grants nothing: a client counts on a lock for 30 s after
	// its last renewal (RocketMQ ProcessQueue), and the former leader's grants are not known here.
	LockQuiet = 30 * time.Second
)

// Queue names a queue to be locked.
type Queue struct {
	Topic      string
	BrokerName string
	QueueID    int32
}

type lock struct {
	owner string
	until time.Time
}

type locks struct {
	mu     sync.Mutex
	groups map[string]map[Queue]lock
	quiet  time.Time // before it nothing is granted
}

// BeginLockTerm starts with no locks, on gaining leadership, and grants none until quiet has
// passed; 0 when no client can still count on a lock of a former leader.
func (r *Registry) BeginLockTerm(quiet time.Duration) {
	l := &r.locks
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.groups)
	l.quiet = r.now().Add(quiet)
}

// LockQueues locks or renews queues for a client and returns those that it now owns, in the
// order asked for.
func (r *Registry) LockQueues(group, clientID string, queues []Queue) []Queue {
	l := &r.locks
	now := r.now()
	locked := make([]Queue, 0, len(queues))
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.quiet) {
		return locked
	}
	for _, q := range queues {
		have, ok := l.groups[group][q]
		if ok && have.owner != clientID && now.Before(have.until) {
			continue
		}
		if l.groups[group] == nil {
			l.groups[group] = map[Queue]lock{}
		}
		l.groups[group][q] = lock{owner: clientID, until: now.Add(LockLease)}
		locked = append(locked, q)
	}
	return locked
}

// UnlockQueues gives queues up that the client owns.
func (r *Registry) UnlockQueues(group, clientID string, queues []Queue) {
	l := &r.locks
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, q := range queues {
		if l.groups[group][q].owner == clientID {
			delete(l.groups[group], q)
		}
	}
	if len(l.groups[group]) == 0 {
		delete(l.groups, group)
	}
}

// expire forgets what has run out.
func (l *locks) expire(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for name, queues := range l.groups {
		for q, have := range queues {
			if !now.Before(have.until) {
				delete(queues, q)
			}
		}
		if len(queues) == 0 {
			delete(l.groups, name)
		}
	}
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
