package broker

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/fsm/command"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

func (c *conn) queryOffset(group, topic string, queue int) *remoting.Command {
	c.t.Helper()
	return c.call(remoting.RequestQueryConsumerOffset, nil, "consumerGroup", group, "topic", topic, "queueId", strconv.Itoa(queue))
}

func updateFields(group, topic string, queue int, offset int64) []string {
	return []string{"consumerGroup", group, "topic", topic, "queueId", strconv.Itoa(queue), "commitOffset", strconv.FormatInt(offset, 10)}
}

func TestOffsets(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 2)
	c := n.dial()
	update := func(q int, o int64) *remoting.Command {
		return c.call(remoting.RequestUpdateConsumerOffset, nil, updateFields("g", "T", q, o)...)
	}
	want(t, update(0, 5), 0)
	if r := want(t, c.queryOffset("g", "T", 0), 0); r.GetString("offset") != "5" {
		t.Errorf("offset %s", r.GetString("offset"))
	}
	want(t, update(0, 3), 0) // backwards is legitimate
	if r := want(t, c.queryOffset("g", "T", 0), 0); r.GetString("offset") != "3" {
		t.Errorf("offset %s", r.GetString("offset"))
	}
	want(t, update(1, -1), 0)
	if _, ok := n.tables.ConsumerOffset("g", "T", 1); ok {
		t.Error("a negative offset was stored")
	}
	want(t, c.call(remoting.RequestUpdateConsumerOffset, nil, "consumerGroup", "g", "topic", "T"), 1)
	want(t, c.call(remoting.RequestQueryConsumerOffset, nil, "consumerGroup", "g", "topic", "T"), 1)
}

// TestGather: offsets that come together are one command, and every one is answered after it.
func TestGather(t *testing.T) {
	n := newNode(t, func(o *nodeOptions) { o.config = func(c *Config) { c.OffsetGather = 100 * time.Millisecond } })
	n.putTopic("T", 8)
	c := n.dial()
	var wg sync.WaitGroup
	const queues, rounds = 8, 25
	for i := range queues * rounds {
		wg.Add(1)
		c.Go(request(remoting.RequestUpdateConsumerOffset, nil, updateFields("g", "T", i%queues, int64(i))...), func(r *remoting.Command, err error) {
			defer wg.Done()
			if err != nil || r.Code != 0 {
				t.Errorf("%v %v", r, err)
			}
		})
	}
	wg.Wait()
	for q := range queues {
		if o, _ := n.tables.ConsumerOffset("g", "T", int32(q)); o != int64(queues*(rounds-1)+q) {
			t.Errorf("queue %d: offset %d", q, o)
		}
	}
	if got := n.raft.kinds[command.KindOffsetsCommit].Load(); got > 4 {
		t.Errorf("%d commands for %d updates", got, queues*rounds)
	}
	// More than a command should carry goes at once.
	n2 := newNode(t, func(o *nodeOptions) { o.config = func(c *Config) { c.OffsetGather = time.Hour } })
	c2 := n2.dial()
	for i := range gatherFull {
		wg.Add(1)
		c2.Go(request(remoting.RequestUpdateConsumerOffset, nil, updateFields("g", "T", i, 1)...), func(*remoting.Command, error) { wg.Done() })
	}
	wg.Wait()
}

// TestQuerySeesUpdate: a query waits for what was gathered before it, also from a one-way request.
func TestQuerySeesUpdate(t *testing.T) {
	n := newNode(t, func(o *nodeOptions) { o.config = func(c *Config) { c.OffsetGather = time.Hour } })
	n.putTopic("T", 1)
	c := n.dial()
	for i := range int64(50) {
		if err := c.SendOneWay(request(remoting.RequestUpdateConsumerOffset, nil, updateFields("g", "T", 0, i)...)); err != nil {
			t.Fatal(err)
		}
		if r := want(t, c.queryOffset("g", "T", 0), 0); r.GetString("offset") != fmt.Sprint(i) {
			t.Fatalf("offset %s after %d was told", r.GetString("offset"), i)
		}
	}
}

