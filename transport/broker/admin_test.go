package broker

import (
	"fmt"
	"strings"
	"testing"

	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/transport/remoting"
)

func topicFields(topic string, more ...string) []string {
	return append([]string{"topic", topic, "defaultTopic", "TBW102", "readQueueNums", "3", "writeQueueNums", "2", "perm", "6", "topicFilterType", "SINGLE_TAG", "topicSysFlag", "0", "order", "true"}, more...)
}

func TestTopicAdministration(t *testing.T) {
	n := newNode(t)
	c := n.dial()
	put := func(topic string, more ...string) *remoting.Command {
		return c.call(remoting.RequestUpdateAndCreateTopic, nil, topicFields(topic, more...)...)
	}
	want(t, put("A"), 0, "not set any response code")
	// The order field is ignored, as in 4.9.4.
	if got, _ := n.tables.Topic("A"); got.ReadQueueNums != 3 || got.WriteQueueNums != 2 || got.Perm != 6 || got.Order {
		t.Errorf("%+v", got)
	}
	want(t, put("A", "writeQueueNums", "5", "perm", "4"), 0)
	if got, _ := n.tables.Topic("A"); got.WriteQueueNums != 5 || got.Perm != 4 {
		t.Errorf("%+v", got)
	}
	for _, more := range [][]string{{"perm", "x"}, {"perm", "99"}, {"readQueueNums", "-1"}, {"writeQueueNums", "70000"}, {"topicFilterType", "NONSENSE"}} {
		if r := put("B", more...); r.Code != 1 || r.Remark == "" {
			t.Errorf("%v: %d %q", more, r.Code, r.Remark)
		}
	}
	for _, topic := range []string{"TBW102", testCluster, testBroker, "SCHEDULE_TOPIC_XXXX", "rmq_sys_x"} {
		want(t, put(topic), 1, "The topic["+topic+"] is conflict with system topic.")
		want(t, c.call(remoting.RequestDeleteTopicInBroker, nil, "topic", topic), 1, "The topic["+topic+"] is conflict with system topic.")
	}
	var all remoting.TopicConfigSerializeWrapper
	var one remoting.TopicConfig
	if err := one.Decode(want(t, c.call(remoting.RequestGetTopicConfig, nil, "topic", "A"), 0).Body); err != nil || one.TopicName != "A" || one.WriteQueueNums != 5 {
		t.Errorf("config of A: %+v, %v", one, err)
	}
	want(t, c.call(remoting.RequestGetTopicConfig, nil, "topic", "Nowhere"), remoting.ResponseTopicNotExist, "topic[Nowhere] not exist")
	if err := all.Decode(want(t, c.call(remoting.RequestGetAllTopicConfig, nil), 0).Body); err != nil || all.TopicConfigTable["A"].WriteQueueNums != 5 || all.DataVersion.Counter == 0 {
		t.Errorf("%+v %v", all, err)
	}
	if all.TopicConfigTable["A"].Order || one.Order {
		t.Error("A is ordered, without an entry in the order configuration")
	}
	if err := n.tables.PutKV(command.KVPut{Namespace: metadata.OrderNamespace, Key: "A", Value: testBroker + ":5"}); err != nil {
		t.Fatal(err)
	}
	if err := all.Decode(want(t, c.call(remoting.RequestGetAllTopicConfig, nil), 0).Body); err != nil || !all.TopicConfigTable["A"].Order {
		t.Errorf("%+v %v", all, err)
	}
	if err := one.Decode(want(t, c.call(remoting.RequestGetTopicConfig, nil, "topic", "A"), 0).Body); err != nil || !one.Order {
		t.Errorf("config of A: %+v, %v", one, err)
	}
	n.putTopic("S", 2)
	n.fill(c, "S", 1, "", "")
	var stats remoting.TopicStatsTable
	if err := stats.Decode(want(t, c.call(remoting.RequestGetTopicStatsInfo, nil, "topic", "S"), 0).Body); err != nil || len(stats.OffsetTable) != 2 {
		t.Fatalf("%+v %v", stats, err)
	}
	if s := stats.OffsetTable[1]; s.Queue != (remoting.MessageQueue{BrokerName: testBroker, QueueID: 1, Topic: "S"}) || s.MaxOffset != 2 || s.LastUpdateTimestamp != n.store.StoreTimeAt("S", 1, 1) {
		t.Errorf("%+v", s)
	}
	want(t, c.call(remoting.RequestGetTopicStatsInfo, nil, "topic", "None"), 17, "topic[None] not exist")
	want(t, c.call(remoting.RequestDeleteTopicInBroker, nil, "topic", "S"), 0)
	want(t, c.call(remoting.RequestDeleteTopicInBroker, nil, "topic", "S"), 0) // deleted already
	if _, ok := n.tables.Topic("S"); ok {
		t.Error("still there")
	}
}

