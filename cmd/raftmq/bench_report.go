package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"raftmq/transport/remoting"
)

// gapMeter keeps the longest time without an acknowledged send.
type gapMeter struct {
	mu            sync.Mutex
	last, longest int64
}

func (g *gapMeter) acknowledged(now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.longest = max(g.longest, now-g.last)
	g.last = max(g.last, now)
}

// close counts the gap that is still open, and returns the longest.
func (g *gapMeter) close(now int64) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return time.Duration(max(g.longest, now-g.last))
}

func (g *gapMeter) reset(now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last, g.longest = now, 0
}

// meter gathers what producers and consumers counted, second by second.
type meter struct {
	b        *bench
	progress io.Writer
	begin    int64 // of the measured time
	end      int64
	gap      time.Duration // longest, at the end

	produced produceCounts
	consumed consumeCounts
}

func newMeter(b *bench, progress io.Writer) *meter {
	return &meter{b: b, progress: progress, produced: newProduceCounts(), consumed: newConsumeCounts()}
}

// warmUp lets the load run, then forgets what it counted.
func (m *meter) warmUp(ctx context.Context, d time.Duration) {
	m.begin = m.b.now()
	if d > 0 {
		m.follow(ctx, d, nil, "warm-up ")
	}
	m.produced, m.consumed = newProduceCounts(), newConsumeCounts()
}

// measure counts for d, or until done is closed or ctx ends.
func (m *meter) measure(ctx context.Context, d time.Duration, done <-chan struct{}) {
	m.begin = m.b.now()
	m.b.gap.reset(m.begin)
	m.follow(ctx, d, done, "")
	m.end = m.b.now()
	m.gap = m.b.gap.close(m.end)
}

// follow gathers each second, and prints a line for it.
func (m *meter) follow(ctx context.Context, d time.Duration, done <-chan struct{}, prefix string) {
	end := time.NewTimer(d)
	defer end.Stop()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	last := m.b.now()
	for {
		over := false
		select {
		case <-tick.C:
		case <-end.C:
			over = true
		case <-done:
			over = true
		case <-ctx.Done():
			over = true
		}
		now := m.b.now()
		line := m.gather(time.Duration(now - last))
		if !over || now-last > int64(time.Second)*9/10 {
			fmt.Fprintf(m.progress, "%s%3.0fs  %s\n", prefix, time.Duration(now-m.begin).Seconds(), line)
		}
		if over {
			return
		}
		last = now
	}
}

// gather takes what was counted in the last interval, and returns it in words.
func (m *meter) gather(interval time.Duration) string {
	var parts []string
	if len(m.b.producers) > 0 {
		now := newProduceCounts()
		inFlight := 0
		for _, p := range m.b.producers {
			inFlight += p.take(&now)
		}
		m.produced.add(&now)
		rate := float64(now.acked) / interval.Seconds()
		parts = append(parts, fmt.Sprintf("sent %s msg/s  %.1f MB/s  p99 %s  in flight %d", thousands(int64(rate)),
			rate*float64(m.b.o.size)/1e6, micros(now.latency.ValueAtQuantile(99)), inFlight))
		if n := sum(now.errors); n > 0 {
			parts = append(parts, fmt.Sprintf("errors %s", thousands(n)))
		}
	}
	if len(m.b.consumers) > 0 {
		now := newConsumeCounts()
		for _, c := range m.b.consumers {
			c.takeCounts(&now)
		}
		m.consumed.add(&now)
		parts = append(parts, fmt.Sprintf("read %s msg/s  %.1f MB/s", thousands(int64(float64(now.messages)/interval.Seconds())),
			float64(now.bytes)/interval.Seconds()/1e6))
		if n := sum(now.errors); n > 0 {
			parts = append(parts, fmt.Sprintf("read errors %s", thousands(n)))
		}
	}
	return strings.Join(parts, "  ")
}

// take adds what was counted since the last call to into, starts anew, and returns the requests in flight.
func (p *producer) take(into *produceCounts) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	into.add(&p.counts)
	p.counts.acked, p.counts.reconnects = 0, 0
	p.counts.latency.Reset()
	clear(p.counts.errors)
	return p.inFlightLocked()
}

func (c *consumer) takeCounts(into *consumeCounts) {
	c.mu.Lock()
	defer c.mu.Unlock()
	into.add(&c.counts)
	c.counts.messages, c.counts.bytes, c.counts.pulls, c.counts.reconnects = 0, 0, 0, 0
	c.counts.endToEnd.Reset()
	clear(c.counts.errors)
}

