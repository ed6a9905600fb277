package broker

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"raftmq/fsm/command"
	"raftmq/fsm/raftnode"
	"raftmq/transport/remoting"
)

func pullResponse(t testing.TB, resp *remoting.Command) remoting.PullResponse {
	t.Helper()
	var p remoting.PullResponse
	if err := p.Decode(resp); err != nil {
		t.Fatal(err)
	}
	return p
}

func (c *conn) pull(group, topic string, queue int, offset int64, sysFlag int32, suspend time.Duration, more ...string) *remoting.Command {
	c.t.Helper()
	return c.call(remoting.RequestPullMessage, nil, pullFields(group, topic, queue, offset, sysFlag, suspend, more...)...)
}

// fill stores messages with the tags given, one each, and waits until they can be pulled.
func (n *node) fill(c *conn, topic string, queue int, tags ...string) {
	n.t.Helper()
	for i, tag := range tags {
		props := ""
		if tag != "" {
			props = "TAGS\x01" + tag
		}
		want(n.t, c.send(topic, queue, props, fmt.Appendf(nil, "m%d", i)), 0)
	}
	n.waitReadable(topic, int32(queue), n.store.MaxOffset(topic, int32(queue)))
}

func TestPullStatuses(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 2)
	c := n.dial()
	n.fill(c, "T", 0, "a", "b", "a", "c", "b")
	for _, tc := range []struct {
		name   string
		queue  int
		offset int64
		sub    string
		code   int32
		remark string
		next   int64
		bodies string
	}{
		{"all", 0, 0, "*", 0, "FOUND", 5, "m0 m1 m2 m3 m4"},
		{"from 3", 0, 3, "", 0, "FOUND", 5, "m3 m4"},
		{"one tag", 0, 0, "b", 0, "FOUND", 5, "m1 m4"},
		{"two tags", 0, 0, "a || c", 0, "FOUND", 5, "m0 m2 m3"},
		{"no match", 0, 1, "zzz", 20, "NO_MATCHED_MESSAGE", 5, ""},
		{"at the end", 0, 5, "*", 19, "OFFSET_OVERFLOW_ONE", 5, ""},
		{"beyond", 0, 6, "*", 21, "OFFSET_OVERFLOW_BADLY", 5, ""},
		{"negative", 0, -1, "*", 21, "OFFSET_TOO_SMALL", 0, ""},
		{"empty queue", 1, 0, "*", 19, "NO_MESSAGE_IN_QUEUE", 0, ""},
		{"empty queue beyond", 1, 5, "*", 21, "NO_MESSAGE_IN_QUEUE", 0, ""},
	} {
		resp := c.pull("g", "T", tc.queue, tc.offset, flagCarried, 0, "subscription", tc.sub)
		p := pullResponse(t, resp)
		var bodies []string
		for _, m := range records(t, resp.Body) {
			bodies = append(bodies, string(m.Body))
		}
		if p.Code != tc.code || p.Remark != tc.remark || p.NextBeginOffset != tc.next || strings.Join(bodies, " ") != tc.bodies || p.SuggestWhichBrokerID != 0 {
			t.Errorf("%s: %+v %v", tc.name, p, bodies)
		}
		if tc.queue == 0 && (p.MinOffset != 0 || p.MaxOffset != 5) {
			t.Errorf("%s: bounds %d %d", tc.name, p.MinOffset, p.MaxOffset)
		}
	}
	// At most as many as asked for; 0 means one.
	for ask, got := range map[string]int{"0": 1, "1": 1, "3": 3} {
		if m := records(t, c.pull("g", "T", 0, 0, flagCarried, 0, "maxMsgNums", ask).Body); len(m) != got {
			t.Errorf("asked for %s, got %d", ask, len(m))
		}
	}
}

// TestPullDeletedTopic: a topic that was created again starts behind the messages of the deleted one.
func TestPullDeletedTopic(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	n.fill(c, "T", 0, "", "", "")
	want(t, c.call(remoting.RequestDeleteTopicInBroker, nil, "topic", "T"), 0)
	want(t, c.pull("g", "T", 0, 0, flagCarried, 0), remoting.ResponseTopicNotExist)
	n.putTopic("T", 1)
	p := pullResponse(t, c.pull("g", "T", 0, 0, flagCarried, 0))
	if p.Code != 21 || p.NextBeginOffset != 3 || p.MinOffset != 3 || p.MaxOffset != 3 {
		t.Errorf("%+v", p)
	}
	// A new group begins at the topic's new start.
	if r := want(t, c.call(remoting.RequestQueryConsumerOffset, nil, "consumerGroup", "g", "topic", "T", "queueId", "0"), 0); r.GetString("offset") != "3" {
		t.Errorf("offset %s", r.GetString("offset"))
	}
	n.fill(c, "T", 0, "")
	if m := records(t, c.pull("g", "T", 0, 3, flagCarried, 0).Body); len(m) != 1 || m[0].QueueOffset != 3 {
		t.Errorf("%+v", m)
	}
}

