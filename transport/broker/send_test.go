package broker

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
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

func sendResponse(t testing.TB, resp *remoting.Command) remoting.SendResponse {
	t.Helper()
	var s remoting.SendResponse
	if err := s.Decode(resp); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSendStoresTheMessage(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 4)
	c := n.dial()
	resp := sendResponse(t, want(t, c.send("T", 2, "KEYS\x01k\x02WAIT\x01true\x02TAGS\x01a\x02", []byte("hello"), "flag", "77"), 0, ""))
	if resp.QueueID != 2 || resp.QueueOffset != 0 || string(resp.Region) != "DefaultRegion" || !resp.TraceOn {
		t.Errorf("answer %+v", resp)
	}
	host, phy, err := record.ParseMessageID(string(resp.MsgID))
	if err != nil || host.String() != n.addr || phy != 0 {
		t.Errorf("message id %s: %v %v %v", resp.MsgID, host, phy, err)
	}
	n.waitReadable("T", 2, 1)
	pulled := want(t, c.call(remoting.RequestPullMessage, nil, pullFields("g", "T", 2, 0, flagCarried, 0)...), 0, "FOUND")
	m := records(t, pulled.Body)
	if len(m) != 1 || string(m[0].Body) != "hello" || m[0].Flag != 77 || m[0].QueueID != 2 || m[0].BornTimestamp != 1700000000000 {
		t.Fatalf("pulled %+v", m)
	}
	// WAIT is dropped, CLUSTER added, as 4.9.4 stores it.
	if got := string(m[0].Properties); got != "KEYS\x01k\x02TAGS\x01a\x02CLUSTER\x01"+testCluster {
		t.Errorf("properties %q", got)
	}
	if m[0].BornHost.Addr().String() != "127.0.0.1" || m[0].StoreHost.String() != n.addr || time.Since(time.UnixMilli(m[0].StoreTimestamp)) > time.Minute {
		t.Errorf("stamps %+v", m[0])
	}
}

// TestSendMaxOffset is F94: an acknowledged message is below the max offset at once.
func TestSendMaxOffset(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	rounds := int64(2000)
	for i := range rounds {
		s := sendResponse(t, want(t, c.send("T", 0, "", []byte("x")), 0))
		var o remoting.OffsetResponse
		if err := o.Decode(want(t, c.call(remoting.RequestGetMaxOffset, nil, "topic", "T", "queueId", "0"), 0)); err != nil || o.Offset < s.QueueOffset+1 {
			t.Fatalf("round %d: max offset %d after acknowledgement of %d (%v)", i, o.Offset, s.QueueOffset, err)
		}
	}
}

// TestSendOrder is F95: pipelined sends to one queue are stored in the order sent, also across a
// time without a leader and for a topic that the first of them creates. It is F93 too: each gets one answer.
func TestSendOrder(t *testing.T) {
	n := newNode(t, func(o *nodeOptions) {
		o.config = func(c *Config) { c.HoldWrites, c.MaxHeldWrites = 5*time.Second, 20_000 }
	})
	const conns, each = 4, 3000
	var wg sync.WaitGroup
	var mu sync.Mutex
	answered := map[string]int{}
	offsets := map[string]int64{}
	for c := range conns {
		k := n.dial()
		wg.Add(each)
		go func() {
			for i := range each {
				body := fmt.Sprintf("%d-%06d", c, i)
				k.Go(request(remoting.RequestSendMessage, []byte(body), sendFields("Order", 0, "")...), func(resp *remoting.Command, err error) {
					defer wg.Done()
					if err != nil || resp.Code != 0 {
						t.Errorf("%s: %v %v", body, resp, err)
						return
					}
					s := sendResponse(t, resp)
					mu.Lock()
					answered[body]++
					offsets[body] = s.QueueOffset
					mu.Unlock()
				})
			}
		}()
	}
	for term := uint64(2); term < 6; term++ {
		time.Sleep(3 * time.Millisecond)
		n.raft.become(raftnode.State{Role: raftnode.Candidate, Term: term})
		time.Sleep(3 * time.Millisecond)
		n.raft.lead(term)
	}
	wg.Wait()
	if len(answered) != conns*each {
		t.Fatalf("%d of %d answered", len(answered), conns*each)
	}
	for c := range conns {
		last := int64(-1)
		for i := range each {
			body := fmt.Sprintf("%d-%06d", c, i)
			if answered[body] != 1 || offsets[body] <= last {
				t.Fatalf("%s: %d answers, offset %d after %d", body, answered[body], offsets[body], last)
			}
			last = offsets[body]
		}
	}
	if n.raft.kinds[command.KindTopicPut].Load() < 1 || n.store.MaxOffset("Order", 0) != conns*each {
		t.Errorf("topic puts %d, max offset %d", n.raft.kinds[command.KindTopicPut].Load(), n.store.MaxOffset("Order", 0))
	}
}

