package layout

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestCoverageNamesTests: each test, benchmark and fuzz target that the store's checklist names is there, in the package that it names.
func TestCoverageNamesTests(t *testing.T) {
	const root = "../.."
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	packages := map[string][]string{} // of a name
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			packages[m[1]] = append(packages[m[1]], filepath.Base(filepath.Dir(path)))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "commitlog/DESIGN.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, coverage, ok := strings.Cut(string(text), "## Coverage")
	if !ok {
		t.Fatal("commitlog/DESIGN.md has no Coverage section")
	}
	named := regexp.MustCompile("`(?:(?:\\w+/)?(\\w+)\\.)?((?:Test|Fuzz|Benchmark)\\w+)(…?)`")
	found := 0
	for _, m := range named.FindAllStringSubmatch(coverage, -1) {
		found++
		in, name, more := m[1], m[2], m[3] != ""
		ok := false
		for have, where := range packages {
			if have != name && !(more && strings.HasPrefix(have, name)) {
				continue
			}
			for _, p := range where {
				ok = ok || in == "" || in == p
			}
		}
		if !ok {
			t.Errorf("%s is no test", strings.Trim(m[0], "`"))
		}
	}
	if found < 100 {
		t.Errorf("only %d names found", found)
	}
}
