package store

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"raftmq/commitlog"
	"raftmq/commitlog/mappedfile"
	"raftmq/seam"
)

const (
	scrubName = "scrub"
	// DefaultScrubRate is how many bytes of log are verified a second: a terabyte in 18 hours.
	DefaultScrubRate = 16 << 20
	// scrubStep is how much is verified at once.
	scrubStep = 1 << 20
	// scrubRest is the least time from the begin of one pass to that of the next.
	scrubRest = 10 * time.Minute
	// scrubNote is how often the place is written down.
	scrubNote = time.Minute
)

// scrubber reads the whole log slowly, again and again, and compares it with the journal, with the segments' agreed checksums, and the queues'
// units with it.
type scrubber struct {
	wake chan struct{} // capacity 1: begin a pass now
	// again: something was repaired, so what is derived from it has not been looked at; the next pass does not wait.
	again atomic.Bool

	mu    sync.Mutex
	state scrubState       // guarded by mu
	sums  map[int64]uint32 // of sealed segments that came with an installation; guarded by mu

	// Of the loop.
	segment int64  // that sum belongs to
	sum     uint32 // of [segment, at)
	at      int64  // -1: the segment was not met from its begin on
	told    map[queueFile]struct{}
}

// scrubState is also the file's content, JSON.
type scrubState struct {
	Version int   `json:"version"`
	At      int64 `json:"at"` // physical offset: the pass has come to here
	Passes  int64 `json:"passes"`
	// Began and Ended are of the present or last pass and of the last whole one, Unix ms.
	Began int64 `json:"began"`
	Ended int64 `json:"ended"`
}

const scrubVersion = 1

// ScrubStats tell how far the scrub is.
type ScrubStats struct {
	At, End       int64 // physical offsets: where it is, and where the log ends
	Rate          int64 // bytes a second, 0: it is switched off
	Passes        int64
	Began, Ended  time.Time // of the present pass, and of the last whole one; zero for never
	Verified      uint64    // bytes since start
	UnitsRepaired uint64    // consume queue units that were written again
	IndexRepairs  uint64    // times that the key index was found damaged by the scrub, and a part of it built again
}

// ScrubStats returns a snapshot.
func (s *Store) ScrubStats() ScrubStats {
	sc := &s.scrubber
	sc.mu.Lock()
	st := sc.state
	sc.mu.Unlock()
	_, end := s.LogRange()
	out := ScrubStats{At: st.At, End: end, Rate: max(s.cfg.ScrubRate, 0), Passes: st.Passes, Verified: s.verified.Load(), UnitsRepaired: s.unitsRepaired.Load(), IndexRepairs: s.indexRepairs.Load()}
	if st.Began > 0 {
		out.Began = time.UnixMilli(st.Began)
	}
	if st.Ended > 0 {
		out.Ended = time.UnixMilli(st.Ended)
	}
	return out
}

// ScrubNow lets a pass begin at once, or the present one begin again.
func (s *Store) ScrubNow() {
	select {
	case s.scrubber.wake <- struct{}{}:
	default:
	}
}

// readScrub takes up where the process before was. The file is of no importance: without it a pass begins.
func (s *Store) readScrub() {
	sc := &s.scrubber
	sc.at = -1
	b, err := os.ReadFile(filepath.Join(s.cfg.Dir, scrubName))
	var st scrubState
	if err == nil && json.Unmarshal(b, &st) == nil && st.Version == scrubVersion && st.At >= 0 {
		sc.state = st
	}
}

func (s *Store) writeScrub() {
	s.scrubber.mu.Lock()
	st := s.scrubber.state
	s.scrubber.mu.Unlock()
	st.Version = scrubVersion
	b, err := json.Marshal(&st)
	if err == nil {
		err = s.folder.writeFile(scrubName, b)
	}
	if err != nil {
		s.logger.Debug("could not write down how far the scrub is", "error", err)
	}
}

// scrubLoop ends with the store.
func (s *Store) scrubLoop() {
	if s.cfg.ScrubRate < 0 || seam.On(seam.ServeDamage) {
		return
	}
	noted := s.cfg.Now()
	for s.failure.Load() == nil {
		n, done, err := s.scrubSome()
		if err != nil {
			s.scrubFailed(err)
		}
		wait := s.scrubTime(n)
		if done || err != nil {
			s.writeScrub()
			wait = s.scrubWait(err)
		} else if s.cfg.Now().Sub(noted) >= scrubNote {
			noted = s.cfg.Now()
			s.writeScrub()
		}
		select {
		case <-time.After(wait):
		case <-s.scrubber.wake:
			s.beginPass()
		case <-s.stop:
			s.writeScrub()
			return
		}
	}
}

// scrubWait is how long to wait behind a pass, or behind what went wrong.
func (s *Store) scrubWait(err error) time.Duration {
	if err != nil {
		return scrubNote
	}
	if s.scrubber.again.Swap(false) {
		return time.Second
	}
	s.scrubber.mu.Lock()
	defer s.scrubber.mu.Unlock()
	rest := scrubRest - s.cfg.Now().Sub(time.UnixMilli(s.scrubber.state.Began))
	return min(max(rest, time.Second), scrubRest)
}

func (s *Store) beginPass() {
	sc := &s.scrubber
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.state.At, sc.state.Began = 0, s.cfg.Now().UnixMilli()
	sc.at = -1
	clear(sc.told)
}

