package dispatch

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
)

const segmentSize = 64 << 10

// testLog is a published log without a journal: records in mapped segments, blanks between.
type testLog struct {
	t     testing.TB
	files *mappedfile.Queue
	// want is what dispatch has to see.
	want []seen
}

type seen struct {
	phy      int64
	size     int
	topic    string
	offset   int64
	tagsCode int64
}

func newTestLog(t testing.TB, size int64) *testLog {
	files, err := mappedfile.Open(mappedfile.Options{Dir: t.TempDir(), FileSize: size})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	return &testLog{t: t, files: files}
}

func (l *testLog) MaxOffset() int64 { return l.files.MaxOffset() }

func (l *testLog) View(off int64, max int) (mappedfile.View, error) { return l.files.View(off, max) }

var host = netip.MustParseAddrPort("127.0.0.1:10911")

func encode(topic, props string, offset int64, body []byte) []byte {
	return record.Append(nil, &record.Message{
		Topic: []byte(topic), QueueID: 1, QueueOffset: offset, BornHost: host, StoreHost: host,
		StoreTimestamp: 1_600_000_000_000, Body: body, Properties: []byte(props),
	})
}

// append writes and publishes one record; a blank before it if it does not fit.
func (l *testLog) append(rec []byte) {
	l.t.Helper()
	if room := l.files.Remaining(); int64(len(rec)+record.BlankMinSize) > room {
		blank := binary.BigEndian.AppendUint32(nil, uint32(room))
		l.put(binary.BigEndian.AppendUint32(blank, record.MagicBlank), int(room))
	}
	v := record.View(rec)
	record.PatchOffsets(rec, v.QueueOffset(), l.files.MaxOffset())
	l.want = append(l.want, seen{l.files.MaxOffset(), len(rec), string(v.Topic()), v.QueueOffset(), record.TagsCode(v.Properties())})
	l.put(rec, len(rec))
}

func (l *testLog) put(b []byte, size int) {
	l.t.Helper()
	dst, err := l.files.Append(size)
	if err != nil {
		l.t.Fatal(err)
	}
	copy(dst, b)
	l.files.Commit(int64(size))
}

// collector is a builder that notes what it gets and shows it at Commit.
type collector struct {
	mu       sync.Mutex
	pending  []seen
	readable []seen
	addErr   error
	panics   bool
}

func (c *collector) Add(v record.View, tagsCode int64) error {
	if c.panics {
		panic("builder")
	}
	c.pending = append(c.pending, seen{v.PhyOffset(), v.Size(), string(v.Topic()), v.QueueOffset(), tagsCode})
	return c.addErr
}

func (c *collector) Commit(int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.readable = append(c.readable, c.pending...)
	c.pending = c.pending[:0]
	return nil
}

func (c *collector) all() []seen {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.readable)
}

func start(t testing.TB, c Config) *Dispatcher {
	before := runtime.NumGoroutine()
	d := Start(c)
	t.Cleanup(func() {
		d.Close()
		deadline := time.Now().Add(5 * time.Second)
		for runtime.NumGoroutine() > before && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		if n := runtime.NumGoroutine(); n > before {
			t.Errorf("%d goroutines, before %d", n, before)
		}
	})
	return d
}

// waitFor waits until everything below end is built.
func waitFor(t testing.TB, d *Dispatcher, end int64) {
	t.Helper()
	got := make(chan error, 1)
	d.Wait(end, func(err error) { got <- err })
	select {
	case err := <-got:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatalf("dispatched to %d, not to %d", d.To(), end)
	}
}

