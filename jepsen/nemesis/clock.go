package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"raftmq/jepsen/cluster"
	"raftmq/transport/remoting"
)

func clockFile(n *cluster.Node) string { return filepath.Join(filepath.Dir(n.DataDir), "clock") }

// setClock makes a node's wall clock be off by d, at its next look at the file. Its monotonic clock goes on undisturbed.
func setClock(n *cluster.Node, d time.Duration) error {
	path := clockFile(n)
	if err := errors.Join(os.WriteFile(path+".tmp", fmt.Appendf(nil, "raftmq-test-clock %v", d), 0o600), os.Rename(path+".tmp", path)); err != nil {
		return fmt.Errorf("nemesis: clock of %s: %w", n.ID, err)
	}
	return nil
}

// clockOff is how far a node's clock is from this program's, as the node says.
func clockOff(ctx context.Context, n *cluster.Node) (time.Duration, error) {
	before := time.Now()
	st, err := n.Status(ctx)
	if err != nil {
		return 0, err
	}
	return time.UnixMilli(st.ClockMillis).Sub(before.Add(time.Since(before) / 2)), nil
}

// clockTolerance is for the way to the node and its look at the file.
const clockTolerance = 500 * time.Millisecond

// awaitClock waits until a node says that its clock is off by d.
func awaitClock(ctx context.Context, n *cluster.Node, d time.Duration) (off time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	_, err = n.WaitStatus(ctx, "another clock", func(st remoting.NodeStatus) bool {
		off = time.Until(time.UnixMilli(st.ClockMillis))
		return (off - d).Abs() < clockTolerance
	})
	if err != nil {
		err = fmt.Errorf("%w: the clock of %s is off by %v, want %v: %w", ErrNoEffect, n.ID, off, d, err)
	}
	return off, err
}

// clockStep puts the target's clock forward or back, at once.
func clockStep(ctx context.Context, s *site) (*wound, error) {
	n := s.target
	w := &wound{nodes: []*cluster.Node{n}}
	d := []time.Duration{5 * time.Second, time.Minute, time.Hour}[s.rng.IntN(3)]
	if s.rng.IntN(2) == 0 {
		d = -d
	}
	w.heal = func(ctx context.Context) (string, error) {
		if err := setClock(n, 0); err != nil {
			return "", err
		}
		off, err := awaitClock(ctx, n, 0)
		return fmt.Sprintf("put back, off by %v", off.Round(time.Millisecond)), err
	}
	if err := setClock(n, d); err != nil {
		return w, err
	}
	off, err := awaitClock(ctx, n, d)
	w.proof = fmt.Sprintf("put on by %v: %s says that it is off by %v", d, n.ID, off.Round(time.Millisecond))
	return w, err
}

// driftEvery is how often a drifting clock is put on a little.
const driftEvery = 50 * time.Millisecond

// clockDrift makes the target's clock run slow or fast. In the end it is put right at once, as a time service does with one that is far off.
func clockDrift(ctx context.Context, s *site) (*wound, error) {
	n := s.target
	w := &wound{nodes: []*cluster.Node{n}}
	rate := -0.5 + 1.5*s.rng.Float64()
	stop, done := make(chan struct{}), make(chan error, 1)
	began := time.Now()
	go func() {
		tick := time.NewTicker(driftEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				done <- nil
				return
			case <-tick.C:
			}
			if err := setClock(n, time.Duration(rate*float64(time.Since(began)))); err != nil {
				done <- err
				return
			}
		}
	}()
	w.heal = func(ctx context.Context) (string, error) {
		off, offErr := clockOff(ctx, n)
		want := time.Duration(rate * float64(time.Since(began)))
		close(stop)
		if err := errors.Join(<-done, setClock(n, 0)); err != nil {
			return "", err
		}
		if offErr == nil && (off-want).Abs() > clockTolerance+want.Abs()/2 {
			offErr = fmt.Errorf("%w: the clock of %s is off by %v after %v", ErrNoEffect, n.ID, off, time.Since(began))
		}
		if offErr != nil {
			return "", offErr
		}
		_, err := awaitClock(ctx, n, 0)
		return fmt.Sprintf("off by %v after %v", off.Round(time.Millisecond), time.Since(began).Round(time.Millisecond)), err
	}
	w.proof = fmt.Sprintf("gains %.2f s in a second", rate)
	return w, ctx.Err()
}
