package nemesis

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"raftmq/jepsen/cluster"
)

// The bit that flips lies in what was written between the two looks, with some of that behind it; too little written is no fault.
func TestRaftRotFlipsWhatCameMeanwhile(t *testing.T) {
	n := &cluster.Node{ID: "n1", DataDir: t.TempDir()}
	if _, err := raftLogEnd(n); !errors.Is(err, ErrNoEffect) {
		t.Errorf("without a Raft log: %v", err)
	}
	dir := filepath.Join(n.DataDir, "raft", "wal")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(name string, written int) (path string, content []byte) {
		t.Helper()
		path = filepath.Join(dir, name)
		content = append(bytes.Repeat([]byte{7}, written), make([]byte, 64<<10-written)...)
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		return path, content
	}
	look := func(path string, end int64) logEnd {
		t.Helper()
		got, err := raftLogEnd(n)
		if err != nil || got != (logEnd{path, end}) {
			t.Fatalf("log ends at %+v, %v; want %s, %d", got, err, path, end)
		}
		return got
	}
	rng := rand.New(rand.NewPCG(1, 2))
	flip := func(before, after logEnd, content []byte, from, to int64) {
		t.Helper()
		at, err := flipBetween(before, after, rng)
		if err != nil || at < from || at >= to {
			t.Fatalf("flipped %d, %v; want one of [%d, %d)", at, err, from, to)
		}
		got, err := os.ReadFile(after.path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range got {
			if (got[i] != content[i]) != (int64(i) == at) {
				t.Fatalf("byte %d is %d, was %d; flipped was %d", i, got[i], content[i], at)
			}
		}
	}
	first := "00000000000000000001-0000000000000000.wal"
	path, _ := write(first, 10_000)
	before := look(path, 10_000)
	if _, err := flipBetween(before, look(path, 10_000), rng); !errors.Is(err, ErrNoEffect) {
		t.Errorf("nothing was written: %v", err)
	}
	_, content := write(first, 20_000)
	flip(before, look(path, 20_000), content, 10_000, 15_000)
	// The next file has been begun: it is all new. One that is made ahead is empty.
	write("00000000000000000900-0000000000000002.wal", 0)
	look(path, 20_000)
	next, content := write("00000000000000000500-0000000000000001.wal", 20_000)
	flip(before, look(next, 20_000), content, walHead, 10_016)
}
