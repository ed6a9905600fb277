// Package retention decides what of the commit log is old enough to go. It runs on the leader only, looks at the
// leader's own log, clock and disk, and proposes command.LogTrim: so every node gives up the same range with the same
// entry, whatever its own clock and disk say (Deterministic-Apply). Nobody's files are touched here; each
// node's store removes its own when it has applied the command.
//
// The rules are those of RocketMQ's CleanCommitLogService: whole segments, oldest first, never the last; older than
// FileReservedTime, during the hours of DeleteWhen, or when the disk is fuller than MaxUsedRatio, or when an operator asks; and
// without regard to age when the disk is fuller than CleanForciblyRatio. Four differences, on purpose:
//
//   - Age is the store time of a segment's newest record, not the modification time of its file: that one is different
//     on every node and is lost with a copy.
//   - Forced cleaning takes messages from consumers that are behind, on all nodes. So it begins when the disk has been too
//     full for half a minute, since a moment is no reason (F27), and not while Spare says that a node with room
//     could lead.
//   - It takes as many segments as the disk is too full by, not always ten.
//   - It takes no more while segments of the round before are still on disk.
//
// A follower whose disk is fuller than the leader's is not heard: it says so in its own log and status, and takes no
// harm before it is full.
package retention

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"raftmq/commitlog/store"
	"raftmq/fsm/command"
	"raftmq/seam"

	"github.com/hashicorp/go-hclog"
)

// Store is the leader's store.
type Store interface {
	LogRange() (min, max int64)
	SegmentSize() int64
	// NewestBefore is the store time of the newest record below a segment boundary, ms.
	NewestBefore(boundary int64) (millis int64, err error)
	Space() store.Space
	// Cleaning: segments of what was trimmed still take space.
	Cleaning() bool
}

// Config of a Loop. Zero values take the defaults in parentheses.
type Config struct {
	Store   Store
	Propose func(ctx context.Context, command []byte) error

	FileReservedTime   time.Duration // fileReservedTime (72 h)
	DeleteWhen         []int         // deleteWhen: hours of the day, 0 to 23 (4)
	MaxUsedRatio       int           // diskMaxUsedSpaceRatio, percent (75)
	CleanForciblyRatio int           // diskSpaceCleanForciblyRatio, percent (85)
	CleanForcibly      bool          // cleanFileForciblyEnable
	// Current gives the five above as they are now, asked at each round. nil: they do not change.
	Current func() Limits
	// Spare is asked before forced cleaning: true when another node that could lead has room. nil: none has.
	Spare func(ctx context.Context) bool

	Interval time.Duration  // cleanResourceInterval (10 s)
	Location *time.Location // of DeleteWhen (time.Local)
	Now      func() time.Time
	Logger   hclog.Logger
}

// Limits are what may change while a Loop runs; see Config.
type Limits struct {
	FileReservedTime   time.Duration
	DeleteWhen         []int
	MaxUsedRatio       int
	CleanForciblyRatio int
	CleanForcibly      bool
}

