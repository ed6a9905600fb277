package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"raftmq/jepsen/cluster"
	"raftmq/transport/remoting"
)

// handOver is how many messages back an offset may go: a consumer that was given a queue before its former one had told what it had consumed commits behind it, and the
// last one that commits counts, as in RocketMQ. A queue gets one message in 2 s.
const handOver = 5

// TestF75_CrowdOfConsumers: 200 consumers of one group start at once, then 100 of them are killed. Each time the queues are soon divided for good, and no offset of
// the group is reset.
func TestF75_CrowdOfConsumers(t *testing.T) {
	long(t)
	parallelHeavy(t, 14, 2)
	const queues, crowd = 220, 100
	c := startCluster(t, cluster.Config{})
	g := newConsumerGroup(t, c, "crowd", queues, 2*time.Second)
	names := func(prefix string) (out []string) {
		for i := range crowd {
			out = append(out, fmt.Sprintf("%s-%02d", prefix, i))
		}
		return out
	}
	// Divided: for 5 s each queue was consumed, by one consumer, and all consumers of the group had some.
	divided := func(consumers int) func() bool {
		return func() bool {
			now := g.since(time.Now().Add(-5 * time.Second))
			busy := map[string]bool{}
			for _, who := range now {
				if len(who) != 1 {
					return false
				}
				busy[who[0]] = true
			}
			return len(now) == queues && len(busy) == consumers
		}
	}
	watching, stop := context.WithCancel(t.Context())
	watched := make(chan struct{})
	back := 0
	go func() {
		defer close(watched)
		back = watchOffsets(watching, t, c, "g-"+g.topic, g.topic)
	}()

	began := time.Now()
	g.startProcess("a", false, names("a")...)
	b := g.startProcess("b", false, names("b")...)
	eventually(t, 3*time.Minute, "200 consumers share the queues", divided(2*crowd))
	started := time.Since(began)
	killed := time.Now()
	g.kill(b)
	eventually(t, 3*time.Minute, "100 consumers share the queues", divided(crowd))
	left := time.Since(killed)
	stop()
	<-watched
	t.Logf("divided for 5 s: %.1f s after the start of 200 consumers, %.1f s after the end of 100; %d offsets went back by no more than %d messages", started.Seconds(), left.Seconds(), back, handOver)
	// What the killed ones had not committed comes again; everything comes.
	g.stop()
	want := 0
	for _, n := range g.sent {
		want += n
	}
	eventually(t, 3*time.Minute, "all messages handled", func() bool { return g.distinct() >= want })
}

// watchOffsets asks for a group's offsets again and again: none is reset. It returns how often one was lower than before.
func watchOffsets(ctx context.Context, t *testing.T, c *cluster.Cluster, group, topic string) (back int) {
	last := map[int32]int64{}
	for sleep(ctx, 500*time.Millisecond) == nil {
		leader, err := c.Leader(ctx)
		if err != nil {
			continue
		}
		k, err := leader.Dial(ctx)
		if err != nil {
			continue
		}
		resp, err := k.Invoke(ctx, request(remoting.RequestGetConsumeStats, nil, "consumerGroup", group, "topic", topic))
		_ = k.Close()
		if err != nil || resp.Code != 0 {
			continue
		}
		var stats remoting.ConsumeStats
		if err := stats.Decode(resp.Body); err != nil {
			t.Error(err)
			return back
		}
		for _, q := range stats.OffsetTable {
			if q.ConsumerOffset < last[q.Queue.QueueID]-handOver {
				t.Errorf("queue %d: offset %d after %d", q.Queue.QueueID, q.ConsumerOffset, last[q.Queue.QueueID])
			}
			if q.ConsumerOffset < last[q.Queue.QueueID] {
				back++
			}
			last[q.Queue.QueueID] = q.ConsumerOffset
		}
	}
	return back
}
