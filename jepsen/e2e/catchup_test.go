package e2e

import (
	"errors"
	"strings"
	"testing"
	"time"

	"raftmq/jepsen/cluster"
	"raftmq/transport/remoting"
)

// F51: a follower is stopped, wiped and started again; its peers' Raft logs no longer reach back, and nobody writes. It gets everything all the same,
// once, and as voter again.
func TestF51_WipedFollowerWithoutNewWrites(t *testing.T) {
	long(t)
	parallel(t, 5)
	c := startCluster(t, cluster.Config{Flags: catchUpFlags()})
	topic := topicName(t)
	createTopic(t, c, topic, 2)
	fill(t, c, topic, 24<<20)
	n := followerOf(t, c)
	if err := n.Stop(withTimeout(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := n.Wipe(); err != nil {
		t.Fatal(err)
	}
	compact(t, c)
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	waitCaughtUp(t, c, n, time.Minute)
	if err := awaitVoters(withTimeout(t, time.Minute), c, "n1", "n2", "n3"); err != nil {
		t.Fatal(err)
	}
	if got := countLines(n, lineFetched); got != 1 {
		t.Errorf("%d transfers, want one", got)
	}
	if got := metric(t, n, "raftmq_catch_up_fetched_bytes_total"); got < 24<<20 || got > 28<<20 {
		t.Errorf("%v bytes were fetched", got)
	}
}

// F53: a follower is down until the leader's Raft log no longer reaches back to it, and comes back over a link of 1 MB/s. One transfer brings it
// what it lacks and no more, its progress can be seen all the time, and it is installed once.
func TestF53_OneTransferOverASlowLink(t *testing.T) {
	long(t)
	parallel(t, 26)
	links := map[*cluster.Node][]*slowLink{}
	c, err := cluster.New(cluster.Config{Dir: t.TempDir(), Binary: serverBin(t), Flags: catchUpFlags()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, n := range c.Nodes() {
			checkLog(t, n)
		}
	})
	for _, n := range c.Nodes() {
		links[n] = []*slowLink{newSlowLink(t, n.Addrs.Client), newSlowLink(t, n.Addrs.Raft)}
		n.Flags = []string{"--client-advertise", links[n][0].addr(), "--raft-advertise", links[n][1].addr()}
	}
	if err := c.StartAll(); err != nil {
		t.Fatal(err)
	}
	serving(t, c)
	topic := topicName(t)
	createTopic(t, c, topic, 2)
	fill(t, c, topic, 8<<20)
	n := followerOf(t, c)
	waitCaughtUp(t, c, n, time.Minute)
	if err := n.Stop(withTimeout(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	const lacks = 20 << 20
	fill(t, c, topic, lacks)
	compact(t, c)
	leader := leaderOf(t, c)
	const rate = 1_000_000
	for _, both := range links {
		for _, l := range both {
			l.rate.Store(rate)
		}
	}
	served := links[leader][0].passed.Load()
	began := time.Now()
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	var seen []int64 // distinct steps of the progress
	_, err = n.WaitStatus(withTimeout(t, 3*time.Minute), "fetching at 1 MB/s", func(s remoting.NodeStatus) bool {
		if p := s.CatchUp; p != nil && p.State == "fetching" {
			if k := len(seen); k == 0 || p.At > seen[k-1] {
				seen = append(seen, p.At)
			} else if p.At < seen[k-1] {
				t.Errorf("the transfer went back from %d to %d", seen[k-1], p.At)
			}
		}
		return countLines(n, lineStored) > 0
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, n.LogTail(4000))
	}
	took := time.Since(began)
	waitCaughtUp(t, c, n, time.Minute)
	sent := links[leader][0].passed.Load() - served
	t.Logf("%d bytes through the leader's client link in %v, %d steps seen", sent, took, len(seen))
	if took < lacks/rate*time.Second {
		t.Errorf("it took %v only: the link was not the limit", took)
	}
	if len(seen) < 10 {
		t.Errorf("progress was seen %d times", len(seen))
	}
	if sent > lacks*11/10+(1<<20) {
		t.Errorf("%d bytes were sent for %d that lacked", sent, lacks)
	}
	for _, line := range []string{lineBegun, lineFetched, lineStored} {
		if got := countLines(n, line); got != 1 {
			t.Errorf("%q %d times, want once\n%s", line, got, n.LogTail(6000))
		}
	}
	if got := countLines(n, "catching up: leader="); got == 0 {
		t.Errorf("no progress in the log:\n%s", n.LogTail(6000))
	}
	for line := range strings.Lines(leader.LogTail(64 << 20)) {
		// Before the node was up its link was there already.
		if strings.Contains(line, "failed to install snapshot") && !strings.Contains(line, "raftstream: dial") {
			t.Errorf("the leader's Raft gave up: %s", line)
		}
	}
}

// A follower that is far behind is killed at several points of its transfer, the link is cut by killing the leader, and leadership moves in the middle.
// What it has fetched is not fetched again, and in the end all nodes are equal. Meanwhile the Raft logs of the others stay small.
func TestCatchUpThroughKillsAndLeaderChanges(t *testing.T) {
	long(t)
	parallel(t, 26)
	c := startCluster(t, cluster.Config{Flags: catchUpFlags("--catch-up-rate", "2MiB")})
	topic := topicName(t)
	createTopic(t, c, topic, 2)
	fill(t, c, topic, 4<<20)
	n := followerOf(t, c)
	waitCaughtUp(t, c, n, time.Minute)
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	const lacks = 32 << 20
	fill(t, c, topic, lacks)
	compact(t, c)
	for _, peer := range c.Nodes() {
		if peer == n {
			continue
		}
		// What was written since the last snapshot, and as much again that came while one was taken.
		eventually(t, 30*time.Second, "the Raft log of "+peer.ID+", which is to have 2 MiB, is below 6 MiB", func() bool {
			return metric(t, peer, "raftmq_raft_log_bytes") < 6<<20
		})
	}
	served := func() (sum float64) {
		for _, peer := range c.Nodes() {
			if peer != n && peer.Running() {
				sum += metric(t, peer, "raftmq_catch_up_served_bytes_total")
			}
		}
		return sum
	}
	before := served()
	fetched := func(to int64) {
		t.Helper()
		_, err := n.WaitStatus(withTimeout(t, 3*time.Minute), "fetching", func(s remoting.NodeStatus) bool {
			return s.CatchUp != nil && s.CatchUp.At-s.CatchUp.From >= to || countLines(n, lineStored) > 0 // it may be through before anybody looks
		})
		if err != nil {
			t.Fatalf("%v\n%s", err, n.LogTail(4000))
		}
	}
	for i := range 3 {
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
		fetched(int64(i+1) * 3 << 20)
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	fetched(12 << 20)
	old := leaderOf(t, c)
	var to string // the third one, which has all
	for _, peer := range c.Nodes() {
		if peer != n && peer != old {
			to = peer.ID
		}
	}
	var answer remoting.TransferAnswer
	if err := old.Admin(withTimeout(t, time.Minute), remoting.RequestTransferLeadership, remoting.TransferRequest{To: to}, &answer); err != nil {
		t.Fatal(err)
	}
	if answer.Leader != to {
		t.Fatalf("%s leads now", answer.Leader)
	}
	waitCaughtUp(t, c, n, time.Minute)
	if got := served() - before; got > lacks+6<<20 {
		t.Errorf("%v bytes were served for %d that lacked", got, lacks)
	}
	if got := countLines(n, lineStored); got != 1 {
		t.Errorf("installed %d times", got)
	}
	leader := leaderOf(t, c)
	if leader == n {
		t.Fatal(errors.New("the follower leads"))
	}
}
