package namesrv

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/transport"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// A follower asks its leader before it says that a topic does not exist: it may have been created
// a moment ago.
func TestMissingTopicIsAskedFor(t *testing.T) {
	n := newNode(t)
	var wg sync.WaitGroup
	defer wg.Wait()
	var closing atomic.Bool
	var failure error
	asked := 0
	n.cfg.Spawn = func(f func()) bool {
		if !closing.Load() {
			wg.Go(f)
		}
		return !closing.Load()
	}
	n.cfg.AskLeader = func(_ context.Context, cmd *remoting.Command) (*remoting.Command, error) {
		asked++
		if cmd.Code != remoting.RequestGetRouteInfoByTopic || cmd.GetString("topic") != "new" || cmd.Get(passedOnField) == nil {
			t.Errorf("passed on %+v", cmd)
		}
		return &remoting.Command{Body: []byte("the leader's answer")}, failure
	}
	s := transport.NewServer(transport.Config{})
	n.Register(s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(l)
	defer s.Shutdown(t.Context())
	c, err := client.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	check := func(what string, kv []string, wantCode int32, wantAsked int) {
		t.Helper()
		cmd := &remoting.Command{Code: remoting.RequestGetRouteInfoByTopic}
		for i := 0; i < len(kv); i += 2 {
			cmd.Set(kv[i], kv[i+1])
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		resp, err := c.Invoke(ctx, cmd)
		if err != nil || resp.Code != wantCode || asked != wantAsked {
			t.Errorf("%s: %+v, %v, asked %d times; want code %d, %d times", what, resp, err, asked, wantCode, wantAsked)
		}
	}
	check("a topic that is known here", []string{"topic", "TBW102"}, remoting.ResponseSuccess, 0)
	check("a topic that only the leader knows", []string{"topic", "new"}, remoting.ResponseSuccess, 1)
	check("a request that was passed on", []string{"topic", "new", passedOnField, "true"}, remoting.ResponseTopicNotExist, 1)
	failure = ErrLeads
	check("this node leads", []string{"topic", "new"}, remoting.ResponseTopicNotExist, 2)
	failure = errors.New("not in reach")
	check("an own tool, no leader in reach", []string{"topic", "new", remoting.OwnToolField, "true"}, remoting.ResponseTopicNotExist, 4)
	cmd := &remoting.Command{Code: remoting.RequestGetRouteInfoByTopic}
	cmd.Set("topic", "new")
	if resp, err := c.Invoke(t.Context(), cmd); err == nil {
		t.Errorf("no leader in reach: answered %d %s", resp.Code, resp.Remark)
	}
	if c, err = client.Dial(t.Context(), l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	closing.Store(true)
	check("while closing", []string{"topic", "new"}, remoting.ResponseTopicNotExist, 6)
}

// A consumer's retry topic has a route before its first heartbeat makes the topic: it is not asked for again for half a minute.
func TestRetryRouteAhead(t *testing.T) {
	n := newNode(t)
	n.cfg.RetryQueues = func(group string) (int, bool) { return 3, group == "new" || group == "has-one" }
	n.putTopics(t, 2, "%RETRY%has-one")
	s := transport.NewServer(transport.Config{})
	n.Register(s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(l)
	defer s.Shutdown(t.Context())
	c, err := client.Dial(t.Context(), l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ask := func(topic string) *remoting.Command {
		t.Helper()
		cmd := &remoting.Command{Code: remoting.RequestGetRouteInfoByTopic}
		cmd.Set("topic", topic)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		resp, err := c.Invoke(ctx, cmd)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	for topic, queues := range map[string]int32{"%RETRY%new": 3, "%RETRY%has-one": 2, "%RETRY%none": -1, "new": -1} {
		resp := ask(topic)
		if queues < 0 {
			if resp.Code != remoting.ResponseTopicNotExist {
				t.Errorf("%s: %+v", topic, resp)
			}
			continue
		}
		var route remoting.TopicRouteData
		if err := route.Decode(resp.Body); resp.Code != 0 || err != nil || len(route.QueueDatas) != 1 || route.QueueDatas[0].ReadQueueNums != queues ||
			route.QueueDatas[0].WriteQueueNums != queues || route.QueueDatas[0].Perm != 6 || route.QueueDatas[0].BrokerName != "peer-a" ||
			route.BrokerDatas[0].BrokerAddrs[0] != "127.0.0.1:12011" {
			t.Errorf("%s: %d %s", topic, resp.Code, resp.Body)
		}
	}
	n.leader = ""
	if resp := ask("%RETRY%new"); resp.Code != remoting.ResponseSystemError {
		t.Errorf("without a leader: %+v", resp)
	}
}
