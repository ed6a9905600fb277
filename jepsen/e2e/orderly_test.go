package e2e

import (
	"slices"
	"syscall"
	"testing"
	"time"

	"raftmq/jepsen/cluster"
	"raftmq/transport/remoting"
)

// TestF79_OrderlyConsumers: Apache's orderly consumers, each a process of its own, while the leader is killed and consumers are stopped for 35 and for more than
// 60 s: each key's order holds, a queue never has two owners, and consumption goes on. A new leader keeps nobody waiting who owns a queue.
func TestF79_OrderlyConsumers(t *testing.T) {
	long(t)
	parallel(t, 95)
	c := startCluster(t, cluster.Config{})
	calm := newConsumerGroup(t, c, "calm", 6, 100*time.Millisecond)   // its consumer only sees a new leader
	taken := newConsumerGroup(t, c, "taken", 4, 100*time.Millisecond) // its consumer is stopped for longer than a lease, and others come
	alone := newConsumerGroup(t, c, "alone", 2, 100*time.Millisecond) // its consumer is stopped for less than a lease
	calm.start("calm")
	stopped, lonely := taken.start("stopped"), alone.start("lonely")
	began := time.Now()
	eventually(t, 2*time.Minute, "consumption of all queues", func() bool { return calm.all(began) && taken.all(began) && alone.all(began) })

	stop := taken.halt(stopped)
	lonelyStop := alone.halt(lonely)
	taken.start("a")
	taken.start("b")
	old := leaderOf(t, c)
	if err := old.Kill(); err != nil {
		t.Fatal(err)
	}
	killed := time.Now()
	leader := serving(t, c)
	// The new leader knows who owns what: it renews at once for an owner, and has nothing for a stranger.
	lockAt := func(client string, q int32) bool {
		in := remoting.LockBatchRequest{ClientID: client, ConsumerGroup: "g-" + taken.topic, MQSet: []remoting.MessageQueue{{Topic: taken.topic, BrokerName: brokerName(t, leader), QueueID: q}}}
		resp := invoke(t, dial(t, leader.Addrs.Client), request(remoting.RequestLockBatchMQ, in.Encode()))
		var out remoting.LockBatchResponse
		if err := out.Decode(resp.Body); resp.Code != 0 || err != nil {
			t.Fatalf("lock: %d %s, %v", resp.Code, resp.Remark, err)
		}
		return len(out.LockOKMQSet) == 1
	}
	for q := range int32(4) {
		if lockAt("stranger", q) {
			t.Errorf("the new leader gave queue %d, which a consumer owns, to a stranger", q)
		}
	}
	for range 2 { // and then it is the owner
		if !lockAt("stranger", 99) {
			t.Error("the new leader did not lock a queue that nobody owns")
		}
	}
	eventually(t, 2*time.Minute, "all queues of running consumers again", func() bool { return calm.all(killed) })
	length, queue := calm.gap(killed)
	t.Logf("leader killed: %.1f s later all queues were consumed again; longest gap %.1f s, of queue %d (a pull of a Go client that waits at a killed node ends after 30 s)",
		time.Since(killed).Seconds(), length.Seconds(), queue)
	if err := old.Start(); err != nil {
		t.Fatal(err)
	}

	_ = sleep(t.Context(), time.Until(lonelyStop.Add(35*time.Second)))
	lonelyAgain := time.Now()
	alone.signal(lonely, syscall.SIGCONT)
	eventually(t, 2*time.Minute, "consumption by one that was stopped for 35 s", func() bool { return alone.all(lonelyAgain) })
	t.Logf("stopped for 35 s: all queues again after %.1f s", time.Since(lonelyAgain).Seconds())

	// Queues of a stopped consumer go to others when they are assigned to them and its lease is over.
	eventually(t, 150*time.Second, "a queue taken from the stopped consumer", func() bool {
		for _, owners := range taken.since(stop.Add(time.Second)) {
			if slices.ContainsFunc(owners, func(name string) bool { return name != stopped.name }) {
				return true
			}
		}
		return false
	})
	again := time.Now()
	if d := again.Sub(stop); d < 30*time.Second {
		t.Errorf("a queue was taken %v after its owner was stopped: it may count on it for 30 s", d)
	}
	t.Logf("a queue was taken over %.1f s after its owner was stopped", again.Sub(stop).Seconds())
	taken.signal(stopped, syscall.SIGCONT)
	eventually(t, 120*time.Second, "all queues consumed", func() bool { return taken.all(again) })

	span := stopSpan{stopped.name, stop, again}
	calm.finish()
	taken.finish(span)
	alone.finish(stopSpan{lonely.name, lonelyStop, lonelyAgain})
}
