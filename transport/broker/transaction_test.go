package broker

import (
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/fsm/raftnode"
	"raftmq/transport/remoting"
)

// half is a half message as its producer knows it.
type half struct{ queueOffset, phyOffset int64 }

func (c *conn) half(topic string, queue int, props string, body string) half {
	c.t.Helper()
	resp := want(c.t, c.send(topic, queue, "TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01u\x02"+props, []byte(body), "sysFlag", "4"), 0)
	r := sendResponse(c.t, resp)
	_, off, err := record.ParseMessageID(string(r.MsgID))
	if err != nil {
		c.t.Fatal(err)
	}
	return half{r.QueueOffset, off}
}

func endFields(h half, outcome int32, more ...string) []string {
	return append([]string{"producerGroup", "pg", "tranStateTableOffset", strconv.FormatInt(h.queueOffset, 10), "commitLogOffset", strconv.FormatInt(h.phyOffset, 10),
		"commitOrRollback", strconv.Itoa(int(outcome)), "fromTransactionCheck", "false", "msgId", "u"}, more...)
}

func (c *conn) end(h half, outcome int32, more ...string) *remoting.Command {
	c.t.Helper()
	return c.call(remoting.RequestEndTransaction, nil, endFields(h, outcome, more...)...)
}

// What is stored is what the golden stores have for GoldenTx and RMQ_SYS_TRANS_OP_HALF_TOPIC.
func TestCommitAndRollback(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 4)
	c := n.dial()
	first, second := c.half("T", 2, "WAIT\x01true\x02TAGS\x01a", "yes"), c.half("T", 2, "", "no")
	want(t, c.end(first, remoting.TransactionCommit), 0, "")
	want(t, c.end(second, remoting.TransactionRollback), 0, remarkNoCode)
	m := n.stored("T", 2, 0)
	if string(m.Body) != "yes" || m.SysFlag != record.SysFlagCommit || m.PreparedTransactionOffset != first.phyOffset || m.BornTimestamp != 1700000000000 {
		t.Errorf("committed %+v", m)
	}
	wantProperties(t, m.Properties, map[string]string{"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "u", "WAIT": "true", "TAGS": "a", "CLUSTER": testCluster,
		"REAL_TOPIC": "T", "REAL_QID": "2"})
	for i, h := range []half{first, second} {
		op := n.stored(metadata.OpHalfTopic, 0, int64(i))
		if string(op.Body) != strconv.FormatInt(h.queueOffset, 10) || op.SysFlag != 0 || op.QueueID != 0 || op.BornHost.String() != n.addr || op.StoreHost.String() != n.addr {
			t.Errorf("op record %+v", op)
		}
		wantProperties(t, op.Properties, map[string]string{"TAGS": "d", "WAIT": "true"})
	}
	if _, ok := n.tables.Topic(metadata.OpHalfTopic); ok {
		t.Error("the op topic has a configuration; 4.9.4 makes none")
	}
	// Every further end changes nothing, whatever it says.
	_, before := n.store.LogRange()
	for _, h := range []half{first, second} {
		want(t, c.end(h, remoting.TransactionCommit), 0, "")
		want(t, c.end(h, remoting.TransactionRollback), 0, remarkNoCode)
		want(t, c.end(h, remoting.TransactionNone), 0)
	}
	if _, after := n.store.LogRange(); after != before || n.store.MaxOffset("T", 2) != 1 {
		t.Error("a second end stored something")
	}
}

// Two ends that are proposed before either is applied: the state machine decides.
func TestEndTransactionTwiceInFlight(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	h := c.half("T", 0, "", "once")
	n.raft.paused.Store(true)
	answers := make(chan *remoting.Command, 2)
	for range 2 {
		go func() { answers <- c.end(h, remoting.TransactionCommit) }()
	}
	eventually(t, "both are proposed", func() bool {
		n.raft.mu.Lock()
		defer n.raft.mu.Unlock()
		return len(n.raft.mu.proposals) == 2
	})
	n.raft.paused.Store(false)
	for range 2 {
		want(t, <-answers, 0, "")
	}
	if got := n.store.MaxOffset("T", 0); got != 1 {
		t.Errorf("stored %d times", got)
	}
}

