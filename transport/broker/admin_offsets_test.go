package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/transport/remoting"
)

func TestTimeSpan(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 2)
	c := n.dial()
	n.fill(c, "T", 0, "", "", "")
	commitOffsets(n, "g", "T", 2)
	want(t, c.call(remoting.RequestQueryConsumeTimeSpan, nil, "topic", "None", "group", "g"), 17, "topic[None] not exist")
	before := time.Now().UnixMilli()
	var got remoting.TimeSpans
	if err := json.Unmarshal(want(t, c.call(remoting.RequestQueryConsumeTimeSpan, nil, "topic", "T", "group", "g"), 0).Body, &got); err != nil || len(got.Queues) != 2 {
		t.Fatalf("%+v %v", got, err)
	}
	at := func(offset int64) int64 { return n.store.StoreTimeAt("T", 0, offset) }
	q := got.Queues[0]
	if q.MinTimeStamp != at(0) || q.MaxTimeStamp != at(2) || q.ConsumeTimeStamp != at(1) || q.DelayTime < before-at(2) || q.DelayTime > before-at(2)+waitLong.Milliseconds() || q.MessageQueue.QueueID != 0 {
		t.Errorf("%+v", q)
	}
	if q.MaxTimeStampStr != time.UnixMilli(at(2)).Format("2006-01-02#15:04:05:")+fmt.Sprintf("%03d", at(2)%1000) {
		t.Errorf("time %s of %d", q.MaxTimeStampStr, at(2))
	}
	// Of an empty queue there is nothing: -1, and the next message of a group without an offset is as old as that.
	if q := got.Queues[1]; q.MinTimeStamp != -1 || q.MaxTimeStamp != -1 || q.ConsumeTimeStamp != -1 || q.DelayTime < before {
		t.Errorf("%+v", q)
	}
}

func TestCorrectionOffsets(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 2)
	c := n.dial()
	n.fill(c, "T", 0, "", "", "")
	commitOffsets(n, "a", "T", 1, 5)
	commitOffsets(n, "b", "T", 2, 4)
	for _, tc := range []struct {
		filter, compare, want string
	}{
		{"", "a", `{"correctionOffsets":{"0":1,"1":4}}`},
		{"b", "b", `{"correctionOffsets":{"0":1,"1":` + fmt.Sprint(int64(math.MaxInt64)) + `}}`},
		{"a,b", "none", `{"correctionOffsets":{}}`},
	} {
		if r := want(t, c.call(remoting.RequestQueryCorrectionOffset, nil, "topic", "T", "filterGroups", tc.filter, "compareGroup", tc.compare), 0); string(r.Body) != tc.want {
			t.Errorf("%+v: %s", tc, r.Body)
		}
	}
}

func TestCloneOffsets(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 2)
	n.putTopic("U", 1)
	c := n.dial()
	commitOffsets(n, "src", "T", 3, 7)
	commitOffsets(n, "src", "U", 9)
	commitOffsets(n, "src", "Gone", 1)
	clone := func(to string, fields ...string) *remoting.Command {
		return c.call(remoting.RequestCloneGroupOffset, nil, append([]string{"srcGroup", "src", "destGroup", to}, fields...)...)
	}
	for _, tc := range []struct {
		to     string
		fields []string
		want   string
	}{
		{"one", []string{"topic", "T"}, "map[T:map[0:3 1:7]]"},
		{"all", nil, "map[T:map[0:3 1:7] U:map[0:9]]"},
		{"none", []string{"topic", "Gone"}, "map[]"},
	} {
		want(t, clone(tc.to, tc.fields...), 0, "")
		if got := fmt.Sprint(n.tables.GroupOffsets(tc.to)); got != tc.want {
			t.Errorf("%s: %s, want %s", tc.to, got, tc.want)
		}
	}
	// While the group is online, only what it subscribes to, unless the tool says otherwise.
	n.consumer("a@1", "src", "T", nil)
	want(t, clone("online"), 0)
	want(t, clone("offline", "offline", "true"), 0)
	if got := fmt.Sprint(n.tables.GroupOffsets("online"), n.tables.GroupOffsets("offline")); got != "map[T:map[0:3 1:7]] map[T:map[0:3 1:7] U:map[0:9]]" {
		t.Error(got)
	}
	if r := clone("bad name"); r.Code != 1 {
		t.Errorf("%+v", r)
	}
}

