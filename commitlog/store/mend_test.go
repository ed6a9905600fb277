package store

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"raftmq/commitlog/consumequeue"
)

// TestQueueFileLostWhileOpen: a consume queue's file is cut or removed under the running store, which goes on: readers are told to come again, new messages come into the queue, and
// the files are what they were, byte for byte.
func TestQueueFileLostWhileOpen(t *testing.T) {
	const inFile = testQueueFile / consumequeue.UnitSize
	path := func(dir string, file int64) string {
		return filepath.Join(dir, queueDir, "A", "1", fmt.Sprintf("%020d", file*testQueueFile))
	}
	for name, tt := range map[string]struct {
		do       func(dir string) error
		from, to int64 // units that a reader may not get at once; none: only the scrub finds it
	}{
		"cut to nothing":       {func(dir string) error { return os.Truncate(path(dir, 0), 0) }, 0, inFile},
		"cut in the middle":    {func(dir string) error { return os.Truncate(path(dir, 1), 10*consumequeue.UnitSize+7) }, inFile, 2 * inFile},
		"the last cut":         {func(dir string) error { return os.Truncate(path(dir, 2), 0) }, 2 * inFile, 120},
		"removed":              {func(dir string) error { return os.Remove(path(dir, 1)) }, 0, 0},
		"the last one removed": {func(dir string) error { return os.Remove(path(dir, 2)) }, 0, 0},
		"all removed":          {func(dir string) error { return os.RemoveAll(filepath.Join(dir, queueDir, "A")) }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			leakCheck(t)
			cfg := quiet(t, t.TempDir())
			cfg.ScrubRate, cfg.Logger = 1<<40, nil
			s := open(t, cfg)
			var index uint64
			send := func(n int) {
				for range n {
					index++
					apply(t, s, index, command{topic: "A", queueID: 1, tag: "t", bodies: [][]byte{fmt.Appendf(nil, "a%d", index-1)}}, command{topic: "B", queueID: 1, bodies: [][]byte{body(9)}})
				}
				settle(t, s)
			}
			send(120)
			if err := s.FlushAll(); err != nil {
				t.Fatal(err)
			}
			if err := tt.do(cfg.Dir); err != nil {
				t.Fatal(err)
			}
			if tt.to > 0 {
				for n := tt.from; n < tt.to; n++ { // whole pages of a cut file may still be there
					if got := get(s, "A", 1, n); got != Found && got != OffsetFoundNull {
						t.Fatalf("offset %d: %v", n, got)
					}
				}
			}
			if got := get(s, "B", 1, 3); got != Found {
				t.Fatalf("another queue: %v", got)
			}
			send(10)
			passes := s.ScrubStats().Passes
			s.ScrubNow()
			eventually(t, "a pass", func() bool { return s.ScrubStats().Passes > passes })
			for n := range int64(130) {
				eventually(t, fmt.Sprint("message ", n), func() bool { return get(s, "A", 1, n) == Found })
				var res GetResult
				s.Get(&GetRequest{Topic: []byte("A"), QueueID: 1, Offset: n, MaxMsgs: 1}, &res)
				if got := string(split(t, &res)[0].Body()); got != fmt.Sprint("a", n) {
					t.Fatalf("offset %d has %q", n, got)
				}
				res.Release()
			}
			if err := s.FlushAll(); err != nil {
				t.Fatal(err)
			}
			// What a store that was let alone has.
			other := quiet(t, t.TempDir())
			other.ScrubRate = -1
			o := open(t, other)
			for i := range uint64(130) {
				apply(t, o, i+1, command{topic: "A", queueID: 1, tag: "t", bodies: [][]byte{fmt.Appendf(nil, "a%d", i)}}, command{topic: "B", queueID: 1, bodies: [][]byte{body(9)}})
			}
			settle(t, o)
			if err := o.FlushAll(); err != nil {
				t.Fatal(err)
			}
			sameContents(t, contents(t, cfg.Dir), contents(t, other.Dir))
		})
	}
}

// TestQueueFileCutUnderTheWriter: dispatch meets the cut file first.
func TestQueueFileCutUnderTheWriter(t *testing.T) {
	leakCheck(t)
	cfg := quiet(t, t.TempDir())
	cfg.ScrubRate, cfg.Logger = -1, nil
	s := open(t, cfg)
	for i := range uint64(5) {
		apply(t, s, i+1, command{topic: "A", bodies: [][]byte{fmt.Appendf(nil, "%d", i)}})
	}
	settle(t, s)
	if err := os.Truncate(filepath.Join(cfg.Dir, queueDir, "A", "0", fmt.Sprintf("%020d", 0)), 0); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(5) {
		apply(t, s, i+6, command{topic: "A", bodies: [][]byte{fmt.Appendf(nil, "%d", i+5)}})
	}
	settle(t, s)
	for n := range int64(10) {
		eventually(t, fmt.Sprint("message ", n), func() bool { return get(s, "A", 0, n) == Found })
	}
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
}
