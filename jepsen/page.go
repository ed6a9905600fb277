package jepsen

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"raftmq/jepsen/history"
)

//go:embed page.html
var pageText string

// The page's drawing is so wide and its lanes so high, in pixels.
const (
	pageWidth  = 1200.0
	laneHeight = 22.0
	plotHeight = 140.0
)

// bar is a time on the page.
type bar struct {
	X, W  float64
	Class string
	Title string
}

// lane is a row of bars.
type lane struct {
	Name string
	Y    float64
	Bars []bar
}

// plot is a row of points or columns.
type plot struct {
	Name   string
	Y      float64
	Top    string // what its upper edge means
	Points []bar  // of a scatter; X and the height in W
	Bars   []bar  // of columns
}

type page struct {
	Report  *Report
	Verdict string
	Width   float64
	Height  float64
	Lane    float64
	Plot    float64
	Ticks   []bar
	Lanes   []lane
	Latency plot
	Rate    plot
}

// WritePage writes a run as an HTML page that needs nothing but itself.
func (r *Report) WritePage(out io.Writer, ops []history.Op) error {
	t, err := template.New("page").Funcs(template.FuncMap{
		"seconds": func(d time.Duration) string { return seconds(d) },
		"add":     func(a, b float64) float64 { return a + b },
		"join":    func(s []string) string { return strings.Join(s, ", ") },
	}).Parse(pageText)
	if err != nil {
		return fmt.Errorf("jepsen: page: %w", err)
	}
	return t.Execute(out, r.page(ops))
}

func (r *Report) page(ops []history.Op) *page {
	p := &page{Report: r, Width: pageWidth, Lane: laneHeight, Plot: plotHeight, Verdict: "VALID"}
	if !r.Valid {
		p.Verdict = "NOT VALID"
	}
	end := time.Second
	for i := range ops {
		end = max(end, ops[i].End)
	}
	x := func(d time.Duration) float64 { return float64(d) / float64(end) * pageWidth }
	step := time.Second
	for end/step > 20 {
		if step *= 5; end/step > 20 {
			step *= 2
		}
	}
	for d := time.Duration(0); d <= end; d += step {
		p.Ticks = append(p.Ticks, bar{X: x(d), Title: fmt.Sprintf("%d s", d/time.Second)})
	}
	y := laneHeight
	for _, n := range r.Info.Nodes {
		p.Lanes = append(p.Lanes, lane{Name: n, Y: y, Bars: nodeBars(ops, n, end, x)})
		y += laneHeight
	}
	p.Rate = rates(ops, end, x)
	p.Rate.Y = y + laneHeight/2
	p.Latency = latencies(ops, x)
	p.Latency.Y = p.Rate.Y + plotHeight + laneHeight/2
	p.Height = p.Latency.Y + plotHeight + laneHeight
	return p
}

// nodeBars are the faults that hit a node, and the times in which it led.
func nodeBars(ops []history.Op, node string, end time.Duration, x func(time.Duration) float64) (bars []bar) {
	var leaders []*history.Op
	for i := range ops {
		op := &ops[i]
		switch {
		case op.Kind == history.Leader:
			leaders = append(leaders, op)
		case op.Kind == history.Fault && (op.Node == node || slices.Contains(op.Nodes, node)):
			class := "fault"
			if op.Outcome != history.OK {
				class = "bad"
			}
			bars = append(bars, bar{X: x(op.Start), W: max(2, x(op.End-op.Start)), Class: class,
				Title: fmt.Sprintf("%s %v – %v: %s%s", op.Fault, op.Start.Round(time.Millisecond), op.End.Round(time.Millisecond), op.Detail, op.Error)})
		}
	}
	for i, op := range leaders {
		if op.Node != node {
			continue
		}
		until := end
		if i+1 < len(leaders) {
			until = leaders[i+1].Start
		}
		bars = append([]bar{{X: x(op.Start), W: x(until - op.Start), Class: "leads", Title: fmt.Sprintf("%s leads in term %d from %v on", node, op.Term, op.Start.Round(time.Millisecond))}}, bars...)
	}
	return bars
}

// isRequest tells whether an operation is a client's request.
func isRequest(op *history.Op) bool {
	switch op.Kind {
	case history.Send, history.Commit, history.Fetch, history.Put, history.Delete, history.Get:
		return true
	}
	return false
}

// rates are columns of half a second: acknowledged, refused, without an answer.
func rates(ops []history.Op, end time.Duration, x func(time.Duration) float64) plot {
	const width = 500 * time.Millisecond
	type column struct{ ok, fail, unknown int }
	columns := make([]column, end/width+1)
	most := 1
	for i := range ops {
		op := &ops[i]
		if !isRequest(op) {
			continue
		}
		c := &columns[min(int(op.End/width), len(columns)-1)]
		switch op.Outcome {
		case history.OK:
			c.ok++
		case history.Fail:
			c.fail++
		default:
			c.unknown++
		}
		most = max(most, c.ok+c.fail+c.unknown)
	}
	p := plot{Name: "requests that ended, by outcome", Top: fmt.Sprintf("%d a second", most*2)}
	for i, c := range columns {
		below := 0
		for _, part := range []struct {
			n     int
			class string
		}{{c.ok, "ok"}, {c.fail, "fail"}, {c.unknown, "unknown"}} {
			if part.n == 0 {
				continue
			}
			p.Bars = append(p.Bars, bar{X: x(time.Duration(i) * width), W: float64(part.n) / float64(most) * plotHeight, Class: part.class,
				Title: fmt.Sprint(plotHeight - float64(below+part.n)/float64(most)*plotHeight)})
			below += part.n
		}
	}
	return p
}

// latencyPoints bounds the page's size; what is drawn are the slowest of each moment and some of the others.
const latencyPoints = 4000

// latencies are points on a logarithmic scale from 0.1 ms to 100 s.
func latencies(ops []history.Op, x func(time.Duration) float64) plot {
	p := plot{Name: "latency of requests, logarithmic: 0.1 ms to 100 s", Top: "100 s"}
	total := 0
	for i := range ops {
		if isRequest(&ops[i]) {
			total++
		}
	}
	every := total/latencyPoints + 1
	n := 0
	for i := range ops {
		op := &ops[i]
		if !isRequest(op) {
			continue
		}
		n++
		took := op.End - op.Start
		if n%every != 0 && took < 500*time.Millisecond && op.Outcome == history.OK {
			continue
		}
		p.Points = append(p.Points, bar{X: x(op.End), W: plotHeight - logScale(took)*plotHeight, Class: string(op.Outcome),
			Title: fmt.Sprintf("%s %s%s: %v, %s", op.Process, op.Kind, " "+op.Value, took.Round(10*time.Microsecond), op.Outcome)})
		if len(p.Points) > 4*latencyPoints {
			break
		}
	}
	return p
}

// logScale is 0 at 0.1 ms and 1 at 100 s.
func logScale(d time.Duration) float64 {
	v := 0.0
	for t := 100 * time.Microsecond; t < 100*time.Second; t *= 10 {
		if d <= t {
			break
		}
		v += min(1, float64(d-t)/float64(9*t))
	}
	return v / 6
}
