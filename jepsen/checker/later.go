package checker

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"raftmq/jepsen/history"
)

const (
	// delayEarly is what store times in milliseconds may be off.
	delayEarly = 5 * time.Millisecond
	// delayLate is how late a message may come while the cluster is well; the machine may be busy.
	delayLate = 3 * time.Second
	// delayShadow is how long after a fault the cluster may still have arrears.
	delayShadow = 15 * time.Second
)

// delayKept: a delayed message is stored for its readers not before its time and, while no fault is about, not much later. That each
// comes once is the duplicates check's.
func delayKept(v *view) Result {
	r := Result{Name: "delay not kept", Valid: true}
	clock := strings.Contains(v.run.Info.Nemesis, "clock")
	seen, excused := 0, 0
	worst := time.Duration(0)
	for _, node := range v.run.Nodes {
		for q, copies := range v.logs[node] {
			for _, c := range copies {
				sent := v.sends[c.value]
				if sent == nil || sent.Delay == 0 || sent.Topic != q.topic || c.op.Stored == 0 {
					continue
				}
				seen++
				stored := time.Duration(c.op.Stored-v.run.Info.Began) * time.Millisecond
				if clock {
					continue // times of several clocks are not compared
				}
				if took := stored - sent.Start; took < sent.Delay-delayEarly {
					r.problem("%s: %s was to come after %v and came after %v", node, c.value, sent.Delay, took)
				}
				// What was stored may have been stored at the first attempt or at the last one.
				late := stored - sent.End - sent.Delay
				if late > delayLate && v.faulty(sent.Start, stored) {
					excused++
					continue
				}
				worst = max(worst, late)
				if late > delayLate {
					r.problem("%s: %s was to come after %v and came %v late, with no fault about", node, c.value, sent.Delay, late)
				}
			}
		}
	}
	if seen == 0 {
		r.problem("no delayed message was read")
	}
	r.Summary = fmt.Sprintf("%d of %d, the latest %v late; %d late ones lay in a fault's shadow", r.Count, seen, worst.Round(time.Millisecond), excused)
	if clock {
		r.Summary = fmt.Sprintf("%d messages, not measured: clocks were moved", seen)
	}
	return r
}

// faulty tells whether a fault or its shadow lies in a time.
func (v *view) faulty(from, to time.Duration) bool {
	return slices.ContainsFunc(v.faults, func(f *history.Op) bool { return f.Start < to && f.End+delayShadow > from })
}

// transactionKept: what was rolled back is never visible, and nothing is before its application said commit. That what was committed
// is there is the lost check's.
func transactionKept(v *view) Result {
	r := Result{Name: "transaction not kept", Valid: true}
	decided := map[string]time.Duration{}
	rollbacks, commits := 0, 0
	for i := range v.run.Ops {
		op := &v.run.Ops[i]
		if at, ok := decided[op.Value]; op.Kind == history.Decide && (!ok || op.Start < at) {
			decided[op.Value] = op.Start
		}
	}
	for _, op := range v.sends {
		switch op.Wish {
		case history.WishRollback:
			rollbacks++
		case history.WishCommit:
			commits++
		}
	}
	for _, node := range v.run.Nodes {
		for q, copies := range v.logs[node] {
			for _, c := range copies {
				if op := v.sends[c.value]; op != nil && op.Wish == history.WishRollback {
					r.problem("%s: %v@%d: %s was rolled back", node, q, c.offset, c.value)
				}
			}
		}
	}
	for _, op := range v.receives {
		sent := v.sends[op.Value]
		if sent == nil || sent.Wish == "" {
			continue
		}
		if sent.Wish == history.WishRollback {
			r.problem("%s got %s at %v, which was rolled back", op.Process, op.Value, op.Start)
			continue
		}
		if at, ok := decided[op.Value]; !ok {
			r.problem("%s got %s at %v, of which nobody has said commit", op.Process, op.Value, op.Start)
		} else if op.End < at {
			r.problem("%s got %s at %v, before commit was said at %v", op.Process, op.Value, op.End, at)
		}
	}
	if rollbacks == 0 || commits == 0 {
		r.problem("%d transactions to be rolled back and %d to be committed: there must be both", rollbacks, commits)
	}
	r.Summary = fmt.Sprintf("%d, %d transactions to commit, %d to roll back", r.Count, commits, rollbacks)
	return r
}

// retryKept: what a consumer sent back came again, with a higher count, and what it sends back always is a dead letter in the end and
// never counted as consumed.
func retryKept(v *view) Result {
	r := Result{Name: "retry not kept", Valid: true}
	type of struct{ group, value string }
	tries := map[of]int{}
	for _, op := range v.receives {
		o := of{op.Group, op.Value}
		tries[o] = max(tries[o], op.Tries)
	}
	dead := map[string]bool{}
	for _, node := range v.run.Nodes {
		for q, copies := range v.logs[node] {
			for _, c := range copies {
				if q.topic == v.run.Info.Dead {
					dead[c.value] = true
					if op := v.sends[c.value]; op != nil && op.Wish != history.WishDead {
						r.problem("%s: %s is a dead letter and should have been consumed", node, c.value)
					}
				}
			}
		}
	}
	retries, letters := 0, 0
	for _, group := range v.run.Groups {
		v.acked(func(op *history.Op) {
			got := tries[of{group, op.Value}]
			switch op.Wish {
			case history.WishRetry:
				retries++
				if got < 1 {
					r.problem("%s: %s was sent back and never came again", group, op.Value)
				}
			case history.WishDead:
				letters++
				if got > v.run.Info.Tries {
					r.problem("%s: %s came again %d times, %d are allowed", group, op.Value, got, v.run.Info.Tries)
				}
				if !dead[op.Value] {
					r.problem("%s: %s was always sent back (%d times seen) and is no dead letter", group, op.Value, got)
				}
			}
		})
	}
	if retries == 0 || letters == 0 {
		r.problem("%d messages to be tried again and %d to become dead letters: there must be both", retries, letters)
	}
	r.Summary = fmt.Sprintf("%d, %d tried again, %d dead letters", r.Count, retries, letters)
	return r
}
