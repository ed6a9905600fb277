package remoting

import (
	"bytes"
	"strings"
	"testing"
)

// TestGoldenSendHeaders reads every captured send and compares it with the fields
// under their names or letters.
func TestGoldenSendHeaders(t *testing.T) {
	letters := map[string]string{
		"producerGroup": "a", "topic": "b", "defaultTopic": "c", "defaultTopicQueueNums": "d", "queueId": "e", "sysFlag": "f",
		"bornTimestamp": "g", "flag": "h", "properties": "i", "reconsumeTimes": "j", "unitMode": "k", "maxReconsumeTimes": "l",
		"batch": "m", "bname": "n",
	}
	seen := map[int32]int{}
	for _, k := range loadCaptured(t) {
		var c Command
		if k.Direction != "request" || k.Header == "" && k.HeaderHex == "" || DecodeFrame(k.frame(t), &c, nil) != nil {
			continue
		}
		get := c.GetString
		switch c.Code {
		case 310, 320, 325:
			get = func(key string) string { return c.GetString(letters[key]) }
		case 10, 324:
		default:
			continue
		}
		seen[c.Code]++
		var h SendHeader
		err := h.Decode(&c)
		if strings.Contains(k.Name, "queueId") || strings.Contains(k.Name, "without ext") {
			if wantErr := get("queueId") == "" || get("queueId") == "abc"; wantErr != (err != nil) {
				t.Errorf("%s %s: %v", k.File, k.Name, err)
			}
		} else if err != nil {
			t.Errorf("%s %s: %v", k.File, k.Name, err)
		}
		got := map[string]string{
			"producerGroup": string(h.ProducerGroup), "topic": string(h.Topic), "defaultTopic": string(h.DefaultTopic),
			"properties": string(h.Properties), "bname": string(h.BrokerName),
		}
		for key, v := range got {
			if v != get(key) {
				t.Errorf("%s %s: %s is %q, want %q", k.File, k.Name, key, v, get(key))
			}
		}
		numbers := map[string]int64{
			"defaultTopicQueueNums": int64(h.DefaultTopicQueueNums), "queueId": int64(h.QueueID), "sysFlag": int64(h.SysFlag),
			"bornTimestamp": h.BornTimestamp, "flag": int64(h.Flag), "reconsumeTimes": int64(h.ReconsumeTimes),
			"maxReconsumeTimes": int64(h.MaxReconsumeTimes),
		}
		compareNumbers(t, k.File+" "+k.Name, numbers, get)
		if h.UnitMode != (get("unitMode") == "true") || h.Batch != (get("batch") == "true") ||
			h.HasMaxReconsumeTimes != (get("maxReconsumeTimes") != "") {
			t.Errorf("%s %s: %+v", k.File, k.Name, h)
		}
	}
	for _, code := range []int32{10, 310, 320, 325} {
		if seen[code] == 0 {
			t.Errorf("no captured send of code %d", code)
		}
	}
}

// compareNumbers compares decoded numbers with the texts they came from; what is
// absent or no number is 0.
func compareNumbers(t *testing.T, label string, got map[string]int64, get func(string) string) {
	t.Helper()
	for key, v := range got {
		want, ok := parseInt([]byte(get(key)))
		if !ok {
			want = 0
		}
		if v != want {
			t.Errorf("%s: %s is %d, want %q", label, key, v, get(key))
		}
	}
}

func TestGoldenPullHeaders(t *testing.T) {
	seen := 0
	for _, k := range loadCaptured(t) {
		var c Command
		if k.Direction != "request" || k.Header == "" || DecodeFrame(k.frame(t), &c, nil) != nil || c.Code != 11 && c.Code != 361 {
			continue
		}
		seen++
		var h PullHeader
		if err := h.Decode(&c); err != nil {
			t.Errorf("%s %s: %v", k.File, k.Name, err)
		}
		texts := map[string][]byte{
			"consumerGroup": h.ConsumerGroup, "topic": h.Topic, "subscription": h.Subscription,
			"expressionType": h.ExpressionType, "bname": h.BrokerName,
		}
		for key, v := range texts {
			if string(v) != c.GetString(key) {
				t.Errorf("%s %s: %s is %q, want %q", k.File, k.Name, key, v, c.GetString(key))
			}
		}
		compareNumbers(t, k.File+" "+k.Name, map[string]int64{
			"queueId": int64(h.QueueID), "queueOffset": h.QueueOffset, "maxMsgNums": int64(h.MaxMsgNums), "sysFlag": int64(h.SysFlag),
			"commitOffset": h.CommitOffset, "suspendTimeoutMillis": h.SuspendTimeoutMillis, "subVersion": h.SubVersion,
		}, c.GetString)
	}
	if seen < 50 {
		t.Errorf("only %d captured pulls", seen)
	}
}

// TestGoldenSendResponses writes every answer of a broker to a send again, from the
// decoded values, to the same bytes. Left out are what SendResponse cannot say (the 5.x
// batch id and recall handle, an empty remark) and a 5.3.3 broker's answers to replies,
// which have no transaction id but the order of those that do.
func TestGoldenSendResponses(t *testing.T) {
	seen := map[string]int{}
	for _, k := range loadCaptured(t) {
		var c Command
		if k.Direction != "response" || k.Header == "" && k.HeaderHex == "" || DecodeFrame(k.frame(t), &c, nil) != nil {
			continue
		}
		if c.Get("TRACE_ON") == nil || c.Get("batchUniqId") != nil || c.Get("recallHandle") != nil || strings.Contains(k.Header, `"remark":""`) {
			continue
		}
		var s SendResponse
		if err := s.Decode(&c); err != nil {
			t.Errorf("%s %s: %v", k.File, k.Name, err)
			continue
		}
		if c.Version >= Version5_0_0 && s.MsgID != nil && s.TransactionID == nil {
			continue
		}
		got := AppendSendResponse([]byte("before"), s)
		want := AppendFrame([]byte("before"), &c)
		if !bytes.Equal(got, want) {
			t.Errorf("%s %s:\n got %q\nwant %q", k.File, k.Name, got, want)
		}
		kind := "stored"
		if s.MsgID == nil {
			kind = "refused"
		}
		if s.Serialize == SerializeRocketMQ {
			kind += " binary"
		}
		if s.TransactionID != nil {
			kind += " with transaction"
		}
		seen[kind]++
	}
	t.Log(seen)
	for _, kind := range []string{"stored", "refused", "stored binary", "refused binary", "stored with transaction"} {
		if seen[kind] == 0 {
			t.Errorf("no captured answer of kind %q", kind)
		}
	}
}

