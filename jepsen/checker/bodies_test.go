package checker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"raftmq/jepsen/history"
)

// sized is a clean run whose bodies were looked at.
func sized() *Run {
	run := cleanRun()
	run.Info.Workload = Queue
	for i := range run.Ops {
		if op := &run.Ops[i]; op.Value != "" {
			op.Size, op.Sum = 100+len(op.Value), uint32(len(op.Value))*77
		}
	}
	return run
}

func isReceive(group string, q int32, offset int64) func(*history.Op) bool {
	return func(op *history.Op) bool {
		return op.Kind == history.Receive && op.Group == group && op.Queue == q && op.Offset == offset
	}
}

func TestBytesDiffer(t *testing.T) {
	testCheck(t, "bytes differ", sized, []planted{
		{"a node has another byte", func(run *Run) { find(run, isDrain("n2", 0, 3)).Sum++ }, true},
		{"a node has a shorter body", func(run *Run) { find(run, isDrain("n3", 1, 3)).Size-- }, true},
		{"a consumer got another byte", func(run *Run) { find(run, isReceive("g2", 1, 5)).Sum++ }, true},
		{"a consumer got a longer body", func(run *Run) { find(run, isReceive("g1", 1, 5)).Size++ }, true},
		{"a reader looked at no body", func(run *Run) { op := find(run, isDrain("n1", 0, 3)); op.Size, op.Sum = 0, 0 }, true},
		{"of a message without an answer", func(run *Run) {
			find(run, isSend(0, 3)).Outcome = history.Unknown
			find(run, isDrain("n2", 0, 3)).Sum++
		}, true},
		{"nobody read it", func(run *Run) {
			drop(run, func(op *history.Op) bool { return op.Kind != history.Send && op.Queue == 0 && op.Offset == 3 })
		}, false},
		{"a message that nobody sent has no bytes to compare with", func(run *Run) {
			op := *find(run, isDrain("n1", 0, 0))
			op.Value, op.Sum = "ghost", op.Sum+1
			run.Ops = append(run.Ops, op)
		}, false},
	})
}

// batched is a clean run in which each queue's first four messages, and the next four, were batches.
func batched() *Run {
	run := cleanRun()
	run.Info.Workload = Batch
	for q := range int32(queues) {
		for _, first := range []int64{0, 4} {
			for k := range int64(4) {
				op := find(run, isSend(q, first+k))
				op.Batch, op.Process = fmt.Sprintf("batch-%d-%d", q, first), "p0"
			}
		}
	}
	return run
}

func TestHalfABatch(t *testing.T) {
	everywhere := func(q int32, offset int64) func(*history.Op) bool {
		return func(op *history.Op) bool {
			return op.Kind == history.Drain && op.Queue == q && op.Offset == offset
		}
	}
	swap := func(run *Run, a, b int64) {
		for _, n := range nodes {
			x, y := find(run, isDrain(n, 0, a)), find(run, isDrain(n, 0, b))
			x.Value, y.Value = y.Value, x.Value
		}
	}
	unanswered := func(run *Run) {
		for k := range int64(4) {
			op := find(run, isSend(0, 4+k))
			op.Outcome, op.Offset, op.Queue = history.Unknown, -1, -1
		}
	}
	testCheck(t, "half a batch", batched, []planted{
		{"a message of a batch is missing", func(run *Run) { drop(run, everywhere(0, 2)) }, true},
		{"the first message of a batch is missing", func(run *Run) { drop(run, everywhere(1, 4)) }, true},
		{"on one node", func(run *Run) { drop(run, isDrain("n2", 1, 7)) }, true},
		{"half of a batch without an answer is there", func(run *Run) {
			drop(run, everywhere(0, 6))
			drop(run, everywhere(0, 7))
			unanswered(run)
		}, true},
		{"two messages of a batch are in the wrong order", func(run *Run) { swap(run, 1, 2) }, true},
		{"something lies between", func(run *Run) { swap(run, 3, 8) }, true},
		{"half of a copy", func(run *Run) {
			for _, n := range nodes {
				for k := range int64(2) {
					op := *find(run, isDrain(n, 0, k))
					op.Offset = perQueue + k
					run.Ops = append(run.Ops, op)
				}
			}
		}, true},
		{"no batch was sent", func(run *Run) {
			for i := range run.Ops {
				run.Ops[i].Batch = ""
			}
		}, true},
		{"all of a batch without an answer is there", unanswered, false},
		{"none of a batch without an answer is there", func(run *Run) {
			for k := range int64(4) {
				drop(run, everywhere(0, 4+k))
			}
			unanswered(run)
		}, false},
		{"a whole copy", func(run *Run) {
			for _, n := range nodes {
				for k := range int64(4) {
					op := *find(run, isDrain(n, 0, k))
					op.Offset = perQueue + k
					run.Ops = append(run.Ops, op)
				}
			}
		}, false},
	})
}

