package record

import (
	"bytes"
	"errors"
	"net/netip"
	"testing"
)

func TestProperty(t *testing.T) {
	tests := []struct {
		props, name, want string
		found             bool
	}{
		{"a\x01b", "a", "b", true},
		{"a\x01b\x02", "a", "b", true},
		{"\x02\x02a\x01b", "a", "b", true},
		{"a\x01b\x02a\x01c", "a", "c", true},
		{"a\x01b\x02a\x01", "a", "b", true},
		{"a\x01b\x01c", "a", "b\x01c", true},
		{"a\x01", "a", "", false},
		{"\x01b", "", "", false},
		{"a", "a", "", false},
		{"ab\x01c", "a", "", false},
		{"", "a", "", false},
		{"空\x01值", "空", "值", true},
	}
	for _, tt := range tests {
		got, ok := Property([]byte(tt.props), tt.name)
		if string(got) != tt.want || ok != tt.found {
			t.Errorf("Property(%q, %q) = %q, %v", tt.props, tt.name, got, ok)
		}
	}
	n := 0
	RangeProperties([]byte("a\x01b\x02c\x01d\x02e\x01f"), func(name, value []byte) bool {
		n++
		return n < 2
	})
	if n != 2 {
		t.Errorf("%d calls after the second said stop", n)
	}
}

func TestBuildProperties(t *testing.T) {
	b := AppendProperty([]byte(nil), "a", "b")
	b = AppendProperty(b, []byte("c"), []byte("d"))
	b = AppendProperty(b, "e", "")
	b = AppendProperty(append(b, PropertySeparator), "f", "g")
	if string(b) != "a\x01b\x02c\x01d\x02f\x01g" {
		t.Errorf("%q", b)
	}
	request := []byte("WAIT\x01false\x02x\x01y\x02empty\x01\x02CLUSTER\x01mine\x02WAIT\x01true\x02")
	if got := AppendStoredProperties(nil, request, "c1"); string(got) != "x\x01y\x02CLUSTER\x01c1" {
		t.Errorf("stored %q", got)
	}
	if got := AppendRequestProperties(nil, request, "c1"); string(got) != "WAIT\x01false\x02x\x01y\x02WAIT\x01true\x02CLUSTER\x01c1" {
		t.Errorf("request %q", got)
	}
	// What is before in the buffer must not count as this text's.
	if got := AppendStoredProperties([]byte("z"), nil, "c1"); string(got) != "zCLUSTER\x01c1" {
		t.Errorf("behind other bytes %q", got)
	}
	if got := AppendStoredProperties(nil, nil, ""); len(got) != 0 {
		t.Errorf("nothing %q", got)
	}
	for _, tt := range [][3]string{{"a", "b", "a\x02b"}, {"a\x02", "b", "a\x02b"}, {"", "b", "b"}, {"a", "", "a"}, {"a\x02", "", "a\x02"}} {
		if got := JoinProperties(nil, []byte(tt[0]), []byte(tt[1])); string(got) != tt[2] {
			t.Errorf("join %q", got)
		}
	}
}

func TestTagFilter(t *testing.T) {
	for expression, want := range map[string][3]bool{ // TagA, TagB, none
		"": {true, true, true}, "*": {true, true, true}, "TagA": {true, false, false}, "TagA||TagB": {true, true, false},
		"  TagB  ||  x ": {false, true, false}, "x || || TagA": {true, false, false}, "x": {}, "* || TagA": {true, false, false},
	} {
		f, err := ParseTagFilter(expression)
		if err != nil {
			t.Fatal(err)
		}
		got := [3]bool{f.Match(int64(JavaHash("TagA"))), f.Match(int64(JavaHash("TagB"))), f.Match(0)}
		if got != want {
			t.Errorf("%q: %v, want %v", expression, got, want)
		}
	}
	for _, bad := range []string{"||", " ", " || "} {
		if _, err := ParseTagFilter(bad); !errors.Is(err, ErrTagExpression) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if !NewTagFilter(nil).All() || !NewTagFilter([]int32{-5, 7}).Match(-5) || NewTagFilter([]int32{-5, 7}).Match(5) {
		t.Error("NewTagFilter")
	}
}

func TestMessageID(t *testing.T) {
	h := netip.MustParseAddrPort("10.0.0.1:10911")
	if got := AppendMessageID(nil, h, 1234); string(got) != "0A00000100002A9F00000000000004D2" {
		t.Errorf("%s", got)
	}
	for _, bad := range []string{"", "0A", "0A00000100002A9F00000000000004D", "0A00000100002A9F00000000000004DG", "0A00000100012A9F00000000000004D2"} {
		if _, _, err := ParseMessageID(bad); !errors.Is(err, ErrMessageID) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if got, off, err := ParseMessageID("0a00000100002a9f00000000000004d2"); err != nil || got != h || off != 1234 {
		t.Errorf("lower case: %v %d %v", got, off, err)
	}
}

// goldenBatch is the begin of a batch body that a Java client 4.9.4 sent: its first entry is whole.
const goldenBatch = "000000940000000000000000000000000000001462617463682d302062617463682d302062617463"

func TestBatch(t *testing.T) {
	entries := []BatchEntry{
		{Flag: 5, Body: []byte("one"), Properties: []byte("TAGS\x01a")},
		{Body: []byte{}, Properties: []byte{}},
		{Flag: -1, Body: bytes.Repeat([]byte("x"), 1000), Properties: []byte{}},
	}
	var b []byte
	for _, e := range entries {
		b = AppendBatchEntry(b, e)
	}
	rest := b
	for i, want := range entries {
		var got BatchEntry
		var err error
		if got, rest, err = NextBatchEntry(rest); err != nil {
			t.Fatal(err)
		}
		if got.Flag != want.Flag || !bytes.Equal(got.Body, want.Body) || !bytes.Equal(got.Properties, want.Properties) {
			t.Errorf("entry %d: %+v", i, got)
		}
	}
	if len(rest) != 0 {
		t.Errorf("%d bytes over", len(rest))
	}
	first := AppendBatchEntry(nil, entries[0])
	tests := []struct {
		name    string
		corrupt func([]byte) []byte
	}{
		{"empty", func(b []byte) []byte { return nil }},
		{"cut", func(b []byte) []byte { return b[:len(b)-1] }},
		{"size negative", func(b []byte) []byte { b[0] = 0x80; return b }},
		{"size too small", func(b []byte) []byte { b[3] = batchFixedSize - 1; return b }},
		{"size one less", func(b []byte) []byte { b[3]--; return b }},
		{"body negative", func(b []byte) []byte { b[16] = 0x80; return b }},
		{"body too long", func(b []byte) []byte { b[19] = 100; return b }},
		{"properties too long", func(b []byte) []byte { b[24]++; return b }},
		{"properties too short", func(b []byte) []byte { b[24]--; return b }},
	}
	for _, tt := range tests {
		if e, _, err := NextBatchEntry(tt.corrupt(bytes.Clone(first))); !errors.Is(err, ErrBatch) || e.Body != nil {
			t.Errorf("%s: %+v, %v", tt.name, e, err)
		}
	}
	head := unhex(t, goldenBatch)
	if got := AppendBatchEntry(nil, BatchEntry{Body: head[20:40], Properties: make([]byte, 0x94-22-20)}); !bytes.Equal(got[:40], head) {
		t.Errorf("%X", got[:40])
	}
}
