package checker

import (
	"fmt"
	"time"

	"raftmq/jepsen/history"
)

// twoLeaders: a term has one leader.
func twoLeaders(v *view) Result {
	r := Result{Name: "two leaders in a term", Valid: true}
	by := map[uint64]string{}
	for i := range v.run.Ops {
		op := &v.run.Ops[i]
		if op.Kind != history.Leader {
			continue
		}
		if other, ok := by[op.Term]; ok && other != op.Node {
			r.problem("term %d: %s and %s took writes", op.Term, other, op.Node)
		}
		by[op.Term] = op.Node
	}
	r.Summary = fmt.Sprintf("%d, %d terms seen", r.Count, len(by))
	return r
}

// deposedShadow is how long after healing a node that was cut off can depose the leader.
const deposedShadow = 3 * time.Second

// deposed: a node that was cut off and comes back does not depose the leader, who was well all the time (pre-vote). A busy machine can
// have an election of its own, so this fails when most of such faults are followed by one, and at least two.
func deposed(v *view) Result {
	r := Result{Name: "leader deposed without cause", Valid: true}
	tried := 0
	var after []string
	for i, f := range v.faults {
		if !f.Spares {
			continue
		}
		tried++
		until := f.End + deposedShadow
		if i+1 < len(v.faults) {
			until = min(until, v.faults[i+1].Start)
		}
		for k := range v.run.Ops {
			if op := &v.run.Ops[k]; op.Kind == history.Leader && op.Start > f.Start && op.Start < until {
				after = append(after, fmt.Sprintf("%s of %s at %v: %s leads in term %d", f.Fault, f.Node, f.Start, op.Node, op.Term))
				break
			}
		}
	}
	if len(after) >= 2 && 2*len(after) > tried {
		for _, a := range after {
			r.problem("%s", a)
		}
	}
	r.Count = len(after)
	r.Summary = fmt.Sprintf("%d of %d faults that left the leader alone", len(after), tried)
	return r
}