// TestNames is F69: one limit, refused at once.
func TestNames(t *testing.T) {
	n := newNode(t)
	c := n.dial()
	const (
		illegal = "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"
		long    = "The specified topic is longer than topic max length."
		blank   = "The specified topic is blank."
	)
	for _, tc := range []struct {
		topic, remark string
	}{
		{"T", ""}, {strings.Repeat("T", 127), ""}, {"a%b", ""}, {"a|b-c_D9", ""},
		{strings.Repeat("T", 128), long}, {strings.Repeat("T", 255), long}, {strings.Repeat("T", 256), long},
		{"a.b", illegal}, {"a/b", illegal}, {"..", illegal}, {"../x", illegal}, {"a b", illegal}, {"日本", illegal}, {"a\x00b", illegal},
		{"", blank}, {"  ", blank}, {"\t", blank},
	} {
		code := int32(0)
		if tc.remark != "" {
			code = 1
		}
		want(t, c.send(tc.topic, 0, "", []byte("x")), code, tc.remark)
		created := c.call(remoting.RequestUpdateAndCreateTopic, nil, "topic", tc.topic, "readQueueNums", "1", "writeQueueNums", "1", "perm", "6", "topicFilterType", "SINGLE_TAG")
		if created.Code != code || code != 0 && created.Remark != tc.remark {
			t.Errorf("create %q: %d %q", tc.topic, created.Code, created.Remark)
		}
	}
}

func batchBody(bodies ...string) (out []byte) {
	for _, b := range bodies {
		out = record.AppendBatchEntry(out, record.BatchEntry{Body: []byte(b), Properties: []byte("KEYS\x01" + b)})
	}
	return out
}

// TestF71Sizes is F71: exact limits, the right text, nothing else harmed.
func TestF71Sizes(t *testing.T) {
	const limit = 100_000
	n := newNode(t, func(o *nodeOptions) { o.config = func(c *Config) { c.MaxMessageSize = limit } })
	n.putTopic("T", 1)
	c := n.dial()
	text := fmt.Sprintf("the message is illegal, maybe msg body or properties length not matched. msg body length limit %dB, msg properties length limit 32KB.", limit)
	cluster := len("\x02CLUSTER\x01" + testCluster)
	prop := func(size int) string { return "a\x01" + strings.Repeat("p", size-2-cluster) }
	for _, tc := range []struct {
		name  string
		body  int
		props string
		ok    bool
	}{
		{"empty", 0, "", true}, {"max-1", limit - 1, "", true}, {"max", limit, "", true}, {"max+1", limit + 1, "", false},
		{"properties 32766", 1, prop(32766), true}, {"properties 32767", 1, prop(32767), true}, {"properties 32768", 1, prop(32768), false},
		{"properties 40000", 1, prop(40000), false}, {"both at max", limit, prop(32767), true},
	} {
		code, remark := int32(0), ""
		if !tc.ok {
			code, remark = remoting.ResponseMessageIllegal, text
		}
		if resp := c.send("T", 0, tc.props, bytes.Repeat([]byte("b"), tc.body)); resp.Code != code || resp.Remark != remark {
			t.Errorf("%s: %d %q", tc.name, resp.Code, resp.Remark)
		}
	}
	for _, tc := range []struct {
		size int
		code int32
	}{{limit, 0}, {limit + 1, remoting.ResponseMessageIllegal}} {
		one := bytes.Repeat([]byte("b"), tc.size/2)
		body := record.AppendBatchEntry(nil, record.BatchEntry{Body: one})
		fixed := len(body) - len(one)
		body = record.AppendBatchEntry(body, record.BatchEntry{Body: bytes.Repeat([]byte("c"), tc.size-len(body)-fixed)})
		resp := c.call(remoting.RequestSendBatchMessage, body, "a", "pg", "b", "T", "c", "TBW102", "d", "4", "e", "0", "f", "0", "g", "1", "h", "0", "j", "0", "k", "false", "m", "true")
		if len(body) != tc.size || resp.Code != tc.code {
			t.Errorf("batch of %d: %d %q", len(body), resp.Code, resp.Remark)
		}
	}
	before := n.store.MaxOffset("T", 0)
	want(t, c.send("T", 0, "", []byte("still works")), 0)
	if got := n.store.MaxOffset("T", 0); got != before+1 {
		t.Errorf("max offset %d, was %d", got, before)
	}
}

