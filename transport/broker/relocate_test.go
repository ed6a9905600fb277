package broker

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/transport/remoting"
)

// stored returns the record at an offset of a queue.
func (n *node) stored(topic string, queue int32, offset int64) (m record.Message) {
	n.t.Helper()
	n.waitReadable(topic, queue, offset+1)
	var res store.GetResult
	n.store.Get(&store.GetRequest{Topic: []byte(topic), QueueID: queue, Offset: offset, MaxMsgs: 1}, &res)
	if res.Status != store.Found {
		n.t.Fatalf("%s/%d at %d: %v", topic, queue, offset, res.Status)
	}
	rec := append([]byte{}, res.Buffers[0]...)
	res.Release()
	if _, err := record.Decode(rec, &m); err != nil {
		n.t.Fatal(err)
	}
	return m
}

func propertiesOf(text []byte) map[string]string {
	m := map[string]string{}
	record.RangeProperties(text, func(name, value []byte) bool {
		m[string(name)] = string(value)
		return true
	})
	return m
}

func wantProperties(t *testing.T, text []byte, want map[string]string) {
	t.Helper()
	if got := propertiesOf(text); !maps.Equal(got, want) || strings.Count(string(text), "\x01") != len(want) {
		t.Errorf("properties %q, want %v", text, want)
	}
}

// What a 4.9.4 broker stores for the same messages: see the delayed ones of its golden stores.
func TestDelayedMessage(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 4)
	c := n.dial()
	for i, tc := range []struct {
		delay string
		queue int32
		level string
	}{{"3", 2, "3"}, {"18", 17, "18"}, {"99", 17, "18"}, {"+1", 0, "1"}} {
		props := "KEYS\x01k\x02DELAY\x01" + tc.delay + "\x02REAL_TOPIC\x01elsewhere\x02WAIT\x01true\x02TAGS\x01a\x02"
		before := n.store.MaxOffset(metadata.ScheduleTopic, tc.queue)
		resp := sendResponse(t, c.send("T", 1, props, []byte("late"), "flag", "7", "reconsumeTimes", "2"))
		if resp.QueueID != 1 || resp.QueueOffset != before {
			t.Errorf("%s: answered queue %d offset %d, want the requested queue 1 and the schedule queue's offset %d", tc.delay, resp.QueueID, resp.QueueOffset, before)
		}
		m := n.stored(metadata.ScheduleTopic, tc.queue, before)
		if m.Flag != 7 || m.ReconsumeTimes != 2 || string(m.Body) != "late" || m.SysFlag != 0 || m.PhyOffset < 0 {
			t.Errorf("case %d: stored %+v", i, m)
		}
		wantProperties(t, m.Properties, map[string]string{"KEYS": "k", "DELAY": tc.level, "WAIT": "true", "TAGS": "a", "CLUSTER": testCluster, "REAL_TOPIC": "T", "REAL_QID": "1"})
	}
	// Levels that are none.
	for _, delay := range []string{"0", "-1"} {
		before := n.store.MaxOffset("T", 1)
		want(t, c.send("T", 1, "DELAY\x01"+delay, []byte("now")), 0)
		if n.store.MaxOffset("T", 1) != before+1 {
			t.Errorf("level %s was not stored at once", delay)
		}
	}
	if want(t, c.send("T", 1, "DELAY\x01x", []byte("?")), 1); n.store.MaxOffset("T", 1) != 2 || n.store.MaxOffset("T", 0) != 0 {
		t.Error("a delayed message is in its topic")
	}
}

func TestDelayLevelsOfTheCluster(t *testing.T) {
	n := newNode(t, func(o *nodeOptions) { o.settings.MessageDelayLevel = "1s 1h" })
	n.putTopic("T", 1)
	want(t, n.dial().send("T", 0, "DELAY\x019", []byte("x")), 0)
	if m := n.stored(metadata.ScheduleTopic, 1, 0); propertiesOf(m.Properties)["DELAY"] != "2" {
		t.Errorf("properties %q", m.Properties)
	}
}