func TestEndTransactionRefusals(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	h := c.half("T", 0, "", "x")
	committed := c.half("T", 0, "", "y")
	want(t, c.end(committed, remoting.TransactionCommit), 0)
	plain := half{0, n.stored("T", 0, 0).PhyOffset} // it still has TRAN_MSG and PGROUP
	const notFound = "Find prepared transaction message failed"
	for name, tc := range map[string]struct {
		h      half
		more   []string
		remark string
	}{
		"no record":        {half{0, 1 << 40}, nil, notFound},
		"below 0":          {half{0, -1}, nil, notFound},
		"inside a record":  {half{0, h.phyOffset + 1}, nil, notFound},
		"no half message":  {plain, nil, notFound},
		"other group":      {h, []string{"producerGroup", "other"}, "The producer group wrong"},
		"other offset":     {half{5, h.phyOffset}, nil, "The transaction state table offset wrong"},
		"another half's":   {half{committed.queueOffset, h.phyOffset}, nil, "The transaction state table offset wrong"},
		"no such outcome":  {h, []string{"commitOrRollback", "5"}, ""},
		"no outcome":       {h, []string{"commitOrRollback", ""}, ""},
		"offset no number": {h, []string{"commitLogOffset", "x"}, ""},
	} {
		resp := c.end(tc.h, remoting.TransactionCommit, tc.more...)
		if resp.Code != 1 || tc.remark != "" && resp.Remark != tc.remark {
			t.Errorf("%s: %d %q, want 1 %q", name, resp.Code, resp.Remark, tc.remark)
		}
	}
	if n.store.MaxOffset("T", 0) != 1 || n.tables.HalfEnded(h.queueOffset) {
		t.Error("a refused end had an effect")
	}
	n.raft.lose.Store(errPointer(raftnode.ErrLeadershipLost))
	if resp := c.end(h, remoting.TransactionCommit); resp.Code != remoting.ResponseServiceNotAvailable {
		t.Errorf("lost in flight: %d %q", resp.Code, resp.Remark)
	}
	want(t, c.end(h, remoting.TransactionCommit), 0)
}

func TestEndTransactionElsewhere(t *testing.T) {
	leader := newNode(t)
	leader.putTopic("T", 1)
	follower := followerOf(t, leader)
	h := leader.dial().half("T", 0, "", "x")
	follower.raft.follow(1, testOther)
	// One-way, as Java and Go send it.
	cmd := request(remoting.RequestEndTransaction, nil, endFields(h, remoting.TransactionCommit)...)
	if err := follower.dial().SendOneWay(cmd); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the leader has committed", func() bool { return leader.store.MaxOffset("T", 0) == 1 })
}

