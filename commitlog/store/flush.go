package store

import (
	"sync"
	"time"

	"raftmq/flush"
)

// flusher is the flush service of the store's mode.
type flusher struct {
	group *flush.GroupCommit // SYNC_FLUSH
	timed *flush.Timed       // ASYNC_FLUSH

	// Who waits in ASYNC_FLUSH, where the service knows no waiters.
	mu      sync.Mutex
	waiters []flushWaiter
	closed  bool
}

type flushWaiter struct {
	end  int64
	done func(error)
}

// flushTarget is the log, with the waiters of ASYNC_FLUSH behind it.
type flushTarget struct{ s *Store }

func (t flushTarget) Flush(leastPages int) (int64, error) {
	end, err := t.s.log.Flush(leastPages)
	if err == nil {
		t.s.flush.release(end, nil)
	}
	return end, err
}

func (s *Store) startFlush() {
	onError := func(err error) { s.fatal(err) }
	if s.cfg.FlushMode == SyncFlush {
		s.flush.group = flush.NewGroupCommit(flush.GroupCommitConfig{
			Target: s.log, Timeout: s.cfg.SyncFlushTimeout, OnError: onError, Logger: s.logger,
		})
		return
	}
	s.flush.timed = flush.NewTimed(flush.TimedConfig{
		Target: flushTarget{s}, Interval: s.cfg.FlushInterval, LeastPages: s.cfg.FlushLeastPages, Thorough: s.cfg.FlushThorough, OnError: onError, Logger: s.logger,
	})
}

// wake asks for a flush of what was just published; the timed service asks itself.
func (f *flusher) wake() {
	if f.group != nil {
		f.group.Wake()
	}
}

// release calls the waiters that end satisfies; with an error all of them.
func (f *flusher) release(end int64, err error) {
	f.mu.Lock()
	var ready []flushWaiter
	kept := f.waiters[:0]
	for _, w := range f.waiters {
		if err != nil || w.end <= end {
			ready = append(ready, w)
		} else {
			kept = append(kept, w)
		}
	}
	clear(f.waiters[len(kept):])
	f.waiters = kept
	f.mu.Unlock()
	for _, w := range ready {
		w.done(err)
	}
}

// close flushes once more and answers everybody.
func (f *flusher) close() (err error) {
	if f.group != nil {
		err = f.group.Close()
	}
	if f.timed != nil {
		err = f.timed.Close()
	}
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.release(0, ErrClosed)
	return err
}

func (f *flusher) stats() (st flush.Stats) {
	if f.group != nil {
		st = f.group.Stats()
	}
	if f.timed != nil {
		st = f.timed.Stats()
	}
	return st
}

// FlushingSince is when the flush of the commit log that is under way began, zero while none is.
func (s *Store) FlushingSince() time.Time { return s.flush.stats().Since }

// WaitFlushed calls done once [0,end) of the log is durable on this node: at once, or on a
// flush goroutine, where it must be quick. In SYNC_FLUSH it asks for a flush, and done gets
// ErrFlushTimeout after SyncFlushTimeout. In ASYNC_FLUSH it forces nothing and has no timeout:
// done comes with the timed flush. Any other error: the store has failed or closed before.
func (s *Store) WaitFlushed(end int64, done func(error)) {
	if s.log.FlushedTo() >= end {
		done(nil)
		return
	}
	f := &s.flush
	if f.group != nil {
		f.group.Wait(end, done)
		return
	}
	f.mu.Lock()
	err := s.alive()
	if err == nil && f.closed {
		err = ErrClosed
	}
	if err == nil {
		f.waiters = append(f.waiters, flushWaiter{end, done})
	}
	f.mu.Unlock()
	if err != nil {
		done(err)
	}
}
