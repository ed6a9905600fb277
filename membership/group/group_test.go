package group

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"
)

type testConn uint64

func (c testConn) ID() uint64               { return uint64(c) }
func (testConn) RemoteAddr() netip.AddrPort { return netip.MustParseAddrPort("127.0.0.1:1") }

// clock is a registry's time, set by hand.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func newTestRegistry() (*Registry, *clock, *[]string) {
	c := &clock{time.Unix(1_700_000_000, 0)}
	r := NewRegistry(c.now)
	changes := &[]string{}
	r.OnChange(func(group string) { *changes = append(*changes, group) })
	return r, c, changes
}

func beat(conn uint64, id, group string, subs ...*Subscription) Heartbeat {
	return Heartbeat{Client: Client{Conn: testConn(conn), ID: id, Version: 401}, Producers: []string{"p-" + group},
		Consumers: []Consumer{{Group: group, Model: Clustering, Subscriptions: subs}}}
}

func sub(topic string, version int64) *Subscription {
	return &Subscription{Topic: topic, Version: version}
}

func TestMembers(t *testing.T) {
	r, _, changes := newTestRegistry()
	expect := func(what string, wantChanges int, members ...string) {
		t.Helper()
		if got := r.Consumers("g"); fmt.Sprint(got) != fmt.Sprint(members) || len(*changes) != wantChanges {
			t.Errorf("%s: members %v, %d changes; want %v, %d", what, got, len(*changes), members, wantChanges)
		}
	}
	expect("empty", 0)
	r.Heartbeat(beat(2, "b", "g", sub("T", 1)))
	expect("first", 1, "b")
	r.Heartbeat(beat(2, "b", "g", sub("T", 1)))
	expect("again", 1, "b")
	r.Heartbeat(beat(1, "a", "g", sub("T", 1)))
	expect("second", 2, "a", "b")
	r.Heartbeat(beat(3, "a", "g", sub("T", 1)))
	expect("same id on another connection", 3, "a", "b")
	if got := len(r.Members("g")); got != 3 {
		t.Errorf("%d connections", got)
	}
	r.CloseConn(1)
	expect("one of two connections closed", 4, "a", "b")
	r.Unregister(3, "p-g", "g")
	expect("unregistered", 5, "b")
	r.Unregister(3, "p-g", "g")
	r.CloseConn(3)
	r.CloseConn(99)
	expect("nothing left to remove", 5, "b")
	if got := r.Producers("p-g"); len(got) != 1 || got[0].ID != "b" {
		t.Errorf("producers %v", got)
	}
	r.CloseConn(2)
	expect("last one closed", 6)
	if _, online := r.Consumer("g"); online || r.Producers("p-g") != nil || r.Stats() != (Stats{}) {
		t.Errorf("left over: %+v", r.Stats())
	}
}

