// Package checker judges the history of a run: whether what was acknowledged is on every node,
// in order, once per offset, and nothing else.
//
// It only looks at what clients saw and at the nodes' final statuses; it does not talk to
// nodes. A check that lacks what it needs (a node was never drained) fails rather than passes.
package checker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

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
	// Checks are those that the workload is to stand; nil for those of the queue workload.
	Checks []string
	// Info is the history's header, zero if it has none.
	Info history.RunInfo
}

// FromHistory makes a Run of a history that has a header.
func FromHistory(ops []history.Op) (*Run, error) {
	run := &Run{Ops: ops}
	for i := range ops {
		switch op := &ops[i]; op.Kind {
		case history.Header:
			if op.Run == nil || len(op.Run.Checks) == 0 {
				return nil, errors.New("checker: the history's header names no checks")
			}
			run.Info = *op.Run
			run.Nodes, run.Groups, run.Checks = op.Run.Nodes, op.Run.Groups, op.Run.Checks
		case history.State:
			if op.Log == nil {
				return nil, fmt.Errorf("checker: operation %d: a state without a log", i)
			}
			run.Statuses = append(run.Statuses, remoting.NodeStatus{NodeID: op.Node, LogMin: op.Log.Min, LogMax: op.Log.Max,
				ChecksumTo: op.Log.ChecksumTo, LogChecksum: op.Log.Checksum})
		}
	}
	if run.Checks == nil {
		return nil, errors.New("checker: the history has no header")
	}
	for _, name := range run.Checks {
		if checkOf(name) == nil {
			return nil, fmt.Errorf("checker: the history wants a check %q, which is not known", name)
		}
	}
	return run, nil
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

// All runs the checks that the run is to stand.
func All(run *Run) []Result {
	v := newView(run)
	names := run.Checks
	if names == nil {
		names = Checks(Queue)
	}
	out := make([]Result, 0, len(names))
	for _, name := range names {
		check := checkOf(name)
		if check == nil {
			r := Result{Name: name, Summary: "not known"}
			r.problem("there is no such check")
			out = append(out, r)
			continue
		}
		out = append(out, check(v))
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
	op     *history.Op // of the drain
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
	first    map[string]map[queue]int64    // node → first offset that is still there
	faults   []*history.Op
}

func newView(run *Run) *view {
	v := &view{run: run, sends: map[string]*history.Op{}, logs: map[string]map[queue][]copyOf{}, ends: map[string]map[queue]bool{},
		broken: map[string]map[queue]string{}, first: map[string]map[queue]int64{}}
	for _, n := range run.Nodes {
		v.logs[n], v.ends[n], v.broken[n], v.first[n] = map[queue][]copyOf{}, map[queue]bool{}, map[queue]string{}, map[queue]int64{}
	}
	for i := range run.Ops {
		v.add(&run.Ops[i])
	}
	for _, queues := range v.logs {
		for _, copies := range queues {
			slices.SortStableFunc(copies, func(a, b copyOf) int { return cmp.Compare(a.offset, b.offset) })
		}
	}
	slices.SortStableFunc(v.faults, func(a, b *history.Op) int { return cmp.Compare(a.Start, b.Start) })
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
		v.logs[op.Node][q] = append(v.logs[op.Node][q], copyOf{op.Offset, op.Value, op.UniqKey, op})
	case history.Drained:
		switch {
		case v.ends[op.Node] == nil:
		case op.Outcome == history.OK:
			v.ends[op.Node][q] = true
			v.first[op.Node][q] = op.First
		default:
			v.broken[op.Node][q] = op.Error
		}
	case history.Fault:
		v.faults = append(v.faults, op)
	}
}

// expired tells whether a node had to remove what was acknowledged at a place.
func (v *view) expired(node string, op *history.Op) bool {
	return v.run.Info.Trimmed && op.Offset >= 0 && op.Offset < v.first[node][queue{op.Topic, op.Queue}]
}

// acked calls f for every acknowledged send that is to be visible, by process and in order of sending.
func (v *view) acked(f func(*history.Op)) {
	for _, value := range v.values {
		if op := v.sends[value]; op.Outcome == history.OK && op.Wish != history.WishRollback {
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

// stored is the set of values on one node, in the topics that they were sent to.
func (v *view) stored(node string) map[string]bool {
	set := map[string]bool{}
	for q, copies := range v.logs[node] {
		for _, c := range copies {
			if op := v.sends[c.value]; op == nil || op.Topic == q.topic {
				set[c.value] = true
			}
		}
	}
	return set
}
