// Package jepsen puts the rooms below it together: a cluster of real processes, a workload, a
// nemesis, and the checkers that judge what clients saw. Quickstart is the short show of the
// same for people.
package jepsen

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"raftmq/jepsen/checker"
	"raftmq/jepsen/cluster"
	"raftmq/jepsen/history"
	"raftmq/jepsen/nemesis"
	"raftmq/jepsen/workload"
	"raftmq/transport/remoting"
)

// ErrInvalid: a run's history breaks a promise, or a node ended by itself.
var ErrInvalid = errors.New("jepsen: run is not valid")

// Config of Run. Zero values take the defaults in parentheses.
type Config struct {
	Nodes    int           // (3)
	First    int           // so many of them form the cluster (all); Do starts the others
	Time     time.Duration // of load and faults; recovery and checks come on top (60 s)
	Faults   []nemesis.Fault
	Seed     uint64
	Workload workload.Config
	Binary   string // raftmq executable
	// Dir gets data, logs and the history; it must be empty or missing. It is removed after a valid
	// run unless Keep is set.
	Dir  string
	Keep bool
	// Flags are further server flags.
	Flags []string
	// Hold, Quiet and LeaderShare are the nemesis's (its defaults).
	Hold, Quiet [2]time.Duration
	LeaderShare float64
	// Prepare changes the cluster before its first node starts: flags, what lies under the data folders.
	Prepare func(c *cluster.Cluster) error
	// Do takes the nemesis's place: what it does to the cluster happens under load, which ends when it
	// returns. It leaves all nodes running and healed. Time and Faults are not used then.
	Do   func(ctx context.Context, c *cluster.Cluster, rec *history.Recorder) error
	Logf func(format string, args ...any)
}

// DefaultFlags make a short run meet what a long one would: segments roll, snapshots are taken, the
// Raft log is truncated.
func DefaultFlags() []string {
	return []string{
		"--mapped-file-size-commit-log", "8MiB",
		"--mapped-file-size-consume-queue", "40000",
		"--raft-snapshot-bytes", "16MiB",
		"--raft-trailing-bytes", "4MiB",
	}
}

// Report is what came out of a run.
type Report struct {
	Valid    bool
	Results  []checker.Result
	Gaps     []checker.Gap
	Faults   []history.Op // of the nemesis
	Skipped  []string     // faults that are not to be had here, with the reason
	Sent     int
	Acked    int
	Statuses []remoting.NodeStatus // in the end; nil if the logs did not become equal in length
	Leader   Leaderless
	Errors   []error // besides the checkers': a node that crashed, a fault without effect
	Dir      string  // with history and logs, "" if it was removed
}

// Run runs the queue workload under faults. The error says why a run could not be made; what it
// found is in the report, and ErrInvalid when that is bad.
func Run(ctx context.Context, cfg Config) (*Report, error) {
	if cfg.Nodes == 0 {
		cfg.Nodes = 3
	}
	if cfg.Time == 0 {
		cfg.Time = time.Minute
	}
	if cfg.Logf == nil {
		cfg.Logf = func(string, ...any) {}
	}
	if entries, err := os.ReadDir(cfg.Dir); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("jepsen: folder %s is not empty", cfg.Dir)
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("jepsen: %w", err)
	}
	report := &Report{Dir: cfg.Dir}
	net, faults, err := network(cfg.Nodes, cfg.Faults, report)
	if err != nil {
		return nil, err
	}
	c, err := cluster.New(cluster.Config{Nodes: cfg.Nodes, Expect: cfg.First, Dir: cfg.Dir, Binary: cfg.Binary, Network: net, Flags: cfg.Flags})
	if err != nil {
		return nil, errors.Join(err, net.Close())
	}
	defer c.Close()
	if cfg.Prepare != nil {
		if err := cfg.Prepare(c); err != nil {
			return nil, err
		}
	}
	rec, err := history.Create(filepath.Join(cfg.Dir, "history.jsonl"))
	if err != nil {
		return nil, err
	}
	w := workload.NewQueue(c, rec, cfg.Workload)
	defer w.Close()
	if err := execute(ctx, &cfg, c, rec, w, faults, report); err != nil {
		_, cerr := rec.Close()
		return nil, errors.Join(err, cerr)
	}
	if err := c.Close(); err != nil {
		report.Errors = append(report.Errors, err)
	}
	if err := judge(c, rec, w, report); err != nil {
		return report, err
	}
	if !report.Valid {
		return report, ErrInvalid
	}
	if !cfg.Keep {
		report.Dir = ""
		return report, os.RemoveAll(cfg.Dir)
	}
	return report, nil
}