// scrubSome verifies a step. done: the pass has come to the log's end.
func (s *Store) scrubSome() (n int64, done bool, err error) {
	sc := &s.scrubber
	sc.mu.Lock()
	from := sc.state.At
	sc.mu.Unlock()
	low, end := s.LogRange()
	if s.replacing.Load() {
		return 0, false, nil
	}
	if from > end || from == 0 {
		s.beginPass()
		from = 0
	}
	from = max(from, low)
	next, damages, err := s.log.Check(from, scrubStep)
	if err != nil {
		return 0, false, err
	}
	if len(damages) > 0 {
		if s.heals() {
			s.quarantineRanges(damages)
		} else {
			return 0, false, &commitlog.DamageError{Damages: damages}
		}
	}
	paced := int64(0)
	for at := from; at < next; { // a segment after the other: an installed range may have many
		end := min(next, at-at%s.cfg.SegmentSize+s.cfg.SegmentSize)
		n, err := s.scrubSums(at, end)
		if err == nil {
			err = s.scrubUnits(at, end)
		}
		if err != nil {
			return 0, false, err
		}
		paced, at = paced+n, end
	}
	s.verified.Add(uint64(next - from))
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sc.state.At = next
	if next > from {
		return next - from - paced, false, nil
	}
	sc.mu.Unlock()
	s.scrubFiles()
	err = s.scrubIndex()
	sc.mu.Lock()
	if err != nil {
		return 0, false, err
	}
	sc.state.Passes++
	sc.state.Ended = s.cfg.Now().UnixMilli()
	sc.state.At = 0
	return 0, true, nil
}

// scrubSums adds [from, to), of one segment, to its checksum, and compares it, when it is complete, with the one that the replicas have agreed on. Of much it has waited for
// paced bytes already: an installed range comes at once.
func (s *Store) scrubSums(from, to int64) (paced int64, err error) {
	sc := &s.scrubber
	segment := from - from%s.cfg.SegmentSize
	switch {
	case from == segment:
		sc.segment, sc.sum, sc.at = segment, 0, from
	case sc.at != from || sc.segment != segment:
		sc.at = -1
	}
	much := to-from > 2*scrubStep
	for sc.at >= 0 && sc.at < to {
		end := min(to, sc.at+scrubStep)
		sum, err := s.log.ChecksumFrom(sc.sum, sc.at, end)
		switch {
		case errors.Is(err, commitlog.ErrQuarantined), errors.Is(err, mappedfile.ErrOutOfRange):
			sc.at = -1 // it has its turn when it is repaired, in the next pass
			continue
		case err != nil:
			return paced, err
		}
		n := end - sc.at
		sc.sum, sc.at = sum, end
		if much {
			paced += n
			if !s.pause(s.scrubTime(n)) {
				return paced, nil
			}
		}
	}
	if sc.at == segment+s.cfg.SegmentSize {
		s.noteSum(segment, sc.sum)
		if s.cfg.Sums == nil {
			return paced, nil
		}
		if want, ok := s.cfg.Sums(segment); ok && want != sc.sum {
			s.segmentDiffers(segment, want, sc.sum)
		}
	}
	return paced, nil
}

// scrubTime is how long n bytes take at the scrub's rate.
func (s *Store) scrubTime(n int64) time.Duration {
	return time.Duration(float64(n) / float64(s.cfg.ScrubRate) * float64(time.Second))
}

// noteSum keeps the sum of a segment that the journal has no sums of.
func (s *Store) noteSum(segment int64, sum uint32) {
	if s.log.Journalled(segment, segment+s.cfg.SegmentSize) {
		return
	}
	sc, low := &s.scrubber, s.log.MinOffset()
	sc.mu.Lock()
	defer sc.mu.Unlock()
	if sc.sums == nil {
		sc.sums = map[int64]uint32{}
	}
	sc.sums[segment] = sum
	maps.DeleteFunc(sc.sums, func(at int64, _ uint32) bool { return at < low })
}

func (sc *scrubber) sumOf(segment int64) (uint32, bool) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	sum, ok := sc.sums[segment]
	return sum, ok
}

// forgetSums drops what was read of [from, to), which has changed; all of it for a log that is replaced.
func (sc *scrubber) forgetSums(from, to, size int64) {
	sc.mu.Lock()
	defer sc.mu.Unlock()
	maps.DeleteFunc(sc.sums, func(at int64, _ uint32) bool { return at < to && at+size > from })
}

// segmentDiffers: each entry of a segment has the journal's checksum, and the segment not the replicas'. Within an installed range the journal
// says little: another node's bytes are taken. Else the journal and the replicas contradict each other.
func (s *Store) segmentDiffers(segment int64, want, got uint32) {
	err := fmt.Errorf("store: segment %d has checksum %#08x, the replicas have agreed on %#08x", segment, got, want)
	s.logger.Error("a log segment is not what the replicas hold", "segment", segment, "checksum", got, "agreed", want)
	if s.log.Journalled(segment, segment+s.cfg.SegmentSize) {
		if s.cfg.OnDiverged != nil {
			s.cfg.OnDiverged(segment, segment+s.cfg.SegmentSize, err)
		}
		return
	}
	if s.heals() {
		s.quarantineRanges([]commitlog.Damage{s.log.DamageAt(segment, segment+s.cfg.SegmentSize, err)})
	}
}

// scrubFailed sorts out why a step could not be done.
func (s *Store) scrubFailed(err error) {
	switch {
	case s.alive() != nil, errors.Is(err, mappedfile.ErrClosed), errors.Is(err, mappedfile.ErrOutOfRange):
	case errors.Is(err, mappedfile.ErrFault):
		s.fatal(fmt.Errorf("store: scrub: %w", err))
	default:
		s.logger.Error("scrub met what it can't repair", "error", err)
	}
}
