package keyindex

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"raftmq/commitlog/faultfile"
	"raftmq/commitlog/mappedfile"
)

// TestAgainstMap: random keys, equal hashes and times among them, compared with a plain map.
func TestAgainstMap(t *testing.T) {
	for seed := range uint64(10) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		ix := newKit(t, 1+rnd.IntN(40), 2+rnd.IntN(60)).open(0, 0)
		// Two letters of equal hash make many keys with equal hashes.
		word := func() string {
			s := ""
			for range 1 + rnd.IntN(3) {
				s += []string{"Aa", "BB"}[rnd.IntN(2)]
			}
			return s
		}
		var log []rec
		at, stored := int64(0), int64(1_700_000_000_000)
		for range 300 {
			r := rec{topic: word(), phyOffset: at, stored: stored}
			for range rnd.IntN(4) {
				r.keys += strings.Repeat(" ", 1+rnd.IntN(2)) + word()
			}
			if rnd.IntN(2) == 0 {
				r.uniq = word()
			}
			log = append(log, r)
			at += 100 + rnd.Int64N(500)
			stored += rnd.Int64N(3000)
		}
		mustFeed(t, ix, log)
		checkFinds(t, ix, log)
		for range 200 {
			topic, key := word(), word()
			begin := log[rnd.IntN(len(log))].stored + rnd.Int64N(3) - 1
			end := begin + rnd.Int64N(100_000)
			var want []int64
			for _, r := range slices.Backward(log) {
				if r.has(topic, key) && r.stored >= begin && r.stored <= end {
					want = append(want, r.phyOffset)
				}
			}
			var got []int64
			for _, phyOffset := range find(t, ix, topic, key, begin, end) {
				i := slices.IndexFunc(log, func(r rec) bool { return r.phyOffset == phyOffset })
				if r := log[i]; r.stored < begin-999 || r.stored > end+999 {
					t.Fatalf("seed %d: record stored at %d in [%d, %d]", seed, r.stored, begin, end)
				} else if r.has(topic, key) && r.stored >= begin && r.stored <= end {
					got = append(got, phyOffset)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("seed %d: %s#%s in [%d, %d]: %v, want %v", seed, topic, key, begin, end, got, want)
			}
		}
	}
}

// TestRestart: at every place in the log the index is closed and opened again, and everything
// is fed a second time; nothing is entered twice and nothing left out. (RocketMQ enters the
// last record's keys again, and skips records behind a log that was cut.)
func TestRestart(t *testing.T) {
	log := testLog(0, 40)
	k := newKit(t, 7, 11)
	want := reference(t, k, log)
	for n := range log {
		k := newKit(t, 7, 11)
		ix := k.open(0, 0)
		mustFeed(t, ix, log[:n])
		flush(t, ix)
		if err := errors.Join(ix.Close(), ix.Close()); err != nil {
			t.Fatal(err)
		}
		ix = k.open(0, int64(n)*100)
		if from := ix.From(); from != int64(n)*100 {
			t.Fatalf("%d records: goes on from %d", n, from)
		}
		if k.log.Len() > 0 {
			t.Fatalf("%d records: %s", n, k.log)
		}
		if err := feed2(ix, log); err != nil {
			t.Fatal(err)
		}
		checkSame(t, ix, want)
		checkFinds(t, ix, log)
	}
}

// feed2 puts all records, whatever the index asks for.
func feed2(ix *Index, log []rec) error {
	for _, r := range log {
		for range 2 {
			if err := ix.Put([]byte(r.topic), []byte(r.uniq), []byte(r.keys), r.phyOffset, r.stored); err != nil {
				return err
			}
		}
	}
	return ix.Commit(log[len(log)-1].phyOffset + 100)
}