// TestYoungQueue: where a group without offset starts (wire notes §8).
func TestYoungQueue(t *testing.T) {
	var hot int64 = 1 << 20
	n := newNode(t, func(o *nodeOptions) { o.store.HotBytes = hot })
	n.putTopic("T", 2)
	c := n.dial()
	for _, topic := range []string{"T", "None"} {
		if r := want(t, c.queryOffset("g", topic, 0), 0); r.GetString("offset") != "0" {
			t.Errorf("%s: offset %s", topic, r.GetString("offset"))
		}
	}
	n.fill(c, "T", 0, "", "")
	want(t, c.queryOffset("g", "T", 0), 0)
	want(t, c.call(remoting.RequestQueryConsumerOffset, nil, "consumerGroup", "g", "topic", "T", "queueId", "0", "setZeroIfNotFound", "false"), remoting.ResponseQueryNotFound)
	want(t, c.send("T", 1, "", make([]byte, hot+1)), 0)
	n.waitReadable("T", 1, 1)
	want(t, c.queryOffset("g", "T", 0), remoting.ResponseQueryNotFound, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
}

// TestLostUpdate: what was gathered when leadership went is refused, not forgotten.
func TestLostUpdate(t *testing.T) {
	n := newNode(t, func(o *nodeOptions) { o.config = func(c *Config) { c.OffsetGather = time.Hour } })
	c := n.dial()
	answer := make(chan *remoting.Command, 1)
	c.Go(request(remoting.RequestUpdateConsumerOffset, nil, updateFields("g", "T", 0, 7)...), func(r *remoting.Command, err error) {
		if err != nil {
			t.Error(err)
		}
		answer <- r.Clone()
	})
	eventually(t, "gathered", func() bool {
		n.broker.gather.mu.Lock()
		defer n.broker.gather.mu.Unlock()
		return len(n.broker.gather.mu.waiters) == 1
	})
	n.raft.follow(2, "")
	want(t, <-answer, remoting.ResponseServiceNotAvailable)
	n.raft.lead(3)
	if _, ok := n.tables.ConsumerOffset("g", "T", 0); ok {
		t.Error("stored all the same")
	}
}

// TestQueryWithoutLeader is Never-Guess: an offset query is never answered with an error that a client reads as "no offset".
func TestQueryWithoutLeader(t *testing.T) {
	t.Parallel()
	n := newNode(t, func(o *nodeOptions) { o.follower = true })
	n.putTopic("T", 1)
	c := n.dial()
	ctx, cancel := context.WithTimeout(context.Background(), waitLong)
	defer cancel()
	started := time.Now()
	r, err := c.Invoke(ctx, request(remoting.RequestQueryConsumerOffset, nil, "consumerGroup", "g", "topic", "T", "queueId", "0"))
	if !errors.Is(err, client.ErrConnClosed) || time.Since(started) < authorityWait/2 {
		t.Fatalf("answer %v, error %v after %v", r, err, time.Since(started))
	}
	// A leader in time answers.
	c = n.dial()
	answer := make(chan *remoting.Command, 1)
	go func() { answer <- c.queryOffset("g", "T", 0) }()
	eventually(t, "it waits", func() bool { return n.broker.waiting.Load() == 1 })
	n.raft.lead(1)
	want(t, <-answer, 0)
	// Other reads are refused.
	n.raft.follow(2, "")
	for _, code := range []int32{remoting.RequestGetMaxOffset, remoting.RequestGetMinOffset, remoting.RequestGetEarliestMsgStoreTime} {
		go func() { answer <- c.call(code, nil, "topic", "T", "queueId", "0") }()
	}
	for range 3 {
		want(t, <-answer, remoting.ResponseServiceNotAvailable)
	}
}

// TestForward: a follower passes on what only the leader may answer, and relays the answer.
func TestForward(t *testing.T) {
	leader := newNode(t)
	var target atomic.Pointer[client.Client]
	follower := newNode(t, func(o *nodeOptions) {
		o.follower = true
		o.config = func(c *Config) {
			c.Forward = func(ctx context.Context, cmd *remoting.Command) (*remoting.Command, error) {
				k := target.Load()
				if k == nil {
					return nil, errTest
				}
				return k.Invoke(ctx, cmd)
			}
		}
	})
	leader.putTopic("T", 1)
	follower.raft.follow(1, testOther)
	c := follower.dial()
	// The leader cannot be reached for a moment.
	answer := make(chan *remoting.Command, 1)
	go func() { answer <- c.queryOffset("g", "T", 0) }()
	eventually(t, "it waits", func() bool { return follower.broker.waiting.Load() == 1 })
	target.Store(leader.dial().Client)
	want(t, <-answer, 0)

	want(t, c.call(remoting.RequestUpdateConsumerOffset, nil, updateFields("g", "T", 0, 9)...), 0)
	if o, _ := leader.tables.ConsumerOffset("g", "T", 0); o != 9 {
		t.Errorf("the leader has offset %d", o)
	}
	if r := want(t, c.queryOffset("g", "T", 0), 0); r.GetString("offset") != "9" {
		t.Errorf("offset %s", r.GetString("offset"))
	}
	want(t, c.call(remoting.RequestUpdateAndCreateTopic, nil, "topic", "New", "readQueueNums", "1", "writeQueueNums", "1", "perm", "6"), 0, "not set any response code")
	if _, ok := leader.tables.Topic("New"); !ok {
		t.Error("the topic is not at the leader")
	}
	if r := want(t, c.call(remoting.RequestGetTopicStatsInfo, nil, "topic", "New"), 0); !strings.Contains(string(r.Body), `"maxOffset":0`) {
		t.Errorf("stats %s", r.Body)
	}
	want(t, c.call(remoting.RequestUpdateAndCreateTopic, nil, "topic", "", "readQueueNums", "1", "writeQueueNums", "1", "perm", "6"), 1, "The specified topic is blank.")

	// The leader answers "not me": the follower tries again and does not take it for an answer, and a
	// forwarded request is not forwarded again.
	leader.raft.follow(2, testOther)
	go func() { answer <- c.queryOffset("g", "T", 0) }()
	eventually(t, "it waits", func() bool { return follower.broker.waiting.Load() == 1 })
	leader.raft.lead(3)
	want(t, <-answer, 0)
}

func TestQueueOffsets(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.putTopic("T", 2)
	c := n.dial()
	offset := func(code int32, topic string, more ...string) string {
		t.Helper()
		r := want(t, c.call(code, nil, append([]string{"topic", topic, "queueId", "0"}, more...)...), 0)
		return r.GetString("offset") + r.GetString("timestamp")
	}
	for _, topic := range []string{"T", "None"} {
		for code, want := range map[int32]string{remoting.RequestGetMaxOffset: "0", remoting.RequestGetMinOffset: "0", remoting.RequestGetEarliestMsgStoreTime: "-1"} {
			if got := offset(code, topic); got != want {
				t.Errorf("%s %s: %s", topic, remoting.RequestCodeName(code), got)
			}
		}
		if got := offset(remoting.RequestSearchOffsetByTimestamp, topic, "timestamp", "1"); got != "0" {
			t.Errorf("search in %s: %s", topic, got)
		}
	}
	n.fill(c, "T", 0, "", "", "")
	if got := offset(remoting.RequestGetMaxOffset, "T"); got != "3" {
		t.Errorf("max %s", got)
	}
	first := n.store.StoreTimeAt("T", 0, 0)
	if got := offset(remoting.RequestGetEarliestMsgStoreTime, "T"); got != fmt.Sprint(first) {
		t.Errorf("earliest %s, want %d", got, first)
	}
	for ts, want := range map[int64]string{first: "0", first - 1000: "0", first + 100_000: "3"} {
		if got := offset(remoting.RequestSearchOffsetByTimestamp, "T", "timestamp", fmt.Sprint(ts)); got != want {
			t.Errorf("offset at %+d ms: %s, want %s", ts-first, got, want)
		}
	}
	want(t, c.call(remoting.RequestViewMessageByID, nil, "offset", "1"), 1, "can not find message by the offset, 1")
	want(t, c.call(remoting.RequestViewMessageByID, nil, "offset", "-1"), 1, "can not find message by the offset, -1")
	want(t, c.call(remoting.RequestViewMessageByID, nil), 1)
	// On a follower "not there" may only mean "not yet".
	n.raft.follow(2, testOther)
	if r := want(t, c.call(remoting.RequestViewMessageByID, nil, "offset", "0"), 0); len(records(t, r.Body)) != 1 {
		t.Errorf("body %q", r.Body)
	}
	want(t, c.call(remoting.RequestViewMessageByID, nil, "offset", "1"), remoting.ResponseServiceNotAvailable)
}

func TestGatherForgetsIdleQueues(t *testing.T) {
	n := newNode(t)
	g := &n.broker.gather
	for i := range gatherKept + 10 {
		g.add([]byte("g"), []byte("T"), int32(i), 1, nil)
	}
	eventually(t, "all are committed and forgotten", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.mu.dirty) == 0 && g.mu.queues < gatherKept
	})
	eventually(t, "the last is committed too", func() bool { o, _ := n.tables.ConsumerOffset("g", "T", gatherKept+9); return o == 1 })
}

