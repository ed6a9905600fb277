package checker

import (
	"testing"
	"time"

	"raftmq/jepsen/history"
)

const began = 1_700_000_000_000 // Unix milliseconds

// delayed is a clean run in which every message was sent with a delay of 2 s and stored for its readers just after that.
func delayed() *Run {
	run := cleanRun()
	run.Info.Workload, run.Info.Began = Delay, began
	for i := range run.Ops {
		op := &run.Ops[i]
		switch op.Kind {
		case history.Send:
			op.Delay, op.Queue, op.Offset = 2*time.Second, -1, -1
		case history.Receive, history.Drain:
			op.Stored = began + (op.Start + 2*time.Second).Milliseconds() + 20
		}
	}
	return run
}

func TestDelayNotKept(t *testing.T) {
	shift := func(run *Run, d time.Duration) {
		for _, n := range nodes {
			find(run, isDrain(n, 0, 3)).Stored += d.Milliseconds()
		}
	}
	fault := func(run *Run, name string, from, to time.Duration) {
		run.Ops = append(run.Ops, history.Op{Kind: history.Fault, Fault: name, Start: from, End: to, Outcome: history.OK})
	}
	testCheck(t, "delay not kept", delayed, []planted{
		{"early", func(run *Run) { shift(run, -40*ms) }, true},
		{"early on one node", func(run *Run) { find(run, isDrain("n2", 1, 1)).Stored -= 1000 }, true},
		{"early in a fault's shadow", func(run *Run) { fault(run, "kill", 0, time.Second); shift(run, -100*ms) }, true},
		{"late, and no fault about", func(run *Run) { shift(run, 4*time.Second) }, true},
		{"late, long after a fault", func(run *Run) {
			fault(run, "kill", 0, time.Millisecond)
			for i := range run.Ops {
				op := &run.Ops[i]
				if op.Kind == history.Send {
					op.Start, op.End = op.Start+30*time.Second, op.End+30*time.Second
				}
				op.Stored += 30_000
			}
			shift(run, 4*time.Second)
		}, true},
		{"no delayed message was read", func(run *Run) { drop(run, func(op *history.Op) bool { return op.Kind == history.Drain }) }, true},
		{"one without an answer came early", func(run *Run) {
			for i := range run.Ops {
				if op := &run.Ops[i]; op.Kind == history.Send && op.Value == find(run, isDrain("n1", 0, 3)).Value {
					op.Outcome = history.Unknown
				}
			}
			shift(run, -100*ms)
		}, true},
		{"late within the tolerance", func(run *Run) { shift(run, 2500*ms) }, false},
		{"late in a fault's shadow", func(run *Run) { fault(run, "kill", 0, time.Second); shift(run, 8*time.Second) }, false},
		{"stored at the last of many attempts", func(run *Run) {
			for i := range run.Ops {
				if op := &run.Ops[i]; op.Kind == history.Send && op.Value == find(run, isDrain("n1", 0, 3)).Value {
					op.End += 20 * time.Second
				}
			}
			shift(run, 20*time.Second)
		}, false},
		{"clocks were moved", func(run *Run) { run.Info.Nemesis = "kill,clock"; shift(run, -time.Hour) }, false},
		{"the reader does not know when", func(run *Run) {
			for _, n := range nodes {
				find(run, isDrain(n, 0, 3)).Stored = 0
			}
		}, false},
	})
}

// transactions is a clean run of them: all were committed and are there, but for two that were rolled back.
func transactions() *Run {
	run := cleanRun()
	run.Info.Workload = Transaction
	for i := range run.Ops {
		op := &run.Ops[i]
		if op.Kind != history.Send {
			op.Start, op.End = op.Start+time.Second, op.End+time.Second
			continue
		}
		op.Wish, op.Queue, op.Offset = history.WishCommit, -1, -1
		run.Ops = append(run.Ops, history.Op{Kind: history.Decide, Process: "application", Outcome: history.OK, Value: op.Value,
			Start: op.Start + ms/2, End: op.Start + ms/2, Queue: -1, Offset: -1})
	}
	for _, value := range []string{"p0-1000", "p1-1001"} {
		run.Ops = append(run.Ops, history.Op{Kind: history.Send, Process: value[:2], Value: value, UniqKey: "u" + value, Topic: topic, Queue: -1, Offset: -1,
			Outcome: history.OK, Attempts: 1, Wish: history.WishRollback, Start: time.Second, End: time.Second})
	}
	return run
}

