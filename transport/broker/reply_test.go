package broker

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"raftmq/commitlog/record"
	"raftmq/fsm/command"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

const replyTopic = testCluster + "_REPLY_TOPIC"

func replyProperties(to string) string {
	return "MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01" + to + "\x02CORRELATION_ID\x01c-1\x02TTL\x013000"
}

// reply sends a reply in code 324's form.
func (c *conn) reply(to, body string) *remoting.Command {
	c.t.Helper()
	return c.call(remoting.RequestSendReplyMessage, []byte(body), sendFields(replyTopic, 0, replyProperties(to))...)
}

// requester is a client that answers a pushed reply with code, and keeps it.
func (n *node) requester(code int32) (*conn, chan *remoting.Command) {
	c, pushed := n.dial(), make(chan *remoting.Command, 8)
	c.OnRequest(func(cmd *remoting.Command) *remoting.Command {
		if cmd.Code != remoting.RequestPushReplyMessageToClient {
			return nil
		}
		pushed <- cmd.Clone()
		return &remoting.Command{Code: code}
	})
	return c, pushed
}

// TestReply: a reply reaches the producer that waits for it, known by its heartbeat or by its request, and is stored.
func TestReply(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	replier := n.dial()
	byHeartbeat, first := n.requester(0)
	byHeartbeat.beat("a@1", "g", "T")
	byRequest, second := n.requester(0)
	want(t, byRequest.send("T", 0, "REPLY_TO_CLIENT\x01b@2\x02CORRELATION_ID\x01c-1", []byte("question")), 0)
	for i, tc := range []struct {
		id     string
		pushed chan *remoting.Command
	}{{"a@1", first}, {"b@2", second}} {
		resp := want(t, replier.reply(tc.id, "the answer"), 0, "")
		if got := extNames(resp); got != "MSG_REGION TRACE_ON msgId queueId queueOffset" {
			t.Errorf("ext %s", got)
		}
		stored := n.stored(replyTopic, 0, int64(i))
		if resp.GetString("msgId") != string(record.AppendMessageID(nil, stored.StoreHost, stored.PhyOffset)) || string(stored.Body) != "the answer" || string(stored.Properties) != replyProperties(tc.id) {
			t.Errorf("answered %v, stored %+v", resp.Ext, stored)
		}
		var h remoting.PushReplyHeader
		push := <-tc.pushed
		if err := h.Decode(push); err != nil {
			t.Fatal(err)
		}
		if string(push.Body) != "the answer" || h.Topic != replyTopic || h.ProducerGroup != "pg" || h.BornTimestamp != 1700000000000 || h.StoreHost != n.addr ||
			!strings.HasPrefix(h.BornHost, "127.0.0.1:") || !strings.Contains(h.Properties, replyProperties(tc.id)) || !strings.Contains(h.Properties, "PUSH_REPLY_TIME\x01") || h.StoreTimestamp == 0 {
			t.Errorf("pushed %+v", h)
		}
	}
	// Whoever is gone is not found; who says no has failed; both replies are stored all the same.
	_ = byRequest.Close()
	eventually(t, "the closed connection is forgotten", func() bool { _, ok := n.groups.Requester("b@2"); return !ok })
	gone := want(t, replier.reply("b@2", "late"), 1, "push reply message fail, channel of <b@2> not found.")
	if gone.GetString("msgId") == "0" || n.store.MaxOffset(replyTopic, 0) != 3 {
		t.Errorf("%v", gone.Ext)
	}
	refuses, _ := n.requester(1)
	refuses.beat("c@3", "g", "T")
	want(t, replier.reply("c@3", "no"), 1, "push reply message to c@3fail.")
	resp := replier.call(remoting.RequestSendReplyMessage, nil, sendFields(replyTopic, 0, "MSG_TYPE\x01reply")...)
	want(t, resp, 1, "reply message properties[REPLY_TO_CLIENT] is null")
	want(t, replier.call(remoting.RequestSendReplyMessage, make([]byte, 4<<20+1), sendFields(replyTopic, 0, replyProperties("a@1"))...), 13)
	want(t, replier.call(remoting.RequestSendReplyMessage, nil, sendFields(replyTopic, 9, replyProperties("a@1"))...), 1)
}

