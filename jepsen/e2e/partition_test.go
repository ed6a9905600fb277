package e2e

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/jepsen"
	"raftmq/jepsen/cluster"
	"raftmq/jepsen/history"
	"raftmq/jepsen/workload"
	"raftmq/transport/remoting"
)

// needCuts skips the test where links can't be cut.
func needCuts(t *testing.T) {
	t.Helper()
	if err := namespaces(t).Close(); err != nil {
		t.Fatal(err)
	}
}

// leading is the leader and what it says of itself now.
func leading(ctx context.Context, c *cluster.Cluster) (*cluster.Node, remoting.NodeStatus, error) {
	leader, err := c.Leader(ctx)
	if err != nil {
		return nil, remoting.NodeStatus{}, err
	}
	st, err := leader.Status(ctx)
	return leader, st, err
}

// unchanged says how the leader and its term differ from before, nil if they don't.
func unchanged(ctx context.Context, leader *cluster.Node, before remoting.NodeStatus) error {
	st, err := leader.Status(ctx)
	if err != nil {
		return err
	}
	if st.Term != before.Term || !st.Ready {
		return fmt.Errorf("term %d became %d, %s is ready: %v", before.Term, st.Term, leader.ID, st.Ready)
	}
	return nil
}

// F47: a follower is cut off until it stands for election, and comes back, six times (twenty in the long form). The leader stays (pre-vote).
func TestF47_RejoinDisturbsNobody(t *testing.T) {
	long(t)
	parallel(t, 35)
	needCuts(t)
	rounds, hold := 6, 300*time.Millisecond
	if extended() {
		rounds, hold = 20, time.Minute
	}
	run(t, jepsen.Config{
		Flags:    steadyFlags(),
		Workload: workload.Config{Client: workload.Raw, Rate: 300},
		Do: func(ctx context.Context, c *cluster.Cluster, _ *history.Recorder) error {
			ctx, cancel := context.WithTimeout(ctx, 5*time.Minute+time.Duration(rounds)*hold)
			defer cancel()
			leader, before, err := leading(ctx, c)
			if err != nil {
				return err
			}
			for round := range rounds {
				n := c.Nodes()[(leader.Index+round%2)%3]
				if err := cluster.Isolate(c.Network(), n.Index, len(c.Nodes()), false); err != nil {
					return err
				}
				if _, err := n.WaitStatus(ctx, "standing for election", func(st remoting.NodeStatus) bool { return st.LeaderID == "" && st.Role == "candidate" }); err != nil {
					return err
				}
				time.Sleep(hold)
				if err := cluster.Heal(c.Network(), len(c.Nodes())); err != nil {
					return err
				}
				if _, err := c.WaitServing(ctx); err != nil {
					return err
				}
				if err := unchanged(ctx, leader, before); err != nil {
					return fmt.Errorf("round %d, %s came back: %w", round, n.ID, err)
				}
			}
			return nil
		},
	})
}

// F49: a follower and the leader don't reach each other, the third node reaches both. Writes go on, and there is at most one
// election: never a tie that goes on for as long as the cut does.
func TestF49_PartialPartition(t *testing.T) {
	long(t)
	parallel(t, 17)
	needCuts(t)
	hold := 12 * time.Second
	if extended() {
		hold = 5 * time.Minute
	}
	report := run(t, jepsen.Config{
		Flags:    steadyFlags(),
		Workload: workload.Config{Client: workload.Raw, Rate: 300},
		Do: func(ctx context.Context, c *cluster.Cluster, rec *history.Recorder) error {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Minute+hold)
			defer cancel()
			leader, before, err := leading(ctx, c)
			if err != nil {
				return err
			}
			cut := c.Nodes()[leader.Index%3]
			if err := step(rec, "cut "+cut.ID+" from", leader.ID, func() error {
				if err := cluster.Partition(c.Network(), []int{cut.Index}, []int{leader.Index}); err != nil {
					return err
				}
				if _, err := cut.WaitStatus(ctx, "losing the leader", func(st remoting.NodeStatus) bool { return st.LeaderID != leader.ID }); err != nil {
					return err
				}
				return sleep(ctx, hold)
			}); err != nil {
				return err
			}
			during, err := c.Leader(ctx)
			if err != nil {
				return err
			}
			st, err := during.Status(ctx)
			if err != nil {
				return err
			}
			if st.Term > before.Term+1 {
				return fmt.Errorf("term %d became %d while %s and %s did not reach each other: more than one election", before.Term, st.Term, cut.ID, leader.ID)
			}
			if err := cluster.Heal(c.Network(), len(c.Nodes())); err != nil {
				return err
			}
			_, err = c.WaitServing(ctx)
			return err
		},
	})
	if report.Leader.Changes > 1 {
		t.Errorf("%d changes of leader", report.Leader.Changes)
	}
	boundGap(t, report, 5*time.Second)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// A leader that is cut off, and that clients still reach, gives no authoritative answer after its lease, and certainly none when
