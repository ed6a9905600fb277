package e2e

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"raftmq/jepsen"
	"raftmq/jepsen/cluster"
	"raftmq/transport/client"
)

// flipIn flips a bit in a file at the place part (0 to 1) of what it holds.
func flipIn(t *testing.T, path string, part float64) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	held := len(bytes.TrimRight(b, "\x00"))
	if held == 0 {
		t.Fatalf("%s holds nothing", path)
	}
	at := min(int(part*float64(held)), held-1)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte{b[at] ^ 1<<rand.IntN(8)}, int64(at)); err != nil {
		t.Fatal(err)
	}
	t.Logf("flipped a bit of byte %d of %d of %s", at, held, path)
}

// newestWAL is the Raft log file that a node writes to.
func newestWAL(t *testing.T, n *cluster.Node) string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(n.DataDir, "raft", "wal", "*.wal"))
	if err != nil || len(list) == 0 {
		t.Fatalf("no Raft log: %v", err)
	}
	return list[len(list)-1]
}

func sendSome(t *testing.T, c *client.Client, topic string, from, to int) {
	t.Helper()
	body := strings.Repeat("x", 1000)
	for i := from; i < to; i++ {
		if resp := invoke(t, c, sendRequest(topic, 0, fmt.Sprint(i, " ", body), "")); resp.Code != 0 {
			t.Fatalf("send: %d %s", resp.Code, resp.Remark)
		}
	}
}

// A bit of a killed node's Raft log flips in the middle of entries that it has acknowledged. Alone with another damaged one it ends and says what to do, with its log as it was; when a majority of the others is
// there, it joins again as a newcomer and keeps its commit log. Nothing is lost.
func TestRaftLogDamageIsHealedByAMajorityOfTheOthers(t *testing.T) {
	long(t)
	parallel(t, 22)
	c := startCluster(t, cluster.Config{Flags: append(jepsen.DefaultFlags(), "--rejoin-wait", "8s")})
	topic := topicName(t)
	createTopic(t, c, topic, 1)
	const messages = 200
	sendSome(t, dial(t, leaderOf(t, c).Addrs.Client), topic, 0, messages)
	if _, err := c.WaitConverged(withTimeout(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes() {
		if err := n.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	victim := c.Nodes()[1]
	flipIn(t, newestWAL(t, victim), 0.5)
	before, err := os.ReadFile(newestWAL(t, victim))
	if err != nil {
		t.Fatal(err)
	}
	// With one other node there is no majority of the others: neither may it vote, nor forget what it has.
	if err := c.Nodes()[0].Start(); err != nil {
		t.Fatal(err)
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-victim.Done():
	case <-time.After(60 * time.Second):
		t.Fatalf("%s still runs with a damaged Raft log:\n%s", victim.ID, victim.LogTail(4096))
	}
	for _, want := range []string{"the Raft log is damaged", "may be the last copy. Nothing was changed. Start the other nodes"} {
		if text := victim.LogTail(1 << 20); !strings.Contains(text, want) {
			t.Errorf("%s does not say %q:\n%s", victim.ID, want, text)
		}
	}
	after, err := os.ReadFile(newestWAL(t, victim))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("%s's Raft log was changed: %v", victim.ID, err)
	}
	if aside, _ := filepath.Glob(filepath.Join(victim.DataDir, "aside", "*")); len(aside) > 0 {
		t.Errorf("data was put aside: %v", aside)
	}
	if st, err := c.Nodes()[0].Status(withTimeout(t, 30*time.Second)); err != nil || st.Ready {
		t.Errorf("%s leads alone: %+v, %v", c.Nodes()[0].ID, st, err)
	}
	if err := c.Nodes()[2].Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 60*time.Second, "a leader of the other two", func() bool {
		for _, n := range []*cluster.Node{c.Nodes()[0], c.Nodes()[2]} {
			if st, err := n.Status(withTimeout(t, 5*time.Second)); err == nil && st.Ready {
				return true
			}
		}
		return false
	})
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	leader := leaderOf(t, c)
	// Writes go on meanwhile.
	sendSome(t, dial(t, leader.Addrs.Client), topic, messages, 2*messages)
	rejoined(t, c, victim, "raft")
	leads(t, c, victim, topic, 2*messages)
}
