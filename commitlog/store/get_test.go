package store

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/commitlog/record"
)

func body(n int) []byte { return bytes.Repeat([]byte("b"), n) }

// TestGetStatuses is the table of the format notes' §8.1.
func TestGetStatuses(t *testing.T) {
	leakCheck(t)
	s := open(t, testConfig(t, t.TempDir()))
	for i := range uint64(120) { // 2.4 queue files
		apply(t, s, i+1, command{topic: "A", bodies: [][]byte{body(100)}, tag: fmt.Sprint("t", i%3)})
	}
	settle(t, s)
	none := func(int64) bool { return false }
	tag := func(name string) func(int64) bool {
		f, err := record.ParseTagFilter(name)
		if err != nil {
			t.Fatal(err)
		}
		return f.Match
	}
	const size = 91 + 100 + 1 + 7 // record: topic of 1, TAGS of 7 bytes
	for _, c := range []struct {
		name   string
		req    GetRequest
		status GetStatus
		next   int64
		count  int
	}{
		{"no such queue", GetRequest{Topic: []byte("B"), MaxMsgs: 32}, NoMatchedLogicQueue, 0, 0},
		{"no such queue id", GetRequest{Topic: []byte("A"), QueueID: 1, Offset: 5, MaxMsgs: 32}, NoMatchedLogicQueue, 0, 0},
		{"too small", GetRequest{Topic: []byte("A"), Offset: -1, MaxMsgs: 32}, OffsetTooSmall, 0, 0},
		{"at the end", GetRequest{Topic: []byte("A"), Offset: 120, MaxMsgs: 32}, OffsetOverflowOne, 120, 0},
		{"behind the end", GetRequest{Topic: []byte("A"), Offset: 121, MaxMsgs: 32}, OffsetOverflowBadly, 120, 0},
		{"far behind the end", GetRequest{Topic: []byte("A"), Offset: 1 << 60, MaxMsgs: 32}, OffsetOverflowBadly, 120, 0},
		{"some", GetRequest{Topic: []byte("A"), MaxMsgs: 32}, Found, 32, 32},
		{"none asked for", GetRequest{Topic: []byte("A")}, Found, 1, 1},
		{"to the end of the queue file", GetRequest{Topic: []byte("A"), Offset: 40, MaxMsgs: 32}, Found, 50, 10},
		{"last", GetRequest{Topic: []byte("A"), Offset: 119, MaxMsgs: 32}, Found, 120, 1},
		{"bytes", GetRequest{Topic: []byte("A"), MaxMsgs: 32, MaxBytes: 3 * size}, Found, 3, 3},
		{"bytes, not quite", GetRequest{Topic: []byte("A"), MaxMsgs: 32, MaxBytes: 3*size - 1}, Found, 2, 2},
		{"first is larger than the limit", GetRequest{Topic: []byte("A"), MaxMsgs: 32, MaxBytes: 1}, Found, 1, 1},
		{"no match", GetRequest{Topic: []byte("A"), MaxMsgs: 32, Match: none}, NoMatchedMessage, 50, 0},
		{"a tag", GetRequest{Topic: []byte("A"), MaxMsgs: 5, Match: tag("t1")}, Found, 14, 5},
		{"a tag, to the end of the file", GetRequest{Topic: []byte("A"), Offset: 41, MaxMsgs: 5, Match: tag("t1")}, Found, 50, 3},
		{"floor", GetRequest{Topic: []byte("A"), Offset: 9, MinFloor: 10, MaxMsgs: 1}, OffsetTooSmall, 10, 0},
		{"above the floor", GetRequest{Topic: []byte("A"), Offset: 10, MinFloor: 10, MaxMsgs: 1}, Found, 11, 1},
		{"floor at the end", GetRequest{Topic: []byte("A"), Offset: 5, MinFloor: 120, MaxMsgs: 1}, OffsetTooSmall, 120, 0},
		{"floor behind the end", GetRequest{Topic: []byte("A"), Offset: 120, MinFloor: 999, MaxMsgs: 1}, OffsetOverflowOne, 120, 0},
	} {
		var res GetResult
		s.Get(&c.req, &res)
		if res.Status != c.status || res.NextBeginOffset != c.next || res.Count != c.count {
			t.Errorf("%s: %v next %d, %d messages; want %v %d %d", c.name, res.Status, res.NextBeginOffset, res.Count, c.status, c.next, c.count)
		}
		if n := len(split(t, &res)); n > 0 && len(res.Buffers) > 2 && c.req.Match == nil {
			t.Errorf("%s: adjacent records in %d buffers", c.name, len(res.Buffers))
		}
		res.Release()
		res.Release()
	}
	if s.queues.Len() != 1 {
		t.Errorf("reading made queues: %d", s.queues.Len())
	}
}

