package transport

import (
	"bytes"
	"fmt"
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

// lingering waits for this package's goroutines to end and returns the stacks of those that don't.
func lingering() (left string) {
	for deadline := time.Now().Add(3 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		buf := make([]byte, 1<<20)
		left = ""
		for stack := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			if strings.Contains(stack, "raftmq/transport.") && !strings.Contains(stack, "TestMain") {
				left += stack + "\n\n"
			}
		}
		if left == "" {
			return ""
		}
	}
	return left
}

func request(code, opaque int32, body string) *remoting.Command {
	return &remoting.Command{Code: code, Opaque: opaque, Version: 401, Body: []byte(body)}
}

func TestPipelineKeepsOrder(t *testing.T) {
	var mu sync.Mutex
	var seen []int32
	s, addr := startServer(t, Config{}, func(s *Server) {
		s.HandleInline(codeEcho, func(r Responder, cmd *remoting.Command) {
			mu.Lock()
			seen = append(seen, cmd.Opaque)
			mu.Unlock()
			r.Reply(&remoting.Command{Body: cmd.Body})
		})
	})
	p := dialPeer(t, addr)
	const n = 5000
	go func() {
		var b []byte
		for i := range int32(n) {
			b = remoting.AppendFrame(b, request(codeEcho, i-n/2, fmt.Sprint("body ", i)))
		}
		_, _ = p.Write(b)
	}()
	for i := range int32(n) {
		resp := p.mustReceive()
		if resp.Opaque != i-n/2 || string(resp.Body) != fmt.Sprint("body ", i) || resp.Flag != remoting.FlagResponse || resp.Version != defaultVersion || resp.Language != remoting.LanguageJava {
			t.Fatalf("answer %d is %+v", i, resp)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for i, opaque := range seen {
		if opaque != int32(i)-n/2 {
			t.Fatalf("request %d dispatched as number %d", opaque, i)
		}
	}
	eventually(t, "counted", func() bool {
		st := s.Stats()
		return st.Requests == n && st.Responses == n && st.InFlight == 0 && st.Conns == 1 && st.Accepted == 1
	})
}

func TestAnswersOutOfOrder(t *testing.T) {
	const n = 100
	held := make(chan Responder, n)
	s, addr := startServer(t, Config{}, func(s *Server) {
		s.HandleInline(codeEcho, func(r Responder, _ *remoting.Command) { held <- r })
	})
	p := dialPeer(t, addr)
	for i := range int32(n) {
		p.send(&remoting.Command{Code: codeEcho, Opaque: i, Serialize: remoting.SerializeType(i % 2)})
	}
	rs := make([]Responder, n)
	for i := range rs {
		rs[i] = <-held
	}
	eventually(t, "all in flight", func() bool { return s.Stats().InFlight == n })
	for i := n - 1; i >= 0; i-- {
		rs[i].Reply(&remoting.Command{})
	}
	for i := int32(n - 1); i >= 0; i-- {
		if resp := p.mustReceive(); resp.Opaque != i || resp.Serialize != remoting.SerializeType(i%2) {
			t.Fatalf("answer %+v, opaque %d expected", resp, i)
		}
	}
}

func TestHalfFrames(t *testing.T) {
	_, addr := startServer(t, Config{}, registerEcho)
	p := dialPeer(t, addr)
	b := remoting.AppendFrame(nil, request(codeEcho, 1, "first"))
	b = remoting.AppendFrame(b, request(codeRaw, 2, strings.Repeat("x", 300)))
	for i := range b {
		p.write(b[i : i+1])
	}
	for want := range int32(2) {
		if resp := p.mustReceive(); resp.Opaque != want+1 {
			t.Fatalf("answer %+v, opaque %d expected", resp, want+1)
		}
	}
}

func TestBadBytesCloseTheConnection(t *testing.T) {
	frame := func(word uint32, rest string) []byte {
		b := frameOf(4+len(rest), 0)
		b[4], b[5], b[6], b[7] = byte(word>>24), byte(word>>16), byte(word>>8), byte(word)
		copy(b[8:], rest)
		return b
	}
	s, addr := startServer(t, Config{MaxFrameBytes: 4096}, registerEcho)
	cases := map[string][]byte{
		"http":              []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"tls hello":         {0x16, 3, 1, 1, 0, 1, 0, 0, 0xfc, 3, 3},
		"length 3":          {0, 0, 0, 3, 0, 0, 0},
		"length 0":          {0, 0, 0, 0},
		"oversize":          frameOf(4093, 0),
		"header too long":   frame(100, "{}"),
		"unknown serialise": frame(2<<24|2, "{}"),
		"broken json":       frame(5, `{"co:`),
		"broken binary":     frame(1<<24|3, "abc"),
		"random":            {0, 0, 0, 9, 0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4, 5},
	}
	for name, bad := range cases {
		t.Run(name, func(t *testing.T) {
			before := s.Stats().BadFrames
			p := dialPeer(t, addr)
			// What came before the bad bytes is answered.
			p.write(append(remoting.AppendFrame(nil, request(codeEcho, 5, "good")), bad...))
			if resp := p.mustReceive(); resp.Opaque != 5 || string(resp.Body) != "good" {
				t.Errorf("answer %+v", resp)
			}
			p.mustEnd()
			eventually(t, "counted", func() bool { return s.Stats().BadFrames == before+1 })
		})
	}
	// The largest frame is no bad frame.
	p := dialPeer(t, addr)
	cmd := request(codeEcho, 6, "")
	cmd.Body = make([]byte, 4096-len(remoting.AppendFrame(nil, cmd)))
	p.send(cmd)
	if resp := p.mustReceive(); resp.Opaque != 6 {
		t.Errorf("answer %+v", resp)
	}
}

func TestUnknownCode(t *testing.T) {
	s, addr := startServer(t, Config{Version: 409}, registerEcho)
	p := dialPeer(t, addr)
	for _, code := range []int32{0, 555, -1, 200050, smallCodes - 1, smallCodes} {
		p.send(request(code, code+1, ""))
		resp := p.mustReceive()
		if resp.Code != 3 || resp.Opaque != code+1 || resp.Remark != fmt.Sprintf(" request type %d not supported", code) || resp.Version != 409 {
			t.Errorf("code %d answered %+v", code, resp)
		}
	}
	if n := s.Stats().Unsupported; n != 6 {
		t.Errorf("%d counted", n)
	}
}

func TestOneWayHasNoAnswer(t *testing.T) {
	var handled atomic.Int32
	s, addr := startServer(t, Config{}, func(s *Server) {
		registerEcho(s)
		s.Handle(700, func(r Responder, _ *remoting.Command) {
			handled.Add(1)
			r.ReplyViews(&remoting.Command{}, [][]byte{[]byte("x")}, func() { handled.Add(1) })
		})
		s.HandleInline(701, func(Responder, *remoting.Command) { panic("one-way") })
	})
	p := dialPeer(t, addr)
	oneWay := func(code int32) *remoting.Command {
		return &remoting.Command{Code: code, Flag: remoting.FlagOneWay, Opaque: -9}
	}
	p.send(oneWay(codeEcho), oneWay(codeRaw), oneWay(codePooled), oneWay(700), oneWay(701), oneWay(12345), request(codeEcho, 1, "end"))
	if resp := p.mustReceive(); resp.Opaque != 1 {
		t.Errorf("answer %+v", resp)
	}
	eventually(t, "handled and released", func() bool { return handled.Load() == 2 })
	eventually(t, "nothing owed", func() bool { return s.Stats().InFlight == 0 })
	if st := s.Stats(); st.Panics != 1 || st.DoubleAnswers != 0 {
		t.Errorf("stats %+v", st)
	}
	p.send(request(codeEcho, 2, ""))
	if resp := p.mustReceive(); resp.Opaque != 2 {
		t.Errorf("answer %+v", resp)
	}
}

func TestPanicIsAnswered(t *testing.T) {
	s, addr := startServer(t, Config{}, func(s *Server) {
		registerEcho(s)
		boom := func(_ Responder, cmd *remoting.Command) { panic("boom " + string(cmd.Body)) }
		s.HandleInline(700, boom)
		s.Handle(701, boom)
		s.HandleInline(702, func(r Responder, _ *remoting.Command) {
			r.Reply(&remoting.Command{Remark: "first"})
			panic("second")
		})
		s.HandleInline(703, func(r Responder, _ *remoting.Command) {
			r.ReplyRaw(func(dst []byte) []byte { _ = append(dst, 1, 2, 3); panic("raw") })
		})
	})
	p := dialPeer(t, addr)
	for code, want := range map[int32]string{700: "boom x", 701: "boom x", 703: "raw"} {
		p.send(request(code, code, "x"))
		if resp := p.mustReceive(); resp.Code != 1 || resp.Remark != want || resp.Opaque != code {
			t.Errorf("code %d answered %+v", code, resp)
		}
	}
	p.send(request(702, 702, ""), request(codeEcho, 1, ""))
	if resp := p.mustReceive(); resp.Code != 0 || resp.Remark != "first" {
		t.Errorf("answer %+v", resp)
	}
	if resp := p.mustReceive(); resp.Opaque != 1 {
		t.Errorf("answer %+v: the second answer of a request was not dropped", resp)
	}
	if st := s.Stats(); st.Panics != 4 || st.DoubleAnswers != 1 {
		t.Errorf("stats %+v", st)
	}
}

// TestSecondAnswerIsDropped: also when the first one's slot is in use again.
func TestSecondAnswerIsDropped(t *testing.T) {
	var old Responder
	s, addr := startServer(t, Config{}, func(s *Server) {
		s.HandleInline(700, func(r Responder, _ *remoting.Command) {
			old = r
			r.Reply(&remoting.Command{})
		})
		s.HandleInline(701, func(r Responder, _ *remoting.Command) {
			released := 0
			old.Reply(&remoting.Command{Remark: "twice"})
			old.ReplyRaw(func(dst []byte) []byte { return append(dst, "never"...) })
			old.ReplyViews(&remoting.Command{}, [][]byte{[]byte("never")}, func() { released++ })
			r.Reply(&remoting.Command{Remark: fmt.Sprint("released ", released)})
		})
	})
	p := dialPeer(t, addr)
	for i := range int32(3 * slotsGrowth) {
		p.send(request(700, 2*i, ""), request(701, 2*i+1, ""))
		if resp := p.mustReceive(); resp.Opaque != 2*i {
			t.Fatalf("answer %+v", resp)
		}
		if resp := p.mustReceive(); resp.Opaque != 2*i+1 || resp.Remark != "released 1" {
			t.Fatalf("answer %+v", resp)
		}
	}
	if n := s.Stats().DoubleAnswers; n != 9*slotsGrowth {
		t.Errorf("%d counted", n)
	}
}

func TestBrokenAnswersAreReplaced(t *testing.T) {
	released := make(chan struct{}, 1)
	s, addr := startServer(t, Config{MaxFrameBytes: 1000}, func(s *Server) {
		s.HandleInline(700, func(r Responder, _ *remoting.Command) { r.Reply(&remoting.Command{Body: make([]byte, 1000)}) })
		s.HandleInline(701, func(r Responder, _ *remoting.Command) {
			r.ReplyViews(&remoting.Command{}, [][]byte{make([]byte, 500), make([]byte, 500)}, func() { released <- struct{}{} })
		})
		s.HandleInline(702, func(r Responder, _ *remoting.Command) {
			r.ReplyRaw(func(dst []byte) []byte { return append(dst, 0, 0, 0, 9, 0, 0, 0, 0) })
		})
		s.HandleInline(703, func(r Responder, _ *remoting.Command) { r.ReplyRaw(func(dst []byte) []byte { return dst }) })
	})
	p := dialPeer(t, addr)
	for code := int32(700); code < 704; code++ {
		p.send(request(code, code, ""))
		if resp := p.mustReceive(); resp.Code != 1 || resp.Opaque != code || len(resp.Body) != 0 {
			t.Errorf("code %d answered %+v", code, resp)
		}
	}
	<-released
	if n := s.Stats().FailedAnswers; n != 4 {
		t.Errorf("%d counted", n)
	}
}

func TestWorkerOverload(t *testing.T) {
	hold := make(chan struct{})
	s, addr := startServer(t, Config{Workers: 1, WorkerQueue: 2}, func(s *Server) {
		registerEcho(s)
		s.Handle(700, func(r Responder, cmd *remoting.Command) {
			<-hold
			r.Reply(&remoting.Command{Body: cmd.Body})
		})
	})
	p := dialPeer(t, addr)
	p.send(request(700, 1, "1"))
	eventually(t, "taken by the worker", func() bool { return len(s.workers.queue) == 0 && s.Stats().InFlight == 1 })
	p.send(request(700, 2, "2"), request(700, 3, "3"), request(700, 4, "4"), request(codeEcho, 5, "5"))
	if resp := p.mustReceive(); resp.Opaque != 4 || resp.Code != 2 || resp.Remark != "[OVERLOAD]system busy, start flow control for a while" {
		t.Errorf("answer %+v", resp)
	}
	if resp := p.mustReceive(); resp.Opaque != 5 {
		t.Errorf("answer %+v", resp)
	}
	close(hold)
	for want := int32(1); want <= 3; want++ {
		if resp := p.mustReceive(); resp.Opaque != want || string(resp.Body) != fmt.Sprint(want) {
			t.Errorf("answer %+v, opaque %d expected", resp, want)
		}
	}
	if n := s.Stats().Busy; n != 1 {
		t.Errorf("%d counted", n)
	}
}

func TestPendingLimitStopsReading(t *testing.T) {
	const limit, n = 4, 20
	held := make(chan Responder, n)
	s, addr := startServer(t, Config{MaxPendingPerConn: limit}, func(s *Server) {
		s.HandleInline(700, func(r Responder, _ *remoting.Command) { held <- r })
	})
	p := dialPeer(t, addr)
	var burst []*remoting.Command
	for i := range int32(n) {
		burst = append(burst, request(700, i, ""))
	}
	p.send(burst...)
	for i := range int32(n) {
		eventually(t, "the limit is reached", func() bool { return len(held) == min(limit, n-int(i)) && s.Stats().InFlight == min(limit, n-int64(i)) })
		(<-held).Reply(&remoting.Command{})
		if resp := p.mustReceive(); resp.Opaque != i {
			t.Fatalf("answer %+v", resp)
		}
	}
}

// TestEveryRequestIsAnsweredOnce is fault F93 at this level: synchronous clients, answers
// from the reader, from workers and from strange goroutines, in all forms.
func TestEveryRequestIsAnsweredOnce(t *testing.T) {
	const clients, each = 64, 150
	later := make(chan func(), clients)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for f := range later {
				f()
			}
		})
	}
	t.Cleanup(func() { // after the server has shut down
		close(later)
		wg.Wait()
	})
	var released atomic.Int64
	s, addr := startServer(t, Config{Workers: 4}, func(s *Server) {
		registerEcho(s)
		s.HandleInline(700, func(r Responder, cmd *remoting.Command) {
			body := bytes.Clone(cmd.Body)
			later <- func() { r.Reply(&remoting.Command{Body: body}) }
		})
		s.HandleInline(701, func(r Responder, cmd *remoting.Command) {
			body := bytes.Clone(cmd.Body)
			later <- func() {
				r.ReplyViews(&remoting.Command{}, [][]byte{body[:1], body[1:]}, func() { released.Add(1) })
			}
		})
	})
	codes := []int32{codeEcho, codeRaw, codePooled, 700, 701}
	errs := make(chan error, clients)
	for c := range clients {
		p := dialPeer(t, addr)
		go func() {
			errs <- func() error {
				for i := range int32(each) {
					cmd := request(codes[(int(i)+c)%len(codes)], i, fmt.Sprint("client ", c, " request ", i))
					if _, err := p.Write(remoting.AppendFrame(nil, cmd)); err != nil {
						return err
					}
					resp, err := p.receive()
					if err != nil {
						return err
					}
					if resp.Opaque != i || !bytes.Equal(resp.Body, cmd.Body) {
						return fmt.Errorf("request %d of client %d answered %+v", i, c, resp)
					}
				}
				// Nothing more may have come.
				if n := p.br.Buffered(); n > 0 {
					return fmt.Errorf("%d bytes too many", n)
				}
				return nil
			}()
		}()
	}
	for range clients {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	eventually(t, "released", func() bool { return released.Load() == clients*each/int64(len(codes)) })
	eventually(t, "counted", func() bool { st := s.Stats(); return st.InFlight == 0 && st.Responses == clients*each })
	if st := s.Stats(); st.DoubleAnswers != 0 {
		t.Errorf("stats %+v", st)
	}
}

