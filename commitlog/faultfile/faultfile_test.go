package faultfile

import (
	"bytes"
	"errors"
	"io/fs"
	"math/rand/v2"
	"testing"

	"raftmq/commitlog/mappedfile"
)

func create(t *testing.T, f *FS, path string, size int64) (mappedfile.Handle, []byte) {
	t.Helper()
	h, err := f.Create(path, size)
	if err != nil {
		t.Fatal(err)
	}
	b, err := h.Map(size, false)
	if err != nil {
		t.Fatal(err)
	}
	return h, b
}

func TestOnlyWhatWasSyncedSurvives(t *testing.T) {
	f := New()
	h, b := create(t, f, "d/a", 3*pageSize)
	copy(b, bytes.Repeat([]byte{1}, 3*pageSize))
	if err := errors.Join(h.Sync(), f.SyncDir("d")); err != nil {
		t.Fatal(err)
	}
	copy(b, bytes.Repeat([]byte{2}, 3*pageSize))
	if err := h.SyncRange(pageSize+5, 10); err != nil {
		t.Fatal(err)
	}
	create(t, f, "d/b", 1)
	next := f.Crash(LoseAll, nil)
	got, err := next.ReadFile("d/a")
	want := bytes.Repeat([]byte{1}, 3*pageSize)
	copy(want[pageSize:], bytes.Repeat([]byte{2}, 15))
	if err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%v; page bytes %d %d %d", err, got[0], got[pageSize], got[2*pageSize])
	}
	if _, err := next.ReadFile("d/b"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("entry without a directory sync: %v", err)
	}
	if _, err := f.Crash(LoseNothing, nil).ReadFile("d/b"); err != nil {
		t.Fatalf("killed process: %v", err)
	}
}

func TestLoseSome(t *testing.T) {
	f := New()
	h, b := create(t, f, "d/a", pageSize)
	if err := errors.Join(h.Sync(), f.SyncDir("d")); err != nil {
		t.Fatal(err)
	}
	copy(b, bytes.Repeat([]byte{1}, pageSize))
	create(t, f, "d/b", pageSize)
	seen := map[string]bool{}
	for seed := range uint64(200) {
		next := f.Crash(LoseSome, rand.New(rand.NewPCG(seed, 0)))
		got, err := next.ReadFile("d/a")
		if err != nil {
			t.Fatal(err)
		}
		switch bytes.Count(got, []byte{1}) {
		case 0:
			seen["old"] = true
		case pageSize:
			seen["new"] = true
		default:
			seen["torn"] = true
		}
		switch b, err := next.ReadFile("d/b"); {
		case err != nil:
			seen["no b"] = true
		case len(b) == 0:
			seen["empty b"] = true
		default:
			seen["whole b"] = true
		}
	}
	if len(seen) != 6 {
		t.Errorf("images of 200 seeds: %v", seen)
	}
}

// TestFailedSyncLosesPages is F33: the sync after a failed one says yes and writes nothing.
func TestFailedSyncLosesPages(t *testing.T) {
	f := New()
	h, b := create(t, f, "d/a", 2*pageSize)
	if err := errors.Join(h.Sync(), f.SyncDir("d")); err != nil {
		t.Fatal(err)
	}
	b[0], b[pageSize] = 1, 1
	f.FailAt(f.Ops(), nil)
	if err := h.SyncRange(0, 2*pageSize); !errors.Is(err, ErrInjected) {
		t.Fatalf("got %v", err)
	}
	b[pageSize] = 2 // dirty again
	if err := h.SyncRange(0, 2*pageSize); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(20) {
		got, err := f.Crash(LoseSome, rand.New(rand.NewPCG(seed, 0))).ReadFile("d/a")
		if err != nil || got[0] != 0 || got[pageSize] != 2 {
			t.Fatalf("%v; pages %d, %d; want the first lost, the second there", err, got[0], got[pageSize])
		}
	}
}

func TestRenameIsAtomic(t *testing.T) {
	f := New()
	if err := errors.Join(f.WriteFile("d/p", []byte("old")), f.SyncDir("d"), f.WriteFile("d/p.tmp", []byte("new")),
		f.Rename("d/p.tmp", "d/p")); err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for seed := range uint64(50) {
		got, err := f.Crash(LoseSome, rand.New(rand.NewPCG(seed, 0))).ReadFile("d/p")
		if err != nil {
			t.Fatal(err)
		}
		seen[string(got)] = true
	}
	if len(seen) != 2 || !seen["old"] || !seen["new"] {
		t.Errorf("found %v", seen)
	}
}

func TestPowerCut(t *testing.T) {
	f := New()
	f.CutAt(1)
	if err := f.MkdirAll("a/b"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := f.ReadDir("a/b"); !errors.Is(err, ErrPowerCut) {
			t.Fatalf("got %v", err)
		}
	}
}
