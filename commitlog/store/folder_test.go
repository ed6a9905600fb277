package store

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestRefusals: folders and settings that can't be used are refused with the reason, and
// nothing in them is changed.
func TestRefusals(t *testing.T) {
	meta := func(s string) func(dir string) error {
		return func(dir string) error { return os.WriteFile(filepath.Join(dir, metaName), []byte(s), 0o644) }
	}
	for _, c := range []struct {
		name   string
		before func(dir string) error
		change func(cfg *Config)
		is     error
		want   []string
	}{
		{"newer format", meta(`{"formatVersion": 2, "segmentSize": 65536, "queueFileSize": 1000}`), nil, ErrFolder, []string{"format version 2", "reads 1"}},
		{"no format", meta(`{}`), nil, ErrFolder, []string{"format version 0"}},
		{"no JSON", meta(`x`), nil, ErrFolder, []string{metaName}},
		{"segment size", meta(`{"formatVersion": 1, "segmentSize": 131072, "queueFileSize": 1000}`), nil, ErrFolder, []string{"131072", "65536"}},
		{"foreign log", func(dir string) error {
			return errors.Join(os.Mkdir(filepath.Join(dir, commitLogDir), 0o755),
				os.WriteFile(filepath.Join(dir, commitLogDir, strings.Repeat("0", 20)), make([]byte, testSegment), 0o644))
		}, nil, ErrFolder, []string{commitLogDir, "another program"}},
		{"a file in its place", func(dir string) error {
			return errors.Join(os.Remove(dir), os.WriteFile(dir, nil, 0o644))
		}, nil, nil, []string{"data folder", "not a directory"}},
		{"no folder named", nil, func(cfg *Config) { cfg.Dir = "" }, nil, []string{"no data folder"}},
		{"odd segment size", nil, func(cfg *Config) { cfg.SegmentSize = 65537 }, nil, []string{"65537", "multiple of 4096"}},
		{"big segment size", nil, func(cfg *Config) { cfg.SegmentSize = 1 << 31 }, nil, []string{"2147483648"}},
		{"flush mode", nil, func(cfg *Config) { cfg.FlushMode = 7 }, nil, []string{"flush mode 7"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			leakCheck(t)
			dir := filepath.Join(t.TempDir(), "data")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if c.before != nil {
				if err := c.before(dir); err != nil {
					t.Fatal(err)
				}
			}
			cfg := testConfig(t, dir)
			if c.change != nil {
				c.change(&cfg)
			}
			s, err := Open(cfg)
			if err == nil {
				s.Close()
				t.Fatal("opened")
			}
			if c.is != nil && !errors.Is(err, c.is) {
				t.Errorf("got %v, want %v", err, c.is)
			}
			for _, w := range c.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("%q does not say %q", err, w)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, queueDir)); err == nil {
				t.Error("a refused folder got queues")
			}
		})
	}
}

// TestLocked: the second store on a folder is refused, and says who has it; the first goes on.
func TestLocked(t *testing.T) {
	leakCheck(t)
	cfg := testConfig(t, t.TempDir())
	s := open(t, cfg)
	_, err := Open(cfg)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), cfg.Dir) {
		t.Fatalf("got %v", err)
	}
	apply(t, s, 1, command{topic: "A", bodies: [][]byte{[]byte("x")}})
	settle(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	if s.MaxOffset("A", 0) != 1 {
		t.Fatal("message lost")
	}
}

// TestQueueFileSizeMayChange: it is local, and the queues are built again.
func TestQueueFileSizeMayChange(t *testing.T) {
	leakCheck(t)
	cfg := testConfig(t, t.TempDir())
	s := open(t, cfg)
	m := fill(t, s, 3, 100)
	for _, size := range []int64{2000, 6_000_000, 990} {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		cfg.QueueFileSize = size
		s = open(t, cfg)
		m.check(t, s)
	}
}

// fill applies random entries and returns what the store should hold.
func fill(t testing.TB, s *Store, seed uint64, n int) *model {
	t.Helper()
	m := newModel()
	var last int64
	for i, commands := range randomEntries(seed, n) {
		got := apply(t, s, uint64(i+1), commands...)
		var err error
		if last, err = m.add(last, commands, got); err != nil {
			t.Fatal(err)
		}
	}
	settle(t, s)
	m.check(t, s)
	return m
}

