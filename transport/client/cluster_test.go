package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/transport/remoting"
)

// fakeCluster is three nodes that agree on a leader, all of them name servers.
type fakeCluster struct {
	nodes  []*node
	mu     sync.Mutex
	leader int // -1: none
	routes atomic.Int32
	writes []atomic.Int32                                 // requests that reached a leader, by node
	handle func(i int, s *session, cmd *remoting.Command) // of the leader
}

const existing = "T"

func startCluster(t testing.TB) *fakeCluster {
	f := &fakeCluster{writes: make([]atomic.Int32, 3)}
	f.handle = func(_ int, s *session, cmd *remoting.Command) { echo(s, cmd) }
	for i := range 3 {
		f.nodes = append(f.nodes, startNode(t, func(s *session, cmd *remoting.Command) { f.serve(i, s, cmd) }))
	}
	return f
}

func (f *fakeCluster) setLeader(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.leader = i
}

func (f *fakeCluster) addrs() (addrs []string) {
	for _, n := range f.nodes {
		addrs = append(addrs, n.addr)
	}
	return addrs
}

func (f *fakeCluster) serve(i int, s *session, cmd *remoting.Command) {
	f.mu.Lock()
	leader := f.leader
	f.mu.Unlock()
	switch {
	case cmd.Code == remoting.RequestGetRouteInfoByTopic:
		f.routes.Add(1)
		topic := cmd.GetString("topic")
		if topic != existing && topic != autoCreateTopic {
			s.answer(cmd, &remoting.Command{Code: remoting.ResponseTopicNotExist, Remark: "No topic route info"})
			return
		}
		b := remoting.BrokerData{BrokerName: "g1", Cluster: "c", BrokerAddrs: map[int64]string{}}
		for id, addr := range f.addrs() {
			b.BrokerAddrs[int64(id+1)] = addr
		}
		if leader >= 0 {
			b.BrokerAddrs[0] = f.nodes[leader].addr
		}
		data := remoting.TopicRouteData{
			BrokerDatas: []remoting.BrokerData{b},
			QueueDatas:  []remoting.QueueData{{BrokerName: "g1", ReadQueueNums: 8, WriteQueueNums: 8, Perm: 6}},
		}
		s.answer(cmd, &remoting.Command{Body: data.Encode()})
	case i != leader:
		s.answer(cmd, &remoting.Command{Code: remoting.ResponseServiceNotAvailable, Remark: "not the leader"})
	default:
		f.writes[i].Add(1)
		f.handle(i, s, cmd)
	}
}

func sendTo(topic string) *remoting.Command {
	cmd := &remoting.Command{Code: remoting.RequestSendMessageV2, Body: []byte("m")}
	cmd.Set("b", topic)
	return cmd
}

func newCluster(t testing.TB, addrs ...string) *Cluster {
	c := NewCluster(addrs)
	t.Cleanup(func() { c.Close() })
	return c
}

func TestClusterFollowsTheLeader(t *testing.T) {
	f := startCluster(t)
	c := newCluster(t, f.nodes[0].addr+"; "+f.nodes[1].addr, f.nodes[2].addr, f.nodes[0].addr)
	if got, want := fmt.Sprint(c.NameServers()), fmt.Sprint(f.addrs()); got != want {
		t.Errorf("name servers %s, want %s", got, want)
	}
	for _, leader := range []int{0, 2, 1} {
		f.setLeader(leader)
		for _, topic := range []string{existing, "not-yet", ""} {
			resp, err := c.InvokeLeader(testContext(t), sendTo(topic))
			if err != nil || resp.Code != remoting.RequestSendMessageV2 || string(resp.Body) != "m" {
				t.Fatalf("answer %+v, %v", resp, err)
			}
		}
		if got := f.writes[leader].Load(); got != 3 {
			t.Errorf("node %d got %d requests", leader, got)
		}
	}
	asked := f.routes.Load()
	for range 10 {
		if _, err := c.InvokeLeader(testContext(t), sendTo(existing)); err != nil {
			t.Error(err)
		}
	}
	if got := f.routes.Load(); got != asked {
		t.Errorf("%d routes asked for a known leader", got-asked)
	}
}

func TestClusterWaitsForALeader(t *testing.T) {
	f := startCluster(t)
	f.setLeader(-1)
	c := newCluster(t, f.addrs()...)
	short, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := c.InvokeLeader(short, sendTo(existing)); !errors.Is(err, ErrNoLeader) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	time.AfterFunc(50*time.Millisecond, func() { f.setLeader(1) })
	if resp, err := c.InvokeLeader(testContext(t), sendTo(existing)); err != nil || string(resp.Body) != "m" {
		t.Errorf("answer %+v, %v", resp, err)
	}
}

// TestClusterReturnsTheLastRefusal when ctx ends while the leader answers 14.
func TestClusterReturnsTheLastRefusal(t *testing.T) {
	f := startCluster(t)
	f.handle = func(_ int, s *session, cmd *remoting.Command) {
		s.answer(cmd, &remoting.Command{Code: remoting.ResponseServiceNotAvailable, Remark: "not ready"})
	}
	c := newCluster(t, f.addrs()...)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	resp, err := c.InvokeLeader(ctx, sendTo(existing))
	if err != nil || resp.Code != remoting.ResponseServiceNotAvailable || resp.Remark != "not ready" {
		t.Errorf("answer %+v, %v", resp, err)
	}
	if n := f.writes[0].Load(); n < 2 {
		t.Errorf("tried %d times", n)
	}
}

