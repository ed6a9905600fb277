package checker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"raftmq/jepsen/history"
)

// linearTimeout bounds the search for an order; one that is not found in time is not valid either, since nothing is known then.
const linearTimeout = 60 * time.Second

// access is one operation on a register.
type access struct {
	write bool
	value int64 // written, or read
}

// none is what a register holds that was never written, or was deleted.
const none int64 = -1

func registerModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return none },
		Step: func(state, input, _ any) (bool, any) {
			a := input.(access)
			if a.write {
				return true, a.value
			}
			return a.value == state.(int64), state
		},
		DescribeOperation: func(input, _ any) string {
			if a := input.(access); a.write {
				return fmt.Sprintf("write %d", a.value)
			} else {
				return fmt.Sprintf("read %d", a.value)
			}
		},
	}
}

// register is what is known of one of them.
type register struct {
	ops   []porcupine.Operation
	reads int
}

// linearizable looks for an order of each register's operations that explains all answers. A write without an answer may have happened at
// any time from its start on, for ever; a read without an answer says nothing; what certainly did not happen has no effect.
func linearizable(name string, ops []history.Op, of func(*history.Op) (key string, a access, ok bool)) Result {
	r := Result{Name: name, Valid: true}
	registers := map[string]*register{}
	clients := map[string]int{}
	unknown := 0
	for i := range ops {
		op := &ops[i]
		key, a, ok := of(op)
		if !ok || op.Outcome == history.Fail || op.Outcome == history.Unknown && !a.write {
			continue
		}
		g := registers[key]
		if g == nil {
			g = &register{}
			registers[key] = g
		}
		client, ok := clients[op.Process]
		if !ok {
			client = len(clients)
			clients[op.Process] = client
		}
		end := int64(op.End)
		if op.Outcome == history.Unknown {
			unknown++
			end = 1 << 62
			client += 1_000_000 + i // its process goes on meanwhile
		}
		if !a.write {
			g.reads++
		}
		g.ops = append(g.ops, porcupine.Operation{ClientId: client, Input: a, Call: int64(op.Start), Return: end})
	}
	reads, total := 0, 0
	for _, key := range slices.Sorted(maps.Keys(registers)) {
		g := registers[key]
		reads += g.reads
		total += len(g.ops)
		switch result, _ := porcupine.CheckOperationsVerbose(registerModel(), g.ops, linearTimeout); result {
		case porcupine.Illegal:
			r.problem("%s: no order of its %d operations explains their answers; %s", key, len(g.ops), suspect(g.ops))
		case porcupine.Unknown:
			r.problem("%s: no order of its %d operations was found within %v", key, len(g.ops), linearTimeout)
		case porcupine.Ok:
		}
	}
	if reads == 0 {
		r.problem("nothing was read")
	}
	r.Summary = fmt.Sprintf("%d of %d registers, %d operations, %d reads, %d writes without an answer", r.Count, len(registers), total, reads, unknown)
	return r
}

// suspect names the first operation at whose end the history cannot be explained any more.
func suspect(ops []porcupine.Operation) string {
	byEnd := slices.Clone(ops)
	slices.SortFunc(byEnd, func(a, b porcupine.Operation) int { return cmp.Compare(a.Return, b.Return) })
	// A prefix by ends, with what was under way then as writes that may have happened.
	bad, _ := slices.BinarySearchFunc(byEnd, true, func(op porcupine.Operation, _ bool) int {
		var prefix []porcupine.Operation
		for _, o := range ops {
			switch {
			case o.Return <= op.Return:
				prefix = append(prefix, o)
			case o.Call < op.Return && o.Input.(access).write:
				o.Return = 1 << 62
				prefix = append(prefix, o)
			}
		}
		if porcupine.CheckOperationsTimeout(registerModel(), prefix, time.Second) == porcupine.Ok {
			return -1
		}
		return 0
	})
	if bad == len(byEnd) {
		return "which one is wrong is not known"
	}
	op := byEnd[bad]
	return fmt.Sprintf("%s from %v to %v cannot be", registerModel().DescribeOperation(op.Input, nil), time.Duration(op.Call), time.Duration(op.Return))
}

// offsetsLinearizable: whoever reads a consumer offset gets the one that was committed last.
func offsetsLinearizable(v *view) Result {
	return linearizable("offsets not linearizable", v.run.Ops, func(op *history.Op) (string, access, bool) {
		key := fmt.Sprintf("%s of %s[%d]", op.Group, op.Topic, op.Queue)
		switch op.Kind {
		case history.Commit:
			return key, access{true, op.Offset}, true
		case history.Fetch:
			return key, access{false, op.Offset}, true
		}
		return "", access{}, false
	})
}

// topicsLinearizable: whoever looks a topic up gets what the last change made of it.
func topicsLinearizable(v *view) Result {
	return linearizable("topics not linearizable", v.run.Ops, func(op *history.Op) (string, access, bool) {
		switch op.Kind {
		case history.Put:
			return op.Topic, access{true, int64(op.Count)}, true
		case history.Delete:
			return op.Topic, access{true, none}, true
		case history.Get:
			value := int64(op.Count)
			if value == 0 {
				value = none
			}
			return op.Topic, access{false, value}, true
		}
		return "", access{}, false
	})
}
