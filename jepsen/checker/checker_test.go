package checker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"raftmq/jepsen/history"
	"raftmq/transport/remoting"
)

const (
	topic    = "T"
	queues   = 2
	perQueue = 10
)

var nodes = []string{"n1", "n2", "n3"}

// cleanRun is a run without fault: two producers, two queues, three nodes, two groups.
func cleanRun() *Run {
	run := &Run{Nodes: nodes, Groups: []string{"g1", "g2"}}
	at := time.Duration(0)
	for q := range int32(queues) {
		for i := range perQueue {
			at += time.Millisecond
			// Both producers take turns in both queues.
			process := fmt.Sprintf("p%d", i%2)
			value := fmt.Sprintf("%s-%d", process, int(q)*perQueue+i)
			op := history.Op{Kind: history.Send, Process: process, Start: at, End: at + time.Microsecond, Outcome: history.OK,
				Value: value, UniqKey: "u" + value, Topic: topic, Queue: q, Offset: int64(i), Attempts: 1}
			run.Ops = append(run.Ops, op)
			for _, g := range run.Groups {
				op.Kind, op.Process, op.Group = history.Receive, "c-"+g, g
				run.Ops = append(run.Ops, op)
			}
			for _, n := range nodes {
				op.Kind, op.Process, op.Group, op.Node = history.Drain, "drain", "", n
				run.Ops = append(run.Ops, op)
			}
		}
		for _, n := range nodes {
			run.Ops = append(run.Ops, history.Op{Kind: history.Drained, Process: "drain", Outcome: history.OK, Node: n, Topic: topic, Queue: q, Count: perQueue})
		}
	}
	for _, n := range nodes {
		run.Statuses = append(run.Statuses, remoting.NodeStatus{NodeID: n, LogMax: 1000, ChecksumTo: 1000, LogChecksum: "deadbeef"})
	}
	return run
}

// find returns the first operation that matches.
func find(run *Run, match func(*history.Op) bool) *history.Op {
	for i := range run.Ops {
		if match(&run.Ops[i]) {
			return &run.Ops[i]
		}
	}
	panic("test history lacks an operation")
}

func drop(run *Run, match func(*history.Op) bool) {
	before := len(run.Ops)
	run.Ops = slices.DeleteFunc(run.Ops, func(op history.Op) bool { return match(&op) })
	if len(run.Ops) == before {
		panic("test history lacks an operation")
	}
}

func isDrain(node string, q int32, offset int64) func(*history.Op) bool {
	return func(op *history.Op) bool {
		return op.Kind == history.Drain && op.Node == node && op.Queue == q && op.Offset == offset
	}
}

func isSend(q int32, offset int64) func(*history.Op) bool {
	return func(op *history.Op) bool {
		return op.Kind == history.Send && op.Queue == q && op.Offset == offset
	}
}

func TestCleanRunPasses(t *testing.T) {
	for _, r := range All(cleanRun()) {
		if !r.Valid {
			t.Errorf("%s: %s %v", r.Name, r.Summary, r.Problems)
		}
	}
}

