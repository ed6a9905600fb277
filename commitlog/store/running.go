package store

import (
	"strings"
	"sync/atomic"
	"time"
)

// RunningFlags say what this node's store cannot do now (RocketMQ's RunningFlags, same bits). They are of this node
// and of this moment: Apply never looks at them.
type RunningFlags uint32

// Flags, and who sets and clears them.
const (
	// FlagNotReadable: nothing sets it, as in RocketMQ.
	FlagNotReadable RunningFlags = 1 << iota
	// FlagNotWriteable: the next segment could not be made for a reason other than space. The pre-allocation tries
	// again each second and clears it.
	FlagNotWriteable
	// FlagQueueError: the consume queues wait for space. Cleared when they are written; any other error there stops
	// the node. (RocketMQ's stays until a restart.)
	FlagQueueError
	// FlagIndexError: the same of the key index.
	FlagIndexError
	// FlagDiskFull: set and cleared by the disk check, each SpaceInterval, and set at once when an allocation fails.
	FlagDiskFull
)

// Readable tells whether messages may be read.
func (f RunningFlags) Readable() bool { return f&FlagNotReadable == 0 }

// Writeable tells whether messages may be taken.
func (f RunningFlags) Writeable() bool {
	return f&(FlagNotWriteable|FlagQueueError|FlagIndexError|FlagDiskFull) == 0
}

// String lists the names, "" when there is none.
func (f RunningFlags) String() string {
	var names []string
	for i, name := range []string{"not-readable", "not-writeable", "queue-error", "index-error", "disk-full"} {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, " ")
}

// running is the store's flags and how long Apply has been at it.
type running struct {
	flags atomic.Uint32
	// applying is when the FSM's side began the batch that it has not published yet, ns since opened, so that a step of the
	// machine's clock makes no batch long (F67); 0 between batches. It
	// stands for RocketMQ's beginTimeInLock.
	applying atomic.Int64
	opened   time.Time // a second before, so that 0 is free
}

// set sets or clears a flag and tells whether that changed anything.
func (r *running) set(f RunningFlags, on bool) bool {
	if on {
		return RunningFlags(r.flags.Or(uint32(f)))&f == 0
	}
	return RunningFlags(r.flags.And(^uint32(f)))&f != 0
}

// Flags returns the running flags.
func (s *Store) Flags() RunningFlags { return RunningFlags(s.running.flags.Load()) }

// PutStatus is RocketMQ's PutMessageStatus, as far as it is known before a message is proposed.
type PutStatus uint8

// Statuses of PutStatus, named as in RocketMQ 4.9.
const (
	PutOK PutStatus = iota
	ServiceNotAvailable
	CreateMappedFileFailed
	OSPageCacheBusy
)

// PutStatus tells whether a message may be proposed now, by the order of RocketMQ's checks: shut down or failed, not writeable,
// page cache busy. A few atomic loads.
func (s *Store) PutStatus() PutStatus {
	if s.failure.Load() != nil || s.closed.Load() {
		return ServiceNotAvailable
	}
	if f := s.Flags(); !f.Writeable() {
		if f&^FlagNotReadable == FlagNotWriteable {
			return CreateMappedFileFailed
		}
		return ServiceNotAvailable
	}
	if s.segmentLate() {
		return CreateMappedFileFailed
	}
	if s.PageCacheBusy() {
		return OSPageCacheBusy
	}
	return PutOK
}

// segmentLate tells that the next segment does not come, and that what may be in flight could need it: Apply would hang where a
// message can still be refused.
func (s *Store) segmentLate() bool {
	const inFlight = 64 << 20 // what the proposer lets into flight
	return s.log.Preparing() > s.cfg.AllocateTimeout && s.log.Room() < min(inFlight, s.cfg.SegmentSize/2)
}

// pageCacheGuard is the upper bound of RocketMQ's test: with the lock free its begin is 0, and the time since then huge.
const pageCacheGuard = 10_000_000 * time.Millisecond

// PageCacheBusy tells that Apply has been in one batch for longer than PageCacheBusyTimeout (and not absurdly long):
// the kernel keeps the writer of mapped pages waiting.
func (s *Store) PageCacheBusy() bool {
	d := s.LockTime()
	return d > s.cfg.PageCacheBusyTimeout && d < pageCacheGuard
}

// LockTime is how long Apply has been in its present batch, 0 between batches (RocketMQ's lockTimeMills).
func (s *Store) LockTime() time.Duration {
	begun := s.running.applying.Load()
	if begun == 0 {
		return 0
	}
	return max(0, s.cfg.Now().Sub(s.running.opened)-time.Duration(begun))
}

// beginBatch and endBatch are called by the FSM's side.
func (s *Store) beginBatch() {
	if s.running.applying.Load() == 0 {
		s.running.applying.Store(int64(s.cfg.Now().Sub(s.running.opened)))
	}
}

// slowApply is from when on a batch is worth a warning (RocketMQ's "putMessage in lock cost time").
const slowApply = 500 * time.Millisecond

func (s *Store) endBatch() {
	took := s.LockTime()
	s.running.applying.Store(0)
	if took <= slowApply {
		return
	}
	if ok, unsaid := s.slow.Allow(s.cfg.Now()); ok {
		s.logger.Warn("applying a batch took long", "took", took, "unsaid", unsaid)
	}
}

// Throttle lets a repeated warning through once in ten seconds.
type Throttle struct {
	last   atomic.Int64 // Unix ms
	unsaid atomic.Int64
}

const throttleInterval = 10 * time.Second

// Allow tells whether to speak now, and how often that was not allowed since it last was.
func (t *Throttle) Allow(now time.Time) (ok bool, unsaid int64) {
	last := t.last.Load()
	since := now.UnixMilli() - last // negative after a step of the clock
	if last != 0 && since >= 0 && since < throttleInterval.Milliseconds() || !t.last.CompareAndSwap(last, now.UnixMilli()) {
		t.unsaid.Add(1)
		return false, 0
	}
	return true, t.unsaid.Swap(0)
}
