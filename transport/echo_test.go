package transport

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"raftmq/transport/remoting"
)

const (
	codeEcho   = 900 // inline, Reply
	codeRaw    = 901 // inline, ReplyRaw
	codePooled = 902 // pooled, Reply
)

// startServer serves on a loopback port and shuts down at the end of the test.
func startServer(t testing.TB, cfg Config, register func(*Server)) (*Server, string) {
	t.Helper()
	s := NewServer(cfg)
	register(s)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Serve(l)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := s.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
	})
	return s, l.Addr().String()
}

func registerEcho(s *Server) {
	echo := func(r Responder, cmd *remoting.Command) {
		r.Reply(&remoting.Command{Body: cmd.Body})
	}
	s.HandleInline(codeEcho, echo)
	s.Handle(codePooled, echo)
	s.HandleInline(codeRaw, func(r Responder, cmd *remoting.Command) {
		r.ReplyRaw(func(dst []byte) []byte {
			return remoting.AppendFrame(dst, &remoting.Command{Opaque: r.Opaque, Flag: remoting.FlagResponse, Serialize: r.Serialize, Body: cmd.Body})
		})
	})
}

// peer is the client side of a raw connection.
type peer struct {
	t testing.TB
	net.Conn
	br *bufio.Reader
}

func dialPeer(t testing.TB, addr string) *peer {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return &peer{t: t, Conn: c, br: bufio.NewReaderSize(c, 64<<10)}
}

func (p *peer) write(b []byte) {
	p.t.Helper()
	if _, err := p.Write(b); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) send(cmds ...*remoting.Command) {
	p.t.Helper()
	var b []byte
	for _, cmd := range cmds {
		b = remoting.AppendFrame(b, cmd)
	}
	p.write(b)
}

// receive reads one frame; the error is io.EOF at the stream's end.
func (p *peer) receive() (*remoting.Command, error) {
	var head [4]byte
	if _, err := io.ReadFull(p.br, head[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(head[:]))
	if _, err := io.ReadFull(p.br, frame); err != nil {
		return nil, err
	}
	cmd := new(remoting.Command)
	return cmd, remoting.DecodeFrame(frame, cmd, nil)
}

func (p *peer) mustReceive() *remoting.Command {
	p.t.Helper()
	cmd, err := p.receive()
	if err != nil {
		p.t.Fatal(err)
	}
	return cmd
}

// mustEnd expects the stream to end, cleanly or by a reset.
func (p *peer) mustEnd() {
	p.t.Helper()
	if cmd, err := p.receive(); err == nil {
		p.t.Fatalf("answer %+v, the end of the stream expected", cmd)
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() {
		p.t.Fatal("connection still open")
	}
}

// eventually polls a condition until it holds.
func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}
