package e2e

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"

	"raftmq/jepsen/cluster"
	"raftmq/transport/remoting"
)

// upgradeBinaries are raftmq as it is, and as it was and will be as far as feature levels go (see fsm/command.Level).
var upgradeBinaries = sync.OnceValues(func() (bins [3]string, err error) {
	if bins[1], err = serverBinary(); err != nil {
		return bins, err
	}
	for i, tag := range map[int]string{0: "raftmq_older", 2: "raftmq_newer"} {
		if bins[i], err = cluster.Build(context.Background(), binDir, "-tags="+tag); err != nil {
			return bins, err
		}
	}
	return bins, nil
})

// levels are what each node can apply and what it takes for the cluster's level.
func (s *scriptCluster) levels() (newest, clusterLevel map[string]int) {
	s.t.Helper()
	var nodes []struct {
		Status *remoting.NodeStatus `json:"status"`
	}
	if out := s.tool("cluster", "status", "--json"); json.Unmarshal([]byte(out), &nodes) != nil {
		s.t.Fatalf("no JSON: %s", out)
	}
	newest, clusterLevel = map[string]int{}, map[string]int{}
	for _, n := range nodes {
		newest[n.Status.NodeID], clusterLevel[n.Status.NodeID] = n.Status.Level, n.Status.ClusterLevel
	}
	return newest, clusterLevel
}

func (s *scriptCluster) wantLevels(when string, want [3]int, wantCluster int) {
	s.t.Helper()
	newest, has := s.levels()
	for i, w := range want {
		id := "n" + strconv.Itoa(i+1)
		if newest[id] != w || has[id] != wantCluster {
			s.t.Fatalf("%s: nodes can apply %v, want %v; the cluster's level is %v, want %d", when, newest, want, has, wantCluster)
		}
	}
}

// roll restarts nodes, in this order, with another raftmq.
func (s *scriptCluster) roll(bin string, nodes ...string) {
	s.t.Helper()
	s.bin = bin
	s.must("scripts/rolling-restart", append([]string{"-d", s.dir, "--clients-ask-every", "1s"}, nodes...)...)
}

// TestF83_RollingUpgrade: three versions of raftmq, each rolled in one by one under load, in both orders; one node goes back and comes again before the
// level is raised; no send fails. Afterwards an older raftmq refuses to start, and says why.
func TestF83_RollingUpgrade(t *testing.T) {
	long(t)
	parallel(t, 50)
	bins, err := upgradeBinaries()
	if err != nil {
		t.Fatal(err)
	}
	older, this, newer := bins[0], bins[1], bins[2]
	s := startScript(t, older, "--mapped-file-size-commit-log", "16MiB")
	topic := topicName(t)
	const queues = 4
	s.tool("topic", "create", topic, "--queues", strconv.Itoa(queues))
	s.wantLevels("formed by the older one", [3]int{1, 1, 1}, 1)
	l := startLoad(t, s.addrs(), topic, 0)

	for _, step := range []struct {
		from, to string
		level    int // of from
		order    []string
		back     int
		says     string // why from does not start any more
	}{
		{older, this, 1, []string{"1", "2", "3"}, 2, "start a newer raftmq here"},
		{this, newer, 2, []string{"3", "2", "1"}, 3, "start a newer raftmq here"},
	} {
		next := step.level + 1
		all := [3]int{next, next, next}
		s.roll(step.to, step.order...)
		s.wantLevels("all rolled", all, step.level)
		if out := s.tool("cluster", "upgrade", "--check"); !strings.Contains(out, "would raise it to "+strconv.Itoa(next)) {
			t.Errorf("--check says %s", out)
		}
		back := strconv.Itoa(step.back)
		s.roll(step.from, back)
		one := all
		one[step.back-1] = step.level
		s.wantLevels("one rolled back", one, step.level)
		if out := s.tool("cluster", "upgrade"); !strings.Contains(out, "keeps feature level "+strconv.Itoa(step.level)+": n"+back+" can apply no more") {
			t.Errorf("upgrade with one node back says %s", out)
		}
		s.cluster("stop", back)
		if out, err := s.try(s.bin, "cluster", "upgrade", "--name-servers", strings.Join(s.addrs(), ",")); err == nil || !strings.Contains(out, "n"+back+" cannot be asked") {
			t.Errorf("upgrade with one node down: %v, %s", err, out)
		}
		s.cluster("start", back)
		s.roll(step.to, back)
		s.wantLevels("all rolled again", all, step.level)
		if out := s.tool("cluster", "upgrade"); !strings.Contains(out, "has feature level "+strconv.Itoa(next)+" now") {
			t.Errorf("upgrade says %s", out)
		}
		s.wantLevels("raised", all, next)

		s.cluster("stop", back)
		s.bin = step.from
		if out, err := s.try("scripts/cluster", "-d", s.dir, "start", back); err == nil || !strings.Contains(out, step.says) {
			t.Errorf("the older raftmq after the upgrade: %v, %s", err, out)
		}
		s.bin = step.to
		s.cluster("start", back)
	}
	s.tool("cluster", "wait", "--timeout", "60s")
	l.check(t, s, topic, queues)
}
