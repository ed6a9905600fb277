package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/commitlog/record"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// fakeCluster is a broker group in memory behind real sockets, enough of the protocol for the tools. Its nodes share
// one store; one of them leads.
type fakeCluster struct {
	nodes []*fakeNode

	mu      sync.Mutex
	leader  int // index, -1 for none
	topics  map[string]topicConfigJSON
	queues  map[string][][]byte // "topic/queue" → records
	offsets map[string]int64    // "group/topic/queue"
	keys    map[string]int      // UNIQ_KEYs and how often they came
}

type topicConfigJSON struct {
	TopicName      string `json:"topicName"`
	ReadQueueNums  int    `json:"readQueueNums"`
	WriteQueueNums int    `json:"writeQueueNums"`
	Perm           int    `json:"perm"`
	Order          bool   `json:"order"`
}

type fakeNode struct {
	c      *fakeCluster
	id     int
	addr   string
	server *transport.Server
	asked  atomic.Int64 // sends that came, whatever became of them
	stored atomic.Int64 // messages taken

	silent atomic.Bool                   // no send is answered
	stall  atomic.Pointer[chan struct{}] // sends wait until it is closed

	failing atomic.Pointer[answerError] // what sends get
}

// startFakeCluster starts n nodes; the first leads.
func startFakeCluster(t *testing.T, n int) *fakeCluster {
	t.Helper()
	c := &fakeCluster{topics: map[string]topicConfigJSON{}, queues: map[string][][]byte{}, offsets: map[string]int64{}, keys: map[string]int{}}
	c.topics[autoCreateTopic] = topicConfigJSON{autoCreateTopic, 8, 8, 7, false}
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		node := &fakeNode{c: c, id: i, addr: l.Addr().String(), server: transport.NewServer(transport.Config{})}
		node.register()
		node.server.Serve(l)
		c.nodes = append(c.nodes, node)
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_ = node.server.Shutdown(ctx)
		})
	}
	return c
}

// addrs are all client addresses, as --name-servers wants them.
func (c *fakeCluster) addrs() string {
	var list []string
	for _, n := range c.nodes {
		list = append(list, n.addr)
	}
	return strings.Join(list, ";")
}

func (c *fakeCluster) addTopic(name string, queues int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.topics[name] = topicConfigJSON{name, queues, queues, 6, false}
}

func (c *fakeCluster) setLeader(i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader = i
}

func (c *fakeCluster) messages(topic string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, records := range c.queues {
		if strings.HasPrefix(key, topic+"/") {
			n += len(records)
		}
	}
	return n
}

func queueKey(topic string, queue int32) string { return topic + "/" + strconv.Itoa(int(queue)) }

func (n *fakeNode) register() {
	s := n.server
	s.HandleInline(remoting.RequestGetRouteInfoByTopic, n.route)
	s.HandleInline(remoting.RequestNodeStatus, n.status)
	send := n.led(n.send)
	for _, code := range []int32{remoting.RequestSendMessageV2, remoting.RequestSendBatchMessage} {
		s.Handle(code, func(r transport.Responder, cmd *remoting.Command) {
			n.asked.Add(1)
			send(r, cmd)
		})
	}
	s.Handle(remoting.RequestPullMessage, n.pull)
	s.HandleInline(remoting.RequestUpdateAndCreateTopic, n.led(n.createTopic))
	s.HandleInline(remoting.RequestDeleteTopicInBroker, n.led(n.deleteTopic))
	s.HandleInline(remoting.RequestDeleteTopicInNameServer, func(r transport.Responder, _ *remoting.Command) { r.Reply(&remoting.Command{}) })
	s.HandleInline(remoting.RequestGetAllTopicConfig, n.led(n.listTopics))
	s.HandleInline(remoting.RequestGetMinOffset, n.led(func(r transport.Responder, _ *remoting.Command) { replyOffset(r, 0) }))
	s.HandleInline(remoting.RequestGetMaxOffset, n.led(n.maxOffset))
	s.HandleInline(remoting.RequestQueryConsumerOffset, n.led(n.queryOffset))
	s.HandleInline(remoting.RequestUpdateConsumerOffset, n.led(n.updateOffset))
}

// reaches waits until a counter has come to n; the tools that it counts for begin when the machine lets them.
func reaches(t *testing.T, counter *atomic.Int64, n int64) {
	for deadline := time.Now().Add(time.Minute); counter.Load() < n && t.Context().Err() == nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("%d of %d after a minute", counter.Load(), n)
			return
		}
	}
}

