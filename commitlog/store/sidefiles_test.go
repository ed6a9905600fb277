package store

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
)

// world is a folder that a killed node left, with all that is derived in it, and what it held.
type world struct {
	dir      string
	history  [][]command
	snapshot Position
	at       int // entries that the snapshot covers
	want     map[string]string
}

func killedWorld(t *testing.T) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), history: randomEntries(21, 150), at: 90}
	cfg := w.config(t, t.TempDir())
	s := open(t, cfg)
	for i, commands := range w.history {
		apply(t, s, uint64(i+1), commands...)
		if i+1 == w.at || i+1 == 120 {
			settle(t, s)
			if i+1 == w.at {
				w.snapshot = s.Position()
			}
			waitIndexed(t, s)
			if err := s.FlushAll(); err != nil {
				t.Fatal(err)
			}
		}
	}
	settle(t, s)
	waitIndexed(t, s)
	copyDir(t, cfg.Dir, w.dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	w.want = contents(t, cfg.Dir)
	return w
}

func (w *world) config(t testing.TB, dir string) Config {
	cfg := quiet(t, dir)
	cfg.Snapshot = func() (Position, error) { return w.snapshot, nil }
	return cfg
}

// recovers opens dir, replays what Raft would, and compares everything with what a node that never fell holds. It
// returns what was logged.
func (w *world) recovers(t *testing.T, dir string) string {
	t.Helper()
	var log bytes.Buffer
	cfg := w.config(t, dir)
	cfg.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: &log})
	s, err := Open(cfg)
	if err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	defer s.Close()
	if err := s.Restore(w.snapshot); err != nil {
		t.Fatal(err)
	}
	applyFrom(t, s, w.history, w.at)
	waitDispatched(t, s)
	waitIndexed(t, s)
	if err := s.log.Verify(0); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sameContents(t, contents(t, dir), w.want)
	return log.String()
}

// sideFile is a file that follows from the log.
type sideFile struct {
	name string
	word string // is in the line that tells of its loss; "" when there is nothing to tell
	sums bool   // a flipped bit is found too
}

func (w *world) sideFiles(t *testing.T) []sideFile {
	t.Helper()
	files := []sideFile{
		{checkpointName, "checkpoint", false}, {abortName, "", true}, {lockName, "", true}, {metaName, "description", false},
		{pointName, "consume queues", true}, {journalDir + "/recovery-point", "recovery point", true},
		// One of two is enough.
		{indexPointName + ".0", "", true}, {indexPointName + ".1", "", true},
	}
	// First and last of each kind. What is behind the points comes again without a word.
	add := func(pattern, word string, sums bool) {
		found, err := filepath.Glob(filepath.Join(w.dir, pattern))
		if err != nil || len(found) < 2 {
			t.Fatalf("%s: %v %v", pattern, found, err)
		}
		for i, path := range []string{found[0], found[len(found)-1]} {
			rel, err := filepath.Rel(w.dir, path)
			if err != nil {
				t.Fatal(err)
			}
			if i > 0 {
				word = ""
			}
			files = append(files, sideFile{rel, word, sums})
		}
	}
	add(journalDir+"/records/*", "journal", true)
	add(queueDir+"/T1/1/*", "consume queues", false)
	add(indexDir+"/*", "key index", false)
	return files
}

// TestSideFiles: each derived file is deleted, emptied, cut, or filled with noise; the node starts, holds the same bytes in the
// end, and says once what it had to build again.
func TestSideFiles(t *testing.T) {
	w := killedWorld(t)
	rng := rand.New(rand.NewPCG(5, 5))
	for _, f := range w.sideFiles(t) {
		file, word := f.name, f.word
		b, err := os.ReadFile(filepath.Join(w.dir, file))
		if err != nil {
			t.Fatal(err)
		}
		noise := make([]byte, len(b))
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		harms := map[string][]byte{"deleted": nil, "emptied": {}, "noise": noise}
		for range 2 {
			if n := rng.IntN(len(b) + 1); n > 0 && n < len(b) {
				harms[fmt.Sprint("cut at ", n)] = b[:n]
			}
		}
		if content := len(bytes.TrimRight(b, "\x00")); content > 0 {
			n := rng.IntN(content)
			harms[fmt.Sprint("cut inside at ", n)] = b[:n]
			if f.sums {
				flipped := bytes.Clone(b)
				flipped[n] ^= 0x40
				harms[fmt.Sprint("flipped at ", n)] = flipped
			}
		}
		for name, harm := range harms {
			t.Run(strings.ReplaceAll(file, "/", "-")+" "+name, func(t *testing.T) {
				dir := t.TempDir()
				copyDir(t, w.dir, dir)
				path := filepath.Join(dir, file)
				if harm == nil {
					err = os.Remove(path)
				} else {
					err = os.WriteFile(path, harm, 0o644)
				}
				if err != nil {
					t.Fatal(err)
				}
				log := w.recovers(t, dir)
				harmless := word == "" || strings.HasPrefix(name, "flipped") || strings.HasPrefix(name, "cut")
				if !harmless && !strings.Contains(log, word) {
					t.Errorf("nothing is said of %q:\n%s", word, log)
				}
				if again := w.recovers(t, dir); strings.Contains(again, "again") || strings.Contains(again, "deriving") {
					t.Errorf("it is built again at the next start too:\n%s", again)
				}
				os.RemoveAll(dir)
			})
		}
	}
}
