package remoting

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// captured is one line of testdata/wire, see the README there.
type captured struct {
	File          string
	Name          string
	Direction     string
	From          string
	Header        string
	HeaderHex     string
	SerializeType uint8
	RawHex        string
	Note          string
	BodyLength    int
	BodyText      *string
	BodyHex       string
}

// headerBytes returns the header as captured, nil when the line has none.
func (k *captured) headerBytes(t testing.TB) []byte {
	if k.HeaderHex == "" {
		return []byte(k.Header)
	}
	return unhex(t, k.HeaderHex)
}

// body returns the body if the capture kept it whole.
func (k *captured) body(t testing.TB) ([]byte, bool) {
	switch {
	case k.BodyText != nil:
		return []byte(*k.BodyText), true
	case k.BodyHex != "":
		return unhex(t, k.BodyHex), true
	}
	return nil, k.BodyLength == 0
}

func (k *captured) frame(t testing.TB) []byte {
	body, _ := k.body(t)
	return rawFrame(SerializeType(k.SerializeType), string(k.headerBytes(t)), body)
}

// byJava tells that a Java broker, name server or client wrote the header itself;
// the hand-made requests and the Go client order its keys differently. Java answers
// with an empty remark are left out: a Command does not tell it from none.
func (k *captured) byJava() bool {
	if strings.Contains(k.Header, `"remark":""`) {
		return false
	}
	if strings.HasPrefix(k.File, "raw") || strings.HasPrefix(k.File, "special") {
		return k.Direction == "response" || strings.HasPrefix(k.Name, "push/")
	}
	return k.File != "go-client" || k.From != "client"
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// loadCaptured reads all captured lines that have a header or a raw frame.
func loadCaptured(t testing.TB) []captured {
	t.Helper()
	paths, err := filepath.Glob("testdata/wire/*.jsonl.gz")
	if err != nil || len(paths) == 0 {
		t.Fatalf("captured frames: %v, %d files", err, len(paths))
	}
	var all []captured
	for _, path := range paths {
		all = append(all, loadCapturedFile(t, path)...)
	}
	return all
}

func loadCapturedFile(t testing.TB, path string) (lines []captured) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	sc := bufio.NewScanner(z)
	sc.Buffer(nil, 1<<22)
	for sc.Scan() {
		k := captured{File: strings.TrimSuffix(filepath.Base(path), ".jsonl.gz")}
		if err := json.Unmarshal(sc.Bytes(), &k); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		lines = append(lines, k)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// decodeIndependently reads a JSON header with encoding/json.
func decodeIndependently(t *testing.T, header string) (want Command, ext map[string]string) {
	t.Helper()
	var h struct {
		Code, Version, Opaque, Flag int32
		Language, Remark            string
		ExtFields                   map[string]any
	}
	d := json.NewDecoder(strings.NewReader(header))
	d.UseNumber()
	if err := d.Decode(&h); err != nil {
		t.Fatal(err)
	}
	want = Command{Code: h.Code, Version: h.Version, Opaque: h.Opaque, Flag: h.Flag, Remark: h.Remark}
	switch h.Language {
	case "JAVA", "":
	case "GO":
		want.Language = LanguageGo
	default:
		want.Language = LanguageOther
	}
	if h.ExtFields != nil {
		ext = map[string]string{}
	}
	for key, v := range h.ExtFields {
		switch v := v.(type) {
		case string:
			ext[key] = v
		case json.Number:
			ext[key] = v.String()
		default:
			t.Fatalf("ext value %T", v)
		}
	}
	return want, ext
}

// TestGoldenHeaders decodes every captured header and compares it with another
// reader's view. What Java wrote is encoded again to the same bytes, as our encoder
// uses fastjson's order and spelling; what the Go client or the capture script wrote,
// in their own order and partly without all keys, is compared by value after the
// round trip; so are a 5.3.3 broker's answers with an empty remark, which we leave out.
func TestGoldenHeaders(t *testing.T) {
	var byBytes, byValue, binaries int
	for _, k := range loadCaptured(t) {
		if k.Header == "" && k.HeaderHex == "" {
			continue
		}
		label := k.File + " " + k.Name + " " + k.Direction
		frame := k.frame(t)
		var c Command
		if err := DecodeFrame(frame, &c, nil); err != nil {
			t.Errorf("%s: %v", label, err)
			continue
		}
		if k.Header != "" {
			compareHeader(t, label, k.Header, &c)
		} else {
			binaries++
		}
		again := AppendFrame(nil, &c)[LengthSize:]
		if k.HeaderHex != "" || k.byJava() {
			byBytes++
			if !bytes.Equal(again, frame) {
				t.Errorf("%s: encoded again\n got %q\nwant %q", label, again, frame)
			}
			continue
		}
		byValue++
		var d Command
		if err := DecodeFrame(again, &d, nil); err != nil {
			t.Errorf("%s: own frame: %v", label, err)
		} else if !sameCommand(&c, &d) {
			t.Errorf("%s: round trip\n got %+v\nwant %+v", label, d, c)
		}
	}
	t.Logf("%d frames compared by bytes, %d by value, %d of them with a binary header", byBytes, byValue, binaries)
	if byBytes < 900 || byValue < 300 || binaries < 8 {
		t.Error("captured frames are missing")
	}
}

func compareHeader(t *testing.T, label, header string, c *Command) {
	t.Helper()
	want, ext := decodeIndependently(t, header)
	if c.Code != want.Code || c.Version != want.Version || c.Opaque != want.Opaque || c.Flag != want.Flag ||
		c.Remark != want.Remark || c.Language != want.Language {
		t.Errorf("%s: got %+v, want %+v", label, c, want)
	}
	if (c.Ext == nil) != (ext == nil) || len(c.Ext) != len(ext) {
		t.Errorf("%s: ext %v, want %v", label, c.Ext, ext)
	}
	for key, v := range ext {
		if got := c.Get(key); got == nil || string(got) != v {
			t.Errorf("%s: ext %s is %q, want %q", label, key, got, v)
		}
	}
}

// sameCommand compares all that is written on the wire.
func sameCommand(a, b *Command) bool {
	if a.Code != b.Code || a.Language != b.Language || a.Version != b.Version || a.Opaque != b.Opaque || a.Flag != b.Flag ||
		a.Remark != b.Remark || a.Serialize != b.Serialize || len(a.Ext) != len(b.Ext) || (a.Ext == nil) != (b.Ext == nil) {
		return false
	}
	for i := range a.Ext {
		if a.Ext[i].Key != b.Ext[i].Key || !bytes.Equal(a.Ext[i].Value, b.Ext[i].Value) {
			return false
		}
	}
	return bytes.Equal(a.Body, b.Body)
}

// TestGoldenBinaryValues spells out one captured binary header.
func TestGoldenBinaryValues(t *testing.T) {
	for _, k := range loadCaptured(t) {
		if k.Name != "frame/binary header, send" || k.Direction != "response" || k.HeaderHex == "" {
			continue
		}
		var c Command
		if err := DecodeFrame(k.frame(t), &c, nil); err != nil {
			t.Fatal(err)
		}
		if c.Code != 0 || c.Language != LanguageJava || c.Version != 401 || c.Opaque != 7 || c.Flag != FlagResponse || c.Remark != "" {
			t.Errorf("fixed part %+v", c)
		}
		want := map[string]string{"msgId": "7F00000100002EEB000000000040A212", "queueId": "0", "queueOffset": "7", "TRACE_ON": "true", "MSG_REGION": "DefaultRegion"}
		for key, v := range want {
			if got := c.GetString(key); got != v {
				t.Errorf("%s is %q, want %q", key, got, v)
			}
		}
		return
	}
	t.Fatal("the captured answer is missing")
}

// TestGoldenBrokenFrames feeds the frames on which a 4.9.4 broker closed the
// connection.
func TestGoldenBrokenFrames(t *testing.T) {
	all := loadCaptured(t)
	seen := 0
	for i, k := range all {
		if k.RawHex == "" {
			continue
		}
		raw := unhex(t, k.RawHex)
		length, _ := strconv.ParseUint(hex.EncodeToString(raw[:4]), 16, 32)
		if int(length) != len(raw)-4 {
			continue // cut short on purpose: the transport's business
		}
		seen++
		var c Command
		err := DecodeFrame(raw[4:], &c, nil)
		if closed := all[i+1].Note == "connection closed"; closed != (err != nil) {
			t.Errorf("%s: connection closed %v, our error %v", k.Name, closed, err)
		}
	}
	if seen < 6 {
		t.Errorf("only %d broken frames", seen)
	}
}
