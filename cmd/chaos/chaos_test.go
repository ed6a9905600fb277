package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"raftmq/jepsen"
	"raftmq/jepsen/checker"
	"raftmq/jepsen/history"
	"raftmq/jepsen/nemesis"
)

// run calls chaos with arguments.
func run(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var b bytes.Buffer
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(&b)
	root.SetErr(&b)
	err = root.ExecuteContext(t.Context())
	return b.String(), err
}

// Wrong flags and names are refused before anything is started, and the answer says what is allowed.
func TestBadFlags(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "--workload", "quux"}, "queue, ordered"},
		{[]string{"run", "--nemesis", "quux"}, "kill, kill-minority"},
		{[]string{"run", "--nemesis", "kill+quux"}, "kill, kill-minority"},
		{[]string{"run", "--nodes", "4"}, "an odd number from 3 to 9"},
		{[]string{"run", "--nodes", "11"}, "an odd number from 3 to 9"},
		{[]string{"run", "--client", "java"}, "stock, raw and mixed"},
		{[]string{"run", "--time", "soon"}, "invalid"},
		{[]string{"matrix", "--workloads", "queue,quux"}, "quux"},
		{[]string{"matrix", "--nemeses", "kill,quux"}, "quux"},
		{[]string{"matrix", "--rates", "quux=5"}, "quux"},
		{[]string{"matrix", "--rates", "queue=fast"}, "a number of messages"},
		{[]string{"matrix", "--rates", "queue=0"}, "a number of messages"},
		{[]string{"matrix", "--rounds", "0"}, "at least one"},
		{[]string{"matrix", "--cells", "queue"}, "WORKLOAD:NEMESIS"},
		{[]string{"matrix", "--cells", "queue:kill,delay:quux"}, "quux"},
		{[]string{"matrix", "--nodes", "2"}, "an odd number"},
		{[]string{"check"}, "accepts 1 arg"},
		{[]string{"check", filepath.Join(dir, "none")}, "no such file"},
		{[]string{"report", filepath.Join(dir, "none")}, "no such file"},
		{[]string{"totals"}, "requires at least 1 arg"},
		{[]string{"nothing"}, "unknown command"},
	} {
		args := c.args
		if args[0] == "matrix" {
			args = append(args, "--results", filepath.Join(dir, "r.jsonl"))
		}
		if out, err := run(t, args...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q\n%s", c.args, err, c.want, out)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestList(t *testing.T) {
	out, err := run(t, "list")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append([]string{"queue", "membership"}, "kill", "clock-step", "read-only", "replace") {
		if !strings.Contains(out, "\n"+name) {
			t.Errorf("%s is not in\n%s", name, out)
		}
	}
}

// The plan follows from the seed, has every cell once a round, each with a seed of its own, and does not change a cell's when others come.
func TestPlan(t *testing.T) {
	cfg := &jepsen.Config{Seed: 7, Nodes: 3, Time: 40 * time.Second}
	cells, err := plan("queue,delay", "kill,pause+wipe", cfg, 2)
	if err != nil {
		t.Fatal(err)
	}
	again, err := plan("queue,delay", "kill,pause+wipe", cfg, 2)
	if err != nil || !slices.Equal(cells, again) || len(cells) != 8 {
		t.Errorf("%d cells, then %v, %v", len(cells), again, err)
	}
	names := map[string]int{}
	for i, c := range cells {
		names[c.Name()]++
		if c.Seconds != 40 || i/4 != slices.IndexFunc(cells, func(o jepsen.Cell) bool { return o == c })/4 {
			t.Errorf("%+v", c)
		}
	}
	if len(names) != 8 {
		t.Errorf("names %v", names)
	}
	more, err := plan("queue,delay,batch", "kill,pause+wipe,loss", cfg, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cells[:4] {
		if !slices.Contains(more, c) {
			t.Errorf("%+v has become another one", c)
		}
	}
	some, err := selection([]string{"delay:kill", "queue:pause+wipe"}, cfg)
	if err != nil || len(some) != 2 || some[0].Workload != "delay" || !slices.Contains(cells, some[0]) || !slices.Contains(cells, some[1]) {
		t.Errorf("selected %+v, %v", some, err)
	}
	all, err := plan("all", "all", cfg, 1)
	if err != nil || len(all) < 300 {
		t.Errorf("%d cells, %v", len(all), err)
	}
}

// matrixOf runs a matrix with made-up runs.
type matrixOf struct {
	t       *testing.T
	dir     string
	ran     []string
	fails   map[string]bool // cells by workload and nemesis
	void    map[string]int  // how often a cell's fault takes no effect
	stop    context.CancelFunc
	stopAt  int
	again   bool
	content string // of the history
}

func (m *matrixOf) run(cells []jepsen.Cell) (out string, err error) {
	m.t.Helper()
	ctx, cancel := context.WithCancel(m.t.Context())
	defer cancel()
	m.stop = cancel
	m.ran = nil
	var b bytes.Buffer
	err = runMatrix(ctx, cells, matrixConfig{results: filepath.Join(m.dir, "r.jsonl"), dir: filepath.Join(m.dir, "kept"), build: "b1", again: m.again, out: &b,
		run: func(ctx context.Context, cell jepsen.Cell, dir string) (*jepsen.Report, error) {
			if m.ran = append(m.ran, cell.Workload+" "+cell.Nemesis); len(m.ran) == m.stopAt {
				cancel()
				return nil, ctx.Err()
			}
			for _, f := range []string{"history.jsonl", "n1/log", "n1/data/big"} {
				if err := errors.Join(os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o755), os.WriteFile(filepath.Join(dir, f), []byte(m.content), 0o644)); err != nil {
					m.t.Fatal(err)
				}
			}
			r := &jepsen.Report{Sent: 10, Acked: 10, Ops: 20, Took: time.Second}
			if m.fails[cell.Workload+" "+cell.Nemesis] {
				r.Results = []checker.Result{{Name: "acknowledged but lost", Count: 3, Problems: []string{"p1-1"}}}
				return r, jepsen.ErrInvalid
			}
			if name := cell.Workload + " " + cell.Nemesis; m.void[name] > 0 {
				m.void[name]--
				r.Errors = []error{fmt.Errorf("a %w", nemesis.ErrNoEffect)}
				return r, jepsen.ErrInvalid
			}
			return r, nil
		}})
	return b.String(), err
}

// A matrix that was interrupted goes on where it was, behind a line that was cut off; failed cells are run again when that is asked for, and
// what they showed before is not forgotten.
func TestMatrixGoesOn(t *testing.T) {
	cells, err := plan("queue,delay", "kill,pause", &jepsen.Config{Seed: 1, Nodes: 3, Time: time.Second}, 1)
	if err != nil {
		t.Fatal(err)
	}
	name := func(c jepsen.Cell) string { return c.Workload + " " + c.Nemesis }
	bad := name(cells[1])
	m := &matrixOf{t: t, dir: t.TempDir(), fails: map[string]bool{bad: true}, stopAt: 3, content: string(goodHistory(t))}
	out, err := m.run(cells)
	if !errors.Is(err, context.Canceled) && !strings.Contains(fmt.Sprint(err), "cells have failed") || !strings.Contains(out, "interrupted") || !strings.Contains(out, "2 cells are left") {
		t.Fatalf("%v\n%s", err, out)
	}
	results := filepath.Join(m.dir, "r.jsonl")
	f, err := os.OpenFile(results, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"workload":"queue","nem`); err != nil {
		t.Fatal(err)
	}
	f.Close()
	m.stopAt = 0
	out, err = m.run(cells)
	if want := []string{name(cells[2]), name(cells[3])}; !slices.Equal(m.ran, want) || err == nil {
		t.Errorf("ran %v, want %v, %v\n%s", m.ran, want, err, out)
	}
	// History, log and page of the failed cell are there, its data and everything of the others is not.
	kept := filepath.Join(m.dir, "kept", cells[1].Name())
	for _, f := range []string{"history.jsonl", "report.html", "n1/log"} {
		if _, err := os.Stat(filepath.Join(kept, f)); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(kept, "n1", "data")); err == nil {
		t.Error("the failed cell's data is kept")
	}
	if left, _ := os.ReadDir(filepath.Join(m.dir, "kept")); len(left) != 1 {
		t.Errorf("kept: %v", left)
	}
	if _, err = m.run(cells); len(m.ran) != 0 || err == nil {
		t.Errorf("ran %v again; %v", m.ran, err)
	}
	m.again, m.fails = true, nil
	out, err = m.run(cells)
	if !slices.Equal(m.ran, []string{bad}) || err != nil {
		t.Errorf("ran %v, %v", m.ran, err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("what the failed run left is gone: %v", err)
	}
	all, _, err := readResults(results)
	if err != nil || len(all) != 5 {
		t.Errorf("%d results, %v", len(all), err)
	}
	totals, err := run(t, "totals", results)
	if err != nil || !strings.Contains(totals, "failed and was run again") || !strings.Contains(out, "failed and was run again") {
		t.Errorf("%v\n%s", err, totals)
	}
	last := ""
	for line := range strings.Lines(totals) {
		if fields := strings.Fields(line); len(fields) > 0 && fields[0] == "all" {
			last = strings.Join(fields, " ")
		}
	}
	// Cells, failed, void, run again, skipped, faults, acknowledged, other operations, lost.
	if !strings.HasPrefix(last, "all 4 0 0 1 0 0 50 0 0 ") {
		t.Errorf("totals: %s", last)
	}
	// A damaged line in the middle is an error.
	if err := os.WriteFile(results, []byte("{\n{}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := run(t, "totals", results); err == nil || !strings.Contains(err.Error(), ":1:") {
		t.Errorf("damaged results: %v", err)
	}
}

// A cell whose fault took no effect proves nothing: it is run again, and if it stays so the matrix has not passed, though nothing is wrong.
func TestVoidCells(t *testing.T) {
	cells, err := plan("queue", "kill,pause", &jepsen.Config{Seed: 1, Nodes: 3, Time: time.Second}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		times, runs int
		want        string
	}{{2, 4, ""}, {3, 4, "took no effect"}} {
		m := &matrixOf{t: t, dir: t.TempDir(), void: map[string]int{"queue pause": c.times}, content: string(goodHistory(t))}
		out, err := m.run(cells)
		if len(m.ran) != c.runs || c.want == "" && err != nil || !strings.Contains(fmt.Sprint(err), c.want) || strings.Contains(out, "FAILED") || !strings.Contains(out, "void") {
			t.Errorf("void %d times: %d runs, %v\n%s", c.times, len(m.ran), err, out)
		}
		all, _, err := readResults(filepath.Join(m.dir, "r.jsonl"))
		if err != nil || len(all) != c.runs || slices.ContainsFunc(all, func(r jepsen.CellResult) bool { return r.Violations != 0 }) {
			t.Errorf("void %d times: results %+v, %v", c.times, all, err)
		}
	}
}

// goodHistory is one of a message that was sent to one node and read from it.
func goodHistory(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history.jsonl")
	rec, err := history.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	rec.Add(history.Op{Kind: history.Header, Process: "harness", Outcome: history.OK, Queue: -1, Offset: -1, Run: &history.RunInfo{Workload: checker.Queue,
		Nemesis: "kill", Seed: 7, Nodes: []string{"n1"}, Groups: []string{"g"}, Checks: checker.Checks(checker.Queue)}})
	rec.Add(history.Op{Kind: history.Leader, Process: "harness", Outcome: history.OK, Node: "n1", Term: 2, Queue: -1, Offset: -1})
	op := rec.Begin(history.Op{Kind: history.Send, Process: "p1", Value: "p1-0", UniqKey: "u", Topic: "T", Attempts: 1})
	op.Outcome = history.OK
	rec.End(op)
	fault := rec.Begin(history.Op{Kind: history.Fault, Process: "nemesis", Fault: "kill", Node: "n1", Nodes: []string{"n1"}, Detail: "signal: <killed>", Queue: -1, Offset: -1})
	fault.Outcome = history.OK
	rec.End(fault)
	for _, kind := range []history.Kind{history.Receive, history.Drain} {
		rec.Add(history.Op{Kind: kind, Process: "c", Group: "g", Node: "n1", Outcome: history.OK, Value: "p1-0", UniqKey: "u", Topic: "T"})
	}
	rec.Add(history.Op{Kind: history.Drained, Process: "drain", Node: "n1", Outcome: history.OK, Topic: "T", Count: 1})
	rec.Add(history.Op{Kind: history.State, Process: "harness", Node: "n1", Outcome: history.OK, Queue: -1, Offset: -1,
		Log: &history.LogState{Max: 100, ChecksumTo: 100, Checksum: "deadbeef"}})
	if _, err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// A stored history is judged again, as it was, and otherwise when something is missing.
func TestCheckAndReport(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "history.jsonl")
	good := goodHistory(t)
	if err := os.WriteFile(path, good, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := run(t, "check", path)
	if err != nil || !strings.Contains(out, "\nVALID") || !strings.Contains(out, "sent 1, acknowledged 1") {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = run(t, "report", path)
	page, rerr := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil || rerr != nil || strings.TrimSpace(out) != filepath.Join(dir, "report.html") {
		t.Fatalf("%v, %v\n%s", err, rerr, out)
	}
	for _, want := range []string{"VALID", "acknowledged but lost", "n1 leads in term 2", "signal: &lt;killed&gt;", "<svg"} {
		if !strings.Contains(string(page), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, no := range []string{"http://", "https://", "<script src", "ZgotmplZ"} {
		if strings.Contains(strings.ReplaceAll(string(page), "http://www.w3.org/2000/svg", ""), no) {
			t.Errorf("the page has %q: it is to need nothing but itself", no)
		}
	}

	var bad []byte
	for line := range bytes.Lines(good) {
		var op history.Op
		if err := json.Unmarshal(line, &op); err != nil {
			t.Fatal(err)
		}
		if op.Kind != history.Drain {
			bad = append(bad, line...)
		}
	}
	if err := os.WriteFile(path, bad, 0o644); err != nil {
		t.Fatal(err)
	}
	out, err = run(t, "check", path)
	if err == nil || !strings.Contains(out, "NOT VALID") || !strings.Contains(out, "acknowledged but lost") || !strings.Contains(out, "p1-0") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := run(t, "report", path, "--out", filepath.Join(dir, "bad.html")); err != nil {
		t.Error(err)
	}
	if page, err := os.ReadFile(filepath.Join(dir, "bad.html")); err != nil || !strings.Contains(string(page), "NOT VALID") {
		t.Errorf("the page of a bad history: %v", err)
	}
	for name, text := range map[string]string{
		"no header": string(bytes.Join(bytes.SplitAfter(good, []byte("\n"))[1:], nil)), "cut off": string(good[:len(good)-30]), "unknown field": `{"kindly":"x"}` + "\n", "unknown check": strings.Replace(string(good), "bytes differ", "bits differ", 1),
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if out, err := run(t, "check", path); err == nil || strings.Contains(out, "VALID") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