// Each planted violation is found by its check; others may see it too.
func TestPlantedViolations(t *testing.T) {
	swap := func(a, b *history.Op) {
		a.Value, b.Value = b.Value, a.Value
		a.UniqKey, b.UniqKey = b.UniqKey, a.UniqKey
	}
	cases := []struct {
		name  string
		plant func(*Run)
		found []string // checks that must fail; all others must pass
	}{
		{"an acknowledged message is on no node", func(run *Run) {
			// The last one, so that no hole gives it away.
			drop(run, func(op *history.Op) bool { return op.Kind == history.Drain && op.Queue == 1 && op.Offset == perQueue-1 })
		}, []string{"acknowledged but lost", "missing on a node", "other message at the acknowledged offset"}},
		{"one node misses the end", func(run *Run) {
			drop(run, isDrain("n2", 1, perQueue-1))
		}, []string{"missing on a node", "other message at the acknowledged offset"}},
		{"one node misses one in the middle", func(run *Run) {
			drop(run, isDrain("n3", 0, 4))
		}, []string{"missing on a node", "other message at the acknowledged offset", "holes in a queue"}},
		{"a node holds a message that nobody sent", func(run *Run) {
			op := *find(run, isDrain("n1", 0, 0))
			op.Offset, op.Value = perQueue, "ghost-1"
			run.Ops = append(run.Ops, op)
		}, []string{"read but never sent"}},
		{"a consumer got a message that nobody sent", func(run *Run) {
			op := *find(run, func(op *history.Op) bool { return op.Kind == history.Receive })
			op.Offset, op.Value = 777, "ghost-2"
			run.Ops = append(run.Ops, op)
		}, []string{"read but never sent"}},
		{"a refused message is stored", func(run *Run) {
			op := find(run, isSend(0, 3))
			op.Outcome, op.Offset = history.Fail, -1
		}, []string{"refused but stored"}},
		{"a message without an answer is stored", func(run *Run) {
			op := find(run, isSend(0, 3))
			op.Outcome, op.Offset = history.Unknown, -1
		}, nil},
		{"a message without an answer is not stored", func(run *Run) {
			run.Ops = append(run.Ops, history.Op{Kind: history.Send, Process: "p0", Value: "p0-999", Outcome: history.Unknown, Queue: -1, Offset: -1})
		}, nil},
		{"two of one producer in the wrong order on all nodes", func(run *Run) {
			for _, n := range nodes {
				swap(find(run, isDrain(n, 0, 2)), find(run, isDrain(n, 0, 4)))
			}
		}, []string{"out of order", "other message at the acknowledged offset", "two values at one offset"}},
		{"two of one producer in the wrong order, told so", func(run *Run) {
			// Everybody agrees on the offsets, only the sending was the other way round.
			a, b := find(run, isSend(0, 2)), find(run, isSend(0, 4))
			a.Start, a.End, b.Start, b.End = b.Start, b.End, a.Start, a.End
		}, []string{"out of order"}},
		{"two of different producers in another order", func(run *Run) {
			a, b := find(run, isSend(0, 2)), find(run, isSend(0, 3))
			a.Start, a.End, b.Start, b.End = b.Start, b.End, a.Start, a.End
		}, nil},
		{"a late copy of an earlier message", func(run *Run) {
			find(run, isSend(0, 2)).Attempts = 2
			for _, n := range nodes {
				op := *find(run, isDrain(n, 0, 2))
				op.Offset = perQueue
				run.Ops = append(run.Ops, op)
			}
		}, nil},
		{"one node has another value at an offset", func(run *Run) {
			find(run, isDrain("n2", 1, 5)).Value = find(run, isDrain("n2", 1, 6)).Value
		}, []string{"missing on a node", "two values at one offset", "other message at the acknowledged offset", "duplicates"}},
		{"a consumer saw another value at an offset", func(run *Run) {
			op := *find(run, func(op *history.Op) bool { return op.Kind == history.Receive && op.Queue == 0 && op.Offset == 1 })
			op.Value = find(run, isSend(0, 2)).Value
			run.Ops = append(run.Ops, op)
		}, []string{"two values at one offset"}},
		{"an acknowledgement names another offset", func(run *Run) {
			find(run, isSend(1, 9)).Offset = 8
		}, []string{"other message at the acknowledged offset", "two values at one offset"}},
		{"an offset is there twice", func(run *Run) {
			run.Ops = append(run.Ops, *find(run, isDrain("n1", 0, 5)))
		}, []string{"holes in a queue", "duplicates"}},
		{"a queue starts behind 0", func(run *Run) {
			drop(run, func(op *history.Op) bool { return op.Kind != history.Drained && op.Queue == 0 && op.Offset == 0 })
		}, []string{"holes in a queue"}},
		{"the server stored one attempt twice", func(run *Run) {
			for _, n := range nodes {
				op := *find(run, isDrain(n, 0, 9))
				op.Offset = perQueue
				run.Ops = append(run.Ops, op)
			}
		}, []string{"duplicates"}},
		{"an attempt that was refused is stored", func(run *Run) {
			op := find(run, isSend(0, 9))
			op.Attempts, op.Refused = 2, 1
			for _, n := range nodes {
				op := *find(run, isDrain(n, 0, 9))
				op.Offset = perQueue
				run.Ops = append(run.Ops, op)
			}
		}, []string{"duplicates"}},
		{"copies differ in their key", func(run *Run) {
			find(run, isSend(0, 9)).Attempts = 2
			for _, n := range nodes {
				op := *find(run, isDrain(n, 0, 9))
				op.Offset, op.UniqKey = perQueue, "other"
				run.Ops = append(run.Ops, op)
			}
		}, []string{"duplicates"}},
		{"a group never got a message", func(run *Run) {
			drop(run, func(op *history.Op) bool {
				return op.Kind == history.Receive && op.Group == "g2" && op.Queue == 1 && op.Offset == 0
			})
		}, []string{"never delivered to a group"}},
		{"a group got a message twice", func(run *Run) {
			run.Ops = append(run.Ops, *find(run, func(op *history.Op) bool { return op.Kind == history.Receive }))
		}, nil},
		{"checksums differ", func(run *Run) { run.Statuses[1].LogChecksum = "deadbeee" }, []string{"logs differ"}},
		{"lengths differ", func(run *Run) { run.Statuses[2].LogMax++ }, []string{"logs differ"}},
		{"a status is missing", func(run *Run) { run.Statuses = run.Statuses[:2] }, []string{"logs differ"}},
		{"no checksum was taken", func(run *Run) {
			for i := range run.Statuses {
				run.Statuses[i].LogChecksum = ""
			}
		}, []string{"logs differ"}},
		{"a queue of a node was not read to its end", func(run *Run) {
			drop(run, func(op *history.Op) bool { return op.Kind == history.Drained && op.Node == "n3" && op.Queue == 1 })
		}, []string{"drained"}},
		{"reading a queue failed", func(run *Run) {
			find(run, func(op *history.Op) bool { return op.Kind == history.Drained }).Outcome = history.Fail
		}, []string{"drained"}},
		{"nothing was drained", func(run *Run) {
			drop(run, func(op *history.Op) bool { return op.Kind == history.Drained || op.Kind == history.Drain })
		}, []string{"drained", "acknowledged but lost", "missing on a node", "other message at the acknowledged offset"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			run := cleanRun()
			c.plant(run)
			results := All(run)
			if Valid(results) != (len(c.found) == 0) {
				t.Errorf("Valid is %v", Valid(results))
			}
			for _, r := range results {
				want := !slices.Contains(c.found, r.Name)
				if r.Valid != want {
					t.Errorf("%s: valid %v, want %v: %s\n%s", r.Name, r.Valid, want, r.Summary, strings.Join(r.Problems, "\n"))
				}
				if !r.Valid && len(r.Problems) == 0 {
					t.Errorf("%s names no problem", r.Name)
				}
			}
		})
	}
}