// TestRoll: names ascend whatever the clock does, and a new file begins where the one before
// ended.
func TestRoll(t *testing.T) {
	k := newKit(t, 5, 4)
	times := []string{"2026-11-30T12:00:00.999", "2026-11-30T12:00:00.999", "2026-11-30T11:00:00", "2027-01-01T00:00:00"}
	k.c.Now = func() time.Time {
		at, err := time.ParseInLocation("2006-01-02T15:04:05", times[0], time.Local)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	ix := k.open(0, 0)
	for i, want := range []int64{20261130120000999, 20261130120001000, 20261130120001001, 20270101000000000} {
		at := int64(i) * 1000
		for n := range 3 {
			if err := ix.Put([]byte("T"), []byte("k"), nil, at+int64(n)*100, at*7+int64(n)+1); err != nil {
				t.Fatal(err)
			}
		}
		if err := ix.Commit(at + 300); err != nil {
			t.Fatal(err)
		}
		f := ix.list()[i]
		wantHeader := Header{at*7 + 1, at*7 + 3, at, at + 200, 1, 4}
		if len(ix.list()) != i+1 || f.name != want || f.header != wantHeader {
			t.Errorf("file %d of %d: %d %+v, want %d %+v", i, len(ix.list()), f.name, f.header, want, wantHeader)
		}
		if i > 0 {
			// Seconds of the first entry count from the end of the file before.
			if got, want := f.table.Entry(1).TimeDiff, int32((at*7+1-(at-1000)*7-3)/1000); got != want {
				t.Errorf("file %d: first entry after %d s, want %d", i, got, want)
			}
		}
		if i < 3 {
			times = times[1:]
		}
	}
	if got := nameAfter(99999999999999999); got != 100000000000000000 {
		t.Errorf("name after one that is no time: %d", got)
	}
	if storeTime, phyOffset := ix.Last(); storeTime != 21003 || phyOffset != 3200 {
		t.Errorf("last is %d at %d", storeTime, phyOffset)
	}
}

// TestNoSpace: a full disk is an error that passes, at whatever allocation it comes.
func TestNoSpace(t *testing.T) {
	log := testLog(0, 60)
	k := newKit(t, 7, 11)
	want := reference(t, k, log)
	failed := 0
	for i := 0; ; i++ {
		k := newKit(t, 7, 11)
		ix := k.open(0, 0)
		start := k.fs.Ops()
		k.fs.FailAt(start+i, mappedfile.ErrNoSpace)
		err := feed(ix, log)
		if err == nil {
			if k.fs.Ops() > start+i {
				t.Fatalf("operation %d: its failure was not told: %v", i, k.fs.Trace()[start+i])
			}
			break
		}
		if !errors.Is(err, mappedfile.ErrNoSpace) {
			t.Fatalf("operation %d: %v", i, err)
		}
		failed++
		checkFinds(t, ix, log[:ix.Mark().PhyOffset()/100], log...)
		// The record that failed is fed again, those before it as well.
		if err := feed2(ix, log); err != nil {
			t.Fatal(err)
		}
		checkSame(t, ix, want)
		if n := len(k.fs.Files(k.c.Dir)); n != len(want) {
			t.Fatalf("operation %d: %d files on disk, want %d", i, n, len(want))
		}
	}
	if failed < 2*len(want) {
		t.Fatalf("only %d failures", failed)
	}
}

// TestNoSpaceForPoint: the point can't be written. It stays where it was, nothing else is lost; and
// what must not stay is removed.
func TestNoSpaceForPoint(t *testing.T) {
	log := testLog(0, 40)
	k := newKit(t, 7, 11)
	full := &fullFS{FS: k.fs}
	k.c.FS = full
	ix := k.open(0, 0)
	mustFeed(t, ix, log[:20])
	flush(t, ix)
	mustFeed(t, ix, log)
	for range 3 {
		full.full = true
		if err := ix.Flush(ix.Mark()); !errors.Is(err, mappedfile.ErrNoSpace) || ix.Flushed() != 2000 {
			t.Fatalf("flush: %v, point at %d", err, ix.Flushed())
		}
		if n, err := ix.DeleteBefore(1000); !errors.Is(err, mappedfile.ErrNoSpace) || n != 0 {
			t.Fatalf("deleted %d: %v", n, err)
		}
		ix.Close()
		ix = k.open(0, 4000)
		if ix.From() != 2000 || k.log.Len() > 0 {
			t.Fatalf("goes on from %d\n%s", ix.From(), k.log)
		}
		mustFeed(t, ix, log)
	}
	if err := ix.Reset(5000); err != nil {
		t.Fatal(err)
	}
	ix.Close()
	full.full = false
	ix = k.open(0, 4000)
	if ix.From() != 0 || len(ix.list()) != 0 {
		t.Fatalf("goes on from %d with %d files", ix.From(), len(ix.list()))
	}
	mustFeed(t, ix, log)
	flush(t, ix)
	if err := errors.Join(ix.Close(), k.fs.Corrupt(k.fs.Files(k.c.Dir)[1], func(b []byte) []byte { return b[:9] })); err != nil {
		t.Fatal(err)
	}
	full.full = true
	ix = k.open(0, 4000)
	if len(ix.list()) != 1 {
		t.Fatalf("%d files", len(ix.list()))
	}
	mustFeed(t, ix, log)
	full.full = false
	flush(t, ix)
	checkSame(t, ix, reference(t, k, log))
}

// fullFS has no space for small files.
type fullFS struct {
	*faultfile.FS
	full bool
}

func (f *fullFS) WriteFile(path string, b []byte) error {
	if !f.full {
		return f.FS.WriteFile(path, b)
	}
	if err := f.FS.WriteFile(path, b[:len(b)/2]); err != nil {
		return err
	}
	return mappedfile.ErrNoSpace
}

// TestDeleteBefore removes what lies before the log, never the last file, and a restart does
// not miss it.
func TestDeleteBefore(t *testing.T) {
	log := testLog(0, 60)
	k := newKit(t, 7, 11)
	ix := k.open(0, 0)
	mustFeed(t, ix, log[:40])
	flush(t, ix)
	mark := ix.Mark()
	mustFeed(t, ix, log)
	files := len(ix.list())
	low := ix.list()[2].header.EndPhyOffset
	if n, err := ix.DeleteBefore(low); n != 2 || err != nil {
		t.Fatalf("removed %d: %v", n, err)
	}
	if n, err := ix.DeleteBefore(low); n != 0 || err != nil {
		t.Fatalf("removed %d more: %v", n, err)
	}
	if err := ix.Flush(mark); err != nil { // taken before
		t.Fatal(err)
	}
	flush(t, ix)
	checkFinds(t, ix, recordsFrom(log, ix.list()[0].header.BeginPhyOffset+100), log...)
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
	ix = k.open(low, 6000)
	if got := len(ix.list()); got != files-2 || k.log.Len() > 0 || ix.From() != 6000 {
		t.Fatalf("%d files, want %d, from %d\n%s", got, files-2, ix.From(), k.log)
	}
	if n, err := ix.DeleteBefore(math.MaxInt64); n != files-3 || err != nil {
		t.Fatalf("removed %d: %v", n, err)
	}
	if got := k.fs.Files(k.c.Dir); len(got) != 1 {
		t.Fatalf("files %v", got)
	}
}

// recordsFrom are the records at and behind an offset.
func recordsFrom(log []rec, phyOffset int64) []rec {
	return log[slices.IndexFunc(log, func(r rec) bool { return r.phyOffset >= phyOffset }):]
}

// TestReset: the log was replaced.
func TestReset(t *testing.T) {
	k := newKit(t, 7, 11)
	ix := k.open(0, 0)
	mustFeed(t, ix, testLog(0, 30))
	stale := ix.Mark()
	flush(t, ix)
	if err := ix.Reset(5000); err != nil {
		t.Fatal(err)
	}
	if err := ix.Flush(stale); err != nil {
		t.Fatal(err)
	}
	if got := find(t, ix, "T0", "Aa", 0, math.MaxInt64); got != nil || ix.From() != 5000 {
		t.Fatalf("found %v, goes on from %d", got, ix.From())
	}
	log := testLog(5000, 30)
	mustFeed(t, ix, log)
	checkFinds(t, ix, log)
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
	// Nothing was flushed since.
	ix = k.open(5000, 8000)
	if ix.From() != 5000 || len(ix.list()) != 0 {
		t.Fatalf("goes on from %d with %d files", ix.From(), len(ix.list()))
	}
	mustFeed(t, ix, log)
	checkFinds(t, ix, log)
}

// TestReadersBesideWriter: queries, flushes and removals beside the writer; for the race
// detector, and to see that a committed record is found.
func TestReadersBesideWriter(t *testing.T) {
	c := Config{Dir: t.TempDir(), Point: t.TempDir() + "/point", Slots: 101, Entries: 500, AllocateStep: 4096}
	ix, err := Open(c, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	log := testLog(0, 4000)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	loop := func(f func()) {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					f()
				}
			}
		})
	}
	for range 2 {
		loop(func() {
			m := ix.Mark()
			if m.PhyOffset() == 0 {
				return
			}
			r := log[m.PhyOffset()/100-1]
			key := strings.Fields(r.uniq + " " + r.keys)
			if len(key) == 0 {
				return
			}
			if got := find(t, ix, r.topic, key[0], 0, math.MaxInt64); !slices.Contains(got, r.phyOffset) && r.phyOffset >= ix.Mark().PhyOffset()-100_000 {
				t.Errorf("%s#%s: found %v, not %d", r.topic, key[0], got, r.phyOffset)
			}
		})
	}
	loop(func() {
		if err := ix.Flush(ix.Mark()); err != nil {
			t.Error(err)
		}
		if _, err := ix.DeleteBefore(ix.Mark().PhyOffset() - 100_000); err != nil {
			t.Error(err)
		}
		ix.Stats()
	})
	mustFeed(t, ix, log)
	close(stop)
	wg.Wait()
	flush(t, ix)
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
	if err := ix.Find(context.Background(), "T", "k", 0, 1, nil); !errors.Is(err, ErrClosed) {
		t.Fatalf("after close: %v", err)
	}
	if err := ix.Put(nil, nil, nil, 0, 0); !errors.Is(err, ErrClosed) {
		t.Fatalf("after close: %v", err)
	}
	ix, err = Open(c, 0, 400_000)
	if err != nil || ix.From() != 400_000 {
		t.Fatalf("%v, goes on from %d", err, ix.From())
	}
	defer ix.Close()
	checkFinds(t, ix, log[3900:], log...)
}