// network takes namespaces if a fault needs links that can be cut, and drops that fault where
// they are not to be had.
func network(nodes int, faults []nemesis.Fault, report *Report) (cluster.Network, []nemesis.Fault, error) {
	net, err := cluster.NewNamespaces(nodes)
	if errors.Is(err, cluster.ErrNoPartitions) {
		net, err = cluster.NewLoopback(nodes)
	}
	if err != nil {
		return nil, nil, err
	}
	var left []nemesis.Fault
	for _, f := range faults {
		if err := f.Available(net); err != nil {
			report.Skipped = append(report.Skipped, fmt.Sprintf("%s: %v", f.Name, err))
			continue
		}
		left = append(left, f)
	}
	if len(left) == 0 && len(faults) > 0 {
		return nil, nil, errors.Join(fmt.Errorf("jepsen: none of the faults is to be had here: %v", report.Skipped), net.Close())
	}
	return net, left, nil
}

const (
	startTimeout    = 30 * time.Second
	deliverTimeout  = 90 * time.Second // stock consumers may be blind for 33 s, then rebalance for 20
	convergeTimeout = time.Minute
	drainTimeout    = 2 * time.Minute
)

// execute starts the cluster, runs load and faults, heals, waits for delivery and equal logs, and drains. What the
// cluster does wrong goes into the report; an error means that no verdict is possible.
func execute(ctx context.Context, cfg *Config, c *cluster.Cluster, rec *history.Recorder, w *workload.Queue, faults []nemesis.Fault, report *Report) error {
	err := within(ctx, startTimeout, func(ctx context.Context) error {
		if err := c.StartExpected(); err != nil {
			return err
		}
		leader, err := c.WaitServing(ctx)
		if err == nil {
			cfg.Logf("%d nodes serve, %s leads", cfg.Nodes, leader.ID)
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := within(ctx, startTimeout, w.SetUp); err != nil {
		return err
	}
	watch := WatchLeader(c)
	err = hurt(ctx, cfg, c, rec, w, faults, report)
	report.Leader = watch.Stop()
	if err != nil {
		return err
	}
	settle(ctx, cfg, c, w, report)
	return ctx.Err()
}

// hurt runs the load and, beside it, the nemesis or what takes its place.
func hurt(ctx context.Context, cfg *Config, c *cluster.Cluster, rec *history.Recorder, w *workload.Queue, faults []nemesis.Fault, report *Report) error {
	load, cancel := context.WithCancel(ctx)
	defer cancel()
	struck := make(chan error, 1)
	go func() {
		defer cancel()
		if cfg.Do != nil {
			struck <- cfg.Do(ctx, c, rec)
			return
		}
		cfg.Logf("load for %v, seed %d", cfg.Time, cfg.Seed)
		timed, stop := context.WithTimeout(load, cfg.Time)
		defer stop()
		err := nemesis.Run(timed, c, rec, nemesis.Config{Faults: faults, Seed: cfg.Seed, Hold: cfg.Hold, Quiet: cfg.Quiet, LeaderShare: cfg.LeaderShare, Logf: cfg.Logf})
		<-timed.Done() // without a nemesis, or after its failure, the load has its time all the same
		struck <- err
	}()
	err := w.Produce(load)
	cancel()
	if nerr := <-struck; nerr != nil {
		report.Errors = append(report.Errors, nerr)
	}
	return errors.Join(err, ctx.Err())
}

// settle waits for the consumers and for equal logs, and reads every node.
func settle(ctx context.Context, cfg *Config, c *cluster.Cluster, w *workload.Queue, report *Report) {
	cfg.Logf("load ended, waiting for consumers")
	_ = within(ctx, deliverTimeout, func(ctx context.Context) error { w.AwaitDelivered(ctx); return nil })
	w.Close()
	cfg.Logf("waiting for equal logs")
	err := within(ctx, convergeTimeout, func(ctx context.Context) (err error) {
		report.Statuses, err = c.WaitConverged(ctx)
		return err
	})
	if err != nil {
		report.Errors = append(report.Errors, err)
	}
	cfg.Logf("draining every node")
	_ = within(ctx, drainTimeout, func(ctx context.Context) error { w.Drain(ctx); return nil })
	for _, n := range c.Nodes() {
		if err := n.Crashed(); err != nil {
			report.Errors = append(report.Errors, err)
		}
	}
}

func judge(c *cluster.Cluster, rec *history.Recorder, w *workload.Queue, report *Report) error {
	ops, err := rec.Close()
	if err != nil {
		return err
	}
	run := &checker.Run{Ops: ops, Groups: w.Groups(), Statuses: report.Statuses}
	for _, n := range c.Nodes() {
		run.Nodes = append(run.Nodes, n.ID)
	}
	report.Results = checker.All(run)
	report.Gaps = checker.Gaps(ops)
	for i := range ops {
		switch op := &ops[i]; op.Kind {
		case history.Fault:
			report.Faults = append(report.Faults, *op)
		case history.Send:
			report.Sent++
			if op.Outcome == history.OK {
				report.Acked++
			}
		}
	}
	if report.Acked == 0 {
		report.Errors = append(report.Errors, errors.New("jepsen: nothing was acknowledged"))
	}
	report.Valid = checker.Valid(report.Results) && len(report.Errors) == 0
	return nil
}

func within(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return f(ctx)
}
