// Package layout holds a test only: which package may import which. It names the right room when a line of code is in
// the wrong one.
package layout

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "raftmq"

// mayImport lists, for each package, what of this module its non-test files may import. A trailing /... means everything below.
var mayImport = map[string][]string{
	"cmd/raftmq":             {"commitlog/...", "fsm/...", "flush", "membership/...", "transport/...", "commitlog", "fsm", "membership", "transport", "seam", "seam/..."},
	"cmd/chaos":              {"jepsen", "jepsen/...", "seam"},
	"transport":              {"transport/remoting"},
	"transport/remoting":     {},
	"transport/broker":       {"transport", "transport/broker/sql92", "transport/broker/stats", "transport/remoting", "commitlog/record", "commitlog/store", "flush", "fsm/command", "fsm/metadata", "fsm/raftnode", "membership/group", "seam"},
	"transport/broker/sql92": {"commitlog/record"},
	"transport/broker/stats": {},
	"transport/namesrv":      {"transport", "transport/remoting", "membership/route", "fsm/command", "fsm/metadata"}, // KV changes are commands, refused by the tables
	"transport/client":       {"transport/remoting"},
	"transport/raftstream":   {},
	"transport/metrics":      {},
	"fsm":                    {"fsm/command", "fsm/metadata", "commitlog/record", "commitlog/store", "seam"}, // commitlog/store: its position and append types
	"fsm/command":            {},
	"fsm/metadata":           {"fsm/command", "commitlog/record", "seam"}, // the tables store what commands carry; record: a topic's name
	"fsm/raftnode":           {"seam", "seam/shadow"},
	"fsm/delay":              {"fsm/command", "fsm/metadata", "commitlog/record", "commitlog/store", "seam"},
	"fsm/transaction":        {"fsm/command", "fsm/metadata", "commitlog/record", "commitlog/store"},
	"fsm/retention":          {"fsm/command", "fsm/metadata", "commitlog/record", "commitlog/store", "seam"},
	"commitlog":              {"commitlog/record", "commitlog/mappedfile", "seam"},
	"commitlog/record":       {},
	"commitlog/mappedfile":   {},
	"commitlog/faultfile":    {"commitlog/mappedfile"},
	"commitlog/consumequeue": {"commitlog/mappedfile"},
	"commitlog/keyindex":     {"commitlog/mappedfile"},
	"commitlog/inspect":      {"commitlog", "commitlog/record", "commitlog/mappedfile", "commitlog/consumequeue", "commitlog/keyindex"},
	"commitlog/dispatch":     {"commitlog/record", "commitlog/mappedfile", "commitlog/consumequeue"},
	"commitlog/store":        {"commitlog", "commitlog/record", "commitlog/mappedfile", "commitlog/consumequeue", "commitlog/keyindex", "commitlog/dispatch", "flush", "seam"},
	"flush":                  {},
	"membership":             {},
	"membership/route":       {"membership", "fsm/metadata"},
	"membership/group":       {"seam"},
	"jepsen":                 {"jepsen/...", "transport/client", "transport/remoting", "seam", "seam/..."},
	"seam":                   {},
	"seam/shadow":            {"commitlog/mappedfile"},
	"scripts/layout":         {},
	"scripts/compare":        {"transport/client", "transport/remoting", "commitlog/record", "commitlog/inspect"},
}

// owners of third-party modules: only these packages import them.
var owners = map[string][]string{
	"github.com/edsrzf/mmap-go":          {"commitlog/mappedfile"},
	"github.com/hashicorp/memberlist":    {"membership"},
	"github.com/hashicorp/raft-boltdb":   {"fsm/raftnode"},
	"github.com/hashicorp/raft-wal":      {"fsm/raftnode"},
	"github.com/hashicorp/raft":          {"fsm", "fsm/raftnode", "transport/raftstream", "cmd/raftmq"}, // cmd/raftmq opens the file snapshot store
	"github.com/apache/rocketmq-client-": {"jepsen"},
	"github.com/prometheus/":             {"transport/metrics"},
	"github.com/spf13/":                  {"cmd/raftmq", "cmd/chaos"},
}

func TestImports(t *testing.T) {
	root := filepath.Join("..", "..")
	files := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if d.IsDir() && rel != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(rel, ".go") || strings.HasSuffix(rel, "_test.go") {
			return nil
		}
		files++
		pkg := filepath.ToSlash(filepath.Dir(rel))
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, imp := range f.Imports {
			name, err := strconv.Unquote(imp.Path.Value)
			if err != nil {
				return err
			}
			checkImport(t, rel, pkg, name)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Fatalf("only %d files were looked at", files)
	}
}

func checkImport(t *testing.T, file, pkg, imported string) {
	t.Helper()
	if inner, ok := strings.CutPrefix(imported, module+"/"); ok {
		allowed, known := rule(pkg)
		if !known {
			t.Errorf("%s: package %s has no line in the table of packages: which room is it?", file, pkg)
		} else if !allows(allowed, inner) {
			t.Errorf("%s: %s may not import %s, only %v", file, pkg, inner, allowed)
		}
		return
	}
	var owned string // the longest prefix that has owners
	for prefix := range owners {
		if strings.HasPrefix(imported, prefix) && len(prefix) > len(owned) {
			owned = prefix
		}
	}
	if owned != "" && !slices.ContainsFunc(owners[owned], func(o string) bool { return pkg == o || strings.HasPrefix(pkg, o+"/") }) {
		t.Errorf("%s: only %v may import %s", file, owners[owned], imported)
	}
}

func rule(pkg string) ([]string, bool) {
	if r, ok := mayImport[pkg]; ok {
		return r, true
	}
	if strings.HasPrefix(pkg, "jepsen/") {
		return mayImport["jepsen"], true
	}
	return nil, false
}

func allows(allowed []string, imported string) bool {
	return slices.ContainsFunc(allowed, func(a string) bool {
		below, ok := strings.CutSuffix(a, "/...")
		return imported == a || ok && strings.HasPrefix(imported, below+"/")
	})
}