// TestGoldenPullResponses does the same with answers to pulls, body included.
func TestGoldenPullResponses(t *testing.T) {
	seen := 0
	for _, k := range loadCaptured(t) {
		var c Command
		if k.Direction != "response" || k.Header == "" || DecodeFrame(k.frame(t), &c, nil) != nil {
			continue
		}
		if c.Get("suggestWhichBrokerId") == nil || c.Get("topicSysFlag") != nil || c.Get("groupSysFlag") != nil || c.Get("offsetDelta") != nil {
			continue // 5.x adds fields
		}
		seen++
		var p PullResponse
		if err := p.Decode(&c); err != nil {
			t.Errorf("%s %s: %v", k.File, k.Name, err)
			continue
		}
		got := append(AppendPullResponseHead([]byte("before"), p, len(c.Body)), c.Body...)
		want := AppendFrame([]byte("before"), &c)
		if !bytes.Equal(got, want) {
			t.Errorf("%s %s:\n got %q\nwant %q", k.File, k.Name, got, want)
		}
	}
	if seen < 30 {
		t.Errorf("only %d captured answers", seen)
	}
}

// TestFastRequests writes captured sends and pulls with the fast encoders, in both
// serialisations, and reads the same headers back.
func TestFastRequests(t *testing.T) {
	sends, pulls := 0, 0
	for _, k := range loadCaptured(t) {
		var c Command
		if k.Direction != "request" || k.Header == "" || DecodeFrame(k.frame(t), &c, nil) != nil {
			continue
		}
		for _, style := range []RequestStyle{{}, {Serialize: SerializeRocketMQ}, {OneWay: true}} {
			var h, again SendHeader
			var p, pAgain PullHeader
			var d Command
			switch {
			case h.Decode(&c) == nil:
				sends++
				frame := style.AppendSend(nil, -9, &h, c.Body)
				if err := DecodeFrame(frame[LengthSize:], &d, nil); err != nil {
					t.Fatalf("%s: %v in %q", k.Name, err, frame)
				}
				if err := again.Decode(&d); err != nil || !sameSendHeader(&h, &again) || !bytes.Equal(d.Body, c.Body) {
					t.Errorf("%s: %v\n got %+v\nwant %+v", k.Name, err, again, h)
				}
			case p.Decode(&c) == nil:
				pulls++
				frame := style.AppendPull(nil, -9, &p)
				if err := DecodeFrame(frame[LengthSize:], &d, nil); err != nil {
					t.Fatalf("%s: %v in %q", k.Name, err, frame)
				}
				if err := pAgain.Decode(&d); err != nil || !samePullHeader(&p, &pAgain) {
					t.Errorf("%s: %v\n got %+v\nwant %+v", k.Name, err, pAgain, p)
				}
			default:
				continue
			}
			if d.Opaque != -9 || d.Version != ClientVersion || d.Language != LanguageGo || d.IsOneWay() != style.OneWay || d.Serialize != style.Serialize {
				t.Errorf("%s: head %+v", k.Name, d)
			}
		}
	}
	if sends < 100 || pulls < 100 {
		t.Errorf("%d sends, %d pulls", sends, pulls)
	}
}

// sameSendHeader compares two headers; absent and empty texts are the same.
func sameSendHeader(a, b *SendHeader) bool {
	return bytes.Equal(a.ProducerGroup, b.ProducerGroup) && bytes.Equal(a.Topic, b.Topic) && bytes.Equal(a.DefaultTopic, b.DefaultTopic) &&
		a.DefaultTopicQueueNums == b.DefaultTopicQueueNums && a.QueueID == b.QueueID && a.SysFlag == b.SysFlag &&
		a.BornTimestamp == b.BornTimestamp && a.Flag == b.Flag && bytes.Equal(a.Properties, b.Properties) &&
		a.ReconsumeTimes == b.ReconsumeTimes && a.UnitMode == b.UnitMode && a.Batch == b.Batch &&
		a.MaxReconsumeTimes == b.MaxReconsumeTimes && a.HasMaxReconsumeTimes == b.HasMaxReconsumeTimes && bytes.Equal(a.BrokerName, b.BrokerName)
}

func samePullHeader(a, b *PullHeader) bool {
	return bytes.Equal(a.ConsumerGroup, b.ConsumerGroup) && bytes.Equal(a.Topic, b.Topic) && a.QueueID == b.QueueID &&
		a.QueueOffset == b.QueueOffset && a.MaxMsgNums == b.MaxMsgNums && a.SysFlag == b.SysFlag && a.CommitOffset == b.CommitOffset &&
		a.SuspendTimeoutMillis == b.SuspendTimeoutMillis && bytes.Equal(a.Subscription, b.Subscription) && a.SubVersion == b.SubVersion &&
		bytes.Equal(a.ExpressionType, b.ExpressionType) && bytes.Equal(a.BrokerName, b.BrokerName)
}
