package shadow

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"raftmq/commitlog/mappedfile"
)

// rig is a file system with a shadow.
type rig struct {
	t         *testing.T
	root, dir string
	*FS
}

func newRig(t *testing.T, lies Lies) *rig {
	t.Helper()
	r := &rig{t: t, root: filepath.Join(t.TempDir(), "store"), dir: filepath.Join(t.TempDir(), "shadow")}
	k, err := NewKeeper(r.root, r.dir)
	if err != nil {
		t.Fatal(err)
	}
	r.FS = NewFS(k, lies)
	r.must(r.MkdirAll(filepath.Join(r.root, "log")))
	return r
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) path(name string) string { return filepath.Join(r.root, "log", name) }

// create makes a file of a few pages, mapped.
func (r *rig) create(name string, pages int64) (mappedfile.Handle, []byte) {
	r.t.Helper()
	h, err := r.Create(r.path(name), pages*PageSize)
	r.must(err)
	r.t.Cleanup(func() { _ = h.Close() })
	b, err := h.Map(pages*PageSize, false)
	r.must(err)
	return h, b
}

func (r *rig) crash(seed uint64) Loss {
	r.t.Helper()
	l, err := Crash(r.root, r.dir, rand.New(rand.NewPCG(seed, 0)))
	r.must(err)
	if _, err := os.Stat(r.dir); !errors.Is(err, fs.ErrNotExist) {
		r.t.Errorf("the shadow is still there: %v", err)
	}
	return l
}

func fill(b []byte, c byte) {
	for i := range b {
		b[i] = c
	}
}

// What was synced is there after every crash, and what was not is in each page what it was, what it is, or both by sectors.
func TestCrashKeepsWhatWasSynced(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(60) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := newRig(t, Lies{})
			h, b := r.create("a", 8)
			fill(b[:4*PageSize], 1)
			r.must(h.SyncSize())
			r.must(h.SyncRange(0, 4*PageSize))
			r.must(r.SyncDir(filepath.Dir(r.path("a"))))
			fill(b[2*PageSize:6*PageSize], 2) // pages 2 to 5, two of them over what is durable
			l := r.crash(seed)
			if l.Files != 1 || l.Unflushed != 4 || l.Unmade != 0 {
				t.Fatalf("%+v", l)
			}
			got, err := os.ReadFile(r.path("a"))
			r.must(err)
			if len(got) != 8*PageSize {
				t.Fatalf("%d bytes", len(got))
			}
			for page := range 8 {
				old, now := byte(0), byte(0)
				if page < 4 {
					old, now = 1, 1
				}
				if page >= 2 && page < 6 {
					now = 2
				}
				seen[checkPage(t, page, got[page*PageSize:(page+1)*PageSize], old, now)] = true
			}
		})
	}
	for _, what := range []string{"old", "new", "torn"} {
		if !seen[what] {
			t.Errorf("no crash left a page %s", what)
		}
	}
}

// checkPage tells what a page that was old and is now became.
func checkPage(t *testing.T, page int, b []byte, old, now byte) string {
	t.Helper()
	olds, news := 0, 0
	for at := 0; at < len(b); at += SectorSize {
		sector := b[at : at+SectorSize]
		switch {
		case bytes.Count(sector, []byte{old}) == SectorSize && old != now:
			olds++
		case bytes.Count(sector, []byte{now}) == SectorSize:
			news++
		default:
			t.Fatalf("page %d: sector at %d is neither old nor new: %x…", page, at, sector[:8])
		}
	}
	switch {
	case old == now:
		return "same"
	case news == 0:
		return "old"
	case olds == 0:
		return "new"
	}
	return "torn"
}