func TestBrokerConsumeStats(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	n.fill(c, "T", 0, "", "", "")
	must(n.tables.PutGroup(command.GroupPut{Group: command.DefaultGroup("g")}))
	commitOffsets(n, "g", "T", 1)
	commitOffsets(n, "g", "Gone", 1)
	r := want(t, c.call(remoting.RequestGetBrokerConsumeStats, nil, "isOrder", "false"), 0)
	part := fmt.Sprintf(`{"g":[{"consumeTps":0.0,"offsetTable":{{"brokerName":"peer-a","queueId":0,"topic":"T"}:{"brokerOffset":3,"consumerOffset":1,"lastTimestamp":%d}}}]}`, n.store.StoreTimeAt("T", 0, 0))
	if s := string(r.Body); !strings.HasPrefix(s, `{"brokerAddr":"`+n.addr+`","consumeStatsList":[{"CID_`) || !strings.Contains(s, part) || !strings.HasSuffix(s, `],"totalDiff":2}`) || !strings.Contains(s, `{"TOOLS_CONSUMER":[]}`) {
		t.Errorf("%s", s)
	}
	if r := want(t, c.call(remoting.RequestGetBrokerConsumeStats, nil, "isOrder", "true"), 0); !strings.Contains(string(r.Body), `{"g":[]}`) || !strings.HasSuffix(string(r.Body), `],"totalDiff":0}`) {
		t.Errorf("ordered topics: %s", r.Body)
	}
}

func TestConsumeQueue(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 1)
	c := n.dial()
	n.fill(c, "T", 0, "TagA", "", "TagB")
	n.waitReadable("T", 0, 3)
	query := func(index, count string, fields ...string) *remoting.Command {
		return want(t, c.call(remoting.RequestQueryConsumeQueue, nil, append([]string{"topic", "T", "queueId", "0", "index", index, "count", count}, fields...)...), 0)
	}
	unit := func(offset, code int64) string {
		m := n.stored("T", 0, offset)
		return fmt.Sprintf(`{"eval":false,"physicOffset":%d,"physicSize":%d,"tagsCode":%d}`, m.PhyOffset, m.Size(), code)
	}
	// The captured answer's shape.
	if r := query("0", "2", "consumerGroup", "g"); string(r.Body) != `{"filterData":"g@T is not online!","maxQueueIndex":3,"minQueueIndex":0,"queueData":[`+unit(0, 2598919)+`,`+unit(1, 0)+`]}` || r.Remark != "not set any response code" {
		t.Errorf("%q %s", r.Remark, r.Body)
	}
	if r := query("1", "99"); string(r.Body) != `{"maxQueueIndex":3,"minQueueIndex":0,"queueData":[`+unit(1, 0)+`,`+unit(2, 2598920)+`]}` {
		t.Errorf("%s", r.Body)
	}
	n.consumer("a@1", "g", "T", nil)
	if r := query("2", "0", "consumerGroup", "g"); !strings.Contains(string(r.Body), `"filterData":"null"`) || !strings.Contains(string(r.Body), `"queueData":[],"subscriptionData":{`) {
		t.Errorf("%s", r.Body)
	}
	for _, index := range []string{"3", "-1"} {
		if r := query(index, "1"); r.Remark != "Index "+index+" of 0@T is not exist!" || len(r.Body) > 0 {
			t.Errorf("%+v", r)
		}
	}
	want(t, c.call(remoting.RequestQueryConsumeQueue, nil, "topic", "T", "queueId", "x", "index", "0", "count", "1"), 1)
}