func TestFollowsTheLog(t *testing.T) {
	l := newTestLog(t, segmentSize)
	var c collector
	var arrived []int64
	d := start(t, Config{Log: l, Builders: []Builder{&c}, BatchBytes: 10 << 10,
		Committed: func(to int64) { arrived = append(arrived, to) }})
	for i := range int64(500) {
		l.append(encode("T", fmt.Sprintf("TAGS\x01tag%d", i%7), i, make([]byte, i*13%3000)))
		d.Wake()
		if i%50 == 0 {
			waitFor(t, d, l.MaxOffset())
		}
	}
	waitFor(t, d, l.MaxOffset())
	if d.To() != l.MaxOffset() || l.files.Files() < 3 {
		t.Fatalf("dispatched to %d of %d in %d files", d.To(), l.MaxOffset(), l.files.Files())
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if got := c.all(); !slices.Equal(got, l.want) {
		t.Fatalf("got %d records, want %d", len(got), len(l.want))
	}
	if len(arrived) == 0 || arrived[len(arrived)-1] != l.MaxOffset() || !slices.IsSorted(arrived) {
		t.Fatalf("arrived %v", arrived)
	}
}

// TestF03From starts in the middle, and at a blank filler (F03: at a segment's end nothing is lost).
func TestF03From(t *testing.T) {
	l := newTestLog(t, 4096)
	for i := range int64(40) {
		l.append(encode("T", "", i, make([]byte, 300)))
	}
	for i, w := range l.want {
		froms := []int64{w.phy}
		if i > 0 && w.phy%4096 == 0 {
			froms = append(froms, l.want[i-1].phy+int64(l.want[i-1].size)) // the blank
		}
		for _, from := range froms {
			var c collector
			d := Start(Config{Log: l, From: from, Builders: []Builder{&c}})
			if err := d.Close(); err != nil { // reaches the published end first
				t.Fatal(err)
			}
			if got := c.all(); !slices.Equal(got, l.want[i:]) {
				t.Fatalf("from %d: %d records, want %d", from, len(got), len(l.want)-i)
			}
		}
	}
}

// TestF05NeverAhead: what is written but not published stays unseen.
func TestF05NeverAhead(t *testing.T) {
	l := newTestLog(t, segmentSize)
	var c collector
	d := start(t, Config{Log: l, Builders: []Builder{&c}})
	l.append(encode("T", "", 0, nil))
	rec := encode("T", "", 1, nil)
	record.PatchOffsets(rec, 1, l.MaxOffset())
	dst, err := l.files.Append(len(rec))
	if err != nil {
		t.Fatal(err)
	}
	copy(dst, rec)
	d.Wake()
	waitFor(t, d, l.MaxOffset())
	reached := make(chan error, 1)
	d.Wait(l.MaxOffset()+1, func(err error) { reached <- err })
	for range 100 {
		d.Wake()
		runtime.Gosched()
	}
	if n := len(c.all()); n != 1 || len(reached) != 0 {
		t.Fatalf("%d records, %d waiters released", n, len(reached))
	}
	l.files.Commit(int64(len(rec)))
	d.Wake()
	if err := <-reached; err != nil {
		t.Fatal(err)
	}
	if n := len(c.all()); n != 2 {
		t.Fatalf("%d records", n)
	}
}

// TestF89DeadDispatcher: whatever kills the loop is told once, with the place, and nothing
// behind it is built.
func TestF89DeadDispatcher(t *testing.T) {
	boom := errors.New("boom")
	for _, c := range []struct {
		name   string
		harm   func(l *testLog, c *collector)
		want   string
		is     error
		before int
	}{
		{"panic", func(_ *testLog, c *collector) { c.panics = true }, "panic", nil, 0},
		{"builder", func(_ *testLog, c *collector) { c.addErr = boom }, "physical offset 0 ", boom, 0},
		{"zeroes", func(l *testLog, _ *collector) { l.put(nil, 200) }, "physical offset END (file 00000000000000000000, position END)", record.ErrMagic, 15},
		{"wrong place", func(l *testLog, _ *collector) { rec := encode("T", "", 1, nil); l.put(rec, len(rec)) }, "says it is at 0", nil, 15},
		{"lengths", func(l *testLog, _ *collector) {
			rec := encode("T", "", 1, make([]byte, 100))
			binary.BigEndian.PutUint32(rec[84:], 5000)
			l.put(rec, len(rec))
		}, "physical offset END ", record.ErrLength, 15},
		{"cut off", func(l *testLog, _ *collector) { rec := encode("T", "", 1, make([]byte, 100)); l.put(rec, len(rec)-1) }, "physical offset END ", record.ErrTruncated, 15},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newTestLog(t, segmentSize)
			for i := range int64(15) {
				l.append(encode("T", "", i, nil))
			}
			end := l.MaxOffset()
			var b collector
			fatal := make(chan error, 2)
			if c.before == 0 {
				c.harm(l, &b)
			}
			d := start(t, Config{Log: l, Builders: []Builder{&b}, SegmentSize: segmentSize, OnFatal: func(err error) { fatal <- err }})
			if c.before > 0 {
				waitFor(t, d, end)
				c.harm(l, &b)
			}
			waited := make(chan error, 1)
			d.Wait(end+1, func(err error) { waited <- err })
			d.Wake()
			var err error
			select {
			case err = <-fatal:
			case <-time.After(10 * time.Second):
				t.Fatal("no fatal error")
			}
			want := strings.ReplaceAll(c.want, "END", fmt.Sprint(end))
			if !strings.Contains(err.Error(), want) || c.is != nil && !errors.Is(err, c.is) {
				t.Fatalf("got %v, want %q", err, want)
			}
			if got := d.Close(); got != err {
				t.Fatalf("Close: %v", got)
			}
			if werr := <-waited; !errors.Is(werr, ErrStopped) {
				t.Fatalf("waiter: %v", werr)
			}
			d.Wait(end+1, func(err error) { waited <- err })
			if werr := <-waited; !errors.Is(werr, ErrStopped) {
				t.Fatalf("late waiter: %v", werr)
			}
			if n := len(b.all()); n != c.before || len(fatal) != 0 {
				t.Fatalf("%d records, %d more fatal errors", n, len(fatal))
			}
		})
	}
}

