package checker

import (
	"testing"
	"time"

	"raftmq/jepsen/history"
)

const second = time.Second

func leads(node string, term uint64, at time.Duration) history.Op {
	return history.Op{Kind: history.Leader, Process: "harness", Outcome: history.OK, Node: node, Term: term, Start: at, End: at, Queue: -1, Offset: -1}
}

// led is a clean run in which n1 leads, and n2 was cut off four times.
func led() *Run {
	run := cleanRun()
	run.Info.Workload = Queue
	run.Ops = append(run.Ops, leads("n1", 2, 0))
	for i := range 4 {
		run.Ops = append(run.Ops, cutOff(time.Duration(10*(i+1))*second, true))
	}
	return run
}

// cutOff is a fault of five seconds.
func cutOff(at time.Duration, spares bool) history.Op {
	return history.Op{Kind: history.Fault, Process: "nemesis", Fault: "isolate", Node: "n2", Outcome: history.OK, Start: at, End: at + 5*second, Spares: spares}
}

func TestTwoLeaders(t *testing.T) {
	testCheck(t, "two leaders in a term", led, []planted{
		{"of the same term", add(leads("n2", 2, second)), true},
		{"of a term that is over", add(leads("n2", 3, second), leads("n3", 2, 2*second)), true},
		{"one after the other", add(leads("n2", 3, second), leads("n1", 4, 2*second)), false},
		{"one is seen again", add(leads("n1", 2, 2*second)), false},
	})
}

func TestDeposed(t *testing.T) {
	testCheck(t, "leader deposed without cause", led, []planted{
		{"after most of the faults", add(leads("n2", 3, 15*second+500*ms), leads("n1", 4, 26*second), leads("n3", 5, 37*second)), true},
		{"while the node was cut off", add(leads("n3", 3, 12*second), leads("n1", 4, 22*second), leads("n3", 5, 33*second)), true},
		{"after two of two", func(run *Run) {
			drop(run, func(op *history.Op) bool { return op.Kind == history.Fault && op.Start > 20*second })
			add(leads("n3", 3, 16*second), leads("n1", 4, 26*second))(run)
		}, true},
		{"once", add(leads("n2", 3, 16*second)), false},
		{"half of the time, as a busy machine may", add(leads("n2", 3, 16*second), leads("n1", 4, 26*second)), false},
		{"long after healing", add(leads("n2", 3, 19*second), leads("n1", 4, 29*second), leads("n3", 5, 39*second)), false},
		{"the faults hit the leader", func(run *Run) {
			for i := range run.Ops {
				run.Ops[i].Spares = false
			}
			add(leads("n2", 3, 16*second), leads("n1", 4, 26*second), leads("n3", 5, 36*second))(run)
		}, false},
		{"by the next fault, which hit the leader", func(run *Run) {
			for i := range run.Ops {
				if op := &run.Ops[i]; op.Kind == history.Fault {
					hit := cutOff(op.End+second, false)
					run.Ops = append(run.Ops, hit)
				}
			}
			add(leads("n2", 3, 16500*ms), leads("n1", 4, 26500*ms), leads("n3", 5, 36500*ms))(run)
		}, false},
	})
}