// another one may have taken writes. It names no leader to clients and lets them go; operators are answered all the time.
func TestCutOffLeaderStopsAnswering(t *testing.T) {
	long(t)
	parallel(t, 4)
	c := startCluster(t, cluster.Config{Network: namespaces(t)})
	topic := topicName(t)
	createTopic(t, c, topic, 1)
	ctx := withTimeout(t, 3*time.Minute)
	old := leaderOf(t, c)
	if resp := invoke(t, dial(t, old.Addrs.Client), sendRequest(topic, 0, "before", "")); resp.Code != 0 {
		t.Fatalf("send: %d %s", resp.Code, resp.Remark)
	}

	// Every 5 ms a new question; what counts is when it was asked.
	var asking [2]asker
	asking[0].run(t, old, request(remoting.RequestGetMaxOffset, nil, "topic", topic, "queueId", "0"))
	asking[1].run(t, old, request(remoting.RequestGetRouteInfoByTopic, nil, "topic", topic))
	for i := range asking {
		eventually(t, 30*time.Second, "answers before the cut", func() bool { return asking[i].last.Load() != 0 })
	}
	idle := dial(t, old.Addrs.Client)
	invoke(t, idle, request(remoting.RequestGetRouteInfoByTopic, nil, "topic", topic))

	cut := time.Now()
	if err := cluster.Isolate(c.Network(), old.Index, 3, false); err != nil {
		t.Fatal(err)
	}
	var elected time.Time
	eventually(t, bound(10*time.Second), "another leader", func() bool {
		for i, r := range c.Statuses(ctx, time.Second) {
			if r.Err == nil && r.Status.Ready && c.Nodes()[i] != old {
				elected = time.Now()
				return true
			}
		}
		return false
	})
	select {
	case <-idle.Done():
	case <-time.After(30 * time.Second):
		t.Error("the cut-off leader keeps a client that waits for nothing")
	}
	if st, err := old.Status(ctx); err != nil || st.Ready || st.LeaderID != "" {
		t.Errorf("the cut-off leader says %+v, %v", st, err)
	}
	for i, what := range []string{"max offset", "route"} {
		last := time.UnixMilli(asking[i].last.Load())
		t.Logf("%s: answered until %v after the cut; another leader after %v", what, last.Sub(cut).Round(time.Millisecond), elected.Sub(cut).Round(time.Millisecond))
		if last.After(elected) {
			t.Errorf("%s: the cut-off leader answered %v after another one took writes", what, last.Sub(elected))
		}
		// The lease is 750 ms.
		if d := last.Sub(cut); d > bound(2*time.Second) {
			t.Errorf("%s: the cut-off leader answered for %v", what, d)
		}
	}
	// The other two serve, and know the new leader.
	var others []string
	for _, n := range c.Nodes() {
		if n != old {
			others = append(others, n.Addrs.Client)
		}
	}
	if err := workload.CreateTopic(withTimeout(t, time.Minute), others, topic+"2", 1); err != nil {
		t.Error(err)
	}

	if err := cluster.Heal(c.Network(), 3); err != nil {
		t.Fatal(err)
	}
	serving(t, c)
	eventually(t, 30*time.Second, "the node serves clients again", func() bool {
		conn, err := old.Dial(ctx)
		if err != nil {
			return false
		}
		defer conn.Close()
		resp, err := conn.Invoke(ctx, request(remoting.RequestGetRouteInfoByTopic, nil, "topic", topic))
		return err == nil && resp.Code == 0
	})
}