// TestFindEnds: a long chain of foreign entries is left when nobody waits any more, and yield
// ends it.
func TestFindEnds(t *testing.T) {
	ix := newKit(t, 1, 3*stepsAtOnce).open(0, 0)
	for i := range int64(2 * stepsAtOnce) {
		if err := ix.Put([]byte("T"), []byte("other"), nil, i*100, 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := ix.Commit(2 * stepsAtOnce * 100); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := ix.Find(ctx, "T", "k", 0, 1, func(int64) bool { t.Error("found"); return true })
	if !errors.Is(err, context.Canceled) || errors.Is(err, ErrDamaged) {
		t.Errorf("canceled: %v", err)
	}
	n := 0
	err = ix.Find(context.Background(), "T", "other", 0, 1, func(int64) bool { n++; return n < 3 })
	if n != 3 || err != nil {
		t.Errorf("yielded %d: %v", n, err)
	}
}

func TestConfigRefused(t *testing.T) {
	for _, c := range []Config{{Slots: -1}, {Slots: 1 << 30}, {Entries: 1}, {Entries: -4}, {AllocateStep: -1}} {
		k := newKit(t, 0, 0)
		c.Dir, c.Point, c.FS = k.c.Dir, k.c.Point, k.fs
		if _, err := Open(c, 0, 0); err == nil {
			t.Errorf("%+v was taken", c)
		}
	}
}

// TestPutAllocatesNothing is the hot path's promise.
func TestPutAllocatesNothing(t *testing.T) {
	ix := newKit(t, 1000, 1_000_000).open(0, 0)
	topic, uniq, keys := []byte("TopicTest"), []byte("7F00000100002EEB0000000000000000"), []byte("order-1 order-2")
	at := int64(0)
	if n := testing.AllocsPerRun(1000, func() {
		at += 100
		if err := ix.Put(topic, uniq, keys, at, at); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if err := ix.Commit(at + 100); err != nil {
		t.Fatal(err)
	}
	if st := ix.Stats(); st.Entries != 3*1001 || st.Files != 1 || st.Bytes != FileSize(1000, 3*1001+1) {
		t.Errorf("stats %+v", st)
	}
}

func ExampleTable_Check() {
	b := make([]byte, FileSize(2, 4))
	putHeader(b, Header{Count: 9})
	table, err := NewTable(b, 2)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(table.Check())
	// Output: keyindex: damaged: header counts 9 entries, there is room for 4
}