func TestTransactionNotKept(t *testing.T) {
	visible := func(run *Run, kind history.Kind, value string) {
		op := history.Op{Kind: kind, Process: "c-g1", Group: "g1", Node: "n2", Value: value, UniqKey: "u" + value, Topic: topic, Queue: 1, Offset: perQueue,
			Outcome: history.OK, Start: 2 * time.Second, End: 2 * time.Second}
		run.Ops = append(run.Ops, op)
	}
	first := func(run *Run) string { return find(run, isDrain("n1", 0, 0)).Value }
	said := func(run *Run) *history.Op {
		return find(run, func(op *history.Op) bool { return op.Kind == history.Decide && op.Value == first(run) })
	}
	testCheck(t, "transaction not kept", transactions, []planted{
		{"one that was rolled back is in a queue", func(run *Run) { visible(run, history.Drain, "p0-1000") }, true},
		{"one that was rolled back was consumed", func(run *Run) { visible(run, history.Receive, "p0-1000") }, true},
		{"one without an answer that was rolled back is in a queue", func(run *Run) {
			find(run, func(op *history.Op) bool { return op.Value == "p0-1000" }).Outcome = history.Unknown
			visible(run, history.Drain, "p0-1000")
		}, true},
		{"one was consumed before commit was said", func(run *Run) { op := said(run); op.Start, op.End = time.Minute, time.Minute }, true},
		{"one was consumed and nobody said commit", func(run *Run) {
			value := first(run)
			drop(run, func(op *history.Op) bool { return op.Kind == history.Decide && op.Value == value })
		}, true},
		{"all are to be committed", func(run *Run) {
			for i := range run.Ops {
				if op := &run.Ops[i]; op.Wish == history.WishRollback {
					op.Wish = history.WishCommit
				}
			}
		}, true},
		{"all are to be rolled back", func(run *Run) {
			for i := range run.Ops {
				run.Ops[i].Wish = history.WishRollback
			}
		}, true},
		{"one without an answer was committed", func(run *Run) {
			find(run, func(op *history.Op) bool { return op.Kind == history.Send && op.Value == first(run) }).Outcome = history.Unknown
		}, false},
		{"commit was said twice", func(run *Run) {
			op := *said(run)
			op.Start, op.End = time.Minute, time.Minute
			run.Ops = append(run.Ops, op)
		}, false},
		{"commit was said for one that never came: the loss is another check's", func(run *Run) {
			value := first(run)
			drop(run, func(op *history.Op) bool {
				return op.Value == value && (op.Kind == history.Drain || op.Kind == history.Receive)
			})
		}, false},
	})
}

const deadTopic = "%DLQ%g1"

// retried is a clean run of one group in which message 0 of each queue came twice and message 1 of each, which is refused always, three times
// more, and is a dead letter.
func retried() *Run {
	run := cleanRun()
	run.Groups = run.Groups[:1]
	run.Info.Workload, run.Info.Dead, run.Info.Tries = Retry, deadTopic, 3
	drop(run, func(op *history.Op) bool { return op.Kind == history.Receive && op.Group == "g2" })
	for q := range int32(queues) {
		first, second := find(run, isSend(q, 0)), find(run, isSend(q, 1))
		first.Wish, second.Wish = history.WishRetry, history.WishDead
		again := func(value string, tries int, outcome history.Outcome) {
			run.Ops = append(run.Ops, history.Op{Kind: history.Receive, Process: "c-g1", Group: "g1", Value: value, Topic: "%RETRY%g1", Queue: 0,
				Offset: int64(len(run.Ops)), Tries: tries, Outcome: outcome, Start: time.Minute, End: time.Minute})
		}
		one, two := first.Value, second.Value
		find(run, isReceive("g1", q, 0)).Outcome = history.Fail
		find(run, isReceive("g1", q, 1)).Outcome = history.Fail
		again(one, 1, history.OK)
		for tries := 1; tries <= 3; tries++ {
			again(two, tries, history.Fail)
		}
		for _, n := range nodes {
			run.Ops = append(run.Ops, history.Op{Kind: history.Drain, Process: "drain", Node: n, Value: two, UniqKey: "u" + two, Topic: deadTopic, Queue: 0,
				Offset: int64(q), Outcome: history.OK})
		}
	}
	for _, n := range nodes {
		run.Ops = append(run.Ops, history.Op{Kind: history.Drained, Process: "drain", Outcome: history.OK, Node: n, Topic: deadTopic, Queue: 0, Count: queues})
	}
	return run
}