func TestTagsCode(t *testing.T) {
	const stored = 1_600_000_000_000
	for _, c := range []struct {
		topic, props string
		want         int64
	}{
		{"T", "", 0},
		{"T", "TAGS\x01TagA", 2598919},
		{"T", "TAGS\x01order-pay", -392735319},
		{"T", "DELAY\x013\x02TAGS\x01TagA", 2598919},
		{record.ScheduleTopic, "DELAY\x011", stored + 1000},
		{record.ScheduleTopic, "DELAY\x013\x02TAGS\x01TagA", stored + 10_000},
		{record.ScheduleTopic, "DELAY\x0118", stored + 7_200_000},
		{record.ScheduleTopic, "DELAY\x0199", stored + 7_200_000},
		{record.ScheduleTopic, "DELAY\x010\x02TAGS\x01a", 97},
		{record.ScheduleTopic, "DELAY\x01-1\x02TAGS\x01a", 97},
		{record.ScheduleTopic, "DELAY\x01x\x02TAGS\x01a", 97},
		{record.ScheduleTopic, "TAGS\x01a", 97},
	} {
		v := record.View(encode(c.topic, c.props, 0, []byte("b")))
		if got := DefaultLevels().TagsCode(v); got != c.want {
			t.Errorf("%s %q: %d, want %d", c.topic, c.props, got, c.want)
		}
	}
	if got := (Levels{}).TagsCode(record.View(encode(record.ScheduleTopic, "DELAY\x013\x02TAGS\x01a", 0, nil))); got != 97 {
		t.Errorf("without a table: %d", got)
	}
}

// TestWaiters from many goroutines while the log grows: each is called once, not too early.
func TestWaiters(t *testing.T) {
	l := newTestLog(t, segmentSize)
	d := start(t, Config{Log: l, Builders: []Builder{&collector{}}})
	var ends []int64
	rec := encode("T", "", 0, nil)
	for i := range int64(400) {
		ends = append(ends, (i+1)*int64(len(rec)))
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for _, end := range ends {
				wg.Add(1)
				d.Wait(end, func(err error) {
					defer wg.Done()
					if err != nil || d.To() < end {
						t.Errorf("end %d at %d: %v", end, d.To(), err)
					}
				})
			}
		})
	}
	for i := range ends {
		l.append(encode("T", "", int64(i), nil))
		d.Wake()
	}
	wg.Wait()
}

func TestCloseReleasesWaiters(t *testing.T) {
	l := newTestLog(t, segmentSize)
	d := start(t, Config{Log: l})
	got := make(chan error, 1)
	d.Wait(1, func(err error) { got <- err })
	for range 2 {
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-got; !errors.Is(err, ErrStopped) {
		t.Fatal(err)
	}
}

type discard struct{ n int }

func (d *discard) Add(record.View, int64) error { d.n++; return nil }
func (d *discard) Commit(int64) error           { return nil }

func BenchmarkDispatch(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			l := newTestLog(b, 64<<20)
			body := bytes.Repeat([]byte("x"), size)
			n := int64(0)
			for ; l.MaxOffset() < 60<<20; n++ {
				l.append(encode("TopicTest", "UNIQ_KEY\x010123456789ABCDEF0123456789ABCDEF\x02TAGS\x01TagA", n, body))
			}
			b.ReportAllocs()
			b.SetBytes(l.MaxOffset())
			total := int64(0)
			for b.Loop() {
				d := Start(Config{Log: l, Builders: []Builder{&discard{}}})
				if err := d.Close(); err != nil {
					b.Fatal(err)
				}
				total += n
			}
			b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}