// A file whose name was not synced is there or not, whatever of its bytes was; one whose name was stays, at its durable size or more.
func TestCrashNamesAndSizes(t *testing.T) {
	gone, stayed, short := 0, 0, 0
	for seed := range uint64(60) {
		r := newRig(t, Lies{})
		h, b := r.create("named", 4)
		r.must(r.SyncDir(filepath.Dir(r.path("named"))))
		fill(b[:PageSize], 1)
		r.must(h.SyncRange(0, PageSize)) // its size is not synced
		h2, b2 := r.create("unnamed", 1)
		fill(b2, 1)
		r.must(h2.Sync())
		l := r.crash(seed)
		st, err := os.Stat(r.path("named"))
		r.must(err)
		if st.Size() < PageSize {
			t.Fatalf("seed %d: %d bytes are left of a synced page", seed, st.Size())
		}
		if st.Size() < 4*PageSize {
			short++
		}
		switch _, err := os.Stat(r.path("unnamed")); {
		case errors.Is(err, fs.ErrNotExist) && l.Unmade == 1:
			gone++
		case err == nil && l.Unmade == 0:
			stayed++
		default:
			t.Fatalf("seed %d: %v, %+v", seed, err, l)
		}
	}
	if gone == 0 || stayed == 0 || short == 0 {
		t.Errorf("%d times gone, %d times there, %d times short", gone, stayed, short)
	}
}

// A file that goes and comes back has nothing of its former self, and one that was there before the shadow counts as durable.
func TestLivesOfAFile(t *testing.T) {
	for seed := range uint64(20) {
		r := newRig(t, Lies{})
		r.must(os.WriteFile(r.path("before"), bytes.Repeat([]byte{7}, 2*PageSize), 0o644))
		h, err := r.Open(r.path("before"), false)
		r.must(err)
		r.must(h.Close())

		h, b := r.create("again", 1)
		fill(b, 1)
		r.must(h.Sync())
		r.must(r.SyncDir(filepath.Dir(r.path("again"))))
		r.must(h.Close())
		r.must(r.Remove(r.path("again")))
		r.create("again", 1)
		r.must(r.SyncDir(filepath.Dir(r.path("again"))))

		r.must(r.WriteFile(r.path("small.tmp"), []byte("point")))
		r.must(r.Rename(r.path("small.tmp"), r.path("small")))

		r.must(os.WriteFile(r.path("untold"), []byte("nobody told"), 0o644))
		r.crash(seed)
		for name, want := range map[string]string{"before": string(bytes.Repeat([]byte{7}, 2*PageSize)), "small": "point", "untold": "nobody told"} {
			if got, err := os.ReadFile(r.path(name)); err != nil || string(got) != want {
				t.Errorf("seed %d: %s: %v, %d bytes", seed, name, err, len(got))
			}
		}
		if got, err := os.ReadFile(r.path("again")); err != nil || !allZero(got) {
			t.Errorf("seed %d: again: %v, %x…", seed, err, got)
		}
	}
}

// The process may be killed, and its files go on: what was not synced is not durable for the next process either.
func TestShadowOutlivesTheProcess(t *testing.T) {
	lost := 0
	for seed := range uint64(20) {
		r := newRig(t, Lies{})
		_, b := r.create("a", 1)
		fill(b, 1)
		k, err := NewKeeper(r.root, r.dir)
		r.must(err)
		next := NewFS(k, Lies{})
		h, err := next.Open(r.path("a"), false)
		r.must(err)
		r.must(h.Close())
		r.must(next.SyncDir(filepath.Dir(r.path("a"))))
		if l := r.crash(seed); l.Unflushed != 1 {
			t.Fatalf("seed %d: %+v", seed, l)
		} else if l.Old > 0 {
			lost++
		}
	}
	if lost == 0 {
		t.Error("no crash lost it")
	}
}

// A lie is a sync that is not in the shadow.
func TestLies(t *testing.T) {
	yes := func(string) bool { return true }
	r := newRig(t, Lies{Bytes: yes, Names: yes})
	h, b := r.create("a", 1)
	fill(b, 1)
	r.must(h.SyncSize())
	r.must(h.SyncRange(0, PageSize))
	r.must(h.Sync())
	r.must(r.SyncDir(filepath.Dir(r.path("a"))))
	if l := r.crash(1); l.Unflushed != 1 && l.Unmade != 1 {
		t.Errorf("%+v", l)
	}
}

func TestOutsideOfTheRoot(t *testing.T) {
	r := newRig(t, Lies{})
	if _, err := r.Create(filepath.Join(t.TempDir(), "foreign"), PageSize); err == nil {
		t.Error("a file outside of the root has a shadow")
	}
}
