package broker

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"raftmq/fsm/command"
	"raftmq/fsm/raftnode"
	"raftmq/membership/group"
	"raftmq/transport/remoting"
)

const lockCode, unlockCode = remoting.RequestLockBatchMQ, remoting.RequestUnlockBatchMQ

func expectLocked(t *testing.T, what string, got []int32, wanted ...int32) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(wanted) {
		t.Errorf("%s: %v, want %v", what, got, wanted)
	}
}

func (c *conn) lock(code int32, clientID string, queues ...int32) []int32 {
	c.t.Helper()
	in := remoting.LockBatchRequest{ClientID: clientID, ConsumerGroup: "g"}
	for _, q := range queues {
		in.MQSet = append(in.MQSet, remoting.MessageQueue{BrokerName: testBroker, QueueID: q, Topic: "T"})
	}
	r := want(c.t, c.call(code, in.Encode()), 0)
	if code == remoting.RequestUnlockBatchMQ {
		return nil
	}
	var out remoting.LockBatchResponse
	if err := out.Decode(r.Body); err != nil {
		c.t.Fatal(err)
	}
	var got []int32
	for _, q := range out.LockOKMQSet {
		got = append(got, q.QueueID)
	}
	return got
}

// TestLocks: of a cluster whose level does not allow to replicate them.
func TestLocks(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 4)
	c := n.dial()
	lock, unlock := remoting.RequestLockBatchMQ, remoting.RequestUnlockBatchMQ
	expectLocked(t, "first", c.lock(lock, "a", 0, 1), 0, 1)
	expectLocked(t, "second", c.lock(lock, "b", 0, 2), 2)
	expectLocked(t, "renewed", c.lock(lock, "a", 0), 0)
	c.lock(unlock, "b", 0) // not its own
	expectLocked(t, "still held", c.lock(lock, "b", 0))
	c.lock(unlock, "a", 0)
	expectLocked(t, "after unlock", c.lock(lock, "b", 0), 0)
	n.clock.Store(int64(group.LockLease - time.Second))
	expectLocked(t, "lease runs", c.lock(lock, "b", 1))
	n.clock.Store(int64(group.LockLease + time.Second))
	expectLocked(t, "lease is over", c.lock(lock, "b", 1), 1)

	// A new leader knows no locks, and grants none while clients may still count on the old ones.
	want(t, c.send("T", 0, "", []byte("x")), 0)
	n.raft.follow(2, testOther)
	n.raft.lead(3)
	expectLocked(t, "quiet", c.lock(lock, "c", 1))
	expectLocked(t, "quiet for the former owner too", c.lock(lock, "b", 1))
	n.clock.Add(int64(group.LockQuiet))
	expectLocked(t, "after the quiet time", c.lock(lock, "c", 1), 1)

	if n.raft.kinds[command.KindQueueLock].Load() != 0 {
		t.Error("locks were replicated")
	}
	if r := c.call(lock, nil); r.Code != 1 {
		t.Errorf("no body: %d", r.Code)
	}
}

// lockingNode is a node whose cluster replicates locks; its topic T has a message.
func lockingNode(t *testing.T) (*node, *conn) {
	n := newNode(t)
	must(n.tables.RaiseLevel(command.Raise{Level: replicatedLocks}))
	n.putTopic("T", 4)
	c := n.dial()
	expectLocked(t, "at first", c.lock(lockCode, "x", 9), 9) // all is known: there is no message
	want(t, c.send("T", 0, "", []byte("x")), 0)
	return n, c
}

