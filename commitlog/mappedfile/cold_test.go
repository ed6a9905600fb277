package mappedfile

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// fillFiles appends n whole files whose bytes are their file's number, and flushes them.
func fillFiles(t testing.TB, q *Queue, n int) {
	t.Helper()
	for i := range n {
		appendBytes(t, q, bytes.Repeat([]byte{byte(i)}, int(q.FileSize())))
	}
	if _, err := q.Flush(0); err != nil {
		t.Fatal(err)
	}
}

// mappings counts this process's mappings of files below dir.
func mappings(t testing.TB, dir string) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Skip(err)
	}
	return strings.Count(string(b), dir+"/")
}

// TestColdFiles: however many files there are, no more than MaxMapped are mapped; any byte can be read all the same, views pin theirs,
// and a new start maps none that nobody asks for.
func TestColdFiles(t *testing.T) {
	const files, limit = 40, 5
	dir := t.TempDir()
	o := Options{Dir: dir, FileSize: PageSize, MaxMapped: limit}
	q := open(t, o)
	appendBytes(t, q, bytes.Repeat([]byte{0}, PageSize))
	for i := 1; i < files; i++ {
		appendBytes(t, q, bytes.Repeat([]byte{byte(i)}, PageSize))
		if _, err := q.Flush(0); err != nil {
			t.Fatal(err)
		}
	}
	check := func(pinned int) {
		t.Helper()
		rng := rand.New(rand.NewPCG(1, 1))
		for range 500 {
			i := rng.IntN(files)
			if got := read(t, q, int64(i)*PageSize+7, 1)[0]; got != byte(i) {
				t.Fatalf("file %d holds %d", i, got)
			}
			if n := q.Mapped(); n > limit+pinned {
				t.Fatalf("%d files mapped, at most %d", n, limit+pinned)
			}
		}
		if n := mappings(t, dir); n > limit+pinned {
			t.Fatalf("the kernel has %d mappings", n)
		}
	}
	check(1) // the writer's own
	var views []View
	for i := range 2 * limit {
		v, err := q.View(int64(i)*PageSize, PageSize)
		if err != nil {
			t.Fatal(err)
		}
		views = append(views, v)
	}
	check(2*limit + 1)
	for i := range views {
		if !bytes.Equal(views[i].Bytes, bytes.Repeat([]byte{byte(i)}, PageSize)) {
			t.Fatalf("view of file %d changed", i)
		}
		views[i].Release()
	}
	check(1)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if n := q.Mapped(); n != 0 || mappings(t, dir) != 0 {
		t.Fatalf("%d files mapped after Close", n)
	}
	q = open(t, o)
	if n := q.Mapped(); n != 0 {
		t.Fatalf("Open mapped %d files", n)
	}
	check(0)
	if err := q.Truncate(20*PageSize + 100); err != nil {
		t.Fatal(err)
	}
	appendBytes(t, q, []byte("more"))
	if got := read(t, q, 20*PageSize+99, 5); string(got) != "\x14more" {
		t.Fatalf("after a cut: %q", got)
	}
	if n, err := q.DeleteBefore(10 * PageSize); n != 10 || err != nil {
		t.Fatal(n, err)
	}
	if _, err := q.View(9*PageSize, 1); !errors.Is(err, ErrOutOfRange) {
		t.Fatalf("a removed file: %v", err)
	}
}

// TestUnflushedStaysMapped: what is not durable is not unmapped, whatever the limit.
func TestUnflushedStaysMapped(t *testing.T) {
	q := open(t, Options{Dir: t.TempDir(), FileSize: PageSize, MaxMapped: 1})
	for range 10 {
		appendBytes(t, q, make([]byte, PageSize))
	}
	if n := q.Mapped(); n != 10 {
		t.Fatalf("%d of 10 files mapped", n)
	}
	if _, err := q.Flush(0); err != nil {
		t.Fatal(err)
	}
	read(t, q, 0, 1)
	if n := q.Mapped(); n > 2 {
		t.Fatalf("%d files mapped after the flush", n)
	}
}