// TestTinyBatch: a batch of 100,000 tiny messages is stored, as RocketMQ 4.9.4 does, though it is four times as large then; what becomes even
// larger is refused with a text that says so.
func TestTinyBatch(t *testing.T) {
	n := newNode(t, func(o *nodeOptions) { o.settings.SegmentSize, o.store.SegmentSize = 64<<20, 64<<20 })
	n.putTopic("T", 1)
	c := n.dial()
	send := func(messages int, entry func(i int) record.BatchEntry) *remoting.Command {
		var body []byte
		for i := range messages {
			body = record.AppendBatchEntry(body, entry(i))
		}
		return c.call(remoting.RequestSendBatchMessage, body, "a", "pg", "b", "T", "c", "TBW102", "d", "4", "e", "0", "f", "0", "g", "1", "h", "0", "j", "0", "k", "false", "m", "true")
	}
	const many = 100_000
	s := sendResponse(t, want(t, send(many, func(i int) record.BatchEntry {
		return record.BatchEntry{Body: strconv.AppendInt(nil, int64(i), 10), Properties: []byte("k\x01v")}
	}), 0))
	if n := bytes.Count(s.MsgID, []byte(",")) + 1; n != many || s.QueueOffset != 0 {
		t.Errorf("%d message ids, offset %d", n, s.QueueOffset)
	}
	if got := n.store.MaxOffset("T", 0); got != many {
		t.Errorf("max offset %d", got)
	}
	n.waitReadable("T", 0, many)
	if m := records(t, c.pull("g", "T", 0, many-1, flagCarried, 0).Body); len(m) != 1 || string(m[0].Body) != strconv.Itoa(many-1) {
		t.Errorf("the last: %v", m)
	}
	if r := send(180_000, func(int) record.BatchEntry { return record.BatchEntry{} }); r.Code != remoting.ResponseMessageIllegal || !strings.Contains(r.Remark, "send fewer at a time") {
		t.Errorf("%d %q", r.Code, r.Remark)
	}
}

// TestSegmentLimit: what cannot fit a commit log segment must never be proposed, as no node could apply it.
func TestSegmentLimit(t *testing.T) {
	n := newNode(t, func(o *nodeOptions) {
		o.store.SegmentSize, o.settings.SegmentSize = 64<<10, 64<<10
	})
	n.putTopic("T", 1)
	c := n.dial()
	fixed := 91 + len("T") + len("CLUSTER\x01"+testCluster) + record.BlankMinSize
	want(t, c.send("T", 0, "", bytes.Repeat([]byte("b"), 64<<10-fixed)), 0)
	if resp := want(t, c.send("T", 0, "", bytes.Repeat([]byte("b"), 64<<10-fixed+1)), remoting.ResponseMessageIllegal); !strings.Contains(resp.Remark, "commit log segment 65536") {
		t.Errorf("remark %q", resp.Remark)
	}
}

