package checker

import (
	"cmp"
	"fmt"
	"time"

	"raftmq/jepsen/history"
)

// drained: every node was read to the end of the same queues. Without that the other checks
// prove nothing.
func drained(v *view) Result {
	r := Result{Name: "drained", Valid: true}
	queues := v.queues()
	if len(queues) == 0 {
		r.problem("no queue was drained")
	}
	for _, node := range v.run.Nodes {
		for _, q := range queues {
			if !v.ends[node][q] {
				r.problem("%s: %v was not read to its end: %s", node, q, cmp.Or(v.broken[node][q], "nobody tried"))
			}
		}
	}
	r.Summary = fmt.Sprintf("%d queues on %d nodes", len(queues), len(v.run.Nodes))
	return r
}

// lost: acknowledged and on no node.
func lost(v *view) Result {
	r := Result{Name: "acknowledged but lost", Valid: true}
	anywhere := map[string]bool{}
	for _, node := range v.run.Nodes {
		for value := range v.stored(node) {
			anywhere[value] = true
		}
	}
	acked := 0
	v.acked(func(op *history.Op) {
		acked++
		if !anywhere[op.Value] && !everywhere(v, op) {
			r.problem("%s: acknowledged at %v for %s[%d]@%d, on no node", op.Value, op.End, op.Topic, op.Queue, op.Offset)
		}
	})
	r.Summary = fmt.Sprintf("%d of %d acknowledged", r.Count, acked)
	return r
}

// everywhere: expired on all nodes.
func everywhere(v *view, op *history.Op) bool {
	for _, node := range v.run.Nodes {
		if !v.expired(node, op) {
			return false
		}
	}
	return len(v.run.Nodes) > 0
}

// lostOnNode: acknowledged and missing on one of the nodes.
func lostOnNode(v *view) Result {
	r := Result{Name: "missing on a node", Valid: true}
	for _, node := range v.run.Nodes {
		stored := v.stored(node)
		v.acked(func(op *history.Op) {
			if !stored[op.Value] && !v.expired(node, op) {
				r.problem("%s: acknowledged at %v, not on %s", op.Value, op.End, node)
			}
		})
	}
	r.Summary = fmt.Sprintf("%d", r.Count)
	return r
}

// neverSent: read by somebody, sent by nobody.
func neverSent(v *view) Result {
	r := Result{Name: "read but never sent", Valid: true}
	seen := map[string]bool{}
	look := func(value, where string, q queue, offset int64) {
		if v.sends[value] == nil && !seen[value] {
			seen[value] = true
			r.problem("%q: read from %s at %v@%d, never sent", value, where, q, offset)
		}
	}
	for _, node := range v.run.Nodes {
		for q, copies := range v.logs[node] {
			for _, c := range copies {
				look(c.value, node, q, c.offset)
			}
		}
	}
	for _, op := range v.receives {
		look(op.Value, op.Process, queue{op.Topic, op.Queue}, op.Offset)
	}
	r.Summary = fmt.Sprintf("%d", r.Count)
	return r
}

// refusedButStored: the sender was told that it certainly did not happen, and it did.
func refusedButStored(v *view) Result {
	r := Result{Name: "refused but stored", Valid: true}
	refused := 0
	for _, node := range v.run.Nodes {
		stored := v.stored(node)
		for _, value := range v.values {
			if op := v.sends[value]; op.Outcome == history.Fail && stored[value] {
				r.problem("%s: refused (%s), stored on %s", value, op.Error, node)
			}
		}
	}
	for _, op := range v.sends {
		if op.Outcome == history.Fail {
			refused++
		}
	}
	r.Summary = fmt.Sprintf("%d of %d refused", r.Count, refused)
	return r
}

// ackedPosition: the place named by the acknowledgement holds that message, on every node.
func ackedPosition(v *view) Result {
	r := Result{Name: "other message at the acknowledged offset", Valid: true}
	for _, node := range v.run.Nodes {
		at := map[position]string{}
		for q, copies := range v.logs[node] {
			for _, c := range copies {
				at[position{q, c.offset}] = c.value
			}
		}
		v.acked(func(op *history.Op) {
			if op.Offset < 0 || v.expired(node, op) {
				return // the client was told no offset, or its message is gone by now
			}
			p := position{queue{op.Topic, op.Queue}, op.Offset}
			if got := at[p]; got != op.Value {
				r.problem("%s: %v@%d was acknowledged for %s and holds %q", node, p.queue, p.offset, op.Value, got)
			}
		})
	}
	r.Summary = fmt.Sprintf("%d", r.Count)
	return r
}

