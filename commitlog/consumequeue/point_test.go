package consumequeue

import (
	"os"
	"path/filepath"
	"testing"
)

func TestPointFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "queuepoint")
	open := func() (*PointFile, Point, bool) {
		t.Helper()
		f, p, ok, err := OpenPointFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return f, p, ok
	}
	f, _, ok := open()
	if ok {
		t.Fatal("a new file has a point")
	}
	points := make([]Point, 5)
	for i := range points {
		points[i] = Point{PhyOffset: int64(i) * 1000, Begin: 1, Units: int64(i), Firsts: 2, Queues: 3}
		if err := f.Write(points[i]); err != nil {
			t.Fatal(err)
		}
		f.Close()
		var p Point
		if f, p, ok = open(); !ok || p != points[i] {
			t.Fatalf("got %+v %v, want %+v", p, ok, points[i])
		}
	}
	f.Close()
	// The newest is torn: the one before it counts. Both: none.
	for i, want := range []Point{points[3], {}} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		slot := (5 - i) % 2 * pointSlotSize
		b[slot+20] ^= 1
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
		f, p, ok := open()
		f.Close()
		if p != want || ok != (i == 0) {
			t.Fatalf("torn %d: got %+v %v, want %+v", i+1, p, ok, want)
		}
	}
}
