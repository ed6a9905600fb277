package e2e

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"hash/crc64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"raftmq/jepsen"
	"raftmq/jepsen/cluster"
	"raftmq/jepsen/workload"
	"raftmq/transport/remoting"
)

// A follower holds other tables than its peers, each byte with a right checksum: it has applied something else. The leader's comparison names it, it puts its data aside, is filled
// again as a newcomer, and is a voter whose tables and log are the others'. Before that the replicas agree on a sealed segment's checksum.
func TestReplicaThatAppliedSomethingElseIsFilledAgain(t *testing.T) {
	long(t)
	parallel(t, 16)
	c := startCluster(t, cluster.Config{Flags: append(jepsen.DefaultFlags(), "--replica-check-interval", "1s")})
	topic := topicName(t)
	createTopic(t, c, topic, 1)
	leader := leaderOf(t, c)
	lc := dial(t, leader.Addrs.Client)
	const messages = 250
	body := strings.Repeat("x", 40_000) // more than a segment of 8 MiB together
	for i := range messages {
		if resp := invoke(t, lc, sendRequest(topic, 0, fmt.Sprint(i, " ", body), "")); resp.Code != 0 {
			t.Fatalf("send: %d %s", resp.Code, resp.Remark)
		}
	}
	for _, n := range c.Nodes() {
		if _, err := n.WaitStatus(withTimeout(t, time.Minute), "a segment's checksum", func(st remoting.NodeStatus) bool { return st.Scrub != nil && st.Scrub.Agreed > 0 }); err != nil {
			t.Fatal(err)
		}
	}
	victim := followerOf(t, c)
	if resp := invoke(t, dial(t, victim.Addrs.Client), request(remoting.RequestSnapshot, nil)); resp.Code != 0 {
		t.Fatalf("snapshot: %d %s", resp.Code, resp.Remark)
	}
	if err := victim.Stop(withTimeout(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	changeTables(t, victim, fmt.Sprintf(`"topicName":%q`, topic))
	if err := victim.Start(); err != nil {
		t.Fatal(err)
	}
	var alarm string
	eventually(t, 60*time.Second, "the alarm", func() bool {
		for _, n := range c.Nodes() {
			if st, err := n.Status(withTimeout(t, 5*time.Second)); err == nil && st.Replicas != nil && st.Replicas.Alarm != "" {
				alarm = st.Replicas.Alarm
				return true
			}
		}
		return false
	})
	if !strings.Contains(alarm, victim.ID+" differs from") || !strings.Contains(alarm, "the tables") {
		t.Errorf("alarm: %s", alarm)
	}
	rejoined(t, c, victim, "raft", "store")
	eventually(t, 60*time.Second, "a comparison without a difference", func() bool {
		st, err := leaderOf(t, c).Status(withTimeout(t, 5*time.Second))
		return err == nil && st.Replicas != nil && st.Replicas.Alarm == "" && st.Replicas.Equal == 3
	})
	read, err := workload.ReadQueue(withTimeout(t, 60*time.Second), dial(t, victim.Addrs.Client), "g", topic, 0, func(workload.Delivery) {})
	if err != nil || read != messages {
		t.Errorf("%s has %d of %d messages: %v", victim.ID, read, messages, err)
	}
	sts, err := c.WaitConverged(withTimeout(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	sameLogs(t, sts)
}

// rejoined waits until a node is a voter again after it has put its data aside, and checks that the parts named, and no others, are there.
func rejoined(t *testing.T, c *cluster.Cluster, n *cluster.Node, parts ...string) {
	t.Helper()
	var folders []string
	eventually(t, 90*time.Second, n.ID+"'s coming back", func() bool {
		folders, _ = filepath.Glob(filepath.Join(n.DataDir, "aside", "*"))
		if len(folders) == 0 {
			return false
		}
		// The node first: when it has caught up, its former self is no member any more.
		if st, err := n.Status(withTimeout(t, 5*time.Second)); err != nil || !st.CaughtUp {
			return false
		}
		for _, o := range c.Nodes() {
			st, err := o.Status(withTimeout(t, 5*time.Second))
			if err != nil || !st.Ready {
				continue
			}
			for _, p := range st.Peers {
				if p.NodeID == n.ID {
					return p.Suffrage == "voter"
				}
			}
		}
		return false
	})
	if len(folders) != 1 {
		t.Fatalf("%d folders are aside: %v", len(folders), folders)
	}
	for _, part := range []string{"raft", "store"} {
		_, err := os.Stat(filepath.Join(folders[0], part))
		want := false
		for _, p := range parts {
			want = want || p == part
		}
		if (err == nil) != want {
			t.Errorf("%s/ aside: %v, wanted %t", part, err, want)
		}
	}
	if text := n.LogTail(1 << 20); !strings.Contains(text, "joins again as a newcomer") {
		t.Errorf("%s's log does not say that it joins again", n.ID)
	}
}

// changeTables changes a number in the newest snapshot of a stopped node behind the text near, and makes all checksums right.
func changeTables(t *testing.T, n *cluster.Node, near string) {
	t.Helper()
	snapshots, err := filepath.Glob(filepath.Join(n.DataDir, "raft", "snapshots", "*", "state.bin"))
	if err != nil || len(snapshots) == 0 {
		t.Fatalf("no snapshots: %v", err)
	}
	path := snapshots[len(snapshots)-1]
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const fixed = 12 // magic, length
	size := int(binary.BigEndian.Uint32(b[8:]))
	head := b[fixed : fixed+size]
	i := bytes.Index(head, []byte(near))
	if i < 0 {
		t.Fatalf("the snapshot has no %s: %.2000s", near, head)
	}
	j := bytes.Index(head[i:], []byte(`"perm":6`))
	if j < 0 {
		t.Fatalf("no permission behind %s: %.2000s", near, head[i:])
	}
	head[i+j+len(`"perm":`)] = '4'
	binary.BigEndian.PutUint32(b[fixed+size:], crc32.Checksum(head, crc32.MakeTable(crc32.Castagnoli)))
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	fixSnapshotSum(t, path, b)
}

// fixSnapshotSum writes the checksum of a changed snapshot file into Raft's description of it.
func fixSnapshotSum(t *testing.T, path string, b []byte) {
	t.Helper()
	meta := filepath.Join(filepath.Dir(path), "meta.json")
	raw, err := os.ReadFile(meta)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	hash := crc64.New(crc64.MakeTable(crc64.ECMA))
	hash.Write(b)
	if fields["CRC"], err = json.Marshal(hash.Sum(nil)); err != nil {
		t.Fatal(err)
	}
	if raw, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(meta, raw, 0o644); err != nil {
		t.Fatal(err)
	}
}
