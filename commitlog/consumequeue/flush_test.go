package consumequeue

import (
	"testing"

	"raftmq/commitlog/mappedfile"
)

// hookFS calls hook before a queue file is made.
type hookFS struct {
	mappedfile.OS
	hook func()
}

func (h *hookFS) Create(path string, size int64) (mappedfile.Handle, error) {
	if h.hook != nil {
		h.hook()
	}
	return h.OS.Create(path, size)
}

// TestFlushInsideWrite: a flush in the middle of a write, when a new queue has no file yet or an old one gets its next, does not fail,
// and the units written after it belong to the next flush.
func TestFlushInsideWrite(t *testing.T) {
	fs := &hookFS{}
	c := testConfig(t.TempDir() + "/consumequeue")
	c.FS = fs
	s, err := Open(c, Point{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	b := s.NewBatch()
	flushes, phy := 0, int64(0)
	fs.hook = func() {
		flushes++
		if err := s.Flush(); err != nil {
			t.Errorf("flush %d: %v", flushes, err)
		}
	}
	for n := range int64(3 * testFileSize / UnitSize) {
		if err := b.Add([]byte("T"), 0, n, Unit{PhyOffset: phy, Size: 100}); err != nil {
			t.Fatal(err)
		}
		phy += 100
		before := flushes
		if err := b.Write(); err != nil {
			t.Fatal(err)
		}
		q := s.QueueOf("T", 0)
		if s.dirty.Lock(); flushes > before && (len(s.dirty.queues) != 1 || !q.dirty.Load()) {
			t.Errorf("unit %d was written behind a flush, and the next one leaves its queue out", n)
		}
		s.dirty.Unlock()
		if err := s.Flush(); err != nil {
			t.Fatal(err)
		}
		if files, err := s.pool.get(q); err != nil || files.FlushedOffset() < (n+1)*UnitSize {
			t.Fatalf("unit %d is not durable after a flush (%v)", n, err)
		}
	}
	if flushes != 3 {
		t.Fatalf("%d flushes inside a write, want 3", flushes)
	}
}
