package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"raftmq/commitlog"
)

// ErrTrim: a minimum that Trim refuses, on every node alike.
var ErrTrim = commitlog.ErrTrim

// Retention's pace (RocketMQ's deleteFileBatchMax, deleteCommitLogFilesInterval, cleanResourceInterval).
const (
	cleanBatch    = 10 // segments
	cleanPause    = 100 * time.Millisecond
	cleanInterval = 10 * time.Second
)

// cleaner removes the files of what was trimmed, in a goroutine of its own (Apply-Never-Waits). It can be
// interrupted anywhere: the minimum is replicated and comes back with the snapshot or the Raft log, and then it goes on.
type cleaner struct {
	wake chan struct{} // capacity 1
	// mu is held through each round, and by who replaces the log.
	mu      sync.Mutex
	raised  int64        // what the queues' minimum was last raised to
	cleaned atomic.Int64 // up to there nothing is left to do
}

func (c *cleaner) kick() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// Trim moves the log's minimum to a segment boundary, never into or behind the last segment: what is below can't be
// read from now on, and its files go soon. It depends on the entries only. FSM goroutine only.
func (s *Store) Trim(minOffset int64) error {
	if err := s.alive(); err != nil {
		return err
	}
	if err := s.log.Trim(minOffset); err != nil {
		return err
	}
	s.cleaner.kick()
	return nil
}

// cleanLoop ends with the store.
func (s *Store) cleanLoop() {
	tick := time.NewTicker(cleanInterval)
	defer tick.Stop()
	for {
		select {
		case <-s.cleaner.wake:
		case <-tick.C:
		case <-s.stop:
			return
		}
		for more := true; more; {
			var err error
			if more, err = s.clean(); err != nil {
				s.cleanFailed(err)
				break
			}
			if more && !s.pause(cleanPause) {
				return
			}
		}
	}
}

// pause is false when the store stops.
func (s *Store) pause(d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-s.stop:
		return false
	}
}

// cleanFailed: what could not be removed is tried again; what makes the store unusable stops it.
func (s *Store) cleanFailed(err error) {
	switch {
	case s.alive() != nil || errors.Is(err, ErrStopped), errors.Is(err, errStopping):
	case isNoSpace(err):
		s.logger.Warn("could not remove old files yet, the disk is full", "error", err)
	default:
		s.fatal(fmt.Errorf("store: remove old files: %w", err))
	}
}

// clean is one round: minimum of the queues, at most cleanBatch segments, recovery points, queue files. It tells whether
// there is more to do.
//
// The order makes a crash harmless, and needs no space on a disk that may be full. Queues need the units of what was
// trimmed until their minimum is behind them, so dispatch must have been there. Segments go up to where the points are on
// disk. Queue files go after a point that says so: an opening takes a missing one for damage.
func (s *Store) clean() (more bool, err error) {
	c := &s.cleaner
	c.mu.Lock()
	defer c.mu.Unlock()
	low := s.log.MinOffset()
	target := low
	if d := s.DispatchedTo(); d < low {
		target = d - d%s.cfg.SegmentSize
	}
	if s.replacing.Load() || c.cleaned.Load() >= low {
		return false, nil
	}
	if c.raised < target {
		grew, err := s.queues.RaiseMin(target)
		if err != nil {
			return false, err
		}
		c.raised = target
		s.points.raised(target, grew)
	}
	segments, more, err := s.removeSegments(target)
	if err != nil || more {
		return more, err
	}
	if err := s.flushAll(); err != nil { // the key index removes its files with its point
		return false, err
	}
	if _, written := s.points.state(); written.Begin < target {
		return false, nil // no points are written any more
	}
	again, more, err := s.removeSegments(target) // the points have moved
	if segments += again; err != nil || more {
		return more, err
	}
	files, err := s.queues.RemoveObsolete(func() bool { return s.pause(cleanPause) && !s.replacing.Load() })
	if err != nil {
		return false, err
	}
	if segments+files > 0 {
		s.logger.Info("removed old files", "min-offset", low, "files-from", s.log.FileMin(), "segments", segments,
			"queue-files", files, "segments-in-use", s.log.Hanged())
	}
	if s.log.FileMin() >= target {
		c.cleaned.Store(target)
	}
	return target < low, nil // dispatch will come there
}

// removeSegments removes at most cleanBatch segments below low that nobody has pinned.
func (s *Store) removeSegments(low int64) (removed int, more bool, err error) {
	_, written := s.points.state()
	limit := min(low, written.PhyOffset, s.log.RecoveryPoint().LogEnd, s.lowestPin())
	limit -= limit % s.cfg.SegmentSize
	first := s.log.FileMin()
	if first >= limit {
		return 0, false, nil
	}
	removed, err = s.log.DeleteBefore(min(limit, first-first%s.cfg.SegmentSize+cleanBatch*s.cfg.SegmentSize))
	return removed, removed > 0 && s.log.FileMin() < limit, err
}

// raised brings the latest point up to date with RaiseMin, if it is not.
func (p *points) raised(begin, grew int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.latest.Begin < begin {
		p.latest.Begin, p.latest.Firsts = begin, p.latest.Firsts+grew
	}
}

// Cleaning tells that segments of what was trimmed still take space: waiting their turn, or in use.
func (s *Store) Cleaning() bool {
	return s.log.FileMin() < s.log.MinOffset() || s.log.Hanged() > 0
}

// CleanedTo is the minimum up to which the work is done: queues corrected, files gone.
func (s *Store) CleanedTo() int64 { return s.cleaner.cleaned.Load() }

// SegmentSize is the size of each log segment.
func (s *Store) SegmentSize() int64 { return s.cfg.SegmentSize }

// NewestBefore is a bound for the store times of all records below a segment boundary, ms: the age of a segment. It
// reads a few records.
func (s *Store) NewestBefore(boundary int64) (millis int64, err error) {
	return s.log.NewestBefore(boundary)
}