func TestLists(t *testing.T) {
	n := newNode(t)
	c := n.dial()
	want(t, c.call(remoting.RequestUpdateAndCreateTopicList, []byte(`{"topicConfigList":[{"topicName":"A","readQueueNums":2,"writeQueueNums":2},{"topicName":"B"}]}`)), 0)
	if b, ok := n.tables.Topic("B"); !ok || b.WriteQueueNums != 16 || b.Perm != 6 {
		t.Errorf("%+v", b)
	}
	// All or nothing, as far as that can be told before.
	for body, remark := range map[string]string{
		`{"topicConfigList":[{"topicName":"C"},{"topicName":"TBW102"}]}`:               "conflict with system topic",
		`{"topicConfigList":[{"topicName":"C"},{"topicName":"D","perm":99}]}`:          "perm 99",
		`{"topicConfigList":[{"topicName":"C"},{"topicName":"D","readQueueNums":-1}]}`: "readQueueNums -1",
		`nonsense`: "topic list",
	} {
		if r := c.call(remoting.RequestUpdateAndCreateTopicList, []byte(body)); r.Code != 1 || !strings.Contains(r.Remark, remark) {
			t.Errorf("%s: %+v", body, r)
		}
	}
	if _, ok := n.tables.Topic("C"); ok {
		t.Error("one was created")
	}
	want(t, c.call(remoting.RequestUpdateAndCreateSubscriptionGroupList, []byte(`{"groupConfigList":[{"groupName":"g","retryMaxTimes":3},{"groupName":"h"}]}`)), 0)
	for _, body := range []string{`nonsense`, `{"groupConfigList":[{"groupName":"i"},{"groupName":"a b"}]}`} {
		want(t, c.call(remoting.RequestUpdateAndCreateSubscriptionGroupList, []byte(body)), 1)
	}
	if r := want(t, c.call(remoting.RequestGetSubscriptionGroupConfig, nil, "group", "g"), 0); !strings.Contains(string(r.Body), `"groupName":"g"`) || !strings.Contains(string(r.Body), `"retryMaxTimes":3`) {
		t.Errorf("%s", r.Body)
	}
	want(t, c.call(remoting.RequestGetSubscriptionGroupConfig, nil, "group", "none"), 26)
	n.raft.lose.Store(errPointer(errTest))
	if r := want(t, c.call(remoting.RequestUpdateAndCreateTopicList, []byte(`{"topicConfigList":[{"topicName":"E"}]}`)), 1); !strings.HasPrefix(r.Remark, "0 of 1 were changed: ") {
		t.Errorf("%+v", r)
	}
	commitOffsets(n, "g", "A", 1)
	if r := want(t, c.call(remoting.RequestQueryTopicsByConsumer, nil, "group", "g"), 0); string(r.Body) != `{"topicList":["A"]}` {
		t.Errorf("%s", r.Body)
	}
	if r := want(t, c.call(remoting.RequestQuerySubscriptionByConsumer, nil, "group", "g", "topic", "A"), 0); string(r.Body) != `{"group":"g","topic":"A"}` {
		t.Errorf("%s", r.Body)
	}
	n.consumer("a@1", "g", "A", nil)
	if r := want(t, c.call(remoting.RequestQuerySubscriptionByConsumer, nil, "group", "g", "topic", "A"), 0); !strings.Contains(string(r.Body), `"subscriptionData":{`) {
		t.Errorf("%s", r.Body)
	}
	if r := want(t, c.call(remoting.RequestPopMessage, nil), 3); !strings.Contains(r.Remark, "does not serve POP consumption (POP_MESSAGE)") {
		t.Errorf("%+v", r)
	}
}

// TestUpdateConfig: all changes are checked before the first is made, and what was changed is shown.
func TestUpdateConfig(t *testing.T) {
	checked := map[string]string{}
	n := newNode(t, func(o *nodeOptions) {
		o.config = func(c *Config) {
			c.Properties = map[string]string{"good": "flag"}
			c.CheckSetting = func(name, value string) error {
				checked[name] = value
				if name == "bad" {
					return errors.New("bad cannot be changed")
				}
				return nil
			}
		}
	})
	c := n.dial()
	update := func(body string) *remoting.Command { return c.call(remoting.RequestUpdateBrokerConfig, []byte(body)) }
	config := func() string { return string(want(t, c.call(remoting.RequestGetBrokerConfig, nil), 0).Body) }
	want(t, update("good=1\nbad=2\n"), 1, "bad cannot be changed")
	if n.tables.KVNamespace(metadata.SettingsNamespace) != nil || !strings.Contains(config(), "good=flag\n") {
		t.Error("something was changed")
	}
	want(t, update("#comment\n\n good = 02;14 \nother=x=y"), 0, "")
	if v := n.tables.KVNamespace(metadata.SettingsNamespace); fmt.Sprint(v) != "map[good:02;14 other:x=y]" || !strings.Contains(config(), "good=02;14\n") {
		t.Errorf("%v", v)
	}
	want(t, update("good=\nnever="), 0)
	if v := n.tables.KVNamespace(metadata.SettingsNamespace); fmt.Sprint(v) != "map[other:x=y]" || !strings.Contains(config(), "good=flag\n") {
		t.Errorf("%v", v)
	}
	if checked["other"] != "x=y" {
		t.Errorf("checked %v", checked)
	}
	want(t, update(""), 0)
	n.raft.lose.Store(errPointer(errTest))
	want(t, update("good=3"), 1)
}
