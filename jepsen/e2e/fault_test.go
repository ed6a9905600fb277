package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"raftmq/jepsen"
	"raftmq/jepsen/cluster"
	"raftmq/jepsen/history"
	"raftmq/jepsen/nemesis"
	"raftmq/jepsen/workload"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// A follower refuses a write with 14 and names the leader's client address; it stores nothing.
func TestFollowerRefuses(t *testing.T) {
	parallel(t, 3)
	c := startCluster(t, cluster.Config{})
	topic := topicName(t)
	createTopic(t, c, topic, 1)
	leader := leaderOf(t, c)
	for _, n := range c.Nodes() {
		resp := invoke(t, dial(t, n.Addrs.Client), sendRequest(topic, 0, "from "+n.ID, ""))
		if n == leader {
			if resp.Code != remoting.ResponseSuccess {
				t.Errorf("the leader %s answers %d %q", n.ID, resp.Code, resp.Remark)
			}
			continue
		}
		if resp.Code != remoting.ResponseServiceNotAvailable || !strings.Contains(resp.Remark, leader.Addrs.Client) {
			t.Errorf("%s answers %d %q, want 14 with %s", n.ID, resp.Code, resp.Remark, leader.Addrs.Client)
		}
	}
	if got := maxOffset(t, dial(t, leader.Addrs.Client), topic, 0); got != 1 {
		t.Errorf("%d messages are stored, want the leader's one", got)
	}
}

// The leader is hurt under load of clients that look for the new one at once: that shows how
// long the cluster itself takes.
func TestLeaderFaults(t *testing.T) {
	long(t)
	parallel(t, 55)
	for _, name := range []string{"kill", "stop", "pause", "isolate"} {
		t.Run(name, func(t *testing.T) {
			faults, err := nemesis.Parse(name)
			if err != nil {
				t.Fatal(err)
			}
			if name == "isolate" {
				if err := namespaces(t).Close(); err != nil {
					t.Fatal(err)
				}
			}
			report := run(t, jepsen.Config{
				Faults: faults, Time: 9 * time.Second, Seed: 1, LeaderShare: 1,
				Hold: [2]time.Duration{4 * time.Second, 4 * time.Second}, Quiet: [2]time.Duration{time.Second, time.Second},
				Workload: workload.Config{Client: workload.Raw, Rate: 1000},
			})
			if len(report.Faults) == 0 {
				t.Fatal("no fault was injected")
			}
			// Elections take well under 2 s; the rest is the raw client's own timeout of 3 s at a paused node.
			limit := bound(4 * time.Second)
			if name == "pause" || name == "isolate" {
				limit += 3 * time.Second
			}
			for _, g := range report.Gaps {
				if g.Length > limit {
					t.Errorf("%s %s: %v without an acknowledged send, want at most %v", g.Fault, g.Node, g.Length, limit)
				}
			}
		})
	}
}

// The same with the stock client, whose producers poll routes every 30 s.
func TestLeaderFaultsStockClient(t *testing.T) {
	long(t)
	parallel(t, 65)
	faults, err := nemesis.Parse("kill,pause,isolate")
	if err != nil {
		t.Fatal(err)
	}
	report := run(t, jepsen.Config{
		Faults: faults, Time: 40 * time.Second, Seed: 2, LeaderShare: 1,
		Hold: [2]time.Duration{5 * time.Second, 6 * time.Second}, Quiet: [2]time.Duration{4 * time.Second, 5 * time.Second},
		Workload: workload.Config{Client: workload.Stock, Rate: 500},
	})
	if want := len(faults) - len(report.Skipped); len(report.Faults) < want {
		t.Errorf("%d faults, want at least %d", len(report.Faults), want)
	}
}

// Each node in turn ends gracefully and comes back, then each is killed and comes back.
func TestRestartEachNodeUnderLoad(t *testing.T) {
	long(t)
	parallel(t, 11)
	run(t, jepsen.Config{
		Workload: workload.Config{Client: workload.Raw, Rate: 1500},
		Do: func(ctx context.Context, c *cluster.Cluster, rec *history.Recorder) error {
			for _, end := range []string{"stop", "kill"} {
				for _, n := range c.Nodes() {
					op := rec.Begin(history.Op{Kind: history.Fault, Process: "nemesis", Fault: end, Node: n.ID, Queue: -1, Offset: -1})
					err := restart(ctx, c, n, end)
					op.Outcome = history.OK
					rec.End(op)
					if err != nil {
						return err
					}
				}
			}
			return nil
		},
	})
}