func TestSubscriptions(t *testing.T) {
	r, _, changes := newTestRegistry()
	versions := func() string {
		info, _ := r.Consumer("g")
		var out []string
		for _, s := range info.Subscriptions {
			out = append(out, fmt.Sprintf("%s=%d", s.Topic, s.Version))
		}
		return fmt.Sprint(out)
	}
	for _, step := range []struct {
		subs    []*Subscription
		want    string
		changes int
	}{
		{[]*Subscription{sub("A", 5)}, "[A=5]", 1},
		{[]*Subscription{sub("A", 4)}, "[A=5]", 1},                  // older: ignored
		{[]*Subscription{sub("A", 6)}, "[A=6]", 1},                  // newer: taken, no new topic
		{[]*Subscription{sub("A", 6), sub("B", 1)}, "[A=6 B=1]", 2}, // new topic
		{[]*Subscription{sub("B", 1)}, "[B=1]", 3},                  // topic gone
	} {
		r.Heartbeat(beat(1, "a", "g", step.subs...))
		if got := versions(); got != step.want || len(*changes) != step.changes {
			t.Errorf("%s, %d changes; want %s, %d", got, len(*changes), step.want, step.changes)
		}
	}
	if s, ok := r.Subscription("g", "B"); !ok || s.Topic != "B" {
		t.Errorf("%+v %v", s, ok)
	}
	if _, ok := r.Subscription("none", "B"); ok {
		t.Error("a group that is not online has no subscription")
	}
	if got := r.GroupsOfTopic("B"); !slices.Equal(got, []string{"g"}) {
		t.Errorf("groups %v", got)
	}
	broadcast := beat(2, "x", "bg", sub("B", 1))
	broadcast.Consumers[0].Model = Broadcasting
	r.Heartbeat(broadcast)
	for _, tc := range []struct {
		group, topic                  string
		online, broadcasting, present bool
	}{{"g", "B", true, false, true}, {"g", "A", true, false, false}, {"bg", "B", true, true, true}, {"no", "B", false, false, false}} {
		s, online, broadcasting := r.Lookup([]byte(tc.group), []byte(tc.topic))
		if online != tc.online || broadcasting != tc.broadcasting || (s != nil) != tc.present {
			t.Errorf("%s %s: %v %v %v", tc.group, tc.topic, s, online, broadcasting)
		}
	}
	if allocs := testing.AllocsPerRun(100, func() { r.Lookup([]byte("g"), []byte("B")) }); allocs != 0 {
		t.Errorf("%v allocations in Lookup", allocs)
	}
}

func TestExpire(t *testing.T) {
	r, c, changes := newTestRegistry()
	r.Heartbeat(beat(1, "old", "g"))
	c.at = c.at.Add(Expiry / 2)
	r.Heartbeat(beat(2, "new", "g"))
	c.at = c.at.Add(Expiry/2 + time.Second)
	r.Expire()
	if got := r.Consumers("g"); fmt.Sprint(got) != "[new]" || len(*changes) != 3 {
		t.Errorf("%v, %v", got, *changes)
	}
	if got := r.Producers("p-g"); len(got) != 1 {
		t.Errorf("producers %v", got)
	}
	c.at = c.at.Add(Expiry)
	r.Expire()
	r.mu.RLock()
	defer r.mu.RUnlock()
	if len(r.mu.conns)+len(r.mu.consumers)+len(r.mu.producers) != 0 {
		t.Error("something is left")
	}
}

// TestConcurrent is for the race detector: all at once, and nothing left at the end.
func TestConcurrent(t *testing.T) {
	r := NewRegistry(nil)
	r.OnChange(func(group string) { r.Consumers(group) }) // callbacks may look
	var wg sync.WaitGroup
	for conn := range uint64(8) {
		wg.Go(func() {
			for i := range 300 {
				g := fmt.Sprintf("g%d", i%3)
				r.Heartbeat(beat(conn, fmt.Sprint(conn), g, sub("T", int64(i))))
				r.Lookup([]byte(g), []byte("T"))
				_, _ = r.LockQueues(g, fmt.Sprint(conn), []Queue{{Topic: "T"}}, nil)
				if i%50 == 0 {
					r.CloseConn(conn)
					r.Expire()
				}
			}
			r.CloseConn(conn)
		})
	}
	wg.Wait()
	if s := r.Stats(); s.Consumers+s.Producers+s.ConsumerGroups+s.ProducerGroups != 0 {
		t.Errorf("%+v", s)
	}
}

func BenchmarkLookup(b *testing.B) {
	r := NewRegistry(nil)
	for i := range uint64(100) {
		r.Heartbeat(beat(i, fmt.Sprint(i), fmt.Sprintf("g%d", i%10), sub("T", 1)))
	}
	group, topic := []byte("g7"), []byte("T")
	b.ReportAllocs()
	for b.Loop() {
		if s, _, _ := r.Lookup(group, topic); s == nil {
			b.Fatal("lost")
		}
	}
}
