package store

import (
	"fmt"
	"sync"
	"time"

	"raftmq/commitlog/consumequeue"
)

// points moves the two recovery points, the log's and the queues': dispatch says how far it
// is, a flush of queues and log makes that durable, then the files say so.
type points struct {
	kick chan struct{} // much is new; capacity 1

	mu      sync.Mutex
	latest  consumequeue.Point // dispatched
	written consumequeue.Point // in the file
	bytes   int64              // of new log that move the points at once

	// flushMu is held through a move; it guards the rest.
	flushMu   sync.Mutex
	file      *consumequeue.PointFile
	suspended bool // the queues are not to be believed: write no more points

	slow Throttle
}

// dispatched is called by dispatch's goroutine, once a batch.
func (p *points) dispatched(queues *consumequeue.Set, to int64) {
	p.mu.Lock()
	p.latest = queues.Point(to) // under the lock: raised must not fall between
	much := to-p.written.PhyOffset >= p.bytes
	p.mu.Unlock()
	if much {
		p.much()
	}
}

// much asks for a move of the points before its time.
func (p *points) much() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

func (p *points) state() (latest, written consumequeue.Point) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.latest, p.written
}

func (p *points) close() error {
	p.flushMu.Lock()
	defer p.flushMu.Unlock()
	if p.file == nil {
		return nil
	}
	return p.file.Close()
}

// pointLoop moves the points in the background.
func (s *Store) pointLoop() {
	tick := time.NewTicker(s.cfg.PointInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-s.points.kick:
		case <-s.stop:
			return
		}
		if s.failure.Load() != nil {
			return
		}
		if latest, written := s.points.state(); latest == written && !s.index.dirty() {
			continue
		}
		err := s.flushAll()
		if isNoSpace(err) {
			if ok, unsaid := s.points.slow.Allow(s.cfg.Now()); ok {
				s.logger.Warn("could not move the recovery points, the disk is full", "error", err, "unsaid", unsaid)
			}
			continue
		}
		if err != nil {
			s.fatal(err)
			return
		}
	}
}

// FlushAll makes log, journal and queues durable up to what is published at the call and
// stores the recovery points. Called by Persist (Flush-Before-Truncate), on any goroutine.
func (s *Store) FlushAll() error {
	if err := s.alive(); err != nil {
		return err
	}
	if err := s.commitNow(); err != nil {
		return s.fatal(err)
	}
	reached := make(chan error, 1)
	s.dispatcher.Load().Wait(s.log.MaxOffset(), func(err error) { reached <- err })
	if err := <-reached; err != nil {
		return fmt.Errorf("store: flush: %w", err)
	}
	switch err := s.flushAll(); {
	case isNoSpace(err):
		return err // tried again later
	case err != nil:
		return s.fatal(err)
	}
	return nil
}

// flushAll flushes what is dispatched and moves the points there (Point-Behind-All).
func (s *Store) flushAll() error {
	p := &s.points
	p.flushMu.Lock()
	defer p.flushMu.Unlock()
	// Only what dispatch had come to before the flush is surely in it.
	latest, written := p.state()
	mark := s.index.mark()
	if err := s.queues.Flush(); err != nil {
		return err
	}
	// Dispatch only sees what is published, so this covers latest.
	end, err := s.log.SetRecoveryPoint()
	if err != nil {
		return err
	}
	if err := s.index.flush(mark, end.LogEnd); err != nil {
		return err
	}
	if p.suspended {
		return s.writeCheckpoint(end.LogEnd, consumequeue.Point{})
	}
	if latest == written {
		return s.writeCheckpoint(end.LogEnd, written)
	}
	if end.LogEnd < latest.PhyOffset {
		return fmt.Errorf("store: log is durable up to %d only, dispatched up to %d", end.LogEnd, latest.PhyOffset)
	}
	if err := p.file.Write(latest); err != nil {
		return err
	}
	p.mu.Lock()
	p.written = latest
	p.mu.Unlock()
	return s.writeCheckpoint(end.LogEnd, latest)
}

// suspend writes no more points and removes the file, so that the next Open builds the queues
// again.
func (s *Store) suspendPoints() error {
	p := &s.points
	p.flushMu.Lock()
	defer p.flushMu.Unlock()
	if p.suspended {
		return nil
	}
	p.suspended = true
	return s.folder.remove(pointName)
}
