package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
)

// indexFiles lists the index files by name.
func indexFiles(t testing.TB, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, indexDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	return files
}

// logBuffer is what a store logs.
type logBuffer struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBuffer) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

// TestF41EqualHashes: keys and topics of equal hashes are told apart, and none hides another.
func TestF41EqualHashes(t *testing.T) {
	leakCheck(t)
	s := open(t, quiet(t, t.TempDir()))
	m := newModel()
	var last int64
	for i := range 40 {
		// AaAa, AaBB, BBAa, BBBB hash alike, as keys and in topics, with "#" between too.
		c := command{
			topic: "T" + []string{"AaAa", "AaBB", "BBAa", "BBBB"}[i%4], keys: []string{"AaAa", "AaBB", "BBAa BBBB"}[i%3],
			bodies: [][]byte{{1}, {2}}, stored: int64(i) * 100,
		}
		got := apply(t, s, uint64(i+1), c)
		var err error
		if last, err = m.add(last, []command{c}, got); err != nil {
			t.Fatal(err)
		}
	}
	s.Publish()
	m.checkKeys(t, s)
	for _, key := range []string{"AaAaAa", "A", "", "AaAa BBBB", "T"} {
		if got := query(t, s, QueryRequest{Topic: "TAaAa", Key: key, Max: 64, End: math.MaxInt64}); len(got) > 0 {
			t.Errorf("key %q: %v", key, got)
		}
	}
	// One of many equal hashes, and asked for one only.
	want := m.queues["TBBBB/0"]
	q := QueryRequest{Topic: "TBBBB", Key: want[len(want)-1].uniq, Max: 1, End: math.MaxInt64}
	if got := query(t, s, q); len(got) != 1 || got[0] != want[len(want)-1].phy {
		t.Errorf("%v, want %d", got, want[len(want)-1].phy)
	}
	q.Unique, q.Key = true, "AaAa" // one of KEYS, not the unique one
	if got := query(t, s, q); len(got) > 0 {
		t.Errorf("KEYS as unique key: %v", got)
	}
}

// TestQueryLimits: numbers, times and bytes.
func TestQueryLimits(t *testing.T) {
	leakCheck(t)
	cfg := quiet(t, t.TempDir())
	cfg.SegmentSize = 64 << 20
	s := open(t, cfg)
	var phys []int64
	for i := range 100 {
		c := command{topic: "T", keys: "k", bodies: [][]byte{{1}}, stored: 1_600_000_000_000 + int64(i)*250}
		phys = append(phys, apply(t, s, uint64(i+1), c)[0].PhyOffset)
	}
	s.Publish()
	at := func(i int) int64 { return 1_600_000_000_000 + int64(i)*250 }
	for _, c := range []struct {
		max        int
		begin, end int64
		want       []int64
	}{
		{1000, 0, math.MaxInt64, phys[100-64:]},
		{64, math.MinInt64, math.MaxInt64, phys[100-64:]},
		{1, 0, math.MaxInt64, phys[99:]},
		{0, 0, math.MaxInt64, nil},
		{-1, 0, math.MaxInt64, nil},
		{64, at(99), math.MaxInt64, phys[99:]},
		{64, at(99) + 1, math.MaxInt64, nil},
		{64, at(90) - 1, math.MaxInt64, phys[90:]},
		{64, 0, at(0) - 1, nil},
		{64, 0, at(0), phys[:4]}, // the second's end
		{64, at(10), at(19), phys[10:20]},
		{64, at(10), at(16), phys[10:20]},
		{64, math.MaxInt64, math.MinInt64, nil},
	} {
		if got := query(t, s, QueryRequest{Topic: "T", Key: "k", Max: c.max, Begin: c.begin, End: c.end}); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v", c, got)
		}
	}
	body := make([]byte, 3<<20)
	for i := range 6 {
		apply(t, s, uint64(101+i), command{topic: "T", keys: "big", bodies: [][]byte{body}, stored: at(200)})
	}
	s.Publish()
	res, err := s.Query(t.Context(), QueryRequest{Topic: "T", Key: "big", Max: 64, End: math.MaxInt64})
	if err != nil {
		t.Fatal(err)
	}
	size := 0
	for _, b := range res.Records {
		size += len(b)
	}
	if len(res.Records) != 4 || size > maxQueryBytes {
		t.Errorf("%d records of %d bytes", len(res.Records), size)
	}
	res.Release()
	res.Release()
}