func (c *produceCounts) add(o *produceCounts) {
	c.acked += o.acked
	c.reconnects += o.reconnects
	c.latency.Merge(o.latency)
	addErrors(c.errors, o.errors)
}

func (c *consumeCounts) add(o *consumeCounts) {
	c.messages += o.messages
	c.bytes += o.bytes
	c.pulls += o.pulls
	c.reconnects += o.reconnects
	c.endToEnd.Merge(o.endToEnd)
	addErrors(c.errors, o.errors)
}

func addErrors(to, from map[int32]*codeCount) {
	for code, e := range from {
		if to[code] == nil {
			to[code] = &codeCount{remark: e.remark}
		}
		to[code].n += e.n
	}
}

func sum(errors map[int32]*codeCount) (n int64) {
	for _, e := range errors {
		n += e.n
	}
	return n
}

// benchResult is what bench prints.
type benchResult struct {
	Topic       string         `json:"topic"`
	NameServers []string       `json:"nameServers"`
	Mode        string         `json:"mode"`
	Seconds     float64        `json:"seconds"`
	Produce     *produceResult `json:"produce,omitempty"`
	Consume     *consumeResult `json:"consume,omitempty"`
}

type produceResult struct {
	Size        int64   `json:"size"`
	Connections int     `json:"connections"`
	InFlight    int     `json:"inFlight"`
	Batch       int     `json:"batch"`
	Rate        float64 `json:"rate,omitempty"` // asked for

	Acknowledged int64         `json:"acknowledged"`
	PerSecond    float64       `json:"messagesPerSecond"`
	MBPerSecond  float64       `json:"megabytesPerSecond"` // bodies, 10^6 bytes
	Latency      latencyMillis `json:"latencyMillis"`
	LongestGap   float64       `json:"longestGapSeconds"` // without an acknowledged send
	Reconnects   int64         `json:"reconnects"`
	Errors       []errorCount  `json:"errors"`
}

type consumeResult struct {
	Queues      int            `json:"queues"`
	PullBatch   int            `json:"pullBatch"`
	Messages    int64          `json:"messages"`
	PerSecond   float64        `json:"messagesPerSecond"`
	MBPerSecond float64        `json:"megabytesPerSecond"` // records, 10^6 bytes
	PerPull     float64        `json:"messagesPerPull"`
	EndToEnd    *latencyMillis `json:"endToEndMillis,omitempty"` // from born to read
	Reconnects  int64          `json:"reconnects"`
	Errors      []errorCount   `json:"errors"`
}

type latencyMillis struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	Max  float64 `json:"max"`
}

// errorCount counts messages (produce) or pulls (consume) that failed with a code.
type errorCount struct {
	Code   int32  `json:"code"` // negative: there was no answer
	Name   string `json:"name"`
	Count  int64  `json:"count"`
	Remark string `json:"remark,omitempty"` // the first one's
}

func (m *meter) result() *benchResult {
	o := m.b.o
	seconds := time.Duration(m.end - m.begin).Seconds()
	r := &benchResult{Topic: o.topic, NameServers: m.b.target.clusters[0].NameServers(), Mode: o.mode, Seconds: seconds}
	if len(m.b.producers) > 0 {
		rate := float64(m.produced.acked) / seconds
		r.Produce = &produceResult{
			Size: o.size, Connections: o.connections, InFlight: o.inFlight, Batch: o.batch, Rate: o.rate,
			Acknowledged: m.produced.acked, PerSecond: rate, MBPerSecond: rate * float64(o.size) / 1e6,
			Latency: latencies(m.produced.latency, 1000), LongestGap: m.gap.Seconds(), Reconnects: m.produced.reconnects,
			Errors: errorCounts(m.produced.errors),
		}
	}
	if len(m.b.consumers) > 0 {
		r.Consume = &consumeResult{
			Queues: len(m.b.consumers), PullBatch: o.pullBatch, Messages: m.consumed.messages,
			PerSecond: float64(m.consumed.messages) / seconds, MBPerSecond: float64(m.consumed.bytes) / seconds / 1e6,
			PerPull: float64(m.consumed.messages) / float64(max(m.consumed.pulls, 1)), Reconnects: m.consumed.reconnects,
			Errors: errorCounts(m.consumed.errors),
		}
		if o.mode == benchBoth {
			l := latencies(m.consumed.endToEnd, 1)
			r.Consume.EndToEnd = &l
		}
	}
	return r
}

