package broker

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"raftmq/fsm/command"
	"raftmq/membership/group"
	"raftmq/transport/remoting"
)

func heartbeatBody(id, group, topic string) []byte {
	return (&remoting.HeartbeatData{ClientID: id,
		ProducerDataSet: []remoting.ProducerData{{GroupName: "pg-" + group}},
		ConsumerDataSet: []remoting.ConsumerData{{GroupName: group, ConsumeType: remoting.ConsumePassively, MessageModel: remoting.Clustering,
			ConsumeFromWhere: remoting.ConsumeFromLastOffset, SubscriptionDataSet: []remoting.SubscriptionData{{Topic: topic, SubString: "*", SubVersion: 1, ExpressionType: "TAG"}}}},
	}).Encode()
}

func (c *conn) beat(id, group, topic string) *remoting.Command {
	c.t.Helper()
	return want(c.t, c.call(remoting.RequestHeartBeat, heartbeatBody(id, group, topic)), 0)
}

func (c *conn) consumers(group string) *remoting.Command {
	c.t.Helper()
	return c.call(remoting.RequestGetConsumerListByGroup, nil, "consumerGroup", group)
}

func TestHeartbeat(t *testing.T) {
	n := newNode(t)
	a, b := n.dial(), n.dial()
	if r := a.beat("b@2", "g", "T"); r.Version != remoting.Version4_9_4 {
		t.Errorf("version %d", r.Version)
	}
	// Group and retry topic come by command, once.
	eventually(t, "group and retry topic exist", func() bool {
		_, g := n.tables.Group("g")
		_, r := n.tables.Topic("%RETRY%g")
		return g && r
	})
	if r, _ := n.tables.Topic("%RETRY%g"); r.WriteQueueNums != 1 || r.Perm != 6 {
		t.Errorf("retry topic %+v", r)
	}
	b.beat("a@1", "g", "T")
	if got := n.raft.kinds[command.KindGroupPut].Load() + n.raft.kinds[command.KindTopicPut].Load(); got != 2 {
		t.Errorf("%d table commands", got)
	}
	var list remoting.ConsumerList
	if err := list.Decode(want(t, a.consumers("g"), 0).Body); err != nil || fmt.Sprint(list.ConsumerIDList) != "[a@1 b@2]" {
		t.Errorf("members %v (%v)", list, err)
	}
	eventually(t, "both are told", func() bool { return a.pushed(40) > 0 && b.pushed(40) > 0 })
	// A connection's end takes its member away and tells the others.
	before := b.pushed(remoting.RequestNotifyConsumerIDsChanged)
	_ = a.Close()
	eventually(t, "the other is told", func() bool { return b.pushed(40) > before })
	if err := list.Decode(want(t, b.consumers("g"), 0).Body); err != nil || fmt.Sprint(list.ConsumerIDList) != "[a@1]" {
		t.Errorf("members %v (%v)", list, err)
	}
	b.mu.Lock()
	last := b.requests[len(b.requests)-1]
	b.mu.Unlock()
	if last.GetString("consumerGroup") != "g" || !last.IsOneWay() {
		t.Errorf("notification %+v", last)
	}
	want(t, b.call(remoting.RequestUnregisterClient, nil, "clientID", "a@1", "consumerGroup", "g", "producerGroup", "pg-g"), 0)
	n.clock.Store(int64(learnTime))
	want(t, b.consumers("g"), 1, "no consumer for this group, g")
	want(t, b.call(remoting.RequestGetProducerConnectionList, nil, "producerGroup", "pg-g"), 1, "the producer group[pg-g] not exist")
}

func TestHeartbeatBad(t *testing.T) {
	n := newNode(t)
	c := n.dial()
	for _, body := range []string{"", "{nonsense", "[]"} {
		if r := c.call(remoting.RequestHeartBeat, []byte(body)); r.Code != 1 || r.Remark == "" {
			t.Errorf("%q: %d %q", body, r.Code, r.Remark)
		}
	}
	want(t, c.call(remoting.RequestHeartBeat, []byte("{}")), 0)
	// A group whose name cannot be stored does no harm.
	c.beat("c@1", strings.Repeat("x", 300), "T")
	c.beat("c@1", "a b", "T")
	if n.raft.kinds[command.KindGroupPut].Load() != 0 {
		t.Error("an illegal group was created")
	}
}

// TestYoungNodeMembers: a node that has just started does not say that a group is empty before clients had time to tell.
func TestYoungNodeMembers(t *testing.T) {
	n := newNode(t)
	a, b := n.dial(), n.dial()
	answer := make(chan *remoting.Command, 1)
	go func() { answer <- a.consumers("g") }()
	select {
	case r := <-answer:
		t.Fatalf("answered at once: %d %q", r.Code, r.Remark)
	case <-time.After(2 * learnPoll):
	}
	b.beat("b@1", "g", "T")
	want(t, <-answer, 0)
	n.clock.Store(int64(learnTime))
	want(t, a.consumers("other"), 1, "no consumer for this group, other")
}

// TestNotifyCoalesced is the server's part of F75.
func TestNotifyCoalesced(t *testing.T) {
	n := newNode(t)
	watcher := n.dial()
	watcher.beat("w", "g", "T")
	const members = 60
	for i := range members {
		n.dial().beat(fmt.Sprintf("m%02d", i), "g", "T")
	}
	eventually(t, "the watcher is told", func() bool { return watcher.pushed(40) > 0 })
	time.Sleep(2 * notifyDelay)
	if got := watcher.pushed(40); got > members/4 {
		t.Errorf("%d notifications for %d members that came together", got, members)
	}
	// The last change is told too.
	before := watcher.pushed(40)
	n.dial().beat("late", "g", "T")
	eventually(t, "the last change is told", func() bool { return watcher.pushed(40) > before })

	off := command.DefaultGroup("quiet")
	off.NotifyConsumerIDsChangedEnable = false
	must(n.tables.PutGroup(command.GroupPut{Group: off}))
	q := n.dial()
	q.beat("q", "quiet", "T")
	time.Sleep(3 * notifyDelay)
	if q.pushed(40) != 0 {
		t.Error("told although the group wants none")
	}
}

func TestExpiry(t *testing.T) {
	n := newNode(t)
	c := n.dial()
	c.beat("c@1", "g", "T")
	n.clock.Store(int64(group.Expiry + time.Second))
	n.groups.Expire()
	want(t, c.consumers("g"), 1)
}

func TestCheckClientConfig(t *testing.T) {
	n := newNode(t)
	c := n.dial()
	body := func(kind string) []byte {
		b, err := json.Marshal(map[string]any{"clientId": "c", "group": "g", "subscriptionData": map[string]any{"topic": "T", "subString": "a > 1", "expressionType": kind}})
		must(err)
		return b
	}
	want(t, c.call(remoting.RequestCheckClientConfig, body("TAG")), 0)
	want(t, c.call(remoting.RequestCheckClientConfig, body("XYZ")), 1, "The broker does not support consumer to filter message by XYZ")
	want(t, c.call(remoting.RequestCheckClientConfig, nil), 1)
}