func TestBatch(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 2)
	c := n.dial()
	send := func(props string, body []byte) *remoting.Command {
		return c.call(remoting.RequestSendBatchMessage, body, "a", "pg", "b", "T", "c", "TBW102", "d", "4", "e", "1", "f", "0", "g", "1", "h", "0", "i", props, "j", "0", "k", "false", "m", "true")
	}
	s := sendResponse(t, want(t, send("WAIT\x01true", batchBody("one", "two", "three")), 0))
	ids := strings.Split(string(s.MsgID), ",")
	if len(ids) != 3 || s.QueueOffset != 0 || s.QueueID != 1 {
		t.Fatalf("answer %+v", s)
	}
	n.waitReadable("T", 1, 3)
	ms := records(t, want(t, c.call(remoting.RequestPullMessage, nil, pullFields("g", "T", 1, 0, flagCarried, 0)...), 0).Body)
	for i, body := range []string{"one", "two", "three"} {
		_, phy, err := record.ParseMessageID(ids[i])
		if err != nil || ms[i].PhyOffset != phy || string(ms[i].Body) != body || ms[i].QueueOffset != int64(i) {
			t.Errorf("message %d: %+v, id %s (%v)", i, ms[i], ids[i], err)
		}
		// Each entry keeps its own properties and gets those of the request.
		if got := string(ms[i].Properties); got != "KEYS\x01"+body+"\x02WAIT\x01true\x02CLUSTER\x01"+testCluster {
			t.Errorf("properties %q", got)
		}
		view := want(t, c.call(remoting.RequestViewMessageByID, nil, "offset", fmt.Sprint(phy)), 0)
		if v := records(t, view.Body); len(v) != 1 || string(v[0].Body) != body {
			t.Errorf("view of %s: %+v", ids[i], v)
		}
	}
	// One command, so that nothing comes between.
	if got := n.raft.kinds[command.KindAppend].Load(); got != 1 {
		t.Errorf("%d append commands", got)
	}
	for name, body := range map[string][]byte{"empty": nil, "cut": batchBody("x")[:20], "length lies": binary.BigEndian.AppendUint32(nil, 1<<30)} {
		if resp := send("", body); resp.Code == 0 {
			t.Errorf("%s batch was accepted", name)
		}
	}
	want(t, send("DELAY\x012", batchBody("x")), remoting.ResponseMessageIllegal)
	if resp := send("a\x01"+strings.Repeat("p", 32760), batchBody("x")); resp.Code != 1 {
		t.Errorf("merged properties too long: %d %q", resp.Code, resp.Remark)
	}
	// Entries that become far larger than what was sent are refused before they are built.
	many := bytes.Repeat(record.AppendBatchEntry(nil, record.BatchEntry{Body: []byte("x")}), 100_000)
	if resp := send("a\x01"+strings.Repeat("p", 1000), many); resp.Code != remoting.ResponseMessageIllegal {
		t.Errorf("blow-up: %d %q", resp.Code, resp.Remark)
	}
}

func TestRetryAndDeadLetter(t *testing.T) {
	n := newNode(t)
	must(n.tables.PutGroup(command.GroupPut{Group: command.GroupConfig{GroupName: "g", ConsumeEnable: true, RetryQueueNums: 1, RetryMaxTimes: 3}}))
	c := n.dial()
	send := func(reconsume string, more ...string) string {
		f := append([]string{"reconsumeTimes", reconsume}, more...)
		before := map[string]int64{}
		for _, topic := range []string{"%RETRY%g", "%DLQ%g"} {
			before[topic] = n.store.MaxOffset(topic, 0)
		}
		want(t, c.send("%RETRY%g", 0, "", []byte("x"), f...), 0)
		for topic, was := range before {
			if n.store.MaxOffset(topic, 0) == was+1 {
				return topic
			}
		}
		return "nowhere"
	}
	for _, tc := range []struct {
		reconsume, limit, topic string
	}{
		{"2", "", "%RETRY%g"}, {"3", "", "%DLQ%g"}, {"3", "5", "%RETRY%g"}, {"5", "5", "%DLQ%g"}, {"0", "0", "%DLQ%g"},
	} {
		var more []string
		if tc.limit != "" {
			more = []string{"maxReconsumeTimes", tc.limit}
		}
		if got := send(tc.reconsume, more...); got != tc.topic {
			t.Errorf("reconsumed %s, limit %q: stored in %s, want %s", tc.reconsume, tc.limit, got, tc.topic)
		}
	}
	if d, ok := n.tables.Topic("%DLQ%g"); !ok || d.WriteQueueNums != 1 || d.Perm != 6 {
		t.Errorf("dead letter topic %+v", d)
	}
	// A dead letter's DELAY does not hold it back.
	if got := send("3", "properties", "DELAY\x013"); got != "%DLQ%g" {
		t.Errorf("a delayed dead letter went %s", got)
	}
}

