package consumequeue

import (
	"bytes"
	"encoding/hex"
	"math"
	"testing"
)

// TestUnitVector is RocketMQ's layout: a record of 122 bytes at 1234 with tag TagA.
func TestUnitVector(t *testing.T) {
	u := Unit{PhyOffset: 1234, Size: 122, TagsCode: 2598919}
	const want = "00000000000004d20000007a000000000027a807"
	if got := hex.EncodeToString(AppendUnit(nil, u)); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
	b := make([]byte, UnitSize)
	putUnit(b, u)
	if got := hex.EncodeToString(b); got != want {
		t.Fatalf("putUnit: got %s, want %s", got, want)
	}
	if got, ok := DecodeUnit(b); !ok || got != u || Units(b).At(0) != u {
		t.Fatalf("decoded %+v %v, want %+v", got, ok, u)
	}
	if _, ok := DecodeUnit(b[:UnitSize-1]); ok {
		t.Fatal("a unit of 19 bytes passed")
	}
}

func TestUnitKinds(t *testing.T) {
	for _, c := range []struct {
		name           string
		unit           Unit
		record, filler bool
	}{
		{"zero", Unit{}, false, false},
		{"filler of RocketMQ", Unit{Size: math.MaxInt32}, false, true},
		{"first record", Unit{PhyOffset: 0, Size: 91}, true, false},
		{"huge with a tag is no filler", Unit{Size: math.MaxInt32, TagsCode: 1}, true, false},
		{"negative offset", Unit{PhyOffset: -1, Size: 91}, false, false},
		{"negative size", Unit{PhyOffset: 1, Size: -91}, false, false},
		{"end overflows", Unit{PhyOffset: math.MaxInt64 - 3, Size: 91}, false, false},
	} {
		if c.unit.IsRecord() != c.record || c.unit.IsFiller() != c.filler {
			t.Errorf("%s: record %v, filler %v", c.name, c.unit.IsRecord(), c.unit.IsFiller())
		}
	}
}

func FuzzUnit(f *testing.F) {
	f.Add(AppendUnit(nil, Unit{PhyOffset: 1234, Size: 122, TagsCode: 2598919}))
	f.Add(AppendUnit(nil, Unit{Size: math.MaxInt32}))
	f.Add([]byte("short"))
	f.Fuzz(func(t *testing.T, b []byte) {
		u, ok := DecodeUnit(b)
		if ok != (len(b) >= UnitSize) {
			t.Fatalf("%d bytes: %v", len(b), ok)
		}
		if ok && !bytes.Equal(AppendUnit(nil, u), b[:UnitSize]) {
			t.Fatalf("%x became %+v", b[:UnitSize], u)
		}
		if u.IsRecord() && u.End() <= u.PhyOffset {
			t.Fatalf("%+v ends at %d", u, u.End())
		}
	})
}

func FuzzPoint(f *testing.F) {
	f.Add(appendPoint(nil, 7, Point{PhyOffset: 1 << 40, Begin: 7, Units: 5, Firsts: 1, Queues: 2}))
	f.Add(make([]byte, pointSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		sequence, p, ok := decodePoint(b)
		if ok && !bytes.Equal(appendPoint(nil, sequence, p), b[:pointSize]) {
			t.Fatalf("%x became %d %+v", b, sequence, p)
		}
	})
}

// TestF69ValidTopic: names that are no topics, and above all no paths.
func TestF69ValidTopic(t *testing.T) {
	long := string(bytes.Repeat([]byte("T"), 256))
	for _, name := range []string{"", ".", "..", "a/b", "../a", "a.b", "a b", "täg", "a\x00b", "话题", long, "\xff"} {
		if ValidTopic(name) {
			t.Errorf("%q passed", name)
		}
	}
	for _, name := range []string{"a", "%RETRY%g-1", "A|b_C", long[:127], long[:255]} {
		if !ValidTopic(name) {
			t.Errorf("%q refused", name)
		}
	}
}
