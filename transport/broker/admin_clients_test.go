package broker

import (
	"context"
	"encoding/json"
	"strings"
	"sync/atomic"
	"testing"

	"raftmq/commitlog/record"
	"raftmq/fsm/command"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// consumer is a client whose group consumes topic, and that answers the server's requests.
func (n *node) consumer(id, group, topic string, answer func(cmd *remoting.Command) *remoting.Command) *conn {
	n.t.Helper()
	c := n.dial()
	c.OnRequest(func(cmd *remoting.Command) *remoting.Command {
		c.mu.Lock()
		c.requests = append(c.requests, cmd.Clone())
		c.mu.Unlock()
		if answer == nil {
			return nil
		}
		return answer(cmd)
	})
	c.beat(id, group, topic)
	return c
}

// request returns the first request of a code that the server sent.
func (c *conn) request(code int32) *remoting.Command {
	c.t.Helper()
	var found *remoting.Command
	eventually(c.t, remoting.RequestCodeName(code)+" came", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, r := range c.requests {
			if r.Code == code {
				found = r
			}
		}
		return found != nil
	})
	return found
}

func commitOffsets(n *node, group, topic string, offsets ...int64) {
	var c command.OffsetsCommit
	for q, o := range offsets {
		c.Offsets = append(c.Offsets, command.ConsumerOffset{Topic: topic, Group: group, QueueID: int32(q), Offset: o})
	}
	must(n.tables.CommitOffsets(c))
}

// TestResetOffset: all consumers of the group are told, and the tool is told the same; nothing is stored here.
func TestResetOffset(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 2)
	c := n.dial()
	n.fill(c, "T", 0, "", "", "")
	reset := func(fields ...string) *remoting.Command {
		return c.call(remoting.RequestInvokeBrokerToResetOffset, nil, append([]string{"topic", "T", "group", "g", "timestamp", "0", "isForce", "true"}, fields...)...)
	}
	want(t, reset("topic", "None"), 1, "[reset-offset] reset offset failed, no topic in this broker. topic=None")
	want(t, reset(), 1, "THe consumer group <g> not exist")
	commitOffsets(n, "g", "T", 2, 0)
	want(t, reset(), 206, "Consumer not online, so can not reset offset, Group: g Topic: T Timestamp: 0")
	a, b := n.consumer("a@1", "g", "T", nil), n.consumer("b@2", "g", "T", nil)
	queue := func(q int32) remoting.MessageQueue {
		return remoting.MessageQueue{BrokerName: testBroker, QueueID: q, Topic: "T"}
	}
	for _, tc := range []struct {
		timestamp, force string
		first            int64
	}{{"0", "true", 0}, {"-1", "true", 3}, {"-1", "false", 2}, {"0", "false", 0}} {
		a.mu.Lock()
		a.requests = nil
		a.mu.Unlock()
		b.mu.Lock()
		b.requests = nil
		b.mu.Unlock()
		var got remoting.OffsetTable
		resp := want(t, reset("timestamp", tc.timestamp, "isForce", tc.force), 0, "not set any response code")
		if err := got.Decode(resp.Body); err != nil || len(got.OffsetTable) != 2 || got.OffsetTable[0] != (remoting.QueueOffset{Queue: queue(0), Offset: tc.first}) || got.OffsetTable[1] != (remoting.QueueOffset{Queue: queue(1)}) {
			t.Errorf("%+v: %s, %v", tc, resp.Body, err)
		}
		for _, k := range []*conn{a, b} {
			told := k.request(remoting.RequestResetConsumerClientOffset)
			if string(told.Body) != string(resp.Body) || told.GetString("topic") != "T" || told.GetString("group") != "g" ||
				told.GetString("timestamp") != tc.timestamp || told.GetString("isForce") != "false" || told.Flag&remoting.FlagOneWay == 0 {
				t.Errorf("%+v: told %v %s", tc, told.Ext, told.Body)
			}
		}
	}
	if o, _ := n.tables.ConsumerOffset("g", "T", 0); o != 2 {
		t.Errorf("stored %d", o)
	}
	// C++ tools' consumers get a list.
	cpp := request(remoting.RequestInvokeBrokerToResetOffset, nil, "topic", "T", "group", "g", "timestamp", "-1", "isForce", "true")
	cpp.Language = remoting.LanguageCPP
	a.mu.Lock()
	a.requests = nil
	a.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), waitLong)
	defer cancel()
	if resp, err := c.Invoke(ctx, cpp); err != nil || resp.Code != 0 {
		t.Fatalf("%+v %v", resp, err)
	}
	if told := a.request(remoting.RequestResetConsumerClientOffset); string(told.Body) != `{"offsetTable":[{"brokerName":"peer-a","offset":3,"queueId":0,"topic":"T"},{"brokerName":"peer-a","offset":0,"queueId":1,"topic":"T"}]}` {
		t.Errorf("told %s", told.Body)
	}
	old := n.dial()
	hb := request(remoting.RequestHeartBeat, heartbeatBody("old@3", "g", "T"))
	hb.Version = 26
	if _, err := old.Invoke(ctx, hb); err != nil {
		t.Fatal(err)
	}
	want(t, reset(), 1, "the client does not support this feature. version=3.0.6-SNAPSHOT")
}

