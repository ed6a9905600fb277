package broker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/fsm/raftnode"
	"raftmq/membership/group"
	"raftmq/transport"
	"raftmq/transport/client"
	"raftmq/transport/remoting"

	"github.com/hashicorp/go-hclog"
)

const (
	testCluster = "PeerCluster"
	testBroker  = "peer-a"
	testSelf    = "n1"
	testOther   = "n2"
	testSegment = 32 << 20
	waitLong    = time.Minute
)

type testWriter struct{ t testing.TB }

func (w testWriter) Write(p []byte) (int, error) {
	w.t.Logf("%s", bytes.TrimSpace(p))
	return len(p), nil
}

func testLogger(t testing.TB) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: testWriter{t}})
}

// eventually waits for a condition.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(waitLong); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never came true: %s", what)
		}
	}
}

// fakeRaft is a cluster of one without a log: it batches proposals into entries, applies them to
// store and tables on one goroutine, and completes them in order, like raftnode and the FSM.
type fakeRaft struct {
	store  *store.Store
	tables *metadata.Tables

	state   atomic.Pointer[raftnode.State]
	watcher atomic.Pointer[func(raftnode.State)]
	refuse  atomic.Pointer[error] // what Propose says
	paused  atomic.Bool           // entries wait
	lose    atomic.Pointer[error] // what entries in flight end with
	stale   atomic.Bool           // whatever State says, somebody else may lead
	confirm atomic.Pointer[func(ctx context.Context) error]

	mu struct {
		sync.Mutex
		buf       []byte
		proposals []raftnode.Proposal
		millis    int64
	}
	wake  chan struct{}
	stop  chan struct{}
	done  chan struct{}
	index uint64
	kinds [64]atomic.Int64 // applied commands by kind
}

