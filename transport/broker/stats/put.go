package stats

import (
	"math"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// distributeBounds are the upper bounds of RocketMQ's put time buckets, ms: the first takes what is at or below its bound, the
// others what is below theirs, and one more the rest.
var distributeBounds = [...]int64{0, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10000}

var distributeLabels = [...]string{"[<=0ms]", "[0~10ms]", "[10~50ms]", "[50~100ms]", "[100~200ms]", "[200~500ms]", "[500ms~1s]",
	"[1~2s]", "[2~3s]", "[3~4s]", "[4~5s]", "[5~10s]", "[10s~]"}

const (
	distributeBuckets = len(distributeBounds) + 1
	latencyBuckets    = 76
)

// latencyBounds are the upper bounds of RocketMQ's percentile buckets, ms; a value is in the smallest bound at or above it.
var latencyBounds = makeLatencyBounds()

func makeLatencyBounds() (bounds [latencyBuckets]int64) {
	i, at := 0, int64(0)
	for _, run := range [...]struct{ n, step int64 }{{20, 1}, {15, 2}, {10, 5}, {10, 10}, {6, 50}, {5, 100}, {9, 1000}} {
		for range run.n {
			at += run.step
			bounds[i] = at
			i++
		}
	}
	bounds[i] = math.MaxInt64
	return bounds
}

// latencyIndex is the bucket of a value up to the last finite bound; found by a table, as it is asked for each message.
var latencyIndex = makeLatencyIndex()

const largestLatency = 10_000

func makeLatencyIndex() (index [largestLatency + 1]uint8) {
	bucket := uint8(0)
	for ms := range index {
		for int64(ms) > latencyBounds[bucket] {
			bucket++
		}
		index[ms] = bucket
	}
	return index
}

// Puts are the times of puts. Minute by minute: what is reported is the last whole one.
type Puts struct {
	slowest atomic.Int64 // ms since start

	running struct {
		distribution [distributeBuckets]atomic.Int64
		latency      [latencyBuckets]atomic.Int64
	}

	mu   sync.Mutex
	last struct {
		known        bool
		distribution [distributeBuckets]int64
		latency      [latencyBuckets]int64
	}
}

// Observe counts one put.
func (p *Puts) Observe(took time.Duration) {
	ms := max(took.Milliseconds(), 0)
	raise(&p.slowest, ms)
	p.running.latency[latencyBucket(ms)].Add(1)
	p.running.distribution[distributeBucket(ms)].Add(1)
}

func raise(a *atomic.Int64, v int64) {
	for {
		old := a.Load()
		if v <= old || a.CompareAndSwap(old, v) {
			return
		}
	}
}

func latencyBucket(ms int64) int {
	if ms > largestLatency {
		return latencyBuckets - 1
	}
	return int(latencyIndex[ms])
}

func distributeBucket(ms int64) int {
	if ms <= distributeBounds[0] {
		return 0
	}
	i := 1
	for i < len(distributeBounds) && ms >= distributeBounds[i] {
		i++
	}
	return i
}

// Slowest is the longest put since start, ms.
func (p *Puts) Slowest() int64 { return p.slowest.Load() }

// Turn ends a minute. It returns how many puts it had.
func (p *Puts) Turn() (puts int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last.known = true
	for i := range p.running.distribution {
		p.last.distribution[i] = p.running.distribution[i].Swap(0)
		puts += p.last.distribution[i]
	}
	for i := range p.running.latency {
		p.last.latency[i] = p.running.latency[i].Swap(0)
	}
	return puts
}

// Distribution is the last minute's, as RocketMQ prints it; "null" in the first minute.
func (p *Puts) Distribution() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.known {
		return "null"
	}
	var b strings.Builder
	for i, label := range distributeLabels {
		b.WriteString(label + ":" + strconv.FormatInt(p.last.distribution[i], 10) + " ")
	}
	return b.String()
}

// Percentile is the put time that a part q of the last minute's puts did not exceed, ms, interpolated within its bucket; 0
// without puts.
func (p *Puts) Percentile(q float64) float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	total := int64(0)
	for _, n := range p.last.latency {
		total += n
	}
	if total == 0 {
		return 0
	}
	want, below := float64(total)*q, int64(0)
	for i, n := range p.last.latency {
		if n == 0 || float64(below+n) < want {
			below += n
			continue
		}
		from := float64(0)
		if i > 0 {
			from = float64(latencyBounds[i-1])
		}
		if i == latencyBuckets-1 {
			return from // there is no upper bound
		}
		return from + (float64(latencyBounds[i])-from)*(want-float64(below))/float64(n)
	}
	return 0
}

// Max is the largest value since start.
type Max struct{ v atomic.Int64 }

// Observe takes a value.
func (m *Max) Observe(v int64) { raise(&m.v, v) }

// Value is the largest.
func (m *Max) Value() int64 { return m.v.Load() }