func TestTransactionTypes(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	for name, f := range map[string]func() *remoting.Command{
		"prepared": func() *remoting.Command { return c.send("T", 0, "", []byte("x"), "sysFlag", "4") },
		"rollback": func() *remoting.Command { return c.send("T", 0, "", []byte("x"), "sysFlag", "12") },
	} {
		if resp := f(); resp.Code != remoting.ResponseMessageIllegal || resp.Remark == "" {
			t.Errorf("%s: %d %q", name, resp.Code, resp.Remark)
		}
	}
	if n.store.MaxOffset("T", 0) != 0 {
		t.Error("something was stored")
	}
}

func TestGate(t *testing.T) {
	n := newNode(t, func(o *nodeOptions) {
		o.config = func(c *Config) { c.HoldWrites = 150 * time.Millisecond; c.MaxHeldWrites = 3 }
		o.follower = true
	})
	n.putTopic("T", 1)
	c := n.dial()
	// Another node leads: refused at once, with its name and address.
	n.raft.follow(2, testOther)
	resp := want(t, c.send("T", 0, "", []byte("x")), remoting.ResponseServiceNotAvailable)
	if !strings.HasPrefix(resp.Remark, "service not available now.") || !strings.Contains(resp.Remark, testOther) || !strings.Contains(resp.Remark, "10.0.0.2:10911") {
		t.Errorf("remark %q", resp.Remark)
	}
	if resp.GetString("MSG_REGION") == "" {
		t.Error("no ext in the refusal")
	}
	// The gate comes before all checks.
	want(t, c.send("bad topic!", 0, "", nil), remoting.ResponseServiceNotAvailable)

	// No leader known: held, then refused.
	n.raft.follow(3, "")
	started := time.Now()
	want(t, c.send("T", 0, "", []byte("x")), remoting.ResponseServiceNotAvailable)
	if d := time.Since(started); d < 100*time.Millisecond || d > 2*time.Second {
		t.Errorf("held for %v", d)
	}
	// Held, then another node leads.
	answer := make(chan *remoting.Command, 8)
	hold := func() {
		before := n.broker.Stats().HeldWrites
		go func() { answer <- c.send("T", 0, "", []byte("x")) }()
		eventually(t, "a write is held", func() bool { return n.broker.Stats().HeldWrites > before })
	}
	hold()
	n.raft.follow(3, testOther)
	want(t, <-answer, remoting.ResponseServiceNotAvailable)
	// Held, then this node leads; not before its barrier.
	n.raft.become(raftnode.State{Role: raftnode.Candidate, Term: 4})
	hold()
	n.raft.become(raftnode.State{Role: raftnode.Leader, Term: 4, LeaderID: testSelf})
	select {
	case r := <-answer:
		t.Fatalf("answered before the barrier: %d %q", r.Code, r.Remark)
	case <-time.After(20 * time.Millisecond):
	}
	n.raft.lead(4)
	want(t, <-answer, 0)
	// The number of held writes is bounded.
	n.raft.follow(5, "")
	for range 3 {
		hold()
	}
	want(t, c.send("T", 0, "", []byte("x")), remoting.ResponseServiceNotAvailable)
	n.raft.lead(6)
	for range 3 {
		want(t, <-answer, 0)
	}
	if got := n.store.MaxOffset("T", 0); got != 4 {
		t.Errorf("%d messages stored, want 4", got)
	}
}

