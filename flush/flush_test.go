package flush

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeTarget records its calls; all of its fields are guarded.
type fakeTarget struct {
	mu       sync.Mutex
	readable int64
	flushed  int64
	calls    []int // leastPages
	times    []time.Duration
	start    time.Time
	err      error
	hang     chan struct{} // if set, Flush waits for it
	takes    time.Duration
}

func (f *fakeTarget) Flush(leastPages int) (int64, error) {
	f.mu.Lock()
	end := f.readable // as a real flush: what comes later is not covered
	hang, takes := f.hang, f.takes
	f.calls = append(f.calls, leastPages)
	f.times = append(f.times, time.Since(f.start))
	f.mu.Unlock()
	if hang != nil {
		<-hang
	}
	if takes > 0 {
		time.Sleep(takes)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return 0, f.err
	}
	f.flushed = end
	return end, nil
}

func (f *fakeTarget) write(to int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.readable = to
}

func (f *fakeTarget) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.calls)
}

// answers gathers what waiters are told.
type answers struct {
	mu   sync.Mutex
	list []error
	at   []time.Time
}

func (a *answers) done(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, err)
	a.at = append(a.at, time.Now())
}

func (a *answers) get() []error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]error(nil), a.list...)
}

func TestGroupCommitServesAllWithOneFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTarget{takes: 20 * time.Millisecond}
		g := NewGroupCommit(GroupCommitConfig{Target: f})
		var a answers
		f.write(1)
		g.Wait(1, a.done)
		synctest.Wait() // the first flush runs
		for i := range 100 {
			f.write(int64(i + 2))
			g.Wait(int64(i+2), a.done)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := a.get(); len(got) != 101 || errors.Join(got...) != nil {
			t.Fatalf("%d answers, %v", len(got), errors.Join(got...))
		}
		if f.count() != 2 {
			t.Errorf("%d flushes, want 2", f.count())
		}
		if s := g.Stats(); s.Count != 2 || s.Last != 20*time.Millisecond || s.Max != 20*time.Millisecond {
			t.Errorf("stats %+v", s)
		}
		if err := errors.Join(g.Close(), g.Close()); err != nil {
			t.Error(err)
		}
	})
}

func TestStatsSinceTellsOfAFlushThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTarget{hang: make(chan struct{})}
		g := NewGroupCommit(GroupCommitConfig{Target: f})
		began := time.Now()
		f.write(1)
		g.Wait(1, func(error) {})
		time.Sleep(time.Second)
		if s := g.Stats(); !s.Since.Equal(began) {
			t.Errorf("a flush that began at %v: since %v", began, s.Since)
		}
		close(f.hang)
		synctest.Wait()
		if s := g.Stats(); !s.Since.IsZero() {
			t.Errorf("no flush is under way: since %v", s.Since)
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestGroupCommitNilMeansDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTarget{takes: time.Millisecond}
		g := NewGroupCommit(GroupCommitConfig{Target: f})
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for range 50 {
					f.mu.Lock()
					f.readable++
					end := f.readable
					f.mu.Unlock()
					answer := make(chan error)
					g.Wait(end, func(err error) {
						f.mu.Lock()
						if f.flushed < end {
							t.Errorf("told that %d is durable at %d", end, f.flushed)
						}
						f.mu.Unlock()
						answer <- err
					})
					if err := <-answer; err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestGroupCommitTimeoutWhileFlushHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTarget{hang: make(chan struct{})}
		g := NewGroupCommit(GroupCommitConfig{Target: f})
		start := time.Now()
		var a, b answers
		g.Wait(0, a.done)
		time.Sleep(2 * time.Second)
		g.Wait(0, b.done)
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got := a.get(); len(got) != 1 || !errors.Is(got[0], ErrTimeout) || a.at[0].Sub(start) != 5*time.Second {
			t.Fatalf("first: %v", got)
		}
		if got := b.get(); len(got) != 0 {
			t.Fatalf("second answered too early: %v", got)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := b.get(); len(got) != 1 || !errors.Is(got[0], ErrTimeout) || b.at[0].Sub(start) != 7*time.Second {
			t.Fatalf("second: %v", got)
		}
		close(f.hang)
		var c answers
		g.Wait(0, c.done)
		synctest.Wait()
		if got := c.get(); len(got) != 1 || got[0] != nil {
			t.Fatalf("after the disk came back: %v", got)
		}
		if got := a.get(); len(got) != 1 {
			t.Errorf("the first was answered %d times", len(got))
		}
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
}

func TestGroupCommitFailureIsForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("disk")
		f := &fakeTarget{err: bad}
		var told answers
		g := NewGroupCommit(GroupCommitConfig{Target: f, OnError: told.done})
		var a answers
		g.Wait(0, a.done)
		synctest.Wait()
		f.mu.Lock()
		f.err = nil
		f.mu.Unlock()
		g.Wait(0, a.done)
		g.Wake()
		synctest.Wait()
		got := a.get()
		if len(got) != 2 || !errors.Is(got[0], ErrFailed) || !errors.Is(got[0], bad) || !errors.Is(got[1], bad) {
			t.Fatalf("answers %v", got)
		}
		if got := told.get(); len(got) != 1 || !errors.Is(got[0], bad) {
			t.Fatalf("OnError %v", got)
		}
		if f.count() != 1 {
			t.Errorf("%d flushes after a failed one", f.count()-1)
		}
		if err := g.Close(); !errors.Is(err, bad) {
			t.Errorf("Close: %v", err)
		}
	})
}

func TestGroupCommitWakeAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTarget{}
		g := NewGroupCommit(GroupCommitConfig{Target: f})
		synctest.Wait()
		if f.count() != 0 {
			t.Fatalf("%d flushes without a reason", f.count())
		}
		f.write(7)
		g.Wake()
		synctest.Wait()
		if f.count() != 1 || f.flushed != 7 {
			t.Fatalf("%d flushes up to %d", f.count(), f.flushed)
		}
		// One whose bytes do not come, one whose bytes come late.
		var never, late answers
		g.Wait(1000, never.done)
		g.Wait(9, late.done)
		time.Sleep(time.Second)
		f.write(9)
		time.Sleep(time.Second)
		synctest.Wait()
		if got := late.get(); len(got) != 1 || got[0] != nil {
			t.Fatalf("late: %v", got)
		}
		f.write(11)
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
		if f.flushed != 11 {
			t.Errorf("Close flushed up to %d", f.flushed)
		}
		if got := never.get(); len(got) != 1 || !errors.Is(got[0], ErrClosed) {
			t.Errorf("never: %v", got)
		}
		var after answers
		g.Wait(1, after.done)
		if got := after.get(); len(got) != 1 || !errors.Is(got[0], ErrClosed) {
			t.Errorf("after Close: %v", got)
		}
	})
}

func TestTimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeTarget{start: time.Now()}
		s := NewTimed(TimedConfig{Target: f})
		time.Sleep(21*time.Second + 100*time.Millisecond)
		synctest.Wait()
		if len(f.calls) != 42 {
			t.Fatalf("%d flushes in 21 s", len(f.calls))
		}
		for i, pages := range f.calls {
			at := time.Duration(i+1) * 500 * time.Millisecond
			want := 4
			if at == 10*time.Second || at == 20*time.Second {
				want = 0
			}
			if pages != want || f.times[i] != at {
				t.Errorf("flush %d of %d pages at %v, want %d at %v", i, pages, f.times[i], want, at)
			}
		}
		f.write(5)
		if err := errors.Join(s.Close(), s.Close()); err != nil {
			t.Fatal(err)
		}
		if f.flushed != 5 || f.calls[len(f.calls)-1] != 0 {
			t.Errorf("Close flushed up to %d, pages %d", f.flushed, f.calls[len(f.calls)-1])
		}
	})
}

func TestTimedFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := errors.New("disk")
		f := &fakeTarget{err: bad}
		var told answers
		s := NewTimed(TimedConfig{Target: f, OnError: told.done})
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if f.count() != 1 || len(told.get()) != 1 {
			t.Errorf("%d flushes, %d reports; want one each", f.count(), len(told.get()))
		}
		if err := s.Close(); !errors.Is(err, bad) || !errors.Is(err, ErrFailed) {
			t.Errorf("Close: %v", err)
		}
	})
}

type nothing struct{ end int64 }

func (n *nothing) Flush(int) (int64, error) { return n.end, nil }

func BenchmarkGroupCommitWait(b *testing.B) {
	g := NewGroupCommit(GroupCommitConfig{Target: &nothing{end: 1}})
	defer g.Close()
	answer := make(chan error, 64)
	done := func(err error) { answer <- err }
	b.ReportAllocs()
	for b.Loop() {
		for range 64 {
			g.Wait(1, done)
		}
		for range 64 {
			if err := <-answer; err != nil {
				b.Fatal(err)
			}
		}
	}
}
