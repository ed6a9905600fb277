package consumequeue

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const testFileSize = 50 * UnitSize

func testConfig(dir string) Config {
	return Config{Dir: dir, FileSize: testFileSize, AllocateStep: 4096}
}

// world is a set and what it should hold.
type world struct {
	t     *testing.T
	dir   string
	set   *Set
	batch *Batch
	phy   int64
	want  map[string][]Unit // units from offset 0 on
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, dir: filepath.Join(t.TempDir(), "consumequeue"), want: map[string][]Unit{}}
	w.open(Point{})
	t.Cleanup(func() { w.set.Close() })
	return w
}

func (w *world) open(p Point) {
	w.t.Helper()
	s, err := Open(testConfig(w.dir), p, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	w.set, w.batch = s, s.NewBatch()
}

// add puts one unit into the batch.
func (w *world) add(topic string, id int32, tagsCode int64) {
	w.t.Helper()
	k := fmt.Sprintf("%s/%d", topic, id)
	u := Unit{PhyOffset: w.phy, Size: 100 + int32(len(w.want[k])%50), TagsCode: tagsCode}
	if err := w.batch.Add([]byte(topic), id, int64(len(w.want[k])), u); err != nil {
		w.t.Fatal(err)
	}
	w.want[k] = append(w.want[k], u)
	w.phy = u.End()
}

func (w *world) write() {
	w.t.Helper()
	if err := w.batch.Write(); err != nil {
		w.t.Fatal(err)
	}
}

// cutTo forgets what is behind a point, as a crash does.
func (w *world) cutTo(phy int64) {
	for k, units := range w.want {
		units = units[:sortSearch(units, phy)]
		if len(units) == 0 {
			delete(w.want, k)
			continue
		}
		w.want[k] = units
	}
	w.phy = phy
}

func sortSearch(units []Unit, phy int64) int {
	i := slices.IndexFunc(units, func(u Unit) bool { return u.End() > phy })
	if i < 0 {
		return len(units)
	}
	return i
}

func (w *world) check() {
	w.t.Helper()
	if w.set.Len() != len(w.want) {
		w.t.Fatalf("%d queues, want %d", w.set.Len(), len(w.want))
	}
	var total int64
	for k, want := range w.want {
		topic, id, _ := strings.Cut(k, "/")
		var n int32
		fmt.Sscan(id, &n)
		q := w.set.Queue([]byte(topic), n)
		if q == nil {
			w.t.Fatalf("no queue %s", k)
		}
		if got := readAll(w.t, q); !slices.Equal(got, want) {
			w.t.Fatalf("%s: got %d units %v\nwant %d %v", k, len(got), got, len(want), want)
		}
		total += int64(len(want))
	}
	if p := w.set.Point(w.phy); p.Units != total || p.Queues != int64(len(w.want)) {
		w.t.Fatalf("point %+v, want %d units", p, total)
	}
}

// readAll reads [0, Max) by views.
func readAll(t *testing.T, q *Queue) (got []Unit) {
	t.Helper()
	for n := q.Min(); n < q.Max(); {
		v, err := q.View(n, 17)
		if err != nil {
			t.Fatal(err)
		}
		for i := range v.Units.Len() {
			got = append(got, v.Units.At(i))
		}
		n += int64(v.Units.Len())
		v.Release()
	}
	return got
}

func TestBatch(t *testing.T) {
	w := newWorld(t)
	for round := range 40 {
		for i := range round % 13 {
			w.add([]string{"A", "B", "%RETRY%g"}[i%3], int32(i%2), int64(i))
		}
		w.write()
		w.check()
	}
	if q := w.set.Queue([]byte("A"), 7); q != nil {
		t.Fatal("a read made a queue")
	}
	if _, err := os.Stat(filepath.Join(w.dir, "A", "7")); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a read made a folder: %v", err)
	}
	q := w.set.QueueOf("A", 0)
	for _, n := range []int64{-1, q.Max(), math.MaxInt64} {
		if _, err := q.At(n); !errors.Is(err, ErrRange) {
			t.Errorf("unit %d: %v", n, err)
		}
	}
}

