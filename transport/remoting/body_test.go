package remoting

import (
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
)

func TestBodyDefaults(t *testing.T) {
	var g SubscriptionGroupConfig
	if err := g.Decode([]byte(`{"groupName":"g","consumeEnable":false}`)); err != nil {
		t.Fatal(err)
	}
	want := DefaultSubscriptionGroup("g")
	want.ConsumeEnable = false
	if !reflect.DeepEqual(g, want) {
		t.Errorf("group %+v, want %+v", g, want)
	}
	var c TopicConfig
	if err := c.Decode([]byte(`{"topicName":"T","perm":4}`)); err != nil {
		t.Fatal(err)
	}
	if want := (TopicConfig{TopicName: "T", Perm: PermRead, ReadQueueNums: 16, WriteQueueNums: 16, TopicFilterType: FilterSingleTag}); !reflect.DeepEqual(c, want) {
		t.Errorf("topic %+v, want %+v", c, want)
	}
	var k CheckClientConfig
	if err := k.Decode([]byte(`{"clientId":"c","group":"g","subscriptionData":{"topic":"T","expressionType":null}}`)); err != nil {
		t.Fatal(err)
	}
	if k.SubscriptionData.ExpressionType != ExpressionTag {
		t.Errorf("expression type %q", k.SubscriptionData.ExpressionType)
	}
}

// TestEmptyBodies: nothing may become null, which Go and Java clients trip over.
func TestEmptyBodies(t *testing.T) {
	for want, b := range map[string]body{
		`{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}`: new(TopicRouteData),
		`{"brokerAddrTable":{},"clusterAddrTable":{}}`:              new(ClusterInfo),
		`{"topicList":[]}`:      new(TopicList),
		`{"table":{}}`:          new(KVTable),
		`{"consumerIdList":[]}`: new(ConsumerList),
		`{"lockOKMQSet":[]}`:    new(LockBatchResponse),
		`{"clientId":"","consumerGroup":"","mqSet":[]}`:                           new(LockBatchRequest),
		`{"clientID":"","consumerDataSet":[],"producerDataSet":[]}`:               new(HeartbeatData),
		`{"dataVersion":{"counter":0,"timestamp":0},"topicConfigTable":{}}`:       new(TopicConfigSerializeWrapper),
		`{"dataVersion":{"counter":0,"timestamp":0},"subscriptionGroupTable":{}}`: new(SubscriptionGroupTable),
		`{"offsetTable":{}}`:                  new(TopicStatsTable),
		`{"consumeTps":0.0,"offsetTable":{}}`: new(ConsumeStats),
		`{"brokerDatas":[{"brokerAddrs":{},"brokerName":"b","cluster":"c"}],"filterServerTable":{},"queueDatas":[]}`:                                                              &TopicRouteData{BrokerDatas: []BrokerData{{BrokerName: "b", Cluster: "c"}}},
		`{"clientId":"","group":"","subscriptionData":{"classFilterMode":false,"codeSet":[],"expressionType":"","subString":"a > 1 & b","subVersion":0,"tagsSet":[],"topic":""}}`: &CheckClientConfig{SubscriptionData: SubscriptionData{SubString: "a > 1 & b"}},
	} {
		if got := string(b.Encode()); got != want {
			t.Errorf("%T: %s, want %s", b, got, want)
		}
	}
}

