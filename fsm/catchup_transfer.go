package fsm

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"raftmq/commitlog/store"
)

// leastPiece is what is asked for at once on the slowest links.
const leastPiece = 32 << 10

// transfer brings the log bytes of one snapshot from one leader into Staging.
type transfer struct {
	owner  *CatchUp
	leader string
	head   *head
	began  time.Time
	cancel context.CancelFunc
	done   chan struct{}
	err    error // after done

	asked    time.Time     // guarded by owner.mu
	progress CatchUpStatus // likewise

	piece  int64     // what is asked for at once
	next   time.Time // when the next piece may be asked for
	told   time.Time // when the log was last told
	toldAt int64
}

func (t *transfer) ended() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// failed tells that another transfer may be tried.
func (t *transfer) failed() bool { return t.ended() && t.err != nil }

func (t *transfer) update(f func(p *CatchUpStatus)) {
	t.owner.mu.Lock()
	defer t.owner.mu.Unlock()
	f(&t.progress)
}

// run tries until the bytes are here, it is cancelled, or nobody asks any more.
func (t *transfer) run(ctx context.Context) error {
	c := t.owner
	c.staging.Lock()
	defer c.staging.Unlock()
	var warned time.Time
	for {
		err := t.attempt(ctx)
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
		c.mu.Lock()
		idle := time.Since(t.asked)
		c.mu.Unlock()
		if idle > c.cfg.Interest {
			c.cfg.Logger.Info("gave up catching up, the leader does not ask for it any more", "leader", t.leader, "error", err)
			return err
		}
		if time.Since(warned) > c.cfg.ProgressEvery {
			c.cfg.Logger.Warn("catching up is held up, it goes on where it was", "leader", t.leader, "error", err)
			warned = time.Now()
		}
		t.update(func(p *CatchUpStatus) { p.State, p.Problem, p.BytesPerSecond = "waiting", err.Error(), 0 })
		select {
		case <-time.After(c.cfg.Retry):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (t *transfer) attempt(ctx context.Context) (err error) {
	src, err := t.owner.cfg.Dial(ctx, t.leader)
	if err != nil {
		return fmt.Errorf("reach the log of %s: %w", t.leader, err)
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	t.update(func(p *CatchUpStatus) {
		*p = CatchUpStatus{State: "comparing", To: t.head.Position.LogEnd, Fetched: p.Fetched}
	})
	plan, err := t.plan(ctx, src)
	if err != nil || plan.nothing {
		return err
	}
	if err := t.prepare(ctx, src, plan); err != nil {
		return err
	}
	if err := t.fetch(ctx, src); err != nil {
		return err
	}
	return t.finish(ctx, src)
}

// plan is what is to be fetched: from..head.Position.LogEnd.
type plan struct {
	nothing  bool // this node has it all
	from     int64
	replaces bool
	low      int64 // the leader's first byte
}

// plan compares what this node has with the leader's log.
func (t *transfer) plan(ctx context.Context, src LogSource) (p plan, err error) {
	c, end := t.owner, t.head.Position.LogEnd
	if _, p.low, err = src.Sum(ctx, end, end); err != nil && !errors.Is(err, ErrSourceOutside) {
		return p, err
	}
	ownLow, ownEnd := c.cfg.Store.LogRange()
	from, to := max(ownLow, p.low), min(ownEnd, end)
	start := min(max(p.low, t.head.LogMin), end)
	switch {
	case ownLow == ownEnd && ownEnd >= start && ownEnd <= end: // an empty log that the bytes go on from
		p.from = ownEnd
	case from >= to: // nothing in common
		p.from, p.replaces = start, true
	default:
		same, err := t.same(ctx, src, from, to)
		if err != nil {
			return p, err
		}
		p.from = ownEnd
		if !same {
			differs, err := t.firstDifference(ctx, src, from, to)
			if err != nil {
				return p, err
			}
			c.cfg.Logger.Error("this node's log differs from the leader's, all of it is replaced", "leader", t.leader, "phy-offset", differs, "log-min", ownLow, "log-max", ownEnd)
			p.from, p.replaces = start, true
		}
	}
	p.nothing = !p.replaces && ownEnd >= end
	return p, nil
}

// same tells whether this node was fed the same bytes as the leader.
func (t *transfer) same(ctx context.Context, src LogSource, from, to int64) (bool, error) {
	mine, err := t.owner.cfg.Store.LogSum(from, to)
	if err != nil {
		return false, fmt.Errorf("sum of this node's log: %w", err)
	}
	theirs, _, err := src.Sum(ctx, from, to)
	return mine == theirs, err
}

// firstDifference is where two logs begin to differ, by some KiB.
func (t *transfer) firstDifference(ctx context.Context, src LogSource, from, to int64) (int64, error) {
	for to-from > 4096 {
		middle := from + (to-from)/2
		same, err := t.same(ctx, src, from, middle)
		if err != nil {
			return 0, err
		}
		if same {
			from = middle
		} else {
			to = middle
		}
	}
	return from, nil
}

// prepare continues what is staged, if it fits the plan and is what the leader has; otherwise it begins anew.
func (t *transfer) prepare(ctx context.Context, src LogSource, p plan) error {
	c, end := t.owner, t.head.Position.LogEnd
	st := c.cfg.Staging
	if err := st.Resume(); err != nil {
		return err
	}
	if err := st.Unseal(); err != nil {
		return err
	}
	from, to, replaces := st.Range()
	resumed := to > from && replaces == p.replaces && from <= p.from && to > p.from
	if resumed {
		var err error
		if resumed, err = t.stagedSame(ctx, src, max(from, p.low), min(to, end)); err != nil {
			return err
		}
	}
	staged := int64(0)
	if resumed {
		staged = min(to, end) - from
	} else if err := st.Begin(p.from, p.replaces); err != nil {
		return err
	}
	from, to, _ = st.Range()
	c.cfg.Logger.Info("catching up: fetching log bytes of the leader", "leader", t.leader, "log-from", from, "log-to", end, "bytes", end-min(to, end), "staged-before", staged,
		"replace", p.replaces, "raft-index", t.head.Applied, "bytes-per-second-limit", c.cfg.Rate)
	t.update(func(s *CatchUpStatus) {
		s.State, s.From, s.At, s.Replaces, s.Problem = "fetching", from, min(to, end), p.replaces, ""
	})
	t.told, t.toldAt = time.Now(), to
	return nil
}

// stagedSame tells whether staged bytes are what the leader has.
func (t *transfer) stagedSame(ctx context.Context, src LogSource, from, to int64) (bool, error) {
	if from >= to {
		return false, nil
	}
	st := t.owner.cfg.Staging
	low, high, _ := st.Range()
	mine := st.Sum()
	if from != low || to != high {
		var sum summer
		if err := st.CopyTo(from, to, &sum); errors.Is(err, store.ErrStaging) {
			return false, nil
		} else if err != nil {
			return false, err
		}
		mine = uint32(sum)
	}
	theirs, _, err := src.Sum(ctx, from, to)
	return mine == theirs, err
}

// summer is a CRC-32C of what is written to it.
type summer uint32

// Write implements io.Writer.
func (s *summer) Write(p []byte) (int, error) {
	*s = summer(crc32.Update(uint32(*s), castagnoli, p))
	return len(p), nil
}

// fetch brings the rest of the bytes.
func (t *transfer) fetch(ctx context.Context, src LogSource) error {
	c, end := t.owner, t.head.Position.LogEnd
	st := c.cfg.Staging
	for {
		_, at, _ := st.Range()
		if at >= end {
			return nil
		}
		if err := t.pace(ctx, min(end-at, t.piece)); err != nil {
			return err
		}
		b, err := src.Range(ctx, at, min(end-at, t.piece))
		if err != nil {
			if errors.Is(err, context.DeadlineExceeded) { // a slow link
				t.piece = max(t.piece/2, leastPiece)
			}
			return err
		}
		if len(b) == 0 {
			return fmt.Errorf("%w: from %d on, the snapshot ends at %d", ErrSourceOutside, at, end)
		}
		if err := st.Append(b); err != nil {
			return err
		}
		t.tell(at+int64(len(b)), int64(len(b)))
	}
}

// pace waits until n more bytes may be fetched.
func (t *transfer) pace(ctx context.Context, n int64) error {
	rate := t.owner.cfg.Rate
	if rate <= 0 {
		return ctx.Err()
	}
	now := time.Now()
	if t.next.Before(now) {
		t.next = now
	}
	wait := t.next.Sub(now)
	t.next = t.next.Add(time.Duration(float64(n) / float64(rate) * float64(time.Second)))
	if wait <= 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// tell notes that n bytes came, and tells the log now and then.
func (t *transfer) tell(at, n int64) {
	c, end := t.owner, t.head.Position.LogEnd
	c.mu.Lock()
	c.total += n
	t.progress.At, t.progress.Fetched = at, t.progress.Fetched+n
	since := time.Since(t.told)
	if since > time.Second || t.progress.BytesPerSecond == 0 {
		t.progress.BytesPerSecond = float64(at-t.toldAt) / max(since.Seconds(), 1e-3)
	}
	pace, from := t.progress.BytesPerSecond, t.progress.From
	c.mu.Unlock()
	if since < c.cfg.ProgressEvery {
		return
	}
	t.told, t.toldAt = time.Now(), at
	c.cfg.Logger.Info("catching up", "leader", t.leader, "log-at", at, "log-to", end, "percent", fmt.Sprintf("%.1f", 100*float64(at-from)/float64(max(end-from, 1))),
		"bytes-per-second", int64(pace), "left", time.Duration(float64(end-at)/max(pace, 1)*float64(time.Second)).Round(time.Second))
}

// finish compares all that is staged with what the leader has applied, and seals it.
func (t *transfer) finish(ctx context.Context, src LogSource) error {
	c, end := t.owner, t.head.Position.LogEnd
	st := c.cfg.Staging
	from, _, replaces := st.Range()
	_, low, err := src.Sum(ctx, end, end)
	if err != nil && !errors.Is(err, ErrSourceOutside) {
		return err
	}
	if from = max(from, low); from < end {
		same, err := t.stagedSame(ctx, src, from, end)
		if err != nil {
			return err
		}
		if !same {
			return errors.Join(fmt.Errorf("%w: [%d, %d) of %s", errOtherBytes, from, end, t.leader), st.Clear())
		}
	}
	if err := st.Seal(t.head.Applied, end); err != nil {
		return err
	}
	var fetched int64
	t.update(func(p *CatchUpStatus) { p.State, fetched = "fetched", p.Fetched })
	took := time.Since(t.began)
	c.cfg.Logger.Info("catching up: the log bytes are here and match", "leader", t.leader, "log-to", end, "fetched", fetched, "took", took.Round(time.Millisecond),
		"bytes-per-second", int64(float64(fetched)/max(took.Seconds(), 1e-3)), "replace", replaces)
	return nil
}