func TestPullChecks(t *testing.T) {
	n := newNode(t, func(o *nodeOptions) { o.settings.AutoCreateGroup = false })
	n.putTopic("T", 1)
	must(n.tables.PutTopic(command.TopicPut{Topic: command.TopicConfig{TopicName: "W", ReadQueueNums: 1, WriteQueueNums: 1, Perm: 2}}))
	for name, change := range map[string]func(*command.GroupConfig){
		"g": func(*command.GroupConfig) {}, "off": func(g *command.GroupConfig) { g.ConsumeEnable = false },
		"nobroad": func(g *command.GroupConfig) { g.ConsumeBroadcastEnable = false },
	} {
		g := command.DefaultGroup(name)
		change(&g)
		must(n.tables.PutGroup(command.GroupPut{Group: g}))
	}
	c := n.dial()
	beat := func(group, model, sub, kind string) {
		body := fmt.Sprintf(`{"clientID":"c@%s","consumerDataSet":[{"groupName":%q,"consumeType":"CONSUME_PASSIVELY","messageModel":%q,"consumeFromWhere":"CONSUME_FROM_LAST_OFFSET",`+
			`"subscriptionDataSet":[{"topic":"T","subString":%q,"tagsSet":["x"],"codeSet":["1"],"subVersion":5,"expressionType":%q}]}]}`, group, group, model, sub, kind)
		want(t, c.call(remoting.RequestHeartBeat, []byte(body)), 0)
	}
	const faq = "\nSee http://rocketmq.apache.org/docs/faq/ for further details."
	check := func(name string, resp *remoting.Command, code int32, remark string) {
		t.Helper()
		if resp.Code != code || resp.Remark != remark {
			t.Errorf("%s: %d %q", name, resp.Code, resp.Remark)
		}
	}
	check("unknown group", c.pull("who", "T", 0, 0, flagCarried, 0), 26, "subscription group [who] does not exist, "+faq)
	check("system group", c.pull("CID_RMQ_SYS_x", "T", 0, 0, flagCarried, 0), 19, "NO_MESSAGE_IN_QUEUE")
	check("group off", c.pull("off", "T", 0, 0, flagCarried, 0), 16, "subscription group no permission, off")
	check("unknown topic", c.pull("g", "None", 0, 0, flagCarried, 0), 17, "topic[None] not exist, apply first please! "+faq)
	check("write-only", c.pull("g", "W", 0, 0, flagCarried, 0), 16, "the topic[W] pulling message is forbidden")
	if r := c.pull("g", "T", 1, 0, flagCarried, 0); r.Code != 1 || !strings.HasPrefix(r.Remark, "queueId[1] is illegal, topic:[T] topicConfig.readQueueNums:[1] consumer:[/127.0.0.1:") {
		t.Errorf("queue: %d %q", r.Code, r.Remark)
	}
	check("bad expression", c.pull("g", "T", 0, 0, flagCarried, 0, "subscription", "||"), 23, "parse the consumer's subscription failed")
	check("SQL92 that is none", c.pull("g", "T", 0, 0, flagCarried, 0, "expressionType", "SQL92"), 23, "parse the consumer's subscription failed")
	check("offline", c.pull("g", "T", 0, 0, 0, 0), 24, "the consumer's group info not exist"+faq)
	beat("g", "CLUSTERING", "x", "TAG")
	check("online", c.pull("g", "T", 0, 0, 0, 0), 19, "NO_MESSAGE_IN_QUEUE")
	check("not subscribed", c.pull("g", "TBW102", 0, 0, 0, 0), 24, "the consumer's subscription not exist"+faq)
	check("newer", c.pull("g", "T", 0, 0, 0, 0, "subVersion", "6"), 25, "the consumer's subscription not latest")
	beat("nobroad", "BROADCASTING", "*", "TAG")
	check("broadcast", c.pull("nobroad", "T", 0, 0, 0, 0), 16, "the consumer group[nobroad] can not consume by broadcast way")
	must(n.tables.PutGroup(command.GroupPut{Group: command.DefaultGroup("sql")}))
	beat("sql", "CLUSTERING", "a >", "SQL92")
	check("SQL92 that is none, by heartbeat", c.pull("sql", "T", 0, 0, 0, 0), 27, "The broker's consumer filter data is not exist!Your expression may be wrong!")
	if r := c.call(remoting.RequestPullMessage, nil, "consumerGroup", "g", "topic", "T"); r.Code != 1 || r.Remark == "" {
		t.Errorf("missing fields: %d %q", r.Code, r.Remark)
	}
	// The heartbeat's tags are hashed here, whatever its codeSet says.
	n.fill(c, "T", 0, "x", "y")
	if m := records(t, c.pull("g", "T", 0, 0, 0, 0).Body); len(m) != 1 || string(m[0].Body) != "m0" {
		t.Errorf("filtered by heartbeat: %+v", m)
	}
	// A Java client's tag subscription that is newer than its heartbeat: the client filters, not a stale filter here.
	for kind, count := range map[string]int{"TAG": 2, "SQL92": 0} {
		cmd := request(remoting.RequestPullMessage, nil, pullFields("g", "T", 0, 0, 0, 0, "subVersion", "6", "expressionType", kind)...)
		cmd.Language = remoting.LanguageJava
		resp, err := c.Invoke(t.Context(), cmd)
		if err != nil {
			t.Fatal(err)
		}
		if m := records(t, resp.Body); len(m) != count || count == 0 && resp.Code != remoting.ResponseSubscriptionNotLatest {
			t.Errorf("newer than the heartbeat, %s: %d %+v", kind, resp.Code, m)
		}
	}
}

