package checker

import (
	"cmp"
	"fmt"
	"slices"

	"raftmq/jepsen/history"
)

// keyOrder: a consumer group gets the messages of one key for the first time in the order in which they were sent. A key belongs to
// one producer, who sends one message after the other.
func keyOrder(v *view) Result {
	r := Result{Name: "key out of order", Valid: true}
	type line struct{ group, key string }
	rank := map[string]int{} // of a value among its key's
	perKey := map[string]int{}
	for _, value := range v.values {
		if op := v.sends[value]; op.Key != "" {
			rank[value] = perKey[op.Key]
			perKey[op.Key]++
		}
	}
	if len(perKey) == 0 {
		r.problem("no message has a key")
	}
	receives := slices.Clone(v.receives)
	slices.SortStableFunc(receives, func(a, b *history.Op) int { return cmp.Compare(a.Start, b.Start) })
	seen := map[line]map[string]bool{}
	last := map[line]string{}
	for _, op := range receives {
		sent := v.sends[op.Value]
		if sent == nil || sent.Key == "" {
			continue
		}
		l := line{op.Group, sent.Key}
		if seen[l] == nil {
			seen[l] = map[string]bool{}
		}
		if seen[l][op.Value] {
			continue
		}
		seen[l][op.Value] = true
		if before, ok := last[l]; ok && rank[before] > rank[op.Value] {
			r.problem("%s: key %s: %s came at %v for the first time, after %s", op.Group, sent.Key, op.Value, op.Start, before)
			continue
		}
		last[l] = op.Value
	}
	r.Summary = fmt.Sprintf("%d, %d keys", r.Count, len(perKey))
	return r
}

// twoOwners: two consumers of a group never work on the same queue at the same time.
func twoOwners(v *view) Result {
	r := Result{Name: "two owners of a queue", Valid: true}
	type share struct {
		group string
		queue
	}
	work := map[share][]*history.Op{}
	for _, op := range v.receives {
		s := share{op.Group, queue{op.Topic, op.Queue}}
		work[s] = append(work[s], op)
	}
	for s, ops := range work {
		slices.SortStableFunc(ops, func(a, b *history.Op) int { return cmp.Compare(a.Start, b.Start) })
		until := ops[0]
		for _, op := range ops[1:] {
			if op.Process != until.Process && op.Start < until.End {
				r.problem("%s: %v: %s works from %v to %v, %s from %v on", s.group, s.queue, until.Process, until.Start, until.End, op.Process, op.Start)
			}
			if op.End > until.End {
				until = op
			}
		}
	}
	r.Summary = fmt.Sprintf("%d, %d queues and groups", r.Count, len(work))
	return r
}
