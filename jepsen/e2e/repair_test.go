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

// F23: two bits rot in a follower's log; it is killed, starts again, gets the bytes from its peers while it serves, and leads. Nothing is lost, and all
// nodes hold the same.
func TestF23_BitRotInAFollowersLog(t *testing.T) {
	long(t)
	parallel(t, 5)
	c := startCluster(t, cluster.Config{})
	topic := topicName(t)
	createTopic(t, c, topic, 1)
	leader := leaderOf(t, c)
	lc := dial(t, leader.Addrs.Client)
	const messages = 300
	body := strings.Repeat("x", 1000)
	for i := range messages {
		if resp := invoke(t, lc, sendRequest(topic, 0, fmt.Sprint(i, " ", body), "")); resp.Code != 0 {
			t.Fatalf("send: %d %s", resp.Code, resp.Remark)
		}
	}
	sts, err := c.WaitConverged(withTimeout(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	victim := followerOf(t, c)
	// What is below the recovery point is not cut and redone from the Raft log: only a peer can help.
	if resp := invoke(t, dial(t, victim.Addrs.Client), request(remoting.RequestSnapshot, nil)); resp.Code != 0 {
		t.Fatalf("snapshot: %d %s", resp.Code, resp.Remark)
	}
	if err := victim.Kill(); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(victim.DataDir, "store", "commitlog", fmt.Sprintf("%020d", 0)), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range []int64{sts[0].LogMax / 3, 2 * sts[0].LogMax / 3} {
		b := make([]byte, 1)
		if _, err := f.ReadAt(b, at); err != nil {
			t.Fatal(err)
		}
		b[0] ^= 4
		if _, err := f.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := victim.WaitStatus(withTimeout(t, 60*time.Second), "the repair", func(st remoting.NodeStatus) bool {
		return st.CaughtUp && st.Repair != nil && st.Repair.Repaired > 0 && len(st.Repair.Damaged) == 0
	}); err != nil {
		t.Fatal(err)
	}
	serving(t, c)
	to, err := json.Marshal(remoting.TransferRequest{To: victim.ID})
	if err != nil {
		t.Fatal(err)
	}
	if resp := invoke(t, dial(t, victim.Addrs.Client), request(remoting.RequestTransferLeadership, to)); resp.Code != 0 {
		t.Fatalf("transfer: %d %s", resp.Code, resp.Remark)
	}
	if now := serving(t, c); now != victim {
		t.Fatalf("%s leads", now.ID)
	}
	for _, n := range c.Nodes() {
		read, err := workload.ReadQueue(withTimeout(t, time.Minute), dial(t, n.Addrs.Client), "g", topic, 0, func(workload.Delivery) {})
		if err != nil || read != messages {
			t.Errorf("%s has %d of %d messages: %v", n.ID, read, messages, err)
		}
	}
	if sts, err = c.WaitConverged(withTimeout(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	sameLogs(t, sts)
}
