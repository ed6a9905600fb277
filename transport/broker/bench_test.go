package broker

import (
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/fsm/command"
	"raftmq/fsm/raftnode"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// batchRaft takes proposals as the proposer does and completes them when told, applying nothing.
type batchRaft struct {
	*fakeRaft
	buf       []byte
	proposals []raftnode.Proposal
	results   command.Results
}

func (f *batchRaft) Propose(p raftnode.Proposal) error {
	f.buf = p.AppendCommand(f.buf, 1)
	f.proposals = append(f.proposals, p)
	return nil
}

func (f *batchRaft) complete() {
	for len(f.results) < len(f.proposals) {
		f.results = append(f.results, command.Result{})
	}
	var result any = f.results
	for i, p := range f.proposals {
		p.Done(result, i, nil)
	}
	f.buf, f.proposals = f.buf[:0], f.proposals[:0]
}

// benchConn is a connection of s whose peer throws everything away.
func benchConn(tb testing.TB, s *transport.Server) *transport.Conn {
	got := make(chan *transport.Conn, 1)
	s.HandleInline(9999, func(r transport.Responder, _ *remoting.Command) {
		got <- r.Conn
		r.Reply(&remoting.Command{})
	})
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s.Serve(l)
	c, err := net.Dial("tcp4", l.Addr().String())
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := c.Write(remoting.AppendFrame(nil, &remoting.Command{Code: 9999})); err != nil {
		tb.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		sink := make([]byte, 1<<20)
		for {
			if _, err := c.Read(sink); err != nil {
				return
			}
		}
	})
	tb.Cleanup(func() {
		_ = c.Close()
		wg.Wait()
	})
	return <-got
}

// sendView decodes a send's frame as a connection's reader does.
func sendView(tb testing.TB, size int) (*remoting.Command, []byte) {
	h := remoting.SendHeader{ProducerGroup: []byte("pg"), Topic: []byte("T"), DefaultTopic: []byte("TBW102"), DefaultTopicQueueNums: 4,
		BornTimestamp: time.Now().UnixMilli(), Properties: []byte("UNIQ_KEY\x017F000001000000000000000000000001\x02WAIT\x01true\x02TAGS\x01TagA")}
	frame := remoting.AppendSendRequest(nil, 1, &h, make([]byte, size))
	cmd := new(remoting.Command)
	if err := remoting.DecodeFrame(frame[4:], cmd, new([]byte)); err != nil {
		tb.Fatal(err)
	}
	return cmd, frame
}

// TestSendAllocations: checking, encoding and completing a send allocates nothing.
func TestSendAllocations(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	cmd, _ := sendView(t, 1024)
	conn := benchConn(t, transport.NewServer(transport.Config{}))
	results := command.Results{{QueueOffset: 5, PhyOffset: 1 << 40}}
	var entryResult any = results
	buf := make([]byte, 0, 4096)
	p := newSendProposal(n.broker)
	allocs := testing.AllocsPerRun(1000, func() {
		p.r = transport.Responder{Conn: conn, OneWay: true}
		if f := p.prepare(cmd); f != nil {
			t.Fatal(f.remark)
		}
		buf = p.AppendCommand(buf[:0], 1)
		result, err := command.ResultOf(entryResult, 0, nil)
		if err != nil {
			t.Fatal(err)
		}
		p.queueOffset = result.QueueOffset
		p.appendIDs(result.PhyOffset)
		buf = p.appendAnswer(buf[:0])
	})
	if allocs > 0 {
		t.Errorf("%v allocations per send", allocs)
	}
}

// BenchmarkSend: one send from the decoded frame to the encoded command, its completion and the encoded answer.
func BenchmarkSend(b *testing.B) {
	for _, size := range []int{100, 1024, 4096} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			n := newNode(b)
			n.putTopic("T", 1)
			cmd, frame := sendView(b, size)
			conn := benchConn(b, transport.NewServer(transport.Config{}))
			var entryResult any = command.Results{{}}
			buf, answer := make([]byte, 0, 2*size+4096), make([]byte, 0, 512)
			p := newSendProposal(n.broker)
			b.SetBytes(int64(len(frame)))
			b.ReportAllocs()
			for b.Loop() {
				p.r = transport.Responder{Conn: conn}
				if f := p.prepare(cmd); f != nil {
					b.Fatal(f.remark)
				}
				buf = p.AppendCommand(buf[:0], 1)
				result, _ := command.ResultOf(entryResult, 0, nil)
				p.queueOffset = result.QueueOffset
				p.appendIDs(result.PhyOffset)
				answer = p.appendAnswer(answer[:0])
			}
		})
	}
}

