package store

import (
	"math"
	"sync"
	"time"
)

// pins keep segments from being removed while a peer fetches them. What is pinned is hidden from consumers all the same.
type pins struct {
	mu   sync.Mutex
	held map[string]pin // by who fetches; guarded by mu
}

type pin struct {
	off   int64
	moved time.Time
}

// maxPins bounds who may keep files: any client can ask for log bytes.
const maxPins = 64

// Pin keeps the files from off on for a peer, unless too many others do, in place of what it pinned before. It is given up when it has not been
// renewed for PinTimeout: a peer that hangs must not hold a disk (RocketMQ's destroyMapedFileIntervalForcibly). Its reads may
// then fail, and it begins anew where the log begins by then.
func (s *Store) Pin(peer string, off int64) {
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	if s.pins.held == nil {
		s.pins.held = map[string]pin{}
	}
	if _, ok := s.pins.held[peer]; !ok && len(s.pins.held) >= maxPins {
		return
	}
	s.pins.held[peer] = pin{off: off, moved: s.cfg.Now()}
}

// Unpin lets go of what a peer pinned, if it did.
func (s *Store) Unpin(peer string) {
	s.pins.mu.Lock()
	_, held := s.pins.held[peer]
	delete(s.pins.held, peer)
	s.pins.mu.Unlock()
	if held {
		s.cleaner.kick()
	}
}

// lowestPin is the lowest pinned offset. Pins that hang are dropped.
func (s *Store) lowestPin() int64 {
	s.pins.mu.Lock()
	defer s.pins.mu.Unlock()
	lowest := int64(math.MaxInt64)
	for peer, p := range s.pins.held {
		if idle := s.cfg.Now().Sub(p.moved); idle > s.cfg.PinTimeout {
			s.logger.Warn("a peer that fetched log bytes has stopped, its segments are kept no longer", "peer", peer, "phy-offset", p.off, "idle", idle)
			delete(s.pins.held, peer)
			continue
		}
		lowest = min(lowest, p.off)
	}
	return lowest
}
