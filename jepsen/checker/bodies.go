package checker

import (
	"fmt"
	"time"

	"raftmq/jepsen/history"
)

// bytesDiffer: whoever reads a message gets the bytes that were sent.
func bytesDiffer(v *view) Result {
	r := Result{Name: "bytes differ", Valid: true}
	compared := 0
	look := func(op *history.Op) {
		sent := v.sends[op.Value]
		if sent == nil || sent.Size == 0 {
			return
		}
		compared++
		if op.Size != sent.Size || op.Sum != sent.Sum {
			r.problem("%s: sent %d bytes with checksum %08x, %s%s read %d with %08x at %s[%d]@%d", op.Value, sent.Size, sent.Sum,
				op.Process, op.Node, op.Size, op.Sum, op.Topic, op.Queue, op.Offset)
		}
	}
	for _, node := range v.run.Nodes {
		for _, copies := range v.logs[node] {
			for _, c := range copies {
				look(c.op)
			}
		}
	}
	for _, op := range v.receives {
		look(op)
	}
	r.Summary = fmt.Sprintf("%d of %d readings", r.Count, compared)
	return r
}

// halfBatch: a batch is stored whole, in one piece and in its order, or not at all.
func halfBatch(v *view) Result {
	r := Result{Name: "half a batch", Valid: true}
	batches := map[string][]*history.Op{}
	var names []string
	for _, value := range v.values {
		op := v.sends[value]
		if op.Batch == "" {
			continue
		}
		if batches[op.Batch] == nil {
			names = append(names, op.Batch)
		}
		batches[op.Batch] = append(batches[op.Batch], op)
	}
	if len(names) == 0 {
		r.problem("no batch was sent")
	}
	for _, node := range v.run.Nodes {
		at := map[string]map[position]bool{}
		for q, copies := range v.logs[node] {
			for _, c := range copies {
				if at[c.value] == nil {
					at[c.value] = map[position]bool{}
				}
				at[c.value][position{q, c.offset}] = true
			}
		}
		for _, name := range names {
			members := batches[name]
			first := at[members[0].Value]
			for k, m := range members {
				if len(at[m.Value]) != len(first) {
					r.problem("%s: batch %s: %s is stored %d times, %s %d times", node, name, members[0].Value, len(first), m.Value, len(at[m.Value]))
					break
				}
				for p := range first {
					if want := (position{p.queue, p.offset + int64(k)}); !at[m.Value][want] {
						r.problem("%s: batch %s begins at %v@%d, and %s is not at %d", node, name, p.queue, p.offset, m.Value, want.offset)
					}
				}
			}
		}
	}
	r.Summary = fmt.Sprintf("%d, %d batches", r.Count, len(names))
	return r
}

// unknownOutcomes counts what got no clear answer. Each of them may or may not have happened; none is left out of any check.
func unknownOutcomes(v *view) Result {
	r := Result{Name: "unknown outcomes", Valid: true}
	there := 0
	anywhere := map[string]bool{}
	for _, node := range v.run.Nodes {
		for value := range v.stored(node) {
			anywhere[value] = true
		}
	}
	for i := range v.run.Ops {
		op := &v.run.Ops[i]
		if op.Outcome != history.Unknown || op.Kind == history.Fault {
			continue
		}
		r.Count++
		if op.Kind == history.Send && anywhere[op.Value] {
			there++
		}
	}
	r.Summary = fmt.Sprintf("%d, of which %d turned out to have happened", r.Count, there)
	return r
}

// nothingExpired: a run that is to show what retention does has seen some of it.
func nothingExpired(v *view) Result {
	r := Result{Name: "nothing expired", Valid: true}
	most := int64(0)
	for _, node := range v.run.Nodes {
		for _, first := range v.first[node] {
			most = max(most, first)
		}
	}
	if most == 0 {
		r.problem("every queue of every node begins at 0")
	}
	r.Summary = fmt.Sprintf("the first %d messages of a queue are gone", most)
	return r
}

// earlySlack is what is allowed for clocks that are read at different moments.
const earlySlack = time.Second

// expiredEarly: what a node had removed when it was read was as old by then as messages are to be kept.
func expiredEarly(v *view) Result {
	r := Result{Name: "expired too early", Valid: true}
	if v.run.Info.Kept <= 0 {
		r.problem("the history does not tell how long messages are kept")
	}
	read := map[string]map[queue]time.Duration{} // when the reading of a queue began
	for i := range v.run.Ops {
		if op := &v.run.Ops[i]; op.Kind == history.Drained && op.Outcome == history.OK {
			if read[op.Node] == nil {
				read[op.Node] = map[queue]time.Duration{}
			}
			read[op.Node][queue{op.Topic, op.Queue}] = op.End
		}
	}
	youngest := time.Duration(-1)
	for _, node := range v.run.Nodes {
		v.acked(func(op *history.Op) {
			at, ok := read[node][queue{op.Topic, op.Queue}]
			if !ok || !v.expired(node, op) {
				return
			}
			// It was stored after its sending began.
			age := at - op.Start
			if youngest < 0 || age < youngest {
				youngest = age
			}
			if age < v.run.Info.Kept-earlySlack {
				r.problem("%s: %s was sent at %v and gone at %v, after %v of %v", node, op.Value, op.Start, at, age, v.run.Info.Kept)
			}
		})
	}
	r.Summary = fmt.Sprintf("%d, the youngest was at most %v old", r.Count, max(youngest, 0).Round(time.Millisecond))
	return r
}
