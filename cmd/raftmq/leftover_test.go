package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// TestUnfinishedSnapshots: what a kill left goes at the next start, and nothing else.
func TestUnfinishedSnapshots(t *testing.T) {
	dir := t.TempDir()
	if err := removeUnfinishedSnapshots(dir, hclog.NewNullLogger()); err != nil {
		t.Fatalf("without any: %v", err)
	}
	for _, name := range []string{"2-10-1700000000000", "2-20-1700000000001.tmp", "3-30-1700000000002.tmp"} {
		path := filepath.Join(dir, "snapshots", name)
		if err := os.MkdirAll(path, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(path, "state.bin"), []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := removeUnfinishedSnapshots(dir, hclog.NewNullLogger()); err != nil {
		t.Fatal(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, "snapshots", "*"))
	if want := []string{filepath.Join(dir, "snapshots", "2-10-1700000000000")}; err != nil || !slices.Equal(left, want) {
		t.Errorf("left %v, %v", left, err)
	}
}
