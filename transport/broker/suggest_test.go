package broker

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"

	"raftmq/fsm/command"
	"raftmq/transport/broker/stats"
	"raftmq/transport/remoting"
)

// TestSuggestReplica: whom a pull's answer names (format notes §8.1, §8.3; wire notes §7.3), and what it counts as read from disk.
func TestSuggestReplica(t *testing.T) {
	const hot = 2000
	var replicas atomic.Pointer[[]int64]
	replicas.Store(&[]int64{})
	n := newNode(t, func(o *nodeOptions) {
		o.store.HotBytes = hot
		o.config = func(c *Config) {
			c.SlaveReadEnable, c.Replicas = true, func() []int64 { return *replicas.Load() }
		}
	})
	n.putTopic("T", 2)
	for _, g := range []struct {
		name       string
		home, slow int64
	}{{"plain", 0, 1}, {"three", 0, 3}, {"home", 2, 1}} {
		config := command.DefaultGroup(g.name)
		config.BrokerID, config.WhichBrokerWhenConsumeSlowly = g.home, g.slow
		must(n.tables.PutGroup(command.GroupPut{Group: config}))
	}
	c := n.dial()
	for queue := range 2 {
		n.fill(c, "T", queue, "a", "a", "b")
	}
	want(t, c.send("T", 1, "", make([]byte, hot)), 0)
	want(t, c.send("T", 0, "", make([]byte, 10)), 0) // the one that is hot
	n.waitReadable("T", 0, 4)
	n.waitReadable("T", 1, 4)
	for _, tc := range []struct {
		name     string
		group    string
		queue    int
		offset   int64
		sub      string
		replicas []int64
		suggest  int64
	}{
		{"cold, but there is no replica", "plain", 0, 0, "a", nil, 0},
		{"cold, the group's replica", "plain", 0, 0, "a", []int64{1, 3}, 1},
		{"cold, another group's", "three", 0, 0, "a", []int64{1, 3}, 3},
		{"cold, the group's replica leads or is gone", "plain", 0, 0, "a", []int64{2, 3}, 2},
		{"the next queue goes to the next", "plain", 1, 0, "a", []int64{2, 3}, 3},
		{"hot", "plain", 0, 3, "*", []int64{1, 3}, 0},
		{"hot, the group has a home", "home", 0, 3, "*", []int64{1, 2}, 2},
		{"hot, its home does not serve", "home", 0, 3, "*", []int64{1}, 0},
		{"cold to hot: what was seen last counts", "plain", 0, 0, "*", []int64{1, 3}, 0},
		{"cold, nothing matches up to what is hot", "plain", 0, 0, "zzz", []int64{1, 3}, 0},
		{"at the end", "plain", 0, 4, "*", []int64{1, 3}, 0},
		{"beyond", "home", 0, 9, "*", []int64{1, 2}, 0},
	} {
		list := slices.Clone(tc.replicas)
		replicas.Store(&list)
		max := "2"
		if tc.sub == "*" {
			max = "10"
		}
		p := pullResponse(t, c.pull(tc.group, "T", tc.queue, tc.offset, flagCarried, 0, "subscription", tc.sub, "maxMsgNums", max))
		if p.SuggestWhichBrokerID != tc.suggest {
			t.Errorf("%s: %d, want %d (%+v)", tc.name, p.SuggestWhichBrokerID, tc.suggest, p)
		}
	}
	// A follower sends a reader of cold messages to a replica too, and who is ahead of it to the leader.
	list := []int64{1, 3}
	replicas.Store(&list)
	n.raft.follow(2, testOther)
	if p := pullResponse(t, c.pull("plain", "T", 0, 0, flagCarried, 0, "subscription", "a", "maxMsgNums", "2")); p.Code != 0 || p.SuggestWhichBrokerID != 1 {
		t.Errorf("cold on a follower: %+v", p)
	}
	if p := pullResponse(t, c.pull("plain", "T", 0, 9, flagCarried, 0, "subscription", "a")); p.Code != remoting.ResponsePullRetryImmediately || p.SuggestWhichBrokerID != 0 {
		t.Errorf("ahead of a follower: %+v", p)
	}
	for _, item := range []struct {
		name, key string
		value     int64
	}{{stats.GroupColdNums, "T@plain", 13}, {stats.BrokerColdNums, testCluster, 15}, {stats.GroupColdNums, "T@three", 2}} {
		it := n.broker.counting.items.Find(item.name, item.key)
		if it == nil || it.Value() != item.value {
			t.Errorf("%s %s: %+v, want %d", item.name, item.key, it, item.value)
		}
	}
	if size := n.broker.counting.items.Find(stats.BrokerColdSize, testCluster); size == nil || uint64(size.Value()) != n.store.Stats().ColdBytes {
		t.Errorf("cold bytes %+v, the store counts %d", size, n.store.Stats().ColdBytes)
	}
}

// TestSuggestNobody: without SlaveReadEnable, RocketMQ's default, nobody is sent anywhere.
func TestSuggestNobody(t *testing.T) {
	n := newNode(t, func(o *nodeOptions) {
		o.store.HotBytes = -1
		o.config = func(c *Config) { c.Replicas = func() []int64 { return []int64{1} } }
	})
	n.putTopic("T", 1)
	c := n.dial()
	n.fill(c, "T", 0, "a")
	if p := pullResponse(t, c.pull("g", "T", 0, 0, flagCarried, 0)); p.Code != 0 || p.SuggestWhichBrokerID != 0 {
		t.Errorf("%+v", p)
	}
}

// TestOffsetByTimeBoundaries: 5.x's two rules over the wire.
func TestOffsetByTimeBoundaries(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	n.fill(c, "T", 0, "", "", "")
	first, last := n.store.StoreTimeAt("T", 0, 0), n.store.StoreTimeAt("T", 0, 2)
	for _, tc := range []struct {
		at       int64
		boundary string
		want     int64
	}{{first - 1, "", 0}, {first - 1, "upper", 0}, {last + 1, "lower", 3}, {last + 1, "UPPER", 2}, {last, "upper", 2}, {first, "LOWER", 0}} {
		resp := want(t, c.call(remoting.RequestSearchOffsetByTimestamp, nil, "topic", "T", "queueId", "0", "timestamp", fmt.Sprint(tc.at), "boundaryType", tc.boundary), 0)
		if got := resp.GetString("offset"); got != fmt.Sprint(tc.want) {
			t.Errorf("%d %q: %s, want %d", tc.at-first, tc.boundary, got, tc.want)
		}
	}
}