// TestRouteBody pins what the Go client's own parser needs: leader first, quoted ids
// and no blank inside brokerAddrs.
func TestRouteBody(t *testing.T) {
	r := TopicRouteData{
		BrokerDatas:    []BrokerData{{BrokerAddrs: map[int64]string{2: "10.0.0.2:10911", 0: "10.0.0.1:10911"}, BrokerName: "broker-a", Cluster: "DefaultCluster"}},
		QueueDatas:     []QueueData{{BrokerName: "broker-a", Perm: PermRead | PermWrite, ReadQueueNums: 4, WriteQueueNums: 4}},
		OrderTopicConf: "broker-a:4",
	}
	const want = `{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","2":"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"DefaultCluster"}],` +
		`"filterServerTable":{},"orderTopicConf":"broker-a:4","queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}`
	if got := string(r.Encode()); got != want {
		t.Errorf("got %s", got)
	}
	var again TopicRouteData
	bare := strings.NewReplacer(`"0":`, ` 0 :`, `"2":`, `2:`).Replace(want)
	if err := again.Decode([]byte(bare)); err != nil || !reflect.DeepEqual(again.BrokerDatas, r.BrokerDatas) {
		t.Errorf("ids without quotes: %v, %+v", err, again)
	}
}

func TestQuoteKeys(t *testing.T) {
	for text, want := range map[string]string{
		`{0:"a",1:"b"}`:                      `{"0":"a","1":"b"}`,
		`{"x":{-1:{k_2:[1,true,{3:null}]}}}`: `{"x":{"-1":{"k_2":[1,true,{"3":null}]}}}`,
		`[1,2]`:                              `[1,2]`,
		`{"a,b:{":1 , 2 :3}`:                 `{"a,b:{":1 , "2" :3}`,
		`{"unfinished`:                       `{"unfinished`,
		`}]{0`:                               `}]{"0"`,
	} {
		if got := string(quoteKeys([]byte(text))); got != want {
			t.Errorf("%s becomes %s, want %s", text, got, want)
		}
	}
}

func TestMQTables(t *testing.T) {
	const captured = `{"offsetTable":{{"brokerName":"peer-a","queueId":1,"topic":"GoldenA"}:3,{"brokerName":"peer-a","queueId":0,"topic":"GoldenA"}:-1}}`
	want := OffsetTable{OffsetTable: []QueueOffset{
		{Queue: MessageQueue{BrokerName: "peer-a", QueueID: 1, Topic: "GoldenA"}, Offset: 3},
		{Queue: MessageQueue{BrokerName: "peer-a", QueueID: 0, Topic: "GoldenA"}, Offset: -1},
	}}
	for _, text := range []string{
		captured,
		strings.NewReplacer(`{"b`, ` { "b`, `}:`, `} : `).Replace(captured),
		`{"offsetTable":{"{\"brokerName\":\"peer-a\",\"queueId\":1,\"topic\":\"GoldenA\"}":3,{"brokerName":"peer-a","queueId":0,"topic":"GoldenA"}:-1},"more":[{}]}`,
	} {
		var got OffsetTable
		if err := got.Decode([]byte(text)); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %v, %+v", text, err, got)
		}
	}
	if got := string(want.Encode()); got != captured {
		t.Errorf("got %s", got)
	}
	var none OffsetTable
	if err := none.Decode([]byte(`{"offsetTable":null}`)); err != nil || none.OffsetTable != nil {
		t.Errorf("null table: %v", err)
	}
}

