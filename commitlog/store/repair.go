package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"raftmq/commitlog"
	"raftmq/commitlog/mappedfile"
	"raftmq/seam"
)

// ErrQuarantined: bytes that are damaged on this node, until they are repaired.
var ErrQuarantined = commitlog.ErrQuarantined

// Copy is a node that may have the log's bytes whole. Fetch copies [from, to) of them to w, in order.
type Copy struct {
	Node  string
	Fetch func(ctx context.Context, from, to int64, w io.Writer) error
}

// Pace of repairs: how long one attempt of a range may take, and the pauses between two attempts, which grow.
const (
	repairTimeout    = 10 * time.Minute
	repairPauseFirst = 500 * time.Millisecond
	repairPauseMost  = 30 * time.Second
)

// repairer brings damaged ranges of the log back from other nodes, in a goroutine of its own.
type repairer struct {
	wake chan struct{} // capacity 1

	mu       sync.Mutex
	attempts map[int64]attempt // by begin of the range; guarded by mu

	found, repaired, repairedBytes atomic.Uint64
}

type attempt struct {
	since time.Time // when the range was first seen here
	tried string    // why no copy has helped yet
}

// DamagedRange is a range of the log that this node can't serve.
type DamagedRange struct {
	From, To  int64
	File      string
	Pos       int64 // of From in File
	RaftIndex uint64
	Reason    string
	Since     time.Time
	// Tried says why no other node's bytes have helped; "" before the first attempt has ended.
	Tried string
}

// RepairStats are counters since start, and what is damaged now.
type RepairStats struct {
	Found, Repaired, RepairedBytes uint64
	Damaged                        []DamagedRange
}

// heals tells that damage is to be repaired beside the running store.
func (s *Store) heals() bool { return s.cfg.Copies != nil }

// quarantine takes damage that err names away from readers and has it repaired. False: err names none, or there is nobody to repair it.
func (s *Store) quarantine(err error) bool {
	var damage *commitlog.DamageError
	if !s.heals() || !errors.As(err, &damage) {
		return false
	}
	return s.quarantineRanges(damage.Damages)
}

func (s *Store) quarantineRanges(list []commitlog.Damage) bool {
	fresh, err := s.log.Quarantine(list...)
	if err != nil {
		if !errors.Is(err, commitlog.ErrClosed) && s.alive() == nil {
			s.fatal(err)
		}
		return true
	}
	r := &s.repairer
	r.found.Add(uint64(len(fresh)))
	r.kick()
	return true
}

// SuspectLog takes [from, to) away from readers, to be compared with another node's bytes: they differ from what the replicas hold.
func (s *Store) SuspectLog(from, to int64, reason error) error {
	if err := s.alive(); err != nil {
		return err
	}
	if !s.heals() {
		return fmt.Errorf("store: log bytes [%d, %d) are to be repaired, and there is no other copy: %w", from, to, reason)
	}
	s.quarantineRanges([]commitlog.Damage{s.log.DamageAt(from, to, reason)})
	return s.alive()
}

func (r *repairer) kick() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// repairLoop ends with the store.
func (s *Store) repairLoop() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.loops.Go(func() { // ends with the loop at the latest
		select {
		case <-s.stop:
			cancel()
		case <-ctx.Done():
		}
	})
	pause := repairPauseFirst
	for {
		damaged := s.log.Damaged()
		if len(damaged) == 0 {
			pause = repairPauseFirst
			select {
			case <-s.repairer.wake:
			case <-s.stop:
				return
			}
			continue
		}
		if s.failure.Load() != nil {
			return
		}
		if s.repairRound(ctx, slices.Clone(damaged)) {
			pause = repairPauseFirst
			continue
		}
		select {
		case <-time.After(pause):
			pause = min(2*pause, repairPauseMost)
		case <-s.repairer.wake:
		case <-s.stop:
			return
		}
	}
}

