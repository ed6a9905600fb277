package store

import (
	"sync"
	"sync/atomic"
	"time"
)

// flusher makes the log durable in the background.
type flusher struct {
	s    *Store
	kick chan struct{}
	stop chan struct{}
	done chan struct{}

	mu      sync.Mutex
	waiters []flushWaiter

	count atomic.Uint64
	last  atomic.Int64
}

type flushWaiter struct {
	end      int64
	deadline time.Time
	done     func(error)
}

func (s *Store) startFlush() {
	f := &s.flush
	f.s, f.kick, f.stop, f.done = s, make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go f.loop()
}

func (f *flusher) wake() {
	if f.s.cfg.FlushMode != SyncFlush {
		return
	}
	select {
	case f.kick <- struct{}{}:
	default:
	}
}

func (f *flusher) loop() {
	defer close(f.done)
	tick := time.NewTicker(f.s.cfg.FlushInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-f.kick:
		case <-f.stop:
			return
		}
		started := time.Now()
		end, err := f.s.log.Flush(0)
		if err != nil {
			f.s.fatal(err)
			return
		}
		f.count.Add(1)
		f.last.Store(int64(time.Since(started)))
		f.release(end)
	}
}

func (f *flusher) release(end int64) {
	now := time.Now()
	f.mu.Lock()
	var ready []flushWaiter
	kept := f.waiters[:0]
	for _, w := range f.waiters {
		if w.end <= end || now.After(w.deadline) {
			ready = append(ready, w)
		} else {
			kept = append(kept, w)
		}
	}
	f.waiters = kept
	f.mu.Unlock()
	for _, w := range ready {
		if w.end <= end {
			w.done(nil)
		} else {
			w.done(ErrFlushTimeout)
		}
	}
}

func (f *flusher) close() error {
	if f.stop == nil {
		return nil
	}
	close(f.stop)
	<-f.done
	return nil
}

func (f *flusher) stats() (uint64, time.Duration) {
	return f.count.Load(), time.Duration(f.last.Load())
}

// WaitFlushed calls done once [0,end) of the log is durable on this node, or with
// ErrFlushTimeout. done runs on a flush goroutine and must be quick.
func (s *Store) WaitFlushed(end int64, done func(error)) {
	if s.log.FlushedTo() >= end {
		done(nil)
		return
	}
	s.flush.mu.Lock()
	s.flush.waiters = append(s.flush.waiters, flushWaiter{end, time.Now().Add(s.cfg.SyncFlushTimeout), done})
	s.flush.mu.Unlock()
	s.flush.wake()
}