// TestF43IndexDamage: whatever happened to the index's files, the node starts and builds them again
// from the log, and says so once (F43).
func TestF43IndexDamage(t *testing.T) {
	noise := func(path string) error {
		b, err := os.ReadFile(path)
		for i := range b {
			b[i] = byte(i*7 + i>>8)
		}
		return errors.Join(err, os.WriteFile(path, b, 0o644))
	}
	each := func(files []string, f func(path string) error) (err error) {
		for _, file := range files {
			err = errors.Join(err, f(file))
		}
		return err
	}
	points := func(dir string) []string {
		files, err := filepath.Glob(filepath.Join(dir, indexPointName+".*"))
		if err != nil || len(files) == 0 {
			t.Fatalf("points %v: %v", files, err)
		}
		return files
	}
	for name, harm := range map[string]func(dir string, files []string) error{
		"folder gone": func(dir string, _ []string) error { return os.RemoveAll(filepath.Join(dir, indexDir)) },
		"points gone": func(dir string, files []string) error {
			return each(points(dir), os.Remove)
		},
		"points noise": func(dir string, files []string) error {
			return each(points(dir), noise)
		},
		"first gone": func(_ string, files []string) error { return os.Remove(files[0]) },
		"last gone":  func(_ string, files []string) error { return os.Remove(files[len(files)-1]) },
		"all empty": func(_ string, files []string) error {
			return each(files, func(f string) error { return os.Truncate(f, 0) })
		},
		"last empty":  func(_ string, files []string) error { return os.Truncate(files[len(files)-1], 0) },
		"second cut":  func(_ string, files []string) error { return os.Truncate(files[1], 777) },
		"all noise":   func(_ string, files []string) error { return each(files, noise) },
		"last noise":  func(_ string, files []string) error { return noise(files[len(files)-1]) },
		"first noise": func(_ string, files []string) error { return noise(files[0]) },
		"everything gone": func(dir string, _ []string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, indexDir)), each(points(dir), os.Remove))
		},
	} {
		t.Run(name, func(t *testing.T) {
			leakCheck(t)
			cfg := quiet(t, t.TempDir())
			var log logBuffer
			cfg.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: &log})
			s := open(t, cfg)
			m := fill(t, s, 13, 200)
			if err := errors.Join(s.FlushAll(), s.Close()); err != nil {
				t.Fatal(err)
			}
			want := contents(t, cfg.Dir)
			files := indexFiles(t, cfg.Dir)
			if len(files) < 3 {
				t.Fatalf("%d index files", len(files))
			}
			if err := harm(cfg.Dir, files); err != nil {
				t.Fatal(err)
			}
			for i := range 2 { // and again, now from a point
				log.reset()
				s = open(t, cfg)
				m.check(t, s)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				sameContents(t, contents(t, cfg.Dir), want)
				told := strings.Count(log.String(), "building key index again")
				if wanted := 1 - i; told != wanted && name != "everything gone" {
					t.Fatalf("start %d told %d times\n%s", i, told, log.String())
				}
			}
		})
	}
}

