package main

import (
	"strings"
	"testing"

	"raftmq/transport/remoting"
)

func TestStoreHealthTexts(t *testing.T) {
	s := func(change func(*nodeStatus)) *nodeStatus {
		out := &nodeStatus{remoting.NodeStatus{NodeID: "n1", LogMin: 100, LogMax: 1100, CaughtUp: true, Scrub: &remoting.ScrubStatus{At: 350, End: 1100, Rate: 1, Passes: 3},
			Repair: &remoting.RepairStatus{}}}
		if change != nil {
			change(out)
		}
		return out
	}
	damaged := s(func(s *nodeStatus) {
		s.Repair.Damaged = []remoting.DamagedRange{{From: 200, To: 300, File: "commitlog/0", Pos: 100}, {From: 400, To: 500}}
	})
	tried := s(func(s *nodeStatus) {
		s.Repair.Damaged = []remoting.DamagedRange{{From: 200, To: 300, File: "commitlog/0", Tried: "n2: refused"}}
	})
	filling := s(func(s *nodeStatus) { s.CaughtUp = false })
	fetching := s(func(s *nodeStatus) {
		s.CatchUp = &remoting.CatchUpStatus{State: "fetching", Leader: "n2", From: 1100, At: 1100 + 3<<20, To: 1100 + 12<<20, BytesPerSecond: 1 << 20}
	})
	heldUp := *fetching.CatchUp
	heldUp.State, heldUp.Problem = "waiting", "connection refused"
	for _, tt := range []struct{ got, want string }{
		{catchUpText(&nodeAnswer{Status: fetching, Behind: &behindLeader{5, 12 << 20}}), "fetched 25%"},
		{describeCatchUp(fetching.CatchUp), "fetching messages from n2: 3.0 MiB of 12.0 MiB (25.0 %), 1.0 MiB/s, 9s left"},
		{describeCatchUp(&heldUp), "fetching messages from n2: 3.0 MiB of 12.0 MiB (25.0 %), held up: connection refused"},
		{describeCatchUp(&remoting.CatchUpStatus{State: "comparing", Leader: "n2"}), "comparing its log with that of n2"},
		{describeCatchUp(&remoting.CatchUpStatus{State: "installing", Leader: "n2"}), "putting the fetched messages into its log"},
		{scrubText(s(nil)), "25%, 3 done"},
		{scrubText(s(func(s *nodeStatus) { s.Scrub.At = 50 })), "0%, 3 done"},
		{scrubText(s(func(s *nodeStatus) { s.Scrub.Rate = 0 })), "off"},
		{scrubText(s(func(s *nodeStatus) { s.Scrub.End = 100 })), "100%"},
		{scrubText(s(func(s *nodeStatus) { s.Scrub = nil })), "-"},
		{repairText(s(nil)), "ok"},
		{repairText(s(func(s *nodeStatus) { s.Repair = nil })), "-"},
		{repairText(s(func(s *nodeStatus) { s.Repair.Repaired, s.Repair.Units = 2, 3 })), "5 repaired"},
		{repairText(damaged), "2 DAMAGED"},
		{catchUpText(&nodeAnswer{Status: s(nil), Behind: &behindLeader{5, 3000}}), "-"},
		{catchUpText(&nodeAnswer{Status: filling, Behind: &behindLeader{5, 3000}}), "25%"},
		{catchUpText(&nodeAnswer{Status: filling}), "-"},
		{damageText(s(nil).Repair), ""},
	} {
		if tt.got != tt.want {
			t.Errorf("%q, want %q", tt.got, tt.want)
		}
	}
	if text := damageText(damaged.Repair); !strings.Contains(text, "log bytes 200 to 300 are damaged (commitlog/0, offset 100), and 1 other ranges: they are being fetched") {
		t.Errorf("%q", text)
	}
	if text := damageText(tried.Repair); !strings.Contains(text, "no other node could help (n2: refused): start the other nodes") {
		t.Errorf("%q", text)
	}
}
