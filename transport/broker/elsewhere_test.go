package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/fsm/metadata"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// peerNet is what nodes of a test ask each other over.
type peerNet struct {
	mu    sync.Mutex
	nodes map[string]*client.Client
	down  map[string]bool
	asked map[int32]int
}

func (p *peerNet) asks(code int32) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[code]
}

// newNet starts nodes that know each other: the first leads, the others do as far as their own fake Raft goes.
func newNet(t *testing.T, names ...string) (*peerNet, []*node) {
	p := &peerNet{nodes: map[string]*client.Client{}, down: map[string]bool{}, asked: map[int32]int{}}
	var nodes []*node
	for _, name := range names {
		n := newNode(t, func(o *nodeOptions) {
			o.config = func(c *Config) {
				c.Peers = func() (others []string) {
					for _, other := range names {
						if other != name {
							others = append(others, other)
						}
					}
					return append(others, "never there")
				}
				c.Ask = func(ctx context.Context, addr string, cmd *remoting.Command) (*remoting.Command, error) {
					p.mu.Lock()
					peer := p.nodes[addr]
					p.asked[cmd.Code]++
					down := p.down[addr]
					p.mu.Unlock()
					if peer == nil || down {
						return nil, errTest
					}
					return peer.Invoke(ctx, cmd)
				}
			}
		})
		n.putTopic("T", 2)
		p.mu.Lock()
		p.nodes[name] = n.dial().Client
		p.mu.Unlock()
		nodes = append(nodes, n)
	}
	return p, nodes
}

// grown makes a node one that has served for long.
func (n *node) grown() { n.clock.Store(int64(followTime)) }

// TestCheckElsewhere: a producer is asked whichever node it is connected to, once a check, and one that has gone is not counted.
func TestCheckElsewhere(t *testing.T) {
	net, nodes := newNet(t, "a", "b", "c")
	leader, old, third := nodes[0], nodes[1], nodes[2]
	sends := leader.dial()
	sends.half("T", 1, "", "maybe")
	_ = sends.Close()
	eventually(t, "the sender is gone", func() bool { return len(leader.groups.Producers("pg")) == 0 })
	leader.stored(metadata.HalfTopic, 0, 0)
	check := func() bool {
		var res store.GetResult
		defer res.Release()
		leader.store.Get(&store.GetRequest{Topic: halfTopic, MaxMsgs: 1}, &res)
		return leader.broker.CheckTransaction(res.Buffers[0], 1)
	}
	if check() {
		t.Error("somebody was asked; there is nobody")
	}
	asked := net.asks(remoting.RequestGetProducerConnectionList)
	if check() || net.asks(remoting.RequestGetProducerConnectionList) != asked {
		t.Error("nodes are asked again at once where there is nobody")
	}
	leader.clock.Store(int64(nowhereTime))

	beat := []byte(`{"clientID":"x","producerDataSet":[{"groupName":"pg"}]}`)
	there := old.dial()
	want(t, there.call(remoting.RequestHeartBeat, beat), 0)
	for i := range 3 {
		if !check() {
			t.Fatal("nobody was asked")
		}
		eventually(t, "the producer is asked", func() bool { return there.pushed(remoting.RequestCheckTransactionState) == i+1 })
	}
	if n := net.asks(remoting.RequestRelayClient); n != 3 {
		t.Errorf("%d requests for three checks", n)
	}
	got := there.request(remoting.RequestCheckTransactionState)
	var header remoting.CheckTransactionHeader
	must(header.Decode(got))
	if extNames(got) != "commitLogOffset msgId offsetMsgId tranStateTableOffset transactionId" || !got.IsOneWay() || header.MsgID != "u" {
		t.Errorf("asked %v, flag %d", got.Ext, got.Flag)
	}
	if m := records(t, got.Body)[0]; string(m.Body) != "maybe" || string(m.Topic) != "T" || m.QueueID != 1 {
		t.Errorf("record %+v", m)
	}

	// It comes back at another node: what was remembered is forgotten at once.
	_ = there.Close()
	eventually(t, "the producer is gone", func() bool { return len(old.groups.Producers("pg")) == 0 })
	here := third.dial()
	want(t, here.call(remoting.RequestHeartBeat, beat), 0)
	if !check() {
		t.Error("nobody was asked after the producer had moved")
	}
	eventually(t, "the producer is asked at its new node", func() bool { return here.pushed(remoting.RequestCheckTransactionState) == 1 })
	net.mu.Lock()
	net.down["c"] = true
	net.mu.Unlock()
	if check() {
		t.Error("a node that cannot be reached counts as asked")
	}
	// One that is connected here goes before.
	net.mu.Lock()
	net.down["c"] = false
	net.mu.Unlock()
	own := leader.dial()
	want(t, own.call(remoting.RequestHeartBeat, beat), 0)
	if !check() {
		t.Error("nobody was asked")
	}
	eventually(t, "the own producer is asked", func() bool { return own.pushed(remoting.RequestCheckTransactionState) == 1 })
	if here.pushed(remoting.RequestCheckTransactionState) != 1 {
		t.Error("two producers were asked")
	}
}

