package namesrv

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"raftmq/membership/route"
	"raftmq/transport"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// holdingNode serves, and holds routes while it knows no leader. set changes the leader under a lock.
func holdingNode(t *testing.T) (addr string, set func(leader string), closing chan struct{}) {
	t.Helper()
	n := newNode(t)
	n.putTopics(t, 2, "T")
	var wg sync.WaitGroup
	n.cfg.Spawn = func(f func()) bool { wg.Go(f); return true }
	closing = make(chan struct{})
	n.cfg.Closing = closing
	var mu sync.Mutex
	n.cfg.Routes = &lockedRoutes{Routes: n.cfg.Routes, mu: &mu}
	s := transport.NewServer(transport.Config{})
	n.Register(s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(l)
	t.Cleanup(func() {
		wg.Wait()
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String(), func(leader string) {
		mu.Lock()
		defer mu.Unlock()
		n.leader = leader
	}, closing
}

type lockedRoutes struct {
	Routes
	mu *sync.Mutex
}

func (r *lockedRoutes) Topic(name string) (route.Route, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Routes.Topic(name)
}

func askRoute(t *testing.T, addr, topic string, tool bool) (*remoting.Command, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := client.Dial(ctx, addr)
	if err != nil {
		t.Error(err)
		return nil, err
	}
	defer c.Close()
	cmd := &remoting.Command{Code: remoting.RequestGetRouteInfoByTopic}
	cmd.Set("topic", topic)
	if tool {
		cmd.Set(remoting.OwnToolField, "true")
	}
	resp, err := c.Invoke(ctx, cmd)
	if ctx.Err() != nil {
		t.Errorf("neither an answer nor the end of the connection: %v", err)
	}
	return resp, err
}

// A client that starts during an election is answered when there is a leader, and is never told that there is none.
func TestRoutesAreHeldDuringAnElection(t *testing.T) {
	addr, set, _ := holdingNode(t)
	set("")
	if resp, err := askRoute(t, addr, "T", true); err != nil || resp.Code != remoting.ResponseSystemError {
		t.Errorf("an own tool: %+v, %v", resp, err)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		topic, code := "T", remoting.ResponseSuccess
		if i%4 == 3 {
			topic, code = "none", remoting.ResponseTopicNotExist
		}
		wg.Go(func() {
			if resp, err := askRoute(t, addr, topic, false); err != nil || resp.Code != code {
				t.Errorf("%s: %+v, %v", topic, resp, err)
			}
		})
	}
	time.Sleep(5 * holdPoll)
	set("master")
	wg.Wait()
	// And again, as the goroutine that looks after them has ended meanwhile.
	set("")
	wg.Go(func() {
		if resp, err := askRoute(t, addr, "T", false); err != nil || resp.Code != 0 {
			t.Errorf("second time: %+v, %v", resp, err)
		}
	})
	time.Sleep(3 * holdPoll)
	set("master")
	wg.Wait()
}

// Where no leader comes the connection ends, so that the client asks another name server; at once when the node stops.
func TestRoutesThatStayUnknownEndTheConnection(t *testing.T) {
	addr, set, closing := holdingNode(t)
	set("")
	began := time.Now()
	if resp, err := askRoute(t, addr, "T", false); err == nil {
		t.Errorf("answered %d %s", resp.Code, resp.Remark)
	}
	if took := time.Since(began); took < holdRoute {
		t.Errorf("the connection ended after %v already", took)
	}
	close(closing)
	if resp, err := askRoute(t, addr, "T", false); err == nil {
		t.Errorf("while stopping: answered %d %s", resp.Code, resp.Remark)
	}
}
