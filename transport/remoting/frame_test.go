package remoting

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

func TestDecodeFrameCorrupt(t *testing.T) {
	jsonFrame := rawFrame(SerializeJSON, javaSend, []byte("body"))
	var c Command
	if err := DecodeFrame(jsonFrame, &c, nil); err != nil {
		t.Fatal(err)
	}
	c.Serialize, c.Remark = SerializeRocketMQ, "a remark"
	binaryFrame := AppendFrame(nil, &c)[LengthSize:]
	const remarkLenAt = headerLenSize + 13
	extLenAt := remarkLenAt + 4 + len(c.Remark)
	put := func(at int, n uint32) func([]byte) []byte {
		return func(f []byte) []byte { binary.BigEndian.PutUint32(f[at:], n); return f }
	}
	replace := func(old, with string) func([]byte) []byte {
		return func(f []byte) []byte {
			header := f[headerLenSize : len(f)-4]
			changed := strings.Replace(string(header), old, with, 1)
			if changed == string(header) {
				panic("nothing to replace: " + old)
			}
			return rawFrame(SerializeJSON, changed, []byte("body"))
		}
	}
	for _, k := range []struct {
		name    string
		frame   []byte
		corrupt func([]byte) []byte
		want    error
	}{
		{"whole", jsonFrame, func(f []byte) []byte { return f }, nil},
		{"no bytes", jsonFrame, func(f []byte) []byte { return nil }, ErrFrameTooShort},
		{"three bytes", jsonFrame, func(f []byte) []byte { return f[:3] }, ErrFrameTooShort},
		{"cut in the header", jsonFrame, func(f []byte) []byte { return f[:len(f)-5] }, ErrHeaderLength},
		{"header length too large", jsonFrame, put(0, uint32(len(javaSend)+5)), ErrHeaderLength},
		{"header length 24 bits", jsonFrame, put(0, 1<<24-1), ErrHeaderLength},
		{"header length too small", jsonFrame, put(0, uint32(len(javaSend)-1)), ErrHeader},
		{"header length reaches into the body", jsonFrame, put(0, uint32(len(javaSend)+2)), ErrHeader},
		{"empty header", jsonFrame, put(0, 0), ErrHeader},
		{"type 2", jsonFrame, put(0, 2<<24|uint32(len(javaSend))), ErrSerializeType},
		{"type 255", jsonFrame, put(0, 255<<24|uint32(len(javaSend))), ErrSerializeType},
		{"JSON as binary", jsonFrame, put(0, 1<<24|uint32(len(javaSend))), ErrHeader},
		{"not an object", jsonFrame, func(f []byte) []byte { return rawFrame(SerializeJSON, `[1]`, nil) }, ErrHeader},
		{"null", jsonFrame, func(f []byte) []byte { return rawFrame(SerializeJSON, `null`, nil) }, ErrHeader},
		{"NUL behind the object", jsonFrame, func(f []byte) []byte { return rawFrame(SerializeJSON, "{}\x00", nil) }, ErrHeader},
		{"two objects", jsonFrame, func(f []byte) []byte { return rawFrame(SerializeJSON, `{}{}`, nil) }, ErrHeader},
		{"comma at the end", jsonFrame, replace(`401}`, `401,}`), ErrHeader},
		{"comma missing", jsonFrame, replace(`0,"language"`, `0 "language"`), ErrHeader},
		{"colon missing", jsonFrame, replace(`"flag":`, `"flag" `), ErrHeader},
		{"key without quotes", jsonFrame, replace(`"flag"`, `flag`), ErrHeader},
		{"code too large", jsonFrame, replace(`"code":310`, `"code":2147483648`), ErrHeader},
		{"code with a fraction", jsonFrame, replace(`"code":310`, `"code":310.5`), ErrHeader},
		{"code true", jsonFrame, replace(`"code":310`, `"code":true`), ErrHeader},
		{"code an object", jsonFrame, replace(`"code":310`, `"code":{}`), ErrHeader},
		{"code with a leading zero", jsonFrame, replace(`"code":310`, `"code":0310`), ErrHeader},
		{"ext a string", jsonFrame, replace(`{"a":`, `"x","y":{"a":`), ErrHeader},
		{"unknown escape", jsonFrame, replace(`\u0001`, `\x01`), ErrHeader},
		{"short \\u", jsonFrame, replace(`\u0001key0`, `\u00`), ErrHeader},
		{"\\u without hex", jsonFrame, replace(`\u0001`, `\u00g1`), ErrHeader},
		{"unfinished string", jsonFrame, replace(`TagA",`, `TagA,`), ErrHeader},
		{"backslash at the end", jsonFrame, func(f []byte) []byte { return rawFrame(SerializeJSON, `{"remark":"\`, nil) }, ErrHeader},
		{"nested too deeply", jsonFrame, func(f []byte) []byte {
			return rawFrame(SerializeJSON, `{"x":`+strings.Repeat("[", 10000)+strings.Repeat("]", 10000)+`}`, nil)
		}, ErrHeader},
		{"mixed brackets", jsonFrame, func(f []byte) []byte { return rawFrame(SerializeJSON, `{"x":[{]}}`, nil) }, ErrHeader},
		{"too many fields", jsonFrame, func(f []byte) []byte {
			return rawFrame(SerializeJSON, `{"extFields":{`+strings.Repeat(`"x":"y",`, maxExtFields)+`"x":"y"}}`, nil)
		}, ErrHeader},

		{"binary whole", binaryFrame, func(f []byte) []byte { return f }, nil},
		{"binary, 20 bytes", binaryFrame, func(f []byte) []byte { return rawFrame(1, string(f[4:24]), nil) }, ErrHeader},
		{"binary remark too long", binaryFrame, put(remarkLenAt, 1<<20), ErrHeader},
		{"binary remark length negative", binaryFrame, put(remarkLenAt, 1<<32-1), ErrHeader},
		{"binary ext too long", binaryFrame, put(extLenAt, 1<<20), ErrHeader},
		{"binary ext length negative", binaryFrame, put(extLenAt, 1<<32-1), ErrHeader},
		{"binary ext too short", binaryFrame, put(extLenAt, 3), ErrHeader},
		{"binary key too long", binaryFrame, func(f []byte) []byte { f[extLenAt+4] = 0x7f; return f }, ErrHeader},
		{"binary key length negative", binaryFrame, func(f []byte) []byte { f[extLenAt+4] = 0xff; return f }, ErrHeader},
		{"binary value too long", binaryFrame, put(extLenAt+4+2+1, 1<<30), ErrHeader},
		{"binary too many fields", binaryFrame, func(f []byte) []byte {
			ext := bytes.Repeat([]byte{0, 1, 'x', 0, 0, 0, 0}, maxExtFields+1)
			h := binary.BigEndian.AppendUint32(make([]byte, 17), uint32(len(ext)))
			return rawFrame(1, string(append(h, ext...)), nil)
		}, ErrHeader},
	} {
		t.Run(k.name, func(t *testing.T) {
			var c Command
			err := DecodeFrame(k.corrupt(bytes.Clone(k.frame)), &c, nil)
			if !errors.Is(err, k.want) || (k.want == nil) != (err == nil) {
				t.Fatalf("error %v, want %v", err, k.want)
			}
			// The same command must still be usable.
			if err := DecodeFrame(jsonFrame, &c, nil); err != nil || c.GetString("b") != "GoldenA" || string(c.Body) != "body" {
				t.Errorf("after that: %v, %+v", err, c)
			}
		})
	}
}

// TestDecodeFrameLenient feeds headers that are odd but taken by RocketMQ.
func TestDecodeFrameLenient(t *testing.T) {
	for _, k := range []struct {
		name, header string
		want         Command
	}{
		{"empty object", `{}`, Command{}},
		{"nulls", `{"code":null,"remark":null,"extFields":null,"language":null,"version":null,"opaque":null}`, Command{}},
		{"empty map", `{"extFields":{}}`, Command{Ext: []Field{}}},
		{"null value is left out", `{"extFields":{"a":null,"b":"x"}}`, Command{Ext: []Field{{"b", []byte("x")}}}},
		{"blanks", " {\t\"code\" :\n1 , \"extFields\" : { \"a\" : \"b\" } }\r\n ", Command{Code: 1, Ext: []Field{{"a", []byte("b")}}}},
		{"unknown keys", `{"x":{"a":[1,{"b":"]}"}],"c":{}},"y":[[],{}],"z":"\u0022","w":-1.5e+3,"v":true,"u":null,"code":7}`, Command{Code: 7}},
		{"values of all kinds", `{"extFields":{"a":-1,"b":true,"c":1.5,"d":{"x":[1]},"e":[],"f":false}}`, Command{Ext: []Field{
			{"a", []byte("-1")}, {"b", []byte("true")}, {"c", []byte("1.5")}, {"d", []byte(`{"x":[1]}`)}, {"e", []byte(`[]`)}, {"f", []byte("false")}}}},
		{"quoted numbers", `{"code":"310","opaque":"-5"}`, Command{Code: 310, Opaque: -5}},
		{"limits", `{"code":-2147483648,"opaque":2147483647}`, Command{Code: -1 << 31, Opaque: 1<<31 - 1}},
		{"escapes", `{"remark":"\"\\\/\b\f\n\r\t\u0041\u00e9\u7a7a\ud83d\ude00"}`, Command{Remark: "\"\\/\b\f\n\r\tAé空😀"}},
		{"lone surrogates", `{"remark":"\ud83d-\ude00-\ud83d\u0041-\ud83d\ud83d"}`, Command{Remark: "\ufffd-\ufffd-\ufffdA-\ufffd\ufffd"}},
		{"raw control characters", "{\"extFields\":{\"i\":\"KEYS\x01k\x02\"}}", Command{Ext: []Field{{"i", []byte("KEYS\x01k\x02")}}}},
		{"escaped key", `{"\u0063ode":3,"extFields":{"\u0061":"x","未":"y"}}`, Command{Code: 3, Ext: []Field{{"a", []byte("x")}, {"未", []byte("y")}}}},
		{"repeated keys", `{"code":1,"code":2,"extFields":{"a":"1"},"extFields":{"a":"2"}}`, Command{Code: 2, Ext: []Field{{"a", []byte("1")}, {"a", []byte("2")}}}},
		{"languages", `{"language":"GO"}`, Command{Language: LanguageGo}},
		{"unknown language", `{"language":"KLINGON"}`, Command{Language: LanguageOther}},
		{"language as number", `{"language":9}`, Command{Language: LanguageGo}},
	} {
		t.Run(k.name, func(t *testing.T) {
			var c Command
			if err := DecodeFrame(rawFrame(SerializeJSON, k.header, nil), &c, nil); err != nil {
				t.Fatal(err)
			}
			if !sameCommand(&c, &k.want) {
				t.Errorf("got %+v, want %+v", c, k.want)
			}
		})
	}
}

// TestLastOfRepeatedKeysCounts pins the rule for Get, Set and the header decoders.
func TestLastOfRepeatedKeysCounts(t *testing.T) {
	var c Command
	frame := rawFrame(SerializeJSON, `{"code":310,"extFields":{"e":"1","b":"x","e":"2"}}`, nil)
	if err := DecodeFrame(frame, &c, nil); err != nil {
		t.Fatal(err)
	}
	var h SendHeader
	if err := h.Decode(&c); err != nil || h.QueueID != 2 || c.GetString("e") != "2" {
		t.Errorf("%v, queue %d, Get %q", err, h.QueueID, c.GetString("e"))
	}
	c.Set("e", "3")
	if err := h.Decode(&c); err != nil || h.QueueID != 3 || c.GetString("e") != "3" || len(c.Ext) != 3 {
		t.Errorf("after Set: %v, queue %d, %v", err, h.QueueID, c.Ext)
	}
}

// TestScratchKeepsViews decodes frames into one scratch without resetting it: views of
// earlier frames must stay as they are while the arena is replaced.
func TestScratchKeepsViews(t *testing.T) {
	var scratch []byte
	var cmds []Command
	for i := range 300 {
		header := fmt.Sprintf(`{"code":310,"extFields":{"i":"KEYS\u0001key-%d\u0002TAGS\u0001t%d","b":"T"}}`, i, i)
		cmds = append(cmds, Command{})
		if err := DecodeFrame(rawFrame(SerializeJSON, header, nil), &cmds[i], &scratch); err != nil {
			t.Fatal(err)
		}
	}
	for i := range cmds {
		if got, want := cmds[i].GetString("i"), fmt.Sprintf("KEYS\x01key-%d\x02TAGS\x01t%d", i, i); got != want {
			t.Fatalf("frame %d: %q, want %q", i, got, want)
		}
	}
	if cap(scratch) > 2*arenaChunk {
		t.Errorf("scratch grew to %d", cap(scratch))
	}
}

// TestDecodeReuses decodes frames with and without an ext map into one command.
func TestDecodeReuses(t *testing.T) {
	var c Command
	with := rawFrame(SerializeJSON, javaSend, []byte("body"))
	without := rawFrame(SerializeJSON, `{"code":34,"opaque":5,"remark":"r"}`, nil)
	empty := rawFrame(SerializeJSON, `{"code":34,"extFields":{}}`, nil)
	for range 2 {
		if err := DecodeFrame(with, &c, nil); err != nil || len(c.Ext) != 12 || c.Remark != "" {
			t.Fatalf("%v, %+v", err, c)
		}
		array := &c.Ext[:1][0]
		if err := DecodeFrame(without, &c, nil); err != nil || c.Ext != nil || c.Body != nil || c.Remark != "r" {
			t.Fatalf("%v, %+v", err, c)
		}
		if err := DecodeFrame(empty, &c, nil); err != nil || c.Ext == nil || len(c.Ext) != 0 {
			t.Fatalf("%v, %+v", err, c)
		}
		if array != &c.Ext[:1][0] {
			t.Error("the array of ext fields was not kept")
		}
	}
}

func TestViewsHaveNoRoom(t *testing.T) {
	frame := rawFrame(SerializeJSON, `{"extFields":{"a":"1","b":"\n"}}`, []byte("body"))
	before := bytes.Clone(frame)
	var c Command
	scratch := make([]byte, 0, 4096)
	if err := DecodeFrame(frame, &c, &scratch); err != nil {
		t.Fatal(err)
	}
	_ = append(c.Get("a"), "xxxx"...)
	_ = append(c.Get("b"), "xxxx"...)
	_ = append(c.Body, "xxxx"...)
	if !bytes.Equal(frame, before) || string(scratch) != "\n" || scratch[:2][1] != 0 {
		t.Error("appending to a view wrote behind it")
	}
}

func TestClone(t *testing.T) {
	frame := rawFrame(SerializeJSON, goSend, []byte("body"))
	var c, want Command
	scratch := []byte{}
	if DecodeFrame(frame, &c, &scratch) != nil || DecodeFrame(bytes.Clone(frame), &want, nil) != nil {
		t.Fatal("decode")
	}
	d := c.Clone()
	clear(frame)
	clear(scratch[:cap(scratch)])
	clear(c.Ext)
	if !sameCommand(d, &want) {
		t.Errorf("got %+v, want %+v", d, want)
	}
	if e := (&Command{}).Clone(); e.Ext != nil || e.Body != nil {
		t.Errorf("clone of nothing: %+v", e)
	}
}

// TestEncodedStrings checks that the escaped form is read by encoding/json and by us,
// for every byte and some sequences.
func TestEncodedStrings(t *testing.T) {
	texts := []string{"", "空值😀", "\u2028\u007f\u0080", "a\x01b\x02", `\u0001`, `"\`, "</script>&", strings.Repeat("x", 100) + "\n"}
	for b := range 0x80 {
		texts = append(texts, string(rune(b)), "ab"+string(rune(b))+"cd")
	}
	for _, text := range texts {
		quoted := appendJSONString(nil, text)
		var got string
		if err := json.Unmarshal(quoted, &got); err != nil || got != text {
			t.Errorf("%q as %s: %v, %q", text, quoted, err, got)
		}
		s := scanner{text: quoted}
		if own, err := s.str(); err != nil || string(own) != text || s.pos != len(quoted) {
			t.Errorf("%q as %s: %v, %q", text, quoted, err, own)
		}
	}
	if got := string(appendJSONString(nil, "\x00\x01\x1f\b\t\n\f\r\"\\/")); got != `"\u0000\u0001\u001F\b\t\n\f\r\"\\/"` {
		t.Errorf("escapes are %s", got)
	}
}

// TestBinaryFallsBackToJSON covers what the binary header cannot hold.
func TestBinaryFallsBackToJSON(t *testing.T) {
	for _, c := range []Command{
		{Code: RequestPopMessage, Serialize: SerializeRocketMQ},
		{Code: 1, Version: 40000, Serialize: SerializeRocketMQ},
		{Code: 1, Serialize: SerializeRocketMQ, Ext: []Field{{strings.Repeat("k", 40000), nil}}},
		{Code: 1, Serialize: 77},
	} {
		frame := AppendFrame(nil, &c)
		var d Command
		if err := DecodeFrame(frame[LengthSize:], &d, nil); err != nil || d.Serialize != SerializeJSON || d.Code != c.Code || d.Version != c.Version {
			t.Errorf("%v, %+v", err, d)
		}
	}
	s := AppendSendResponse(nil, SendResponse{Serialize: SerializeRocketMQ, Version: 1 << 20})
	if s[LengthSize] != byte(SerializeJSON) {
		t.Error("a send answer that does not fit the binary header")
	}
}

// TestHeaderTooLong makes headers beyond 24 bits: the frame must stay well-formed.
func TestHeaderTooLong(t *testing.T) {
	long := strings.Repeat("\x01", 3<<20) // six bytes each as JSON
	value := []byte(long)
	frames := map[string][]byte{
		"frame":         AppendFrame([]byte("x"), &Command{Code: 17, Opaque: 7, Flag: 1, Remark: long, Body: []byte("body")})[1:],
		"send answer":   AppendSendResponse(nil, SendResponse{Code: 17, Opaque: 7, Remark: long}),
		"pull answer":   append(AppendPullResponseHead(nil, PullResponse{Code: 17, Opaque: 7, Remark: long}, 4), "body"...),
		"send request":  AppendSendRequest(nil, 7, &SendHeader{Topic: value}, []byte("body")),
		"pull request":  AppendPullRequest(nil, 7, &PullHeader{Topic: value}),
		"binary header": AppendFrame(nil, &Command{Opaque: 7, Serialize: SerializeRocketMQ, Remark: strings.Repeat("x", 1<<24)}),
	}
	for name, frame := range frames {
		var c Command
		if n := binary.BigEndian.Uint32(frame); int(n) != len(frame)-LengthSize {
			t.Errorf("%s: length %d, frame %d", name, n, len(frame))
		}
		if err := DecodeFrame(frame[LengthSize:], &c, nil); err != nil || c.Opaque != 7 || c.Code != ResponseSystemError || c.Ext != nil {
			t.Errorf("%s: %v, code %d", name, err, c.Code)
		}
	}
}

func TestSendHeaderErrors(t *testing.T) {
	field := func(key, value string) Field { return Field{key, []byte(value)} }
	for _, k := range []struct {
		name string
		c    Command
		want error
	}{
		{"wrong code", Command{Code: 11}, ErrRequestCode},
		{"no ext", Command{Code: 10}, ErrFieldMissing},
		{"no queue", Command{Code: 310, Ext: []Field{field("b", "T")}}, ErrFieldMissing},
		{"queue no number", Command{Code: 310, Ext: []Field{field("b", "T"), field("e", "abc")}}, ErrFieldValue},
		{"queue empty", Command{Code: 310, Ext: []Field{field("b", "T"), field("e", "")}}, ErrFieldValue},
		{"queue beyond 32 bits", Command{Code: 10, Ext: []Field{field("topic", "T"), field("queueId", "4294967296")}}, ErrFieldValue},
		{"time beyond 64 bits", Command{Code: 10, Ext: []Field{field("topic", "T"), field("queueId", "0"), field("bornTimestamp", "9223372036854775808")}}, ErrFieldValue},
		{"letters under code 10", Command{Code: 10, Ext: []Field{field("b", "T"), field("e", "0")}}, ErrFieldMissing},
		{"reply", Command{Code: 324, Ext: []Field{field("topic", "T"), field("queueId", "-1")}}, nil},
		{"only the queue", Command{Code: 325, Ext: []Field{field("e", "0")}}, nil},
	} {
		var h SendHeader
		err := h.Decode(&k.c)
		if !errors.Is(err, k.want) || (k.want == nil) != (err == nil) {
			t.Errorf("%s: %v, want %v", k.name, err, k.want)
		}
		topic := string(k.c.Get("topic")) + string(k.c.Get("b"))
		if k.want == ErrFieldValue && string(h.Topic) != topic {
			t.Errorf("%s: topic %q is lost", k.name, h.Topic)
		}
	}
}

func TestPullHeaderErrors(t *testing.T) {
	full := Command{Code: 11}
	for key, v := range map[string]string{"queueId": "1", "queueOffset": "2", "maxMsgNums": "3", "sysFlag": "4"} {
		full.Set(key, v)
	}
	var h PullHeader
	if err := h.Decode(&full); err != nil || h.QueueID != 1 || h.QueueOffset != 2 || h.MaxMsgNums != 3 || h.SysFlag != 4 {
		t.Fatalf("%v, %+v", err, h)
	}
	for i := range full.Ext {
		short := Command{Code: 11, Ext: append(append([]Field{}, full.Ext[:i]...), full.Ext[i+1:]...)}
		if err := h.Decode(&short); !errors.Is(err, ErrFieldMissing) || !strings.Contains(err.Error(), full.Ext[i].Key) {
			t.Errorf("without %s: %v", full.Ext[i].Key, err)
		}
		odd := full.Clone()
		odd.Set(full.Ext[i].Key, "x")
		if err := h.Decode(odd); !errors.Is(err, ErrFieldValue) || !strings.Contains(err.Error(), full.Ext[i].Key) {
			t.Errorf("%s no number: %v", full.Ext[i].Key, err)
		}
	}
	if err := h.Decode(&Command{Code: 10}); !errors.Is(err, ErrRequestCode) {
		t.Errorf("wrong code: %v", err)
	}
}

func TestResponseHeaderErrors(t *testing.T) {
	c := Command{Code: ResponsePullNotFound, Ext: []Field{{"minOffset", []byte("0")}, {"maxOffset", []byte("0")}, {"nextBeginOffset", []byte("0")}}}
	var p PullResponse
	if err := p.Decode(&c); !errors.Is(err, ErrFieldMissing) {
		t.Errorf("pull without suggestWhichBrokerId: %v", err)
	}
	c.Code = ResponseTopicNotExist
	if err := p.Decode(&c); err != nil || p.Code != ResponseTopicNotExist {
		t.Errorf("refused pull: %v", err)
	}
	var s SendResponse
	if err := s.Decode(&Command{Ext: []Field{{"msgId", []byte("x")}, {"queueId", []byte("0")}}}); !errors.Is(err, ErrFieldMissing) {
		t.Errorf("send without queueOffset: %v", err)
	}
	if err := s.Decode(&Command{Code: ResponseServiceNotAvailable, Remark: "r"}); err != nil || s.MsgID != nil || s.Remark != "r" {
		t.Errorf("refused send: %v, %+v", err, s)
	}
}

func TestParseInt(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "-0": 0, "+5": 5, "-7": -7, "9223372036854775807": 1<<63 - 1, "-9223372036854775808": -1 << 63,
		"00000000000000000000000012": 12, "-0000000000000000000000009223372036854775808": -1 << 63, "0000000000000000000000": 0,
	} {
		if n, ok := parseInt([]byte(text)); !ok || n != want {
			t.Errorf("%s: %d, %v", text, n, ok)
		}
	}
	for _, text := range []string{"", "-", "+", "--1", "+-1", "1a", " 1", "1 ", "1.0", "9223372036854775808", "-9223372036854775809", "99999999999999999999", "0x10", "000000000000000000000000x"} {
		if n, ok := parseInt([]byte(text)); ok {
			t.Errorf("%q is taken as %d", text, n)
		}
	}
	if _, ok := parseInt32([]byte("2147483648")); ok {
		t.Error("32 bits")
	}
	if !parseBool([]byte("TRUE")) || parseBool([]byte("1")) || parseBool(nil) {
		t.Error("booleans")
	}
}

// TestNames keeps the name functions and the constants apart from one another.
func TestNames(t *testing.T) {
	for code, want := range map[int32]string{
		10: "SEND_MESSAGE", 11: "PULL_MESSAGE", 34: "HEART_BEAT", 105: "GET_ROUTEINFO_BY_TOPIC", 310: "SEND_MESSAGE_V2",
		200050: "POP_MESSAGE", RequestNodeStatus: "NODE_STATUS", 9999: "9999",
	} {
		if got := RequestCodeName(code); got != want {
			t.Errorf("request %d is %s, want %s", code, got, want)
		}
	}
	for code, want := range map[int32]string{0: "SUCCESS", 14: "SERVICE_NOT_AVAILABLE", 21: "PULL_OFFSET_MOVED", 215: "FLOW_CONTROL", -1: "-1"} {
		if got := ResponseCodeName(code); got != want {
			t.Errorf("response %d is %s, want %s", code, got, want)
		}
	}
	for l := range uint8(20) {
		if got := languageOf([]byte(LanguageName(l))); got != l && LanguageName(l) != "OTHER" {
			t.Errorf("language %d comes back as %d", l, got)
		}
	}
	if VersionName(401) != "4.9.4" || VersionName(402) != "402" {
		t.Error("version names")
	}
}

// TestRequestCodeNamesAsCaptured compares the names with those in the captures, which
// were taken from RocketMQ's own constants where the capture knew the code.
func TestRequestCodeNamesAsCaptured(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range loadCaptured(t) {
		var c Command
		if k.Direction != "request" || k.From == "" || DecodeFrame(k.frame(t), &c, nil) != nil {
			continue
		}
		name := k.Name[strings.LastIndexByte(k.Name, '/')+1:]
		if name[0] >= '0' && name[0] <= '9' {
			continue
		}
		seen[name] = true
		if got := RequestCodeName(c.Code); got != name {
			t.Errorf("code %d is %s, captured as %s", c.Code, got, name)
		}
	}
	if len(seen) < 30 {
		t.Errorf("only %d names", len(seen))
	}
}

func TestInternKey(t *testing.T) {
	for _, key := range []string{"a", "producerGroup", "queueId", "MSG_REGION", "unknown", ""} {
		if got := internKey([]byte(key)); got != key {
			t.Errorf("%q becomes %q", key, got)
		}
	}
	for _, k := range loadCaptured(t) {
		var c Command
		if k.Header == "" || DecodeFrame(k.frame(t), &c, nil) != nil {
			continue
		}
		_, ext := decodeIndependently(t, k.Header)
		got := map[string]string{}
		for _, f := range c.Ext {
			got[f.Key] = string(f.Value)
		}
		if len(ext) > 0 && !reflect.DeepEqual(got, ext) {
			t.Errorf("%s: keys %v, want %v", k.Name, got, ext)
		}
	}
}