// led refuses what a follower may not do.
func (n *fakeNode) led(h transport.Handler) transport.Handler {
	return func(r transport.Responder, cmd *remoting.Command) {
		n.c.mu.Lock()
		leads := n.c.leader == n.id
		n.c.mu.Unlock()
		if !leads {
			r.ReplyError(remoting.ResponseServiceNotAvailable, "not the leader")
			return
		}
		h(r, cmd)
	}
}

func (n *fakeNode) route(r transport.Responder, cmd *remoting.Command) {
	c := n.c
	c.mu.Lock()
	defer c.mu.Unlock()
	topic, ok := c.topics[cmd.GetString("topic")]
	if !ok {
		r.ReplyError(remoting.ResponseTopicNotExist, "No topic route info in name server for the topic: "+cmd.GetString("topic")+"\nSee the FAQ.")
		return
	}
	addrs := map[string]string{}
	for i, node := range c.nodes {
		id := i + 1
		if i == c.leader {
			id = 0
		}
		addrs[strconv.Itoa(id)] = node.addr
	}
	body, _ := json.Marshal(map[string]any{
		"brokerDatas": []any{map[string]any{"brokerName": "fake-a", "cluster": "Fake", "brokerAddrs": addrs}},
		"queueDatas": []any{map[string]any{"brokerName": "fake-a", "perm": topic.Perm, "readQueueNums": topic.ReadQueueNums,
			"writeQueueNums": topic.WriteQueueNums, "topicSysFlag": 0}},
	})
	r.Reply(&remoting.Command{Body: body})
}

func (n *fakeNode) status(r transport.Responder, _ *remoting.Command) {
	c := n.c
	c.mu.Lock()
	defer c.mu.Unlock()
	s := remoting.NodeStatus{NodeID: n.name(), Version: "1", ClusterName: "Fake", ClusterID: "id", Group: "fake-a", Role: "follower", Term: 3,
		AppliedIndex: 7, LogMax: 100, FlushedTo: 90, Queues: 4, UptimeSeconds: 61, Mode: modeDurable, Durability: "none at all"}
	for i, node := range c.nodes {
		s.Peers = append(s.Peers, remoting.PeerStatus{NodeID: node.name(), BrokerID: int64(i), ClientAddr: node.addr, Gossip: "alive", Suffrage: "voter", Leader: i == c.leader})
	}
	if c.leader >= 0 {
		s.LeaderID = c.nodes[c.leader].name()
	}
	if c.leader == n.id {
		s.Role, s.Ready = "leader", true
	}
	body, _ := json.Marshal(&s)
	r.Reply(&remoting.Command{Body: body})
}

func (n *fakeNode) name() string { return fmt.Sprintf("n%d", n.id+1) }

func (n *fakeNode) send(r transport.Responder, cmd *remoting.Command) {
	if n.silent.Load() {
		return
	}
	if f := n.failing.Load(); f != nil {
		r.ReplyError(f.code, f.remark)
		return
	}
	if gate := n.stall.Load(); gate != nil {
		<-*gate
	}
	var h remoting.SendHeader
	if err := h.Decode(cmd); err != nil {
		r.ReplyError(remoting.ResponseSystemError, err.Error())
		return
	}
	entries := []record.BatchEntry{{Body: cmd.Body, Properties: h.Properties}}
	if h.Batch {
		entries = nil
		for body := cmd.Body; len(body) > 0; {
			e, rest, err := record.NextBatchEntry(body)
			if err != nil {
				r.ReplyError(remoting.ResponseSystemError, err.Error())
				return
			}
			entries, body = append(entries, e), rest
		}
	}
	c := n.c
	c.mu.Lock()
	defer c.mu.Unlock()
	topic, ok := c.topics[string(h.Topic)]
	if !ok {
		topic = topicConfigJSON{string(h.Topic), 4, 4, 6, false}
		c.topics[topic.TopicName] = topic
	}
	if h.QueueID < 0 || int(h.QueueID) >= topic.WriteQueueNums {
		r.ReplyError(remoting.ResponseSystemError, "request queueId is illegal")
		return
	}
	key := queueKey(topic.TopicName, h.QueueID)
	first := len(c.queues[key])
	host := netip.MustParseAddrPort(n.addr)
	for _, e := range entries {
		m := record.Message{Topic: h.Topic, QueueID: h.QueueID, QueueOffset: int64(len(c.queues[key])), BornTimestamp: h.BornTimestamp, BornHost: host,
			StoreTimestamp: time.Now().UnixMilli(), StoreHost: host, Body: e.Body, Properties: e.Properties}
		c.queues[key] = append(c.queues[key], record.Append(nil, &m))
		if k, ok := record.Property(e.Properties, record.PropertyUniqKey); ok {
			c.keys[string(k)]++
		}
	}
	n.stored.Add(int64(len(entries)))
	r.ReplyRaw(func(dst []byte) []byte {
		return remoting.AppendSendResponse(dst, remoting.SendResponse{Serialize: r.Serialize, Opaque: r.Opaque, Version: 401,
			MsgID: []byte("7F00000100002A9F0000000000000000"), QueueID: h.QueueID, QueueOffset: int64(first)})
	})
}