// TestRange: a call for each stretch of equal tags codes, queue by queue.
func TestRange(t *testing.T) {
	w := newWorld(t)
	for _, x := range []struct {
		topic string
		tag   int64
	}{{"A", 1}, {"B", 9}, {"A", 1}, {"A", 2}, {"B", 9}, {"A", 1}} {
		w.add(x.topic, 0, x.tag)
	}
	var got []string
	collect := func(topic []byte, id int32, next, tag int64) {
		got = append(got, fmt.Sprintf("%s/%d %d %d", topic, id, next, tag))
	}
	w.batch.Range(collect)
	if len(got) > 0 {
		t.Fatalf("before Write: %v", got)
	}
	w.write()
	w.batch.Range(collect)
	if want := []string{"A/0 2 1", "A/0 3 2", "A/0 4 1", "B/0 2 9"}; !slices.Equal(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
	got = nil
	w.add("B", 0, 5)
	w.write()
	w.batch.Range(collect)
	if want := []string{"B/0 3 5"}; !slices.Equal(got, want) {
		t.Fatalf("next batch: got %v, want %v", got, want)
	}
}

func TestRefusals(t *testing.T) {
	w := newWorld(t)
	w.add("A", 0, 1)
	w.add("A", 0, 1)
	u := Unit{PhyOffset: 5000, Size: 100}
	for _, c := range []struct {
		topic string
		id    int32
		n     int64
		want  error
	}{
		{"A", 0, 3, ErrOrder},
		{"A", 0, 1, ErrOrder},
		{"..", 0, 0, ErrTopic},
		{"a/b", 0, 0, ErrTopic},
		{"", 0, 0, ErrTopic},
		{"A", -1, 0, ErrQueueID},
		{"N", 0, -1, ErrOrder},
	} {
		if err := w.batch.Add([]byte(c.topic), c.id, c.n, u); !errors.Is(err, c.want) {
			t.Errorf("%q/%d %d: %v, want %v", c.topic, c.id, c.n, err, c.want)
		}
	}
	w.write()
	if err := w.batch.Add([]byte("A"), 0, 3, u); !errors.Is(err, ErrOrder) {
		t.Errorf("a hole behind written units: %v", err)
	}
}

// TestRewrite: dispatching a stretch of log twice changes nothing.
func TestRewrite(t *testing.T) {
	w := newWorld(t)
	for i := range 120 {
		w.add("A", int32(i%2), int64(i))
	}
	w.write()
	for i := 20; i < 60; i++ {
		if err := w.batch.Add([]byte("A"), 0, int64(i), w.want["A/0"][i]); err != nil {
			t.Fatal(err)
		}
	}
	w.write()
	w.check()
}

// TestReopen: at random, with the point at the end (clean stop) or before it (crash).
func TestReopen(t *testing.T) {
	w := newWorld(t)
	rnd := rand.New(rand.NewPCG(1, 2))
	point := Point{}
	for range 60 {
		for range rnd.IntN(4) {
			for range rnd.IntN(90) {
				w.add(fmt.Sprintf("T%d", rnd.IntN(3)), int32(rnd.IntN(3)), rnd.Int64())
			}
			w.write()
		}
		w.check()
		if rnd.IntN(2) == 0 {
			point = w.set.Point(w.phy)
			if err := w.set.Flush(); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.set.Close(); err != nil {
			t.Fatal(err)
		}
		w.open(point)
		w.cutTo(point.PhyOffset)
		w.check()
	}
}

// TestCutIsZeroed: what is behind the point is not there after the next opening either.
func TestCutIsZeroed(t *testing.T) {
	w := newWorld(t)
	for range 30 {
		w.add("A", 0, 1)
	}
	w.write()
	point := w.set.Point(w.phy)
	for range 90 {
		w.add("A", 0, 1)
	}
	w.write()
	far := w.phy
	w.set.Close()
	w.open(point)
	w.set.Close()
	files, err := os.ReadDir(filepath.Join(w.dir, "A", "0"))
	if err != nil || len(files) != 1 {
		t.Fatalf("files %v, %v", files, err)
	}
	b, err := os.ReadFile(filepath.Join(w.dir, "A", "0", files[0].Name()))
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range b[30*UnitSize:] {
		if c != 0 {
			t.Fatalf("byte %d is %#x", 30*UnitSize+i, c)
		}
	}
	point.PhyOffset = far
	w.open(point) // 30 units are all that can be found
	w.cutTo(w.want["A/0"][29].End())
	w.check()
}

// TestFirstUnitInTheMiddle: a queue that begins inside a file is filled up as RocketMQ does.
func TestFirstUnitInTheMiddle(t *testing.T) {
	w := newWorld(t)
	const first = 170
	for i := range int64(60) {
		if err := w.batch.Add([]byte("A"), 0, first+i, Unit{PhyOffset: i * 100, Size: 100}); err != nil {
			t.Fatal(err)
		}
	}
	w.write()
	point := w.set.Point(6000)
	for range 2 {
		q := w.set.QueueOf("A", 0)
		if q.Min() != first || q.Max() != first+60 {
			t.Fatalf("[%d, %d)", q.Min(), q.Max())
		}
		if u, err := q.At(first); err != nil || u.PhyOffset != 0 {
			t.Fatalf("%+v %v", u, err)
		}
		w.set.Close()
		w.open(point)
	}
	names, _ := filepath.Glob(filepath.Join(w.dir, "A", "0", "*"))
	if len(names) != 2 || filepath.Base(names[0]) != "00000000000000003000" {
		t.Fatalf("files %v", names)
	}
	b, err := os.ReadFile(names[0])
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		if u := Units(b).At(n); !u.IsFiller() {
			t.Fatalf("unit %d: %+v", n, u)
		}
	}
	q := w.set.QueueOf("A", 0)
	for _, c := range []struct{ phy, min int64 }{{0, first}, {50, first + 1}, {4000, first + 40}, {1 << 40, first + 60}} {
		if _, err := w.set.RaiseMin(c.phy); err != nil || q.Min() != c.min || w.set.Point(0).Firsts != c.min {
			t.Fatalf("log begins at %d: min %d %v, want %d", c.phy, q.Min(), err, c.min)
		}
	}
	if err := w.batch.Add([]byte("A"), 0, first+60, Unit{PhyOffset: 6000, Size: 100}); err != nil {
		t.Fatal(err) // emptied, it goes on where it was (F09)
	}
	w.write()
	if q.Max() != first+61 {
		t.Fatalf("max %d", q.Max())
	}
}

// TestDamage: files that are lost, short or full of something else are noticed at Open (F39, F43).
func TestDamage(t *testing.T) {
	random := func(n int) []byte {
		b := make([]byte, n)
		rnd := rand.New(rand.NewPCG(3, 4))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return b
	}
	first := fmt.Sprintf("%020d", 0)
	second := fmt.Sprintf("%020d", testFileSize)
	third := fmt.Sprintf("%020d", 2*testFileSize)
	for name, harm := range map[string]func(dir string) error{
		"folder deleted":      func(dir string) error { return os.RemoveAll(dir) },
		"topic deleted":       func(dir string) error { return os.RemoveAll(filepath.Dir(dir)) },
		"first file deleted":  func(dir string) error { return os.Remove(filepath.Join(dir, first)) },
		"last file deleted":   func(dir string) error { return os.Remove(filepath.Join(dir, third)) },
		"middle file deleted": func(dir string) error { return os.Remove(filepath.Join(dir, second)) },
		"last file empty":     func(dir string) error { return os.Truncate(filepath.Join(dir, third), 0) },
		"file short":          func(dir string) error { return os.Truncate(filepath.Join(dir, second), 77) },
		"last file random":    func(dir string) error { return os.WriteFile(filepath.Join(dir, third), random(testFileSize), 0o644) },
		"middle file random":  func(dir string) error { return os.WriteFile(filepath.Join(dir, second), random(testFileSize), 0o644) },
		"middle file all zero": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, second), make([]byte, testFileSize), 0o644)
		},
		"foreign file": func(dir string) error { return os.WriteFile(filepath.Join(dir, "x"), nil, 0o644) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for i := range 240 {
				w.add([]string{"A", "B"}[i%2], 0, int64(i))
			}
			w.write()
			point := w.set.Point(w.phy)
			w.set.Close()
			if err := harm(filepath.Join(w.dir, "A", "0")); err != nil {
				t.Fatal(err)
			}
			if s, err := Open(testConfig(w.dir), point, 0); !errors.Is(err, ErrDamaged) {
				if err == nil {
					s.Close()
				}
				t.Fatalf("got %v, want ErrDamaged", err)
			}
			if err := Remove(w.dir); err != nil {
				t.Fatal(err)
			}
			w.open(Point{})
			w.want, w.phy = map[string][]Unit{}, 0
			w.add("A", 0, 1)
			w.write()
			w.check()
		})
	}
}