func TestBodyCorrupt(t *testing.T) {
	table := []byte((&TopicStatsTable{OffsetTable: []TopicStats{{Queue: MessageQueue{"b", 1, "T"}, MaxOffset: 5}}}).Encode())
	stats := (&ConsumeStats{OffsetTable: []QueueConsumeStats{{Queue: MessageQueue{"b", 1, "T"}}}}).Encode()
	beat := (&HeartbeatData{ClientID: "c", ProducerDataSet: []ProducerData{{"p"}}}).Encode()
	cut := func(b []byte) []byte { return b[:len(b)-1] }
	replace := func(old, with string) func([]byte) []byte {
		return func(b []byte) []byte { return []byte(strings.Replace(string(b), old, with, 1)) }
	}
	for _, k := range []struct {
		name    string
		into    body
		text    []byte
		corrupt func([]byte) []byte
	}{
		{"cut", new(TopicStatsTable), table, cut},
		{"empty", new(TopicStatsTable), table, func([]byte) []byte { return nil }},
		{"text behind", new(TopicStatsTable), table, func(b []byte) []byte { return append(b, 'x') }},
		{"key a number", new(TopicStatsTable), table, replace(`{"brokerName":"b","queueId":1,"topic":"T"}`, `7`)},
		{"key no queue", new(TopicStatsTable), table, replace(`"queueId":1`, `"queueId":"x"`)},
		{"key a text", new(TopicStatsTable), table, replace(`{"brokerName":"b","queueId":1,"topic":"T"}`, `"x"`)},
		{"colon missing", new(TopicStatsTable), table, replace(`"T"}:`, `"T"},`)},
		{"value a text", new(TopicStatsTable), table, replace(`"maxOffset":5`, `"maxOffset":"5"`)},
		{"table a list", new(OffsetTable), []byte(`{"offsetTable":{{"queueId":0}:1}}`), replace(`:1`, `:[1]`)},
		{"offset with a fraction", new(OffsetTable), []byte(`{"offsetTable":{{"queueId":0}:1}}`), replace(`:1`, `:1.5`)},
		{"rate a text", new(ConsumeStats), stats, replace(`0.0`, `"x"`)},
		{"comma missing", new(ConsumeStats), stats, replace(`,"offsetTable"`, ` "offsetTable"`)},
		{"heartbeat cut", new(HeartbeatData), beat, cut},
		{"heartbeat empty", new(HeartbeatData), beat, func([]byte) []byte { return nil }},
		{"heartbeat a list", new(HeartbeatData), beat, func([]byte) []byte { return []byte(`[]`) }},
		{"heartbeat set a text", new(HeartbeatData), beat, replace(`[{"groupName":"p"}]`, `"p"`)},
		{"nonsense", new(SubscriptionGroupConfig), beat, func([]byte) []byte { return []byte(`{nonsense`) }},
	} {
		t.Run(k.name, func(t *testing.T) {
			if err := k.into.Decode(append([]byte{}, k.text...)); err != nil {
				t.Fatalf("before: %v", err)
			}
			if err := k.into.Decode(k.corrupt(append([]byte{}, k.text...))); !errors.Is(err, ErrBody) {
				t.Errorf("error %v, want %v", err, ErrBody)
			}
		})
	}
}

func TestAppendDouble(t *testing.T) {
	for f, want := range map[float64]string{0: "0.0", 1: "1.0", 1.5: "1.5", 1e30: "1e+30", math.Inf(1): "0.0"} {
		if got := string(appendDouble(nil, f)); got != want {
			t.Errorf("%v is written as %s, want %s", f, got, want)
		}
	}
	if got := string(appendDouble(nil, math.NaN())); got != "0.0" {
		t.Errorf("NaN is written as %s", got)
	}
}

// TestHeartbeatOfCPP: the C++ client's heartbeat, whose enumerations are numbers and whose version is quoted.
func TestHeartbeatOfCPP(t *testing.T) {
	const text = `{"clientID":"c","consumerDataSet":[{"consumeFromWhere":4,"consumeType":1,"groupName":"g","messageModel":1,"subscriptionDataSet":[` +
		`{"codeSet":["42"],"subString":"*","subVersion":"1796000000000","tagsSet":["*"],"topic":"T"}]}],"producerDataSet":[]}`
	var b HeartbeatData
	if err := b.Decode([]byte(text)); err != nil {
		t.Fatal(err)
	}
	c := b.ConsumerDataSet[0]
	if c.ConsumeFromWhere != "CONSUME_FROM_FIRST_OFFSET" || c.ConsumeType != "CONSUME_PASSIVELY" || c.MessageModel != "CLUSTERING" ||
		c.GroupName != "g" || c.SubscriptionDataSet[0].SubVersion != 1796000000000 || c.SubscriptionDataSet[0].Topic != "T" {
		t.Errorf("%+v", c)
	}
	if err := b.Decode([]byte(`{"consumerDataSet":[{"consumeType":9}]}`)); err == nil {
		t.Error("an enumeration's place that there is not was taken")
	}
}