// TestRelayClientRefusals: nothing but the three requests goes to clients in another node's name.
func TestRelayClientRefusals(t *testing.T) {
	n := newNode(t)
	c := n.dial()
	c.beat("a@1", "g", "T")
	relay := func(code int32, group, id string) *remoting.Command {
		return c.call(remoting.RequestRelayClient, nil, remoting.RelayCodeField, itoa(code), remoting.RelayGroupField, group, remoting.RelayClientField, id)
	}
	for _, code := range []int32{0, 40, 307, 309, 326, 9002} {
		want(t, relay(code, "g", "a@1"), remoting.ResponseRequestCodeNotSupported)
	}
	want(t, c.call(remoting.RequestRelayClient, nil), remoting.ResponseRequestCodeNotSupported)
	for _, code := range []int32{39, 220, 221} {
		want(t, relay(code, "none", ""), remoting.ResponseConsumerNotOnline)
		want(t, relay(code, "pg-g", "z@9"), remoting.ResponseConsumerNotOnline)
	}
	want(t, relay(220, "g", "a@1"), 0)
	if told := c.request(220); len(told.Ext) != 0 {
		t.Errorf("told %v", told.Ext)
	}
}

// TestConsumersElsewhere: what a node is asked about consumers that only another one knows.
func TestConsumersElsewhere(t *testing.T) {
	net, nodes := newNet(t, "a", "b")
	leader, other := nodes[0], nodes[1]
	leader.fill(leader.dial(), "T", 0, "tag")
	other.fill(other.dial(), "T", 0, "tag")
	commitOffsets(leader, "g", "T", 1, 0)
	tool := leader.dial()
	answer := func(id string) func(cmd *remoting.Command) *remoting.Command {
		return func(cmd *remoting.Command) *remoting.Command {
			switch cmd.Code {
			case remoting.RequestGetConsumerStatusFromClient:
				return &remoting.Command{Body: []byte(`{"consumerTable":{},"messageQueueTable":{{"brokerName":"peer-a","queueId":0,"topic":"T"}:7}}`)}
			case remoting.RequestGetConsumerRunningInfo, remoting.RequestConsumeMessageDirectly:
				return &remoting.Command{Remark: id, Body: fmt.Appendf(nil, "%s %s %s", id, extNames(cmd), cmd.Body)}
			}
			return nil
		}
	}
	there := other.consumer("b@2", "g", "T", answer("b@2"))
	info := func(id string) *remoting.Command {
		return tool.call(remoting.RequestGetConsumerRunningInfo, nil, "consumerGroup", "g", "clientId", id, "jstackEnable", "true")
	}
	stored := leader.stored("T", 0, 0)
	id := string(record.AppendMessageID(nil, stored.StoreHost, stored.PhyOffset))
	directly := func(client string) *remoting.Command {
		return tool.call(remoting.RequestConsumeMessageDirectly, nil, "consumerGroup", "g", "clientId", client, "msgId", id)
	}
	type connections struct {
		ConnectionSet     []connectionJSON                     `json:"connectionSet"`
		ConsumeType       string                               `json:"consumeType"`
		SubscriptionTable map[string]remoting.SubscriptionData `json:"subscriptionTable"`
	}
	connected := func() (c connections) {
		must(json.Unmarshal(want(t, tool.call(remoting.RequestGetConsumerConnectionList, nil, "consumerGroup", "g"), 0).Body, &c))
		return c
	}
	members := func() string {
		var list remoting.ConsumerList
		must(list.Decode(want(t, tool.consumers("g"), 0).Body))
		return fmt.Sprint(list.ConsumerIDList)
	}
	reset := func() {
		t.Helper()
		before := there.pushed(remoting.RequestResetConsumerClientOffset)
		want(t, tool.call(remoting.RequestInvokeBrokerToResetOffset, nil, "topic", "T", "group", "g", "timestamp", "0", "isForce", "true"), 0)
		eventually(t, "the consumer is told", func() bool { return there.pushed(remoting.RequestResetConsumerClientOffset) == before+1 })
		if told := there.request(remoting.RequestResetConsumerClientOffset); extNames(told) != "group isForce timestamp topic" || !told.IsOneWay() {
			t.Errorf("told %v, flag %d", told.Ext, told.Flag)
		}
	}
	status := func() string {
		return string(want(t, tool.call(remoting.RequestInvokeBrokerToGetConsumerStatus, nil, "topic", "T", "group", "g"), 0).Body)
	}
	for _, grown := range []bool{false, true} { // a node that knows nobody looks elsewhere however old it is
		if grown {
			leader.grown()
		}
		if r := want(t, info("b@2"), 0, "b@2"); string(r.Body) != "b@2 clientId consumerGroup jstackEnable " {
			t.Errorf("running info %q", r.Body)
		}
		if r := want(t, directly("b@2"), 0, "b@2"); !strings.HasPrefix(string(r.Body), "b@2 brokerName clientId consumerGroup msgId ") || len(r.Body) < 100 {
			t.Errorf("direct consumption %q", r.Body)
		}
		want(t, info("z@9"), 1, "The Consumer <g> <z@9> not online")
		if c := connected(); len(c.ConnectionSet) != 1 || c.ConnectionSet[0].ClientID != "b@2" || c.ConsumeType != "CONSUME_PASSIVELY" || c.SubscriptionTable["T"].SubString != "*" {
			t.Errorf("connections %+v", c)
		}
		if got := members(); got != "[b@2]" {
			t.Errorf("members %s", got)
		}
		if got := status(); !strings.Contains(got, `"b@2":{{"brokerName":"peer-a","queueId":0,"topic":"T"}:7}`) {
			t.Errorf("status %s", got)
		}
		if got := want(t, tool.call(remoting.RequestQuerySubscriptionByConsumer, nil, "group", "g", "topic", "T"), 0); !strings.Contains(string(got.Body), `"subString":"*"`) {
			t.Errorf("subscription %s", got.Body)
		}
		reset()
	}

	// A node that knows some of the members adds the others as long as it is new, as a node or as the leader.
	leader.consumer("a@1", "g", "T", answer("a@1"))
	if got := members(); got != "[a@1]" {
		t.Errorf("members of a grown node %s", got)
	}
	leader.raft.lead(2)
	if got := members(); got != "[a@1 b@2]" {
		t.Errorf("members of a new leader %s", got)
	}
	if c := connected(); len(c.ConnectionSet) != 2 {
		t.Errorf("connections %+v", c)
	}
	if got := status(); strings.Count(got, ":7}") != 2 {
		t.Errorf("status %s", got)
	}
	reset()
	// One that is connected to both is told once.
	both := leader.dial()
	both.beat("b@2", "g", "T")
	before := there.pushed(remoting.RequestResetConsumerClientOffset)
	want(t, tool.call(remoting.RequestInvokeBrokerToResetOffset, nil, "topic", "T", "group", "g", "timestamp", "0", "isForce", "true"), 0)
	both.request(remoting.RequestResetConsumerClientOffset)
	if there.pushed(remoting.RequestResetConsumerClientOffset) != before {
		t.Error("a consumer was told twice")
	}
	// Another node's question is answered by what this one knows.
	asked := net.asks(remoting.RequestGetConsumerConnectionList)
	r := tool.call(remoting.RequestGetConsumerRunningInfo, nil, "consumerGroup", "g", "clientId", "z@9", forwardedField, "true")
	want(t, r, 1, "The Consumer <g> <z@9> not online")
	if net.asks(remoting.RequestGetConsumerConnectionList) != asked {
		t.Error("a node that was asked by another one asks again")
	}
	// All members ask at once when one has come: the other nodes are asked once.
	asked = net.asks(remoting.RequestGetConsumerListByGroup)
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { leader.broker.idsElsewhere("g") })
	}
	wg.Wait()
	if n := net.asks(remoting.RequestGetConsumerListByGroup) - asked; n > 80 { // two nodes, one of which is not there; 100 without
		t.Errorf("other nodes were asked %d times", n)
	}
	net.mu.Lock()
	net.down["b"] = true
	net.mu.Unlock()
	want(t, info("c@3"), 1, "The Consumer <g> <c@3> not online")
}

// TestRelayedSenderKnown: a producer that sends through a node that passes writes on is known to that node by what it sends.
func TestRelayedSenderKnown(t *testing.T) {
	leader := newNode(t)
	leader.putTopic("T", 1)
	to := leader.dial().Client
	follower := newNode(t, func(o *nodeOptions) {
		o.follower = true
		o.config = func(c *Config) {
			c.Relays = func() bool { return true }
			c.Relay = func(cmd *remoting.Command, done func(*remoting.Command, error)) bool {
				to.Go(cmd, done)
				return true
			}
		}
	})
	follower.raft.follow(1, testOther)
	c := follower.dial()
	c.half("T", 0, "REPLY_TO_CLIENT\x01a@1", "x")
	if got := follower.groups.Producers("pg"); len(got) != 1 {
		t.Errorf("producers %v", got)
	}
	if _, ok := follower.groups.Requester("a@1"); !ok {
		t.Error("the requester is not known")
	}
	if got := leader.groups.Producers("pg"); len(got) != 0 {
		t.Errorf("the leader took the other node for the producer: %v", got)
	}
}