// repairRound tries each range with each copy; true when all are whole.
func (s *Store) repairRound(ctx context.Context, damaged []commitlog.Damage) (all bool) {
	s.noteDamaged(damaged)
	if seam.On(seam.TruncateLog) { // at the next start
		return false
	}
	all = true
	copies := s.cfg.Copies(ctx)
	for _, d := range damaged {
		if ctx.Err() != nil || s.alive() != nil {
			return false
		}
		switch why := s.repairRange(ctx, d, copies); {
		case why == "":
			s.forgetAttempt(d)
			s.repairer.repaired.Add(1)
			s.repairer.repairedBytes.Add(uint64(d.To - d.From))
			s.logger.Warn("damaged log bytes are repaired", "from", d.From, "to", d.To, "file", d.File, "offset", d.Pos)
			s.scrubber.again.Store(true)
			s.scrubber.forgetSums(d.From, d.To, s.cfg.SegmentSize)
			s.goOn()
			s.wakeRecords(d.From, d.To)
		default:
			all = false
			s.noteAttempt(d, why)
		}
	}
	return all
}

// repairRange asks one copy after the other. It returns why none has helped, "" when the range is whole.
func (s *Store) repairRange(ctx context.Context, d commitlog.Damage, copies []Copy) (why string) {
	if len(copies) == 0 {
		copies = []Copy{{Fetch: func(context.Context, int64, int64, io.Writer) error { return errNoCopy }}} // it may have become whole
	}
	var tried []string
	for _, c := range copies {
		trying, cancel := context.WithTimeout(ctx, repairTimeout)
		var fetched error
		err := s.log.Repair(d, s.cfg.Sums, func(from, to int64, w io.Writer) error {
			err := c.Fetch(trying, from, to, w)
			if err != nil {
				fetched = err
			}
			return err
		})
		cancel()
		switch {
		case err == nil:
			return ""
		case ctx.Err() != nil:
			return "the store stops"
		case errors.Is(err, mappedfile.ErrFault), errors.Is(err, mappedfile.ErrPoisoned): // this node's device
			s.fatal(fmt.Errorf("store: repair of log bytes [%d, %d): %w", d.From, d.To, err))
			return err.Error()
		case errors.Is(err, commitlog.ErrBadCopy):
			tried = append(tried, c.Node+": its bytes do not match either")
			s.logger.Warn("another node's bytes do not match the journal", "node", c.Node, "from", d.From, "to", d.To, "error", err)
		case fetched != nil:
			tried = append(tried, fmt.Sprintf("%s: %v", c.Node, fetched))
		case isNoSpace(err):
			return fmt.Sprintf("no space to repair it: %v", err)
		case s.replacing.Load() || errors.Is(err, commitlog.ErrClosed):
			return "the log is being replaced"
		default:
			s.fatal(fmt.Errorf("store: repair of log bytes [%d, %d): %w", d.From, d.To, err))
			return err.Error()
		}
	}
	return strings.TrimPrefix(strings.Join(tried, "; "), ": ")
}

var errNoCopy = errors.New("no other node is there to be asked")

// goOn wakes who stands still before a damaged range.
func (s *Store) goOn() {
	s.dispatcher.Load().Wake()
	s.index.wake()
}

func (s *Store) noteDamaged(damaged []commitlog.Damage) {
	r := &s.repairer
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range damaged {
		if _, ok := r.attempts[d.From]; !ok {
			r.attempts[d.From] = attempt{since: s.cfg.Now()}
		}
	}
}

// noteAttempt tells once for each reason.
func (s *Store) noteAttempt(d commitlog.Damage, why string) {
	r := &s.repairer
	r.mu.Lock()
	a := r.attempts[d.From]
	news := a.tried != why
	a.tried = why
	r.attempts[d.From] = a
	r.mu.Unlock()
	if news && s.alive() == nil {
		s.logger.Error("damaged log bytes could not be repaired yet, everything else is served", "from", d.From, "to", d.To, "file", d.File,
			"offset", d.Pos, "raft-index", d.RaftIndex, "reason", why)
	}
}

func (s *Store) forgetAttempt(d commitlog.Damage) {
	s.repairer.mu.Lock()
	defer s.repairer.mu.Unlock()
	delete(s.repairer.attempts, d.From)
}

// RepairStats returns a snapshot.
func (s *Store) RepairStats() RepairStats {
	r := &s.repairer
	out := RepairStats{Found: r.found.Load(), Repaired: r.repaired.Load(), RepairedBytes: r.repairedBytes.Load()}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, d := range s.log.Damaged() {
		a := r.attempts[d.From]
		x := DamagedRange{From: d.From, To: d.To, File: d.File, Pos: d.Pos, RaftIndex: d.RaftIndex, Since: a.since, Tried: a.tried}
		if d.Reason != nil {
			x.Reason = d.Reason.Error()
		}
		out.Damaged = append(out.Damaged, x)
	}
	return out
}