// Whoever looks for the next deadline reads that of a pull that is parked, not of one that was taken out and serves another request
// meanwhile (for the race detector).
func TestDeadlineOfAParkedPull(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	n.fill(c, "T", 0, "")
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				n.broker.polls.expire(time.Now())
			}
		}
	})
	defer wg.Wait()
	defer close(stop)
	for i := range int64(300) {
		answered := make(chan *remoting.Command, 1)
		go func() { answered <- c.pull("g", "T", 0, i+1, flagPark, 20*time.Second) }()
		eventually(t, "parked", func() bool { return n.broker.Stats().ParkedPulls == 1 })
		n.broker.ReleaseParked()
		want(t, <-answered, 20)
		want(t, c.send("T", 0, "", []byte("x")), 0)
	}
}

// TestLongPoll: parked, woken by a message that the filter lets through, answered 19 at the timeout.
func TestLongPoll(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c, p := n.dial(), n.dial()
	answer := make(chan *remoting.Command, 1)
	park := func(sub string, offset int64, suspend time.Duration) {
		go func() { answer <- p.pull("g", "T", 0, offset, flagPark, suspend, "subscription", sub) }()
		eventually(t, "parked", func() bool { return n.broker.Stats().ParkedPulls == 1 })
	}
	park("*", 0, time.Minute)
	n.fill(c, "T", 0, "")
	if m := records(t, want(t, <-answer, 0).Body); len(m) != 1 {
		t.Errorf("%d messages", len(m))
	}
	park("b", 1, time.Minute)
	n.fill(c, "T", 0, "a", "a")
	select {
	case r := <-answer:
		t.Fatalf("woken by a foreign tag: %d %s", r.Code, r.Remark)
	case <-time.After(30 * time.Millisecond):
	}
	n.fill(c, "T", 0, "b")
	if got := pullResponse(t, want(t, <-answer, 0)); got.NextBeginOffset != 4 {
		t.Errorf("%+v", got)
	}
	started := time.Now()
	park("*", 4, 80*time.Millisecond)
	if got := pullResponse(t, want(t, <-answer, 19, "OFFSET_OVERFLOW_ONE")); got.NextBeginOffset != 4 || time.Since(started) < 80*time.Millisecond || time.Since(started) > 5*time.Second {
		t.Errorf("%+v after %v", got, time.Since(started))
	}
	// Nothing is parked without the flag.
	want(t, p.pull("g", "T", 0, 4, flagCarried, time.Minute), 19)
	// The sweep moves a pull on whose filter lets nothing through.
	park("none", 4, time.Minute)
	n.fill(c, "T", 0, "a", "a")
	n.broker.polls.sweep()
	if got := pullResponse(t, want(t, <-answer, 20, "NO_MATCHED_MESSAGE")); got.NextBeginOffset != 6 {
		t.Errorf("%+v", got)
	}
}

