package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/jepsen/cluster"
	"raftmq/transport/remoting"
)

// catchUpFlags let a follower fall behind the Raft log quickly. Segments are small, so that there are several.
func catchUpFlags(more ...string) []string {
	return append([]string{"--mapped-file-size-commit-log", "4MiB", "--max-message-size", "1MiB", "--raft-snapshot-bytes", "2MiB", "--raft-trailing-bytes", "0",
		"--max-hash-slot-num", "1000", "--max-index-num", "10000"}, more...)
}

// fill sends bytes of messages of 60 KiB to the leader and waits for their answers.
func fill(t *testing.T, c *cluster.Cluster, topic string, bytes int) {
	t.Helper()
	const size = 60 << 10
	conn := dial(t, serving(t, c).Addrs.Client)
	ctx := withTimeout(t, 2*time.Minute)
	body := strings.Repeat("0123456789abcdef", size/16)
	slots := make(chan struct{}, 32)
	var failed atomic.Pointer[string]
	for i := range bytes/size + 1 {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			t.Fatal("filling the log takes too long")
		}
		conn.Go(sendRequest(topic, i%2, body, ""), func(resp *remoting.Command, err error) {
			if err != nil || resp.Code != remoting.ResponseSuccess {
				text := fmt.Sprint(resp, err)
				failed.Store(&text)
			}
			<-slots
		})
	}
	for range cap(slots) {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			t.Fatal("filling the log takes too long")
		}
	}
	if text := failed.Load(); text != nil {
		t.Fatalf("a send failed: %s", *text)
	}
}

// compact takes a snapshot on every running node: what is older is in no Raft log any more.
func compact(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, n := range c.Nodes() {
		if n.Running() {
			var a remoting.SnapshotAnswer
			if err := n.Admin(withTimeout(t, time.Minute), remoting.RequestSnapshot, struct{}{}, &a); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// metric reads one of a node's figures; 0 when it does not answer.
func metric(t *testing.T, n *cluster.Node, name string) float64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+n.Addrs.HTTP+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && key == name {
			f, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			return f
		}
	}
	t.Fatalf("%s has no metric %s", n.ID, name)
	return 0
}

// waitCaughtUp waits until a node has all that the leader has, and that all running nodes are equal, byte by byte.
func waitCaughtUp(t *testing.T, c *cluster.Cluster, n *cluster.Node, d time.Duration) {
	t.Helper()
	ctx := withTimeout(t, d)
	if err := caughtUp(ctx, c, n); err != nil {
		t.Fatalf("%v\nthe end of its log:\n%s", err, n.LogTail(4000))
	}
	if _, err := c.WaitConverged(ctx); err != nil {
		t.Fatal(err)
	}
}

// countLines is how often a node has logged something.
func countLines(n *cluster.Node, text string) int { return strings.Count(n.LogTail(64<<20), text) }

// Lines of the catch-up.
const (
	lineBegun   = "catching up: fetching log bytes of the leader"
	lineFetched = "catching up: the log bytes are here and match"
	lineStored  = "installed log bytes of a peer"
)

// slowLink passes connections on to an address, at a limited rate for all of them together, both ways.
type slowLink struct {
	listener net.Listener
	to       string
	rate     atomic.Int64 // bytes a second; 0: no limit
	passed   atomic.Int64

	mu    sync.Mutex
	next  time.Time             // guarded by mu
	conns map[net.Conn]struct{} // likewise
	wg    sync.WaitGroup
}

func newSlowLink(t *testing.T, to string) *slowLink {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &slowLink{listener: l, to: to, conns: map[net.Conn]struct{}{}}
	s.wg.Go(s.accept)
	t.Cleanup(func() {
		_ = l.Close()
		s.cut()
		s.wg.Wait()
	})
	return s
}

func (s *slowLink) addr() string { return s.listener.Addr().String() }

// cut ends all connections.
func (s *slowLink) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		_ = c.Close()
	}
}

func (s *slowLink) accept() {
	for {
		in, err := s.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", s.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		s.mu.Lock()
		s.conns[in], s.conns[out] = struct{}{}, struct{}{}
		s.mu.Unlock()
		s.wg.Go(func() { s.pass(in, out) })
		s.wg.Go(func() { s.pass(out, in) })
	}
}

func (s *slowLink) pass(from, to net.Conn) {
	defer func() {
		_ = from.Close()
		_ = to.Close()
		s.mu.Lock()
		delete(s.conns, from)
		s.mu.Unlock()
	}()
	b := make([]byte, 8<<10)
	for {
		n, err := from.Read(b)
		if n > 0 {
			s.wait(int64(n))
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
			s.passed.Add(int64(n))
		}
		if err != nil {
			return
		}
	}
}

// wait takes n bytes' time of the link.
func (s *slowLink) wait(n int64) {
	rate := s.rate.Load()
	if rate == 0 {
		return
	}
	s.mu.Lock()
	now := time.Now()
	if s.next.Before(now) {
		s.next = now
	}
	until := s.next
	s.next = s.next.Add(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
	s.mu.Unlock()
	time.Sleep(time.Until(until)) // the link's speed
}
