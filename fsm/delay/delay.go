// Package delay delivers delayed messages (RocketMQ's ScheduleMessageService): on the leader, one
// goroutine a level reads the level's schedule queue from the replicated progress on, waits until the
// first message is due, and proposes everything that is due in one command.
//
// It stores nothing itself and keeps no state of its own that matters: what was delivered is said by the
// tables, which the command changes together with storing the messages.
//
// Invariants: a command is refused when the level's progress is not the one it was built on, so a new
// leader, a lost answer or a slow deposed leader neither loses nor repeats a message (F15); a command is
// applied whole or not at all (F17); within a level messages keep their order. What can't be
// delivered (its real topic is unknown) is passed over with a warning, never waited for.
package delay

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/fsm/metadata"
	"raftmq/seam"

	"github.com/hashicorp/go-hclog"
)

const (
	// batchBytes and batchMessages bound one command: enough that a backlog is delivered at full speed, little enough that
	// other commands do not wait long.
	batchBytes    = 512 << 10
	batchMessages = 4096
	// retryPause follows what should not happen: a refusal, a busy proposer.
	retryPause = 100 * time.Millisecond
	// damagePause follows a record that is damaged here: it must neither be delivered nor passed over, other nodes have it whole.
	damagePause = 5 * time.Second
	// longestWait bounds one sleep, since the wall clock may be set while a timer runs.
	longestWait = 10 * time.Second
	// clockTolerance is how far a store time may be ahead of this leader's clock; what is stored further in the future is due
	// at once, as with RocketMQ: the clock was wrong then, and must not hold messages back for longer than their delay.
	clockTolerance = time.Minute
)

// Proposal is raftnode's.
type Proposal interface {
	AppendCommand(dst []byte, storeMillis int64) []byte
	Done(entryResult any, i int, err error)
}

// Config of a Deliverer.
type Config struct {
	Store  *store.Store
	Tables *metadata.Tables
	// Propose takes a command on its way, as raftnode.Node.Propose does.
	Propose func(Proposal) error
	// Levels are the delays of levels 1, 2, …; those of the store and of the cluster's settings.
	Levels []time.Duration
	Now    func() time.Time // (time.Now)
	Logger hclog.Logger     // (none)
}

// Deliverer delivers while Run runs.
type Deliverer struct {
	cfg    Config
	logger hclog.Logger
	levels []*level

	delivered, discarded, commands atomic.Uint64
}

// New returns a deliverer that listens for arrivals in the schedule topic. Run makes it work.
func New(cfg Config) *Deliverer {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	d := &Deliverer{cfg: cfg, logger: cfg.Logger.Named("delay")}
	for i, after := range cfg.Levels {
		d.levels = append(d.levels, &level{d: d, number: i + 1, after: after, arrived: make(chan struct{}, 1)})
	}
	cfg.Store.OnArrival(func(topic []byte, queueID int32, _, _ int64) {
		if string(topic) == metadata.ScheduleTopic && int(queueID) < len(d.levels) {
			select {
			case d.levels[queueID].arrived <- struct{}{}:
			default:
			}
		}
	})
	return d
}

// Run delivers until ctx, which ends with the leadership, is done. One Run at a time.
func (d *Deliverer) Run(ctx context.Context) {
	var wg sync.WaitGroup
	for _, l := range d.levels {
		wg.Go(func() { l.run(ctx) })
	}
	wg.Wait()
}

// Stats are counters since start and a gauge now.
type Stats struct {
	Delivered, Discarded, Commands uint64
	Pending                        int64 // messages in the schedule queues
}

// Stats returns a snapshot.
func (d *Deliverer) Stats() Stats {
	s := Stats{Delivered: d.delivered.Load(), Discarded: d.discarded.Load(), Commands: d.commands.Load()}
	for _, l := range d.levels {
		s.Pending += max(0, d.cfg.Store.MaxOffset(metadata.ScheduleTopic, l.queueID())-d.cfg.Tables.DelayProgress(l.number))
	}
	return s
}

// level is one delay level. Its goroutine's own, but for arrived.
type level struct {
	d       *Deliverer
	number  int
	after   time.Duration
	arrived chan struct{} // something new may be readable

	got    store.GetResult
	batch  batch
	failed bool // the last delivery
}