func TestAddresses(t *testing.T) {
	l, err := net.Listen("tcp", ":0") // dual-stack: IPv4 peers come as ::ffff:127.0.0.1
	if err != nil {
		t.Fatal(err)
	}
	conns := make(chan *Conn, 2)
	s, _ := startServer(t, Config{}, func(s *Server) {
		s.HandleInline(700, func(r Responder, _ *remoting.Command) {
			conns <- r.Conn
			r.Reply(&remoting.Command{})
		})
	})
	s.Serve(l) // a second listener
	_, port, _ := net.SplitHostPort(l.Addr().String())
	p := dialPeer(t, "127.0.0.1:"+port)
	p.send(request(700, 1, ""))
	p.mustReceive()
	c := <-conns
	if got, want := c.RemoteAddr().String(), p.LocalAddr().String(); got != want {
		t.Errorf("remote address %s, want %s", got, want)
	}
	if got, want := c.LocalAddr().String(), p.RemoteAddr().String(); got != want {
		t.Errorf("local address %s, want %s", got, want)
	}
}

// TestMaxConns: what is above the limit is closed at once, and there is room again when somebody goes.
func TestMaxConns(t *testing.T) {
	s, addr := startServer(t, Config{MaxConns: 2}, func(s *Server) {
		s.HandleInline(codeEcho, func(r Responder, cmd *remoting.Command) { r.Reply(&remoting.Command{Body: cmd.Body}) })
	})
	served := func(p *peer) bool {
		_ = p.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err := p.Write(remoting.AppendFrame(nil, request(codeEcho, 1, "x"))); err != nil {
			return false
		}
		_, err := p.Read(make([]byte, 1))
		return err == nil
	}
	a, b := dialPeer(t, addr), dialPeer(t, addr)
	if !served(a) || !served(b) {
		t.Fatal("within the limit")
	}
	if served(dialPeer(t, addr)) {
		t.Error("a third connection was served")
	}
	_ = a.Close()
	deadline := time.Now().Add(10 * time.Second)
	for s.Stats().Conns > 1 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if !served(dialPeer(t, addr)) || !served(b) {
		t.Error("not served when there is room again")
	}
	if n := s.Stats().ConnsRefused; n != 1 {
		t.Errorf("%d refused", n)
	}
}
