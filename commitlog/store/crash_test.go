package store

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"raftmq/commitlog/record"
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

// TestPowerLoss: of everything written since the last FlushAll each page may be on disk or
// not. What was flushed is there, the rest comes again from the Raft log, and the node ends
// up with its peers' bytes (F01, F03).
func TestPowerLoss(t *testing.T) {
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
		applyFrom(t, s, history, flushed)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		sameContents(t, contents(t, dir), want)
	}
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

// TestDamagedQueueFiles: whatever happened to the queues, they are built again from the log
// (F39, F43).
func TestDamagedQueueFiles(t *testing.T) {
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

// TestInstall: an empty node and one that is behind get a peer's bytes and end up with its
// log and queues.
func TestInstall(t *testing.T) {
	leakCheck(t)
	history := randomEntries(15, 200)
	peerConfig := quiet(t, t.TempDir())
	peer := open(t, peerConfig)
	var at, mid Position
	for i, commands := range history {
		apply(t, peer, uint64(i+1), commands...)
		if i == 99 {
			mid = peer.Position()
		}
		if i == 149 {
			at = peer.Position()
		}
	}
	settle(t, peer)
	for _, c := range []struct {
		name  string
		have  int // entries the node has already
		from  func(end int64) int64
		piece int
	}{
		{"empty", 0, func(int64) int64 { return 0 }, 1000},
		{"empty, byte by byte", 0, func(int64) int64 { return 0 }, 1},
		{"empty, at once", 0, func(int64) int64 { return 0 }, 1 << 30},
		{"behind, all of it", 60, func(int64) int64 { return 0 }, 3000},
		{"behind, what it lacks", 100, func(end int64) int64 { return end }, 3000},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := quiet(t, t.TempDir())
			s := open(t, cfg)
			applyFrom(t, s, history[:c.have], 0)
			if c.have == 100 {
				// A node that is behind has restored an earlier snapshot, too.
				if got := s.Position(); got.LogEnd != mid.LogEnd {
					t.Fatalf("at %+v", got)
				}
			}
			_, end := s.LogRange()
			install(t, s, peer, c.from(end), at, c.piece)
			applyFrom(t, s, history, 150)
			settle(t, s)
			if got, want := s.Position(), peer.Position(); fmt.Sprint(got) != fmt.Sprint(want) {
				t.Fatalf("position %+v\nwant %+v", got, want)
			}
			for range 2 {
				compare(t, s, peer)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open(t, cfg)
				if got := s.Recovered(); got.RaftIndex != 200 {
					t.Fatalf("recovered %+v", got)
				}
			}
		})
	}
	if err := peer.Close(); err != nil {
		t.Fatal(err)
	}
}

// install sends [from, p.LogEnd) of the peer's log.
func install(t *testing.T, s, peer *Store, from int64, p Position, piece int) {
	t.Helper()
	in, err := s.Install(from, p.LogEnd)
	if err != nil {
		t.Fatal(err)
	}
	send(t, in, peer, from, p.LogEnd, piece)
	if err := in.Commit(p); err != nil {
		t.Fatal(err)
	}
	if s.DispatchedTo() != p.LogEnd {
		t.Fatalf("dispatched to %d, not to %d", s.DispatchedTo(), p.LogEnd)
	}
}

func send(t *testing.T, in Installer, peer *Store, from, to int64, piece int) {
	t.Helper()
	for from < to {
		b, release, err := peer.ReadLog(from, int(min(int64(piece), to-from)))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write(b); err != nil {
			t.Fatal(err)
		}
		from += int64(len(b))
		release()
	}
}