func TestConsumerStatus(t *testing.T) {
	n := newNode(t)
	c := n.dial()
	status := func(fields ...string) *remoting.Command {
		return c.call(remoting.RequestInvokeBrokerToGetConsumerStatus, nil, append([]string{"topic", "T", "group", "g"}, fields...)...)
	}
	want(t, status(), 1, "No Any Consumer online in the consumer group: [g]")
	answer := func(offset string) func(cmd *remoting.Command) *remoting.Command {
		return func(cmd *remoting.Command) *remoting.Command {
			if cmd.Code != remoting.RequestGetConsumerStatusFromClient {
				return nil
			}
			return &remoting.Command{Body: []byte(`{"consumerTable":{},"messageQueueTable":{{"brokerName":"peer-a","queueId":0,"topic":"` + cmd.GetString("topic") + `"}:` + offset + `}}`)}
		}
	}
	n.consumer("a@1", "g", "T", answer("7"))
	n.consumer("b@2", "g", "T", answer("nonsense"))
	n.consumer("c@3", "g", "T", func(cmd *remoting.Command) *remoting.Command { return &remoting.Command{Code: 1} })
	const a = `{"consumerTable":{"a@1":{{"brokerName":"peer-a","queueId":0,"topic":"T"}:7}},"messageQueueTable":{}}`
	if r := want(t, status(), 0); string(r.Body) != a {
		t.Errorf("%s", r.Body)
	}
	if r := want(t, status("clientAddr", "a@1"), 0); string(r.Body) != a {
		t.Errorf("%s", r.Body)
	}
	if r := want(t, status("clientAddr", "z@9"), 0); string(r.Body) != `{"consumerTable":{},"messageQueueTable":{}}` {
		t.Errorf("%s", r.Body)
	}
}