// Unknown outcomes are counted, and whether they turned out to have happened; they are no violation.
func TestUnknownOutcomes(t *testing.T) {
	good := func() *Run { run := cleanRun(); run.Info.Workload = Queue; return run }
	testCheck(t, "unknown outcomes", good, []planted{
		{"one", func(run *Run) { find(run, isSend(0, 3)).Outcome = history.Unknown }, false},
	})
	run := good()
	find(run, isSend(0, 3)).Outcome = history.Unknown
	run.Ops = append(run.Ops,
		history.Op{Kind: history.Send, Process: "p0", Value: "p0-999", Outcome: history.Unknown, Queue: -1, Offset: -1},
		history.Op{Kind: history.Fetch, Process: "r1", Outcome: history.Unknown, Queue: 0, Offset: -1},
		history.Op{Kind: history.Fault, Process: "nemesis", Outcome: history.Unknown, Start: time.Second})
	r := unknownOutcomes(newView(run))
	if !r.Valid || r.Count != 3 || !strings.Contains(r.Summary, "1 turned out") {
		t.Errorf("%+v", r)
	}
	// A history that was closed before an answer came is such a case: nothing is left out of it.
	if results := All(run); !Valid(results) {
		t.Errorf("%+v", results)
	}
}

// trimmed is a run in which the first messages of a queue have expired on all nodes.
func trimmed() *Run {
	run := cleanRun()
	run.Info.Workload, run.Info.Trimmed, run.Info.Kept = Retention, true, time.Minute
	for i := range run.Ops {
		if op := &run.Ops[i]; op.Kind == history.Drained {
			op.First, op.Start, op.End = 3, 2*time.Minute, 2*time.Minute
		}
	}
	drop(run, func(op *history.Op) bool { return op.Kind == history.Drain && op.Offset < 3 })
	return run
}

// Messages may expire while a queue is read: those in front of the first one that is left were read, some of them.
func TestHolesWhereMessagesExpire(t *testing.T) {
	read := func(run *Run, offset int64) {
		op := *find(run, isSend(0, offset))
		op.Kind, op.Process, op.Node = history.Drain, "drain", "n1"
		run.Ops = append(run.Ops, op)
	}
	testCheck(t, "holes in a queue", trimmed, []planted{
		{"some were read before they expired", func(run *Run) { read(run, 0); read(run, 1) }, false},
		{"one of them is missing between", func(run *Run) { read(run, 0); read(run, 2) }, true},
		{"one behind them is missing", func(run *Run) { drop(run, isDrain("n1", 0, 5)) }, true},
		{"the first that is left is missing", func(run *Run) { drop(run, isDrain("n1", 0, 3)) }, true},
	})
}

func TestExpiredTooEarly(t *testing.T) {
	read := func(at time.Duration) func(*Run) {
		return func(run *Run) {
			for i := range run.Ops {
				if op := &run.Ops[i]; op.Kind == history.Drained && op.Node == "n2" && op.Queue == 1 {
					op.End = at
				}
			}
		}
	}
	testCheck(t, "expired too early", trimmed, []planted{
		{"one node had removed it before its time", read(30 * time.Second), true},
		{"at its time, by another clock", read(time.Minute - earlySlack/2), false},
		{"nobody says how long messages are kept", func(run *Run) { run.Info.Kept = 0 }, true},
		{"what is there is no matter how young", func(run *Run) {
			read(time.Second)(run)
			find(run, func(op *history.Op) bool { return op.Kind == history.Drained && op.Node == "n2" && op.Queue == 1 }).First = 0
		}, false},
	})
}

func TestNothingExpired(t *testing.T) {
	begin := func(run *Run, first int64, nodes ...string) {
		for i := range run.Ops {
			if op := &run.Ops[i]; op.Kind == history.Drained && strings.Contains(strings.Join(nodes, " "), op.Node) {
				op.First = first
			}
		}
	}
	testCheck(t, "nothing expired", trimmed, []planted{
		{"all begin at 0", func(run *Run) { begin(run, 0, nodes...) }, true},
		{"one node has expired something", func(run *Run) { begin(run, 0, "n1", "n2") }, false},
		{"nothing was drained", func(run *Run) { drop(run, func(op *history.Op) bool { return op.Kind == history.Drained }) }, true},
	})
	// What has expired is not lost, what has not is.
	for _, c := range []struct {
		name  string
		plant func(*Run)
		found string
	}{
		{"not expired and gone", func(run *Run) {
			drop(run, func(op *history.Op) bool { return op.Kind == history.Drain && op.Queue == 0 && op.Offset == 3 })
		}, "acknowledged but lost"},
		{"expired on two nodes and gone from the third", func(run *Run) {
			begin(run, 0, "n3")
		}, "acknowledged but lost"},
	} {
		t.Run(c.name, func(t *testing.T) {
			run := trimmed()
			c.plant(run)
			if r := checkOf(c.found)(newView(run)); r.Valid {
				t.Errorf("%+v", r)
			}
		})
	}
}
