package broker

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"raftmq/commitlog/record"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/fsm/raftnode"
	"raftmq/transport/remoting"
)

func backFields(group string, offset int64, level int, more ...string) []string {
	return append([]string{"group", group, "offset", strconv.FormatInt(offset, 10), "delayLevel", strconv.Itoa(level),
		"originMsgId", "id", "originTopic", "T", "unitMode", "false"}, more...)
}

func (c *conn) sendBack(group string, offset int64, level int, more ...string) *remoting.Command {
	c.t.Helper()
	return c.call(remoting.RequestConsumerSendMsgBack, nil, backFields(group, offset, level, more...)...)
}

// phyOffset is where the send's record is.
func phyOffset(t *testing.T, resp *remoting.Command) int64 {
	t.Helper()
	_, off, err := record.ParseMessageID(string(sendResponse(t, resp).MsgID))
	if err != nil {
		t.Fatal(err)
	}
	return off
}

// The properties are those of the golden stores' messages in SCHEDULE_TOPIC_XXXX and %DLQ%golden_dlq_cg.
func TestSendBack(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	sent := c.send("T", 0, "KEYS\x01k\x02UNIQ_KEY\x01u\x02TAGS\x01a", []byte("fails"), "flag", "5")
	id := string(sendResponse(t, sent).MsgID)
	source := phyOffset(t, sent)
	want(t, c.sendBack("g", source, 0), 0)
	m := n.stored(metadata.ScheduleTopic, 2, 0) // level 3: the first time
	if m.ReconsumeTimes != 1 || m.Flag != 5 || string(m.Body) != "fails" || m.BornTimestamp != 1700000000000 || m.StoreHost.String() != n.addr {
		t.Errorf("stored %+v", m)
	}
	wantProperties(t, m.Properties, map[string]string{"KEYS": "k", "UNIQ_KEY": "u", "TAGS": "a", "CLUSTER": testCluster, "WAIT": "false", "DELAY": "3",
		"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": id, "REAL_TOPIC": "%RETRY%g", "REAL_QID": "0"})
	if r, ok := n.tables.Topic("%RETRY%g"); !ok || r.WriteQueueNums != 1 || r.Perm != 6 {
		t.Errorf("retry topic %+v", r)
	}
	if _, ok := n.tables.Group("g"); !ok {
		t.Error("the group was not created")
	}

	// What is sent back again remembers the first topic and id, and goes to the dead letters in the end. The
	// retry as it is delivered has another topic and nothing else of interest here.
	again := c.send("%RETRY%g", 0, string(m.Properties)+"\x02DELAY\x010", []byte("fails"), "reconsumeTimes", "1")
	retried := phyOffset(t, again)
	want(t, c.sendBack("g", retried, 99), 0)
	m = n.stored(metadata.ScheduleTopic, 17, 0)
	if p := propertiesOf(m.Properties); m.ReconsumeTimes != 2 || p["DELAY"] != "18" || p["RETRY_TOPIC"] != "T" || p["ORIGIN_MESSAGE_ID"] != id || p["REAL_TOPIC"] != "%RETRY%g" {
		t.Errorf("second time: %+v", m)
	}
	want(t, c.sendBack("g", retried, 1, "maxReconsumeTimes", "1"), 0)
	m = n.stored("%DLQ%g", 0, 0)
	if m.ReconsumeTimes != 2 || string(m.Body) != "fails" {
		t.Errorf("dead letter %+v", m)
	}
	wantProperties(t, m.Properties, map[string]string{"KEYS": "k", "UNIQ_KEY": "u", "TAGS": "a", "CLUSTER": testCluster, "WAIT": "false", "DELAY": "0",
		"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": id, "REAL_TOPIC": "%RETRY%g", "REAL_QID": "0"})
	if d, ok := n.tables.Topic("%DLQ%g"); !ok || d.WriteQueueNums != 1 || d.Perm != 6 {
		t.Errorf("dead letter topic %+v", d)
	}
}

func TestSendBackTargets(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	limited := command.DefaultGroup("limited")
	limited.RetryMaxTimes = 2
	must(n.tables.PutGroup(command.GroupPut{Group: limited}))
	c := n.dial()
	for _, tc := range []struct {
		group, reconsume string
		level            int
		more             []string
		want             string
	}{
		{"g", "0", 5, nil, "SCHEDULE_TOPIC_XXXX/4"},
		{"g", "4", 0, nil, "SCHEDULE_TOPIC_XXXX/6"},
		{"g", "0", -1, nil, "%DLQ%g/0"},
		{"g", "16", 5, nil, "%DLQ%g/0"},
		{"g", "16", 5, []string{"maxReconsumeTimes", "20"}, "SCHEDULE_TOPIC_XXXX/4"},
		{"g", "0", 5, []string{"maxReconsumeTimes", "0"}, "%DLQ%g/0"},
		{"limited", "1", 5, nil, "SCHEDULE_TOPIC_XXXX/4"},
		{"limited", "2", 5, nil, "%DLQ%limited/0"},
	} {
		source := phyOffset(t, c.send("T", 0, "", []byte("x"), "reconsumeTimes", tc.reconsume))
		queues := []string{"SCHEDULE_TOPIC_XXXX/4", "SCHEDULE_TOPIC_XXXX/6", "%DLQ%g/0", "%DLQ%limited/0"}
		end := func(q string) int64 {
			topic, id, _ := strings.Cut(q, "/")
			i, _ := strconv.Atoi(id)
			return n.store.MaxOffset(topic, int32(i))
		}
		before := map[string]int64{}
		for _, q := range queues {
			before[q] = end(q)
		}
		want(t, c.sendBack(tc.group, source, tc.level, tc.more...), 0)
		for _, q := range queues {
			grew := end(q) - before[q]
			if grew != 0 && q != tc.want || grew != 1 && q == tc.want {
				t.Errorf("%+v: %s grew by %d", tc, q, grew)
			}
		}
	}
}

