package jepsen

import (
	"errors"
	"strings"
	"testing"
	"time"

	"raftmq/jepsen/checker"
	"raftmq/jepsen/cluster"
	"raftmq/jepsen/history"
)

// The watch counts the time in which no fresh answer says that somebody takes writes.
func TestLeaderWatch(t *testing.T) {
	c, err := cluster.New(cluster.Config{Dir: t.TempDir(), Binary: "none"})
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	w := &LeaderWatch{}
	w.mu.nodes = make([]sighting, 3)
	see := func(ms, node int, ready bool, term uint64) { w.mu.nodes[node] = sighting{ready, term, at(ms)} }

	see(0, 0, true, 1)
	w.look(at(10), c)
	w.look(at(399), c) // the answer still counts
	if !w.mu.lost.IsZero() {
		t.Error("lost while the answer was fresh")
	}
	w.look(at(500), c) // n1 has said nothing for too long: paused, say
	see(600, 1, true, 2)
	w.look(at(700), c) // 200 ms without
	see(700, 0, true, 1)
	w.look(at(800), c) // n1 comes back and still believes in its old term
	see(1000, 1, false, 3)
	see(1000, 0, false, 3)
	see(1000, 2, false, 3)
	w.look(at(1000), c)
	w.look(at(1200), c)
	see(1300, 1, true, 4)
	w.look(at(1300), c) // 300 ms without, and the same leader again
	got := w.mu.result
	want := Leaderless{Total: 500 * time.Millisecond, Longest: 300 * time.Millisecond, Changes: 1}
	if got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestReportSaysWhatIsWrong(t *testing.T) {
	r := &Report{
		Results: []checker.Result{{Name: "acknowledged but lost", Valid: false, Count: 1, Summary: "1 of 7 acknowledged", Problems: []string{"p1-3: on no node"}}},
		Gaps:    []checker.Gap{{Length: time.Second}, {Fault: "kill", Node: "n2", Length: 2500 * time.Millisecond}},
		Faults:  []history.Op{{Fault: "kill", Node: "n2", Detail: "signal: killed"}},
		Skipped: []string{"isolate: no root"},
		Errors:  []error{errors.New("n1 ended by itself")},
		Dir:     "/somewhere",
	}
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"FAILED", "p1-3: on no node", "2.5 s", "NOT RUN", "isolate: no root", "n1 ended by itself", "/somewhere", "NOT VALID"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, out.String())
		}
	}
}