func TestSendErrors(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	for _, tc := range []struct {
		err    error
		code   int32
		remark string
	}{
		{raftnode.ErrBusy, remoting.ResponseSystemBusy, "[REJECTREQUEST]system busy, start flow control for a while"},
		{raftnode.ErrTooLarge, remoting.ResponseMessageIllegal, ""},
		{raftnode.ErrClosed, remoting.ResponseServiceNotAvailable, ""},
		{errTest, remoting.ResponseServiceNotAvailable, ""},
	} {
		n.raft.refuse.Store(errPointer(fmt.Errorf("wrapped: %w", tc.err)))
		resp := want(t, c.send("T", 0, "", []byte("x")), tc.code)
		if tc.remark != "" && resp.Remark != tc.remark {
			t.Errorf("%v: remark %q", tc.err, resp.Remark)
		}
		n.raft.refuse.Store(nil)
	}
	// Lost in flight: the outcome is unknown, 14 whichever it is.
	for _, err := range []error{raftnode.ErrLeadershipLost, raftnode.ErrNotLeader} {
		n.raft.lose.Store(errPointer(err))
		want(t, c.send("T", 0, "", []byte("x")), remoting.ResponseServiceNotAvailable)
	}
	want(t, c.send("T", 0, "", []byte("x")), 0)
}

func TestOneWay(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	if err := c.SendOneWay(request(remoting.RequestSendMessage, []byte("x"), sendFields("T", 0, "")...)); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the message is stored", func() bool { return n.store.MaxOffset("T", 0) == 1 })
}

// TestSyncFlush: under SYNC_FLUSH the answer comes after the local flush.
func TestSyncFlush(t *testing.T) {
	n := newNode(t, func(o *nodeOptions) { o.store.FlushMode = store.SyncFlush })
	n.putTopic("T", 1)
	c := n.dial()
	s := sendResponse(t, want(t, c.send("T", 0, "", []byte("x")), 0))
	_, phy, _ := record.ParseMessageID(string(s.MsgID))
	if flushed := n.store.Stats().FlushedTo; flushed <= phy {
		t.Errorf("answered with the log flushed to %d, message at %d", flushed, phy)
	}
	want(t, c.send("T", 0, "WAIT\x01false", []byte("x")), 0)
}

// TestLateFlush: a flush that is not confirmed in time is code 10 with message id and offset, as the message is stored.
func TestLateFlush(t *testing.T) {
	n := newNode(t)
	n.server.HandleInline(9999, func(r transport.Responder, _ *remoting.Command) {
		p := newSendProposal(n.broker)
		p.r, p.queueID, p.queueOffset = r, 3, 7
		p.sizes, p.count, p.began = []int32{100}, n.broker.counting.topic([]byte("T"), 0), time.Now()
		if end := p.appendIDs(500); end != 600 {
			t.Errorf("end %d", end)
		}
		p.onFlushed(store.ErrFlushTimeout)
	})
	s := sendResponse(t, want(t, n.dial().call(9999, nil), remoting.ResponseFlushDiskTimeout, ""))
	_, phy, err := record.ParseMessageID(string(s.MsgID))
	if err != nil || phy != 500 || s.QueueID != 3 || s.QueueOffset != 7 {
		t.Errorf("answer %+v, %v", s, err)
	}
}