// asker asks a node one thing again and again and keeps when the last question that was answered with success was asked.
type asker struct{ last atomic.Int64 } // Unix milliseconds

func (a *asker) run(t *testing.T, n *cluster.Node, cmd *remoting.Command) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	t.Cleanup(func() { cancel(); <-done })
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			c, err := n.Dial(ctx)
			for err == nil && sleep(ctx, 5*time.Millisecond) == nil {
				asked := time.Now()
				ictx, stop := context.WithTimeout(ctx, 2*time.Second)
				var resp *remoting.Command
				resp, err = c.Invoke(ictx, cmd.Clone())
				stop()
				if err == nil && resp.Code == remoting.ResponseSuccess {
					a.last.Store(asked.UnixMilli())
				}
			}
			if c != nil {
				_ = c.Close()
			}
			_ = sleep(ctx, 5*time.Millisecond)
		}
	}()
}

// A follower that is cut off names its last leader for an election's time, then answers no route, and lets clients and parked pulls go.
func TestCutOffFollowerLetsClientsGo(t *testing.T) {
	long(t)
	parallel(t, 10)
	c := startCluster(t, cluster.Config{Network: namespaces(t)})
	topic := topicName(t)
	createTopic(t, c, topic, 1)
	ctx := withTimeout(t, 3*time.Minute)
	n := followerOf(t, c)
	if err := caughtUp(ctx, c, n); err != nil {
		t.Fatal(err)
	}
	parked := dial(t, n.Addrs.Client)
	answered := make(chan *remoting.Command, 1)
	parked.Go(pullRequest(topic, 0, 0, 30*time.Second), func(resp *remoting.Command, err error) {
		if err != nil {
			resp = nil
		}
		answered <- resp
	})
	if err := cluster.Isolate(c.Network(), n.Index, 3, false); err != nil {
		t.Fatal(err)
	}
	select {
	case resp := <-answered:
		if resp == nil {
			t.Error("a parked pull lost its connection without an answer")
		} else if resp.Code != remoting.ResponsePullRetryImmediately && resp.Code != remoting.ResponsePullNotFound {
			t.Errorf("a parked pull was answered %d %s", resp.Code, resp.Remark)
		}
	case <-time.After(20 * time.Second): // it would have waited for 30 s
		t.Fatal("a parked pull stays with a node that is cut off")
	}
	select {
	case <-parked.Done():
	case <-time.After(30 * time.Second):
		t.Error("the connection stays")
	}
	for _, what := range []string{"first", "second"} {
		late := dial(t, n.Addrs.Client)
		ictx, cancel := context.WithTimeout(ctx, 5*time.Second)
		if resp, err := late.Invoke(ictx, request(remoting.RequestGetRouteInfoByTopic, nil, "topic", topic)); err == nil {
			t.Errorf("%s: a node that is cut off answers a route with %d %s", what, resp.Code, resp.Remark)
		}
		cancel()
	}
	if st, err := n.Status(ctx); err != nil || st.LeaderID != "" {
		t.Errorf("status: %+v, %v", st, err)
	}
	if err := cluster.Heal(c.Network(), 3); err != nil {
		t.Fatal(err)
	}
	serving(t, c)
	if resp := invoke(t, dial(t, n.Addrs.Client), request(remoting.RequestGetRouteInfoByTopic, nil, "topic", topic)); resp.Code != 0 {
		t.Errorf("a route after healing: %d %s", resp.Code, resp.Remark)
	}
}
