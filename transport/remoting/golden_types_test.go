package remoting

import (
	"encoding/json"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// header is what all low-rate header types have.
type header interface {
	Decode(c *Command) error
	Encode(c *Command)
}

// headerFor returns the header type of a request code, nil for codes without one here.
func headerFor(code int32) header {
	switch code {
	case RequestQueryConsumerOffset:
		return new(QueryConsumerOffsetHeader)
	case RequestUpdateConsumerOffset:
		return new(UpdateConsumerOffsetHeader)
	case RequestSearchOffsetByTimestamp:
		return new(SearchOffsetHeader)
	case RequestGetMaxOffset, RequestGetMinOffset, RequestGetEarliestMsgStoreTime:
		return new(QueueHeader)
	case RequestViewMessageByID:
		return new(ViewMessageHeader)
	case RequestQueryMessage:
		return new(QueryMessageHeader)
	case RequestConsumerSendMsgBack:
		return new(SendBackHeader)
	case RequestEndTransaction:
		return new(EndTransactionHeader)
	case RequestCheckTransactionState:
		return new(CheckTransactionHeader)
	case RequestPushReplyMessageToClient:
		return new(PushReplyHeader)
	case RequestUnregisterClient:
		return new(UnregisterClientHeader)
	case RequestGetConsumerListByGroup, RequestNotifyConsumerIDsChanged:
		return new(ConsumerGroupHeader)
	case RequestUpdateAndCreateTopic:
		return new(CreateTopicHeader)
	case RequestDeleteTopicInBroker, RequestDeleteTopicInNameServer:
		return new(DeleteTopicHeader)
	case RequestGetRouteInfoByTopic:
		return new(RouteHeader)
	}
	return nil
}

// notTaken are ext fields that the header types leave alone: the request counter of
// Java pull consumers, and marks of 5.x clients that no answer depends on.
var notTaken = map[string]bool{
	"ReqT": true, "force": true, "lo": true, "ns": true, "nsd": true, "oway": true, "committed": true, "extra": true, "bname": true,
}

// TestGoldenRequestHeaders decodes the header of every captured request, encodes it
// and finds each captured field again with its value.
func TestGoldenRequestHeaders(t *testing.T) {
	seen := map[int32]int{}
	for _, k := range loadCaptured(t) {
		var c Command
		if k.Direction != "request" || k.Header == "" && k.HeaderHex == "" || DecodeFrame(k.frame(t), &c, nil) != nil {
			continue
		}
		h := headerFor(c.Code)
		if h == nil {
			continue
		}
		seen[c.Code]++
		if err := h.Decode(&c); err != nil {
			if !refusedByRocketMQ(k.Name) {
				t.Errorf("%s %s: %v", k.File, k.Name, err)
			}
			continue
		}
		var again Command
		h.Encode(&again)
		for _, f := range c.Ext {
			if got := again.GetString(f.Key); got != string(f.Value) && !notTaken[f.Key] && !(again.Get(f.Key) == nil && isDefault(f.Value)) {
				t.Errorf("%s %s: %s is %q, want %q", k.File, k.Name, f.Key, got, f.Value)
			}
		}
		second := headerFor(c.Code)
		if err := second.Decode(&again); err != nil || !reflect.DeepEqual(h, second) {
			t.Errorf("%s %s: %v\n got %+v\nwant %+v", k.File, k.Name, err, second, h)
		}
	}
	for _, code := range []int32{12, 14, 15, 17, 29, 30, 31, 32, 33, 35, 36, 37, 38, 39, 40, 105, 215, 216} {
		if seen[code] == 0 {
			t.Errorf("no captured request of code %d", code)
		}
	}
}

// refusedByRocketMQ names the captured requests that a broker answered with an
// exception about a field.
func refusedByRocketMQ(name string) bool {
	return strings.Contains(name, "missing") || strings.Contains(name, "bad filter type") || strings.Contains(name, "end transaction, type 5")
}

// isDefault tells that leaving a field out means the same.
func isDefault(v []byte) bool { return len(v) == 0 || string(v) == "false" || string(v) == "true" }

// body is what all body types have.
type body interface {
	Decode(body []byte) error
	Encode() []byte
}

// bodyFor returns the body type of a captured frame, nil when there is none here.
func bodyFor(code int32, response bool) body {
	switch {
	case !response && code == RequestHeartBeat:
		return new(HeartbeatData)
	case !response && code == RequestCheckClientConfig:
		return new(CheckClientConfig)
	case !response && (code == RequestLockBatchMQ || code == RequestUnlockBatchMQ):
		return new(LockBatchRequest)
	case !response && code == RequestUpdateAndCreateSubscriptionGroup:
		return new(SubscriptionGroupConfig)
	case !response && code == RequestResetConsumerClientOffset, response && code == RequestInvokeBrokerToResetOffset:
		return new(OffsetTable)
	case !response:
		return nil
	case code == RequestGetConsumerListByGroup:
		return new(ConsumerList)
	case code == RequestLockBatchMQ:
		return new(LockBatchResponse)
	case code == RequestGetRouteInfoByTopic:
		return new(TopicRouteData)
	case code == RequestGetBrokerClusterInfo:
		return new(ClusterInfo)
	case code == RequestGetAllTopicListFromNameServer || code == RequestGetTopicsByCluster || code == RequestGetSystemTopicListFromNameServer:
		return new(TopicList)
	case code == RequestGetAllTopicConfig:
		return new(TopicConfigSerializeWrapper)
	case code == RequestGetAllSubscriptionGroupConfig:
		return new(SubscriptionGroupTable)
	case code == RequestGetBrokerRuntimeInfo || code == RequestGetKVListByNamespace:
		return new(KVTable)
	case code == RequestGetTopicStatsInfo:
		return new(TopicStatsTable)
	case code == RequestGetConsumeStats:
		return new(ConsumeStats)
	}
	return nil
}

// TestGoldenBodies decodes and encodes captured bodies. By bytes: everything that Java
// wrote in an order that does not depend on a hash map, as our field order is
// fastjson's. By value (two generic trees are equal): maps, which we sort and Java does
// not; ids without quotes, which we quote; what the Go client or the script wrote in
// their own order; and the fields of 5.x bodies that the types do not carry.
func TestGoldenBodies(t *testing.T) {
	exact, byValue := map[string]int{}, map[string]int{}
	var code int32
	for _, k := range loadCaptured(t) {
		var c Command
		if k.Header == "" || DecodeFrame(k.frame(t), &c, nil) != nil {
			continue
		}
		if !c.IsResponse() {
			code = c.Code
		} else if code = requestCodeOf(k.Name, code); c.Code != ResponseSuccess {
			continue
		}
		text, whole := k.body(t)
		b := bodyFor(code, c.IsResponse())
		if b == nil || !whole || len(text) == 0 {
			continue
		}
		kind := strings.TrimPrefix(reflect.TypeOf(b).String(), "*remoting.")
		if err := b.Decode(text); err != nil {
			if string(text) != "{nonsense" {
				t.Errorf("%s %s: %v", k.File, k.Name, err)
			}
			continue
		}
		again := b.Encode()
		if !sameBytesExpected(&k, b, text) {
			byValue[kind]++
			compareTrees(t, k.File+" "+k.Name, text, again)
			continue
		}
		exact[kind]++
		if string(again) != string(text) {
			t.Errorf("%s %s:\n got %s\nwant %s", k.File, k.Name, again, text)
		}
	}
	t.Logf("by bytes %v, by value %v", exact, byValue)
	for _, kind := range []string{
		"HeartbeatData", "LockBatchRequest", "LockBatchResponse", "ConsumerList", "TopicRouteData", "TopicList", "TopicStatsTable",
		"ConsumeStats", "OffsetTable", "SubscriptionGroupConfig", "KVTable",
	} {
		if exact[kind] == 0 {
			t.Errorf("no %s compared by bytes", kind)
		}
	}
	for _, kind := range []string{"ClusterInfo", "TopicConfigSerializeWrapper", "SubscriptionGroupTable", "CheckClientConfig", "HeartbeatData", "KVTable"} {
		if byValue[kind] == 0 {
			t.Errorf("no %s compared by value", kind)
		}
	}
}

// requestCodeOf finds the code that a captured answer belongs to: by its step's
// request name, else it answers the request before it, as in the hand-made files.
func requestCodeOf(name string, before int32) int32 {
	name = name[strings.LastIndexByte(name, '/')+1:]
	for code := range int32(402) {
		if RequestCodeName(code) == name {
			return code
		}
	}
	return before
}

// sameBytesExpected tells the bodies that must come out as they went in.
func sameBytesExpected(k *captured, b body, text []byte) bool {
	if !k.byJava() || strings.HasPrefix(k.File, "java-5") {
		_, route := b.(*TopicRouteData)
		return route && k.byJava()
	}
	switch b := b.(type) {
	case *ClusterInfo, *TopicConfigSerializeWrapper, *SubscriptionGroupTable:
		return false
	case *TopicRouteData:
		return json.Valid(text)
	case *KVTable:
		return len(b.Table) < 2
	}
	return true
}

// compareTrees compares two bodies as generic JSON. got may lack what the types do
// not carry; nothing may have another value.
func compareTrees(t *testing.T, label string, want, got []byte) {
	t.Helper()
	var a, b any
	if err := json.Unmarshal(quoteKeys(want), &a); err != nil {
		t.Errorf("%s: %v in %s", label, err, want)
		return
	}
	if err := json.Unmarshal(got, &b); err != nil {
		t.Errorf("%s: our body: %v in %s", label, err, got)
		return
	}
	if diff := treeDiff(a, b); diff != "" {
		t.Errorf("%s: %s\n got %s\nwant %s", label, diff, got, want)
	}
}

// optional5x are keys of 5.x bodies that are left out at their zero value or that no
// type carries.
var optional5x = map[string]bool{"heartbeatFingerprint": true, "withoutSub": true, "forbiddenTable": true}

func treeDiff(want, got any) string {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			return "object expected"
		}
		for key, v := range w {
			if _, has := g[key]; !has && optional5x[key] {
				continue
			}
			if diff := treeDiff(v, g[key]); diff != "" {
				return key + ": " + diff
			}
		}
		return ""
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			return "list of other length"
		}
		for i := range w {
			if diff := treeDiff(w[i], g[i]); diff != "" {
				return diff
			}
		}
		return ""
	}
	if text, ok := want.(string); ok {
		if n, ok := got.(float64); ok && text == strconv.FormatFloat(n, 'f', -1, 64) {
			return "" // the Go client's hash codes
		}
	}
	if !reflect.DeepEqual(want, got) {
		return "another value"
	}
	return ""
}

