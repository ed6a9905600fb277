package stats

import (
	"strconv"
	"strings"
	"sync"
	"time"
)

// Rates are counters over the last ten minutes, one sample a second (StoreStatsService.sampling).
type Rates struct {
	mu      sync.Mutex
	samples []rateSample // oldest first
}

type rateSample struct {
	at     time.Time
	counts [maxCounts]int64
}

const (
	maxCounts   = 8
	samplesKept = 601
)

// Sample takes the counters, the same ones in the same order each time, at most eight. Call it each second.
func (r *Rates) Sample(at time.Time, counts ...int64) {
	s := rateSample{at: at}
	copy(s.counts[:], counts)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.samples == nil {
		r.samples = make([]rateSample, 0, 2*samplesKept)
	}
	if len(r.samples) == cap(r.samples) {
		r.samples = append(r.samples[:0], r.samples[len(r.samples)-samplesKept+1:]...)
	}
	r.samples = append(r.samples, s)
}

// windows are RocketMQ's, in samples of a second.
var windows = [...]int{10, 60, 600}

// TPS is the rate of the sum of some counters over 10, 60 and 600 s, as RocketMQ prints it: three numbers separated by spaces, a
// number left out when there are too few samples. zeros: "0.0" then.
func (r *Rates) TPS(zeros bool, counters ...int) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	text := make([]string, len(windows))
	for i, n := range windows {
		rate, ok := r.rateLocked(n, counters)
		if ok || zeros {
			text[i] = JavaDouble(rate)
		}
	}
	return strings.Join(text, " ")
}

// Rate is the rate over 10 s, 0 with too few samples.
func (r *Rates) Rate(counters ...int) float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	rate, _ := r.rateLocked(windows[0], counters)
	return rate
}

func (r *Rates) rateLocked(n int, counters []int) (float64, bool) {
	if len(r.samples) <= n {
		return 0, false
	}
	last, first := &r.samples[len(r.samples)-1], &r.samples[len(r.samples)-1-n]
	ms := last.at.Sub(first.at).Milliseconds()
	if ms <= 0 {
		return 0, false
	}
	diff := int64(0)
	for _, c := range counters {
		diff += last.counts[c] - first.counts[c]
	}
	return float64(diff) * 1000 / float64(ms), true
}

// JavaDouble prints a number as Java does for those of usual size.
func JavaDouble(f float64) string {
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.ContainsAny(s, ".") {
		s += ".0"
	}
	return s
}
