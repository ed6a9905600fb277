package flush

import (
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// GroupCommitConfig configures a GroupCommit. Zero values take the defaults in parentheses.
type GroupCommitConfig struct {
	Target  Target
	Timeout time.Duration // syncFlushTimeout (5 s)
	// OnError is called once, by the flush goroutine, with the first error of the target. The node should stop.
	OnError func(error)
	Logger  hclog.Logger
}

// GroupCommit is SYNC_FLUSH: who waits is gathered while a flush runs, and the next flush
// serves all of them. Two goroutines: one flushes, one watches deadlines.
type GroupCommit struct {
	flusher
	timeout time.Duration

	mu struct {
		sync.Mutex
		waiters []waiter // by arrival, which is by deadline too
		closed  bool
	}
	wake  chan struct{} // to the flush goroutine: there is something to flush
	watch chan struct{} // to the watcher: the list was empty and is not any more

	stop      chan struct{}
	flushing  sync.WaitGroup
	watching  sync.WaitGroup
	stopWatch chan struct{}
	closeErr  error
}

type waiter struct {
	end      int64
	deadline time.Time
	done     func(error)
}

// NewGroupCommit starts the service. Close ends it.
func NewGroupCommit(cfg GroupCommitConfig) *GroupCommit {
	if cfg.Timeout == 0 {
		cfg.Timeout = 5 * time.Second
	}
	g := &GroupCommit{
		flusher: newFlusher(cfg.Target, cfg.OnError, cfg.Logger), timeout: cfg.Timeout,
		wake: make(chan struct{}, 1), watch: make(chan struct{}, 1),
		stop: make(chan struct{}), stopWatch: make(chan struct{}),
	}
	g.flushing.Go(g.flushLoop)
	g.watching.Go(g.watchLoop)
	return g
}

// Wait calls done once: with nil when [0, end) is durable, with ErrTimeout after the timeout, with an
// error that wraps ErrFailed once a flush has failed, with ErrClosed after Close. done runs on a
// goroutine of the service (after Close on the caller's) and must be quick; it may call Wait.
// The bytes must be readable for the target before the call. No allocation once the list has grown.
func (g *GroupCommit) Wait(end int64, done func(error)) {
	g.mu.Lock()
	if g.mu.closed {
		g.mu.Unlock()
		done(ErrClosed)
		return
	}
	first := len(g.mu.waiters) == 0
	g.mu.waiters = append(g.mu.waiters, waiter{end: end, deadline: time.Now().Add(g.timeout), done: done})
	g.mu.Unlock()
	notify(g.wake)
	if first {
		notify(g.watch)
	}
}

// Wake asks for a flush that nobody waits for (WAIT=false).
func (g *GroupCommit) Wake() { notify(g.wake) }

// Stats returns a snapshot.
func (g *GroupCommit) Stats() Stats { return g.stats() }

// Close flushes once more, answers everybody and ends the goroutines. It returns the first
// error of the target. While a flush hangs so does Close, but waiters get their timeout.
func (g *GroupCommit) Close() error {
	g.mu.Lock()
	closed := g.mu.closed
	g.mu.closed = true
	g.mu.Unlock()
	if !closed {
		close(g.stop)
		g.flushing.Wait()
		close(g.stopWatch)
	}
	g.flushing.Wait()
	g.watching.Wait()
	return g.closeErr
}

// notify leaves one token: wake-ups collapse.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (g *GroupCommit) flushLoop() {
	// A waiter whose bytes the target did not have yet is tried again after this time.
	const again = 10 * time.Millisecond
	var ready []waiter
	for stopping := false; ; {
		if !stopping {
			select {
			case <-g.wake:
			case <-g.stop:
				stopping = true
			}
		}
		flushedTo, err := g.flush(0)
		ready = g.take(ready[:0], func(w *waiter) bool { return err != nil || w.end <= flushedTo })
		complete(ready, err)
		if !stopping {
			if err == nil && g.waiting() && len(g.wake) == 0 {
				select {
				case <-time.After(again):
				case <-g.stop:
					stopping = true
				}
				notify(g.wake)
			}
			continue
		}
		g.closeErr = err
		// Those whose bytes never came.
		ready = g.take(ready[:0], func(*waiter) bool { return true })
		complete(ready, ErrClosed)
		return
	}
}

// take moves the waiters that satisfy f to dst. Who takes a waiter calls it: exactly once.
func (g *GroupCommit) take(dst []waiter, f func(*waiter) bool) []waiter {
	g.mu.Lock()
	defer g.mu.Unlock()
	keep := g.mu.waiters[:0]
	for i := range g.mu.waiters {
		if w := &g.mu.waiters[i]; f(w) {
			dst = append(dst, *w)
		} else {
			keep = append(keep, *w)
		}
	}
	clear(g.mu.waiters[len(keep):])
	g.mu.waiters = keep
	return dst
}

func (g *GroupCommit) waiting() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.mu.waiters) > 0
}

func complete(list []waiter, err error) {
	for i := range list {
		list[i].done(err)
	}
	clear(list)
}

// watchLoop answers waiters that are overdue, also while a flush hangs.
func (g *GroupCommit) watchLoop() {
	timer := time.NewTimer(g.timeout)
	defer timer.Stop()
	var overdue []waiter
	for {
		now := time.Now()
		overdue = g.take(overdue[:0], func(w *waiter) bool { return !w.deadline.After(now) })
		complete(overdue, ErrTimeout)
		next, any := g.nextDeadline()
		if any {
			timer.Reset(time.Until(next))
		} else {
			timer.Stop()
		}
		select {
		case <-timer.C:
		case <-g.watch:
		case <-g.stopWatch:
			return
		}
	}
}

func (g *GroupCommit) nextDeadline() (time.Time, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.mu.waiters) == 0 {
		return time.Time{}, false
	}
	return g.mu.waiters[0].deadline, true
}
