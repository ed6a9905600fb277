package remoting

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"
	"unicode/utf8"
)

// FuzzDecodeFrame: no panic, values no longer than the frame, decode∘encode the same
// for both serialisations, and what encoding/json reads of a header is what we read.
func FuzzDecodeFrame(f *testing.F) {
	seen := map[string]bool{}
	for _, k := range loadCaptured(f) {
		switch {
		case k.RawHex != "":
			f.Add(unhex(f, k.RawHex)[4:])
		case (k.Header != "" || k.HeaderHex != "") && !seen[k.Name+k.Direction]:
			seen[k.Name+k.Direction] = true
			f.Add(rawFrame(SerializeType(k.SerializeType), string(k.headerBytes(f)), []byte("body")))
		}
	}
	f.Add(rawFrame(SerializeJSON, `{"extFields":{"a":"\ud83d\ude00\ud83d","a":null,"b":-1.5e3,"c":{"x":[]}},"language":9,"z":[1,{}]}`, nil))
	f.Fuzz(func(t *testing.T, frame []byte) {
		before := bytes.Clone(frame)
		var c Command
		var scratch []byte
		err := DecodeFrame(frame, &c, &scratch)
		if !bytes.Equal(frame, before) {
			t.Fatal("the frame was written to")
		}
		if err != nil {
			return
		}
		size := len(c.Remark) + len(c.Body)
		for _, field := range c.Ext {
			size += len(field.Key) + len(field.Value)
		}
		if size > len(frame) {
			t.Fatalf("%d bytes out of a frame of %d", size, len(frame))
		}
		var h SendHeader
		_ = h.Decode(&c)
		var p PullHeader
		_ = p.Decode(&c)
		if k := headerFor(c.Code); k != nil {
			_ = k.Decode(&c)
		}
		roundTrip(t, &c)
		if c.Serialize == SerializeJSON {
			compareWithJSON(t, frame[headerLenSize:len(frame)-len(c.Body)], &c)
		}
	})
}

// roundTrip encodes c both ways and decodes it again.
func roundTrip(t *testing.T, c *Command) {
	t.Helper()
	for _, serialize := range []SerializeType{SerializeJSON, SerializeRocketMQ} {
		want := *c
		want.Serialize = serialize
		frame := AppendFrame(nil, &want)
		var d Command
		if err := DecodeFrame(frame[LengthSize:], &d, nil); err != nil {
			t.Fatalf("own frame %q: %v", frame, err)
		}
		if d.Serialize == SerializeJSON {
			want.Serialize = SerializeJSON // it did not fit the binary header
			want.Language = languageOf([]byte(LanguageName(want.Language)))
		} else if len(want.Ext) == 0 {
			want.Ext = nil // the binary header does not tell an empty map from none
		}
		if !sameCommand(&d, &want) {
			t.Fatalf("got %+v, want %+v", d, want)
		}
	}
}

// compareWithJSON reads the header with encoding/json. That refuses raw control
// characters and takes keys in any case, replaces broken UTF-8 and pairs surrogates
// by its own rules; only what both read without such licence is compared.
func compareWithJSON(t *testing.T, header []byte, c *Command) {
	t.Helper()
	var top map[string]json.RawMessage
	if !utf8.Valid(header) || bytes.Contains(header, []byte(`\u`)) || json.Unmarshal(header, &top) != nil {
		return
	}
	numbers := map[string]int32{"code": c.Code, "version": c.Version, "opaque": c.Opaque, "flag": c.Flag}
	for key, got := range numbers {
		var want int32
		if text, ok := top[key]; ok && string(text) != "null" && json.Unmarshal(text, &want) == nil && want != got {
			t.Fatalf("%s is %d, want %d", key, got, want)
		}
	}
	var remark string
	if json.Unmarshal(top["remark"], &remark) == nil && remark != c.Remark {
		t.Fatalf("remark %q, want %q", c.Remark, remark)
	}
	if bytes.Count(header, []byte(`"extFields"`)) != 1 {
		return // repeated maps add up here, the last one wins there
	}
	var ext map[string]any
	if json.Unmarshal(top["extFields"], &ext) != nil {
		return
	}
	for key, v := range ext {
		if want, ok := v.(string); ok && string(c.Get(key)) != want {
			t.Fatalf("ext %q is %q, want %q", key, c.Get(key), want)
		}
	}
}

// FuzzDecodeHeartbeat: no panic, and what was decoded survives encode and decode.
func FuzzDecodeHeartbeat(f *testing.F) {
	for _, k := range loadCaptured(f) {
		if text, whole := k.body(f); whole && bytes.Contains(text, []byte(`"clientID"`)) {
			f.Add(text)
		}
	}
	f.Add([]byte(`{"clientID":"c","consumerDataSet":[{"subscriptionDataSet":[{"codeSet":["1",2],"subVersion":1795992830455157729},null]}],"producerDataSet":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		bodyRoundTrip(t, text, new(HeartbeatData), new(HeartbeatData))
		bodyRoundTrip(t, text, new(TopicRouteData), new(TopicRouteData))
		bodyRoundTrip(t, text, new(SubscriptionGroupConfig), new(SubscriptionGroupConfig))
		bodyRoundTrip(t, text, new(TopicConfigSerializeWrapper), new(TopicConfigSerializeWrapper))
	})
}

// FuzzMQTable does the same for the tables in fastjson's dialect.
func FuzzMQTable(f *testing.F) {
	for _, k := range loadCaptured(f) {
		if text, whole := k.body(f); whole && bytes.Contains(text, []byte(`"offsetTable"`)) && len(text) < 4096 {
			f.Add(text)
		}
	}
	f.Add([]byte(`{"offsetTable":{"{\"brokerName\":\"b\",\"queueId\":1,\"topic\":\"T\"}":5},"consumeTps":1.5e300}`))
	f.Add([]byte(`{"consumerTable":{},"messageQueueTable":{{"brokerName":"b","queueId":1,"topic":"T"}:5}}`))
	f.Add([]byte(`{"brokerAddrTable":{"b":{"brokerAddrs":{0:"x"}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		bodyRoundTrip(t, text, new(OffsetTable), new(OffsetTable))
		bodyRoundTrip(t, text, new(TopicStatsTable), new(TopicStatsTable))
		bodyRoundTrip(t, text, new(ConsumeStats), new(ConsumeStats))
		bodyRoundTrip(t, text, new(ClusterInfo), new(ClusterInfo))
		bodyRoundTrip(t, text, new(ClientOffsets), new(ClientOffsets))
	})
}

func bodyRoundTrip(t *testing.T, text []byte, b, again body) {
	t.Helper()
	before := bytes.Clone(text)
	err := b.Decode(text)
	if !bytes.Equal(text, before) {
		t.Fatal("the body was written to")
	}
	if err != nil {
		return
	}
	first := b.Encode()
	if err := again.Decode(first); err != nil {
		t.Fatalf("%T: own body %s: %v", b, first, err)
	}
	if second := again.Encode(); !bytes.Equal(first, second) {
		t.Fatalf("%T: %s, then %s", b, first, second)
	}
	if _, table := b.(*OffsetTable); table && !reflect.DeepEqual(b, again) {
		t.Fatalf("got %+v, want %+v", again, b)
	}
}