func TestSendBackRefusals(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	must(n.tables.PutGroup(command.GroupPut{Group: command.GroupConfig{GroupName: "none", RetryQueueNums: 0}}))
	must(n.tables.PutTopic(command.TopicPut{Topic: command.TopicConfig{TopicName: "%RETRY%sealed", ReadQueueNums: 1, WriteQueueNums: 1, Perm: metadata.PermRead}}))
	must(n.tables.PutTopic(command.TopicPut{Topic: command.TopicConfig{TopicName: "%DLQ%g", ReadQueueNums: 1, WriteQueueNums: 1, Perm: metadata.PermRead}}))
	c := n.dial()
	source := phyOffset(t, c.send("T", 0, "", []byte("x")))
	full := phyOffset(t, c.send("T", 0, "a\x01"+strings.Repeat("x", record.MaxPropertiesLen-30), []byte("x")))
	for name, tc := range map[string]struct {
		group  string
		offset int64
		level  int
		code   int32
		remark string
	}{
		"no record":       {"g", 1 << 40, 1, 1, fmt.Sprintf("look message by offset failed, %d", int64(1)<<40)},
		"inside a record": {"g", source + 4, 1, 1, fmt.Sprintf("look message by offset failed, %d", source+4)},
		"below 0":         {"g", -1, 1, 1, "look message by offset failed, -1"},
		"no retries":      {"none", source, 1, 0, ""},
		"retry sealed":    {"sealed", source, 1, 16, "the topic[%RETRY%sealed] sending message is forbidden"},
		"dead sealed":     {"g", source, -1, 16, "the topic[%DLQ%g] sending message is forbidden"},
		"no room":         {"g", full, 1, 1, "MESSAGE_ILLEGAL"},
		"long group":      {strings.Repeat("g", 125), source, 1, 1, "The specified topic is longer than topic max length."},
	} {
		_, before := n.store.LogRange()
		want(t, c.sendBack(tc.group, tc.offset, tc.level), tc.code, tc.remark)
		if _, after := n.store.LogRange(); after != before {
			t.Errorf("%s: something was stored", name)
		}
	}
}

// On a follower and through an election a message that is sent back gets where it belongs, without an error.
func TestSendBackElsewhere(t *testing.T) {
	leader := newNode(t)
	leader.putTopic("T", 1)
	follower := followerOf(t, leader)
	source := phyOffset(t, leader.dial().send("T", 0, "", []byte("x")))
	follower.raft.follow(1, testOther)
	c := follower.dial()
	want(t, c.sendBack("g", source, 1), 0)
	if got := leader.store.MaxOffset(metadata.ScheduleTopic, 0); got != 1 {
		t.Errorf("the leader has %d", got)
	}
	answer := make(chan *remoting.Command, 1)
	back := func() { answer <- c.sendBack("g", source, 1) }

	// The leader loses its leadership before it has proposed, and while the command is in flight.
	leader.raft.follow(2, testOther)
	go back()
	eventually(t, "it waits", func() bool { return leader.broker.waiting.Load()+follower.broker.waiting.Load() >= 1 })
	leader.raft.lead(3)
	want(t, <-answer, 0)
	leader.raft.lose.Store(errPointer(raftnode.ErrLeadershipLost))
	go back()
	want(t, <-answer, 0)
	leader.raft.refuse.Store(errPointer(raftnode.ErrBusy))
	go back()
	eventually(t, "it tries again", func() bool { return leader.broker.waiting.Load() == 1 })
	leader.raft.refuse.Store(nil)
	want(t, <-answer, 0)
	if got := leader.store.MaxOffset(metadata.ScheduleTopic, 0); got != 4 {
		t.Errorf("the leader has %d, want 4", got)
	}

	// Nobody leads for long: the connection closes, and there is no error code.
	leader.raft.follow(4, "")
	follower.raft.follow(4, "")
	closed := follower.dial()
	if resp, err := closed.Invoke(t.Context(), request(remoting.RequestConsumerSendMsgBack, nil, backFields("g", source, 1)...)); err == nil {
		t.Errorf("answered %d %q", resp.Code, resp.Remark)
	}
}