// The message must fit the log, and a command, when it is delivered too.
func TestDelayedMessageSizes(t *testing.T) {
	const segment = 64 << 10
	n := newNode(t, func(o *nodeOptions) {
		o.settings.SegmentSize, o.store.SegmentSize = segment, segment
	})
	long := strings.Repeat("t", record.MaxTopicLen)
	n.putTopic(long, 1)
	c := n.dial()
	overhead := record.MinSize + len(metadata.ScheduleTopic) + record.BlankMinSize + len("CLUSTER=PeerCluster;DELAY=1;REAL_TOPIC=;REAL_QID=0") + len(long)
	want(t, c.send(long, 0, "DELAY\x011", make([]byte, segment-overhead)), remoting.ResponseMessageIllegal)
	want(t, c.send(long, 0, "DELAY\x011", make([]byte, segment-overhead-200)), 0)
	want(t, c.send(long, 0, "DELAY\x011\x02a\x01"+strings.Repeat("x", 32700), []byte("x")), remoting.ResponseMessageIllegal)
	if got := n.store.MaxOffset(metadata.ScheduleTopic, 0); got != 1 {
		t.Errorf("%d messages wait", got)
	}
}

// GO-HEAD and Java fall back to a plain send when a send-back fails (wire notes §3.10).
func TestRetryFallback(t *testing.T) {
	n := newNode(t)
	must(n.tables.PutGroup(command.GroupPut{Group: command.DefaultGroup("g")}))
	c := n.dial()
	props := "RETRY_TOPIC\x01T\x02ORIGIN_MESSAGE_ID\x01id\x02DELAY\x015\x02TRAN_MSG\x01true\x02PGROUP\x01pg"
	want(t, c.send("%RETRY%g", 0, props, []byte("again"), "reconsumeTimes", "2", "maxReconsumeTimes", "16"), 0)
	m := n.stored(metadata.ScheduleTopic, 4, 0)
	if m.ReconsumeTimes != 2 {
		t.Errorf("reconsume times %d", m.ReconsumeTimes)
	}
	wantProperties(t, m.Properties, map[string]string{"RETRY_TOPIC": "T", "ORIGIN_MESSAGE_ID": "id", "DELAY": "5", "TRAN_MSG": "true", "PGROUP": "pg",
		"CLUSTER": testCluster, "REAL_TOPIC": "%RETRY%g", "REAL_QID": "0"})
}

func TestHalfMessage(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 4)
	c := n.dial()
	for i := range 2 {
		resp := sendResponse(t, c.send("T", 3, "KEYS\x01k\x02TRAN_MSG\x01true\x02PGROUP\x01pg\x02DELAY\x013\x02WAIT\x01true\x02", []byte("maybe"), "sysFlag", fmt.Sprint(record.SysFlagPrepared|record.SysFlagCompressed)))
		if resp.QueueID != 3 || resp.QueueOffset != int64(i) {
			t.Errorf("answered queue %d offset %d, want 3 and the half queue's offset %d", resp.QueueID, resp.QueueOffset, i)
		}
		m := n.stored(metadata.HalfTopic, 0, int64(i))
		if m.SysFlag != record.SysFlagCompressed || string(m.Body) != "maybe" {
			t.Errorf("stored %+v", m)
		}
		wantProperties(t, m.Properties, map[string]string{"KEYS": "k", "TRAN_MSG": "true", "PGROUP": "pg", "WAIT": "true", "CLUSTER": testCluster, "REAL_TOPIC": "T", "REAL_QID": "3"})
	}
	if topic, ok := n.tables.Topic(metadata.HalfTopic); !ok || topic.WriteQueueNums != 1 || topic.Perm != 6 {
		t.Errorf("half topic %+v", topic)
	}
	if n.store.MaxOffset("T", 3) != 0 {
		t.Error("a half message is visible")
	}
	// The connection can be asked about the group before its first heartbeat, and no longer once it is closed.
	if p := n.groups.Producers("pg"); len(p) != 1 || p[0].Language != remoting.LanguageGo {
		t.Errorf("producers %+v", p)
	}
	_ = c.Close()
	eventually(t, "the closed connection is forgotten", func() bool { return len(n.groups.Producers("pg")) == 0 })
}
