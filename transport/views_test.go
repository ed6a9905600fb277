package transport

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"

	"raftmq/transport/remoting"
)

// releases counts for each answer how often its views were given back.
type releases struct{ counts []atomic.Int32 }

func (rs *releases) of(i int) func() { return func() { rs.counts[i].Add(1) } }

func (rs *releases) mustBeOnce(t *testing.T) {
	t.Helper()
	eventually(t, "all released", func() bool {
		for i := range rs.counts {
			if rs.counts[i].Load() == 0 {
				return false
			}
		}
		return true
	})
	for i := range rs.counts {
		if n := rs.counts[i].Load(); n != 1 {
			t.Errorf("views of answer %d released %d times", i, n)
		}
	}
}

// TestViewsKeepOrder mixes copied answers with views of all shapes in one stream.
func TestViewsKeepOrder(t *testing.T) {
	const n = 2000
	rs := &releases{counts: make([]atomic.Int32, n)}
	rnd := rand.New(rand.NewPCG(1, 2))
	bodies := make([][][]byte, n)
	for i := range bodies {
		for range rnd.IntN(5) {
			bodies[i] = append(bodies[i], bytes.Repeat([]byte{byte(i)}, rnd.IntN(3000)*rnd.IntN(2)))
		}
	}
	_, addr := startServer(t, Config{}, func(s *Server) {
		s.HandleInline(700, func(r Responder, cmd *remoting.Command) {
			i := int(cmd.Opaque)
			if i%3 == 0 {
				r.Reply(&remoting.Command{Body: bytes.Join(bodies[i], nil)})
				rs.of(i)()
				return
			}
			r.ReplyViews(&remoting.Command{}, bodies[i], rs.of(i))
		})
	})
	p := dialPeer(t, addr)
	go func() {
		var b []byte
		for i := range int32(n) {
			b = remoting.AppendFrame(b, &remoting.Command{Code: 700, Opaque: i})
		}
		_, _ = p.Write(b)
	}()
	for i := range n {
		if resp := p.mustReceive(); int(resp.Opaque) != i || !bytes.Equal(resp.Body, bytes.Join(bodies[i], nil)) {
			t.Fatalf("answer %d has opaque %d and %d bytes", i, resp.Opaque, len(resp.Body))
		}
	}
	rs.mustBeOnce(t)
}

// TestSlowReaderIsDropped: the peer parked requests and does not read their answers. Views are
// released, memory is bounded, others are served.
func TestSlowReaderIsDropped(t *testing.T) {
	const n = 500
	rs := &releases{counts: make([]atomic.Int32, n)}
	body := make([]byte, 100_000)
	parked := make(chan func(), n)
	s, addr := startServer(t, Config{MaxWriteBuffer: 1 << 20}, func(s *Server) {
		s.HandleInline(700, func(r Responder, cmd *remoting.Command) {
			i := int(cmd.Opaque)
			parked <- func() { r.ReplyViews(&remoting.Command{}, [][]byte{body}, rs.of(i)) }
		})
		s.HandleInline(codeEcho, func(r Responder, _ *remoting.Command) { r.Reply(&remoting.Command{}) })
	})
	p := dialPeer(t, addr)
	for i := range int32(n) {
		p.send(&remoting.Command{Code: 700, Opaque: i})
	}
	answers := make([]func(), n)
	for i := range answers {
		answers[i] = <-parked
	}
	for _, answer := range answers {
		answer()
	}
	eventually(t, "dropped", func() bool { st := s.Stats(); return st.SlowConnsDropped == 1 && st.Conns == 0 })
	rs.mustBeOnce(t)
	other := dialPeer(t, addr)
	other.send(&remoting.Command{Code: codeEcho, Opaque: 1})
	other.mustReceive()
}

// TestFastAskerIsHeldBack: answers made at once don't pass half the limit, so a peer that asks for
// more than the limit in one go is no slow reader.
func TestFastAskerIsHeldBack(t *testing.T) {
	const n, limit = 500, 1 << 20
	body := make([]byte, 100_000)
	var most atomic.Int64
	s, addr := startServer(t, Config{MaxWriteBuffer: limit}, func(s *Server) {
		s.HandleInline(700, func(r Responder, _ *remoting.Command) {
			r.ReplyViews(&remoting.Command{}, [][]byte{body}, nil)
			r.Conn.out.mu.Lock()
			most.Store(max(most.Load(), r.Conn.out.queued))
			r.Conn.out.mu.Unlock()
		})
	})
	p := dialPeer(t, addr)
	var burst []byte
	for i := range int32(n) {
		burst = remoting.AppendFrame(burst, &remoting.Command{Code: 700, Opaque: i})
	}
	p.write(burst)
	eventually(t, "held back", func() bool { return s.Stats().InFlight > 0 && most.Load() > limit/2 })
	for i := range int32(n) {
		if resp := p.mustReceive(); resp.Opaque != i || len(resp.Body) != len(body) {
			t.Fatalf("answer %d has opaque %d and %d bytes", i, resp.Opaque, len(resp.Body))
		}
	}
	if got := most.Load(); got > limit/2+110_000 {
		t.Errorf("%d bytes queued", got)
	}
	if n := s.Stats().SlowConnsDropped; n != 0 {
		t.Errorf("%d dropped", n)
	}
}

