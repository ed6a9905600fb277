package main

import (
	"bytes"
	"strings"
	"testing"

	"raftmq/transport/remoting"
)

// TestStatusIsReadable: with figures as large as they get and ordinary names no line of the tables is wider than a terminal of 120 columns.
func TestStatusIsReadable(t *testing.T) {
	var nodes []nodeAnswer
	var peers []remoting.PeerStatus
	for _, id := range []string{"node1", "node2", "node3", "node4"} {
		peers = append(peers, remoting.PeerStatus{NodeID: id, ClientAddr: "10.20.30.4" + id[4:] + ":9876", Suffrage: "voter"})
	}
	peers[2].Suffrage = "nonvoter"
	for i, id := range []string{"node1", "node2", "node3"} {
		s := &nodeStatus{remoting.NodeStatus{NodeID: id, Version: "10.20.30", Role: "follower", Term: 1234567, LeaderID: "node1", AppliedIndex: 1234567890 - uint64(i)*1000, LastContactMillis: 12345,
			LogMin: 123456789012 * 10, LogMax: 1234567890123 + int64(2-i)<<30, FlushedTo: 1234567890123, Queues: 12345, DiskRatio: 0.87, DiskTotal: 123 << 40, UptimeSeconds: 12345678,
			Mode: modeDurable, CaughtUp: true, Level: 3, ClusterLevel: 2, Peers: peers}}
		nodes = append(nodes, nodeAnswer{Address: "10.20.30.4" + id[4:] + ":9876", Status: s})
	}
	nodes[0].Status.Role, nodes[0].Status.Ready = "leader", true
	nodes[2].Status.Mode = modeUnsafe
	nodes[2].Status.CatchUp = &remoting.CatchUpStatus{State: "fetching", Leader: "node1", To: 100 << 30, At: 99 << 30, BytesPerSecond: 100 << 20}
	nodes[1].Status.Drain = &remoting.DrainStatus{LedMillis: 5000, RelayedWrites: 3}
	nodes = append(nodes, nodeAnswer{Address: "10.20.30.44:9876", Error: "connection refused"})
	compareNodes(nodes)
	var b bytes.Buffer
	if err := writeStatus(&b, nodes); err != nil {
		t.Fatal(err)
	}
	tables, remarks, _ := strings.Cut(b.String(), "\n\ncluster ")
	for line := range strings.Lines(tables) {
		if len(line) > 121 {
			t.Errorf("%d columns: %s", len(line)-1, line)
		}
	}
	for _, want := range []string{"1000 (1.0 GiB)", "follower, no vote", "follower, draining", "UNSAFE", "87% of 123.0 TiB", "node4  no answer"} {
		if !strings.Contains(tables, want) {
			t.Errorf("the tables lack %q:\n%s", want, tables)
		}
	}
	for _, want := range []string{"node4: no answer at 10.20.30.44:9876 (connection refused): start it", "raftmq cluster remove node4", "what SEND_OK means depends on who leads",
		"node2: is being drained: it led until 5s ago",
		"node3: is far behind and is fetching messages from node1: 99.0 GiB of 100.0 GiB (99.0 %), 100.0 MiB/s, 10s left"} {
		if !strings.Contains(remarks, want) {
			t.Errorf("the remarks lack %q:\n%s", want, remarks)
		}
	}
	if strings.Contains(remarks, "raftmq cluster upgrade") {
		t.Error("an upgrade is offered while a node is down")
	}
	b.Reset()
	if err := writeStatus(&b, nodes[:3]); err != nil || !strings.Contains(b.String(), "all nodes can apply feature level 3, the cluster uses 2: raftmq cluster upgrade") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

func TestWhyNoLeader(t *testing.T) {
	peers := []remoting.PeerStatus{{NodeID: "n1", Suffrage: "voter"}, {NodeID: "n2", Suffrage: "voter"}, {NodeID: "n3", Suffrage: "voter"}, {NodeID: "n4", Suffrage: "nonvoter"}}
	answer := func(id string) nodeAnswer {
		return nodeAnswer{Address: id, Status: &nodeStatus{remoting.NodeStatus{NodeID: id, Peers: peers}}}
	}
	for _, tt := range []struct {
		nodes []nodeAnswer
		want  string
	}{
		{[]nodeAnswer{{Address: "n1", Error: "refused"}}, ": no node answers"},
		{[]nodeAnswer{answer("n1"), answer("n4")}, ": 1 of 3 voters answer, and a majority is needed: start the others"},
		{[]nodeAnswer{answer("n1"), answer("n3")}, ", though 2 of 3 voters answer: an election"},
		{[]nodeAnswer{{Status: &nodeStatus{}}}, ""},
	} {
		if got := whyNoLeader(tt.nodes, firstAnswer(tt.nodes)); !strings.HasPrefix(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}