// compare reads both stores.
func compare(t *testing.T, s, peer *Store) {
	t.Helper()
	low, end := s.LogRange()
	if _, peerEnd := peer.LogRange(); end != peerEnd {
		t.Fatalf("log [%d, %d), the peer's ends at %d", low, end, peerEnd)
	}
	got, err := s.Checksum(low, end)
	if err != nil {
		t.Fatal(err)
	}
	want, err := peer.Checksum(low, end)
	if err != nil || got != want {
		t.Fatalf("checksum %#x, want %#x, %v", got, want, err)
	}
	if s.queues.Len() != peer.queues.Len() {
		t.Fatalf("%d queues, want %d", s.queues.Len(), peer.queues.Len())
	}
	var a, b GetResult
	defer a.Release()
	defer b.Release()
	for topic := range 4 {
		for queue := range int32(3) {
			name := fmt.Sprintf("T%d", topic)
			for n := s.MinOffset(name, queue); n < peer.MaxOffset(name, queue); {
				req := GetRequest{Topic: []byte(name), QueueID: queue, Offset: n, MaxMsgs: 32}
				s.Get(&req, &a)
				peer.Get(&req, &b)
				if a.Status != Found || a.NextBeginOffset != b.NextBeginOffset || a.Bytes != b.Bytes ||
					!bytes.Equal(bytes.Join(a.Buffers, nil), bytes.Join(b.Buffers, nil)) {
					t.Fatalf("%s/%d at %d: %v next %d, peer %v next %d", name, queue, n, a.Status, a.NextBeginOffset, b.Status, b.NextBeginOffset)
				}
				n = a.NextBeginOffset
			}
		}
	}
}

// TestInstallFromTheMiddle: the peer's log does not begin at 0 any more. Queues begin where
// its first segment does.
func TestInstallFromTheMiddle(t *testing.T) {
	leakCheck(t)
	history := randomEntries(16, 400)
	peer := open(t, quiet(t, t.TempDir()))
	applyFrom(t, peer, history, 0)
	settle(t, peer)
	position := peer.Position()
	if position.LogEnd < 3*testSegment {
		t.Fatalf("log of %d bytes only", position.LogEnd)
	}
	cfg := quiet(t, t.TempDir())
	s := open(t, cfg)
	applyFrom(t, s, history[:10], 0)
	install(t, s, peer, testSegment, position, 10_000)
	for range 2 {
		if low, end := s.LogRange(); low != testSegment || end != position.LogEnd {
			t.Fatalf("log [%d, %d)", low, end)
		}
		if low := s.MinOffset("T1", 1); low == 0 || low >= s.MaxOffset("T1", 1) {
			t.Fatalf("queue begins at %d", low)
		}
		var res GetResult
		s.Get(&GetRequest{Topic: []byte("T1"), QueueID: 1, Offset: 0, MaxMsgs: 1}, &res)
		if res.Status != OffsetTooSmall || res.NextBeginOffset != s.MinOffset("T1", 1) {
			t.Fatalf("%v next %d", res.Status, res.NextBeginOffset)
		}
		compare(t, s, peer)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = open(t, cfg)
	}
}

