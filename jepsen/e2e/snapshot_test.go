package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"raftmq/jepsen/cluster"
	"raftmq/jepsen/workload"
	"raftmq/transport/remoting"
)

// takeSnapshot has a node take a snapshot and returns its file.
func takeSnapshot(t *testing.T, n *cluster.Node) string {
	t.Helper()
	resp := invoke(t, dial(t, n.Addrs.Client), request(remoting.RequestSnapshot, nil))
	if resp.Code != 0 {
		t.Fatalf("snapshot: %d %s", resp.Code, resp.Remark)
	}
	var answer remoting.SnapshotAnswer
	if err := json.Unmarshal(resp.Body, &answer); err != nil {
		t.Fatal(err)
	}
	list, err := filepath.Glob(filepath.Join(n.DataDir, "raft", "snapshots", "*", "state.bin"))
	if err != nil || len(list) == 0 {
		t.Fatalf("no snapshot on the disk: %v", err)
	}
	newest := list[0]
	for _, p := range list {
		if mtime(t, p).After(mtime(t, newest)) {
			newest = p
		}
	}
	return newest
}

func mtime(t *testing.T, path string) time.Time {
	t.Helper()
	fi, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return fi.ModTime()
}

// leads makes a node lead and reads all of the topic there.
func leads(t *testing.T, c *cluster.Cluster, n *cluster.Node, topic string, messages int) {
	t.Helper()
	serving(t, c)
	to, err := json.Marshal(remoting.TransferRequest{To: n.ID})
	if err != nil {
		t.Fatal(err)
	}
	if resp := invoke(t, dial(t, n.Addrs.Client), request(remoting.RequestTransferLeadership, to)); resp.Code != 0 {
		t.Fatalf("transfer: %d %s", resp.Code, resp.Remark)
	}
	if now := serving(t, c); now != n {
		t.Fatalf("%s leads", now.ID)
	}
	sts, err := c.WaitConverged(withTimeout(t, time.Minute)) // a follower shows what it knows to be committed, and hears of that a little later
	if err != nil {
		t.Fatal(err)
	}
	sameLogs(t, sts)
	for _, o := range c.Nodes() {
		read := 0
		eventually(t, 30*time.Second, fmt.Sprintf("reading %d messages from %s", messages, o.ID), func() bool {
			read, err = workload.ReadQueue(withTimeout(t, time.Minute), dial(t, o.Addrs.Client), "g", topic, 0, func(workload.Delivery) {})
			return err == nil && read >= messages // its queues follow its log
		})
		if read != messages {
			t.Errorf("%s has %d messages of %d", o.ID, read, messages)
		}
	}
}

// F25: a bit of a killed node's newest snapshot flips. It starts from the older one and its Raft log, says so, takes a new snapshot, and leads with all topics and messages. Then
// the newest is damaged, and nothing else covers what the Raft log no longer has: the node does not guess, is filled again by its peers, and leads.
func TestF25_BitRotInASnapshot(t *testing.T) {
	long(t)
	parallel(t, 12)
	c := startCluster(t, cluster.Config{})
	topic := topicName(t)
	createTopic(t, c, topic, 1)
	sent := 0
	send := func(count, size int) {
		lc := dial(t, leaderOf(t, c).Addrs.Client)
		body := strings.Repeat("x", size)
		for range count {
			if resp := invoke(t, lc, sendRequest(topic, 0, body, "")); resp.Code != 0 {
				t.Fatalf("send: %d %s", resp.Code, resp.Remark)
			}
			sent++
		}
		if _, err := c.WaitConverged(withTimeout(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	send(50, 1000)
	victim := followerOf(t, c)
	takeSnapshot(t, victim)
	send(50, 1000)
	newest := takeSnapshot(t, victim)
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	flipIn(t, newest, 0.5)
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	send(1, 1000)
	if _, err := victim.WaitStatus(withTimeout(t, 60*time.Second), "a new snapshot", func(st remoting.NodeStatus) bool { return st.CaughtUp && st.Problem == "" }); err != nil {
		t.Fatal(err)
	}
	if text := victim.LogTail(1 << 20); !strings.Contains(text, "snapshot is unreadable and ignored") {
		t.Errorf("%s does not say that its snapshot is damaged", victim.ID)
	}
	if aside, _ := filepath.Glob(filepath.Join(victim.DataDir, "aside", "*")); len(aside) > 0 {
		t.Errorf("data was put aside although an older snapshot was there: %v", aside)
	}
	leads(t, c, victim, topic, sent)

	// More than --raft-trailing-bytes of log, so that it is compacted, and only damaged snapshots.
	other := followerOf(t, c)
	send(150, 100_000)
	takeSnapshot(t, other)
	if err := other.Kill(); err != nil {
		t.Fatal(err)
	}
	list, err := filepath.Glob(filepath.Join(other.DataDir, "raft", "snapshots", "*", "state.bin"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range list {
		flipIn(t, path, 0.3)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	rejoined(t, c, other, "raft")
	if text := other.LogTail(1 << 20); !strings.Contains(text, "no usable snapshot covers what came before") {
		t.Errorf("%s does not say why it was filled again", other.ID)
	}
	leads(t, c, other, topic, sent)
}
