package route

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/membership"
)

// world is a router and all that it reads, as a test changes it.
type world struct {
	*Router
	tables   *metadata.Tables
	leader   string // "" for none
	members  []string
	caughtUp bool
	gossip   []membership.Member
	now      time.Time
}

func newTables(tb testing.TB, broker string) *metadata.Tables {
	tb.Helper()
	t := metadata.New()
	if err := t.PutSettings(command.Settings{ClusterID: "id", ClusterName: "C", BrokerName: broker, SegmentSize: 1 << 20, AutoCreateTopic: true, DefaultTopicQueues: 8}); err != nil {
		tb.Fatal(err)
	}
	return t
}

func putTopic(tb testing.TB, t *metadata.Tables, name string, queues, perm, sysFlag int) {
	tb.Helper()
	if err := t.PutTopic(command.TopicPut{Topic: command.TopicConfig{TopicName: name, ReadQueueNums: queues, WriteQueueNums: queues, Perm: perm, TopicSysFlag: sysFlag}}); err != nil {
		tb.Fatal(err)
	}
}

func newWorld(tb testing.TB) *world {
	tb.Helper()
	w := &world{tables: newTables(tb, "g1"), leader: "n1", members: []string{"n1", "n2", "n3"}, caughtUp: true, now: time.Unix(1000, 0)}
	for _, id := range w.members {
		if _, err := w.tables.PutNode(command.NodePut{ID: id, ClientAddr: id + ":9876"}); err != nil {
			tb.Fatal(err)
		}
	}
	putTopic(tb, w.tables, "T", 4, 6, 0)
	w.Router = New(Config{
		Groups: []Group{{Name: "g1", ClusterName: "C", Tables: w.tables,
			Leader:   func() (string, bool) { return w.leader, w.leader != "" },
			Members:  func() []string { return w.members },
			CaughtUp: func() bool { return w.caughtUp }}},
		Gossip: func() []membership.Member { return w.gossip },
		Now:    func() time.Time { return w.now },
	})
	return w
}

func member(id, group, addr string, term uint64, state membership.State) membership.Member {
	return membership.Member{Tags: membership.Tags{NodeID: id, ClusterName: "C", Group: group, ClientAddr: addr, LeaderTerm: term}, State: state}
}