// BenchmarkHandleSend: the handler with a Raft that completes in batches, as under load, one-way so that
// no socket counts.
func BenchmarkHandleSend(b *testing.B) {
	n := newNode(b)
	n.putTopic("T", 1)
	cmd, frame := sendView(b, 1024)
	conn := benchConn(b, transport.NewServer(transport.Config{}))
	raft := &batchRaft{fakeRaft: n.raft}
	n.broker.cfg.Raft = raft
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	for b.Loop() {
		n.broker.handleSend(transport.Responder{Conn: conn, OneWay: true, Version: 401}, cmd)
		if len(raft.proposals) == 256 {
			raft.complete()
		}
	}
	raft.complete()
}

// pullBench is a queue of messages in a real store and the command of a pull of them all.
func pullBench(tb testing.TB, messages, size int) (*node, *transport.Conn, *remoting.Command) {
	n := newNode(tb, func(o *nodeOptions) { o.store = store.Config{SegmentSize: testSegment} })
	n.putTopic("T", 1)
	must(n.tables.PutGroup(command.GroupPut{Group: command.DefaultGroup("g")}))
	host := netip.MustParseAddrPort("127.0.0.1:10911")
	must(n.store.BeginEntry(1, 1))
	for range messages {
		rec := record.Append(nil, &record.Message{Topic: []byte("T"), BornHost: host, StoreHost: host, StoreTimestamp: 1, Body: make([]byte, size)})
		if _, err := n.store.Append([]byte("T"), 0, rec, 1); err != nil {
			tb.Fatal(err)
		}
	}
	must(n.store.EndEntry())
	n.store.Publish()
	n.waitReadable("T", 0, int64(messages))
	h := remoting.PullHeader{ConsumerGroup: []byte("g"), Topic: []byte("T"), MaxMsgNums: 32, SysFlag: flagCarried, Subscription: []byte("*"), ExpressionType: []byte("TAG")}
	frame := remoting.AppendPullRequest(nil, 1, &h)
	cmd := new(remoting.Command)
	if err := remoting.DecodeFrame(frame[4:], cmd, new([]byte)); err != nil {
		tb.Fatal(err)
	}
	return n, benchConn(tb, n.server), cmd
}

// TestPullAllocations: a pull of 32 messages allocates nothing and copies no body.
func TestPullAllocations(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector makes sync.Pool forget at random")
	}
	n, conn, cmd := pullBench(t, 32, 1024)
	r := transport.Responder{Conn: conn, OneWay: true, Version: 401}
	allocs := testing.AllocsPerRun(1000, func() { n.broker.handlePull(r, cmd) })
	if allocs >= 1 {
		t.Errorf("%v allocations per pull", allocs)
	}
	if s := n.broker.Stats(); s.PulledMessages < 32_000 {
		t.Errorf("%+v", s)
	}
}

// BenchmarkHandlePull: the handler over a real store, 32 messages an answer; one-way, so that no socket counts.
func BenchmarkHandlePull(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprintf("size=%d/batch=32", size), func(b *testing.B) {
			n, conn, cmd := pullBench(b, 32, size)
			r := transport.Responder{Conn: conn, OneWay: true, Version: 401}
			b.SetBytes(32 * int64(size))
			b.ReportAllocs()
			for b.Loop() {
				n.broker.handlePull(r, cmd)
			}
			if n.broker.counters.pulledMessages.Load() == 0 {
				b.Fatal("nothing was pulled")
			}
		})
	}
}

// BenchmarkPark: a pull that finds nothing, is parked and taken out again.
func BenchmarkPark(b *testing.B) {
	n, conn, cmd := pullBench(b, 1, 100)
	var p remoting.PullHeader
	must(p.Decode(cmd))
	p.QueueOffset, p.SysFlag, p.SuspendTimeoutMillis = 1, flagPark, 60_000
	frame := remoting.AppendPullRequest(nil, 1, &p)
	must(remoting.DecodeFrame(frame[4:], cmd, new([]byte)))
	r := transport.Responder{Conn: conn, OneWay: true, Version: 401}
	b.ReportAllocs()
	for b.Loop() {
		n.broker.handlePull(r, cmd)
		if n.broker.polls.parked.Load() != 1 {
			b.Fatal("not parked")
		}
		n.broker.polls.drop(conn.ID())
	}
}