func restart(ctx context.Context, c *cluster.Cluster, n *cluster.Node, end string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	err := errors.New("unknown end")
	switch end {
	case "stop":
		err = n.Stop(ctx)
	case "kill":
		err = n.Kill()
	}
	if err == nil {
		err = n.Start()
	}
	if err == nil {
		_, err = c.WaitServing(ctx)
	}
	if err == nil {
		// The next one only when this one has caught up, as an operator would do it.
		_, err = n.WaitStatus(ctx, "catching up", func(st remoting.NodeStatus) bool { return st.AppliedIndex >= st.CommitIndex && st.CommitIndex > 0 })
	}
	return err
}

// F61: after a full stop the nodes start in all six orders; a leader is there within 10 s of the
// second node, with topics, offsets and messages.
func TestF61_StartOrders(t *testing.T) {
	long(t)
	parallel(t, 32)
	c := startCluster(t, cluster.Config{})
	topic := topicName(t)
	createTopic(t, c, topic, 3)
	stored := 0
	for round, order := range [][3]int{{1, 2, 3}, {1, 3, 2}, {2, 1, 3}, {2, 3, 1}, {3, 1, 2}, {3, 2, 1}} {
		leader := serving(t, c)
		lc := dial(t, leader.Addrs.Client)
		for range 10 {
			if resp := invoke(t, lc, sendRequest(topic, 1, fmt.Sprint("m-", stored), "")); resp.Code != 0 {
				t.Fatalf("send: %d %s", resp.Code, resp.Remark)
			}
			stored++
		}
		commit := request(remoting.RequestUpdateConsumerOffset, nil, "consumerGroup", "g", "topic", topic, "queueId", "1", "commitOffset", fmt.Sprint(stored-5))
		if resp := invoke(t, lc, commit); resp.Code != 0 {
			t.Fatalf("commit offset: %d %s", resp.Code, resp.Remark)
		}
		eventually(t, 30*time.Second, "the offset's commit", func() bool { return consumerOffset(t, lc, "g", topic, 1) == int64(stored-5) })
		stopAll(t, c)
		start := func(i int) *cluster.Node {
			n := c.Nodes()[i-1]
			if err := n.Start(); err != nil {
				t.Fatal(err)
			}
			return n
		}
		first := start(order[0])
		// Alone it answers and leads nothing.
		st, err := first.WaitStatus(withTimeout(t, time.Minute), "an answer", func(remoting.NodeStatus) bool { return true })
		if err != nil {
			t.Fatal(err)
		}
		if st.Ready || st.Role == "leader" {
			t.Errorf("order %v: %s leads alone: %+v", order, first.ID, st)
		}
		start(order[1])
		limit := bound(10 * time.Second)
		leader, err = c.Leader(withTimeout(t, limit))
		if err != nil {
			t.Fatalf("order %v: no leader within %v of the second node: %v", order, limit, err)
		}
		lc = dial(t, leader.Addrs.Client)
		if got := maxOffset(t, lc, topic, 1); got != int64(stored) {
			t.Errorf("order %v: max offset %d, want %d", order, got, stored)
		}
		if got := consumerOffset(t, lc, "g", topic, 1); got != int64(stored-5) {
			t.Errorf("order %v: consumer offset %d, want %d", order, got, stored-5)
		}
		n, err := workload.ReadQueue(t.Context(), lc, "g", topic, 1, func(d workload.Delivery) {})
		if err != nil || n != stored {
			t.Errorf("order %v, round %d: read %d messages of %d: %v", order, round, n, stored, err)
		}
		start(order[2])
	}
	serving(t, c)
	sts, err := c.WaitConverged(withTimeout(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	sameLogs(t, sts)
}

// consumerOffset is a group's committed offset, -1 for none.
func consumerOffset(t *testing.T, c *client.Client, group, topic string, queue int) int64 {
	t.Helper()
	resp := invoke(t, c, request(remoting.RequestQueryConsumerOffset, nil, "consumerGroup", group, "topic", topic, "queueId", strconv.Itoa(queue)))
	if resp.Code != 0 {
		return -1
	}
	return number(t, resp, "offset")
}

func stopAll(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	ctx := withTimeout(t, 60*time.Second)
	ends := make(chan error, len(c.Nodes()))
	for _, n := range c.Nodes() {
		go func() { ends <- n.Stop(ctx) }()
	}
	for range c.Nodes() {
		if err := <-ends; err != nil {
			t.Fatal(err)
		}
	}
}

func sameLogs(t *testing.T, sts []remoting.NodeStatus) {
	t.Helper()
	for _, st := range sts {
		if st.LogMax != sts[0].LogMax || st.LogChecksum != sts[0].LogChecksum {
			t.Errorf("%s has a log of %d bytes, checksum %s; %s %d, %s", st.NodeID, st.LogMax, st.LogChecksum, sts[0].NodeID, sts[0].LogMax, sts[0].LogChecksum)
		}
	}
}

// F05: what a cut-off leader takes in and does not commit is never visible, and an offset's
// value never changes, through kill, a start alone, and the meeting with its peers.
func TestF05_NothingUncommittedIsVisible(t *testing.T) {
	long(t)
	parallel(t, 18)
	if err := namespaces(t).Close(); err != nil {
		t.Fatal(err)
	}
	topic := topicName(t)
	run(t, jepsen.Config{
		Workload: workload.Config{Topic: topic, Client: workload.Raw, Rate: 800},
		Do: func(ctx context.Context, c *cluster.Cluster, rec *history.Recorder) error {
			return f05(ctx, t, c, rec, topic)
		},
	})
}

func f05(ctx context.Context, t *testing.T, c *cluster.Cluster, rec *history.Recorder, topic string) error {
	ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
	defer cancel()
	old, err := c.Leader(ctx)
	if err != nil {
		return err
	}
	// A consumer that stays with the old leader, whatever it shows.
	var queues []int32
	for q := range int32(8) {
		queues = append(queues, q)
	}
	watcher := workload.NewRawConsumer([]string{old.Addrs.Client}, 0, "watch-old-leader", topic, queues, func(d workload.Delivery) {
		rec.Add(history.Op{Kind: history.Receive, Process: "watcher", Group: "watch-old-leader", Outcome: history.OK,
			Value: d.Value, UniqKey: d.UniqKey, Topic: topic, Queue: d.Queue, Offset: d.Offset, Node: d.Node, Size: d.Size, Sum: d.Sum})
	})
	defer watcher.Close()
	op := rec.Begin(history.Op{Kind: history.Fault, Process: "nemesis", Fault: "isolate, kill, start alone, heal", Node: old.ID, Queue: -1, Offset: -1})
	defer func() { op.Outcome = history.OK; rec.End(op) }()
	if err := cluster.Isolate(c.Network(), old.Index, len(c.Nodes()), false); err != nil {
		return err
	}
	if n := sendTo(ctx, rec, old, topic, 5*time.Second); n > 0 {
		return fmt.Errorf("%s acknowledged %d sends without its peers", old.ID, n)
	}
	if err := old.Kill(); err != nil {
		return err
	}
	if err := old.Start(); err != nil {
		return err
	}
	alone, err := old.WaitStatus(ctx, "an answer", func(remoting.NodeStatus) bool { return true })
	if err != nil {
		return err
	}
	if alone.Ready {
		return fmt.Errorf("%s takes writes alone", old.ID)
	}
	if n := sendTo(ctx, rec, old, topic, 2*time.Second); n > 0 {
		return fmt.Errorf("%s acknowledged %d sends alone after its restart", old.ID, n)
	}
	if err := cluster.Heal(c.Network(), len(c.Nodes())); err != nil {
		return err
	}
	if _, err = c.WaitServing(ctx); err == nil {
		// Load goes on for a moment with all nodes.
		time.Sleep(2 * time.Second)
	}
	return err
}

// sendTo sends straight to a node for a while from four goroutines and returns how many were acknowledged. Every one
// is in the history.
func sendTo(ctx context.Context, rec *history.Recorder, n *cluster.Node, topic string, d time.Duration) int {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	counts := make(chan int, 4)
	for g := range 4 {
		go func() {
			acked := 0
			defer func() { counts <- acked }()
			c, err := n.Dial(ctx)
			if err != nil {
				return
			}
			defer func() { c.Close() }()
			for i := 0; ctx.Err() == nil; i++ {
				process := fmt.Sprintf("direct-%d-%d", n.Starts(), g)
				m := workload.NewMessage(fmt.Sprintf("%s-%d", process, i), 200)
				op := rec.Begin(history.Op{Kind: history.Send, Process: process, Value: m.Value, Topic: topic, Queue: -1, Offset: -1, Attempts: 1})
				resp, err := c.Invoke(ctx, sendRequest(topic, i%8, string(m.Body), "UNIQ_KEY\x01"+m.Value))
				switch {
				case err != nil:
					op.Error = err.Error()
					time.Sleep(10 * time.Millisecond)
					// A node without a majority closes connections: the next attempt has a new one.
					if again, derr := n.Dial(ctx); derr == nil {
						_ = c.Close()
						c = again
					}
				case resp.Code != 0:
					op.Error = fmt.Sprint(resp.Code, " ", resp.Remark)
					time.Sleep(10 * time.Millisecond)
				default:
					acked++
				}
				rec.End(op)
			}
		}()
	}
	total := 0
	for range 4 {
		total += <-counts
	}
	return total
}