func TestTopic(t *testing.T) {
	tests := []struct {
		name   string
		change func(*world)
		topic  string
		want   map[int64]string
		err    error
	}{
		{"leader is 0, others keep their numbers", func(*world) {}, "T", map[int64]string{0: "n1:9876", 2: "n2:9876", 3: "n3:9876"}, nil},
		{"another leader", func(w *world) { w.leader = "n3" }, "T", map[int64]string{0: "n3:9876", 1: "n1:9876", 2: "n2:9876"}, nil},
		{"unknown topic", func(*world) {}, "U", nil, ErrNoTopic},
		{"empty name", func(*world) {}, "", nil, ErrNoTopic},
		{"never a leader", func(w *world) { w.leader = "" }, "T", nil, ErrNoLeader},
		{"never a leader, unknown topic", func(w *world) { w.leader = "" }, "U", nil, ErrNoLeader},
		{"catching up", func(w *world) { w.caughtUp = false }, "T", nil, ErrCatchingUp},
		{"catching up, unknown topic", func(w *world) { w.caughtUp = false }, "U", nil, ErrNoLeader},
		{"removed from the configuration", func(w *world) { w.members = []string{"n1", "n3"} }, "T", map[int64]string{0: "n1:9876", 3: "n3:9876"}, nil},
		{"newcomer without a number", func(w *world) {
			w.members = append(w.members, "n4")
			w.gossip = []membership.Member{member("n4", "g1", "n4:1", 0, membership.Alive)}
		}, "T", map[int64]string{0: "n1:9876", 2: "n2:9876", 3: "n3:9876"}, nil},
		{"newcomer leads, address from gossip", func(w *world) {
			w.leader = "n4"
			w.gossip = []membership.Member{member("n4", "g9", "n4:9", 0, membership.Alive), member("n4", "g1", "n4:1", 0, membership.Alive)}
		}, "T", map[int64]string{0: "n4:1", 1: "n1:9876", 2: "n2:9876", 3: "n3:9876"}, nil},
		{"leader without any address", func(w *world) { w.leader = "n9" }, "T", nil, ErrNoLeader},
		{"address that would break Go clients", func(w *world) {
			w.tables.PutNode(command.NodePut{ID: "n2", ClientAddr: "a,b"})
		}, "T", map[int64]string{0: "n1:9876", 3: "n3:9876"}, nil},
		{"gossip's suspicion changes nothing", func(w *world) {
			w.gossip = []membership.Member{member("n1", "g1", "x:1", 1, membership.Failed), member("n2", "g1", "y:1", 9, membership.Suspect)}
		}, "T", map[int64]string{0: "n1:9876", 2: "n2:9876", 3: "n3:9876"}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			tt.change(w)
			got, err := w.Topic(tt.topic)
			if !errors.Is(err, tt.err) {
				t.Fatalf("error %v, want %v", err, tt.err)
			}
			if tt.err != nil {
				if errors.Is(tt.err, ErrNoLeader) && errors.Is(err, ErrNoTopic) {
					t.Error("guessed")
				}
				return
			}
			want := Route{Brokers: []Broker{{Name: "g1", Cluster: "C", Addrs: tt.want}}, Queues: []Queue{{BrokerName: "g1", Read: 4, Write: 4, Perm: 6}}}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

// A node that led and lost its quorum names nobody, least of all itself, from that moment on; as soon as it hears of a leader it names that one.
func TestDeposedLeaderHasNoGrace(t *testing.T) {
	w := newWorld(t)
	deposed := false
	w.cfg.Groups[0].Deposed = func() bool { return deposed }
	if _, err := w.Topic("T"); err != nil {
		t.Fatal(err)
	}
	w.leader, deposed = "", true
	w.LeaderChanged()
	if r, err := w.Topic("T"); !errors.Is(err, ErrNoLeader) || errors.Is(err, ErrNoTopic) {
		t.Errorf("%+v, %v", r, err)
	}
	w.leader = "n2"
	if r, err := w.Topic("T"); err != nil || r.Brokers[0].Addrs[0] != "n2:9876" {
		t.Errorf("%+v, %v", r, err)
	}
}

// wire.md §3.4: during an election the last leader stays id 0, a minority answers nothing.
func TestLastLeaderGrace(t *testing.T) {
	w := newWorld(t)
	if _, err := w.Topic("T"); err != nil {
		t.Fatal(err)
	}
	w.now = w.now.Add(time.Hour) // nobody asks for a long while
	w.leader = ""
	w.LeaderChanged()
	w.now = w.now.Add(DefaultLastLeaderGrace)
	if r, err := w.Topic("T"); err != nil || r.Brokers[0].Addrs[0] != "n1:9876" {
		t.Errorf("at the grace's end: %+v, %v", r, err)
	}
	if _, err := w.Topic("U"); !errors.Is(err, ErrNoLeader) {
		t.Errorf("unknown topic without a leader: %v", err)
	}
	w.now = w.now.Add(time.Nanosecond)
	for _, topic := range []string{"T", "U"} {
		if _, err := w.Topic(topic); !errors.Is(err, ErrNoLeader) {
			t.Errorf("%s after the grace: %v", topic, err)
		}
	}
	if _, err := w.Clusters(); !errors.Is(err, ErrNoLeader) {
		t.Errorf("clusters after the grace: %v", err)
	}
	if _, err := w.Topics("", nil); !errors.Is(err, ErrNoLeader) {
		t.Errorf("topics after the grace: %v", err)
	}
	w.leader = "n2" // published at once
	if r, err := w.Topic("T"); err != nil || r.Brokers[0].Addrs[0] != "n2:9876" {
		t.Errorf("new leader: %+v, %v", r, err)
	}
	// The next loss has a grace of its own, also when nobody told of it.
	w.leader = ""
	if _, err := w.Topic("T"); err != nil {
		t.Errorf("second loss: %v", err)
	}
}

func TestOrderTopicConf(t *testing.T) {
	for _, tt := range []struct{ value, want string }{
		{"g1:4", "g1:4"},
		{"g1:4;g2:8", "g1:4;g2:8"},
		{"g1:4;", "g1:4"}, // Go clients panic on these
		{"g1", ""},
		{";g1:4;:3;g2:x;g3:-1", "g1:4"},
		{"", ""},
	} {
		w := newWorld(t)
		if err := w.tables.PutKV(command.KVPut{Namespace: metadata.OrderNamespace, Key: "T", Value: tt.value}); err != nil {
			t.Fatal(err)
		}
		if r, err := w.Topic("T"); err != nil || r.OrderTopicConf != tt.want {
			t.Errorf("%q: %q, %v; want %q", tt.value, r.OrderTopicConf, err, tt.want)
		}
	}
}

func TestClusters(t *testing.T) {
	w := newWorld(t)
	w.gossip = []membership.Member{
		member("a1", "g2", "a1:1", 3, membership.Alive),
		member("a2", "g2", "a2:1", 5, membership.Failed), // failed by gossip: still the leader that was told last
		member("a3", "g2", "a3:1", 0, membership.Alive),
		member("b1", "g3", "b1:1", 2, membership.Left),
		member("n2", "g1", "n2:1", 99, membership.Alive), // local: Raft knows better
	}
	got, err := w.Clusters()
	if err != nil {
		t.Fatal(err)
	}
	want := []Broker{
		{Name: "g1", Cluster: "C", Addrs: map[int64]string{0: "n1:9876", 2: "n2:9876", 3: "n3:9876"}},
		{Name: "g2", Cluster: "C", Addrs: map[int64]string{0: "a2:1"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

// Two local groups: a topic's route has those groups that have it and a leader.
func TestTwoGroups(t *testing.T) {
	t1, t2 := newTables(t, "g1"), newTables(t, "g2")
	for i, x := range []*metadata.Tables{t1, t2} {
		if _, err := x.PutNode(command.NodePut{ID: "n1", ClientAddr: fmt.Sprintf("n1:%d", i+1)}); err != nil {
			t.Fatal(err)
		}
		putTopic(t, x, "both", 4, 6, 0)
	}
	putTopic(t, t2, "second", 2, 6, 0)
	leads := []bool{true, true}
	leader := func(i int) func() (string, bool) { return func() (string, bool) { return "n1", leads[i] } }
	r := New(Config{Groups: []Group{
		{Name: "g1", ClusterName: "C", Tables: t1, Leader: leader(0)},
		{Name: "g2", ClusterName: "C", Tables: t2, Leader: leader(1)},
	}})
	if got, err := r.Topic("both"); err != nil || len(got.Brokers) != 2 || len(got.Queues) != 2 {
		t.Errorf("both: %+v, %v", got, err)
	}
	if got, err := r.Topic("second"); err != nil || len(got.Brokers) != 1 || got.Brokers[0].Addrs[0] != "n1:2" {
		t.Errorf("second: %+v, %v", got, err)
	}
	names, err := r.Topics("C", nil)
	if n := len(slices.Compact(slices.Sorted(slices.Values(names)))); err != nil || n != len(names) {
		t.Errorf("%d of %d names differ, %v", n, len(names), err)
	}
	r = New(r.cfg) // no memory of a leader
	leads[1] = false
	if got, err := r.Topic("both"); err != nil || len(got.Brokers) != 1 {
		t.Errorf("both, one leaderless: %+v, %v", got, err)
	}
	if _, err := r.Topic("second"); !errors.Is(err, ErrNoLeader) {
		t.Errorf("second, leaderless: %v", err)
	}
	if _, err := r.Topic("neither"); !errors.Is(err, ErrNoLeader) {
		t.Errorf("neither, one leaderless: %v", err)
	}
}

func TestTopics(t *testing.T) {
	w := newWorld(t)
	putTopic(t, w.tables, "%RETRY%cg", 1, 6, 0)
	putTopic(t, w.tables, "Unit", 1, 6, 1)
	all, err := w.Topics("", nil)
	if err != nil || !slices.Contains(all, "%RETRY%cg") || !slices.Contains(all, metadata.AutoCreateTopic) || !slices.IsSorted(all) {
		t.Errorf("all: %v, %v", all, err)
	}
	if c, err := w.Topics("C", nil); err != nil || !slices.Equal(c, all) {
		t.Errorf("of the cluster: %v, %v", c, err)
	}
	if o, err := w.Topics("other", nil); err != nil || len(o) != 0 || o == nil {
		t.Errorf("of another: %v, %v", o, err)
	}
	if u, err := w.Topics("", func(f int) bool { return f&1 != 0 }); err != nil || !slices.Equal(u, []string{"Unit"}) {
		t.Errorf("unit: %v, %v", u, err)
	}
	w.caughtUp = false
	if _, err := w.Topics("", nil); !errors.Is(err, ErrCatchingUp) {
		t.Errorf("catching up: %v", err)
	}
}

// F73: 60,000 topics.
func BenchmarkTopic60k(b *testing.B) {
	w := newWorld(b)
	for i := range 60_000 {
		putTopic(b, w.tables, fmt.Sprintf("topic-%05d", i), 8, 6, 0)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Topic("topic-31415"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkTopics60k(b *testing.B) {
	w := newWorld(b)
	for i := range 60_000 {
		putTopic(b, w.tables, fmt.Sprintf("topic-%05d", i), 8, 6, 0)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := w.Topics("", nil); err != nil {
			b.Fatal(err)
		}
	}
}
