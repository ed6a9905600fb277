package layout

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestFaultCasesNameTests: the table of fault cases in jepsen/README.md has a row for each case, and each row names tests that are there.
func TestFaultCasesNameTests(t *testing.T) {
	const root = "../.."
	text, err := os.ReadFile(filepath.Join(root, "jepsen/README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "## Fault cases")
	if !ok {
		t.Fatal("jepsen/README.md has no section of fault cases")
	}
	table, _, _ = strings.Cut(table, "\n## ")
	rows := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\| (F\d\d) \|(.*)$`).FindAllStringSubmatch(table, -1) {
		rows[m[1]] = m[2]
	}
	for n := 1; n <= 95; n++ {
		if id := fmt.Sprintf("F%02d", n); n%2 == 1 && rows[id] == "" || n == 94 && rows["F94"] == "" {
			t.Errorf("%s has no row", id)
		}
	}
	declared := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	there := map[string]bool{}
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(source), -1) {
			there[m[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`(Test\\w+)[/\\w]*`")
	for id, row := range rows {
		names := named.FindAllStringSubmatch(row, -1)
		if len(names) == 0 {
			t.Errorf("%s names no test", id)
		}
		for _, m := range names {
			if !there[m[1]] {
				t.Errorf("%s: %s is no test", id, m[1])
			}
		}
	}
}