var scheduleTopic = []byte(metadata.ScheduleTopic)

func (l *level) queueID() int32 { return int32(l.number - 1) }

func (l *level) run(ctx context.Context) {
	timer := time.NewTimer(longestWait)
	defer timer.Stop()
	back := int64(0)
	if seam.On(seam.ForgetDelay) {
		back = 20
	}
	for ctx.Err() == nil {
		wait := l.stepFrom(ctx, back)
		back = 0
		if wait == 0 {
			continue
		}
		arrived := l.arrived
		if wait > 0 {
			arrived = nil // the first message is known: later ones are due later
		} else {
			wait = longestWait
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-arrived:
		case <-ctx.Done():
		}
	}
}

// nothing is step's answer for an empty queue: wait for an arrival.
const nothing = -1

// step delivers what is due and tells how long to wait: 0 not at all, nothing until something arrives.
func (l *level) step(ctx context.Context) time.Duration { return l.stepFrom(ctx, 0) }

// stepFrom is step, which delivers again what is up to back before the progress: a planted bug wants that.
func (l *level) stepFrom(ctx context.Context, back int64) time.Duration {
	tables, st := l.d.cfg.Tables, l.d.cfg.Store
	progress := tables.DelayProgress(l.number)
	req := store.GetRequest{Topic: scheduleTopic, QueueID: l.queueID(), Offset: max(0, progress-back), MaxMsgs: batchMessages, MaxBytes: batchBytes}
	st.Get(&req, &l.got)
	defer l.got.Release()
	l.batch.start(l.number, progress)
	switch l.got.Status {
	case store.Found:
		if wait := l.gather(); l.batch.Next == progress {
			return wait
		}
	case store.NoMatchedLogicQueue, store.NoMessageInQueue, store.OffsetOverflowOne:
		return nothing
	case store.OffsetTooSmall, store.MessageWasRemoving:
		l.d.logger.Warn("delayed messages are no longer in the log", "level", l.number, "from", progress, "to", l.got.NextBeginOffset)
		l.batch.Next = l.got.NextBeginOffset
	default: // the store closes, or its log is being replaced
		return retryPause
	}
	return l.deliver(ctx)
}

// gather fills the batch with the messages that are due; when the first one that is not is due comes back.
func (l *level) gather() (wait time.Duration) {
	now := l.d.cfg.Now()
	for _, buf := range l.got.Buffers {
		for len(buf) > 0 {
			v := record.View(buf)
			n := v.Size()
			if wait = l.wait(v, now); wait > 0 {
				return wait
			}
			err := l.batch.add(v[:n:n])
			if errors.Is(err, errUndeliverable) {
				l.d.discarded.Add(1)
				l.d.logger.Warn("delayed message is passed over", "level", l.number, "queue-offset", v.QueueOffset(), "phy-offset", v.PhyOffset(), "error", err)
			} else if err != nil {
				l.d.logger.Error("delayed message is damaged on this node", "level", l.number, "queue-offset", v.QueueOffset(), "phy-offset", v.PhyOffset(), "error", err)
				return damagePause
			}
			l.batch.Next = v.QueueOffset() + 1
			buf = buf[n:]
		}
	}
	return 0
}

// wait is how long a message is not yet due.
func (l *level) wait(v record.View, now time.Time) time.Duration {
	wait := time.UnixMilli(v.StoreTimestamp()).Add(l.after).Sub(now)
	if seam.On(seam.EarlyDelay) {
		wait -= time.Second
	}
	if wait > l.after+clockTolerance {
		return 0
	}
	return max(0, min(wait, longestWait))
}

// deliver proposes the batch and waits until it is applied.
func (l *level) deliver(ctx context.Context) time.Duration {
	err := l.batch.propose(ctx, l.d.cfg.Propose)
	if err == nil {
		l.failed = false
		l.d.commands.Add(1)
		l.d.delivered.Add(uint64(l.batch.Count))
		return 0
	}
	if ctx.Err() == nil && !l.failed { // once, not ten times a second
		l.failed = true
		l.d.logger.Warn("delayed messages were not delivered, trying again", "level", l.number, "progress", l.batch.Expected, "messages", l.batch.Count, "error", err)
	}
	return retryPause
}