// TestWakeRace is F77: a pull that is parked in the same moment as a message arrives is woken at once.
func TestWakeRace(t *testing.T) {
	const hold = 20 * time.Second
	rounds := int64(10_000)
	if testing.Short() {
		rounds = 1000
	}
	n := newNode(t)
	n.putTopic("T", 1)
	c, p := n.dial(), n.dial()
	var took []time.Duration
	for i := range rounds {
		sent := make(chan *remoting.Command, 1)
		got := make(chan *remoting.Command, 1)
		var at time.Time
		send := func() {
			c.Go(request(remoting.RequestSendMessage, []byte("x"), sendFields("T", 0, "")...), func(r *remoting.Command, err error) {
				if err != nil {
					t.Error(err)
				}
				at = time.Now()
				sent <- r
			})
		}
		if i%2 == 0 {
			send()
		}
		p.Go(request(remoting.RequestPullMessage, nil, pullFields("g", "T", 0, i, flagPark, hold)...), func(r *remoting.Command, err error) {
			if err != nil || r.Code != 0 {
				t.Errorf("round %d: %v %v", i, r, err)
			}
			got <- r
		})
		if i%2 == 1 {
			send()
		}
		<-sent
		select {
		case <-got:
		case <-time.After(hold - 5*time.Second): // else it is answered in the end
			t.Fatalf("round %d: missed wake-up, %+v", i, n.broker.Stats())
		}
		took = append(took, time.Since(at))
	}
	slices.Sort(took)
	if p99 := took[len(took)*99/100]; p99 > 200*time.Millisecond { // on a machine that does much else
		t.Errorf("99 %% of wake-ups within %v", p99)
	}
	t.Logf("wake-up after the acknowledgement: median %v, p99 %v, max %v", took[len(took)/2], took[len(took)*99/100], took[len(took)-1])
}

func TestParkedPullsOfClosedConnection(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 2)
	a, b := n.dial(), n.dial()
	for i := range 20 {
		for _, c := range []*conn{a, b} {
			c.Go(request(remoting.RequestPullMessage, nil, pullFields("g", "T", i%2, 0, flagPark, time.Minute)...), func(*remoting.Command, error) {})
		}
	}
	eventually(t, "all parked", func() bool { return n.broker.Stats().ParkedPulls == 40 })
	_ = a.Close()
	eventually(t, "those of the closed connection are gone", func() bool { return n.broker.Stats().ParkedPulls == 20 })
	c := n.dial()
	n.fill(c, "T", 0, "")
	eventually(t, "the others are served", func() bool { return n.broker.Stats().ParkedPulls == 10 })
}

func TestParkedPullsAreBounded(t *testing.T) {
	n := newNode(t, func(o *nodeOptions) { o.config = func(c *Config) { c.MaxHeldPulls = 2 } })
	n.putTopic("T", 1)
	c := n.dial()
	for range 2 {
		c.Go(request(remoting.RequestPullMessage, nil, pullFields("g", "T", 0, 0, flagPark, time.Minute)...), func(*remoting.Command, error) {})
	}
	want(t, c.pull("g", "T", 0, 0, flagPark, time.Minute), remoting.ResponseSystemBusy)
}

// TestSteer: when leadership is lost parked pulls are sent to the new leader by its stable broker id.
func TestSteer(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	n.fill(c, "T", 0, "")
	var wg sync.WaitGroup
	park := func(to chan remoting.PullResponse) {
		before := n.broker.Stats().ParkedPulls
		wg.Add(1)
		c.Go(request(remoting.RequestPullMessage, nil, pullFields("g", "T", 0, 1, flagPark, time.Minute)...), func(r *remoting.Command, err error) {
			defer wg.Done()
			if err != nil {
				t.Error(err)
				return
			}
			to <- pullResponse(t, r)
		})
		eventually(t, "parked", func() bool { return n.broker.Stats().ParkedPulls == before+1 })
	}
	expect := func(name string, got remoting.PullResponse, suggest int64) {
		t.Helper()
		if got.Code != 20 || got.NextBeginOffset != 1 || got.SuggestWhichBrokerID != suggest || got.MaxOffset != 1 {
			t.Errorf("%s: %+v", name, got)
		}
	}
	answers := make(chan remoting.PullResponse, 4)
	park(answers)
	n.raft.follow(2, "") // lost; who is next is not known
	select {
	case r := <-answers:
		t.Fatalf("answered before the next leader was known: %+v", r)
	case <-time.After(20 * time.Millisecond):
	}
	n.raft.follow(2, testOther)
	expect("new leader known", <-answers, 2)

	// A follower parks as well and is not disturbed by other changes.
	park(answers)
	n.raft.follow(3, "")
	n.raft.follow(3, "n3")
	select {
	case r := <-answers:
		t.Fatalf("a follower's pull was answered: %+v", r)
	case <-time.After(20 * time.Millisecond):
	}
	n.raft.lead(4)
	n.raft.follow(5, testOther) // at once
	expect("lost and known", <-answers, 2)

	n.raft.lead(6)
	park(answers)
	n.raft.follow(7, "")
	expect("nobody in time", <-answers, 0)

	n.raft.follow(7, testOther)
	park(answers)
	n.broker.Close()
	expect("shutdown", <-answers, 2)
	wg.Wait()
	expect("after shutdown", pullResponse(t, c.pull("g", "T", 0, 1, flagPark, time.Minute)), 2)
}

