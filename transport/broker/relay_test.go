package broker

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// relayTo passes writes to a node over one connection, and can be told that there is none.
type relayTo struct {
	on, cut atomic.Bool
	conn    *client.Client
}

func (l *relayTo) relay(cmd *remoting.Command, done func(*remoting.Command, error)) bool {
	if l.cut.Load() {
		return false
	}
	l.conn.Go(cmd, done)
	return true
}

// newRelay starts a leader and a node that follows it and passes writes on.
func newRelay(t *testing.T, hold time.Duration) (leader, follower *node, link *relayTo) {
	t.Helper()
	leader = newNode(t)
	leader.putTopic("T", 4)
	link = &relayTo{conn: leader.dial().Client}
	link.on.Store(true)
	follower = newNode(t, func(o *nodeOptions) {
		o.follower = true
		o.config = func(c *Config) {
			c.HoldWrites, c.MaxHeldWrites = hold, 20_000
			c.Relay, c.Relays = link.relay, link.on.Load
		}
	})
	follower.raft.follow(2, testOther)
	return leader, follower, link
}

// TestRelay: a client of a node that passes writes on gets the leader's answer, and its pipelined writes are stored in order, also those
// that came before there was a connection.
func TestRelay(t *testing.T) {
	leader, follower, link := newRelay(t, 5*time.Second)
	link.on.Store(false)
	c := follower.dial()
	want(t, c.send("T", 0, "", []byte("x")), remoting.ResponseServiceNotAvailable)
	link.on.Store(true)
	s := sendResponse(t, want(t, c.send("T", 3, "", []byte("x")), 0))
	if s.QueueID != 3 || s.QueueOffset != 0 || len(s.MsgID) == 0 {
		t.Errorf("answer %+v", s)
	}
	// The message was born at the client, whichever form its header has.
	socket, err := net.Dial("tcp", follower.addr)
	if err != nil {
		t.Fatal(err)
	}
	own := &conn{Client: client.NewClient(socket), t: t}
	defer own.Close()
	want(t, own.send("T", 2, "", []byte("y")), 0)
	want(t, own.call(remoting.RequestSendMessageV2, []byte("y"), "a", "pg", "b", "T", "c", "TBW102", "d", "4", "e", "2", "f", "0", "g", "1", "h", "0", "i", "", "j", "0", "k", "false", "m", "false"), 0)
	leader.waitReadable("T", 2, 2)
	born := records(t, want(t, leader.dial().call(remoting.RequestPullMessage, nil, pullFields("g", "T", 2, 0, flagCarried, 0)...), 0).Body)
	if len(born) != 2 || born[0].BornHost.String() != socket.LocalAddr().String() || born[1].BornHost != born[0].BornHost {
		t.Errorf("born %+v, the client is %v", born, socket.LocalAddr())
	}
	// The leader's refusals are the client's.
	want(t, c.send("bad topic!", 0, "", []byte("x")), remoting.ResponseSystemError)

	link.cut.Store(true)
	const conns, each = 4, 1000
	var wg sync.WaitGroup
	var mu sync.Mutex
	offsets := map[string]int64{}
	for i := range conns {
		k := follower.dial()
		wg.Add(each)
		go func() {
			for j := range each {
				if j == each/2 {
					link.cut.Store(false)
				}
				body := fmt.Sprintf("%d-%d", i, j)
				k.Go(request(remoting.RequestSendMessage, []byte(body), sendFields("T", 0, "")...), func(resp *remoting.Command, err error) {
					defer wg.Done()
					if err != nil || resp.Code != 0 {
						t.Errorf("%s: %v %v", body, resp, err)
						return
					}
					at := sendResponse(t, resp).QueueOffset
					mu.Lock()
					defer mu.Unlock()
					offsets[body] = at
				})
			}
		}()
	}
	wg.Wait()
	for i := range conns {
		for j := 1; j < each; j++ {
			if a, b := offsets[fmt.Sprintf("%d-%d", i, j-1)], offsets[fmt.Sprintf("%d-%d", i, j)]; a >= b {
				t.Fatalf("connection %d: write %d is at %d, the one before at %d", i, j, b, a)
			}
		}
	}
	if got := leader.store.MaxOffset("T", 0); got != conns*each {
		t.Errorf("%d messages stored, want %d", got, conns*each)
	}
	if st := follower.broker.Stats(); st.RelayedWrites != conns*each+4 || st.RelayedAt.IsZero() {
		t.Errorf("stats %+v", st)
	}
}

// TestRelayWhileTheLeaderChanges: a leader that leads no more says so, and the write waits for the next one. Nothing is passed on twice, and what was
// in flight on a lost connection is answered as unknown.
func TestRelayWhileTheLeaderChanges(t *testing.T) {
	leader, follower, link := newRelay(t, 300*time.Millisecond)
	c := follower.dial()
	leader.raft.follow(3, testOther)
	time.AfterFunc(50*time.Millisecond, func() { leader.raft.lead(4) })
	want(t, c.send("T", 0, "", []byte("x")), 0)

	leader.raft.follow(5, testOther)
	want(t, c.send("T", 0, "", []byte("x")), remoting.ResponseServiceNotAvailable)
	leader.raft.lead(6)

	want(t, c.send("T", 0, "", []byte("x"), forwardedField, "true"), remoting.ResponseServiceNotAvailable)

	leader.raft.paused.Store(true)
	answer := make(chan *remoting.Command, 1)
	go func() { answer <- c.send("T", 0, "", []byte("x")) }()
	eventually(t, "a write is in flight", func() bool { return follower.broker.relaying.Load() > 0 })
	_ = link.conn.Close()
	if resp := want(t, <-answer, remoting.ResponseServiceNotAvailable); !strings.Contains(resp.Remark, "outcome is unknown") {
		t.Errorf("remark %q", resp.Remark)
	}
	leader.raft.paused.Store(false)
	eventually(t, "nothing is owed", func() bool { return follower.broker.relaying.Load() == 0 })
	if got := leader.store.MaxOffset("T", 0); got > 2 {
		t.Errorf("%d messages stored: some were passed on twice", got)
	}
}

// TestRelayEnds: a node that stops answers what waits for a connection.
func TestRelayEnds(t *testing.T) {
	_, follower, link := newRelay(t, time.Minute)
	link.cut.Store(true)
	c := follower.dial()
	answer := make(chan *remoting.Command, 1)
	go func() { answer <- c.send("T", 0, "", []byte("x")) }()
	eventually(t, "a write waits", func() bool { return follower.broker.Stats().WaitingWrites == 1 })
	follower.broker.Close()
	ctx, cancel := context.WithTimeout(context.Background(), waitLong)
	defer cancel()
	select {
	case resp := <-answer:
		want(t, resp, remoting.ResponseServiceNotAvailable)
	case <-ctx.Done():
		t.Fatal("no answer")
	}
}