// TestColdRaces has readers, a writer, a flusher and retention fight over few mappings. Every byte read must be right.
func TestColdRaces(t *testing.T) {
	q := open(t, Options{Dir: t.TempDir(), FileSize: PageSize, MaxMapped: 3, Staged: true, Ahead: 2})
	stop := make(chan struct{})
	var wg sync.WaitGroup
	loop := func(f func(i int) error) {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(i); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for reader := range 3 {
		rng := rand.New(rand.NewPCG(uint64(reader), 2))
		loop(func(int) error {
			low, end := q.MinOffset(), q.MaxOffset()
			if low >= end {
				return nil
			}
			off := low + rng.Int64N(end-low)
			v, err := q.View(off, 64)
			if errors.Is(err, ErrOutOfRange) {
				return nil
			}
			if err != nil {
				return err
			}
			defer v.Release()
			for i, b := range v.Bytes {
				if want := byte((off + int64(i)) / 64); b != want {
					return fmt.Errorf("offset %d: %d, want %d", off+int64(i), b, want)
				}
			}
			return nil
		})
	}
	loop(func(int) error { return q.Prepare() })
	loop(func(int) error { _, err := q.Flush(1); return err })
	loop(func(int) error { _, err := q.DeleteBefore(q.MaxOffset() - 20*PageSize); return err })
	for i := range 100 * PageSize / 64 {
		b, err := q.Append(64)
		if err != nil {
			t.Fatal(err)
		}
		for k := range b {
			b[k] = byte(i)
		}
		if err := q.WriteOut(); err != nil {
			t.Fatal(err)
		}
		q.Commit(64)
	}
	close(stop)
	wg.Wait()
}

// TestReaderMeetsAMissingFile: a cold file that somebody took away is an error for its reader, not a crash.
func TestReaderMeetsAMissingFile(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: dir, FileSize: PageSize, MaxMapped: 1}
	q := open(t, o)
	fillFiles(t, q, 4)
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	q = open(t, o)
	if err := os.Remove(filepath.Join(dir, fileName(PageSize))); err != nil {
		t.Fatal(err)
	}
	if _, err := q.View(PageSize, 1); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("got %v", err)
	}
	if got := read(t, q, 2*PageSize, 1)[0]; got != 2 {
		t.Fatal("its neighbour is gone as well")
	}
}

// BenchmarkLookup is a view of a random place among few and many files; mapped: no more than 64 of the many are.
func BenchmarkLookup(b *testing.B) {
	for _, c := range []struct {
		name          string
		files, mapped int
		hot           int // files that are read
	}{{"files=10", 10, 0, 10}, {"files=10000/all-mapped", 10_000, 0, 10_000}, {"files=10000/hot", 10_000, 64, 32}, {"files=10000/cold", 10_000, 64, 10_000}} {
		b.Run(c.name, func(b *testing.B) {
			dir := b.TempDir()
			for i := range c.files {
				name := filepath.Join(dir, fileName(int64(i)*PageSize))
				if err := os.WriteFile(name, make([]byte, PageSize), 0o600); err != nil {
					b.Fatal(err)
				}
			}
			q, err := Open(Options{Dir: dir, FileSize: PageSize, MaxMapped: c.mapped, ReadOnly: true})
			if err != nil {
				b.Skip(err) // descriptors
			}
			defer q.Close()
			rng := rand.New(rand.NewPCG(1, 1))
			b.ReportAllocs()
			for b.Loop() {
				v, err := q.View(rng.Int64N(int64(c.hot))*PageSize, 100)
				if err != nil {
					b.Fatal(err)
				}
				v.Release()
			}
			b.ReportMetric(float64(q.Mapped()), "mapped")
		})
	}
}
