// Package checker judges the history of a run: whether what was acknowledged is on every node,
// in order, once per offset, and nothing else.
//
// It only looks at what clients saw and at the nodes' final statuses; it does not talk to
// nodes. A check that lacks what it needs (a node was never drained) fails rather than passes.
package checker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"raftmq/jepsen/history"
	"raftmq/transport/remoting"
)

// maxProblems bounds the examples in a Result; Count has all.
const maxProblems = 10

// Run is what is known of one run.
type Run struct {
	Ops []history.Op
	// Nodes are the ids of all nodes; each must have been drained.
	Nodes []string
	// Groups are the consumer groups that had to get every acknowledged message.
	Groups []string
	// Statuses are those of all nodes when they had become equal in length, with checksums; nil
	// when that did not happen.
	Statuses []remoting.NodeStatus
}

// Result of one check.
type Result struct {
	Name     string   `json:"name"`
	Valid    bool     `json:"valid"`
	Count    int      `json:"count"` // violations, or what the check counts
	Summary  string   `json:"summary"`
	Problems []string `json:"problems,omitempty"` // the first few violations
}

// problem counts a violation.
func (r *Result) problem(format string, args ...any) {
	r.Valid = false
	r.Count++
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, fmt.Sprintf(format, args...))
	}
}

// All runs every check.
func All(run *Run) []Result {
	v := newView(run)
	checks := []func(*view) Result{
		drained, lost, lostOnNode, neverSent, refusedButStored, ackedPosition,
		order, oneValue, holes, duplicates, redelivered, undelivered, logsEqual,
	}
	out := make([]Result, len(checks))
	for i, check := range checks {
		out[i] = check(v)
	}
	return out
}

// Valid reports whether all results are.
func Valid(results []Result) bool {
	return !slices.ContainsFunc(results, func(r Result) bool { return !r.Valid })
}

type queue struct {
	topic string
	id    int32
}

func (q queue) String() string { return fmt.Sprintf("%s[%d]", q.topic, q.id) }

// position is one message's place.
type position struct {
	queue
	offset int64
}

// copyOf is one message as it lies in a drained queue.
type copyOf struct {
	offset int64
	value  string
	uniq   string
}

// view is the history, sorted for the checks.
type view struct {
	run      *Run
	sends    map[string]*history.Op // by value
	values   []string               // of sends, sorted by process and order of sending
	receives []*history.Op
	logs     map[string]map[queue][]copyOf // node → queue → copies by offset
	ends     map[string]map[queue]bool     // node → queues read to their end
	broken   map[string]map[queue]string   // node → what ended the reading of a queue before its end
}

func newView(run *Run) *view {
	v := &view{run: run, sends: map[string]*history.Op{}, logs: map[string]map[queue][]copyOf{}, ends: map[string]map[queue]bool{},
		broken: map[string]map[queue]string{}}
	for _, n := range run.Nodes {
		v.logs[n], v.ends[n], v.broken[n] = map[queue][]copyOf{}, map[queue]bool{}, map[queue]string{}
	}
	for i := range run.Ops {
		v.add(&run.Ops[i])
	}
	for _, queues := range v.logs {
		for _, copies := range queues {
			slices.SortStableFunc(copies, func(a, b copyOf) int { return cmp.Compare(a.offset, b.offset) })
		}
	}
	v.values = slices.SortedFunc(maps.Keys(v.sends), func(a, b string) int {
		x, y := v.sends[a], v.sends[b]
		return cmp.Or(cmp.Compare(x.Process, y.Process), cmp.Compare(x.Start, y.Start), cmp.Compare(a, b))
	})
	return v
}

func (v *view) add(op *history.Op) {
	q := queue{op.Topic, op.Queue}
	switch op.Kind {
	case history.Send:
		v.sends[op.Value] = op
	case history.Receive:
		v.receives = append(v.receives, op)
	case history.Drain:
		if v.logs[op.Node] == nil {
			v.logs[op.Node] = map[queue][]copyOf{}
		}
		v.logs[op.Node][q] = append(v.logs[op.Node][q], copyOf{op.Offset, op.Value, op.UniqKey})
	case history.Drained:
		switch {
		case v.ends[op.Node] == nil:
		case op.Outcome == history.OK:
			v.ends[op.Node][q] = true
		default:
			v.broken[op.Node][q] = op.Error
		}
	}
}

// acked calls f for every acknowledged send, by process and in order of sending.
func (v *view) acked(f func(*history.Op)) {
	for _, value := range v.values {
		if op := v.sends[value]; op.Outcome == history.OK {
			f(op)
		}
	}
}

// queues lists all queues that any node was drained of.
func (v *view) queues() []queue {
	all := map[queue]bool{}
	for _, ends := range v.ends {
		for q := range ends {
			all[q] = true
		}
	}
	for _, logs := range v.logs {
		for q := range logs {
			all[q] = true
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b queue) int {
		return cmp.Or(cmp.Compare(a.topic, b.topic), cmp.Compare(a.id, b.id))
	})
}

// stored is the set of values on one node.
func (v *view) stored(node string) map[string]bool {
	set := map[string]bool{}
	for _, copies := range v.logs[node] {
		for _, c := range copies {
			set[c.value] = true
		}
	}
	return set
}

// Gap is the longest time without an acknowledgement in the shadow of a fault: from its
// injection to the next one's, or to the end of the load.
type Gap struct {
	Fault  string        // "" for the time before the first one
	Node   string        // that was hit
	At     time.Duration // when the gap began, since the history's start
	Length time.Duration
}

// Gaps returns one Gap for the time before the first fault and one for each fault.
func Gaps(ops []history.Op) []Gap {
	var acks []time.Duration
	var faults []*history.Op
	first, last := time.Duration(-1), time.Duration(0)
	for i := range ops {
		switch op := &ops[i]; op.Kind {
		case history.Send:
			if first < 0 || op.Start < first {
				first = op.Start
			}
			last = max(last, op.End)
			if op.Outcome == history.OK {
				acks = append(acks, op.End)
			}
		case history.Fault:
			faults = append(faults, op)
		}
	}
	if first < 0 {
		return nil
	}
	slices.Sort(acks)
	slices.SortFunc(faults, func(a, b *history.Op) int { return cmp.Compare(a.Start, b.Start) })
	gaps := []Gap{{}}
	starts := []time.Duration{first}
	for _, f := range faults {
		gaps = append(gaps, Gap{Fault: f.Fault, Node: f.Node})
		starts = append(starts, f.Start)
	}
	// A gap counts for every window that it reaches into: from the last acknowledgement, be it
	// before the window, to the next one or the window's end.
	points := append([]time.Duration{first}, acks...)
	points = append(points, last)
	for i := range gaps {
		from, to := starts[i], last
		if i+1 < len(starts) {
			to = starts[i+1]
		}
		for k := 1; k < len(points); k++ {
			a, b := points[k-1], min(points[k], to)
			if b > from && a < to && b-a > gaps[i].Length {
				gaps[i].At, gaps[i].Length = a, b-a
			}
		}
	}
	return gaps
}
