package stats

import (
	"math"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)

// TestItem: minute, hour and day as RocketMQ makes them from its snapshots.
func TestItem(t *testing.T) {
	var s Items
	if s.Find(TopicPutNums, "T") != nil {
		t.Error("an item nobody counted in")
	}
	it := s.Get(TopicPutNums, "T")
	if s.Get(TopicPutNums, "T") != it || s.Find(TopicPutNums, "T") != it || s.Find(TopicPutNums, "U") != nil || s.Find(TopicPutSize, "T") != nil {
		t.Fatal("not one item a name and key")
	}
	// Two an odd second for ten minutes, four each time.
	at := start
	for i := range 60 {
		for range 5 {
			it.Add(4)
		}
		at = at.Add(10 * time.Second)
		s.Sample(at)
		minute, hour, day := it.Windows()
		n := min(i+1, 6) // seven snapshots, the first of them one period before the first sample
		if minute.Sum != int64(20*n) || minute.TPS != 2 || minute.Average != 4 {
			t.Fatalf("after %d samples: %+v", i+1, minute)
		}
		if i < 59 && (hour.Sum != 0 || day.Sum != 0) {
			t.Fatalf("after %d samples: hour %+v, day %+v", i+1, hour, day)
		}
	}
	// The first call set when hour and day are due: one more sample makes the hour's.
	at = at.Add(10 * time.Second)
	s.Sample(at)
	if _, hour, _ := it.Windows(); hour.Sum != 1200 || hour.TPS != 2 || hour.Average != 4 {
		t.Errorf("hour %+v", hour)
	}
	for range 6 * 60 * 30 {
		it.AddTimes(10, 2)
		at = at.Add(10 * time.Second)
		s.Sample(at)
	}
	minute, hour, day := it.Windows()
	if minute.Sum != 60 || hour.Sum != 3600 || day.Sum != 24*3600 || day.TPS != 1 || day.Average != 5 {
		t.Errorf("minute %+v, hour %+v, day %+v", minute, hour, day)
	}
	for range 8 { // nothing happens
		at = at.Add(10 * time.Second)
		s.Sample(at)
	}
	if minute, _, _ := it.Windows(); minute != (Window{}) {
		t.Errorf("idle minute %+v", minute)
	}
}

func TestMomentItem(t *testing.T) {
	var s Items
	it := s.Get(GroupFallSize, "0@T@g")
	it.Set(1000)
	it.Set(700)
	s.Sample(start)
	if minute, hour, day := it.Windows(); minute.Sum != 700 || hour.Sum != 700 || day.Sum != 700 {
		t.Errorf("%+v %+v %+v", minute, hour, day)
	}
}