// TestUnknownOutcomeIsNotRepeated: only InvokeRepeated sends again what may have been done.
func TestUnknownOutcomeIsNotRepeated(t *testing.T) {
	f := startCluster(t)
	f.handle = func(i int, s *session, cmd *remoting.Command) {
		if i == 0 {
			f.setLeader(1)
			s.Close() // done or not, nobody knows
			return
		}
		echo(s, cmd)
	}
	c := newCluster(t, f.addrs()...)
	if _, err := c.InvokeLeader(testContext(t), sendTo(existing)); !errors.Is(err, ErrConnClosed) {
		t.Errorf("error %v", err)
	}
	if f.writes[0].Load() != 1 || f.writes[1].Load() != 0 {
		t.Error("repeated")
	}
	if _, err := c.InvokeLeader(testContext(t), sendTo(existing)); err != nil {
		t.Error(err)
	}
	f.setLeader(0)
	if _, err := c.InvokeRepeated(testContext(t), sendTo(existing)); err != nil {
		t.Error(err)
	}
	if f.writes[0].Load() != 2 || f.writes[1].Load() != 2 {
		t.Errorf("%d and %d requests", f.writes[0].Load(), f.writes[1].Load())
	}
}

func TestNameServersThatAreDownAreSkipped(t *testing.T) {
	f := startCluster(t)
	f.setLeader(2)
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts and never answers
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	f.nodes[0].stop()
	c := newCluster(t, f.nodes[0].addr, l.Addr().String(), f.nodes[1].addr)
	if route, err := c.Route(testContext(t), existing); err != nil || route.Queues[0].WriteQueues != 8 || route.Brokers[0].Addrs[0] != f.nodes[2].addr {
		t.Errorf("route %+v, %v", route, err)
	}
	start := time.Now()
	if _, err := c.Route(testContext(t), existing); err != nil {
		t.Error(err)
	}
	if time.Since(start) >= askTimeout {
		t.Error("the silent name server was asked again first")
	}
	var response *ResponseError
	if _, err := c.Route(testContext(t), "none"); !errors.As(err, &response) || response.Code != remoting.ResponseTopicNotExist {
		t.Errorf("error %v", err)
	}
}

func TestClusterConnectionsAreSharedAndReplaced(t *testing.T) {
	f := startCluster(t)
	c := newCluster(t, f.addrs()...)
	var wg sync.WaitGroup
	clients := make([]*Client, 20)
	for i := range clients {
		wg.Go(func() {
			var err error
			if clients[i], err = c.Client(testContext(t), f.nodes[0].addr); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, client := range clients {
		if client != clients[0] {
			t.Fatal("several connections to one address")
		}
	}
	// An answer first: dialling returns before the node has accepted, and closeConns closes what it knows.
	if _, err := clients[0].Invoke(testContext(t), &remoting.Command{Code: remoting.RequestGetRouteInfoByTopic, Ext: []remoting.Field{{Key: "topic", Value: []byte(existing)}}}); err != nil {
		t.Fatal(err)
	}
	f.nodes[0].closeConns()
	<-clients[0].Done()
	again, err := c.Client(testContext(t), f.nodes[0].addr)
	if err != nil || again == clients[0] {
		t.Errorf("client %p, was %p, %v", again, clients[0], err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	<-again.Done()
	if _, err := c.Client(testContext(t), f.nodes[0].addr); !errors.Is(err, ErrConnClosed) {
		t.Errorf("error %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// TestRouteBodyOfRocketMQ: answers of 4.9.4 name servers, the second one to an old client (unquoted ids).
func TestRouteBodyOfRocketMQ(t *testing.T) {
	for _, body := range []string{
		`{"brokerDatas":[{"brokerAddrs":{"1":"127.0.0.1:12031"},"brokerName":"peer-b","cluster":"PeerCluster"},` +
			`{"brokerAddrs":{"0":"127.0.0.1:12011","1":"127.0.0.1:12031"},"brokerName":"peer-a","cluster":"PeerCluster","enableActingMaster":false}],` +
			`"filterServerTable":{},"queueDatas":[{"brokerName":"peer-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":4}]}`,
		`{"brokerDatas":[{"brokerAddrs":{1:"127.0.0.1:12031"},"brokerName":"peer-b","cluster":"PeerCluster"},` +
			`{"brokerAddrs":{0:"127.0.0.1:12011",1:"127.0.0.1:12031"},"brokerName":"peer-a","cluster":"PeerCluster"}],` +
			`"filterServerTable":{},"queueDatas":[{"brokerName":"peer-a","perm":6,"readQueueNums":8,"topicSysFlag":0,"writeQueueNums":4}]}`,
	} {
		n := startNode(t, func(s *session, cmd *remoting.Command) { s.answer(cmd, &remoting.Command{Body: []byte(body)}) })
		route, err := newCluster(t, n.addr).Route(testContext(t), existing)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]string{"": "127.0.0.1:12011", "peer-a": "127.0.0.1:12011", "peer-b": "", "peer-c": ""} {
			if addr, ok := route.Leader(name); addr != want || ok != (want != "") {
				t.Errorf("leader of %q is %q, %v", name, addr, ok)
			}
		}
		if want := (RouteQueue{Broker: "peer-a", ReadQueues: 8, WriteQueues: 4, Perm: 6}); len(route.Queues) != 1 || route.Queues[0] != want {
			t.Errorf("queues %+v", route.Queues)
		}
	}
	for _, body := range []string{"", "{", "[]"} {
		n := startNode(t, func(s *session, cmd *remoting.Command) { s.answer(cmd, &remoting.Command{Body: []byte(body)}) })
		if route, err := newCluster(t, n.addr).Route(testContext(t), existing); err == nil {
			t.Errorf("body %q is route %+v", body, route)
		}
	}
}
