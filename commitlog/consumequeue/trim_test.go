package consumequeue

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"raftmq/commitlog/faultfile"
	"raftmq/commitlog/mappedfile"
)

// TestRemoveObsolete: after the log was trimmed the minimum follows it, files of nothing go, the last one stays, and a
// point says which of it an opening must find, whether files went before the crash or not.
func TestRemoveObsolete(t *testing.T) {
	for _, removed := range []bool{false, true} {
		w := newWorld(t)
		for range 400 {
			w.add("A", 0, 1)
			if len(w.want["A/0"])%4 == 0 {
				w.add("B", 1, 2)
			}
		}
		w.add("C", 0, 3) // whose only message will be the last of all
		w.write()
		before := w.set.Point(w.phy)
		begin := w.want["A/0"][270].PhyOffset
		grew, err := w.set.RaiseMin(begin)
		a, b, c := w.set.QueueOf("A", 0), w.set.QueueOf("B", 1), w.set.QueueOf("C", 0)
		if err != nil || a.Min() != 270 || b.Min() < 65 || b.Min() > 68 || c.Min() != 0 || grew != a.Min()+b.Min() {
			t.Fatalf("minimum %d, %d, %d, grew %d: %v", a.Min(), b.Min(), c.Min(), grew, err)
		}
		point := w.set.Point(w.phy)
		if point.Begin != begin || point.Firsts != before.Firsts+grew {
			t.Fatalf("point %+v, was %+v", point, before)
		}
		if err := w.set.Flush(); err != nil {
			t.Fatal(err)
		}
		if removed {
			if n, err := w.set.RemoveObsolete(func() bool { return true }); n != 6 || err != nil { // 5 of A, 1 of B
				t.Fatalf("%d files went: %v", n, err)
			}
			if n, err := w.set.RemoveObsolete(func() bool { return true }); n != 0 || err != nil {
				t.Fatalf("%d files went again: %v", n, err)
			}
			if names, _ := filepath.Glob(filepath.Join(w.dir, "A", "0", "*")); len(names) != 3 || filepath.Base(names[0]) != "00000000000000005000" {
				t.Errorf("files of A: %v", names)
			}
			if _, err := a.At(269); !errors.Is(err, ErrRange) {
				t.Errorf("unit 269: %v", err)
			}
			if u, err := a.At(270); err != nil || u != w.want["A/0"][270] {
				t.Errorf("unit 270: %+v %v", u, err)
			}
		}
		// Everything of A and B is gone.
		end := w.want["C/0"][0].PhyOffset
		if _, err := w.set.RaiseMin(end); err != nil || a.Min() != 400 || b.Min() != 100 || c.Min() != 0 {
			t.Fatalf("minimum %d, %d, %d: %v", a.Min(), b.Min(), c.Min(), err)
		}
		if _, err := w.set.RemoveObsolete(func() bool { return true }); err != nil {
			t.Fatal(err)
		}
		// The files are now ahead of the point that a crash leaves: its Begin is the older one, the log's first byte a later one.
		w.set.Close()
		s, err := Open(testConfig(w.dir), point, end)
		if err != nil {
			t.Fatal(err)
		}
		w.set, w.batch = s, s.NewBatch()
		a = s.QueueOf("A", 0)
		if a.Min() != 400 || a.Max() != 400 {
			t.Errorf("A is [%d, %d)", a.Min(), a.Max())
		}
		if err := w.batch.Add([]byte("A"), 0, 400, Unit{PhyOffset: w.phy, Size: 100}); err != nil {
			t.Fatal(err) // goes on where it was (F09)
		}
		w.write()
		if a.Min() != 400 || a.Max() != 401 {
			t.Errorf("A is [%d, %d)", a.Min(), a.Max())
		}
	}
}

// TestLostFilesAfterTrim: a trimmed log is no excuse for files that the point knows.
func TestLostFilesAfterTrim(t *testing.T) {
	w := newWorld(t)
	for range 400 {
		w.add("A", 0, 1)
	}
	w.write()
	begin := w.want["A/0"][120].PhyOffset
	if _, err := w.set.RaiseMin(begin); err != nil {
		t.Fatal(err)
	}
	point := w.set.Point(w.phy)
	if _, err := w.set.RemoveObsolete(func() bool { return true }); err != nil {
		t.Fatal(err)
	}
	w.set.Close()
	w.open(point) // the log's files were not removed yet: begin 0
	w.set.Close()
	if err := os.Remove(filepath.Join(w.dir, "A", "0", "00000000000000002000")); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(testConfig(w.dir), point, begin); !errors.Is(err, ErrDamaged) {
		if err == nil {
			s.Close()
		}
		t.Errorf("opened without the first file: %v", err)
	}
}

// fullDisk refuses blocks, new files and folders while full.
type fullDisk struct {
	mappedfile.FS
	left atomic.Int64 // grants until it is full
}

func (d *fullDisk) take() error {
	if d.left.Add(-1) < 0 {
		return mappedfile.ErrNoSpace
	}
	return nil
}

func (d *fullDisk) Create(path string, size int64) (mappedfile.Handle, error) {
	if err := d.take(); err != nil {
		return nil, err
	}
	h, err := d.FS.Create(path, size)
	if err != nil {
		return nil, err
	}
	return &fullHandle{h, d}, nil
}

type fullHandle struct {
	mappedfile.Handle
	disk *fullDisk
}

func (h *fullHandle) Allocate(off, n int64) error {
	if err := h.disk.take(); err != nil {
		return err
	}
	return h.Handle.Allocate(off, n)
}

// TestBatchOnAFullDisk: a batch that meets a full disk is written when there is room, once, whatever it had written before.
func TestBatchOnAFullDisk(t *testing.T) {
	disk := &fullDisk{FS: faultfile.New()}
	w := newWorld(t)
	w.set.Close()
	c := testConfig(w.dir)
	c.FS, c.AllocateStep = disk, UnitSize
	var err error
	if w.set, err = Open(c, Point{}, 0); err != nil {
		t.Fatal(err)
	}
	w.batch = w.set.NewBatch()
	rnd := rand.New(rand.NewPCG(1, 1))
	const first = 7 // of queue F, which does not begin at 0
	next := int64(first)
	for range 40 {
		for range 1 + rnd.IntN(60) {
			w.add("A", int32(rnd.IntN(4)), 1)
		}
		if err := w.batch.Add([]byte("F"), 0, next, Unit{PhyOffset: w.phy, Size: 10}); err != nil {
			t.Fatal(err)
		}
		w.phy += 10
		next++
		for grants := int64(0); ; grants++ {
			disk.left.Store(grants % 5)
			err := w.batch.Write()
			if err == nil {
				break
			}
			if !errors.Is(err, mappedfile.ErrNoSpace) {
				t.Fatal(err)
			}
		}
	}
	f := w.set.QueueOf("F", 0)
	if f.Min() != first || f.Max() != next {
		t.Errorf("F is [%d, %d), want [%d, %d)", f.Min(), f.Max(), first, next)
	}
	want := Point{PhyOffset: w.phy, Units: next, Firsts: first, Queues: 1}
	for k, units := range w.want {
		want.Queues++
		want.Units += int64(len(units))
		id := int32(k[len(k)-1] - '0')
		if got := readAll(t, w.set.QueueOf("A", id)); len(got) != len(units) {
			t.Errorf("%s has %d units, want %d", k, len(got), len(units))
		}
	}
	if got := w.set.Point(w.phy); got != want {
		t.Errorf("point %+v, want %+v", got, want)
	}
}
