package store

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// quiet is a configuration whose background loops do nothing, so that the test decides.
func quiet(t testing.TB, dir string) Config {
	cfg := testConfig(t, dir)
	cfg.FlushInterval, cfg.PointInterval, cfg.FS = time.Hour, time.Hour, lazyFS{}
	return cfg
}

// reference is what a store that never fell holds after all entries.
func reference(t *testing.T, history [][]command) map[string]string {
	t.Helper()
	cfg := quiet(t, t.TempDir())
	s := open(t, cfg)
	applyFrom(t, s, history, 0)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return contents(t, cfg.Dir)
}

// applyFrom applies history[from:] and publishes.
func applyFrom(t *testing.T, s *Store, history [][]command, from int) {
	t.Helper()
	for i := from; i < len(history); i++ {
		apply(t, s, uint64(i+1), history[i]...)
	}
	s.Publish()
}

// TestSameBytes: two nodes are fed the same entries; one is stopped or killed at every step of
// every entry and goes on from its disk. Log and queues end up the same, byte for byte.
func TestSameBytes(t *testing.T) {
	leakCheck(t)
	history := randomEntries(11, 12)
	big := command{topic: "T0", bodies: [][]byte{make([]byte, 30_000)}}
	for _, i := range []int{3, 4, 8, 9, 10} { // rolls
		history[i] = append(history[i], big)
	}
	want := reference(t, history)
	running := quiet(t, t.TempDir())
	s := open(t, running)
	for i, commands := range history {
		// The steps of an entry. A folder copied between two of them is a node killed there.
		steps := []func() error{
			func() error { return nil },
			func() error { return s.BeginEntry(uint64(i+1), 1) },
		}
		for _, c := range commands {
			steps = append(steps, func() error {
				_, err := s.Append([]byte(c.topic), c.queueID, c.records(), len(c.bodies))
				return err
			})
		}
		steps = append(steps, func() error { return s.EndEntry() }, func() error { s.Publish(); return nil },
			func() error { waitDispatched(t, s); return nil })
		if i%7 == 6 {
			steps = append(steps, func() error { return s.FlushAll() })
		}
		for k, step := range steps {
			if err := step(); err != nil {
				t.Fatal(err)
			}
			dir := t.TempDir()
			copyDir(t, running.Dir, dir)
			again := open(t, quiet(t, dir))
			r := again.Recovered()
			if int(r.RaftIndex) < i || int(r.RaftIndex) > i+1 {
				t.Fatalf("entry %d, step %d: recovered %+v", i+1, k, r)
			}
			applyFrom(t, again, history, 0)
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
			sameContents(t, contents(t, dir), want)
			os.RemoveAll(dir)
		}
		if i%5 == 4 { // the running one is stopped properly
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, running)
			applyFrom(t, s, history[:i+1], 0)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sameContents(t, contents(t, running.Dir), want)
}

// TestF01F03F07PowerLoss: of everything written since the last FlushAll each page may be on disk or
// not. What was flushed is there, the rest comes again from the Raft log, and the node ends
// up with its peers' bytes (F01, F03). What a consumer can have read and committed an offset for is there again: a
// max offset does not go back for good (F07).
func TestF01F03F07PowerLoss(t *testing.T) {
	leakCheck(t)
	history := randomEntries(12, 120)
	want := reference(t, history)
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		running := quiet(t, t.TempDir())
		s := open(t, running)
		flushed, end := rnd.IntN(len(history)), 0
		end = flushed + rnd.IntN(len(history)-flushed+1)
		applyFrom(t, s, history[:flushed], 0)
		position := s.Position()
		if err := s.FlushAll(); err != nil {
			t.Fatal(err)
		}
		durable, dir := t.TempDir(), t.TempDir()
		copyDir(t, running.Dir, durable)
		applyFrom(t, s, history[:end], flushed)
		if rnd.IntN(2) == 0 {
			waitDispatched(t, s)
		}
		seen := maxOffsets(s)
		copyDir(t, running.Dir, dir)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		losePages(t, rnd, durable, dir)
		s = open(t, quiet(t, dir))
		if r := s.Recovered(); r.RaftIndex < position.RaftIndex || r.LogEnd < position.LogEnd {
			t.Fatalf("seed %d: recovered %+v, flushed %+v", seed, r, position)
		}
		if err := s.Restore(position); err != nil {
			t.Fatal(err)
		}
		applyFrom(t, s, history[:end], flushed)
		if got := maxOffsets(s); !maps.Equal(got, seen) {
			t.Fatalf("seed %d: max offsets %v, readers saw %v", seed, got, seen)
		}
		applyFrom(t, s, history, end)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		sameContents(t, contents(t, dir), want)
	}
}

