package workload

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"testing"
	"time"

	"raftmq/commitlog/record"
	"raftmq/transport"
	"raftmq/transport/remoting"

	"github.com/hashicorp/go-hclog"
)

// fakeNode answers route, send and pull from one queue list in memory. Its misdeeds are what the
// workload must notice.
type fakeNode struct {
	addr string

	mu     sync.Mutex
	queues [4][][]byte // encoded records
	// refuse answers sends with this code and does not store.
	refuse []int32
	// swallow stores the send and never answers.
	swallow int
	// behind answers so many pulls with "ask again".
	behind int
	// expired messages of each queue are gone. A leader says so, another node sends the reader to it.
	expired int
	leads   bool
	corrupt func(rec []byte)
}

func startFakeNode(t *testing.T) *fakeNode {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fakeNode{addr: l.Addr().String()}
	s := transport.NewServer(transport.Config{Logger: hclog.NewNullLogger()})
	s.Handle(remoting.RequestGetRouteInfoByTopic, f.route)
	s.Handle(remoting.RequestSendMessageV2, f.send)
	s.Handle(remoting.RequestPullMessage, f.pull)
	s.Handle(remoting.RequestUpdateConsumerOffset, func(r transport.Responder, _ *remoting.Command) { r.Reply(&remoting.Command{}) })
	s.Serve(l)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = s.Shutdown(ctx) // sends that were swallowed are owed for ever
	})
	return f
}

func (f *fakeNode) route(r transport.Responder, _ *remoting.Command) {
	body, err := json.Marshal(map[string]any{
		"brokerDatas": []any{map[string]any{"brokerName": "b", "cluster": "c", "brokerAddrs": map[string]string{"0": f.addr}}},
		"queueDatas":  []any{map[string]any{"brokerName": "b", "perm": 6, "readQueueNums": 4, "writeQueueNums": 4}},
	})
	if err != nil {
		panic(err)
	}
	r.Reply(&remoting.Command{Body: body})
}

func (f *fakeNode) send(r transport.Responder, cmd *remoting.Command) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.refuse) > 0 {
		code := f.refuse[0]
		f.refuse = f.refuse[1:]
		r.ReplyError(code, "test")
		return
	}
	q, err := strconv.Atoi(cmd.GetString("e"))
	if err != nil {
		panic(err)
	}
	host := netip.MustParseAddrPort("127.0.0.1:1")
	f.queues[q] = append(f.queues[q], record.Append(nil, &record.Message{
		Topic: []byte(cmd.GetString("b")), QueueID: int32(q), QueueOffset: int64(len(f.queues[q])),
		BornHost: host, StoreHost: host, Body: cmd.Body, Properties: []byte(cmd.GetString("i")),
	}))
	if f.swallow > 0 {
		f.swallow--
		return
	}
	resp := &remoting.Command{}
	resp.Set("queueId", strconv.Itoa(q))
	resp.Set("queueOffset", strconv.Itoa(len(f.queues[q])-1))
	r.Reply(resp)
}

func (f *fakeNode) pull(r transport.Responder, cmd *remoting.Command) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q, qerr := strconv.Atoi(cmd.GetString("queueId"))
	offset, oerr := strconv.Atoi(cmd.GetString("queueOffset"))
	if qerr != nil || oerr != nil {
		panic(fmt.Sprint(qerr, oerr))
	}
	records := f.queues[q]
	resp := &remoting.Command{Code: remoting.ResponsePullNotFound}
	next := offset
	if f.behind > 0 {
		f.behind--
		resp.Code, records = remoting.ResponsePullRetryImmediately, nil
	}
	if offset < f.expired {
		resp.Code, records = remoting.ResponsePullRetryImmediately, nil
		if f.leads {
			resp.Code, next = remoting.ResponsePullOffsetMoved, f.expired
		}
	}
	for ; next < len(records) && next < offset+3; next++ {
		rec := append([]byte(nil), records[next]...)
		if f.corrupt != nil {
			f.corrupt(rec)
		}
		resp.Body = append(resp.Body, rec...)
		resp.Code = remoting.ResponseSuccess
	}
	resp.Set("nextBeginOffset", strconv.Itoa(next))
	resp.Set("minOffset", strconv.Itoa(f.expired))
	resp.Set("maxOffset", strconv.Itoa(len(f.queues[q])))
	r.Reply(resp)
}
