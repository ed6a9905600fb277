package store

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/commitlog/mappedfile"
)

// pooled is a store with write buffers whose commit thread does nothing by itself for an hour.
func pooled(t testing.TB, dir string) Config {
	cfg := quiet(t, dir)
	cfg.TransientStorePoolSize, cfg.CommitInterval, cfg.CommitThoroughInterval, cfg.CommitLeastPages = 2, time.Hour, time.Hour, 1<<20
	return cfg
}

// TestPoolKeepsItsPromises: max offset counts what is acknowledged (F94), nothing is readable or dispatched before it is committed, and
// nobody says "not found" of it.
func TestPoolKeepsItsPromises(t *testing.T) {
	leakCheck(t)
	s := open(t, pooled(t, t.TempDir()))
	a := apply(t, s, 1, command{topic: "A", bodies: [][]byte{[]byte("one"), []byte("two")}, stored: 5})[0]
	s.Publish()
	time.Sleep(10 * time.Millisecond) // nothing can be waited for: it must not happen
	if _, end := s.LogRange(); end != 0 || s.DispatchedTo() != 0 || s.ReadableOffset("A", 0) != 0 {
		t.Fatalf("log end %d, dispatched to %d before the commit", end, s.DispatchedTo())
	}
	if got := s.MaxOffset("A", 0); got != 2 {
		t.Fatalf("max offset %d after two acknowledgements", got)
	}
	var res GetResult
	s.Get(&GetRequest{Topic: []byte("A"), Offset: 1, MaxMsgs: 1}, &res)
	if res.Status != OffsetOverflowOne || res.MaxOffset != 2 {
		t.Fatalf("a read of it: %v, max %d", res.Status, res.MaxOffset)
	}
	rec, release, err := s.RecordAt(a.PhyOffset)
	if err != nil {
		t.Fatalf("by its id: %v", err)
	}
	if !strings.Contains(string(rec), "one") {
		t.Fatal("another record")
	}
	release()
	waitDispatched(t, s)
	s.Get(&GetRequest{Topic: []byte("A"), Offset: 1, MaxMsgs: 1}, &res)
	if res.Status != Found {
		t.Fatalf("after the commit: %v", res.Status)
	}
	res.Release()
	// A query answers of all that was published.
	keyed := command{topic: "A", bodies: [][]byte{[]byte("three")}, stored: 6, keys: "k"}
	b := apply(t, s, 2, keyed)[0]
	s.Publish()
	if got := query(t, s, QueryRequest{Topic: "A", Key: "k", Max: 1, End: 10}); !slices.Equal(got, []int64{b.PhyOffset}) {
		t.Fatalf("query found %v, want %d", got, b.PhyOffset)
	}
	// FlushAll covers what is in buffers, as a snapshot needs it.
	apply(t, s, 3, command{topic: "A", bodies: [][]byte{[]byte("four")}, stored: 7})
	s.Publish()
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	if p, position := s.log.RecoveryPoint(), s.Position(); p.RaftIndex != 3 || p.LogEnd != position.LogEnd {
		t.Fatalf("recovery point %+v, position %+v", p, position)
	}
}

// TestPoolByItself: with RocketMQ's settings everything is readable soon, however little it is.
func TestPoolByItself(t *testing.T) {
	leakCheck(t)
	cfg := testConfig(t, t.TempDir())
	cfg.TransientStorePoolSize = 2
	s := open(t, cfg)
	m := fillSettled(t, s, 61, 300, func() {
		for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
			if _, end := s.LogRange(); end == s.Position().LogEnd && s.DispatchedTo() == end {
				return
			}
			if time.Now().After(deadline) {
				t.Fatal("not committed")
			}
		}
	})
	if s.TransientStorePoolDeficient() {
		t.Error("no buffer is free in a log that is committed")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.TransientStorePoolSize = 0
	m.check(t, open(t, cfg))
}

// fillSettled is fill for a store that needs its own way of settling.
func fillSettled(t *testing.T, s *Store, seed uint64, n int, settle func()) *model {
	t.Helper()
	m := newModel()
	var last int64
	for i, commands := range randomEntries(seed, n) {
		got := apply(t, s, uint64(i+1), commands...)
		s.Publish()
		var err error
		if last, err = m.add(last, commands, got); err != nil {
			t.Fatal(err)
		}
	}
	settle()
	m.check(t, s)
	return m
}

