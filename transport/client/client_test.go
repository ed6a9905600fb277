package client

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/transport/remoting"
)

// TestMain fails when the tests leave a goroutine of this package behind.
func TestMain(m *testing.M) {
	code := m.Run()
	if left := lingering(); code == 0 && left != "" {
		fmt.Fprintf(os.Stderr, "goroutines left:\n%s\n", left)
		code = 1
	}
	os.Exit(code)
}

func lingering() (left string) {
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		buf := make([]byte, 1<<20)
		left = ""
		for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(stack, "raftmq/transport/client.") && !strings.Contains(stack, "TestMain") {
				left += stack + "\n\n"
			}
		}
		if left == "" {
			return ""
		}
	}
	return left
}

// node is a server made of the codec only: package transport stays out of these tests, so that
// an error in one of the two is not mirrored by the other.
type node struct {
	addr   string
	l      net.Listener
	handle func(s *session, cmd *remoting.Command)
	wg     sync.WaitGroup

	mu       sync.Mutex
	sessions map[*session]struct{}
}

type session struct {
	mu sync.Mutex
	net.Conn
}

func (s *session) send(cmds ...*remoting.Command) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var b []byte
	for _, cmd := range cmds {
		b = remoting.AppendFrame(b, cmd)
	}
	_, _ = s.Write(b)
}

func (s *session) answer(to, resp *remoting.Command) {
	resp.Opaque, resp.Flag = to.Opaque, remoting.FlagResponse
	s.send(resp)
}

func startNode(t testing.TB, handle func(s *session, cmd *remoting.Command)) *node {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n := &node{addr: l.Addr().String(), l: l, handle: handle, sessions: make(map[*session]struct{})}
	n.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n.wg.Go(func() { n.serve(c) })
		}
	})
	t.Cleanup(n.stop)
	return n
}

func (n *node) stop() {
	n.l.Close()
	n.closeConns()
	n.wg.Wait()
}

func (n *node) closeConns() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for s := range n.sessions {
		s.Close()
	}
}

func (n *node) serve(c net.Conn) {
	s := &session{Conn: c}
	n.mu.Lock()
	n.sessions[s] = struct{}{}
	n.mu.Unlock()
	defer func() {
		n.mu.Lock()
		delete(n.sessions, s)
		n.mu.Unlock()
		c.Close()
	}()
	br := bufio.NewReader(c)
	for {
		var head [4]byte
		if _, err := io.ReadFull(br, head[:]); err != nil {
			return
		}
		frame := make([]byte, binary.BigEndian.Uint32(head[:]))
		if _, err := io.ReadFull(br, frame); err != nil {
			return
		}
		cmd := new(remoting.Command)
		if err := remoting.DecodeFrame(frame, cmd, nil); err != nil {
			return
		}
		n.handle(s, cmd)
	}
}

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func dial(t testing.TB, addr string) *Client {
	t.Helper()
	c, err := Dial(testContext(t), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); c.Wait() })
	return c
}

func echo(s *session, cmd *remoting.Command) {
	s.answer(cmd, &remoting.Command{Code: cmd.Code, Body: cmd.Body})
}

