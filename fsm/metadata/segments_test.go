package metadata

import (
	"bytes"
	"errors"
	"testing"

	"raftmq/fsm/command"
)

// TestSegmentSums: only what is a sealed segment gets a checksum, once; trims forget them; they survive export and import, and tables of a cluster of
// the oldest level do not have them.
func TestSegmentSums(t *testing.T) {
	tb := New()
	if err := tb.PutSegmentSum(command.SegmentSum{}, 0, 1<<20); !errors.Is(err, ErrNoSettings) {
		t.Fatalf("before the settings: %v", err)
	}
	const size = 4096
	if err := tb.PutSettings(command.Settings{ClusterName: "C", BrokerName: "B", SegmentSize: size}); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		from      int64
		sum       uint32
		low, end  int64
		want      error
		remaining int
	}{
		{0, 7, 0, size - 1, ErrSegment, 0},
		{0, 7, 0, size, nil, 1},
		{0, 7, 0, 3 * size, nil, 1},
		{0, 8, 0, 3 * size, ErrSegmentSum, 1},
		{1, 8, 0, 3 * size, ErrSegment, 1},
		{-size, 8, -size, 3 * size, nil, 2}, // the caller's range is believed
		{2 * size, 0, 0, 3 * size, nil, 3},
		{size, 9, 2 * size, 3 * size, ErrSegment, 3},
		{3 * size, 9, 0, 4*size - 1, ErrSegment, 3},
	} {
		err := tb.PutSegmentSum(command.SegmentSum{From: tt.from, Sum: tt.sum}, tt.low, tt.end)
		if !errors.Is(err, tt.want) || tb.SegmentSums() != tt.remaining {
			t.Errorf("%+v: %v, %d sums", tt, err, tb.SegmentSums())
		}
	}
	if sum, ok := tb.SegmentSum(2 * size); !ok || sum != 0 {
		t.Errorf("a checksum of 0 is one: %v %v", sum, ok)
	}
	old, err := tb.Export()
	if err != nil || bytes.Contains(old, []byte("segments")) {
		t.Fatalf("tables of level 1: %v %s", err, old)
	}
	if err := tb.RaiseLevel(command.Raise{Level: 2}); err != nil {
		t.Fatal(err)
	}
	b, err := tb.Export()
	if err != nil || !bytes.Contains(b, []byte(`"segments":[{"from":-4096,"sum":8},{"from":0,"sum":7},{"from":8192,"sum":0}]`)) {
		t.Fatalf("%v %s", err, b)
	}
	other := New()
	if err := other.Import(b); err != nil {
		t.Fatal(err)
	}
	if again, err := other.Export(); err != nil || !bytes.Equal(again, b) {
		t.Errorf("export after import differs: %v", err)
	}
	other.TrimSegments(size)
	if _, ok := other.SegmentSum(0); ok || other.SegmentSums() != 1 {
		t.Errorf("after a trim: %d sums", other.SegmentSums())
	}
	if again, err := tb.Export(); err != nil || !bytes.Equal(again, b) {
		t.Error("a copy's trim reached the original")
	}
}
