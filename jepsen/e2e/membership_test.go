package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"raftmq/jepsen"
	"raftmq/jepsen/cluster"
	"raftmq/jepsen/history"
	"raftmq/jepsen/workload"
	"raftmq/transport/remoting"
)

// extended reports whether tests take the long form that their fault case describes, and not the one for CI.
func extended() bool { return os.Getenv("RAFTMQ_E2E_EXTENDED") != "" }

// step puts what a test does to the cluster into the history.
func step(rec *history.Recorder, what, node string, f func() error) error {
	op := rec.Begin(history.Op{Kind: history.Fault, Process: "nemesis", Fault: what, Node: node, Queue: -1, Offset: -1})
	err := f()
	op.Outcome = history.OK
	rec.End(op)
	if err != nil {
		return fmt.Errorf("%s %s: %w", what, node, err)
	}
	return nil
}

// awaitVoters waits until the leader's configuration has exactly these voters and nobody else.
func awaitVoters(ctx context.Context, c *cluster.Cluster, ids ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	want := fmt.Sprint(ids)
	last := "no leader"
	for ctx.Err() == nil {
		if leader, err := c.Leader(ctx); err == nil {
			if st, err := leader.Status(ctx); err == nil {
				var voters []string
				others := false
				for _, p := range st.Peers {
					switch p.Suffrage {
					case "voter":
						voters = append(voters, p.NodeID)
					case "nonvoter":
						others = true
					}
				}
				last = fmt.Sprint(sorted(voters))
				if last == want && !others {
					return nil
				}
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("voters %s, want %s", last, want)
}

func sorted(s []string) []string {
	for i := range s {
		for j := i; j > 0 && s[j] < s[j-1]; j-- {
			s[j], s[j-1] = s[j-1], s[j]
		}
	}
	return s
}

// caughtUp waits until a node has applied what the leader has now.
func caughtUp(ctx context.Context, c *cluster.Cluster, n *cluster.Node) error {
	leader, err := c.Leader(ctx)
	if err != nil {
		return err
	}
	st, err := leader.Status(ctx)
	if err != nil {
		return err
	}
	_, err = n.WaitStatus(ctx, "catching up", func(s remoting.NodeStatus) bool { return s.AppliedIndex >= st.AppliedIndex })
	return err
}

// boundGap fails the test when nobody took writes, or a client that follows the leader got no acknowledgement, for longer than what is meant: see bound.
func boundGap(t *testing.T, report *jepsen.Report, meant time.Duration) {
	t.Helper()
	limit := bound(meant)
	if report.Leader.Longest > limit {
		t.Errorf("nobody took writes for %v at a stretch, want at most %v", report.Leader.Longest, limit)
	}
	for _, g := range report.Gaps {
		if g.Length > limit {
			t.Errorf("%s %s: %v without an acknowledged send, want at most %v", g.Fault, g.Node, g.Length, limit)
		}
	}
}

// One node becomes three and five; the first ones leave, so that three are left; each of these is replaced by an empty machine; they
// shrink to one, and grow to five again, with the data that they left with. All of it under load.
func TestGrowShrinkReplaceUnderLoad(t *testing.T) {
	long(t)
	parallel(t, 14)
	report := run(t, jepsen.Config{
		Nodes: 5, First: 1, Workload: workload.Config{Client: workload.Raw, Rate: 400},
		Do: func(ctx context.Context, c *cluster.Cluster, rec *history.Recorder) error {
			ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
			defer cancel()
			return growShrinkReplace(ctx, c, rec)
		},
	})
	boundGap(t, report, 5*time.Second)
}

func growShrinkReplace(ctx context.Context, c *cluster.Cluster, rec *history.Recorder) error {
	start := func(id string) error { return c.Node(id).Start() }
	leave := func(id string) error { return c.Node(id).Leave(ctx) }
	// Of a node that was replaced the former self is a voter for a while, and what is there now gets the log in its place.
	replaced := func(id string) (count int) {
		for _, n := range c.Nodes() {
			count += strings.Count(n.LogTail(64<<20), "replacing its former self: node="+id+"\n")
		}
		return count
	}
	replace := func(id string) error {
		n := c.Node(id)
		before := replaced(id)
		if err := n.Kill(); err != nil {
			return err
		}
		if err := n.Wipe(); err != nil {
			return err
		}
		if err := n.Start(); err != nil {
			return err
		}
		for replaced(id) == before {
			if err := sleep(ctx, 20*time.Millisecond); err != nil {
				return fmt.Errorf("its former self is still a member: %w", err)
			}
		}
		return nil
	}
	for _, s := range []struct {
		what   string
		do     func(id string) error
		ids    string
		voters string
	}{
		{"start", start, "n2 n3", "n1 n2 n3"},
		{"start", start, "n4 n5", "n1 n2 n3 n4 n5"},
		{"leave", leave, "n1", "n2 n3 n4 n5"},
		{"leave", leave, "n2", "n3 n4 n5"},
		{"replace", replace, "n3", "n3 n4 n5"},
		{"replace", replace, "n4", "n3 n4 n5"},
		{"replace", replace, "n5", "n3 n4 n5"},
		{"leave", leave, "n3", "n4 n5"},
		{"leave", leave, "n4", "n5"},
		{"start", start, "n1 n2 n3 n4", "n1 n2 n3 n4 n5"},
	} {
		for _, id := range strings.Fields(s.ids) {
			if err := step(rec, s.what, id, func() error { return s.do(id) }); err != nil {
				return err
			}
		}
		for _, id := range strings.Fields(s.ids) {
			if s.what == "leave" {
				continue
			}
			if err := caughtUp(ctx, c, c.Node(id)); err != nil {
				return err
			}
		}
		if err := awaitVoters(ctx, c, strings.Fields(s.voters)...); err != nil {
			return err
		}
	}
	return nil
}

// stored sends some messages to a topic and returns a check that they are all there.
func stored(t *testing.T, c *cluster.Cluster, topic string, n int) (check func(t *testing.T)) {
	t.Helper()
	createTopic(t, c, topic, 1)
	lc := dial(t, leaderOf(t, c).Addrs.Client)
	for i := range n {
		if resp := invoke(t, lc, sendRequest(topic, 0, fmt.Sprint("m-", i), "")); resp.Code != 0 {
			t.Fatalf("send: %d %s", resp.Code, resp.Remark)
		}
	}
	return func(t *testing.T) {
		t.Helper()
		lc := dial(t, leaderOf(t, c).Addrs.Client)
		var got []string
		count, err := workload.ReadQueue(t.Context(), lc, "check", topic, 0, func(d workload.Delivery) { got = append(got, d.Value) })
		if err != nil || count != n {
			t.Errorf("read %d messages of %d: %v", count, n, err)
		}
		for i, v := range got {
			if !strings.Contains(v, fmt.Sprint("m-", i)) {
				t.Errorf("message %d is %q", i, v)
			}
		}
	}
}

// F59: one node comes back at other ports, then all do at once. They keep their ids and find each other.
func TestF59_AddressesChange(t *testing.T) {
	long(t)
	parallel(t, 22)
	c := startCluster(t, cluster.Config{})
	check := stored(t, c, topicName(t), 50)
	move := func(nodes ...*cluster.Node) {
		t.Helper()
		other := freePorts(t, len(c.Nodes()))
		ctx := withTimeout(t, 3*time.Minute)
		for _, n := range nodes {
			if err := n.Stop(ctx); err != nil {
				t.Fatal(err)
			}
			n.Addrs = other.Addresses(n.Index)
		}
		for _, n := range nodes {
			if err := n.Start(); err != nil {
				t.Fatal(err)
			}
		}
		began := time.Now()
		if _, err := c.WaitServing(withTimeout(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		t.Logf("%d nodes moved, served after %v", len(nodes), time.Since(began).Round(time.Millisecond))
		// The configuration follows, with the ids that were there.
		eventually(t, time.Minute, "the configuration's addresses follow", func() bool {
			st, err := leaderOf(t, c).Status(ctx)
			if err != nil || len(st.Peers) != len(c.Nodes()) {
				return false
			}
			for _, p := range st.Peers {
				if n := c.Node(p.NodeID); p.Suffrage != "voter" || p.RaftAddr != n.Addrs.Raft || p.ClientAddr != n.Addrs.Client {
					return false
				}
			}
			return true
		})
		check(t)
	}
	move(followerOf(t, c))
	move(leaderOf(t, c))
	move(c.Nodes()...)
}

// F57: two of three nodes come up without their data and the third is not there yet. They form nothing; when the third comes, so
// does the data.
func TestF57_WipedNodesStartFirst(t *testing.T) {
	long(t)
	parallel(t, 10)
	c := startCluster(t, cluster.Config{})
	check := stored(t, c, topicName(t), 50)
	if _, err := c.WaitConverged(withTimeout(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	before, err := leaderOf(t, c).Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stopAll(t, c)
	n := c.Nodes()
	for _, i := range []int{0, 1} {
		if err := n[i].Wipe(); err != nil {
			t.Fatal(err)
		}
		if err := n[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for begin := time.Now(); time.Since(begin) < 5*time.Second; time.Sleep(50 * time.Millisecond) {
		for _, r := range c.Statuses(t.Context(), time.Second) {
			if r.Err == nil && (r.Status.Role == "leader" || r.Status.ClusterID != "") {
				t.Fatalf("a wiped node formed a cluster: %+v", r.Status)
			}
		}
	}
	if err := n[2].Start(); err != nil {
		t.Fatal(err)
	}
	if err := awaitVoters(t.Context(), c, "n1", "n2", "n3"); err != nil {
		t.Fatal(err)
	}
	sts, err := c.WaitConverged(withTimeout(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	sameLogs(t, sts)
	for _, st := range sts {
		if st.ClusterID != before.ClusterID {
			t.Errorf("%s is of cluster %s, it was %s", st.NodeID, st.ClusterID, before.ClusterID)
		}
	}
	check(t)
}

// F63: the leader is cut off, a second node is killed, and somebody removes the third, all at once. Nothing that was acknowledged is lost.
func TestF63_RemovalUnderPartition(t *testing.T) {
	long(t)
	parallel(t, 20)
	if err := namespaces(t).Close(); err != nil {
		t.Fatal(err)
	}
	for _, cut := range []string{"leader", "follower"} {
		t.Run(cut, func(t *testing.T) {
			run(t, jepsen.Config{
				Workload: workload.Config{Client: workload.Raw, Rate: 800},
				Do: func(ctx context.Context, c *cluster.Cluster, rec *history.Recorder) error {
					return f63(ctx, t, c, rec, cut == "leader")
				},
			})
		})
	}
}

func f63(ctx context.Context, t *testing.T, c *cluster.Cluster, rec *history.Recorder, cutLeader bool) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	leader, err := c.Leader(ctx)
	if err != nil {
		return err
	}
	time.Sleep(time.Second) // of load
	i := leader.Index
	if !cutLeader {
		i = i%3 + 1
	}
	cut, killed, removed := c.Nodes()[i-1], c.Nodes()[i%3], c.Nodes()[(i+1)%3]
	if err := step(rec, "isolate, kill, remove", fmt.Sprint(cut.ID, killed.ID, removed.ID), func() error {
		if err := cluster.Isolate(c.Network(), cut.Index, 3, false); err != nil {
			return err
		}
		if err := killed.Kill(); err != nil {
			return err
		}
		// The order goes to both that are left, with force.
		for _, at := range []*cluster.Node{cut, removed} {
			actx, stop := context.WithTimeout(ctx, 3*time.Second)
			err := at.Admin(actx, remoting.RequestRemoveNode, remoting.RemoveRequest{NodeID: removed.ID, Force: true}, nil)
			stop()
			t.Logf("removal of %s, asked %s: %v", removed.ID, at.ID, err)
			if err == nil {
				return fmt.Errorf("%s removed %s without a quorum", at.ID, removed.ID)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	if err := cluster.Heal(c.Network(), 3); err != nil {
		return err
	}
	if err := killed.Start(); err != nil {
		return err
	}
	if _, err := c.WaitServing(ctx); err != nil {
		return err
	}
	return awaitVoters(ctx, c, "n1", "n2", "n3")
}

// F65: a node that hardly runs, and one that stands still for long, change neither the configuration nor the leader.
func TestF65_SuspicionChangesNothing(t *testing.T) {
	long(t)
	parallel(t, 26)
	flap, still, pause := 8*time.Second, 10*time.Second, heartbeatTimeout()*6/5 // so that it stands for election each time
	if extended() {
		flap = 10 * time.Minute
	}
	run(t, jepsen.Config{
		Flags:    steadyFlags(),
		Workload: workload.Config{Client: workload.Raw, Rate: 400},
		Do: func(ctx context.Context, c *cluster.Cluster, rec *history.Recorder) error {
			ctx, cancel := context.WithTimeout(ctx, 3*time.Minute+2*flap)
			defer cancel()
			leader, before, err := leading(ctx, c)
			if err != nil {
				return err
			}
			victim := c.Nodes()[leader.Index%3]
			same := func() error {
				st, err := leader.Status(ctx)
				if err != nil {
					return err
				}
				voters := 0
				for _, p := range st.Peers {
					if p.Suffrage == "voter" {
						voters++
					}
				}
				if voters != 3 || st.Term != before.Term || !st.Ready {
					return fmt.Errorf("%d voters, term %d, ready %v; before 3 voters, term %d", voters, st.Term, st.Ready, before.Term)
				}
				return nil
			}
			if err := step(rec, "5 % CPU", victim.ID, func() error {
				lift, err := victim.LimitCPU(5)
				if errors.Is(err, cluster.ErrNoCPULimit) {
					t.Log(err)
					return nil
				}
				if err != nil {
					return err
				}
				for end := time.Now().Add(flap); err == nil && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
					err = same()
				}
				held, lerr := lift()
				if err == nil && lerr == nil && held == 0 {
					err = errors.New("it was never held back: the test proves nothing")
				}
				return errors.Join(err, lerr)
			}); err != nil {
				return err
			}
			if err := step(rec, "hardly run", victim.ID, func() error {
				for end := time.Now().Add(flap); time.Now().Before(end); {
					if err := victim.Pause(); err != nil {
						return err
					}
					time.Sleep(pause)
					if err := victim.Resume(); err != nil {
						return err
					}
					time.Sleep(50 * time.Millisecond)
					if err := same(); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				return err
			}
			return step(rec, "stand still", victim.ID, func() error {
				if err := victim.Pause(); err != nil {
					return err
				}
				failed := false
				for end := time.Now().Add(still); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
					if err := same(); err != nil {
						return err
					}
					st, err := leader.Status(ctx)
					if err != nil {
						return err
					}
					for _, p := range st.Peers {
						failed = failed || p.NodeID == victim.ID && p.Gossip == "failed"
					}
				}
				if err := victim.Resume(); err != nil {
					return err
				}
				if !failed {
					return fmt.Errorf("gossip has not called %s failed within %v: the test proves nothing", victim.ID, still)
				}
				if _, err := c.WaitServing(ctx); err != nil {
					return err
				}
				return same()
			})
		},
	})
}

// A majority is lost with its disks: one command makes the node that is left a cluster again, and empty machines join it.
func TestRecoverFromLostMajority(t *testing.T) {
	long(t)
	parallel(t, 5)
	c := startCluster(t, cluster.Config{})
	check := stored(t, c, topicName(t), 50)
	if _, err := c.WaitConverged(withTimeout(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes() {
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	left := c.Nodes()[1]
	for _, args := range [][]string{nil, {"--yes"}} {
		out, err := exec.Command(serverBin(t), append([]string{"cluster", "recover", "--data-dir", left.DataDir}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("recover %v: %v\n%s", args, err, out)
		}
		t.Logf("recover %v:\n%s", args, out)
		if args == nil && !strings.Contains(string(out), "Nothing has been changed") {
			t.Error("without --yes it does not say that nothing was changed")
		}
	}
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	if leader := leaderOf(t, c); leader != left {
		t.Fatalf("%s leads", leader.ID)
	}
	check(t)
	for _, n := range c.Nodes() {
		if n == left {
			continue
		}
		if err := n.Wipe(); err != nil {
			t.Fatal(err)
		}
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if err := awaitVoters(t.Context(), c, "n1", "n2", "n3"); err != nil {
		t.Fatal(err)
	}
	sts, err := c.WaitConverged(withTimeout(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	sameLogs(t, sts)
}

// --dead-server-timeout removes what has been dead for long, but never the majority; who comes back is a member again.
func TestDeadServerTimeout(t *testing.T) {
	long(t)
	parallel(t, 14)
	c := startCluster(t, cluster.Config{Flags: append(jepsen.DefaultFlags(), "--dead-server-timeout", "10s")})
	dead := followerOf(t, c)
	if err := dead.Kill(); err != nil {
		t.Fatal(err)
	}
	var left []string
	for _, n := range c.Nodes() {
		if n != dead {
			left = append(left, n.ID)
		}
	}
	began := time.Now()
	if err := awaitVoters(t.Context(), c, left...); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 9*time.Second {
		t.Errorf("removed after %v, the timeout is 10 s", took)
	}
	if err := dead.Start(); err != nil {
		t.Fatal(err)
	}
	if err := awaitVoters(t.Context(), c, "n1", "n2", "n3"); err != nil {
		t.Fatal(err)
	}
}

// A process that gets SIGTERM stays a member.
func TestStopIsNotLeave(t *testing.T) {
	long(t)
	parallel(t, 4)
	c := startCluster(t, cluster.Config{})
	n := followerOf(t, c)
	if err := n.Stop(withTimeout(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := awaitVoters(t.Context(), c, "n1", "n2", "n3"); err != nil {
		t.Error(err)
	}
	leader := leaderOf(t, c)
	err := leader.Admin(withTimeout(t, 30*time.Second), remoting.RequestRemoveNode, remoting.RemoveRequest{NodeID: leader.ID}, nil)
	if err == nil || !strings.Contains(err.Error(), "leads") {
		t.Errorf("removal of the leader: %v", err)
	}
	// Who is out already is not there for an operator, and is out as it wanted for itself: a leader that hears by gossip that a node leaves removes it.
	for _, leaving := range []bool{false, true} {
		err := leader.Admin(withTimeout(t, 30*time.Second), remoting.RequestRemoveNode, remoting.RemoveRequest{NodeID: "n9", Leaving: leaving}, nil)
		if refused := err != nil && strings.Contains(err.Error(), "not in the configuration"); refused == leaving || leaving && err != nil {
			t.Errorf("removal of a node that is not there, leaving %t: %v", leaving, err)
		}
	}
}