// TestF69NoFileOutside: a topic that is a path, and other names that are none, are refused
// before anything is written.
func TestF69NoFileOutside(t *testing.T) {
	leakCheck(t)
	root := t.TempDir()
	s := open(t, testConfig(t, filepath.Join(root, "a", "data")))
	long := strings.Repeat("T", 256)
	if err := s.BeginEntry(1, 1); err != nil {
		t.Fatal(err)
	}
	for _, topic := range []string{"..", "../../x", ".", "a/b", "a.b", "", "täg", "话题", "a b", "a\x00", long} {
		c := command{topic: topic, bodies: [][]byte{[]byte("x")}}
		rec := []byte(nil)
		if len(topic) <= 127 {
			rec = c.records()
		}
		if _, err := s.Append([]byte(topic), 0, rec, 1); !errors.Is(err, ErrRecords) {
			t.Errorf("%q: %v", topic, err)
		}
	}
	for _, id := range []int32{-1, -1 << 31} {
		c := command{topic: "A", queueID: id, bodies: [][]byte{[]byte("x")}}
		if _, err := s.Append([]byte("A"), id, c.records(), 1); !errors.Is(err, ErrRecords) {
			t.Errorf("queue %d: %v", id, err)
		}
	}
	for _, n := range []int{-1, 0, 2} {
		c := command{topic: "A", bodies: [][]byte{[]byte("x")}}
		if _, err := s.Append([]byte("A"), 0, c.records(), n); !errors.Is(err, ErrRecords) {
			t.Errorf("%d records: %v", n, err)
		}
	}
	other := command{topic: "B", bodies: [][]byte{[]byte("x")}}
	if _, err := s.Append([]byte("A"), 0, other.records(), 1); !errors.Is(err, ErrRecords) {
		t.Errorf("another topic's record: %v", err)
	}
	// The entry goes on, and what is legal works.
	long127 := strings.Repeat("T", 127)
	for _, topic := range []string{long127, "%RETRY%g", "a|b"} {
		c := command{topic: topic, bodies: [][]byte{[]byte("x")}}
		if _, err := s.Append([]byte(topic), 0, c.records(), 1); err != nil {
			t.Errorf("%q: %v", topic, err)
		}
	}
	if err := s.EndEntry(); err != nil {
		t.Fatal(err)
	}
	settle(t, s)
	if s.MaxOffset(long127, 0) != 1 || s.MaxOffset("..", 0) != 0 {
		t.Fatal("wrong offsets")
	}
	entries, err := os.ReadDir(filepath.Join(root, "a"))
	if err != nil || len(entries) != 1 {
		t.Fatalf("files outside: %v %v", entries, err)
	}
	queues, err := os.ReadDir(filepath.Join(root, "a", "data", queueDir))
	if err != nil || len(queues) != 3 {
		t.Fatalf("queue folders: %v %v", queues, err)
	}
}

func TestWaitFlushed(t *testing.T) {
	for _, mode := range []FlushMode{AsyncFlush, SyncFlush} {
		leakCheck(t)
		cfg := testConfig(t, t.TempDir())
		cfg.FlushMode, cfg.FlushInterval = mode, time.Millisecond
		s := open(t, cfg)
		if s.Mode() != mode {
			t.Fatalf("mode %d", s.Mode())
		}
		big := make([]byte, 8<<10) // more than the timed service's least pages together
		for i := range 20 {
			apply(t, s, uint64(i+1), command{topic: "A", bodies: [][]byte{big, big, big}})
			s.Publish()
			_, end := s.LogRange()
			got := make(chan error, 1)
			s.WaitFlushed(end, func(err error) { got <- err })
			select {
			case err := <-got:
				if err != nil {
					t.Fatal(err)
				}
			case <-time.After(10 * time.Second):
				t.Fatalf("mode %d: not flushed to %d: %+v", mode, end, s.Stats())
			}
			if st := s.Stats(); st.FlushedTo < end || st.MaxOffset != end {
				t.Fatalf("%+v, end %d", st, end)
			}
		}
		if st := s.Stats(); st.FlushCount == 0 || st.PutMessages != 60 || st.Queues != 1 || st.Segments < 2 {
			t.Fatalf("%+v", st)
		}
		_, end := s.LogRange()
		never := make(chan error, 1)
		s.WaitFlushed(end+1, func(err error) { never <- err })
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-never; err == nil {
			t.Fatal("flushed what is not there")
		}
	}
}
