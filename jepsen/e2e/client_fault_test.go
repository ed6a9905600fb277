package e2e

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/jepsen"
	"raftmq/jepsen/checker"
	"raftmq/jepsen/cluster"
	"raftmq/jepsen/nemesis"
	"raftmq/jepsen/workload"
	"raftmq/transport/remoting"
)

// F11: a leader is cut off while consumers commit offsets to its successor; it comes back and leads again, and is never behind what was
// committed last: no group replays what it has consumed.
func TestF11_OffsetsAcrossFailover(t *testing.T) {
	long(t)
	parallel(t, 21)
	c := startCluster(t, cluster.Config{Network: namespaces(t)})
	topic := topicName(t)
	createTopic(t, c, topic, 1)
	cut := 8 * time.Second
	if extended() {
		cut = 10 * time.Minute
	}
	ctx := withTimeout(t, cut+3*time.Minute)
	first := leaderOf(t, c)

	// Commits one offset after the other, each to whoever leads, and keeps the newest that was acknowledged.
	var acked atomic.Int64
	committing, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for next := int64(1); committing.Err() == nil; next++ {
			for committing.Err() == nil && !commitOnce(ctx, c, topic, next) {
				_ = sleep(committing, 50*time.Millisecond)
			}
			if committing.Err() == nil {
				acked.Store(next)
			}
			_ = sleep(committing, 5*time.Millisecond)
		}
	}()
	defer func() { stop(); <-done }()
	eventually(t, time.Minute, "offsets", func() bool { return acked.Load() > 20 })
	if err := cluster.Isolate(c.Network(), first.Index, 3, true); err != nil {
		t.Fatal(err)
	}
	before := acked.Load()
	if err := sleep(ctx, cut); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "offsets at another leader", func() bool { return acked.Load() > before+20 })
	if err := cluster.Heal(c.Network(), 3); err != nil {
		t.Fatal(err)
	}
	second := serving(t, c)
	if second == first {
		t.Fatal("nobody took over")
	}
	// It may have to catch up before leadership can be handed to it.
	eventually(t, time.Minute, "leadership to be handed back", func() bool {
		actx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return second.Admin(actx, remoting.RequestTransferLeadership, remoting.TransferRequest{To: first.ID}, nil) == nil
	})
	eventually(t, time.Minute, "the first one to lead", func() bool {
		st, err := first.Status(ctx)
		return err == nil && st.Ready
	})
	least := acked.Load()
	if got := consumerOffset(t, dial(t, first.Addrs.Client), "g", topic, 0); got < least {
		t.Errorf("the offset at %s is %d, %d was acknowledged before it was asked", first.ID, got, least)
	}
	t.Logf("%d offsets before the cut, %d when it was over", before, least)
}

// commitOnce commits an offset at the leader, and reports whether that was acknowledged.
func commitOnce(ctx context.Context, c *cluster.Cluster, topic string, offset int64) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	leader, err := c.Leader(ctx)
	if err != nil {
		return false
	}
	conn, err := leader.Dial(ctx)
	if err != nil {
		return false
	}
	defer conn.Close()
	resp, err := conn.Invoke(ctx, request(remoting.RequestUpdateConsumerOffset, nil, "consumerGroup", "g", "topic", topic, "queueId", "0", "commitOffset", strconv.FormatInt(offset, 10)))
	return err == nil && resp.Code == 0
}

// F87: clients wait 200 ms for an answer and send again, while leaders are paused and killed. What they stored twice is theirs: copies share a
// UNIQ_KEY, are no more than attempts, and are told; first copies keep their order.
func TestF87_AmbiguousSends(t *testing.T) {
	long(t)
	parallel(t, 23)
	faults, err := nemesis.Parse("pause,kill")
	if err != nil {
		t.Fatal(err)
	}
	report := run(t, jepsen.Config{
		Faults: faults, Time: 20 * time.Second, Seed: 87, LeaderShare: 1,
		Hold: [2]time.Duration{2 * time.Second, 3 * time.Second}, Quiet: [2]time.Duration{time.Second, time.Second},
		Workload: workload.Config{Client: workload.Raw, Rate: 600, SendTimeout: 200 * time.Millisecond},
	})
	duplicates := checker.Result{}
	for _, r := range report.Results {
		if r.Name == "duplicates" {
			duplicates = r
		}
	}
	if len(report.Faults) < 2 || duplicates.Name == "" {
		t.Fatalf("%d faults, %+v", len(report.Faults), duplicates)
	}
	t.Logf("%d of %d messages: %s", duplicates.Count, report.Acked, duplicates.Summary)
}