// TestFollowerPull: a follower serves what it has applied, and says of nothing that it is not there.
func TestFollowerPull(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	n.fill(c, "T", 0, "", "")
	n.raft.follow(2, testOther)
	if m := records(t, want(t, c.pull("g", "T", 0, 0, flagCarried, 0), 0).Body); len(m) != 2 {
		t.Errorf("%d messages", len(m))
	}
	// Beyond the end: it may be behind.
	if p := pullResponse(t, c.pull("g", "T", 0, 100, flagCarried, 0)); p.Code != 20 || p.NextBeginOffset != 100 {
		t.Errorf("beyond: %+v", p)
	}
	started := time.Now()
	if p := pullResponse(t, c.pull("g", "T", 0, 100, flagPark, time.Minute)); p.Code != 20 || p.NextBeginOffset != 100 || time.Since(started) < behindWait/2 {
		t.Errorf("beyond, parked: %+v after %v", p, time.Since(started))
	}
	for name, r := range map[string]*remoting.Command{
		"topic": c.pull("g", "Unknown", 0, 0, flagCarried, 0), "queue": c.pull("g", "T", 5, 0, flagCarried, 0),
	} {
		if r.Code != remoting.ResponseServiceNotAvailable {
			t.Errorf("unknown %s: %d %q", name, r.Code, r.Remark)
		}
	}
	// No commit is taken here.
	c.pull("g", "T", 0, 0, flagCarried|remoting.PullFlagCommitOffset, 0, "commitOffset", "2")
	n.raft.lead(3)
	if _, ok := n.tables.ConsumerOffset("g", "T", 0); ok {
		t.Error("a follower took an offset")
	}
}

// TestRecovering: before any leader is known nothing is answered from what may be old.
func TestRecovering(t *testing.T) {
	n := newNode(t, func(o *nodeOptions) { o.follower = true })
	n.putTopic("T", 1)
	c := n.dial()
	want(t, c.pull("g", "T", 0, 0, flagCarried, 0), remoting.ResponseServiceNotAvailable)
	n.raft.become(raftnode.State{Role: raftnode.Candidate, Term: 1})
	want(t, c.pull("g", "T", 0, 0, flagCarried, 0), remoting.ResponseServiceNotAvailable)
	n.raft.follow(2, testOther)
	want(t, c.pull("g", "T", 0, 0, flagCarried, 0), 19)
	n.raft.follow(3, "") // an election later on is another matter
	want(t, c.pull("g", "T", 0, 0, flagCarried, 0), 19)
}

func TestPullCommits(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	n.fill(c, "T", 0, "", "", "")
	c.pull("g", "T", 0, 2, flagCarried|remoting.PullFlagCommitOffset, 0, "commitOffset", "2")
	eventually(t, "the offset is committed", func() bool { o, _ := n.tables.ConsumerOffset("g", "T", 0); return o == 2 })
	before := n.raft.kinds[command.KindOffsetsCommit].Load()
	c.pull("g", "T", 0, 2, flagCarried|remoting.PullFlagCommitOffset, 0, "commitOffset", "-1")
	c.pull("g", "T", 0, 2, flagCarried|remoting.PullFlagCommitOffset, 0, "commitOffset", "2")
	c.pull("g", "T", 0, 3, flagCarried|remoting.PullFlagCommitOffset, 0, "commitOffset", "3")
	eventually(t, "the next offset is committed", func() bool { o, _ := n.tables.ConsumerOffset("g", "T", 0); return o == 3 })
	if got := n.raft.kinds[command.KindOffsetsCommit].Load(); got != before+1 {
		t.Errorf("%d commands, an offset that does not change needs none", got-before)
	}
}