// TestPoolCrash kills a node at every step of a history; what was in buffers is gone, and Raft's replay brings it back: same bytes as a
// node that never fell, whose log had no buffers.
func TestPoolCrash(t *testing.T) {
	leakCheck(t)
	history := randomEntries(62, 60)
	big := command{topic: "T0", bodies: [][]byte{make([]byte, 30_000)}}
	for _, i := range []int{3, 4, 8, 9, 10, 30, 31, 32, 33, 34, 50, 51} {
		history[i] = append(history[i], big)
	}
	want := reference(t, history)
	cfg := pooled(t, t.TempDir())
	s := open(t, cfg)
	lost := 0
	for i, commands := range history {
		apply(t, s, uint64(i+1), commands...)
		s.Publish()
		switch i % 7 {
		case 2:
			if err := s.commitNow(); err != nil {
				t.Fatal(err)
			}
		case 5:
			if err := s.FlushAll(); err != nil {
				t.Fatal(err)
			}
		}
		dir := t.TempDir()
		copyDir(t, cfg.Dir, dir)
		again := open(t, pooled(t, dir))
		if r := again.Recovered(); int(r.RaftIndex) <= i {
			lost++
		}
		applyFrom(t, again, history, 0)
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
		sameContents(t, contents(t, dir), want)
		os.RemoveAll(dir)
	}
	if lost < len(history)/2 {
		t.Fatalf("only %d kills lost anything", lost)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	sameContents(t, contents(t, cfg.Dir), want)
}

// TestPoolNeedsAsyncFlush, as RocketMQ's.
func TestPoolNeedsAsyncFlush(t *testing.T) {
	cfg := pooled(t, t.TempDir())
	cfg.FlushMode = SyncFlush
	if _, err := Open(cfg); err == nil || !strings.Contains(err.Error(), "ASYNC_FLUSH") {
		t.Fatalf("got %v", err)
	}
}

// slowFS keeps whoever makes a segment waiting.
type slowFS struct {
	lazyFS
	hold atomic.Bool
	wait chan struct{}
}

func (f *slowFS) Create(path string, size int64) (mappedfile.Handle, error) {
	if f.hold.Load() && strings.Contains(path, commitLogDir) {
		<-f.wait
	}
	return f.lazyFS.Create(path, size)
}

// TestSegmentLate: a disk on which making the next segment hangs is told to the broker before Apply needs it
// (CREATE_MAPPED_FILE_FAILED), and only when little is left of the present one; it passes.
func TestSegmentLate(t *testing.T) {
	leakCheck(t)
	fs := &slowFS{wait: make(chan struct{})}
	cfg := quiet(t, t.TempDir())
	cfg.FS, cfg.AllocateTimeout = fs, 50*time.Millisecond
	s := open(t, cfg)
	until := func(want PutStatus) {
		t.Helper()
		for deadline := time.Now().Add(10 * time.Second); s.PutStatus() != want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("status %d, want %d; room %d, preparing for %v", s.PutStatus(), want, s.log.Room(), s.log.Preparing())
			}
		}
	}
	// Three segments are there; the disk hangs when the next is to be made.
	for deadline := time.Now().Add(10 * time.Second); s.log.Room() < 2*testSegment; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("room %d", s.log.Room())
		}
	}
	fs.hold.Store(true)
	body := make([]byte, 20_000)
	index := uint64(0)
	put := func() {
		index++
		apply(t, s, index, command{topic: "A", bodies: [][]byte{body}, stored: int64(index)})
		s.Publish()
	}
	put()
	for s.log.Room() > testSegment {
		put()
	}
	for deadline := time.Now().Add(10 * time.Second); s.log.Preparing() < 2*cfg.AllocateTimeout; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody makes a segment")
		}
	}
	if got := s.PutStatus(); got != PutOK {
		t.Fatalf("status %d with room for %d bytes", got, s.log.Room())
	}
	for s.log.Room() >= testSegment/2 {
		put()
	}
	until(CreateMappedFileFailed)
	close(fs.wait)
	until(PutOK)
	put()
}

// TestSegmentFails: so does one that can't be made.
func TestSegmentFails(t *testing.T) {
	leakCheck(t)
	fs := &failingFS{}
	fs.fail = func(op, path string) error {
		if op == "create" && strings.Contains(path, commitLogDir) {
			return fmt.Errorf("test: %w", errDisk)
		}
		return nil
	}
	cfg := quiet(t, t.TempDir())
	cfg.FS = fs
	fs.armed.Store(true)
	s := open(t, cfg)
	for deadline := time.Now().Add(10 * time.Second); s.PutStatus() != CreateMappedFileFailed; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("status %d", s.PutStatus())
		}
	}
	fs.armed.Store(false)
	for deadline := time.Now().Add(10 * time.Second); s.PutStatus() != PutOK; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("status %d though the disk is well", s.PutStatus())
		}
	}
	if err := s.Close(); err != nil && !errors.Is(err, errDisk) {
		t.Fatal(err)
	}
}