// TestScanLimit: a filter that matches nothing is given up after 800 units, or as many as
// messages were asked for.
func TestScanLimit(t *testing.T) {
	leakCheck(t)
	cfg := testConfig(t, t.TempDir())
	cfg.QueueFileSize = 6_000_000
	s := open(t, cfg)
	bodies := make([][]byte, 100)
	for i := range uint64(30) {
		apply(t, s, i+1, command{topic: "A", bodies: bodies})
	}
	settle(t, s)
	var res GetResult
	for _, c := range []struct{ max, next int64 }{{32, 810}, {1000, 1010}} {
		s.Get(&GetRequest{Topic: []byte("A"), Offset: 10, MaxMsgs: int(c.max), Match: func(int64) bool { return false }}, &res)
		if res.Status != NoMatchedMessage || res.NextBeginOffset != c.next {
			t.Errorf("%v next %d, want %d", res.Status, res.NextBeginOffset, c.next)
		}
	}
}

// TestGetDoesNotAllocate with a reused result.
func TestGetDoesNotAllocate(t *testing.T) {
	s := open(t, testConfig(t, t.TempDir()))
	fill(t, s, 5, 60)
	req := GetRequest{Topic: []byte("T1"), QueueID: 1, MaxMsgs: 32}
	var res GetResult
	if n := testing.AllocsPerRun(100, func() {
		s.Get(&req, &res)
		if res.Status != Found {
			t.Fatal(res.Status)
		}
		res.Release()
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestApplyDoesNotAllocate: a message through append, publish and dispatch.
func TestApplyDoesNotAllocate(t *testing.T) {
	cfg := testConfig(t, t.TempDir())
	cfg.SegmentSize, cfg.QueueFileSize = 16<<20, 6_000_000
	s := open(t, cfg)
	c := command{topic: "A", bodies: [][]byte{body(100), body(100)}}
	rec, topic := c.records(), []byte("A")
	index := uint64(0)
	var wg sync.WaitGroup
	done := func() { wg.Done() }
	step := func() {
		index++
		if err := s.BeginEntry(index, 1); err != nil {
			t.Fatal(err)
		}
		for range 32 {
			if _, err := s.Append(topic, 0, rec, 2); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.EndEntry(); err != nil {
			t.Fatal(err)
		}
		s.Publish()
		_, end := s.LogRange()
		wg.Add(1)
		s.WaitDispatched(end, done)
		wg.Wait()
	}
	step()
	// A closure and a list of waiters, once for 64 messages.
	if n := testing.AllocsPerRun(200, step); n > 4 {
		t.Errorf("%v allocations for 64 messages", n)
	}
}

// TestF94MaxOffset: right after Publish, which comes before any acknowledgement, the max offset
// counts the message, whatever dispatch is doing; and reading there says "nothing yet" or
// finds it, never that the offset is illegal.
func TestF94MaxOffset(t *testing.T) {
	leakCheck(t)
	cfg := testConfig(t, t.TempDir())
	cfg.SegmentSize = 1 << 20
	s := open(t, cfg)
	var res GetResult
	early := 0
	for i := range int64(10_000) {
		queue := int32(i % 4)
		apply(t, s, uint64(i+1), command{topic: "A", queueID: queue, bodies: [][]byte{[]byte("x")}})
		if got := s.MaxOffset("A", queue); i < 4 && got != 0 || got > i/4 {
			t.Fatalf("%d: max offset %d before Publish", i, got)
		}
		s.Publish()
		if got := s.MaxOffset("A", queue); got != i/4+1 {
			t.Fatalf("acknowledged %d, max offset %d", i/4, got)
		}
		s.Get(&GetRequest{Topic: []byte("A"), QueueID: queue, Offset: i / 4, MaxMsgs: 1}, &res)
		switch {
		case res.Status == Found && res.NextBeginOffset == i/4+1:
		case res.Status == OffsetOverflowOne && res.NextBeginOffset == i/4:
			early++
		default:
			t.Fatalf("%d: %v next %d", i, res.Status, res.NextBeginOffset)
		}
		if res.MaxOffset != i/4+1 {
			t.Fatalf("%d: result's max offset %d", i, res.MaxOffset)
		}
		res.Release()
	}
	t.Logf("%d of 10000 reads came before dispatch", early)
	waitDispatched(t, s)
	if got := s.ReadableOffset("A", 0); got != 2500 {
		t.Fatalf("readable %d", got)
	}
}

// TestF77WakeLatency: each message to an otherwise idle queue wakes the listener at once.
func TestF77WakeLatency(t *testing.T) {
	leakCheck(t)
	cfg := testConfig(t, t.TempDir())
	cfg.SegmentSize = 1 << 20
	s := open(t, cfg)
	arrived := make(chan int64, 1)
	s.OnArrival(func(topic []byte, queueID int32, next, tagsCode int64) {
		if string(topic) != "A" || queueID != 3 || tagsCode != 2598919 || s.ReadableOffset("A", 3) < next {
			t.Errorf("arrived %s/%d %d %d", topic, queueID, next, tagsCode)
		}
		arrived <- next
	})
	const rounds = 10_000
	took := make([]time.Duration, rounds)
	for i := range took {
		apply(t, s, uint64(i+1), command{topic: "A", queueID: 3, tag: "TagA", bodies: [][]byte{[]byte("x")}})
		start := time.Now()
		s.Publish()
		select {
		case next := <-arrived:
			took[i] = time.Since(start)
			if next != int64(i+1) {
				t.Fatalf("round %d: next %d", i, next)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("round %d: not woken", i)
		}
	}
	slices.Sort(took)
	t.Logf("wake latency: median %v, p99 %v, max %v", took[rounds/2], took[rounds*99/100], took[rounds-1])
	if p99 := took[rounds*99/100]; p99 > 50*time.Millisecond {
		t.Errorf("p99 %v", p99)
	}
}

// TestF05OnlyPublished: what is appended but not published is nowhere.
func TestF05OnlyPublished(t *testing.T) {
	leakCheck(t)
	s := open(t, testConfig(t, t.TempDir()))
	apply(t, s, 1, command{topic: "A", bodies: [][]byte{[]byte("x")}})
	settle(t, s)
	a := apply(t, s, 2, command{topic: "A", bodies: [][]byte{[]byte("y")}}, command{topic: "B", bodies: [][]byte{[]byte("z")}})
	var res GetResult
	s.Get(&GetRequest{Topic: []byte("A"), Offset: 1, MaxMsgs: 1}, &res)
	if res.Status != OffsetOverflowOne || res.MaxOffset != 1 {
		t.Fatalf("%v max %d", res.Status, res.MaxOffset)
	}
	s.Get(&GetRequest{Topic: []byte("B"), MaxMsgs: 1}, &res)
	if res.Status != NoMessageInQueue && res.Status != NoMatchedLogicQueue {
		t.Fatalf("B: %v", res.Status)
	}
	if _, end := s.LogRange(); end != a[0].PhyOffset {
		t.Fatalf("log end %d", end)
	}
	if _, _, err := s.RecordAt(a[0].PhyOffset); !errors.Is(err, ErrNotFound) {
		t.Fatalf("record: %v", err)
	}
	settle(t, s)
	s.Get(&GetRequest{Topic: []byte("B"), MaxMsgs: 1}, &res)
	if res.Status != Found {
		t.Fatalf("B: %v", res.Status)
	}
	res.Release()
}

// TestRecordAt: every record is found at its offset and nowhere else, dispatched or not, even
// when a body is made to look like a record.
func TestRecordAt(t *testing.T) {
	leakCheck(t)
	s := open(t, testConfig(t, t.TempDir()))
	check := func(from, to int64, starts []int64) {
		t.Helper()
		for off := from; off < to; off++ {
			rec, release, err := s.RecordAt(off)
			_, want := slices.BinarySearch(starts, off)
			if want != (err == nil) {
				t.Fatalf("offset %d: %v, want a record: %v", off, err, want)
			}
			if err != nil {
				if !errors.Is(err, ErrNotFound) {
					t.Fatalf("offset %d: %v", off, err)
				}
				continue
			}
			if record.View(rec).PhyOffset() != off || record.View(rec).Size() != len(rec) {
				t.Fatalf("offset %d: another record", off)
			}
			release()
		}
	}
	var starts []int64
	add := func(index uint64, c command) Appended {
		a := apply(t, s, index, c)[0]
		starts = append(starts, a.PhyOffset)
		return a
	}
	add(1, command{topic: "A", bodies: [][]byte{body(200)}})
	// A record in a record, that knows where it will be.
	inner := command{topic: "A", bodies: [][]byte{[]byte("forged")}}
	forged := inner.records()
	bodyAt := starts[0] + 91 + 1 + 200 + 88
	record.PatchOffsets(forged, 1, bodyAt)
	add(2, command{topic: "A", bodies: [][]byte{forged}})
	add(3, command{topic: "A", sysFlag: record.SysFlagPrepared, bodies: [][]byte{body(10)}})
	s.Publish()
	_, end := s.LogRange()
	// With and without dispatch's help.
	check(-2, end+2, starts)
	waitDispatched(t, s)
	check(-2, end+2, starts)
	if v, _, err := s.RecordAt(starts[1]); err != nil || !bytes.Equal(record.View(v).Body(), forged) {
		t.Fatalf("the outer record: %v", err)
	}
	for i := range uint64(60) {
		add(4+i, command{topic: "A", bodies: [][]byte{body(3000)}})
		s.Publish()
		low, end := s.LogRange()
		check(max(low, end-20), end, starts) // mostly not dispatched yet
		if _, release, err := s.RecordAt(starts[len(starts)-1]); err != nil {
			t.Fatal(err)
		} else {
			release()
		}
	}
}

func TestOffsetByTime(t *testing.T) {
	leakCheck(t)
	s := open(t, testConfig(t, t.TempDir()))
	times := []int64{1000, 1000, 1010, 1020, 1020, 1020, 1050}
	for i, ms := range times {
		apply(t, s, uint64(i+1), command{topic: "A", stored: ms, bodies: [][]byte{[]byte("x")}})
	}
	settle(t, s)
	for _, c := range []struct{ millis, first, last int64 }{{-1, 0, 0}, {999, 0, 0}, {1000, 0, 1}, {1001, 2, 1}, {1010, 2, 2}, {1011, 3, 2},
		{1020, 3, 5}, {1021, 6, 5}, {1050, 6, 6}, {1051, 7, 6}, {1 << 60, 7, 6}} {
		if got, err := s.OffsetByTime("A", 0, c.millis); got != c.first || err != nil {
			t.Errorf("%d: %d, %v, want %d", c.millis, got, err, c.first)
		}
		if got, err := s.LastOffsetByTime("A", 0, c.millis); got != c.last || err != nil {
			t.Errorf("%d: last %d, %v, want %d", c.millis, got, err, c.last)
		}
	}
	for _, search := range []func(string, int32, int64) (int64, error){s.OffsetByTime, s.LastOffsetByTime} {
		if n, err := search("B", 0, 1000); n != 0 || err != nil {
			t.Errorf("no queue: %d, %v", n, err)
		}
	}
	for i, ms := range append(times, -1) {
		if got := s.StoreTimeAt("A", 0, int64(i)); got != ms {
			t.Errorf("offset %d: %d, want %d", i, got, ms)
		}
	}
	if got := s.StoreTimeAt("B", 0, 0); got != -1 {
		t.Errorf("no queue: %d", got)
	}
}

// TestF09QueueWithoutMessages: a queue whose messages are all gone goes on at its offset.
func TestF09QueueWithoutMessages(t *testing.T) {
	leakCheck(t)
	s := open(t, testConfig(t, t.TempDir()))
	err := s.Restore(Position{RaftIndex: 5, RaftTerm: 1, QueueOffsets: []QueueOffset{{Topic: "A", QueueID: 2, Next: 100_000}}})
	if err != nil {
		t.Fatal(err)
	}
	check := func(low, end int64) {
		t.Helper()
		if gotLow, gotEnd := s.MinOffset("A", 2), s.MaxOffset("A", 2); gotLow != low || gotEnd != end {
			t.Fatalf("[%d, %d), want [%d, %d)", gotLow, gotEnd, low, end)
		}
	}
	check(100_000, 100_000)
	var res GetResult
	s.Get(&GetRequest{Topic: []byte("A"), QueueID: 2, Offset: 100_000, MaxMsgs: 1}, &res)
	if res.Status != OffsetOverflowOne {
		t.Fatal(res.Status)
	}
	if a := apply(t, s, 6, command{topic: "A", queueID: 2, bodies: [][]byte{[]byte("x")}}); a[0].QueueOffset != 100_000 {
		t.Fatalf("went on at %d", a[0].QueueOffset)
	}
	s.Publish()
	check(100_000, 100_001)
	waitDispatched(t, s)
	check(100_000, 100_001)
	s.Get(&GetRequest{Topic: []byte("A"), QueueID: 2, Offset: 100_000, MaxMsgs: 1}, &res)
	if res.Status != Found || res.NextBeginOffset != 100_001 {
		t.Fatalf("%v next %d", res.Status, res.NextBeginOffset)
	}
	res.Release()
}

// TestConcurrentReaders beside the writer, for the race detector: everything acknowledged is
// found, in order, whole.
func TestConcurrentReaders(t *testing.T) {
	leakCheck(t)
	s := open(t, testConfig(t, t.TempDir()))
	const total, queues = 4000, 4
	var acknowledged atomic.Int64
	var wg sync.WaitGroup
	for q := range int32(queues) {
		wg.Go(func() {
			var res GetResult
			defer res.Release()
			for n := int64(0); n < total/queues; {
				known := (acknowledged.Load() - int64(q) + queues - 1) / queues
				if got := s.MaxOffset("A", q); got < known {
					t.Errorf("queue %d: max %d, acknowledged %d", q, got, known)
					return
				}
				s.Get(&GetRequest{Topic: []byte("A"), QueueID: q, Offset: n, MaxMsgs: 16}, &res)
				switch res.Status {
				case Found:
					for _, v := range split(t, &res) {
						if want := fmt.Sprint(n*queues + int64(q)); string(v.Body()) != want || v.QueueOffset() != n {
							t.Errorf("queue %d at %d: %q, want %q", q, n, v.Body(), want)
							return
						}
						if _, release, err := s.RecordAt(v.PhyOffset()); err != nil {
							t.Error(err)
						} else {
							release()
						}
						n++
					}
				case OffsetOverflowOne, NoMatchedLogicQueue, NoMessageInQueue:
					time.Sleep(10 * time.Microsecond)
				default:
					t.Errorf("queue %d at %d: %v", q, n, res.Status)
					return
				}
				s.StoreTimeAt("A", q, n/2)
				_, _ = s.OffsetByTime("A", q, 5)
			}
		})
	}
	wg.Go(func() {
		for acknowledged.Load() < total {
			if err := s.FlushAll(); err != nil {
				t.Error(err)
				return
			}
			s.Stats()
		}
	})
	for i := range int64(total) {
		apply(t, s, uint64(i+1), command{topic: "A", queueID: int32(i % queues), stored: i, bodies: [][]byte{fmt.Append(nil, i)}})
		if i%3 == 2 || i == total-1 {
			s.Publish()
			acknowledged.Store(i + 1)
		}
	}
	wg.Wait()
}

// TestClosed: reads after Close answer, and harmlessly.
func TestClosed(t *testing.T) {
	leakCheck(t)
	s := open(t, testConfig(t, t.TempDir()))
	fill(t, s, 5, 20)
	var res GetResult
	s.Get(&GetRequest{Topic: []byte("T1"), QueueID: 1, MaxMsgs: 4}, &res)
	before := slices.Clone(res.Buffers[0])
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(before, res.Buffers[0]) {
		t.Fatal("a view died with the store")
	}
	res.Release()
	s.Get(&GetRequest{Topic: []byte("T1"), QueueID: 1, MaxMsgs: 4}, &res)
	if res.Status != OffsetFoundNull || res.Count != 0 {
		t.Fatalf("%v", res.Status)
	}
	if _, _, err := s.RecordAt(0); err == nil {
		t.Fatal("a record from a closed store")
	}
	_, _ = s.OffsetByTime("T1", 1, 0)
	if err := s.FlushAll(); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if err := s.BeginEntry(1000, 1); !errors.Is(err, ErrClosed) {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
