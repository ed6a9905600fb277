package checker

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// planted is a change of a good history, and whether the check must fail on it.
type planted struct {
	name  string
	plant func(*Run)
	bad   bool
}

// testCheck wants all checks of a good run's workload to pass, and one of them to fail on each bad change, and only on those.
func testCheck(t *testing.T, check string, good func() *Run, cases []planted) {
	t.Helper()
	run := good()
	run.Checks = Checks(run.Info.Workload)
	if run.Checks == nil {
		t.Fatalf("no checks for %q", run.Info.Workload)
	}
	among := false
	for _, r := range All(run) {
		among = among || r.Name == check
		if !r.Valid {
			t.Errorf("the good run: %s: %s %v", r.Name, r.Summary, r.Problems)
		}
	}
	if !among {
		t.Errorf("%s is no check of %s", check, run.Info.Workload)
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			run := good()
			c.plant(run)
			r := checkOf(check)(newView(run))
			if r.Name != check || r.Valid == c.bad || r.Valid != (len(r.Problems) == 0) || r.Summary == "" {
				t.Errorf("%s: valid %v, want %v: %s %v", r.Name, r.Valid, !c.bad, r.Summary, r.Problems)
			}
		})
	}
}

// Every check is shown to find something: its name stands in a test of this package, and some workload has to stand it.
func TestEveryCheckIsTested(t *testing.T) {
	files, err := filepath.Glob("*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		tests.Write(b)
	}
	used := map[string]bool{}
	for _, w := range []string{Queue, Ordered, Offsets, Batch, Delay, Transaction, Retry, Topics, Sizes, Retention, Membership} {
		for _, name := range Checks(w) {
			used[name] = true
		}
	}
	for _, c := range checks() {
		if !strings.Contains(tests.String(), strconv.Quote(c.name)) {
			t.Errorf("%q has no test", c.name)
		}
		if !used[c.name] {
			t.Errorf("%q is no workload's", c.name)
		}
	}
}