func TestProblemsAreBounded(t *testing.T) {
	run := cleanRun()
	drop(run, func(op *history.Op) bool { return op.Kind == history.Drain })
	for _, r := range All(run) {
		if r.Name == "acknowledged but lost" && (r.Count != queues*perQueue || len(r.Problems) != maxProblems) {
			t.Errorf("count %d, %d examples", r.Count, len(r.Problems))
		}
	}
}

func TestCounts(t *testing.T) {
	run := cleanRun()
	find(run, isSend(0, 2)).Attempts = 2
	for _, n := range nodes {
		op := *find(run, isDrain(n, 0, 2))
		op.Offset = perQueue
		run.Ops = append(run.Ops, op)
	}
	run.Ops = append(run.Ops, *find(run, func(op *history.Op) bool { return op.Kind == history.Receive }))
	for _, r := range All(run) {
		switch r.Name {
		case "duplicates", "delivered again":
			if r.Count != 1 {
				t.Errorf("%s: %d, want 1", r.Name, r.Count)
			}
		}
	}
}

func TestGaps(t *testing.T) {
	second := time.Second
	send := func(at time.Duration, o history.Outcome) history.Op {
		return history.Op{Kind: history.Send, Start: at, End: at, Outcome: o}
	}
	fault := func(name string, from, to time.Duration) history.Op {
		return history.Op{Kind: history.Fault, Fault: name, Node: "n1", Start: from, End: to, Outcome: history.OK}
	}
	ops := []history.Op{
		send(0, history.OK), send(1*second, history.OK), send(2*second, history.OK),
		fault("kill", 5*second/2, 4*second),
		send(5*second, history.Unknown), // no acknowledgement: does not end a gap
		send(6*second, history.OK), send(7*second, history.OK),
		fault("pause", 15*second/2, 8*second),
		send(9*second, history.OK),
		send(14*second, history.Unknown), // the load went on, nothing was acknowledged any more
	}
	want := []Gap{
		{Fault: "", Node: "", At: 0, Length: 1 * second}, // what the fault caused is not counted here
		{Fault: "kill", Node: "n1", At: 2 * second, Length: 4 * second},
		{Fault: "pause", Node: "n1", At: 9 * second, Length: 5 * second},
	}
	got := Gaps(ops)
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	// The load ends at 10 s; one client goes on trying and is acknowledged much later, when it has heard of the new leader.
	ops = append(ops[:len(ops)-1], history.Op{Kind: history.Load, Start: 0, End: 10 * second, Outcome: history.OK}, send(30*second, history.OK))
	want[2] = Gap{Fault: "pause", Node: "n1", At: 7 * second, Length: 2 * second}
	if got := Gaps(ops); !slices.Equal(got, want) {
		t.Errorf("with an end of the load: got %+v\nwant %+v", got, want)
	}
	if g := Gaps(nil); g != nil {
		t.Errorf("of nothing: %+v", g)
	}
}