// TestF79_LocksAcrossLeaders: owners stay owners under a new leader, who keeps nobody waiting, and who is silent loses its queues after a whole lease.
func TestF79_LocksAcrossLeaders(t *testing.T) {
	n, c := lockingNode(t)
	lock, unlock := lockCode, unlockCode
	expectLocked(t, "a", c.lock(lock, "a", 0, 1, 2), 0, 1, 2)
	expectLocked(t, "b", c.lock(lock, "b", 2, 3), 3)
	c.lock(unlock, "a", 2, 3)
	n.clock.Add(int64(group.LockLease - time.Second))
	n.raft.follow(2, testOther)
	n.raft.lead(3)
	expectLocked(t, "b under the new leader", c.lock(lock, "b", 0, 1, 2, 3), 2, 3)
	expectLocked(t, "a under the new leader", c.lock(lock, "a", 0, 1, 2, 3), 0, 1)
	n.clock.Add(int64(group.LockLease - time.Second))
	expectLocked(t, "a renews one", c.lock(lock, "a", 0), 0)
	expectLocked(t, "within the lease", c.lock(lock, "b", 1))
	n.clock.Add(int64(2 * time.Second))
	expectLocked(t, "a was silent about one", c.lock(lock, "b", 0, 1), 1)
	expectLocked(t, "a does not get it back", c.lock(lock, "a", 0, 1), 0)

	// Who owns what is in the tables, without those who fell silent.
	n.clock.Add(int64(group.LockLease))
	n.broker.expireLocks()
	eventually(t, "nobody owns anything", func() bool {
		locks, all := n.tables.QueueLocks()
		return len(locks) == 0 && all
	})
}

// TestF79_RenewalIsACommand: a leader that was replaced without knowing cannot renew a lock, and one whose command was not applied counts on nothing.
func TestF79_RenewalIsACommand(t *testing.T) {
	n, c := lockingNode(t)
	expectLocked(t, "a", c.lock(lockCode, "a", 0), 0)
	in := remoting.LockBatchRequest{ClientID: "a", ConsumerGroup: "g", MQSet: []remoting.MessageQueue{{BrokerName: testBroker, Topic: "T"}, {BrokerName: testBroker, Topic: "T", QueueID: 1}}}
	for _, err := range []error{raftnode.ErrLeadershipLost, fmt.Errorf("%w: it is being handed over", raftnode.ErrNotLeader)} {
		n.raft.lose.Store(&err)
		want(t, c.call(lockCode, in.Encode()), remoting.ResponseServiceNotAvailable)
		expectLocked(t, "b", c.lock(lockCode, "b", 0)) // a still owns it
		if owner := n.tables.QueueLockOwner("g", command.QueueName{Topic: "T", QueueID: 1}); owner != "" {
			t.Errorf("queue 1 belongs to %q", owner)
		}
	}
	expectLocked(t, "b gets what a failed to get", c.lock(lockCode, "b", 1), 1)
	busy := raftnode.ErrBusy
	n.raft.refuse.Store(&busy)
	want(t, c.call(lockCode, in.Encode()), remoting.ResponseSystemBusy)
	want(t, c.call(unlockCode, in.Encode()), remoting.ResponseSystemBusy)
	n.raft.refuse.Store(nil)
	expectLocked(t, "a still owns its queue", c.lock(lockCode, "a", 0, 1), 0)
	before := n.raft.kinds[command.KindQueueLock].Load()
	expectLocked(t, "a renews", c.lock(lockCode, "a", 0, 1), 0)
	if got := n.raft.kinds[command.KindQueueLock].Load(); got != before+1 {
		t.Errorf("a renewal was %d commands", got-before)
	}
}