func (c *Config) ensureDefaults() {
	setDefault(&c.FileReservedTime, 72*time.Hour)
	setDefault(&c.MaxUsedRatio, 75)
	setDefault(&c.CleanForciblyRatio, 85)
	setDefault(&c.Interval, 10*time.Second)
	if c.DeleteWhen == nil {
		c.DeleteWhen = []int{4}
	}
	if c.Location == nil {
		c.Location = time.Local
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
}

func setDefault[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

// ParseDeleteWhen reads RocketMQ's deleteWhen: hours of the day separated by ';', such as 04 or 02;14.
func ParseDeleteWhen(text string) ([]int, error) {
	var hours []int
	for _, part := range strings.Split(text, ";") {
		hour, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || hour < 0 || hour > 23 {
			return nil, fmt.Errorf("retention: %q in %q is no hour of the day, 0 to 23", part, text)
		}
		hours = append(hours, hour)
	}
	return hours, nil
}

// Limits of a round (RocketMQ's DELETE_FILES_BATCH_MAX and MAX_MANUAL_DELETE_FILE_TIMES).
const (
	mostSegments = 10
	manualRounds = 20
	// patience is how many rounds forced cleaning waits for segments that somebody still reads.
	patience = 12
	// grace is how many rounds the disk must have been too full before forced cleaning.
	grace = 3
)

// Loop is the decision maker. One Run at a time.
type Loop struct {
	cfg    Config
	logger hclog.Logger
	manual atomic.Int32 // rounds left that an operator has asked for
	wake   chan struct{}
	over   int // rounds in a row above CleanForciblyRatio
	waited int // rounds of patience so far
}

// New returns a loop; Run runs it.
func New(cfg Config) *Loop {
	cfg.ensureDefaults()
	return &Loop{cfg: cfg, logger: cfg.Logger.Named("retention"), wake: make(chan struct{}, 1)}
}

// Arm makes the next rounds delete what is old enough at any hour (DELETE_EXPIRED_COMMITLOG).
func (l *Loop) Arm() {
	l.manual.Store(manualRounds)
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run decides once in each Interval until ctx, which ends with the leadership.
func (l *Loop) Run(ctx context.Context) {
	tick := time.NewTicker(l.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-l.wake:
		case <-ctx.Done():
			return
		}
		l.round(ctx)
	}
}

func (l *Loop) round(ctx context.Context) {
	if l.cfg.Current != nil {
		now := l.cfg.Current()
		l.cfg.FileReservedTime, l.cfg.DeleteWhen, l.cfg.MaxUsedRatio = now.FileReservedTime, now.DeleteWhen, now.MaxUsedRatio
		l.cfg.CleanForciblyRatio, l.cfg.CleanForcibly = now.CleanForciblyRatio, now.CleanForcibly
	}
	trigger := l.trigger(ctx)
	if trigger.reason == "" {
		return
	}
	low, _ := l.cfg.Store.LogRange()
	to, newest := l.reach(&trigger)
	if to <= low {
		return
	}
	l.logger.Info("old messages go", "reason", trigger.reason, "forced", trigger.segments > 0, "from", low, "to", to,
		"newest", time.UnixMilli(newest).UTC().Format(time.RFC3339))
	encoded, err := command.AppendJSON(nil, command.KindLogTrim, command.LogTrim{MinOffset: to})
	if err == nil {
		err = l.cfg.Propose(ctx, encoded)
	}
	if err != nil && ctx.Err() == nil {
		l.logger.Warn("could not trim the log, trying again in the next round", "to", to, "error", err)
	}
}

// trigger is why a round deletes.
type trigger struct {
	reason   string // "" when it doesn't
	segments int64  // to take whatever their age; 0: only old ones
}

func (l *Loop) trigger(ctx context.Context) (t trigger) {
	full, segments := l.space()
	switch {
	case l.manual.Load() > 0:
		l.manual.Add(-1)
		t.reason = "manual"
	case slices.Contains(l.cfg.DeleteWhen, l.cfg.Now().In(l.cfg.Location).Hour()):
		t.reason = "time"
	}
	if full {
		t.reason = "space"
	}
	if segments == 0 || !l.cfg.CleanForcibly {
		l.over, l.waited = 0, 0
		return t
	}
	if l.over++; l.over <= grace || l.cfg.Spare != nil && l.cfg.Spare(ctx) {
		return t
	}
	// What is on its way out has to be out before it can be told how much more must go.
	if l.cfg.Store.Cleaning() && l.waited < patience {
		l.waited++
		return t
	}
	l.waited = 0
	t.segments = segments
	return t
}

// space tells whether the disk asks for cleaning, and how many segments it is above CleanForciblyRatio. A disk that can't
// be read asks, as in RocketMQ.
func (l *Loop) space() (full bool, segments int64) {
	s := l.cfg.Store.Space()
	for _, d := range []store.Disk{s.CommitLog, s.ConsumeQueue} {
		ratio := d.Ratio()
		if ratio > float64(l.cfg.CleanForciblyRatio)/100 {
			used := d.Total - d.Free
			over := float64(used) - float64(used+d.Usable)*float64(l.cfg.CleanForciblyRatio)/100
			segments = max(segments, int64(math.Ceil(over/float64(l.cfg.Store.SegmentSize()))), 1)
		}
		full = full || ratio < 0 || ratio > float64(l.cfg.MaxUsedRatio)/100
	}
	return full, segments
}

// reach is the segment boundary up to which a round may trim, and the newest store time below it. The last segment
// stays, and the first that is too young ends it.
func (l *Loop) reach(t *trigger) (to, newest int64) {
	size := l.cfg.Store.SegmentSize()
	low, end := l.cfg.Store.LogRange()
	to = low
	last := (max(end, 1) - 1) / size * size
	reserved := l.cfg.FileReservedTime
	if seam.On(seam.EarlyTrim) {
		reserved /= 4
	}
	oldest := l.cfg.Now().Add(-reserved).UnixMilli()
	for n := int64(0); n < mostSegments; n++ {
		boundary := (low/size + 1 + n) * size
		if boundary > last {
			break
		}
		millis, err := l.cfg.Store.NewestBefore(boundary)
		if err != nil {
			l.logger.Warn("could not tell the age of a segment", "before", boundary, "error", err)
			break
		}
		if millis > oldest && n >= t.segments {
			break
		}
		to, newest = boundary, millis
	}
	return to, newest
}
