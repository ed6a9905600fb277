package main

import (
	"testing"

	"raftmq/transport/remoting"
)

func TestNotReady(t *testing.T) {
	peers := []remoting.PeerStatus{{NodeID: "n1", Suffrage: "voter"}, {NodeID: "n2", Suffrage: "voter"}, {NodeID: "n3", Suffrage: "nonvoter"}, {NodeID: "gone", Suffrage: "none"}}
	// well is a cluster in which all is well; tests change one thing.
	well := func() []nodeAnswer {
		var nodes []nodeAnswer
		for _, id := range []string{"n1", "n2", "n3"} {
			s := &nodeStatus{remoting.NodeStatus{NodeID: id, LeaderID: "n1", CaughtUp: true, AppliedIndex: 1000, LogMax: 5 << 20}}
			nodes = append(nodes, nodeAnswer{Address: id + ":1", Status: s})
		}
		nodes[0].Status.Ready = true
		nodes[0].Status.Peers = append([]remoting.PeerStatus{}, peers...)
		nodes[0].Status.Peers[2].Suffrage = "voter"
		return nodes
	}
	for _, tt := range []struct {
		name   string
		change func(nodes []nodeAnswer)
		only   []string
		want   string
	}{
		{"well", func([]nodeAnswer) {}, nil, ""},
		{"nobody", func(n []nodeAnswer) { clear(n) }, nil, "no node answers"},
		{"no leader", func(n []nodeAnswer) { n[0].Status.Ready = false }, nil, "there is no leader that takes writes"},
		{"silent", func(n []nodeAnswer) { n[1].Status = nil }, nil, "n2 does not answer"},
		{"another leader", func(n []nodeAnswer) { n[1].Status.LeaderID = "n3" }, nil, "n2 does not follow n1"},
		{"not caught up", func(n []nodeAnswer) { n[1].Status.CaughtUp, n[1].Status.LogMax = false, 1<<20 }, nil, "n2 is catching up (entry 1000 of 1000, 4.0 MiB of log to come)"},
		{"far behind", func(n []nodeAnswer) { n[1].Status.AppliedIndex = 900 }, nil, "n2 is catching up (entry 900 of 1000, 0 B of log to come)"},
		{"a little behind", func(n []nodeAnswer) { n[1].Status.AppliedIndex = 950 }, nil, ""},
		{"no vote", func(n []nodeAnswer) { n[0].Status.Peers[2].Suffrage = "nonvoter" }, nil, "n3 has no vote yet"},
		{"sick", func(n []nodeAnswer) { n[2].Status.DiskProblem = "fsync takes long" }, nil, "n3 stands aside because of its disk"},
		{"two", func(n []nodeAnswer) { n[1].Status, n[2].Status = nil, nil }, nil, "n2 does not answer, n3 does not answer"},
		{"not looked at", func(n []nodeAnswer) { n[1].Status = nil }, []string{"n3"}, ""},
		{"looked at", func(n []nodeAnswer) { n[1].Status = nil }, []string{"n2"}, "n2 does not answer"},
		{"no member", func([]nodeAnswer) {}, []string{"n3", "n4"}, "n4 is no member"},
	} {
		nodes := well()
		tt.change(nodes)
		if got := notReady(nodes, tt.only); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}