// TestHalfInstalled: an installation that was killed, aborted or refused leaves nothing of it
// behind, and the next one works.
func TestHalfInstalled(t *testing.T) {
	leakCheck(t)
	history := randomEntries(17, 200)
	peer := open(t, quiet(t, t.TempDir()))
	applyFrom(t, peer, history, 0)
	settle(t, peer)
	p := peer.Position()
	for _, extend := range []bool{false, true} {
		for _, end := range []string{"killed", "closed", "aborted", "short", "wrong bytes", "foreign place"} {
			t.Run(fmt.Sprintf("extend=%v/%s", extend, end), func(t *testing.T) {
				cfg := quiet(t, t.TempDir())
				s := open(t, cfg)
				applyFrom(t, s, history[:50], 0)
				settle(t, s)
				_, before := s.LogRange()
				from := int64(0)
				if extend {
					from = before
				}
				in, err := s.Install(from, p.LogEnd)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := s.Install(from, p.LogEnd); !errors.Is(err, ErrInstall) {
					t.Fatalf("a second one: %v", err)
				}
				send(t, in, peer, from, (from+p.LogEnd)/2, 999)
				var res GetResult
				s.Get(&GetRequest{Topic: []byte("T1"), QueueID: 1, Offset: 3, MaxMsgs: 1}, &res)
				if extend && res.Status != Found || !extend && (res.Status != OffsetFoundNull || res.NextBeginOffset != 3) || s.Replacing() == extend {
					t.Fatalf("meanwhile: %v next %d", res.Status, res.NextBeginOffset)
				}
				res.Release()
				reopen := func() {
					if err := s.Close(); err != nil {
						t.Fatal(err)
					}
					s = open(t, cfg)
				}
				bad := func(change func(b []byte)) {
					b, release, err := peer.ReadLog((from+p.LogEnd)/2, 5000)
					if err != nil {
						t.Fatal(err)
					}
					b = bytes.Clone(b)
					release()
					change(b)
					_, err = in.Write(b)
					if err == nil {
						_, err = in.Write(make([]byte, 20_000))
					}
					if !errors.Is(err, ErrInstall) {
						t.Fatalf("bad bytes: %v", err)
					}
					if err := in.Commit(p); !errors.Is(err, ErrInstall) {
						t.Fatalf("commit: %v", err)
					}
				}
				switch end {
				case "killed":
					dir := t.TempDir()
					copyDir(t, cfg.Dir, dir)
					s.Close()
					cfg.Dir = dir
					s = open(t, cfg)
				case "closed":
					reopen()
				case "aborted":
					err = in.Abort()
				case "short":
					if err := in.Commit(p); !errors.Is(err, ErrInstall) {
						t.Fatalf("half of it: %v", err)
					}
					err = in.Abort()
				case "wrong bytes":
					bad(func(b []byte) {
						for i := range b {
							b[i] ^= 0x55
						}
					})
					err = in.Abort()
				case "foreign place":
					bad(func(b []byte) { clear(b) })
					err = in.Abort()
				}
				if err != nil {
					t.Fatal(err)
				}
				low, now := s.LogRange()
				want := int64(0)
				if extend {
					want = before
				}
				if low != 0 || now != want || s.Replacing() {
					t.Fatalf("log [%d, %d), want [0, %d)", low, now, want)
				}
				if ok, err := s.folder.exists(installName); ok || err != nil {
					t.Fatalf("marker is there: %v", err)
				}
				install(t, s, peer, now, p, 5000)
				compare(t, s, peer)
				reopen()
				compare(t, s, peer)
			})
		}
	}
}

// TestInstallVerifies: bytes that are no log at all, or a log of another place or segment size.
func TestInstallVerifies(t *testing.T) {
	leakCheck(t)
	good := command{topic: "A", bodies: [][]byte{body(100)}}
	rec := good.records()
	record.PatchOffsets(rec, 0, 0)
	flipped := bytes.Clone(rec)
	flipped[120] ^= 1
	elsewhere := bytes.Clone(rec)
	record.PatchOffsets(elsewhere, 0, 192)
	for name, b := range map[string][]byte{
		"zeroes":                make([]byte, 500),
		"bit flip in a body":    flipped,
		"another offset":        elsewhere,
		"filler too early":      append(bytes.Clone(rec), record.AppendBlank(nil, 64)...),
		"too long":              append(bytes.Clone(rec), make([]byte, 1000)...),
		"larger than a segment": (&command{topic: "A", bodies: [][]byte{body(testSegment)}}).records(),
	} {
		for _, piece := range []int{1, 1 << 20} {
			s := open(t, quiet(t, t.TempDir()))
			in, err := s.Install(0, 600)
			if name == "larger than a segment" {
				in, err = func() (Installer, error) { in.Abort(); return s.Install(0, 1<<20) }()
			}
			if err != nil {
				t.Fatal(err)
			}
			for rest := b; len(rest) > 0 && err == nil; {
				n := min(piece, len(rest))
				_, err = in.Write(rest[:n])
				rest = rest[n:]
			}
			if !errors.Is(err, ErrInstall) {
				t.Errorf("%s in pieces of %d: %v", name, piece, err)
			}
			if err := in.Abort(); err != nil {
				t.Error(err)
			}
			if _, end := s.LogRange(); end != 0 {
				t.Errorf("%s: log end %d", name, end)
			}
			s.Close()
		}
	}
}