func TestCallConsumer(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	n.fill(c, "T", 0, "tag")
	info := func(id string) *remoting.Command {
		return c.call(remoting.RequestGetConsumerRunningInfo, nil, "consumerGroup", "g", "clientId", id, "jstackEnable", "true")
	}
	want(t, info("a@1"), 1, "The Consumer <g> <a@1> not online")
	n.consumer("a@1", "g", "T", func(cmd *remoting.Command) *remoting.Command {
		return &remoting.Command{Remark: "mine", Body: append([]byte(`{{"odd":1}:`+cmd.GetString("jstackEnable")+`,"b":"`+cmd.GetString("brokerName")+`"}`), cmd.Body...)}
	})
	if r := want(t, info("a@1"), 0, "mine"); string(r.Body) != `{{"odd":1}:true,"b":""}` {
		t.Errorf("%s", r.Body)
	}
	stored := n.stored("T", 0, 0)
	directly := func(id, msgID string) *remoting.Command {
		return c.call(remoting.RequestConsumeMessageDirectly, nil, "consumerGroup", "g", "clientId", id, "msgId", msgID)
	}
	id := string(record.AppendMessageID(nil, stored.StoreHost, stored.PhyOffset))
	r := want(t, directly("a@1", id), 0)
	const head = `{{"odd":1}:,"b":"peer-a"}`
	if !strings.HasPrefix(string(r.Body), head) || record.View(r.Body[len(head):]).PhyOffset() != stored.PhyOffset {
		t.Errorf("%q", r.Body)
	}
	want(t, directly("z@9", id), 1, "The Consumer <g> <z@9> not online")
	want(t, directly("a@1", string(record.AppendMessageID(nil, stored.StoreHost, 1<<40))), 1, "can not find message by the offset, 1099511627776")
	if r := directly("a@1", "nonsense"); r.Code != 1 {
		t.Errorf("%+v", r)
	}
	gone := n.consumer("gone@1", "g", "T", nil)
	go func() {
		gone.request(remoting.RequestGetConsumerRunningInfo)
		_ = gone.Close()
	}()
	if r := info("gone@1"); r.Code != 1 || !strings.HasPrefix(r.Remark, "invoke consumer <g> <gone@1> Exception: ") {
		t.Errorf("%+v", r)
	}
	old := request(remoting.RequestHeartBeat, heartbeatBody("old@3", "g", "T"))
	old.Version = 61
	ctx, cancel := context.WithTimeout(t.Context(), waitLong)
	defer cancel()
	if _, err := n.dial().Invoke(ctx, old); err != nil {
		t.Fatal(err)
	}
	want(t, info("old@3"), 1, "The Consumer <old@3> Version <61> too low to finish, please upgrade it to V3_1_8_SNAPSHOT")
}

// TestProducersElsewhere: producers are connected to one node only, and any node tells of them.
func TestProducersElsewhere(t *testing.T) {
	one := newNode(t)
	var peer atomic.Pointer[client.Client]
	two := newNode(t, func(o *nodeOptions) {
		o.config = func(c *Config) {
			c.Peers = func() []string { return []string{"one", "down"} }
			c.Ask = func(ctx context.Context, addr string, cmd *remoting.Command) (*remoting.Command, error) {
				if addr == "down" {
					return nil, errTest
				}
				return peer.Load().Invoke(ctx, cmd)
			}
		}
	})
	peer.Store(one.dial().Client)
	one.dial().beat("a@1", "g", "T")
	c := two.dial()
	c.beat("b@2", "h", "T")
	if r := want(t, c.call(remoting.RequestGetProducerConnectionList, nil, "producerGroup", "pg-g"), 0); !strings.Contains(string(r.Body), `"clientId":"a@1"`) {
		t.Errorf("%s", r.Body)
	}
	want(t, c.call(remoting.RequestGetProducerConnectionList, nil, "producerGroup", "none"), 1, "the producer group[none] not exist")
	var all producersJSON
	if err := json.Unmarshal(want(t, c.call(remoting.RequestGetAllProducerInfo, nil), 0).Body, &all); err != nil || len(all.Data) != 2 {
		t.Fatalf("%+v %v", all, err)
	}
	if p := all.Data["pg-g"]; len(p) != 1 || p[0].ClientID != "a@1" || p[0].Language != "GO" || p[0].Version != 401 || !strings.HasPrefix(p[0].RemoteIP, "/127.0.0.1:") || p[0].LastUpdate == 0 {
		t.Errorf("%+v", p)
	}
	if p := mergeProducers([]producerJSON{{ClientID: "x", LastUpdate: 1}}, []producerJSON{{ClientID: "x", LastUpdate: 2}, {ClientID: "w"}}); len(p) != 2 || p[1].LastUpdate != 2 {
		t.Errorf("merged %+v", p)
	}
}