func (n *fakeNode) pull(r transport.Responder, cmd *remoting.Command) {
	var h remoting.PullHeader
	if err := h.Decode(cmd); err != nil {
		r.ReplyError(remoting.ResponseSystemError, err.Error())
		return
	}
	deadline := time.Now().Add(time.Duration(min(h.SuspendTimeoutMillis, 200)) * time.Millisecond)
	for {
		n.c.mu.Lock()
		records := n.c.queues[queueKey(string(h.Topic), h.QueueID)]
		n.c.mu.Unlock()
		code, next := remoting.ResponsePullNotFound, h.QueueOffset
		var body []byte
		if h.QueueOffset < int64(len(records)) {
			code = remoting.ResponseSuccess
			for _, rec := range records[h.QueueOffset:min(h.QueueOffset+int64(h.MaxMsgNums), int64(len(records)))] {
				body = append(body, rec...)
				next++
			}
		}
		if code == remoting.ResponseSuccess || time.Now().After(deadline) {
			resp := &remoting.Command{Code: code, Body: body}
			resp.Set("nextBeginOffset", strconv.FormatInt(next, 10))
			resp.Set("minOffset", "0")
			resp.Set("maxOffset", strconv.Itoa(len(records)))
			resp.Set("suggestWhichBrokerId", "0")
			r.Reply(resp)
			return
		}
		time.Sleep(time.Millisecond)
	}
}

func (n *fakeNode) createTopic(r transport.Responder, cmd *remoting.Command) {
	number := func(key string) int {
		v, _ := strconv.Atoi(cmd.GetString(key))
		return v
	}
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	name := cmd.GetString("topic")
	if strings.Contains(name, "!") {
		r.ReplyError(remoting.ResponseSystemError, "The specified topic contains illegal characters")
		return
	}
	n.c.topics[name] = topicConfigJSON{name, number("readQueueNums"), number("writeQueueNums"), number("perm"), cmd.GetString("order") == "true"}
	r.Reply(&remoting.Command{})
}

func (n *fakeNode) deleteTopic(r transport.Responder, cmd *remoting.Command) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	delete(n.c.topics, cmd.GetString("topic"))
	r.Reply(&remoting.Command{})
}

func (n *fakeNode) listTopics(r transport.Responder, _ *remoting.Command) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	body, _ := json.Marshal(map[string]any{"topicConfigTable": n.c.topics})
	r.Reply(&remoting.Command{Body: body})
}

func replyOffset(r transport.Responder, offset int64) {
	resp := &remoting.Command{}
	resp.Set("offset", strconv.FormatInt(offset, 10))
	r.Reply(resp)
}

func (n *fakeNode) maxOffset(r transport.Responder, cmd *remoting.Command) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	replyOffset(r, int64(len(n.c.queues[cmd.GetString("topic")+"/"+cmd.GetString("queueId")])))
}

func offsetKey(cmd *remoting.Command) string {
	return cmd.GetString("consumerGroup") + "/" + cmd.GetString("topic") + "/" + cmd.GetString("queueId")
}

func (n *fakeNode) queryOffset(r transport.Responder, cmd *remoting.Command) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	offset, ok := n.c.offsets[offsetKey(cmd)]
	if !ok {
		r.ReplyError(remoting.ResponseQueryNotFound, "Not found, maybe this group consumer boot first")
		return
	}
	replyOffset(r, offset)
}

func (n *fakeNode) updateOffset(r transport.Responder, cmd *remoting.Command) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	n.c.offsets[offsetKey(cmd)], _ = strconv.ParseInt(cmd.GetString("commitOffset"), 10, 64)
	r.Reply(&remoting.Command{})
}
