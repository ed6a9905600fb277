package store

import (
	"math"
	"sync"
	"time"
)

// pins keep segments from being removed while somebody reads them at his own pace: a peer that is being filled. What is
// pinned is hidden from consumers all the same.
type pins struct {
	mu   sync.Mutex
	held map[*Pin]struct{}
}

// Pin keeps the files from an offset on. It is given up when it has not moved for PinTimeout: a peer that hangs must not
// hold a disk (RocketMQ's destroyMapedFileIntervalForcibly). Reads below the log's first file then fail.
type Pin struct {
	s     *Store
	off   int64     // guarded by pins.mu
	moved time.Time // likewise
}

// Pin pins the log from off on until Release.
func (s *Store) Pin(off int64) *Pin {
	p := &Pin{s: s, off: off, moved: s.cfg.Now()}
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	if s.pins.held == nil {
		s.pins.held = map[*Pin]struct{}{}
	}
	s.pins.held[p] = struct{}{}
	return p
}

// Move lets go of what is below off.
func (p *Pin) Move(off int64) {
	p.s.pins.mu.Lock()
	defer p.s.pins.mu.Unlock()
	p.off, p.moved = max(p.off, off), p.s.cfg.Now()
}

// Release lets go of everything. A second call does nothing.
func (p *Pin) Release() {
	p.s.pins.mu.Lock()
	delete(p.s.pins.held, p)
	p.s.pins.mu.Unlock()
	p.s.cleaner.kick()
}

// lowest is the lowest pinned offset. Pins that hang are dropped.
func (s *Store) lowestPin() int64 {
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	lowest := int64(math.MaxInt64)
	for p := range s.pins.held {
		if idle := s.cfg.Now().Sub(p.moved); idle > s.cfg.PinTimeout {
			s.logger.Warn("a reader of old segments hangs, they are removed under it", "phy-offset", p.off, "idle", idle)
			delete(s.pins.held, p)
			continue
		}
		lowest = min(lowest, p.off)
	}
	return lowest
}