func TestGroupAdministration(t *testing.T) {
	n := newNode(t)
	n.putTopic("T", 2)
	c := n.dial()
	in := remoting.DefaultSubscriptionGroup("g")
	in.RetryMaxTimes, in.ConsumeBroadcastEnable = 5, false
	want(t, c.call(remoting.RequestUpdateAndCreateSubscriptionGroup, in.Encode()), 0)
	if g, _ := n.tables.Group("g"); g.RetryMaxTimes != 5 || g.ConsumeBroadcastEnable || !g.ConsumeEnable || g.RetryQueueNums != 1 {
		t.Errorf("%+v", g)
	}
	for _, body := range []string{"", "{nonsense", `{"groupName":""}`, `{"groupName":"a b"}`, `{"groupName":"` + strings.Repeat("x", 256) + `"}`, `{"groupName":"g2","retryQueueNums":70000}`} {
		if r := c.call(remoting.RequestUpdateAndCreateSubscriptionGroup, []byte(body)); r.Code != 1 || r.Remark == "" {
			t.Errorf("%.30q: %d %q", body, r.Code, r.Remark)
		}
	}
	var all remoting.SubscriptionGroupTable
	if err := all.Decode(want(t, c.call(remoting.RequestGetAllSubscriptionGroupConfig, nil), 0).Body); err != nil || all.SubscriptionGroupTable["g"].RetryMaxTimes != 5 || all.SubscriptionGroupTable["TOOLS_CONSUMER"].GroupName == "" {
		t.Errorf("%+v %v", all, err)
	}
	n.fill(c, "T", 0, "", "", "")
	must(n.tables.CommitOffsets(command.OffsetsCommit{Offsets: []command.ConsumerOffset{{Topic: "T", Group: "g", QueueID: 0, Offset: 2}}}))
	stats := func(fields ...string) (s remoting.ConsumeStats) {
		t.Helper()
		if err := s.Decode(want(t, c.call(remoting.RequestGetConsumeStats, nil, fields...), 0).Body); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := stats("consumerGroup", "g")
	if len(s.OffsetTable) != 2 || s.OffsetTable[0].BrokerOffset != 3 || s.OffsetTable[0].ConsumerOffset != 2 || s.OffsetTable[0].LastTimestamp != n.store.StoreTimeAt("T", 0, 1) || s.OffsetTable[1].ConsumerOffset != 0 {
		t.Errorf("%+v", s)
	}
	if s := stats("consumerGroup", "nobody"); len(s.OffsetTable) != 0 {
		t.Errorf("%+v", s)
	}
	if s := stats("consumerGroup", "g", "topic", "None"); len(s.OffsetTable) != 0 {
		t.Errorf("%+v", s)
	}
	want(t, c.call(remoting.RequestGetConsumerConnectionList, nil, "consumerGroup", "g"), 206, "the consumer group[g] not online")
	c.beat("c@1", "g", "T")
	r := want(t, c.call(remoting.RequestGetConsumerConnectionList, nil, "consumerGroup", "g"), 0)
	for _, part := range []string{`"clientId":"c@1"`, `"language":"GO"`, `"version":401`, `"consumeType":"CONSUME_PASSIVELY"`, `"subscriptionTable":{"T":{"classFilterMode":false,"codeSet":[],"expressionType":"TAG","subString":"*","subVersion":1,"tagsSet":[],"topic":"T"}}`} {
		if !strings.Contains(string(r.Body), part) {
			t.Errorf("%s lacks %s", r.Body, part)
		}
	}
	if r := want(t, c.call(remoting.RequestGetProducerConnectionList, nil, "producerGroup", "pg-g"), 0); !strings.Contains(string(r.Body), `"clientId":"c@1"`) {
		t.Errorf("%s", r.Body)
	}
	if r := want(t, c.call(remoting.RequestQueryTopicConsumeByWho, nil, "topic", "T"), 0); string(r.Body) != `{"groupList":["g"]}` {
		t.Errorf("%s", r.Body)
	}
	if r := want(t, c.call(remoting.RequestQueryTopicConsumeByWho, nil, "topic", "None"), 0); string(r.Body) != `{"groupList":[]}` {
		t.Errorf("%s", r.Body)
	}
	want(t, c.call(remoting.RequestDeleteSubscriptionGroup, nil, "groupName", "g", "removeOffset", "true"), 0)
	want(t, c.call(remoting.RequestDeleteSubscriptionGroup, nil, "groupName", "g"), 0)
	if _, ok := n.tables.ConsumerOffset("g", "T", 0); ok {
		t.Error("offsets are still there")
	}
}

func TestRuntimeInfo(t *testing.T) {
	n := newNode(t, func(o *nodeOptions) { o.config = func(c *Config) { c.Properties = map[string]string{"note": "a\nb"} } })
	n.putTopic("T", 1)
	c := n.dial()
	n.fill(c, "T", 0, "", "", "")
	c.pull("g", "T", 0, 0, flagCarried, 0)
	var info remoting.KVTable
	if err := info.Decode(want(t, c.call(remoting.RequestGetBrokerRuntimeInfo, nil), 0).Body); err != nil {
		t.Fatal(err)
	}
	for key, value := range map[string]string{"brokerVersionDesc": "V4_9_4", "brokerVersion": "401", "putMessageTimesTotal": "3", "msgGetTotalTodayNow": "3",
		"commitLogMaxOffset": fmt.Sprint(n.store.Stats().MaxOffset), "sendThreadPoolQueueSize": "0", "brokerActive": "true"} {
		if info.Table[key] != value {
			t.Errorf("%s is %q, want %q", key, info.Table[key], value)
		}
	}
	// Three figures, empty as long as there are too few samples; the sum of two is 0.0 then.
	for _, key := range []string{"putTps", "getTransferedTps", "getTransferredTps", "getFoundTps", "getMissTps"} {
		if info.Table[key] != "  " {
			t.Errorf("%s is %q", key, info.Table[key])
		}
	}
	if got := info.Table["getTotalTps"]; got != "0.0 0.0 0.0" {
		t.Errorf("getTotalTps is %q", got)
	}
	r := want(t, c.call(remoting.RequestGetBrokerConfig, nil), 0)
	for _, line := range []string{"brokerName=" + testBroker, "brokerClusterName=" + testCluster, "brokerId=0", "flushDiskType=ASYNC_FLUSH", "maxMessageSize=4194304", `note=a\nb`,
		"brokerRole=SYNC_MASTER", "filterServerNums=0", "traceOn=true", "msgTraceTopicName=RMQ_SYS_TRACE_TOPIC", "useTLS=false"} {
		if !strings.Contains("\n"+string(r.Body), "\n"+line+"\n") {
			t.Errorf("%q is missing in\n%s", line, r.Body)
		}
	}
	if !strings.HasPrefix(r.GetString("version"), `{"counter":`) {
		t.Errorf("version %q", r.GetString("version"))
	}
}

func TestAdministrationLost(t *testing.T) {
	n := newNode(t)
	c := n.dial()
	n.raft.lose.Store(errPointer(errTest))
	if r := c.call(remoting.RequestUpdateAndCreateTopic, nil, topicFields("A")...); r.Code != 1 || !strings.Contains(r.Remark, "test error") {
		t.Errorf("%d %q", r.Code, r.Remark)
	}
}