// TestF79_RaisedLevel: locks of before the cluster's level was raised count under the next leader too.
func TestF79_RaisedLevel(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 4)
	c := n.dial()
	want(t, c.send("T", 0, "", []byte("x")), 0)
	expectLocked(t, "a", c.lock(lockCode, "a", 0), 0)
	expectLocked(t, "b", c.lock(lockCode, "b", 1), 1)
	must(n.tables.RaiseLevel(command.Raise{Level: replicatedLocks}))
	expectLocked(t, "c", c.lock(lockCode, "c", 0, 2), 2)
	eventually(t, "the tables have all", n.tables.AllQueueLocks)
	expectLocked(t, "a renews", c.lock(lockCode, "a", 0), 0)
	n.raft.follow(2, testOther)
	n.raft.lead(3)
	expectLocked(t, "c after a new leader", c.lock(lockCode, "c", 0, 1, 2, 3), 2, 3)
	expectLocked(t, "b", c.lock(lockCode, "b", 0, 1, 2, 3), 1)

	// A leader that begins when not all are in the tables waits.
	young := newNode(t)
	young.putTopic("T", 4)
	yc := young.dial()
	want(t, yc.send("T", 0, "", []byte("x")), 0)
	expectLocked(t, "a", yc.lock(lockCode, "a", 0), 0)
	young.raft.follow(2, testOther)
	must(young.tables.RaiseLevel(command.Raise{Level: replicatedLocks}))
	young.raft.lead(3)
	expectLocked(t, "quiet", yc.lock(lockCode, "b", 0))
	young.clock.Add(int64(group.LockQuiet))
	expectLocked(t, "after it", yc.lock(lockCode, "b", 0), 0)
	eventually(t, "the tables have all", young.tables.AllQueueLocks)
}

// TestF79_OneOwnerUnderChange: clients lock, renew and unlock while leadership comes and goes and leases run out; nobody is told that
// it owns a queue which another was told less than a client's 30 s ago.
func TestF79_OneOwnerUnderChange(t *testing.T) {
	n, _ := lockingNode(t)
	const clients, queues = 6, 4
	const maxLive = 30 * time.Second // RocketMQ ProcessQueue.REBALANCE_LOCK_MAX_LIVE_TIME
	now := func() time.Duration { return time.Duration(n.clock.Load()) }
	type belief struct { // a client's, that it owns a queue
		id        string
		from, end time.Duration
	}
	var mu sync.Mutex
	var beliefs [queues][]belief
	believe := func(q int32, now belief) {
		for _, b := range beliefs[q] {
			if b.id != now.id && b.from < now.end && now.from < b.end {
				t.Errorf("%s owns queue %d from %v to %v, and %s from %v to %v", now.id, q, now.from, now.end, b.id, b.from, b.end)
			}
		}
		beliefs[q] = append(beliefs[q], now)
	}
	giveUp := func(id string, at time.Duration) {
		for q := range beliefs {
			for i := range beliefs[q] {
				if b := &beliefs[q][i]; b.id == id {
					b.end = min(b.end, at)
				}
			}
		}
	}
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range clients {
		c, id := n.dial(), fmt.Sprint("client-", i)
		wg.Go(func() {
			for turn := 0; ; turn++ {
				select {
				case <-stop:
					return
				default:
				}
				in := remoting.LockBatchRequest{ClientID: id, ConsumerGroup: "g"}
				for q := range int32(queues) {
					in.MQSet = append(in.MQSet, remoting.MessageQueue{BrokerName: testBroker, Topic: "T", QueueID: q})
				}
				if turn%7 == 6 {
					mu.Lock()
					giveUp(id, now())
					mu.Unlock()
					c.call(unlockCode, in.Encode())
					continue
				}
				asked := now()
				r := c.call(lockCode, in.Encode())
				answered := now()
				if r.Code != 0 || answered-asked > time.Second {
					continue // the client has given the request up
				}
				var out remoting.LockBatchResponse
				must(out.Decode(r.Body))
				mu.Lock()
				for _, q := range out.LockOKMQSet {
					believe(q.QueueID, belief{id, answered, answered + maxLive})
				}
				mu.Unlock()
			}
		})
	}
	term := uint64(1)
	for i := range 60 {
		time.Sleep(2 * time.Millisecond)
		switch i % 6 {
		case 1, 4:
			n.raft.follow(term+1, testOther)
			term += 2
			n.raft.lead(term)
		case 3:
			err := raftnode.ErrLeadershipLost
			n.raft.lose.Store(&err)
		case 5:
			n.clock.Add(int64(group.LockLease + time.Second))
			n.broker.expireLocks()
		}
	}
	close(stop)
	wg.Wait()
}