func newFakeRaft(s *store.Store, tables *metadata.Tables) *fakeRaft {
	f := &fakeRaft{store: s, tables: tables, wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	f.state.Store(&raftnode.State{Role: raftnode.Follower})
	go f.run()
	return f
}

func (f *fakeRaft) close() {
	close(f.stop)
	<-f.done
}

func (f *fakeRaft) State() raftnode.State { return *f.state.Load() }

func (f *fakeRaft) Certain() bool { return f.State().Ready && !f.stale.Load() }

func (f *fakeRaft) Confirm(ctx context.Context) error {
	if confirm := f.confirm.Load(); confirm != nil {
		return (*confirm)(ctx)
	}
	if !f.Certain() {
		return raftnode.ErrNotLeader
	}
	return nil
}

// become changes the state as raftnode does: first the state, then the watcher.
func (f *fakeRaft) become(s raftnode.State) {
	f.state.Store(&s)
	if w := f.watcher.Load(); w != nil {
		(*w)(s)
	}
}

func (f *fakeRaft) lead(term uint64) {
	f.become(raftnode.State{Role: raftnode.Leader, Term: term, LeaderID: testSelf, Ready: true})
}

func (f *fakeRaft) follow(term uint64, leader string) {
	f.become(raftnode.State{Role: raftnode.Follower, Term: term, LeaderID: leader})
}

func (f *fakeRaft) Propose(p raftnode.Proposal) error {
	if err := f.refuse.Load(); err != nil {
		return *err
	}
	if !f.State().Ready {
		return raftnode.ErrNotLeader
	}
	f.mu.Lock()
	f.mu.millis = max(f.mu.millis, time.Now().UnixMilli())
	if len(f.mu.proposals) == 0 {
		f.mu.buf = command.AppendEntryHead(f.mu.buf[:0])
	}
	f.mu.buf = p.AppendCommand(f.mu.buf, f.mu.millis)
	f.mu.proposals = append(f.mu.proposals, p)
	f.mu.Unlock()
	signal(f.wake)
	return nil
}

type waitProposal struct {
	command []byte
	done    chan struct{}
	result  any
	i       int
	err     error
}

func (w *waitProposal) AppendCommand(dst []byte, _ int64) []byte { return append(dst, w.command...) }
func (w *waitProposal) Done(result any, i int, err error) {
	w.result, w.i, w.err = result, i, err
	close(w.done)
}

func (f *fakeRaft) ProposeWait(ctx context.Context, encoded []byte) (any, int, error) {
	w := &waitProposal{command: encoded, done: make(chan struct{})}
	if err := f.Propose(w); err != nil {
		return nil, 0, err
	}
	select {
	case <-w.done:
		return w.result, w.i, w.err
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
}

func (f *fakeRaft) run() {
	defer close(f.done)
	for {
		select {
		case <-f.wake:
		case <-f.stop:
			return
		}
		for f.paused.Load() {
			select {
			case <-f.stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
		f.mu.Lock()
		entry, proposals := bytes.Clone(f.mu.buf), f.mu.proposals
		f.mu.proposals = nil
		f.mu.Unlock()
		if len(proposals) == 0 {
			continue
		}
		if err := f.lose.Swap(nil); err != nil {
			for i, p := range proposals {
				p.Done(nil, i, *err)
			}
			continue
		}
		results := f.apply(entry)
		for i, p := range proposals {
			p.Done(results, i, nil)
		}
	}
}

func (f *fakeRaft) apply(entry []byte) (results command.Results) {
	f.index++
	must(f.store.BeginEntry(f.index, 1))
	reader, err := command.NewReader(entry)
	must(err)
	for {
		c, ok, err := reader.Next()
		must(err)
		if !ok {
			break
		}
		f.kinds[c.Kind].Add(1)
		if c.Kind == command.KindTransactionEnd {
			results = append(results, f.endTransaction(c))
			continue
		}
		if c.Kind != command.KindAppend {
			results = append(results, command.Result{Err: applyTable(f.tables, f.store, c)})
			continue
		}
		records, n, err := c.Records()
		must(err)
		v := record.View(records)
		at, err := f.store.Append(v.Topic(), v.QueueID(), records, n)
		must(err)
		results = append(results, command.Result{QueueOffset: at.QueueOffset, PhyOffset: at.PhyOffset})
	}
	must(f.store.EndEntry())
	f.store.Publish()
	return results
}

func (f *fakeRaft) endTransaction(c command.Command) (result command.Result) {
	e, err := c.TransactionEnd()
	must(err)
	if err := f.tables.CheckHalf(e.Half); err != nil {
		return command.Result{Err: err}
	}
	f.tables.EndHalf(e.Half)
	for rest, i := e.Records, 0; i < e.Count; i++ {
		v := record.View(rest[:record.View(rest).Size()])
		at, err := f.store.Append(v.Topic(), v.QueueID(), v, 1)
		must(err)
		if i == 0 {
			result = command.Result{QueueOffset: at.QueueOffset, PhyOffset: at.PhyOffset}
		}
		rest = rest[v.Size():]
	}
	return result
}

func applyTable(t *metadata.Tables, s *store.Store, c command.Command) error {
	switch c.Kind {
	case command.KindSettings:
		return decoded(c, t.PutSettings)
	case command.KindTopicPut:
		return decoded(c, t.PutTopic)
	case command.KindTopicDelete:
		return decoded(c, func(d command.TopicDelete) error {
			next := map[int32]int64{}
			for _, q := range s.Position().QueueOffsets {
				if q.Topic == d.Topic {
					next[q.QueueID] = q.Next
				}
			}
			return t.DeleteTopic(d, next)
		})
	case command.KindGroupPut:
		return decoded(c, t.PutGroup)
	case command.KindGroupDelete:
		return decoded(c, t.DeleteGroup)
	case command.KindKVPut:
		return decoded(c, t.PutKV)
	case command.KindKVDelete:
		return decoded(c, t.DeleteKV)
	case command.KindOffsetsCommit:
		return decoded(c, t.CommitOffsets)
	case command.KindQueueLock:
		return decoded(c, t.LockQueues)
	case command.KindQueueUnlock:
		return decoded(c, t.UnlockQueues)
	case command.KindQueueLocksAdopt:
		return decoded(c, t.AdoptQueueLocks)
	}
	panic(fmt.Sprintf("kind %d is not for this broker", c.Kind))
}

func decoded[T any](c command.Command, apply func(T) error) error {
	var v T
	must(json.Unmarshal(c.Payload, &v))
	return apply(v)
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// node is a broker over real store, tables, registry and TCP server, with a fake Raft.
type node struct {
	t      testing.TB
	store  *store.Store
	tables *metadata.Tables
	groups *group.Registry
	raft   *fakeRaft
	broker *Broker
	server *transport.Server
	addr   string
	clock  atomic.Int64 // added to the time
}

type nodeOptions struct {
	settings command.Settings
	store    store.Config
	config   func(*Config)
	follower bool // starts without a leader
}

func testSettings() command.Settings {
	return command.Settings{ClusterID: "c", ClusterName: testCluster, BrokerName: testBroker, SegmentSize: testSegment,
		AutoCreateTopic: true, AutoCreateGroup: true, DefaultTopicQueues: 8}
}

// newNode starts a node that leads in term 1, unless told otherwise.
func newNode(t testing.TB, change ...func(*nodeOptions)) *node {
	t.Helper()
	o := nodeOptions{settings: testSettings(), store: store.Config{SegmentSize: testSegment}}
	for _, f := range change {
		f(&o)
	}
	o.store.Dir, o.store.Logger = t.TempDir(), testLogger(t)
	o.store.OnFatal = func(err error) { t.Errorf("store: %v", err) }
	n := &node{t: t, tables: metadata.New()}
	var err error
	if n.store, err = store.Open(o.store); err != nil {
		t.Fatal(err)
	}
	if err := n.store.Restore(store.Position{}); err != nil {
		t.Fatal(err)
	}
	if o.settings.ClusterID != "" {
		must(n.tables.PutSettings(o.settings))
	}
	now := func() time.Time { return time.Now().Add(time.Duration(n.clock.Load())) }
	n.groups = group.NewRegistry(now)
	n.raft = newFakeRaft(n.store, n.tables)
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.addr = listener.Addr().String()
	cfg := Config{
		Raft: n.raft, Store: n.store, Tables: n.tables, Groups: n.groups, ClusterName: testCluster, BrokerName: testBroker,
		StoreHost: netip.MustParseAddrPort(n.addr), OffsetGather: 5 * time.Millisecond, Logger: testLogger(t), Now: now,
		LeaderAddr: func() (string, string) {
			switch n.raft.State().LeaderID {
			case testSelf:
				return testSelf, n.addr
			case testOther:
				return testOther, "10.0.0.2:10911"
			}
			return "", ""
		},
		BrokerIDOf: func(id string) int64 {
			if id == testOther {
				return 2
			}
			return 1
		},
	}
	if o.config != nil {
		o.config(&cfg)
	}
	if n.broker, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	watcher := n.broker.StateChanged
	n.raft.watcher.Store(&watcher)
	n.server = transport.NewServer(transport.Config{Logger: testLogger(t)})
	n.broker.Register(n.server)
	n.server.Serve(listener)
	if !o.follower {
		n.raft.lead(1)
	}
	t.Cleanup(n.close)
	return n
}

// followerOf is a follower that forwards to the leader.
func followerOf(t *testing.T, leader *node) *node {
	t.Helper()
	to := leader.dial().Client
	return newNode(t, func(o *nodeOptions) {
		o.follower = true
		o.config = func(c *Config) {
			c.Forward = func(ctx context.Context, cmd *remoting.Command) (*remoting.Command, error) {
				return to.Invoke(ctx, cmd)
			}
		}
	})
}

func (n *node) close() {
	n.broker.Close()
	n.broker.Close() // harmless
	ctx, cancel := context.WithTimeout(context.Background(), waitLong)
	defer cancel()
	if err := n.server.Shutdown(ctx); err != nil {
		n.t.Errorf("shutdown: %v", err)
	}
	if s := n.server.Stats(); s.DoubleAnswers > 0 || s.Panics > 0 || s.FailedAnswers > 0 {
		n.t.Errorf("server stats %+v", s)
	}
	n.raft.close()
	if err := n.store.Close(); err != nil {
		n.t.Errorf("store: %v", err)
	}
	if s := n.broker.Stats(); s.ParkedPulls != 0 || s.WaitingWrites != 0 {
		n.t.Errorf("left over after close: %+v", s)
	}
}

// putTopic creates a topic at once.
func (n *node) putTopic(name string, queues int) {
	must(n.tables.PutTopic(command.TopicPut{Topic: rwTopic(name, queues)}))
}

// dial opens a client connection.
func (n *node) dial() *conn {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLong)
	defer cancel()
	c, err := client.Dial(ctx, n.addr)
	if err != nil {
		n.t.Fatal(err)
	}
	k := &conn{Client: c, t: n.t}
	c.OnRequest(func(cmd *remoting.Command) *remoting.Command {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.requests = append(k.requests, cmd.Clone())
		return nil
	})
	n.t.Cleanup(func() {
		_ = c.Close()
		c.Wait()
	})
	return k
}

// conn is a client connection in a test.
type conn struct {
	*client.Client
	t        testing.TB
	mu       sync.Mutex
	requests []*remoting.Command // of the server
}

func (c *conn) pushed(code int32) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.requests {
		if r.Code == code {
			n++
		}
	}
	return n
}

// call sends a request with ext fields, name and value in turn, and waits for the answer.
func (c *conn) call(code int32, body []byte, fields ...string) *remoting.Command {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLong)
	defer cancel()
	resp, err := c.Invoke(ctx, request(code, body, fields...))
	if err != nil {
		c.t.Fatalf("request %d: %v", code, err)
	}
	return resp
}

func request(code int32, body []byte, fields ...string) *remoting.Command {
	cmd := &remoting.Command{Code: code, Body: body, Language: remoting.LanguageGo, Version: remoting.ClientVersion}
	for i := 0; i+1 < len(fields); i += 2 {
		cmd.Set(fields[i], fields[i+1])
	}
	return cmd
}

// want fails the test unless the answer has the code and, if given, the remark.
func want(t testing.TB, resp *remoting.Command, code int32, remark ...string) *remoting.Command {
	t.Helper()
	if resp.Code != code || len(remark) > 0 && resp.Remark != remark[0] {
		t.Fatalf("answer %d %q, want %d %q", resp.Code, resp.Remark, code, remark)
	}
	return resp
}

// sendFields are a send's ext fields in code 10's form.
func sendFields(topic string, queue int, props string, more ...string) []string {
	f := []string{"producerGroup", "pg", "topic", topic, "defaultTopic", metadata.AutoCreateTopic, "defaultTopicQueueNums", "4",
		"queueId", strconv.Itoa(queue), "sysFlag", "0", "bornTimestamp", "1700000000000", "flag", "0", "properties", props,
		"reconsumeTimes", "0", "unitMode", "false", "batch", "false"}
	return append(f, more...)
}

func (c *conn) send(topic string, queue int, props string, body []byte, more ...string) *remoting.Command {
	c.t.Helper()
	return c.call(remoting.RequestSendMessage, body, sendFields(topic, queue, props, more...)...)
}

// pullFields are a pull's ext fields, expression carried.
func pullFields(group, topic string, queue int, offset int64, sysFlag int32, suspend time.Duration, more ...string) []string {
	f := []string{"consumerGroup", group, "topic", topic, "queueId", strconv.Itoa(queue), "queueOffset", strconv.FormatInt(offset, 10),
		"maxMsgNums", "32", "sysFlag", strconv.Itoa(int(sysFlag)), "commitOffset", "0", "suspendTimeoutMillis", strconv.FormatInt(suspend.Milliseconds(), 10),
		"subscription", "*", "subVersion", "0", "expressionType", "TAG"}
	return append(f, more...)
}

const (
	flagCarried = remoting.PullFlagSubscription
	flagPark    = remoting.PullFlagSubscription | remoting.PullFlagSuspend
)

// records decodes a pull answer's body.
func records(t testing.TB, body []byte) (out []record.Message) {
	t.Helper()
	for len(body) > 0 {
		var m record.Message
		n, err := record.Decode(body, &m)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, m)
		body = body[n:]
	}
	return out
}

// waitReadable waits until a queue's messages can be pulled.
func (n *node) waitReadable(topic string, queue int32, next int64) {
	n.t.Helper()
	eventually(n.t, fmt.Sprintf("%s/%d readable to %d", topic, queue, next), func() bool { return n.store.ReadableOffset(topic, queue) >= next })
}

func errPointer(err error) *error { return &err }

var errTest = errors.New("test error")
