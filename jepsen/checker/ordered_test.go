package checker

import (
	"fmt"
	"testing"
	"time"

	"raftmq/jepsen/history"
)

const ms = time.Millisecond

// keyed is a clean run with two keys of each producer, all of which lie in one queue each; g1 has a consumer for each queue. Consumers
// work on a message for half a millisecond.
func keyed() *Run {
	run := cleanRun()
	run.Info.Workload = Ordered
	for i := range run.Ops {
		op := &run.Ops[i]
		switch op.Kind {
		case history.Send:
			op.Key = fmt.Sprintf("%s-%d", op.Process, op.Queue)
		case history.Receive:
			op.Process = fmt.Sprintf("c%d-%s", op.Queue, op.Group)
			op.Start += 10 * ms
			op.End = op.Start + ms/2
		}
	}
	return run
}

func TestKeyOutOfOrder(t *testing.T) {
	later := func(run *Run, group string, q int32, offset int64, d time.Duration) {
		op := find(run, isReceive(group, q, offset))
		op.Start, op.End = op.Start+d, op.End+d
	}
	again := func(run *Run, group string, q int32, offset int64, d time.Duration) {
		op := *find(run, isReceive(group, q, offset))
		op.Start, op.End = op.Start+d, op.End+d
		run.Ops = append(run.Ops, op)
	}
	testCheck(t, "key out of order", keyed, []planted{
		// Two producers take turns: messages 2 and 4 of a queue have the same key, 2 and 3 have not.
		{"one came after the next one of its key", func(run *Run) { later(run, "g1", 0, 2, 2*ms+ms/4) }, true},
		{"in the other group", func(run *Run) { later(run, "g2", 1, 5, 3*ms) }, true},
		{"the first one came last", func(run *Run) { later(run, "g1", 1, 0, time.Minute) }, true},
		{"a message without an answer came too early", func(run *Run) {
			find(run, isSend(0, 4)).Outcome = history.Unknown
			later(run, "g1", 0, 4, -3*ms)
		}, true},
		{"no message has a key", func(run *Run) {
			for i := range run.Ops {
				run.Ops[i].Key = ""
			}
		}, true},
		{"one came after one of another key", func(run *Run) { later(run, "g1", 0, 2, ms+ms/4) }, false},
		{"one came once more", func(run *Run) { again(run, "g1", 0, 2, time.Second) }, false},
		{"all came once more, after a change of owners", func(run *Run) {
			for i := range int64(perQueue) {
				again(run, "g1", 0, i, time.Second)
			}
		}, false},
		{"one without an answer never came", func(run *Run) {
			find(run, isSend(0, 4)).Outcome = history.Unknown
			drop(run, isReceive("g1", 0, 4))
		}, false},
	})
}

func TestTwoOwners(t *testing.T) {
	other := func(run *Run, start, end time.Duration) {
		op := *find(run, isReceive("g1", 0, 2))
		op.Process, op.Start, op.End = "other", op.Start+start, op.Start+end
		run.Ops = append(run.Ops, op)
	}
	testCheck(t, "two owners of a queue", keyed, []planted{
		{"another one begins before the owner ends", func(run *Run) { other(run, ms/4, ms) }, true},
		{"another one begins first", func(run *Run) { other(run, -ms/4, ms/4) }, true},
		{"another one works all the time", func(run *Run) { other(run, -time.Millisecond, time.Hour) }, true},
		{"a long work overlaps one after the next", func(run *Run) {
			find(run, isReceive("g1", 0, 0)).End += 5 * ms
			op := find(run, isReceive("g1", 0, 3))
			op.Process = "other"
		}, true},
		{"one after the other", func(run *Run) { other(run, ms/2, 3*ms/4) }, false},
		{"the owner itself, on two messages", func(run *Run) { find(run, isReceive("g1", 0, 2)).End += 5 * ms }, false},
		{"a consumer of another group", func(run *Run) {
			op := *find(run, isReceive("g1", 0, 2))
			op.Process, op.Group = "c-g3", "g3"
			run.Ops = append(run.Ops, op)
		}, false},
		{"on another queue", func(run *Run) {
			op := *find(run, isReceive("g1", 0, 2))
			op.Process, op.Queue = "other", 7
			run.Ops = append(run.Ops, op)
		}, false},
	})
}