// TestAfterClose: whatever comes between Close and the server's shutdown is answered, or the shutdown would wait for it.
func TestAfterClose(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	n.broker.Close()
	for name, call := range map[string]func() *remoting.Command{
		"send": func() *remoting.Command { return c.send("T", 0, "", []byte("x")) },
		"pull": func() *remoting.Command { return c.pull("g", "T", 0, 0, flagPark, time.Minute) },
		"update": func() *remoting.Command {
			return c.call(remoting.RequestUpdateConsumerOffset, nil, updateFields("g", "T", 0, 1)...)
		},
		"query offset": func() *remoting.Command { return c.queryOffset("g", "T", 0) },
		"max offset": func() *remoting.Command {
			return c.call(remoting.RequestGetMaxOffset, nil, "topic", "T", "queueId", "0")
		},
		"members": func() *remoting.Command { return c.consumers("g") },
		"topic": func() *remoting.Command {
			return c.call(remoting.RequestUpdateAndCreateTopic, nil, topicFields("A")...)
		},
		"heartbeat": func() *remoting.Command { return c.beat("c@1", "g", "T") },
	} {
		if r := call(); r == nil {
			t.Errorf("%s: no answer", name)
		}
	}
	n.raft.follow(2, "")
	want(t, c.send("T", 0, "", []byte("x")), remoting.ResponseServiceNotAvailable)
	want(t, c.call(remoting.RequestGetMaxOffset, nil, "topic", "T", "queueId", "0"), remoting.ResponseServiceNotAvailable)
}
