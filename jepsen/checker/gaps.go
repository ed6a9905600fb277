package checker

import (
	"cmp"
	"slices"
	"time"

	"raftmq/jepsen/history"
)

// Gap is the longest time without an acknowledgement in the shadow of a fault: from its
// injection to the next one's, or to the end of the load. What a single client waits for beyond that is its own matter: a stock one
// may be blind for 30 s while the cluster serves all others ("never acknowledged" is the check of that).
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
	first, last, end := time.Duration(-1), time.Duration(0), time.Duration(-1)
	for i := range ops {
		switch op := &ops[i]; op.Kind {
		case history.Send, history.Commit, history.Put, history.Delete:
			if first < 0 || op.Start < first {
				first = op.Start
			}
			last = max(last, op.End)
			if op.Outcome == history.OK {
				acks = append(acks, op.End)
			}
		case history.Fault:
			faults = append(faults, op)
		case history.Load:
			end = max(end, op.End)
		}
	}
	if end >= 0 {
		last = min(last, end)
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
	slices.Sort(points) // some were acknowledged after the end of the load
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
