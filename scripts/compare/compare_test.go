package main

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"raftmq/commitlog/record"
	"raftmq/transport/remoting"
)

// TestNormal: what differs from run to run is gone, and nothing else.
func TestNormal(t *testing.T) {
	answer := func(host, id, time, offset string) *remoting.Command {
		r := &remoting.Command{Code: 1, Remark: "the broker " + host + " says no"}
		r.Set("msgId", id)
		r.Set("storeTimestamp", time)
		r.Set("queueOffset", offset)
		return r
	}
	one := normal(0, answer("10.0.0.1:10911", "7F00000100002EEB0000000000000000", "1796000000001", "3"))
	two := normal(0, answer("127.0.0.1:9876", "7F00000100002AAA0000000000000FFF", "1796000000999", "3"))
	if !slices.Equal(one, two) {
		t.Errorf("two runs differ:\n%s", difference(one, two))
	}
	other := normal(0, answer("127.0.0.1:9876", "7F00000100002AAA0000000000000FFF", "1796000000999", "4"))
	if d := difference(one, other); !strings.Contains(d, "- queueOffset = 3") || !strings.Contains(d, "+ queueOffset = 4") {
		t.Errorf("another offset: %q", d)
	}
}

// TestRecords: a stored property or a flag that differs is seen, the order of properties is not.
func TestRecords(t *testing.T) {
	stored := func(properties string, flag int32) *remoting.Command {
		return &remoting.Command{Body: record.Append(nil, &record.Message{Topic: []byte("T"), Body: []byte("b"), Properties: []byte(properties), Flag: flag,
			BornHost: netip.MustParseAddrPort("127.0.0.1:1"), StoreHost: netip.MustParseAddrPort("127.0.0.1:2")})}
	}
	lines := func(r *remoting.Command) []string { return normal(remoting.RequestPullMessage, r) }
	base := lines(stored("a\x011\x02b\x012\x02", 7))
	if d := difference(base, lines(stored("b\x012\x02a\x011\x02", 7))); d != "" {
		t.Errorf("order of properties: %s", d)
	}
	if difference(base, lines(stored("a\x011\x02b\x013\x02", 7))) == "" || difference(base, lines(stored("a\x011\x02b\x012\x02", 8))) == "" {
		t.Error("another property or flag is not seen")
	}
	if got := lines(&remoting.Command{Body: []byte("no record")}); !strings.Contains(got[len(got)-1], "cannot be read") {
		t.Errorf("damaged: %q", got)
	}
}

// TestSteps: names are unique, and every listed difference is one of them.
func TestSteps(t *testing.T) {
	names := map[string]bool{}
	for _, s := range steps {
		if names[s.name] {
			t.Errorf("two steps are called %q", s.name)
		}
		names[s.name] = true
	}
	for name, reason := range differences {
		if !names[name] || reason == "" {
			t.Errorf("difference %q: no step, or no reason", name)
		}
	}
}
