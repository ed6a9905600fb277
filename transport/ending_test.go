package transport

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"raftmq/transport/remoting"
)

func TestCloseConnsKeepsListening(t *testing.T) {
	var closed sync.Map
	var count atomic.Int32
	s, addr := startServer(t, Config{}, func(s *Server) {
		registerEcho(s)
		s.OnClose(func(c *Conn) {
			select {
			case <-c.Done():
			default:
				t.Error("OnClose before Done")
			}
			if _, twice := closed.LoadOrStore(c.ID(), true); twice {
				t.Error("OnClose twice")
			}
			count.Add(1)
		})
	})
	var peers []*peer
	for range 5 {
		p := dialPeer(t, addr)
		p.send(request(codeEcho, 1, ""))
		p.mustReceive()
		peers = append(peers, p)
	}
	s.CloseConns()
	for _, p := range peers {
		p.mustEnd()
	}
	eventually(t, "callbacks", func() bool { return count.Load() == 5 && s.Stats().Conns == 0 })
	p := dialPeer(t, addr)
	p.send(request(codeEcho, 2, ""))
	p.mustReceive()
}

// TestTurnAway: while clients are turned away nobody is answered but who sends what is wanted.
func TestTurnAway(t *testing.T) {
	s, addr := startServer(t, Config{}, func(s *Server) {
		registerEcho(s)
		s.HandleInline(9001, func(r Responder, _ *remoting.Command) { r.Reply(&remoting.Command{}) })
	})
	before := dialPeer(t, addr)
	before.send(request(codeEcho, 1, ""))
	before.mustReceive()
	operator, silent := dialPeer(t, addr), dialPeer(t, addr)
	operator.send(request(9001, 0, ""))
	operator.mustReceive()
	s.TurnAway(func(code int32) bool { return code >= 9000 })
	before.mustEnd()
	silent.mustEnd()
	later := dialPeer(t, addr)
	later.send(request(codeEcho, 2, ""))
	later.mustEnd()
	operator.send(request(9001, 3, ""))
	operator.mustReceive()
	s.TurnAway(nil)
	again := dialPeer(t, addr)
	again.send(request(codeEcho, 4, ""))
	again.mustReceive()
	operator.send(request(codeEcho, 5, ""))
	operator.mustReceive()
}

// TestConnCloseWritesWhatIsQueued: a handler answers and closes; the answer arrives, later requests don't count.
func TestConnCloseWritesWhatIsQueued(t *testing.T) {
	_, addr := startServer(t, Config{}, func(s *Server) {
		s.HandleInline(700, func(r Responder, cmd *remoting.Command) {
			r.Reply(&remoting.Command{Body: make([]byte, 1<<20)})
			if err := r.Conn.Close(); err != nil {
				t.Error(err)
			}
			_ = r.Conn.Close()
		})
	})
	p := dialPeer(t, addr)
	p.send(request(700, 1, ""))
	if resp := p.mustReceive(); resp.Opaque != 1 || len(resp.Body) != 1<<20 {
		t.Errorf("opaque %d, %d bytes", resp.Opaque, len(resp.Body))
	}
	p.mustEnd()
}

// TestPeerThatEndsItsSide gets the answers to what it sent before.
func TestPeerThatEndsItsSide(t *testing.T) {
	s, addr := startServer(t, Config{}, registerEcho)
	p := dialPeer(t, addr)
	p.send(request(codeEcho, 1, "last"))
	if err := p.Conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if resp := p.mustReceive(); string(resp.Body) != "last" {
		t.Errorf("answer %+v", resp)
	}
	p.mustEnd()
	eventually(t, "gone", func() bool { return s.Stats().Conns == 0 })
}