// order: of one producer's messages acknowledged for one queue, the first copies lie in the
// order of sending. A producer sends the next one after the last has ended.
func order(v *view) Result {
	r := Result{Name: "out of order", Valid: true}
	for _, node := range v.run.Nodes {
		firstCopy := map[queue]map[string]int64{}
		for q, copies := range v.logs[node] {
			firstCopy[q] = map[string]int64{}
			for _, c := range copies {
				if _, ok := firstCopy[q][c.value]; !ok {
					firstCopy[q][c.value] = c.offset
				}
			}
		}
		type line struct {
			process string
			queue
		}
		last := map[line]*history.Op{}
		v.acked(func(op *history.Op) {
			l := line{op.Process, queue{op.Topic, op.Queue}}
			at, ok := firstCopy[l.queue][op.Value]
			if !ok {
				return // lost, or acknowledged for another queue: other checks tell
			}
			if prev := last[l]; prev != nil && firstCopy[l.queue][prev.Value] > at {
				r.problem("%s: %v: %s@%d was sent after %s@%d was acknowledged", node, l.queue, op.Value, at,
					prev.Value, firstCopy[l.queue][prev.Value])
			}
			last[l] = op
		})
	}
	r.Summary = fmt.Sprintf("%d", r.Count)
	return r
}

// oneValue: an offset of a queue holds one message, whoever reads it and whenever.
func oneValue(v *view) Result {
	r := Result{Name: "two values at one offset", Valid: true}
	type sight struct{ value, where string }
	at := map[position]sight{}
	look := func(p position, value, where string) {
		if p.offset < 0 {
			return
		}
		if prev, ok := at[p]; !ok {
			at[p] = sight{value, where}
		} else if prev.value != value {
			r.problem("%v@%d: %s saw %q, %s saw %q", p.queue, p.offset, prev.where, prev.value, where, value)
		}
	}
	for _, node := range v.run.Nodes {
		for q, copies := range v.logs[node] {
			for _, c := range copies {
				look(position{q, c.offset}, c.value, node)
			}
		}
	}
	for _, op := range v.receives {
		look(position{queue{op.Topic, op.Queue}, op.Offset}, op.Value, fmt.Sprintf("%s at %v", op.Process, op.End))
	}
	v.acked(func(op *history.Op) {
		look(position{queue{op.Topic, op.Queue}, op.Offset}, op.Value, op.Process+"'s acknowledgement")
	})
	r.Summary = fmt.Sprintf("%d of %d offsets", r.Count, len(at))
	return r
}

// holes: the offsets of each queue follow each other without a gap and without a repetition,
// from 0 on, or from the first one that has not expired.
func holes(v *view) Result {
	r := Result{Name: "holes in a queue", Valid: true}
	for _, node := range v.run.Nodes {
		for _, q := range v.queues() {
			first, copies := int64(0), v.logs[node][q]
			if v.run.Info.Trimmed {
				first = v.first[node][q]
			}
			next := first
			if len(copies) > 0 { // what was read before it expired
				next = max(0, min(first, copies[0].offset))
			}
			for _, c := range copies {
				if c.offset != next && !(c.offset == first && next < first) {
					r.problem("%s: %v: offset %d follows %d", node, q, c.offset, next-1)
				}
				next = c.offset + 1
			}
		}
	}
	r.Summary = fmt.Sprintf("%d", r.Count)
	return r
}

// duplicates: more than one copy of a value is legal only as a client's retry: the copies share
// their UNIQ_KEY, and there are no more of them than attempts that were not refused. Count is the number of extra copies.
func duplicates(v *view) Result {
	r := Result{Name: "duplicates", Valid: true}
	most := 0
	for _, node := range v.run.Nodes {
		copies := map[string][]copyOf{}
		stored := 0
		for q, list := range v.logs[node] {
			for _, c := range list {
				if op := v.sends[c.value]; op != nil && op.Topic != q.topic {
					continue // sent on by a consumer
				}
				copies[c.value] = append(copies[c.value], c)
				stored++
			}
		}
		most = max(most, stored-len(copies))
		for value, list := range copies {
			op := v.sends[value]
			if op == nil || len(list) < 2 {
				continue
			}
			for _, c := range list[1:] {
				if c.uniq != list[0].uniq {
					r.problem("%s: %s has copies with different UNIQ_KEY %q and %q", node, value, list[0].uniq, c.uniq)
				}
			}
			if op.Attempts > 0 && len(list) > op.Attempts-op.Refused {
				r.problem("%s: %s was sent %d times, %d of them refused, and is stored %d times", node, value, op.Attempts, op.Refused, len(list))
			}
		}
	}
	unexplained := r.Count
	r.Count = most
	r.Summary = fmt.Sprintf("%d extra copies, %d not explained by a client's retry", most, unexplained)
	return r
}