// maxOffsets are what readers are told now.
func maxOffsets(s *Store) map[string]int64 {
	out := map[string]int64{}
	for topic := range 4 {
		for queue := range int32(4) {
			name := fmt.Sprintf("T%d", topic)
			out[fmt.Sprintf("%s/%d", name, queue)] = s.MaxOffset(name, queue)
		}
	}
	return out
}

// losePages takes random pages of dir's files back to what they are in durable: zero, when
// the file or page is not there. New files may be missing altogether, the last ones first, as
// a folder is synced before a file in it counts.
func losePages(t *testing.T, rnd *rand.Rand, durable, dir string) {
	t.Helper()
	var missing []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		now, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		old, err := os.ReadFile(filepath.Join(durable, rel))
		if errors.Is(err, fs.ErrNotExist) && strings.HasPrefix(rel, queueDir) && rnd.IntN(3) == 0 {
			missing = append(missing, path)
			return nil
		}
		old = append(old, make([]byte, max(0, len(now)-len(old)))...)
		for at := 0; at < len(now); at += 4096 {
			if rnd.IntN(2) == 0 {
				copy(now[at:min(at+4096, len(now))], old[at:])
			}
		}
		return writeSparse(path, now)
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range missing {
		// With all that come after it.
		files, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*"))
		for _, f := range files {
			if f >= path {
				os.Remove(f)
			}
		}
	}
}

// TestF39F43DamagedQueueFiles: whatever happened to the queues, they are built again from the log
// (F39, F43).
func TestF39F43DamagedQueueFiles(t *testing.T) {
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i*7 + i>>8)
		}
		return b
	}
	each := func(f func(path string) error) func(dir string) error {
		return func(dir string) error {
			files, err := filepath.Glob(filepath.Join(dir, queueDir, "T1", "1", "*"))
			if err != nil || len(files) < 2 {
				return fmt.Errorf("files %v: %w", files, err)
			}
			return f(files[len(files)-1])
		}
	}
	for name, harm := range map[string]func(dir string) error{
		"all queues gone":   func(dir string) error { return os.RemoveAll(filepath.Join(dir, queueDir)) },
		"a topic gone":      func(dir string) error { return os.RemoveAll(filepath.Join(dir, queueDir, "T1")) },
		"point gone":        func(dir string) error { return os.Remove(filepath.Join(dir, pointName)) },
		"point of zeroes":   func(dir string) error { return os.WriteFile(filepath.Join(dir, pointName), make([]byte, 8192), 0o644) },
		"last file gone":    each(os.Remove),
		"last file empty":   each(func(path string) error { return os.Truncate(path, 0) }),
		"last file short":   each(func(path string) error { return os.Truncate(path, 500) }),
		"last file zero":    each(func(path string) error { return os.WriteFile(path, make([]byte, testQueueFile), 0o644) }),
		"last file garbage": each(func(path string) error { return os.WriteFile(path, noise(testQueueFile), 0o644) }),
		"first file gone":   each(func(path string) error { return os.Remove(filepath.Join(filepath.Dir(path), fmt.Sprintf("%020d", 0))) }),
	} {
		t.Run(name, func(t *testing.T) {
			leakCheck(t)
			cfg := quiet(t, t.TempDir())
			s := open(t, cfg)
			m := fill(t, s, 13, 250)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			want := contents(t, cfg.Dir)
			if err := harm(cfg.Dir); err != nil {
				t.Fatal(err)
			}
			for range 2 { // and again, now from a point
				s = open(t, cfg)
				m.check(t, s)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				sameContents(t, contents(t, cfg.Dir), want)
			}
		})
	}
}

// TestPointsMove: the background loop makes a restart cheap without a clean stop.
func TestPointsMove(t *testing.T) {
	leakCheck(t)
	cfg := testConfig(t, t.TempDir())
	cfg.PointInterval = time.Millisecond
	s := open(t, cfg)
	m := fill(t, s, 14, 100)
	_, end := s.LogRange()
	deadline := time.Now().Add(10 * time.Second)
	for {
		if _, written := s.points.state(); written.PhyOffset == end {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("point did not reach %d: %+v", end, s.Stats())
		}
		time.Sleep(time.Millisecond)
	}
	dir := t.TempDir()
	copyDir(t, cfg.Dir, dir)
	again := open(t, testConfig(t, dir))
	if again.points.written.PhyOffset != end {
		t.Fatalf("opened from %d, not %d", again.points.written.PhyOffset, end)
	}
	m.check(t, again)
}