// TestCheckTransaction compares with the captured checks of a 4.9.4 broker.
func TestCheckTransaction(t *testing.T) {
	var unknown atomic.Int64
	unknown.Store(-1)
	n := newNode(t, func(o *nodeOptions) {
		o.config = func(c *Config) { c.TransactionUnknown = unknown.Store }
	})
	n.putTopic("T", 4)
	c, other := n.dial(), n.dial()
	h := c.half("T", 3, "TRANSACTION_CHECK_TIMES\x011", "maybe")
	source := n.stored(metadata.HalfTopic, 0, 0)
	check := func(times int) bool {
		var res store.GetResult
		defer res.Release()
		n.store.Get(&store.GetRequest{Topic: halfTopic, MaxMsgs: 1}, &res)
		return n.broker.CheckTransaction(res.Buffers[0], times)
	}
	if !check(2) {
		t.Fatal("nobody was asked")
	}
	eventually(t, "the producer is asked", func() bool { return c.pushed(remoting.RequestCheckTransactionState) == 1 })
	if other.pushed(remoting.RequestCheckTransactionState) != 0 {
		t.Error("a stranger was asked")
	}
	c.mu.Lock()
	asked := c.requests[len(c.requests)-1]
	c.mu.Unlock()
	var header remoting.CheckTransactionHeader
	must(header.Decode(asked))
	id := string(record.AppendMessageID(nil, n.broker.cfg.StoreHost, h.phyOffset))
	if wantHeader := (remoting.CheckTransactionHeader{TranStateTableOffset: h.queueOffset, CommitLogOffset: h.phyOffset, MsgID: "u", TransactionID: "u", OffsetMsgID: id}); header != wantHeader {
		t.Errorf("header %+v, want %+v", header, wantHeader)
	}
	if got := extNames(asked); got != "commitLogOffset msgId offsetMsgId tranStateTableOffset transactionId" || !asked.IsOneWay() {
		t.Errorf("ext %s, flag %d", got, asked.Flag)
	}
	got := records(t, asked.Body)[0]
	wantProperties(t, got.Properties, map[string]string{"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "u", "TRANSACTION_CHECK_TIMES": "2", "CLUSTER": testCluster, "REAL_TOPIC": "T", "REAL_QID": "3"})
	if string(got.Topic) != "T" || got.QueueID != 3 || string(got.Body) != "maybe" || got.QueueOffset != h.queueOffset || got.PhyOffset != h.phyOffset ||
		got.BornTimestamp != source.BornTimestamp || got.StoreTimestamp != source.StoreTimestamp || got.StoreHost != source.StoreHost {
		t.Errorf("record %+v", got)
	}

	// Unknown: somebody hears of it when it answers a check.
	want(t, c.end(h, remoting.TransactionNone), 0)
	if unknown.Load() != -1 {
		t.Error("an end that answers no check was told")
	}
	want(t, c.end(h, remoting.TransactionNone, "fromTransactionCheck", "true"), 0)
	if unknown.Load() != h.queueOffset {
		t.Errorf("told of %d", unknown.Load())
	}
	_ = c.Close()
	eventually(t, "the producer is gone", func() bool { return len(n.groups.Producers("pg")) == 0 })
	if check(3) {
		t.Error("a closed connection was asked")
	}
	// The next heartbeat of another producer of the group makes it one that can be asked.
	want(t, other.call(remoting.RequestHeartBeat, []byte(`{"clientID":"x","producerDataSet":[{"groupName":"pg"}]}`)), 0)
	if !check(3) {
		t.Error("nobody was asked")
	}
	eventually(t, "the other producer is asked", func() bool { return other.pushed(remoting.RequestCheckTransactionState) == 1 })
}

func TestCheckTimesWithoutRoom(t *testing.T) {
	props := []byte("a\x01" + strings.Repeat("x", record.MaxPropertiesLen-2))
	if got := withCheckTimes(props, 3); string(got) != string(props) {
		t.Errorf("%d bytes", len(got))
	}
	if got := withCheckTimes([]byte("TRANSACTION_CHECK_TIMES\x0114\x02a\x011"), 15); string(got) != "a\x011\x02TRANSACTION_CHECK_TIMES\x0115" {
		t.Errorf("%q", got)
	}
}

func BenchmarkEndTransaction(b *testing.B) {
	n := newNode(b)
	n.putTopic("T", 1)
	c := n.dial()
	const halves = 1000
	var known []half
	for i := range halves {
		known = append(known, c.half("T", 0, "", fmt.Sprint(i)))
	}
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		h := remoting.EndTransactionHeader{ProducerGroup: "pg", TranStateTableOffset: known[i%halves].queueOffset, CommitLogOffset: known[i%halves].phyOffset}
		p := &endProposal{b: n.broker, end: command.TransactionEnd{Outcome: command.Committed, Half: h.TranStateTableOffset}}
		if f := p.prepare(&h); f != nil {
			b.Fatal(f.remark)
		}
		_ = p.AppendCommand(nil, 1)
		i++
	}
}

// TestResumeHalf: a half message that was given up is one again, with an outcome of its own; nothing else becomes one.
func TestResumeHalf(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 4)
	n.putTopic(metadata.CheckMaxTopic, 1)
	c := n.dial()
	h := c.half("T", 2, "TAGS\x01a", "body")
	stored := n.stored(metadata.HalfTopic, 0, h.queueOffset)
	stored.Topic, stored.Properties = []byte(metadata.CheckMaxTopic), withCheckTimes(stored.Properties, 15)
	end := command.TransactionEnd{Outcome: command.GivenUp, Half: h.queueOffset, Count: 1, Records: record.Append(nil, &stored)}
	if _, _, err := n.raft.ProposeWait(t.Context(), command.AppendTransactionEnd(nil, &end)); err != nil {
		t.Fatal(err)
	}
	id := func(m record.Message) string { return string(record.AppendMessageID(nil, m.StoreHost, m.PhyOffset)) }
	given := n.stored(metadata.CheckMaxTopic, 0, 0)
	for _, bad := range []string{"", "x", "7F0000010000271100000000000000FF", id(n.stored(metadata.HalfTopic, 0, 0)), string(record.AppendMessageID(nil, given.StoreHost, 1<<40))} {
		want(t, c.call(remoting.RequestResumeCheckHalfMessage, nil, "msgId", bad), 1, remarkNotResumed)
	}
	want(t, c.call(remoting.RequestResumeCheckHalfMessage, nil, "msgId", id(given)), 0, "")
	again := n.stored(metadata.HalfTopic, 0, 1)
	if string(again.Body) != "body" || again.QueueID != 0 || n.tables.HalfEnded(1) || !n.tables.HalfEnded(0) {
		t.Errorf("half message %+v, ended %v", again, n.tables.HalfEnded(1))
	}
	wantProperties(t, again.Properties, map[string]string{"TRAN_MSG": "true", "PGROUP": "pg", "UNIQ_KEY": "u", "TAGS": "a", "CLUSTER": testCluster,
		"REAL_TOPIC": "T", "REAL_QID": "2", "TRANSACTION_CHECK_TIMES": "0"})
	want(t, c.end(half{again.QueueOffset, again.PhyOffset}, remoting.TransactionCommit), 0, "")
	if m := n.stored("T", 2, 0); string(m.Body) != "body" {
		t.Errorf("committed %+v", m)
	}
}