// redelivered counts messages that a group got again at the same offset: legal at a consumer's
// or leader's change.
func redelivered(v *view) Result {
	r := Result{Name: "delivered again", Valid: true}
	type delivery struct {
		group string
		position
	}
	seen := map[delivery]bool{}
	for _, op := range v.receives {
		d := delivery{op.Group, position{queue{op.Topic, op.Queue}, op.Offset}}
		if seen[d] {
			r.Count++
		}
		seen[d] = true
	}
	r.Summary = fmt.Sprintf("%d of %d deliveries", r.Count, len(v.receives))
	return r
}

// undelivered: acknowledged, and a consumer group never got it.
func undelivered(v *view) Result {
	r := Result{Name: "never delivered to a group", Valid: true}
	got := map[string]map[string]bool{}
	for _, g := range v.run.Groups {
		got[g] = map[string]bool{}
	}
	for _, op := range v.receives {
		if got[op.Group] != nil && op.Outcome == history.OK {
			got[op.Group][op.Value] = true
		}
	}
	for _, g := range v.run.Groups {
		v.acked(func(op *history.Op) {
			if op.Wish == history.WishDead {
				return // its consumers refuse it
			}
			if !got[g][op.Value] {
				r.problem("%s: acknowledged at %v for %s[%d]@%d, never delivered to %s", op.Value, op.End, op.Topic, op.Queue, op.Offset, g)
			}
		})
	}
	r.Summary = fmt.Sprintf("%d, %d groups", r.Count, len(v.run.Groups))
	return r
}

// logsEqual: Same-Bytes, by each node's own checksum of its whole log.
func logsEqual(v *view) Result {
	r := Result{Name: "logs differ", Valid: true}
	if len(v.run.Statuses) != len(v.run.Nodes) || len(v.run.Statuses) == 0 {
		r.problem("the nodes did not come to logs of equal length (%d of %d statuses)", len(v.run.Statuses), len(v.run.Nodes))
		r.Summary = "not known"
		return r
	}
	first := &v.run.Statuses[0]
	for i := range v.run.Statuses {
		s := &v.run.Statuses[i]
		if s.LogMax != first.LogMax || s.LogMin != first.LogMin || s.ChecksumTo != first.ChecksumTo {
			r.problem("%s has [%d,%d), %s has [%d,%d)", first.NodeID, first.LogMin, first.LogMax, s.NodeID, s.LogMin, s.LogMax)
		} else if s.LogChecksum != first.LogChecksum || s.LogChecksum == "" {
			r.problem("%s has checksum %q, %s has %q", first.NodeID, first.LogChecksum, s.NodeID, s.LogChecksum)
		}
	}
	r.Summary = fmt.Sprintf("%d bytes, checksum %s", first.LogMax-first.LogMin, first.LogChecksum)
	return r
}

// patience is how long a cluster that is well may refuse a producer that goes on trying: stock clients need 30 s to hear of a new leader.
const patience = 40 * time.Second

// neverAcknowledged: a message was tried again and again while no fault was about, and never taken.
func neverAcknowledged(v *view) Result {
	r := Result{Name: "never acknowledged", Valid: true}
	for _, value := range v.values {
		op := v.sends[value]
		if op.Outcome == history.OK {
			continue
		}
		well := op.Start
		for _, f := range v.faults {
			if f.Start < op.End {
				well = max(well, f.End)
			}
		}
		if op.End-well > patience {
			r.problem("%s: %d attempts, the last %v with no fault about: %s", value, op.Attempts, (op.End - well).Round(time.Second), op.Error)
		}
	}
	r.Summary = fmt.Sprintf("%d", r.Count)
	return r
}