// TestForeignNames: what is no queue is left alone.
func TestForeignNames(t *testing.T) {
	w := newWorld(t)
	w.add("A", 0, 1)
	w.write()
	point := w.set.Point(w.phy)
	w.set.Close()
	for _, name := range []string{"a.b/0", "A/00", "A/-1", "A/x", "A/99999999999"} {
		if err := os.MkdirAll(filepath.Join(w.dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(w.dir, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	w.open(point)
	w.check()
}

func TestClear(t *testing.T) {
	w := newWorld(t)
	w.add("A", 0, 1)
	w.write()
	q := w.set.QueueOf("A", 0)
	v, err := q.View(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.set.Clear(); err != nil {
		t.Fatal(err)
	}
	if v.Units.At(0) != w.want["A/0"][0] {
		t.Fatal("a view died with the files")
	}
	v.Release()
	if _, err := q.At(0); err == nil {
		t.Fatal("a cleared queue answered")
	}
	w.batch = w.set.NewBatch()
	w.want, w.phy = map[string][]Unit{}, 0
	w.check()
	w.add("B", 0, 1)
	w.write()
	w.check()
	if err := w.set.Flush(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := w.set.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.set.Flush(); !errors.Is(err, ErrClosed) {
		t.Fatalf("flush after close: %v", err)
	}
}

func BenchmarkBatch(b *testing.B) {
	for _, queues := range []int{1, 8, 1000} {
		b.Run(fmt.Sprintf("queues=%d/batch=1000", queues), func(b *testing.B) {
			s, err := Open(Config{Dir: b.TempDir()}, Point{}, 0)
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			batch := s.NewBatch()
			topic := []byte("TopicTest")
			var n int64
			b.ReportAllocs()
			for b.Loop() {
				for range 1000 {
					u := Unit{PhyOffset: n * 1000, Size: 1000, TagsCode: 1}
					if err := batch.Add(topic, int32(n%int64(queues)), n/int64(queues), u); err != nil {
						b.Fatal(err)
					}
					n++
				}
				if err := batch.Write(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "units/s")
		})
	}
}