func TestAutoCreate(t *testing.T) {
	n := newNode(t)
	c := n.dial()
	want(t, c.send("New", 3, "", []byte("x"), "defaultTopicQueueNums", "4"), 0)
	if got, _ := n.tables.Topic("New"); got.WriteQueueNums != 4 || got.ReadQueueNums != 4 || got.Perm != 6 {
		t.Errorf("created %+v", got)
	}
	want(t, c.send("New2", 7, "", []byte("x"), "defaultTopicQueueNums", "99"), 0)
	if got, _ := n.tables.Topic("New2"); got.WriteQueueNums != 8 {
		t.Errorf("created %+v", got)
	}
	want(t, c.send("None", 0, "", []byte("x"), "defaultTopic", "Missing"), remoting.ResponseTopicNotExist,
		"topic[None] not exist, apply first please!\nSee http://rocketmq.apache.org/docs/faq/ for further details.")
	want(t, c.send("%RETRY%g9", 0, "", []byte("x"), "defaultTopic", "Missing"), 0)
	if got, _ := n.tables.Topic("%RETRY%g9"); got.WriteQueueNums != 1 {
		t.Errorf("created %+v", got)
	}
	eventually(t, "the group exists", func() bool { _, ok := n.tables.Group("g9"); return ok })
	want(t, c.send("Zero", 0, "", []byte("x"), "defaultTopicQueueNums", "-3"), 1)
	// A queue chosen by the broker.
	for range 20 {
		if s := sendResponse(t, want(t, c.send("New", -1-rand.IntN(100), "", []byte("x")), 0)); s.QueueID < 0 || s.QueueID > 3 {
			t.Fatalf("queue %d", s.QueueID)
		}
	}
}

// TestOverlay: while a topic's creation is in flight nobody waits, and it is proposed once.
func TestOverlay(t *testing.T) {
	n := newNode(t)
	c := n.dial()
	n.raft.paused.Store(true)
	const sends = 200
	var wg sync.WaitGroup
	wg.Add(sends)
	for i := range sends {
		c.Go(request(remoting.RequestSendMessage, []byte("x"), sendFields("Fresh", i%4, "")...), func(resp *remoting.Command, err error) {
			defer wg.Done()
			if err != nil || resp.Code != 0 {
				t.Errorf("send: %v %v", resp, err)
			}
		})
	}
	eventually(t, "all are proposed", func() bool {
		n.raft.mu.Lock()
		defer n.raft.mu.Unlock()
		return len(n.raft.mu.proposals) == sends+1
	})
	n.raft.paused.Store(false)
	wg.Wait()
	if got := n.raft.kinds[command.KindTopicPut].Load(); got != 1 {
		t.Errorf("%d topic commands", got)
	}
	// A creation that was lost with its leadership is proposed again in the next.
	n.raft.paused.Store(true)
	n.raft.lose.Store(errPointer(raftnode.ErrLeadershipLost))
	answered := make(chan *remoting.Command, 1)
	c.Go(request(remoting.RequestSendMessage, []byte("x"), sendFields("Lost", 0, "")...), func(resp *remoting.Command, err error) {
		if err != nil {
			t.Error(err)
		}
		answered <- resp
	})
	eventually(t, "creation and send are in one entry", func() bool {
		n.raft.mu.Lock()
		defer n.raft.mu.Unlock()
		return len(n.raft.mu.proposals) == 2
	})
	n.raft.paused.Store(false)
	want(t, <-answered, remoting.ResponseServiceNotAvailable)
	n.raft.lead(2)
	want(t, c.send("Lost", 0, "", []byte("x")), 0)
	if _, ok := n.tables.Topic("Lost"); !ok {
		t.Error("the topic is missing")
	}
}

func TestCloseAnswersHeldWrites(t *testing.T) {
	n := newNode(t, func(o *nodeOptions) {
		o.follower = true
		o.config = func(c *Config) { c.HoldWrites = time.Minute }
	})
	n.putTopic("T", 1)
	c := n.dial()
	answer := make(chan *remoting.Command, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLong)
		defer cancel()
		resp, err := c.Invoke(ctx, request(remoting.RequestSendMessage, []byte("x"), sendFields("T", 0, "")...))
		if err != nil {
			t.Error(err)
		}
		answer <- resp
	}()
	eventually(t, "held", func() bool { return n.broker.Stats().WaitingWrites == 1 })
	n.broker.Close()
	if resp := <-answer; resp == nil || resp.Code != remoting.ResponseServiceNotAvailable {
		t.Errorf("answer %+v", resp)
	}
}
