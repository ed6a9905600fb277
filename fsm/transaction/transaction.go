// Package transaction asks producers for the outcome of half messages that have none (RocketMQ's
// TransactionalMessageCheckService and TransactionalMessageServiceImpl.check): on the leader, every
// interval, one pass over the half messages that are old enough and have not ended.
//
// It decides whom to ask about what, and when to give up; asking is the Checker's (the broker's), ending a
// transaction the broker's too. Which half messages have ended and how often producers were asked about
// the others is said by the tables.
//
// Unlike RocketMQ it does not store a half message again each time that it asks: its place in the half
// topic's queue names it for good, so that an end counts once whenever it comes, and nothing that waits
// holds up what comes after it (F19).
//
// Invariants: a check is counted when a producer was really asked, never otherwise (F21); giving up is one
// command, which is refused when the half message has ended meanwhile.
package transaction

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/fsm/metadata"

	"github.com/hashicorp/go-hclog"
)

const (
	// batchBytes and batchMessages bound what is read at once, and how many checks one command counts.
	batchBytes    = 512 << 10
	batchMessages = 256
	// pace is a pause between two batches with checks: they all may go to the same producer.
	pace = 50 * time.Millisecond
	// longestBackOff is the most intervals between two checks that the producer does not answer.
	longestBackOff = 4
	// clockTolerance is how far a store time may be ahead of this leader's clock; one that is further in the future comes
	// from a clock that was wrong, and its message counts as old.
	clockTolerance = time.Minute
)

// Proposal is raftnode's.
type Proposal interface {
	AppendCommand(dst []byte, storeMillis int64) []byte
	Done(entryResult any, i int, err error)
}

// Checker asks producers.
type Checker interface {
	// CheckTransaction asks one live producer of the half message's group for its state, without waiting for the
	// answer, and reports whether somebody was asked. times counts this check too. half is a view.
	CheckTransaction(half record.View, times int) bool
}

// Config of a Service. Zero values take the defaults in parentheses.
type Config struct {
	Store   *store.Store
	Tables  *metadata.Tables
	Checker Checker
	// Propose takes a command on its way, as raftnode.Node.Propose does.
	Propose  func(Proposal) error
	Timeout  time.Duration // age of a half message without a CHECK_IMMUNITY_TIME_IN_SECONDS of its own at its first check (6 s)
	Interval time.Duration // between two passes (60 s)
	MaxCheck int           // checks before a half message is given up (15)
	// MaxAge is when a half message is given up whoever was asked (72 h, RocketMQ's fileReservedTime).
	MaxAge time.Duration
	// Current gives the four above as they are now, asked before each pass. nil: they do not change.
	Current func() Limits
	Now     func() time.Time // (time.Now)
	Logger  hclog.Logger     // (none)
}

// Limits are what may change while a Service runs; see Config.
type Limits struct {
	Timeout, Interval time.Duration
	MaxCheck          int
	MaxAge            time.Duration
}

// Service checks while Run runs.
type Service struct {
	cfg    Config
	logger hclog.Logger

	mu      sync.Mutex
	waiting map[int64]*asked // half messages that were asked about in this leadership

	checks, unasked, givenUp atomic.Uint64
	unreadable               atomic.Int64 // half messages that the last pass could not read
}

// New returns a service. Run makes it work.
func New(cfg Config) *Service {
	setDefault(&cfg.Timeout, 6*time.Second)
	setDefault(&cfg.Interval, time.Minute)
	setDefault(&cfg.MaxAge, 72*time.Hour)
	setDefault(&cfg.MaxCheck, 15)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	return &Service{cfg: cfg, logger: cfg.Logger.Named("transaction"), waiting: map[int64]*asked{}}
}

func setDefault[T int | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}

// Run passes over the open half messages every interval until ctx, which ends with the leadership, is done.
func (s *Service) Run(ctx context.Context) {
	s.mu.Lock()
	clear(s.waiting)
	s.mu.Unlock()
	s.refresh()
	tick := time.NewTicker(s.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if s.refresh() {
			tick.Reset(s.cfg.Interval)
		}
		if err := s.pass(ctx); err != nil && ctx.Err() == nil {
			s.logger.Warn("pass over half messages ended early, the next one goes on", "error", err)
		}
	}
}

// refresh takes the limits as they are now over, and reports whether the interval is another one. Run's goroutine only.
func (s *Service) refresh() (interval bool) {
	if s.cfg.Current == nil {
		return false
	}
	now, before := s.cfg.Current(), s.cfg.Interval
	s.cfg.Timeout, s.cfg.Interval, s.cfg.MaxCheck, s.cfg.MaxAge = now.Timeout, now.Interval, now.MaxCheck, now.MaxAge
	return s.cfg.Interval != before
}

// Stats are counters since start and gauges now.
type Stats struct {
	Checks  uint64 // producers were asked
	Unasked uint64 // no producer of the group was there to be asked
	GivenUp uint64
	Open    int64 // half messages without an end
}

// Stats returns a snapshot.
func (s *Service) Stats() Stats {
	return Stats{Checks: s.checks.Load(), Unasked: s.unasked.Load(), GivenUp: s.givenUp.Load(),
		Open: s.cfg.Tables.OpenHalves(s.cfg.Store.MaxOffset(metadata.HalfTopic, 0))}
}