// TestManyPeersThatDoNotRead: together they are held back at the server's limit, what small views cost included; peers that
// read are served meanwhile, and all is accounted for in the end.
func TestManyPeersThatDoNotRead(t *testing.T) {
	const peers, each, limit = 20, 2000, 4 << 20
	body := make([]byte, 100)
	bufs := make([][]byte, 30)
	for i := range bufs {
		bufs[i] = body
	}
	var most atomic.Int64
	s, addr := startServer(t, Config{MaxBacklog: limit}, func(s *Server) {
		s.HandleInline(700, func(r Responder, _ *remoting.Command) {
			r.ReplyViews(&remoting.Command{}, bufs, nil)
			if n := s.Stats().Backlog; n > most.Load() {
				most.Store(n)
			}
		})
		s.HandleInline(codeEcho, func(r Responder, _ *remoting.Command) { r.Reply(&remoting.Command{}) })
	})
	var burst []byte
	for i := range int32(each) {
		burst = remoting.AppendFrame(burst, &remoting.Command{Code: 700, Opaque: i})
	}
	silent := make([]*peer, peers)
	for i := range silent {
		silent[i] = dialPeer(t, addr)
		silent[i].write(burst)
	}
	eventually(t, "full", func() bool { return s.Stats().Backlog > limit })
	other := dialPeer(t, addr)
	for i := range int32(100) {
		other.send(&remoting.Command{Code: codeEcho, Opaque: i})
		other.mustReceive()
	}
	const answer = 30*(100+viewCost) + answerCost + 200
	if got, allowed := most.Load(), int64(limit+(peers+1)*(fairBacklog+answer)); got > allowed {
		t.Errorf("%d bytes queued, at most %d expected", got, allowed)
	}
	for _, p := range silent[1:] {
		p.Close()
	}
	for i := range int32(each) { // the one that begins to read gets all of its answers
		if resp := silent[0].mustReceive(); resp.Opaque != i || len(resp.Body) != 30*100 {
			t.Fatalf("answer %d has opaque %d and %d bytes", i, resp.Opaque, len(resp.Body))
		}
	}
	eventually(t, "nothing queued", func() bool { return s.Stats().Backlog == 0 })
	if st := s.Stats(); st.SlowConnsDropped != 0 {
		t.Errorf("%+v", st)
	}
}

// TestViewsOfDeadConnectionsAreReleased: connections are reset while answers are made,
// queued and written.
func TestViewsOfDeadConnectionsAreReleased(t *testing.T) {
	const conns, each = 20, 40
	rs := &releases{counts: make([]atomic.Int32, conns*each)}
	var asked atomic.Int64
	body := make([]byte, 50_000)
	later := make(chan func(), conns*each)
	s, addr := startServer(t, Config{}, func(s *Server) {
		s.HandleInline(700, func(r Responder, cmd *remoting.Command) {
			i := int(cmd.Opaque)
			asked.Add(1)
			later <- func() { r.ReplyViews(&remoting.Command{}, [][]byte{body, body}, rs.of(i)) }
		})
	})
	for c := range conns {
		p := dialPeer(t, addr)
		for i := range each {
			p.send(&remoting.Command{Code: 700, Opaque: int32(c*each + i)})
		}
		eventually(t, "asked", func() bool { return asked.Load() == int64((c+1)*each) })
		go func() { // the reset comes somewhere between the answers
			_, _ = p.Read(make([]byte, 10_000*c))
			_ = p.Conn.(*net.TCPConn).SetLinger(0)
			p.Close()
		}()
		for range each {
			(<-later)()
		}
	}
	rs.mustBeOnce(t)
	eventually(t, "connections gone", func() bool { return s.Stats().Conns == 0 })
}

func BenchmarkReplyViews(b *testing.B) {
	for _, views := range []int{1, 32} {
		b.Run(fmt.Sprintf("views=%d/size=1KiB/in-flight=256", views), func(b *testing.B) {
			record := make([]byte, 1024)
			bufs := make([][]byte, views)
			for i := range bufs {
				bufs[i] = record
			}
			release := func() {}
			_, addr := startServer(b, Config{}, func(s *Server) {
				resp := &remoting.Command{}
				s.HandleInline(codeEcho, func(r Responder, _ *remoting.Command) { r.ReplyViews(resp, bufs, release) })
			})
			echoLoop(b, dialPeer(b, addr), codeEcho, remoting.SerializeJSON, 0)
			b.SetBytes(int64(views) * 1024)
		})
	}
}
