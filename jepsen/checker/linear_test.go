package checker

import (
	"strings"
	"testing"
	"time"

	"raftmq/jepsen/history"
)

// at is an operation of a client on the register of a workload, from start to end, in milliseconds.
func at(kind history.Kind, client string, start, end int, value int64, outcome history.Outcome) history.Op {
	op := history.Op{Kind: kind, Process: client, Start: time.Duration(start) * ms, End: time.Duration(end) * ms, Outcome: outcome}
	switch kind {
	case history.Commit, history.Fetch:
		op.Group, op.Topic, op.Queue, op.Offset = "g", topic, 1, value
	default:
		op.Topic, op.Queue, op.Offset, op.Count = "table", -1, -1, int(value)
	}
	return op
}

// registers is a run of the given workload: nothing was there, 5 is written, read, and read again.
func registers(workload string) func() *Run {
	write, read, nothing := history.Commit, history.Fetch, int64(-1)
	if workload == Topics {
		write, read, nothing = history.Put, history.Get, 0
	}
	return func() *Run {
		run := cleanRun()
		run.Ops = []history.Op{
			at(read, "r1", 0, 10, nothing, history.OK),
			at(write, "r1", 20, 30, 5, history.OK),
			at(read, "r2", 40, 50, 5, history.OK),
			at(read, "r3", 45, 60, 5, history.OK),
		}
		run.Info.Workload = workload
		return run
	}
}

// add appends operations to a run.
func add(ops ...history.Op) func(*Run) {
	return func(run *Run) { run.Ops = append(run.Ops, ops...) }
}

// registerCases are the same for both tables; erase is an operation that removes the entry again.
func registerCases(write, read history.Kind, nothing int64) []planted {
	return []planted{
		{"an old value after a new one", add(
			at(write, "r1", 100, 110, 6, history.OK), at(read, "r2", 120, 130, 5, history.OK)), true},
		{"nothing after a value", add(at(read, "r1", 100, 110, nothing, history.OK)), true},
		{"a value that nobody wrote", add(at(read, "r1", 100, 110, 9, history.OK)), true},
		{"a value before it was written", add(
			at(read, "r2", 100, 110, 6, history.OK), at(write, "r1", 120, 130, 6, history.OK)), true},
		{"a value that was refused", add(
			at(write, "r1", 100, 110, 6, history.Fail), at(read, "r2", 120, 130, 6, history.OK)), true},
		{"two readers at the same time see the change in opposite orders", add(
			at(write, "r1", 100, 200, 6, history.OK), at(read, "r2", 110, 120, 6, history.OK), at(read, "r3", 130, 140, 5, history.OK)), true},
		{"a write without an answer is seen, and undone", add(
			at(write, "r1", 100, 110, 6, history.Unknown), at(read, "r2", 120, 130, 6, history.OK), at(read, "r2", 140, 150, 5, history.OK)), true},
		{"a write without an answer is seen before it began", add(
			at(read, "r2", 80, 90, 6, history.OK), at(write, "r1", 100, 110, 6, history.Unknown)), true},
		{"nothing was read", func(run *Run) {
			drop(run, func(op *history.Op) bool { return op.Kind == read })
		}, true},
		{"no read had an answer", func(run *Run) {
			for i := range run.Ops {
				if run.Ops[i].Kind == read {
					run.Ops[i].Outcome = history.Unknown
				}
			}
		}, true},
		{"a write without an answer happens never", add(
			at(write, "r1", 100, 110, 6, history.Unknown), at(read, "r2", 120, 130, 5, history.OK)), false},
		{"a write without an answer happens at once", add(
			at(write, "r1", 100, 110, 6, history.Unknown), at(read, "r2", 120, 130, 6, history.OK)), false},
		{"a write without an answer happens much later, over another one", add(
			at(write, "r1", 100, 110, 6, history.Unknown), at(write, "r2", 120, 130, 7, history.OK), at(read, "r2", 140, 150, 7, history.OK),
			at(read, "r3", 5000, 5010, 6, history.OK)), false},
		{"a read without an answer says nothing", add(at(read, "r1", 100, 110, 9, history.Unknown)), false},
		{"two writes at the same time, in either order", add(
			at(write, "r1", 100, 120, 6, history.OK), at(write, "r2", 100, 120, 7, history.OK), at(read, "r3", 130, 140, 6, history.OK)), false},
		{"readers at the same time as a write", add(
			at(write, "r1", 100, 200, 6, history.OK), at(read, "r2", 110, 120, 5, history.OK), at(read, "r3", 130, 140, 6, history.OK)), false},
	}
}

func TestOffsetsNotLinearizable(t *testing.T) {
	other := func(op history.Op, group string, queue int32) history.Op {
		op.Group, op.Queue = group, queue
		return op
	}
	testCheck(t, "offsets not linearizable", registers(Offsets), append(registerCases(history.Commit, history.Fetch, -1),
		planted{"an offset goes back to what was committed last", add(
			at(history.Commit, "r1", 100, 110, 3, history.OK), at(history.Fetch, "r2", 120, 130, 3, history.OK)), false},
		planted{"queues and groups are apart", add(
			other(at(history.Fetch, "r1", 100, 110, -1, history.OK), "g", 2), other(at(history.Fetch, "r1", 120, 130, -1, history.OK), "h", 1)), false},
		planted{"another group's offset", add(
			other(at(history.Fetch, "r1", 100, 110, 5, history.OK), "h", 1)), true}))
}

func TestTopicsNotLinearizable(t *testing.T) {
	testCheck(t, "topics not linearizable", registers(Topics), append(registerCases(history.Put, history.Get, 0),
		planted{"it is there after it was deleted", add(
			at(history.Delete, "r1", 100, 110, 0, history.OK), at(history.Get, "r2", 120, 130, 5, history.OK)), true},
		planted{"it was deleted", add(
			at(history.Delete, "r1", 100, 110, 0, history.OK), at(history.Get, "r2", 120, 130, 0, history.OK)), false},
		planted{"a deletion without an answer happened", add(
			at(history.Delete, "r1", 100, 110, 0, history.Unknown), at(history.Get, "r2", 120, 130, 0, history.OK)), false},
		planted{"a deletion without an answer did not happen", add(
			at(history.Delete, "r1", 100, 110, 0, history.Unknown), at(history.Get, "r2", 120, 130, 5, history.OK)), false}))
}

// The answer that cannot be is named.
func TestSuspect(t *testing.T) {
	run := registers(Offsets)()
	add(at(history.Commit, "r1", 100, 110, 6, history.OK), at(history.Fetch, "r2", 120, 130, 5, history.OK), at(history.Fetch, "r2", 140, 150, 6, history.OK))(run)
	r := offsetsLinearizable(newView(run))
	if r.Valid || len(r.Problems) != 1 || !strings.Contains(r.Problems[0], "read 5 from 120ms to 130ms") {
		t.Errorf("%+v", r)
	}
}