// TestReplyNotStored: what cannot be stored has been handed over all the same.
func TestReplyNotStored(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	replier := n.dial()
	asks, pushed := n.requester(0)
	asks.beat("a@1", "g", "T")
	eventually(t, "what the heartbeat creates is there", func() bool {
		_, group := n.tables.Group("g")
		_, topic := n.tables.Topic("%RETRY%g")
		return group && topic
	})
	n.raft.lose.Store(errPointer(errTest)) // of the next entry, which is the reply's then
	if resp := want(t, replier.reply("a@1", "x"), 0); resp.GetString("msgId") != "0" || resp.GetString("queueOffset") != "0" {
		t.Errorf("%v", resp.Ext)
	}
	<-pushed
	n.raft.refuse.Store(errPointer(command.ErrNoResult))
	if resp := want(t, replier.reply("a@1", "x"), 0); resp.GetString("msgId") != "0" {
		t.Errorf("%v", resp.Ext)
	}
	<-pushed
}

// TestReplyElsewhere: the producer may be connected to another node than the reply comes to.
func TestReplyElsewhere(t *testing.T) {
	one, unreachable := newNode(t), atomic.Bool{}
	one.putTopic("T", 1)
	var peer atomic.Pointer[client.Client]
	two := newNode(t, func(o *nodeOptions) {
		o.config = func(c *Config) {
			c.Peers = func() []string { return []string{"one", "down"} }
			c.Ask = func(ctx context.Context, addr string, cmd *remoting.Command) (*remoting.Command, error) {
				if addr == "down" || unreachable.Load() {
					return nil, errTest
				}
				return peer.Load().Invoke(ctx, cmd)
			}
		}
	})
	peer.Store(one.dial().Client)
	asks, pushed := one.requester(0)
	asks.beat("a@1", "g", "T")
	replier := two.dial()
	want(t, replier.reply("a@1", "the answer"), 0)
	push := <-pushed
	var h remoting.PushReplyHeader
	if err := h.Decode(push); err != nil || string(push.Body) != "the answer" || h.StoreHost != two.addr || push.Get(remoting.RelayClientField) != nil {
		t.Errorf("%+v %v %v", h, push.Ext, err)
	}
	want(t, replier.reply("z@9", "x"), 1, "push reply message fail, channel of <z@9> not found.")
	refuses, _ := one.requester(1)
	refuses.beat("c@3", "g", "T")
	want(t, replier.reply("c@3", "x"), 1, "push reply message to c@3fail.")
	// A follower hands over too; only a leader stores.
	two.raft.follow(2, testOther)
	if resp := want(t, replier.reply("a@1", "again"), 0); resp.GetString("msgId") != "0" {
		t.Errorf("%v", resp.Ext)
	}
	unreachable.Store(true)
	want(t, replier.reply("a@1", "x"), 1, "push reply message fail, channel of <a@1> not found.")
}

func TestRetryQueues(t *testing.T) {
	n := newNode(t)
	must(n.tables.PutGroup(command.GroupPut{Group: command.GroupConfig{GroupName: "three", RetryQueueNums: 3}}))
	must(n.tables.PutGroup(command.GroupPut{Group: command.GroupConfig{GroupName: "none"}}))
	closed := newNode(t, func(o *nodeOptions) { o.settings.AutoCreateGroup = false })
	for _, tc := range []struct {
		n      *node
		group  string
		queues int
		ok     bool
	}{{n, "new", 1, true}, {n, "three", 3, true}, {n, "none", 0, false}, {n, "a b", 1, false}, {n, "", 1, false}, {n, strings.Repeat("x", 121), 1, false}, {closed, "new", 1, false}} {
		if queues, ok := tc.n.broker.RetryQueues(tc.group); queues != tc.queues || ok != tc.ok {
			t.Errorf("%q: %d, %v; want %d, %v", tc.group, queues, ok, tc.queues, tc.ok)
		}
	}
}
