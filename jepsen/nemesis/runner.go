package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"raftmq/jepsen/cluster"
	"raftmq/jepsen/history"
)

// Config of a Runner. Zero values take the defaults in parentheses.
type Config struct {
	Faults []Fault
	Seed   uint64
	// Hold is how long a fault lasts, at least and at most (3 s, 8 s).
	Hold [2]time.Duration
	// Quiet is the time between recovery and the next fault, at least and at most (2 s, 4 s).
	Quiet [2]time.Duration
	// Recovery is how long the cluster may take to serve again after healing (60 s).
	Recovery time.Duration
	// LeaderShare of the faults hit the leader, the others any node (0.7).
	LeaderShare float64
	// Ground is what Prepare made of the cluster (nothing).
	Ground *Ground
	Logf   func(format string, args ...any)
}

// Run injects one fault after the other until ctx ends. Every fault kind comes once before any comes again, in random
// order. It returns with everything healed and all nodes serving, or with an error: a fault without effect, a node that
// ended by itself, or a cluster that did not recover.
func Run(ctx context.Context, c *cluster.Cluster, rec *history.Recorder, cfg Config) error {
	if len(cfg.Faults) == 0 {
		return nil
	}
	if cfg.Hold == [2]time.Duration{} {
		cfg.Hold = [2]time.Duration{3 * time.Second, 8 * time.Second}
	}
	if cfg.Quiet == [2]time.Duration{} {
		cfg.Quiet = [2]time.Duration{2 * time.Second, 4 * time.Second}
	}
	if cfg.Recovery == 0 {
		cfg.Recovery = time.Minute
	}
	if cfg.LeaderShare == 0 {
		cfg.LeaderShare = 0.7
	}
	if cfg.Ground == nil {
		cfg.Ground = &Ground{}
	}
	if cfg.Logf == nil {
		cfg.Logf = func(string, ...any) {}
	}
	rng := rand.New(rand.NewPCG(cfg.Seed, 0x6a657073656e))
	for {
		for _, i := range rng.Perm(len(cfg.Faults)) {
			if !wait(ctx, between(rng, cfg.Quiet)) {
				return nil
			}
			if err := strike(ctx, c, rec, &cfg, cfg.Faults[i], rng); err != nil {
				return err
			}
		}
	}
}

// strike injects one fault, holds it, heals it and waits for recovery. When ctx ends it heals early.
func strike(ctx context.Context, c *cluster.Cluster, rec *history.Recorder, cfg *Config, f Fault, rng *rand.Rand) error {
	// The plan must not depend on how the cluster fares, so every draw is made in any case.
	wantLeader, other, hold := rng.Float64() < cfg.LeaderShare, rng.IntN(len(c.Nodes())), between(rng, cfg.Hold)
	s := &site{c: c, disks: cfg.Ground.disks, rng: rand.New(rand.NewPCG(rng.Uint64(), 0))}
	for _, n := range c.Nodes() {
		if n.Running() {
			s.nodes = append(s.nodes, n)
		}
	}
	healing := context.WithoutCancel(ctx)
	lctx, cancel := context.WithTimeout(healing, cfg.Recovery)
	leader, err := c.Leader(lctx)
	cancel()
	if err != nil {
		return fmt.Errorf("nemesis: before %s: %w", f.Name, err)
	}
	role := "any node"
	if s.target = s.nodes[other%len(s.nodes)]; wantLeader {
		s.target, role = leader, "the leader"
	}
	op := rec.Begin(history.Op{Kind: history.Fault, Process: "nemesis", Fault: f.Name, Node: s.target.ID, Queue: -1, Offset: -1})
	w, err := f.inject(healing, s)
	if err == nil {
		cfg.Logf("%s %s (%s): %s", f.Name, s.target.ID, role, w.proof)
		wait(ctx, hold)
	}
	proof := w.proof
	if w.heal != nil { // also what failed half-way
		more, herr := w.heal(healing)
		if more != "" {
			proof += "; " + more
		}
		err = worse(err, herr)
	}
	if err == nil {
		healed := rec.Now()
		rctx, cancel := context.WithTimeout(healing, cfg.Recovery)
		var now *cluster.Node
		now, err = c.WaitServing(rctx)
		cancel()
		if err == nil {
			cfg.Logf("%s %s healed, all nodes serve after %v, %s leads; %s", f.Name, s.target.ID, (rec.Now() - healed).Round(time.Millisecond), now.ID, proof)
		}
	}
	op.Outcome, op.Detail = history.OK, fmt.Sprintf("%s (%s), held %v", proof, role, hold)
	op.Spares = f.isolates && !slices.Contains(w.nodes, leader)
	for _, n := range w.nodes {
		op.Nodes = append(op.Nodes, n.ID)
	}
	if err != nil {
		op.Outcome, op.Error = history.Fail, err.Error()
		err = fmt.Errorf("nemesis: %s %s: %w", f.Name, s.target.ID, err)
	}
	rec.End(op)
	return err
}

// worse joins two errors; it is ErrNoEffect only if both are, or the other is nil: a fault that could not be healed is no fault without effect.
func worse(a, b error) error {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	case errors.Is(a, ErrNoEffect) == errors.Is(b, ErrNoEffect):
		return errors.Join(a, b)
	case errors.Is(a, ErrNoEffect):
		return fmt.Errorf("%w (besides: %v)", b, a)
	default:
		return fmt.Errorf("%w (besides: %v)", a, b)
	}
}

func between(rng *rand.Rand, limits [2]time.Duration) time.Duration {
	return limits[0] + time.Duration(rng.Int64N(int64(limits[1]-limits[0])+1))
}

// wait sleeps d or until ctx ends, and reports whether it slept all of it.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
