package flush

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeBuffers is a log of which pages pages wait.
type fakeBuffers struct {
	mu       sync.Mutex
	written  int64
	readable int64
	err      error
	calls    int
}

const page = 4096

func (f *fakeBuffers) CommitBuffers(leastPages int) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	if f.err != nil {
		return f.readable, f.err
	}
	if leastPages == 0 || f.written/page-f.readable/page >= int64(leastPages) {
		f.readable = f.written
	}
	return f.readable, nil
}

func (f *fakeBuffers) write(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.written += n
}

func (f *fakeBuffers) end() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.readable
}

// TestCommitThread: four pages are committed when they are there, less after 200 ms, the rest at Close; who listens is told of
// each progress and of nothing else.
func TestCommitThread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeBuffers{}
		var mu sync.Mutex
		var told []int64
		c := NewCommit(CommitConfig{Target: f, Committed: func(end int64) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, end)
		}})
		synctest.Wait()
		f.write(4 * page)
		c.Wake()
		synctest.Wait()
		if f.end() != 4*page {
			t.Fatalf("readable up to %d with four pages there", f.end())
		}
		f.write(100)
		c.Wake()
		synctest.Wait()
		if f.end() != 4*page {
			t.Fatal("less than four pages committed at once")
		}
		time.Sleep(201 * time.Millisecond)
		synctest.Wait()
		if f.end() != 4*page+100 {
			t.Fatalf("readable up to %d after 200 ms", f.end())
		}
		time.Sleep(time.Second)
		f.write(50)
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Fatal(err)
		}
		if f.end() != 4*page+150 {
			t.Fatalf("readable up to %d after Close", f.end())
		}
		mu.Lock()
		defer mu.Unlock()
		for i, want := range []int64{0, 4 * page, 4*page + 100, 4*page + 150} {
			if i >= len(told) || told[i] != want {
				t.Fatalf("told %v", told)
			}
		}
		if len(told) != 4 {
			t.Fatalf("told %v", told)
		}
	})
}

// TestCommitThreadFails: the first failure is told once, and nothing is tried after it (F33).
func TestCommitThreadFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("disk")
		f := &fakeBuffers{err: bad}
		told := 0
		c := NewCommit(CommitConfig{Target: f, OnError: func(err error) {
			if !errors.Is(err, bad) {
				t.Error(err)
			}
			told++
		}})
		time.Sleep(5 * time.Second)
		f.mu.Lock()
		f.err = nil
		f.mu.Unlock()
		c.Wake()
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if err := c.Close(); !errors.Is(err, bad) || !errors.Is(err, ErrFailed) || told != 1 || f.calls != 1 {
			t.Fatalf("%v, told %d times, %d calls", err, told, f.calls)
		}
	})
}
