package jepsen

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// Cell is one run of a matrix.
type Cell struct {
	Workload string  `json:"workload"`
	Nemesis  string  `json:"nemesis"`
	Nodes    int     `json:"nodes"`
	Seconds  float64 `json:"seconds"` // of load and faults
	Seed     uint64  `json:"seed"`
}

// Name names the cell, as a folder can be called.
func (c Cell) Name() string {
	return fmt.Sprintf("%s-%s-%d-%d", c.Workload, strings.ReplaceAll(c.Nemesis, ",", "_"), c.Nodes, c.Seed)
}

// Verdict of a cell.
type Verdict string

// Verdicts.
const (
	Passed  Verdict = "passed"
	Failed  Verdict = "FAILED"
	Skipped Verdict = "skipped" // its fault is not to be had here
	Void    Verdict = "void"    // a fault took no effect; nothing else is wrong, and nothing is proven
)

// Settled tells that a cell need not be run again: it has not failed and is not void.
func (v Verdict) Settled() bool { return v == Passed || v == Skipped }

// CellResult is what came out of a cell.
type CellResult struct {
	Cell
	Verdict    Verdict            `json:"verdict"`
	Took       float64            `json:"took"` // seconds, all in all
	Faults     int                `json:"faults"`
	Sent       int                `json:"sent"`
	Acked      int                `json:"acked"`
	Ops        int                `json:"ops"`
	Unknown    int                `json:"unknown"`
	Lost       int                `json:"lost"`
	Duplicates int                `json:"duplicates"`
	Violations int                `json:"violations"`
	Gaps       map[string]float64 `json:"gaps"` // seconds without an acknowledgement, the longest of each fault
	Checks     []string           `json:"checks,omitempty"`
	Problems   []string           `json:"problems,omitempty"`
	Kept       string             `json:"kept,omitempty"`  // folder of a failed cell
	Build      string             `json:"build,omitempty"` // source of the server
}

// NewCellResult sums a run up. err is why it could not be made, or that it is not valid.
func NewCellResult(cell Cell, r *Report, err error) CellResult {
	out := CellResult{Cell: cell, Verdict: Passed, Gaps: map[string]float64{}}
	switch {
	case errors.Is(err, ErrNotHere):
		out.Verdict = Skipped
	case err != nil:
		out.Verdict = Failed
	}
	if r != nil && r.void() {
		out.Verdict = Void
	}
	if err != nil && !errors.Is(err, ErrInvalid) {
		out.Problems = append(out.Problems, err.Error())
	}
	if r == nil {
		return out
	}
	out.Took, out.Faults, out.Sent, out.Acked, out.Ops = r.Took.Seconds(), len(r.Faults), r.Sent, r.Acked, r.Ops
	for _, c := range r.Results {
		switch c.Name {
		case "acknowledged but lost":
			out.Lost = c.Count
		case "duplicates":
			out.Duplicates = c.Count
		case "unknown outcomes":
			out.Unknown = c.Count
		}
		if !c.Valid {
			out.Violations += max(1, c.Count)
			out.Checks = append(out.Checks, c.Name)
			for _, p := range c.Problems[:min(3, len(c.Problems))] {
				out.Problems = append(out.Problems, c.Name+": "+p)
			}
		}
	}
	for _, e := range r.Errors {
		out.Violations += btoi(out.Verdict != Void)
		out.Problems = append(out.Problems, e.Error())
	}
	for _, g := range r.Gaps {
		out.Gaps[g.Fault] = max(out.Gaps[g.Fault], g.Length.Seconds())
	}
	return out
}

// Line is the result in a line.
func (r CellResult) Line() string {
	longest := 0.0
	for _, g := range r.Gaps {
		longest = max(longest, g)
	}
	text := fmt.Sprintf("%-7s %5.0f s %3d faults %7d acked %3d lost %4d dup %4d unknown, longest gap %4.1f s", r.Verdict, r.Took, r.Faults,
		max(r.Acked, r.Ops*btoi(r.Sent == 0)), r.Lost, r.Duplicates, r.Unknown, longest)
	if len(r.Problems) > 0 && r.Verdict != Passed {
		text += "\n          " + strings.Join(r.Problems[:min(4, len(r.Problems))], "\n          ")
	}
	return text
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// row is what some results add up to.
type row struct {
	cells, failed, void, skipped, again, faults, acked, ops, lost, dup, unknown, violations int
	gap, seconds                                                                            float64
}

// add counts a result. One that failed and was superseded by another run of its cell adds its load, and is not a failed cell any more.
func (t *row) add(c *CellResult, superseded bool) {
	t.faults += c.Faults
	t.acked += c.Acked
	if c.Sent == 0 {
		t.ops += c.Ops
	}
	t.dup += c.Duplicates
	t.unknown += c.Unknown
	t.seconds += c.Took
	for fault, g := range c.Gaps {
		if fault != "" {
			t.gap = max(t.gap, g)
		}
	}
	if superseded {
		t.again++
		return
	}
	t.cells++
	t.failed += btoi(c.Verdict == Failed)
	t.void += btoi(c.Verdict == Void)
	t.skipped += btoi(c.Verdict == Skipped)
	t.lost += c.Lost
	t.violations += c.Violations
}

// PrintMatrix writes what all cells found: a row for each nemesis, totals, and the runs that failed. Of several results of a cell the last one
// counts; an earlier one adds its messages, and if it had not passed it is listed all the same.
func PrintMatrix(out io.Writer, results []CellResult) error {
	last := map[string]int{}
	for i := range results {
		last[results[i].Name()] = i
	}
	rows := map[string]*row{}
	builds := map[string]int{}
	var total row
	for i := range results {
		c := &results[i]
		r := rows[c.Nemesis]
		if r == nil {
			r = &row{}
			rows[c.Nemesis] = r
		}
		superseded := last[c.Name()] != i
		r.add(c, superseded)
		total.add(c, superseded)
		builds[c.Build]++
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "\nnemesis\tcells\tfailed\tvoid\trun again\tskipped\tfaults\tacknowledged\tother operations\tlost\tduplicates\tunknown\tviolations\tlongest gap\tseconds\t")
	line := func(name string, r *row) {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.1f s\t%.0f\t\n", name, r.cells, r.failed, r.void, r.again, r.skipped, r.faults, r.acked, r.ops,
			r.lost, r.dup, r.unknown, r.violations, r.gap, r.seconds)
	}
	for _, name := range slices.SortedFunc(maps.Keys(rows), cmp.Compare[string]) {
		line(name, rows[name])
	}
	line("all", &total)
	if err := t.Flush(); err != nil {
		return err
	}
	for _, b := range slices.Sorted(maps.Keys(builds)) {
		if b != "" {
			fmt.Fprintf(out, "%d runs of build %s\n", builds[b], b)
		}
	}
	for i := range results {
		if c := &results[i]; !c.Verdict.Settled() {
			what := strings.ToLower(string(c.Verdict))
			if last[c.Name()] != i {
				what += " and was run again"
			}
			fmt.Fprintf(out, "%s %s, seed %d, build %s: %s: %s\n", c.Workload, c.Nemesis, c.Seed, c.Build, what, strings.Join(c.Problems[:min(1, len(c.Problems))], ""))
		}
	}
	return nil
}