func TestInvokeFromManyGoroutines(t *testing.T) {
	n := startNode(t, echo)
	c := dial(t, n.addr)
	ctx := testContext(t)
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 200 {
				body := fmt.Sprint(g, "/", i)
				resp, err := c.Invoke(ctx, &remoting.Command{Code: int32(i), Body: []byte(body)})
				if err != nil || resp.Code != int32(i) || string(resp.Body) != body {
					t.Errorf("%s answered %+v, %v", body, resp, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestFrameSizes around the read buffer's size, answers read in one piece and in many.
func TestFrameSizes(t *testing.T) {
	n := startNode(t, echo)
	c := dial(t, n.addr)
	for _, size := range []int{0, 1, 65_000, readBufferSize - 200, readBufferSize, readBufferSize + 1, 3 << 20, 10} {
		body := make([]byte, size)
		for i := range body {
			body[i] = byte(i * 7)
		}
		resp, err := c.Invoke(testContext(t), &remoting.Command{Body: body})
		if err != nil || string(resp.Body) != string(body) {
			t.Fatalf("body of %d bytes: %v", size, err)
		}
	}
}

func TestGoAnswersOutOfOrderAndOnce(t *testing.T) {
	const n = 100
	var asked []*remoting.Command
	server := startNode(t, func(s *session, cmd *remoting.Command) {
		if asked = append(asked, cmd); len(asked) == n {
			for i := n - 1; i >= 0; i-- {
				s.answer(asked[i], &remoting.Command{Body: asked[i].Body})
				s.answer(asked[i], &remoting.Command{Remark: "twice"})
			}
		}
	})
	c := dial(t, server.addr)
	var calls [n]atomic.Int32
	done := make(chan int, 2*n)
	cmd := &remoting.Command{}
	for i := range n {
		cmd.Body = []byte(fmt.Sprint(i)) // one Command for all
		c.Go(cmd, func(resp *remoting.Command, err error) {
			if err != nil || string(resp.Body) != fmt.Sprint(i) {
				t.Errorf("%d answered %+v, %v", i, resp, err)
			}
			calls[i].Add(1)
			done <- i
		})
	}
	for i := n - 1; i >= 0; i-- {
		if got := <-done; got != i {
			t.Errorf("answer %d, %d expected", got, i)
		}
	}
	c.Close()
	c.Wait()
	for i := range calls {
		if got := calls[i].Load(); got != 1 {
			t.Errorf("done called %d times for %d", got, i)
		}
	}
}

func TestTimeoutLeavesTheConnection(t *testing.T) {
	release := make(chan struct{})
	n := startNode(t, func(s *session, cmd *remoting.Command) {
		if cmd.Code == 1 {
			<-release
		}
		echo(s, cmd)
	})
	c := dial(t, n.addr)
	ctx, cancel := context.WithTimeout(testContext(t), 20*time.Millisecond)
	defer cancel()
	if _, err := c.Invoke(ctx, &remoting.Command{Code: 1}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	close(release) // the late answer belongs to nobody
	if resp, err := c.Invoke(testContext(t), &remoting.Command{Code: 2}); err != nil || resp.Code != 2 {
		t.Errorf("answer %+v, %v", resp, err)
	}
}

func TestLostConnectionFailsWhatIsInFlight(t *testing.T) {
	for name, end := range map[string]func(c *Client, s *session){
		"closed by the server": func(_ *Client, s *session) { s.Close() },
		"closed by us":         func(c *Client, _ *session) { c.Close() },
		"garbage":              func(_ *Client, s *session) { s.Write([]byte("HTTP/1.1 400\r\n\r\n")) },
		"bad header":           func(_ *Client, s *session) { s.Write([]byte{0, 0, 0, 4, 9, 0, 0, 0}) },
	} {
		t.Run(name, func(t *testing.T) {
			const n = 10
			sessions := make(chan *session, n)
			server := startNode(t, func(s *session, _ *remoting.Command) { sessions <- s })
			c := dial(t, server.addr)
			errs := make(chan error, n)
			for i := range n {
				if i%2 == 0 {
					c.Go(&remoting.Command{}, func(_ *remoting.Command, err error) { errs <- err })
				} else {
					go func() {
						_, err := c.Invoke(testContext(t), &remoting.Command{})
						errs <- err
					}()
				}
			}
			var s *session
			for range n {
				s = <-sessions
			}
			if c.Err() != nil {
				t.Errorf("error %v while it lives", c.Err())
			}
			end(c, s)
			for range n {
				if err := <-errs; !errors.Is(err, ErrConnClosed) {
					t.Errorf("error %v", err)
				}
			}
			<-c.Done()
			if !errors.Is(c.Err(), ErrConnClosed) {
				t.Errorf("error %v", c.Err())
			}
			called := 0
			c.Go(&remoting.Command{}, func(_ *remoting.Command, err error) {
				if called++; !errors.Is(err, ErrConnClosed) {
					t.Errorf("error %v", err)
				}
			})
			if called != 1 {
				t.Errorf("done called %d times", called)
			}
			if err := c.SendOneWay(&remoting.Command{}); !errors.Is(err, ErrConnClosed) {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestRequestsOfTheServer(t *testing.T) {
	answers := make(chan *remoting.Command, 10)
	n := startNode(t, func(s *session, cmd *remoting.Command) {
		switch {
		case cmd.IsResponse():
			answers <- cmd
		case cmd.IsOneWay():
			s.send(&remoting.Command{Code: 40, Opaque: 1, Flag: remoting.FlagOneWay},
				&remoting.Command{Code: 41, Opaque: 2},
				&remoting.Command{Code: 307, Opaque: 3, Serialize: remoting.SerializeRocketMQ})
		default:
			t.Errorf("request %+v", cmd)
		}
	})
	c := dial(t, n.addr)
	seen := make(chan int32, 3)
	c.OnRequest(func(cmd *remoting.Command) *remoting.Command {
		seen <- cmd.Code
		if cmd.Code == 41 {
			return nil
		}
		return &remoting.Command{Remark: "mine"}
	})
	if err := c.SendOneWay(&remoting.Command{Code: 35}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []int32{40, 41, 307} {
		if got := <-seen; got != want {
			t.Errorf("request %d, %d expected", got, want)
		}
	}
	resp := <-answers
	if resp.Opaque != 3 || resp.Remark != "mine" || resp.Serialize != remoting.SerializeRocketMQ || resp.Flag != remoting.FlagResponse {
		t.Errorf("answer %+v", resp)
	}
	c.Close()
	c.Wait()
	if len(answers) != 0 {
		t.Errorf("answer %+v to a request that wants none", <-answers)
	}
}

func TestDialFails(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if c, err := Dial(testContext(t), l.Addr().String()); err == nil {
		c.Close()
		t.Error("connected to a closed port")
	}
}

// countedConn counts write calls.
type countedConn struct {
	net.Conn
	writes atomic.Int64
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// TestWritesAreGathered: a connection that is slow to write gets what piled up in one call.
func TestWritesAreGathered(t *testing.T) {
	ours, theirs := net.Pipe() // a write waits for its reader
	counted := &countedConn{Conn: ours}
	c := NewClient(counted)
	const n = 1000
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			for range n / 10 {
				if err := c.SendOneWay(&remoting.Command{Code: 10}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	size := len(remoting.AppendFrame(nil, &remoting.Command{Code: 10, Version: defaultVersion, Flag: remoting.FlagOneWay}))
	if _, err := io.CopyN(io.Discard, theirs, int64(n*size)); err != nil {
		t.Fatal(err)
	}
	if got := counted.writes.Load(); got > 3 {
		t.Errorf("%d write calls for %d frames that piled up", got, n)
	}
	c.Close()
	c.Wait()
	theirs.Close()
}

// BenchmarkGo keeps 256 requests of 1 KiB in flight; the server end is a goroutine that
// answers each with a prepared frame.
func BenchmarkGo(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		br := bufio.NewReaderSize(conn, 64<<10)
		out := make([]byte, 0, 64<<10)
		for {
			head, err := br.Peek(12)
			if err != nil {
				return
			}
			// The binary header has its opaque at a fixed place.
			total := 4 + int(binary.BigEndian.Uint32(head))
			frame, err := br.Peek(total)
			if err != nil {
				return
			}
			out = remoting.AppendFrame(out, &remoting.Command{
				Serialize: remoting.SerializeRocketMQ, Flag: remoting.FlagResponse,
				Opaque: int32(binary.BigEndian.Uint32(frame[8+5:])),
			})
			if _, err := br.Discard(total); err != nil {
				return
			}
			if br.Buffered() < total {
				if _, err := conn.Write(out); err != nil {
					return
				}
				out = out[:0]
			}
		}
	})
	c, err := Dial(context.Background(), l.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	permits := make(chan struct{}, 256)
	done := func(*remoting.Command, error) { <-permits }
	cmd := &remoting.Command{Code: 310, Serialize: remoting.SerializeRocketMQ, Body: make([]byte, 1024)}
	b.ReportAllocs()
	b.SetBytes(1024)
	for b.Loop() {
		permits <- struct{}{}
		c.Go(cmd, done)
	}
	for range cap(permits) {
		permits <- struct{}{}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
	c.Close()
	c.Wait()
	wg.Wait()
}