// TestPuts: buckets and their edges, maximum, percentiles, and that the last whole minute is told.
func TestPuts(t *testing.T) {
	var p Puts
	if p.Distribution() != "null" || p.Percentile(0.99) != 0 {
		t.Error("before the first minute ended")
	}
	for _, ms := range []int64{-3, 0, 1, 9, 10, 49, 50, 99, 100, 199, 200, 499, 500, 999, 1000, 1999, 2000, 2999, 3000, 3999, 4000, 4999, 5000, 9999, 10000, 3_600_000} {
		p.Observe(time.Duration(ms) * time.Millisecond)
	}
	if p.Distribution() != "null" {
		t.Error("the running minute is told")
	}
	if n := p.Turn(); n != 26 {
		t.Errorf("%d puts", n)
	}
	want := "[<=0ms]:2 [0~10ms]:2 [10~50ms]:2 [50~100ms]:2 [100~200ms]:2 [200~500ms]:2 [500ms~1s]:2 [1~2s]:2 [2~3s]:2 [3~4s]:2 [4~5s]:2 [5~10s]:2 [10s~]:2 "
	if got := p.Distribution(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if p.Slowest() != 3_600_000 {
		t.Errorf("slowest %d", p.Slowest())
	}
	if p.Turn() != 0 || strings.Contains(p.Distribution(), ":2") || p.Percentile(0.99) != 0 {
		t.Error("an idle minute")
	}
	for range 990 {
		p.Observe(3 * time.Millisecond)
	}
	for range 10 {
		p.Observe(700 * time.Millisecond) // bucket 600 to 700
	}
	p.Turn()
	for q, want := range map[float64]float64{0.5: 2 + 500.0/990, 0.99: 3, 0.999: 690, 1: 700} {
		if got := p.Percentile(q); math.Abs(got-want) > 1e-6 {
			t.Errorf("p%v is %v, want %v", q, got, want)
		}
	}
	p.Observe(time.Hour)
	p.Turn()
	if got := p.Percentile(0.99); got != 10_000 {
		t.Errorf("beyond the last bound: %v", got)
	}
}

// TestLatencyBounds is the format notes' §11.1 list.
func TestLatencyBounds(t *testing.T) {
	for i, want := range map[int]int64{0: 1, 19: 20, 20: 22, 34: 50, 35: 55, 44: 100, 45: 110, 54: 200, 55: 250, 60: 500, 61: 600, 65: 1000, 66: 2000, 74: 10000, 75: math.MaxInt64} {
		if latencyBounds[i] != want {
			t.Errorf("bound %d is %d, want %d", i, latencyBounds[i], want)
		}
	}
	for ms, want := range map[int64]int{0: 0, 1: 0, 2: 1, 20: 19, 21: 20, 22: 20, 23: 21, 10_000: 74, 10_001: 75} {
		if got := latencyBucket(ms); got != want {
			t.Errorf("%d ms is in bucket %d, want %d", ms, got, want)
		}
	}
}

// TestRates: windows of 10, 60 and 600 samples, and what is printed before they are full.
func TestRates(t *testing.T) {
	var r Rates
	if got := r.TPS(false, 0); got != "  " {
		t.Errorf("%q", got)
	}
	if got := r.TPS(true, 0, 1); got != "0.0 0.0 0.0" {
		t.Errorf("%q", got)
	}
	at, n := start, int64(0)
	for i := range 2000 {
		r.Sample(at, n, 2*n)
		switch i {
		case 9:
			if got := r.TPS(false, 0); got != "  " {
				t.Errorf("ten samples: %q", got)
			}
		case 10:
			if got := r.TPS(false, 0); got != "5.0  " || r.Rate(0, 1) != 15 {
				t.Errorf("eleven samples: %q", got)
			}
		case 60:
			if got := r.TPS(false, 0, 1); got != "15.0 15.0 " {
				t.Errorf("61 samples: %q", got)
			}
		}
		at = at.Add(time.Second)
		if n += 5; i >= 1990 {
			n += 5
		}
	}
	// Of the last ten steps nine were of 10, and one of 5 (the first sample is before the change).
	if got := r.TPS(false, 0); got != "9.5 5.75 5.075" {
		t.Errorf("%q", got)
	}
	for f, want := range map[float64]string{0: "0.0", 3: "3.0", 0.25: "0.25", 1234567: "1234567.0"} {
		if got := JavaDouble(f); got != want {
			t.Errorf("%v: %s", f, got)
		}
	}
}

func TestMax(t *testing.T) {
	var m Max
	m.Observe(5)
	m.Observe(3)
	if m.Value() != 5 {
		t.Errorf("%d", m.Value())
	}
}

func TestCountingDoesNotAllocate(t *testing.T) {
	var s Items
	var p Puts
	it := s.Get(TopicPutNums, "T")
	if n := testing.AllocsPerRun(100, func() { it.Add(1); p.Observe(3 * time.Millisecond) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkObserve(b *testing.B) {
	var s Items
	var p Puts
	it := s.Get(TopicPutNums, "T")
	b.ReportAllocs()
	for b.Loop() {
		it.Add(1)
		p.Observe(3 * time.Millisecond)
	}
}
