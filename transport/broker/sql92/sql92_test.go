package sql92

import (
	"errors"
	"os"
	"strings"
	"testing"

	"raftmq/commitlog/record"
)

type testCase struct {
	want, expression string
	properties       []byte
	empty            bool // has a property without a value, which no message can have
}

func readCases(tb testing.TB, file string) (cases []testCase) {
	tb.Helper()
	text, err := os.ReadFile("testdata/" + file)
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.SplitSeq(strings.TrimSuffix(string(text), "\n"), "\n") {
		fields := strings.Split(line, "\t")
		c := testCase{want: fields[0], expression: strings.NewReplacer(`\t`, "\t", `\n`, "\n").Replace(fields[1])}
		for _, f := range fields[2:] {
			name, value, _ := strings.Cut(f, "=")
			c.empty = c.empty || value == ""
			c.properties = record.AppendProperty(c.properties, name, value)
		}
		cases = append(cases, c)
	}
	return cases
}

// TestGolden compares with what RocketMQ's own filter said.
func TestGolden(t *testing.T) {
	for _, file := range []string{"sql92-4.9.4.tsv", "sql92-5.3.3.tsv"} {
		for _, c := range readCases(t, file) {
			// Java takes digits of all scripts for numbers; here only ASCII's are.
			if strings.Contains(string(c.properties), "１") || c.empty {
				continue
			}
			got := "no"
			e, err := Compile(c.expression)
			switch {
			case err != nil:
				got = "refused"
				if !errors.Is(err, ErrSyntax) {
					t.Errorf("%q: %v is no ErrSyntax", c.expression, err)
				}
			case e.Match(c.properties):
				got = "match"
			}
			if got != c.want {
				t.Errorf("%s: %q of %q: %s, want %s (%v)", file, c.expression, c.properties, got, c.want, err)
			}
		}
	}
}

func TestNoAllocation(t *testing.T) {
	e, err := Compile("a > 3 AND (b = 'x' OR c BETWEEN 1.5 AND 2e3) AND NOT (d IN ('p', 'q')) AND e IS NOT NULL")
	if err != nil {
		t.Fatal(err)
	}
	props := []byte("a\x015\x02b\x01y\x02c\x0177.25\x02d\x01r\x02e\x01")
	props = append(props, "here"...)
	if !e.Match(props) {
		t.Fatal("does not match")
	}
	if n := testing.AllocsPerRun(100, func() { e.Match(props) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestDepth(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("(", n) + "a = 1" + strings.Repeat(")", n) }
	if _, err := Compile(deep(100)); err != nil {
		t.Error(err)
	}
	for _, text := range []string{deep(100_000), strings.Repeat("NOT ", 100_000) + "a", strings.Repeat("-", 99_999) + "1 = a"} {
		if _, err := Compile(text); !errors.Is(err, ErrSyntax) {
			t.Errorf("%.20s…: %v", text, err)
		}
	}
}

// FuzzCompile: no panic, whatever the text and the message.
func FuzzCompile(f *testing.F) {
	for _, c := range readCases(f, "sql92-5.3.3.tsv") {
		f.Add(c.expression, c.properties)
	}
	f.Fuzz(func(t *testing.T, text string, properties []byte) {
		e, err := Compile(text)
		if err != nil {
			if !errors.Is(err, ErrSyntax) {
				t.Fatal(err)
			}
			return
		}
		if first := e.Match(properties); first != e.Match(properties) {
			t.Fatal("two verdicts")
		}
	})
}

func BenchmarkMatch(b *testing.B) {
	e, err := Compile("a > 3 AND b = 'x'")
	if err != nil {
		b.Fatal(err)
	}
	props := []byte("a\x015\x02b\x01x")
	b.ReportAllocs()
	for b.Loop() {
		e.Match(props)
	}
}
