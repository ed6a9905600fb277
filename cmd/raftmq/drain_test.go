package main

import (
	"errors"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/fsm/raftnode"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// silent accepts connections and never answers.
func silent(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = c.Close() })
		}
	}()
	return l.Addr().String()
}

// TestDrainKeepsOrderAcrossLeaders: what was sent to one leader is answered before anything goes to the next one, or given up with its connection.
func TestDrainKeepsOrderAcrossLeaders(t *testing.T) {
	var wg sync.WaitGroup
	defer wg.Wait()
	first, second := silent(t), silent(t)
	var leader atomic.Pointer[string]
	leader.Store(&first)
	var d drain
	d.init(func() (string, string) { return "n2", *leader.Load() }, "n1", func(f func()) bool { wg.Go(f); return true })
	defer d.close()
	answers := make(chan error, 2)
	try := func() bool {
		return d.relay(&remoting.Command{Code: remoting.RequestSendMessage}, func(_ *remoting.Command, err error) { answers <- err })
	}
	until := func(what string, ok func() bool) time.Duration {
		t.Helper()
		began := time.Now()
		for !ok() {
			if time.Since(began) > 20*time.Second {
				t.Fatalf("never: %s", what)
			}
			time.Sleep(time.Millisecond)
		}
		return time.Since(began)
	}
	if try() {
		t.Error("relayed before there was a connection")
	}
	until("a connection", try)
	leader.Store(&second)
	if took := until("the next leader gets a write", try); took < movedPatience {
		t.Errorf("after %v, with a write in flight to the former leader", took)
	}
	if err := <-answers; !errors.Is(err, client.ErrConnClosed) {
		t.Errorf("the write to the former leader ended with %v", err)
	}
	self := func() (string, string) { return "n1", second }
	d.leader = self
	if try() {
		t.Error("relayed to itself")
	}
}

func TestDrained(t *testing.T) {
	const ask = 30 * time.Second
	for _, tt := range []struct {
		s    remoting.DrainStatus
		want bool
		says string
	}{
		{remoting.DrainStatus{LedMillis: -1, RelayedMillis: -1}, true, "has not led"},
		{remoting.DrainStatus{LedMillis: 0, Leading: true, RelayedMillis: -1}, false, "led until 0s ago"},
		{remoting.DrainStatus{LedMillis: 31_000, RelayedMillis: -1}, false, "led until 31s ago"},
		{remoting.DrainStatus{LedMillis: 34_000, RelayedMillis: 10, RelayedWrites: 7}, true, "passed 7 writes on"},
	} {
		if got := drained(tt.s, ask); got != tt.want || !strings.Contains(describeDrain(tt.s), tt.says) {
			t.Errorf("%+v: %v, %s", tt.s, got, describeDrain(tt.s))
		}
	}
	var d drain
	if d.on() || millisSince(d.led.Load()) != -1 {
		t.Error("a new node drains, or has led")
	}
	d.stateChanged(raftnode.State{Role: raftnode.Follower})
	if d.led.Load() != 0 {
		t.Error("a follower has led")
	}
	d.stateChanged(raftnode.State{Role: raftnode.Leader})
	d.led.Store(1)
	if d.stateChanged(raftnode.State{Role: raftnode.Follower}); d.led.Load() == 1 {
		t.Error("the end of leadership was not noted")
	}
}