// failed: nothing was measured.
func (r *benchResult) failed() bool {
	return r.Produce != nil && r.Produce.Acknowledged == 0 || r.Consume != nil && len(r.Consume.Errors) > 0 && r.Consume.Messages == 0
}

// latencies reads a histogram whose values are perMilli to a millisecond.
func latencies(h *hdrhistogram.Histogram, perMilli float64) latencyMillis {
	at := func(q float64) float64 { return float64(h.ValueAtQuantile(q)) / perMilli }
	return latencyMillis{P50: at(50), P90: at(90), P99: at(99), P999: at(99.9), Max: float64(h.Max()) / perMilli}
}

func errorCounts(errors map[int32]*codeCount) []errorCount {
	list := []errorCount{}
	for code, e := range errors {
		list = append(list, errorCount{code, codeText(code), e.n, e.remark})
	}
	slices.SortFunc(list, func(a, b errorCount) int { return int(a.Code - b.Code) })
	return list
}

func codeText(code int32) string {
	switch code {
	case codeLost:
		return "connection lost"
	case codeTimeout:
		return "no answer in time"
	case codeBadAnswer:
		return "malformed answer"
	}
	return remoting.ResponseCodeName(code)
}

func (r *benchResult) write(out io.Writer, asJSON bool) error {
	if asJSON {
		return writeJSON(out, r)
	}
	var b strings.Builder
	if p := r.Produce; p != nil {
		load := fmt.Sprintf("%d connections × %d in flight", p.Connections, p.InFlight)
		if p.Rate > 0 {
			load = fmt.Sprintf("%s msg/s on schedule over %s", thousands(int64(p.Rate)), load)
		}
		if p.Batch > 1 {
			load += fmt.Sprintf(", batches of %d", p.Batch)
		}
		fmt.Fprintf(&b, "produce  %s to %s, %s, %.1f s\n", formatSize(p.Size), r.Topic, load, r.Seconds)
		fmt.Fprintf(&b, "  acknowledged  %s messages  %s msg/s  %.1f MB/s\n", thousands(p.Acknowledged), thousands(int64(p.PerSecond)), p.MBPerSecond)
		fmt.Fprintf(&b, "  latency       %s\n", p.Latency)
		fmt.Fprintf(&b, "  longest gap   %.3f s without an acknowledged send\n", p.LongestGap)
		writeErrors(&b, p.Errors, p.Reconnects)
	}
	if c := r.Consume; c != nil {
		fmt.Fprintf(&b, "consume  %s, %d queues, pulls of up to %d, %.1f s\n", r.Topic, c.Queues, c.PullBatch, r.Seconds)
		fmt.Fprintf(&b, "  read          %s messages  %s msg/s  %.1f MB/s  %.1f messages a pull\n", thousands(c.Messages), thousands(int64(c.PerSecond)), c.MBPerSecond, c.PerPull)
		if c.EndToEnd != nil {
			fmt.Fprintf(&b, "  end to end    %s\n", c.EndToEnd)
		}
		writeErrors(&b, c.Errors, c.Reconnects)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func writeErrors(b *strings.Builder, errors []errorCount, reconnects int64) {
	if len(errors) == 0 {
		b.WriteString("  errors        none\n")
	}
	for i, e := range errors {
		label := "errors"
		if i > 0 {
			label = ""
		}
		name := e.Name
		if e.Code >= 0 {
			name = fmt.Sprintf("code %d %s", e.Code, e.Name)
		}
		if e.Remark != "" {
			remark, _, _ := strings.Cut(e.Remark, "\n")
			name += ", first: " + strings.TrimSpace(remark)
		}
		fmt.Fprintf(b, "  %-13s %s × %s\n", label, thousands(e.Count), name)
	}
	if reconnects > 0 {
		fmt.Fprintf(b, "  reconnects    %d\n", reconnects)
	}
}

func (l latencyMillis) String() string {
	return fmt.Sprintf("p50 %s  p90 %s  p99 %s  p99.9 %s  max %s", millis(l.P50), millis(l.P90), millis(l.P99), millis(l.P999), millis(l.Max))
}

func micros(us int64) string { return millis(float64(us) / 1000) }

// millis writes milliseconds with three significant digits or so.
func millis(ms float64) string {
	switch {
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.2f ms", ms)
}

// thousands writes n with commas.
func thousands(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