// TestIndexDamageWhileRunning: a query finds damage; it does not answer from it, and the index is
// built again beside the running store.
func TestIndexDamageWhileRunning(t *testing.T) {
	leakCheck(t)
	cfg := quiet(t, t.TempDir())
	s := open(t, cfg)
	m := fill(t, s, 13, 200)
	if err := errors.Join(s.FlushAll(), s.Close()); err != nil {
		t.Fatal(err)
	}
	files := indexFiles(t, cfg.Dir)
	f, err := os.OpenFile(files[1], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	// All slots name an entry that is of none of them.
	slots := make([]byte, 4*testSlots)
	for i := 3; i < len(slots); i += 4 {
		slots[i] = 77
	}
	_, err = f.WriteAt(slots, 40)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	cfg.ScrubRate = -1 // it could be first
	s = open(t, cfg)
	behind := 0
	q := QueryRequest{Topic: "T1", Key: "none", Max: 64, End: math.MaxInt64}
	for deadline := time.Now().Add(time.Minute); ; {
		_, err := s.Query(t.Context(), q)
		if err == nil {
			break
		}
		if !errors.Is(err, ErrIndexBehind) || time.Now().After(deadline) {
			t.Fatal(err)
		}
		behind++
	}
	if behind == 0 {
		t.Error("no query found the damage")
	}
	m.check(t, s)
}

// TestIndexOff: without an index a query is refused, and an index that was switched off neither
// meets another log nor starts anew when it is switched on again.
func TestIndexOff(t *testing.T) {
	leakCheck(t)
	cfg := quiet(t, t.TempDir())
	s := open(t, cfg)
	first := fill(t, s, 13, 100)
	if err := errors.Join(s.FlushAll(), s.Close()); err != nil {
		t.Fatal(err)
	}
	off := cfg
	off.MessageIndexEnable = false
	s = open(t, off)
	if _, err := s.Query(t.Context(), QueryRequest{Topic: "T1", Key: "Aa", Max: 1, End: 1}); !errors.Is(err, ErrIndexOff) {
		t.Fatalf("query: %v", err)
	}
	if st := s.Stats(); st.IndexFiles != 0 || st.IndexedTo != 0 {
		t.Fatalf("stats %+v", st)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	first.check(t, s)
	if from := s.index.flushed.Load(); from != s.log.MaxOffset() {
		t.Fatalf("built again up to %d", from)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	// The log is replaced while the index is off.
	peer := open(t, quiet(t, t.TempDir()))
	second := fill(t, peer, 77, 150)
	s = open(t, off)
	install(t, s, peer, 0, peer.Position(), 1<<20)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if files := indexFiles(t, cfg.Dir); len(files) > 0 {
		t.Fatalf("still there: %v", files)
	}
	s = open(t, cfg)
	second.check(t, s)
}

// TestIndexWaitsForSpace: a full disk lets the index fall behind; queries say so, nothing else
// stops, and it goes on by itself (F27).
func TestIndexWaitsForSpace(t *testing.T) {
	leakCheck(t)
	cfg := quiet(t, t.TempDir())
	fs := &failingFS{fail: func(op, path string) error {
		if op == "create" && strings.Contains(path, "/"+indexDir+"/") {
			return fmt.Errorf("test: %w", mappedfile.ErrNoSpace)
		}
		return nil
	}}
	fs.armed.Store(true)
	cfg.FS = fs
	s := open(t, cfg)
	m := newModel()
	var last int64
	for i, commands := range randomEntries(13, 100) {
		var err error
		if last, err = m.add(last, commands, apply(t, s, uint64(i+1), commands...)); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := s.Query(ctx, QueryRequest{Topic: "T1", Key: "Aa", Max: 1, End: math.MaxInt64})
	if !errors.Is(err, ErrIndexBehind) {
		t.Fatalf("query: %v", err)
	}
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	if st := s.Stats(); st.IndexedTo >= st.MaxOffset || st.DispatchedTo != st.MaxOffset {
		t.Fatalf("stats %+v", st)
	}
	fs.armed.Store(false)
	m.check(t, s)
	if st := s.Stats(); st.IndexedTo != st.MaxOffset || st.IndexFiles == 0 || st.IndexEntries == 0 {
		t.Fatalf("stats %+v", st)
	}
	// It may also be full when the store stops, and the next start goes on.
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(cfg.Dir, indexDir)); err != nil {
		t.Fatal(err)
	}
	fs.armed.Store(true)
	s = open(t, cfg)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	fs.armed.Store(false)
	s = open(t, cfg)
	m.check(t, s)
}

// TestTransactionTypes: prepared records are indexed, rolled back ones aren't.
func TestTransactionTypes(t *testing.T) {
	leakCheck(t)
	s := open(t, quiet(t, t.TempDir()))
	var want []int64
	for i, flag := range []int32{0, record.SysFlagPrepared, record.SysFlagCommit, record.SysFlagRollback} {
		a := apply(t, s, uint64(i+1), command{topic: "T", keys: "k", bodies: [][]byte{{1}}, sysFlag: flag, stored: 1000})
		if flag != record.SysFlagRollback {
			want = append(want, a[0].PhyOffset)
		}
	}
	s.Publish()
	if got := query(t, s, QueryRequest{Topic: "T", Key: "k", Max: 64, End: math.MaxInt64}); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// TestIndexOvertaken: old segments go before the index, which waited for space, has come to
// them. It goes on behind them. And with the segments go the index files of nothing else.
func TestIndexOvertaken(t *testing.T) {
	leakCheck(t)
	cfg := quiet(t, t.TempDir())
	fs := &failingFS{fail: func(op, path string) error {
		if op == "create" && strings.Contains(path, "/"+indexDir+"/") {
			return fmt.Errorf("test: %w", mappedfile.ErrNoSpace)
		}
		return nil
	}}
	fs.armed.Store(true)
	cfg.FS = fs
	s := open(t, cfg)
	history := randomEntries(13, 200)
	applyFrom(t, s, history, 0)
	settle(t, s)
	_, end := s.LogRange()
	low := end - end%testSegment - testSegment
	if low < 3*testSegment {
		t.Fatalf("log of %d bytes", end)
	}
	if err := s.Trim(low); err != nil {
		t.Fatal(err)
	}
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	fs.armed.Store(false)
	check := func() {
		t.Helper()
		got := query(t, s, QueryRequest{Topic: "T1", Key: "Aa", Max: 64, End: math.MaxInt64})
		if len(got) == 0 || got[0] < low {
			t.Fatalf("log from %d: %v", low, got)
		}
		if st := s.Stats(); st.IndexedTo != end {
			t.Fatalf("indexed to %d of %d", st.IndexedTo, end)
		}
	}
	check()
	files := len(indexFiles(t, cfg.Dir))
	// More of it goes while the index is up to date.
	for i := range 300 {
		apply(t, s, uint64(201+i), command{topic: "T1", keys: "Aa", bodies: [][]byte{make([]byte, 1000)}, stored: 1_600_000_100_000})
	}
	settle(t, s)
	waitIndexed(t, s)
	_, end = s.LogRange()
	low = end - end%testSegment
	if err := s.Trim(low); err != nil {
		t.Fatal(err)
	}
	check()
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	if now := indexFiles(t, cfg.Dir); len(now) > files+1 || len(now) == 0 {
		t.Fatalf("index files %v, there were %d", now, files)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	check()
}
