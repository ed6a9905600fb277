package transport

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"raftmq/transport/remoting"
)

func TestInvokeClient(t *testing.T) {
	conns := make(chan *Conn, 1)
	_, addr := startServer(t, Config{}, func(s *Server) {
		s.HandleInline(codeEcho, func(r Responder, cmd *remoting.Command) {
			conns <- r.Conn
			r.Reply(&remoting.Command{})
		})
	})
	p := dialPeer(t, addr)
	p.send(request(codeEcho, 1, ""))
	p.mustReceive()
	c := <-conns

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	const n = 50
	for i := range n {
		wg.Go(func() {
			resp, err := c.Invoke(ctx, request(307, 77, fmt.Sprint(i)))
			if err != nil || string(resp.Body) != fmt.Sprint("answer ", i) || resp.Remark != "ok" {
				t.Errorf("request %d: %+v, %v", i, resp, err)
			}
		})
	}
	// Answers in reverse order, with requests of the client's own numbers between.
	var asked []*remoting.Command
	for range n {
		cmd := p.mustReceive()
		if cmd.Code != 307 || cmd.Flag != 0 || cmd.Version != 401 {
			t.Errorf("request %+v", cmd)
		}
		asked = append(asked, cmd)
	}
	for i := n - 1; i >= 0; i-- {
		p.send(request(codeEcho, asked[i].Opaque, ""),
			&remoting.Command{Flag: remoting.FlagResponse, Opaque: asked[i].Opaque, Remark: "ok", Body: []byte("answer " + string(asked[i].Body))},
			&remoting.Command{Flag: remoting.FlagResponse, Opaque: asked[i].Opaque, Remark: "again"}) // ignored
		if resp := p.mustReceive(); resp.Opaque != asked[i].Opaque || !resp.IsResponse() {
			t.Errorf("answer %+v", resp)
		}
		<-conns
	}
	wg.Wait()

	if err := c.SendOneWay(request(40, 0, "note")); err != nil {
		t.Error(err)
	}
	if cmd := p.mustReceive(); cmd.Code != 40 || cmd.Flag != remoting.FlagOneWay || string(cmd.Body) != "note" {
		t.Errorf("request %+v", cmd)
	}

	short, cancelShort := context.WithTimeout(ctx, 10*time.Millisecond)
	defer cancelShort()
	if _, err := c.Invoke(short, request(307, 0, "")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	late := p.mustReceive()
	p.send(&remoting.Command{Flag: remoting.FlagResponse, Opaque: late.Opaque})

	lost := make(chan error, 1)
	go func() {
		_, err := c.Invoke(ctx, request(307, 0, ""))
		lost <- err
	}()
	p.mustReceive()
	p.Close()
	if err := <-lost; !errors.Is(err, ErrConnClosed) {
		t.Errorf("error %v", err)
	}
	<-c.Done()
	if _, err := c.Invoke(ctx, request(307, 0, "")); !errors.Is(err, ErrConnClosed) {
		t.Errorf("error %v", err)
	}
	if err := c.SendOneWay(request(40, 0, "")); !errors.Is(err, ErrConnClosed) {
		t.Errorf("error %v", err)
	}
	if len(c.calls.waiting) != 0 {
		t.Errorf("%d calls kept", len(c.calls.waiting))
	}
}