func TestShutdownDrains(t *testing.T) {
	held := make(chan Responder, 2)
	s := NewServer(Config{})
	s.HandleInline(700, func(r Responder, _ *remoting.Command) { held <- r })
	s.HandleInline(codeEcho, func(r Responder, _ *remoting.Command) { r.Reply(&remoting.Command{}) })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(l)
	busy, idle := dialPeer(t, l.Addr().String()), dialPeer(t, l.Addr().String())
	idle.send(request(codeEcho, 0, ""))
	idle.mustReceive()
	busy.send(request(700, 1, ""), request(700, 2, ""))
	first, second := <-held, <-held

	result := make(chan error, 2)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	go func() { result <- s.Shutdown(ctx) }()
	idle.mustEnd() // a connection that is owed nothing ends at once
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("still accepting")
	}
	busy.send(request(codeEcho, 3, "too late"))
	first.Reply(&remoting.Command{Remark: "first"})
	if resp := busy.mustReceive(); resp.Opaque != 1 {
		t.Errorf("answer %+v", resp)
	}
	select {
	case err := <-result:
		t.Fatalf("shutdown returned %v with an answer owed", err)
	default:
	}
	go func() { result <- s.Shutdown(ctx) }() // twice is harmless
	second.Reply(&remoting.Command{Remark: "second"})
	if resp := busy.mustReceive(); resp.Opaque != 2 {
		t.Errorf("answer %+v", resp)
	}
	busy.mustEnd()
	busy.Close()
	for range 2 {
		if err := <-result; err != nil {
			t.Error(err)
		}
	}
	second.Reply(&remoting.Command{}) // on a connection that is gone
	s.Serve(l)                        // after Shutdown: closes l only
}

func TestShutdownWithOwedAnswersEndsWithContext(t *testing.T) {
	held := make(chan Responder, 1)
	s := NewServer(Config{})
	s.HandleInline(700, func(r Responder, _ *remoting.Command) { held <- r })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(l)
	p := dialPeer(t, l.Addr().String())
	p.send(request(700, 1, ""))
	r := <-held
	eventually(t, "published", func() bool { return s.Stats().InFlight == 1 })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "1 answers") {
		t.Errorf("error %v", err)
	}
	p.mustEnd()
	released := false
	r.ReplyViews(&remoting.Command{}, [][]byte{[]byte("x")}, func() { released = true })
	if !released {
		t.Error("view not released")
	}
	if err := s.Shutdown(context.Background()); err != nil {
		t.Errorf("second shutdown: %v", err)
	}
}

// TestShutdownWaitsForOneWayRequests that a worker still has.
func TestShutdownWaitsForOneWayRequests(t *testing.T) {
	hold, started := make(chan struct{}), make(chan struct{})
	var handled atomic.Bool
	s := NewServer(Config{})
	s.Handle(700, func(Responder, *remoting.Command) {
		close(started)
		<-hold
		handled.Store(true)
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(l)
	p := dialPeer(t, l.Addr().String())
	p.send(&remoting.Command{Code: 700, Flag: remoting.FlagOneWay})
	<-started
	time.AfterFunc(10*time.Millisecond, func() { close(hold) })
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil || !handled.Load() {
		t.Errorf("error %v, handled %v", err, handled.Load())
	}
}

// pipeListener hands out in-memory connections, for tests in a synctest bubble.
type pipeListener struct {
	conns  chan net.Conn
	once   sync.Once
	closed chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		if c == nil {
			return nil, errors.New("too many open files")
		}
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// TestIdleConnectionCloses with the default of 120 seconds, in fake time.
func TestIdleConnectionCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Config{})
		registerEcho(s)
		l := newPipeListener()
		s.Serve(l)
		l.conns <- nil // a failing accept is retried
		ours, theirs := net.Pipe()
		l.conns <- theirs
		p := &peer{t: t, Conn: ours, br: nil}
		start := time.Now()
		time.Sleep(100 * time.Second)
		p.send(request(codeEcho, 1, "")) // starts the time anew
		if _, err := io.ReadFull(ours, make([]byte, 8)); err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(io.Discard, ours)
		if open := time.Since(start); open < 220*time.Second || open > 251*time.Second {
			t.Errorf("closed after %s", open)
		}
		if err := s.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if n := s.Stats().IdleConnsClosed; n != 1 {
			t.Errorf("%d counted", n)
		}
	})
}