// TestGoldenHeartbeatValues spells out one heartbeat of each client.
func TestGoldenHeartbeatValues(t *testing.T) {
	const goBody = `{"clientID":"192.0.2.2@11939","producerDataSet":[{"groupName":"pg"}],"consumerDataSet":[{"groupName":"cg",` +
		`"consumeType":"CONSUME_PASSIVELY","messageModel":"CLUSTERING","consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET",` +
		`"subscriptionDataSet":[{"classFilterMode":false,"topic":"T","subString":"TagA||TagB","tagsSet":["TagA","TagB"],` +
		`"codeSet":["2598919","2598920"],"subVersion":1795992830455157729,"expressionType":"TAG"}],"unitMode":false}]}`
	var b HeartbeatData
	if err := b.Decode([]byte(goBody)); err != nil {
		t.Fatal(err)
	}
	want := HeartbeatData{
		ClientID: "192.0.2.2@11939", ProducerDataSet: []ProducerData{{GroupName: "pg"}},
		ConsumerDataSet: []ConsumerData{{
			GroupName: "cg", ConsumeType: ConsumePassively, MessageModel: Clustering, ConsumeFromWhere: ConsumeFromFirstOffset,
			SubscriptionDataSet: []SubscriptionData{{
				Topic: "T", SubString: "TagA||TagB", TagsSet: []string{"TagA", "TagB"}, CodeSet: CodeSet{2598919, 2598920},
				SubVersion: 1795992830455157729, ExpressionType: ExpressionTag,
			}},
		}},
	}
	if !reflect.DeepEqual(b, want) {
		t.Errorf("got %+v, want %+v", b, want)
	}
	if err := b.Decode([]byte(`{}`)); err != nil || !reflect.DeepEqual(b, HeartbeatData{}) {
		t.Errorf("empty object: %v, %+v", err, b)
	}
	if got := string((&HeartbeatData{}).Encode()); got != `{"clientID":"","consumerDataSet":[],"producerDataSet":[]}` {
		t.Errorf("empty heartbeat is %s", got)
	}
}