func TestRetryNotKept(t *testing.T) {
	cameAgain := func(run *Run, q int32, offset int64) func(*history.Op) bool {
		value := find(run, isSend(q, offset)).Value
		return func(op *history.Op) bool { return op.Kind == history.Receive && op.Value == value && op.Tries > 0 }
	}
	isDead := func(op *history.Op) bool { return op.Kind == history.Drain && op.Topic == deadTopic && op.Offset == 0 }
	wish := func(run *Run, from, to string) {
		for i := range run.Ops {
			if run.Ops[i].Wish == from {
				run.Ops[i].Wish = to
			}
		}
	}
	testCheck(t, "retry not kept", retried, []planted{
		{"one never came again", func(run *Run) { drop(run, cameAgain(run, 0, 0)) }, true},
		{"one came again with the old count", func(run *Run) { find(run, cameAgain(run, 0, 0)).Tries = 0 }, true},
		{"a hopeless one is no dead letter", func(run *Run) { drop(run, isDead) }, true},
		{"a hopeless one came too often", func(run *Run) {
			op := *find(run, cameAgain(run, 1, 1))
			op.Tries = 4
			run.Ops = append(run.Ops, op)
		}, true},
		{"a good one is a dead letter", func(run *Run) {
			op := *find(run, isDead)
			op.Value, op.Offset = find(run, isSend(0, 5)).Value, 7
			run.Ops = append(run.Ops, op)
		}, true},
		{"one that was to come again is a dead letter", func(run *Run) {
			op := *find(run, isDead)
			op.Value, op.Offset = find(run, isSend(0, 0)).Value, 7
			run.Ops = append(run.Ops, op)
		}, true},
		{"none is to come again", func(run *Run) { wish(run, history.WishRetry, "") }, true},
		{"none is hopeless", func(run *Run) { wish(run, history.WishDead, "") }, true},
		{"one without an answer never came again", func(run *Run) {
			drop(run, cameAgain(run, 0, 0))
			find(run, isSend(0, 0)).Outcome = history.Unknown
		}, false},
		{"one without an answer is no dead letter", func(run *Run) {
			drop(run, isDead)
			find(run, isSend(0, 1)).Outcome = history.Unknown
		}, false},
		{"one came again twice", func(run *Run) {
			op := *find(run, cameAgain(run, 0, 0))
			op.Tries = 2
			run.Ops = append(run.Ops, op)
		}, false},
	})
}

// A message that is only a dead letter is lost to the groups of its topic.
func TestDeadLetterIsNoCopy(t *testing.T) {
	run := retried()
	drop(run, func(op *history.Op) bool {
		return op.Kind == history.Drain && op.Topic == topic && op.Queue == 0 && op.Offset == 1
	})
	for _, name := range []string{"acknowledged but lost", "missing on a node"} {
		if r := checkOf(name)(newView(run)); r.Valid {
			t.Errorf("%s: %s", name, r.Summary)
		}
	}
}

func TestNeverAcknowledged(t *testing.T) {
	good := func() *Run { run := cleanRun(); run.Info.Workload = Queue; return run }
	tried := func(run *Run, outcome history.Outcome, start, end time.Duration) {
		run.Ops = append(run.Ops, history.Op{Kind: history.Send, Process: "p0", Value: "p0-999", Outcome: outcome, Queue: -1, Offset: -1,
			Start: start, End: end, Attempts: 300, Error: "code 13"})
	}
	fault := func(run *Run, from, to time.Duration) {
		run.Ops = append(run.Ops, history.Op{Kind: history.Fault, Fault: "kill", Start: from, End: to, Outcome: history.OK})
	}
	testCheck(t, "never acknowledged", good, []planted{
		{"no answer for 50 s", func(run *Run) { tried(run, history.Unknown, time.Second, 51*time.Second) }, true},
		{"refused for 50 s", func(run *Run) { tried(run, history.Fail, time.Second, 51*time.Second) }, true},
		{"for 50 s after a fault", func(run *Run) {
			fault(run, 10*time.Second, 20*time.Second)
			tried(run, history.Unknown, time.Second, 71*time.Second)
		}, true},
		{"for 30 s after a fault", func(run *Run) {
			fault(run, 10*time.Second, 20*time.Second)
			tried(run, history.Unknown, time.Second, 50*time.Second)
		}, false},
		{"acknowledged after 50 s", func(run *Run) {
			op := find(run, isSend(0, perQueue-1))
			op.Start, op.End = op.Start+time.Second, op.End+51*time.Second
		}, false},
	})
}
