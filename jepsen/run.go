// Package jepsen puts the rooms below it together: a cluster of real processes, a workload, a
// nemesis, and the checkers that judge what clients saw. Quickstart is the short show of the
// same for people.
package jepsen

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"raftmq/jepsen/checker"
	"raftmq/jepsen/cluster"
	"raftmq/jepsen/history"
	"raftmq/jepsen/nemesis"
	"raftmq/jepsen/workload"
	"raftmq/seam"
	"raftmq/transport/remoting"
)

// ErrInvalid: a run's history breaks a promise, or a node ended by itself.
var ErrInvalid = errors.New("jepsen: run is not valid")

// ErrNotHere: none of the faults is to be had on this machine.
var ErrNotHere = errors.New("jepsen: none of the faults is to be had here")

// Config of Run. Zero values take the defaults in parentheses.
type Config struct {
	Nodes    int           // (3)
	First    int           // so many of them form the cluster (all); Do starts the others
	Time     time.Duration // of load and faults; recovery and checks come on top (60 s)
	Faults   []nemesis.Fault
	Nemesis  string // how the faults were asked for
	Seed     uint64
	Workload workload.Config
	Binary   string // raftmq executable
	// SeamBinary is one with the seam, "" for none: it takes Binary's place where a fault needs it or a bug is planted.
	SeamBinary string
	// Bug is planted in the nodes of BugNodes (all).
	Bug      seam.Bug
	BugNodes []string
	// Patience is how long consumers may take to get what is left for them, nodes to come to equal logs, and the last reading (90 s, 60 s, 120 s).
	Patience time.Duration
	// Recovery is the nemesis's (its default).
	Recovery time.Duration
	// Dir gets data, logs and the history; it must be empty or missing. It is removed after a valid
	// run unless Keep is set.
	Dir  string
	Keep bool
	// Flags are further server flags, besides the workload's.
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

// DefaultFlags make a short run meet what a long one would: segments and key index files roll, snapshots are taken, the
// Raft log is truncated. Index files of the usual size would have each node write 20 MB of slots here and there, whatever is sent.
func DefaultFlags() []string {
	return []string{
		"--mapped-file-size-commit-log", "8MiB",
		"--mapped-file-size-consume-queue", "40000",
		"--max-hash-slot-num", "20000", "--max-index-num", "80000",
		"--raft-snapshot-bytes", "16MiB",
		"--raft-trailing-bytes", "4MiB",
	}
}

// Report is what came out of a run.
type Report struct {
	Valid    bool
	Info     history.RunInfo
	Results  []checker.Result
	Gaps     []checker.Gap
	Faults   []history.Op // of the nemesis
	Skipped  []string     // faults that are not to be had here, with the reason
	Sent     int
	Acked    int
	Ops      int                   // operations of all kinds that were answered
	Statuses []remoting.NodeStatus // in the end; nil if the logs did not become equal in length
	Leader   Leaderless
	Errors   []error // besides the checkers': a node that crashed, a fault without effect
	Took     time.Duration
	Dir      string // with history and logs, "" if it was removed
}

// Run runs a workload under faults. The error says why a run could not be made; what it
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
	kind, err := workload.KindOf(cmp.Or(cfg.Workload.Kind, checker.Queue))
	if err != nil {
		return nil, err
	}
	cfg.Workload.Kind, cfg.Time = kind.Name, max(cfg.Time, kind.Least)
	cfg.Workload.Seed = cfg.Seed
	began := time.Now()
	report := &Report{Dir: cfg.Dir}
	if cfg.Do == nil {
		if cfg.Faults, err = besides(cfg.Faults, kind.Faults); err != nil {
			return nil, err
		}
	}
	if kind.Tables && needs(cfg.Faults)&nemesis.NeedsLog != 0 {
		return nil, fmt.Errorf("%w: %s puts nothing into the log", ErrNotHere, kind.Name)
	}
	if needs(cfg.Faults)&nemesis.NeedsSpares != 0 && cfg.First == 0 {
		cfg.First, cfg.Nodes = cfg.Nodes, cfg.Nodes+spares
	}
	net, faults, err := network(&cfg, report)
	if err != nil {
		return nil, err
	}
	shadows := needs(faults)&nemesis.NeedsSeam != 0
	if shadows || cfg.Bug != "" {
		cfg.Binary = cfg.SeamBinary
	}
	c, err := cluster.New(cluster.Config{Nodes: cfg.Nodes, Expect: cfg.First, Dir: cfg.Dir, Binary: cfg.Binary, Network: net,
		Flags: slices.Concat(cfg.Flags, kind.Flags), Shadow: shadows})
	if err != nil {
		return nil, errors.Join(err, net.Close())
	}
	plant(c, &cfg)
	ground := &nemesis.Ground{}
	defer func() { _ = ground.Close() }() // after the processes have ended
	defer c.Close()
	if cfg.Prepare != nil {
		if err := cfg.Prepare(c); err != nil {
			return nil, err
		}
	}
	if ground, err = nemesis.Prepare(c, needs(faults)); err != nil {
		return nil, err
	}
	rec, err := history.Create(filepath.Join(cfg.Dir, "history.jsonl"))
	if err != nil {
		return nil, err
	}
	w := workload.New(c, rec, cfg.Workload)
	defer w.Close()
	writeHeader(c, rec, w, &cfg)
	if err := execute(ctx, &cfg, c, rec, w, faults, ground, report); err != nil {
		_, cerr := rec.Close()
		return nil, errors.Join(err, cerr)
	}
	if err := c.Close(); err != nil {
		report.Errors = append(report.Errors, err)
	}
	if err := ground.Close(); err != nil {
		report.Errors = append(report.Errors, err)
	}
	if err := judge(rec, report); err != nil {
		return report, err
	}
	report.Took = time.Since(began)
	if !report.Valid {
		return report, ErrInvalid
	}
	if !cfg.Keep {
		report.Dir = ""
		return report, os.RemoveAll(cfg.Dir)
	}
	return report, nil
}

// void tells that faults took no effect and that nothing else is wrong.
func (r *Report) void() bool {
	return len(r.Errors) > 0 && checker.Valid(r.Results) && !slices.ContainsFunc(r.Errors, func(err error) bool { return !errors.Is(err, nemesis.ErrNoEffect) })
}

// besides adds a workload's own faults to a run's. They take turns: of three voters one may be changed while the others are well.
func besides(faults []nemesis.Fault, names []string) ([]nemesis.Fault, error) {
	if len(names) == 0 {
		return faults, nil
	}
	own, err := nemesis.Parse(strings.Join(names, ","))
	if err != nil {
		return nil, err
	}
	all := slices.Concat(faults, own)
	if err := nemesis.Compatible(needs(all)); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotHere, err)
	}
	return all, nil
}

// network takes namespaces if a fault needs links that can be cut, and drops that fault where
// they are not to be had.
func network(cfg *Config, report *Report) (cluster.Network, []nemesis.Fault, error) {
	net, err := cluster.NewNamespaces(cfg.Nodes)
	if errors.Is(err, cluster.ErrNoPartitions) {
		net, err = cluster.NewLoopback(cfg.Nodes)
	}
	if err != nil {
		return nil, nil, err
	}
	var left []nemesis.Fault
	for _, f := range cfg.Faults {
		err := f.Available(net)
		if f.Needs&nemesis.NeedsSeam != 0 && cfg.SeamBinary == "" {
			err = errors.Join(err, errors.New("jepsen: it needs a server with the seam"))
		}
		if err != nil {
			report.Skipped = append(report.Skipped, fmt.Sprintf("%s: %v", f.Name, err))
			continue
		}
		left = append(left, f)
	}
	if len(left) == 0 && len(cfg.Faults) > 0 {
		return nil, nil, errors.Join(fmt.Errorf("%w: %v", ErrNotHere, report.Skipped), net.Close())
	}
	return net, left, nil
}

// plant gives the nodes their bug.
func plant(c *cluster.Cluster, cfg *Config) {
	for _, n := range c.Nodes() {
		if cfg.Bug != "" && (len(cfg.BugNodes) == 0 || slices.Contains(cfg.BugNodes, n.ID)) {
			n.Env = append(n.Env, seam.BugEnv+"="+string(cfg.Bug))
		}
	}
}

func needs(faults []nemesis.Fault) (all nemesis.Needs) {
	for _, f := range faults {
		all |= f.Needs
	}
	return all
}

func writeHeader(c *cluster.Cluster, rec *history.Recorder, w workload.Workload, cfg *Config) {
	info := w.Info()
	info.Nemesis, info.Seed, info.Began = cfg.Nemesis, cfg.Seed, rec.Began().UnixMilli()
	info.Checks = checker.Checks(info.Workload)
	for _, n := range c.Nodes() {
		info.Nodes = append(info.Nodes, n.ID)
	}
	rec.Add(history.Op{Kind: history.Header, Process: "harness", Outcome: history.OK, Queue: -1, Offset: -1, Run: &info})
}

// spares is how many nodes join and leave where a fault calls for some.
const spares = 2

const (
	startTimeout    = time.Minute
	deliverTimeout  = 90 * time.Second // stock consumers may be blind for 33 s, then rebalance for 20
	convergeTimeout = 2 * time.Minute
	drainTimeout    = 2 * time.Minute
	repairTimeout   = 90 * time.Second // a round of the comparison of replicas, and a scrub
)

// execute starts the cluster, runs load and faults, heals, waits for delivery and equal logs, and drains. What the
// cluster does wrong goes into the report; an error means that no verdict is possible.
func execute(ctx context.Context, cfg *Config, c *cluster.Cluster, rec *history.Recorder, w workload.Workload, faults []nemesis.Fault, ground *nemesis.Ground, report *Report) error {
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
	watch := WatchLeader(c, rec)
	err = hurt(ctx, cfg, c, rec, w, faults, ground, report)
	report.Leader = watch.Stop()
	if err != nil {
		return err
	}
	settle(ctx, cfg, c, rec, w, report)
	return ctx.Err()
}

// hurt runs the load and, beside it, the nemesis or what takes its place.
func hurt(ctx context.Context, cfg *Config, c *cluster.Cluster, rec *history.Recorder, w workload.Workload, faults []nemesis.Fault, ground *nemesis.Ground, report *Report) error {
	load, cancel := context.WithCancel(ctx)
	defer cancel()
	begin := rec.Now()
	ended := make(chan time.Duration, 1)
	context.AfterFunc(load, func() { ended <- rec.Now() })
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
		err := nemesis.Run(timed, c, rec, nemesis.Config{Faults: faults, Seed: cfg.Seed, Hold: cfg.Hold, Quiet: cfg.Quiet, LeaderShare: cfg.LeaderShare, Recovery: cfg.Recovery, Ground: ground, Logf: cfg.Logf})
		<-timed.Done() // without a nemesis, or after its failure, the load has its time all the same
		struck <- err
	}()
	err := w.Produce(load)
	cancel()
	rec.Add(history.Op{Kind: history.Load, Process: "harness", Outcome: history.OK, Start: begin, End: <-ended, Queue: -1, Offset: -1})
	if nerr := <-struck; nerr != nil {
		report.Errors = append(report.Errors, nerr)
	}
	return errors.Join(err, ctx.Err())
}

// settle waits for the consumers and for equal logs, and reads every node.
func settle(ctx context.Context, cfg *Config, c *cluster.Cluster, rec *history.Recorder, w workload.Workload, report *Report) {
	if cfg.Do == nil && cfg.First > 0 {
		cfg.Logf("load ended, the other nodes join")
		if err := within(ctx, convergeTimeout, func(ctx context.Context) error { return nemesis.JoinAll(ctx, c) }); err != nil {
			report.Errors = append(report.Errors, err)
		}
	}
	cfg.Logf("load ended, waiting for consumers")
	_ = within(ctx, cmp.Or(cfg.Patience, deliverTimeout), func(ctx context.Context) error { w.AwaitDelivered(ctx); return nil })
	w.Close()
	cfg.Logf("waiting for equal logs")
	err := within(ctx, cmp.Or(cfg.Patience, convergeTimeout), func(ctx context.Context) (err error) {
		report.Statuses, err = equalLogs(ctx, c)
		return err
	})
	if err != nil {
		report.Errors = append(report.Errors, err)
	}
	cfg.Logf("draining every node")
	_ = within(ctx, cmp.Or(cfg.Patience, drainTimeout), func(ctx context.Context) error { w.Drain(ctx); return nil })
	if !sameLogs(report.Statuses) {
		// Damage is repaired where it is read, and by a scrub that takes its time. What differs for good still does then.
		cfg.Logf("logs differ, waiting for repair")
		_ = within(ctx, cmp.Or(cfg.Patience, repairTimeout), func(ctx context.Context) error {
			report.Statuses = repaired(ctx, c, report.Statuses)
			return nil
		})
	}
	for _, st := range report.Statuses {
		rec.Add(history.Op{Kind: history.State, Process: "harness", Outcome: history.OK, Node: st.NodeID, Queue: -1, Offset: -1,
			Log: &history.LogState{Min: st.LogMin, Max: st.LogMax, ChecksumTo: st.ChecksumTo, Checksum: st.LogChecksum}})
	}
	for _, n := range c.Nodes() {
		if err := n.Crashed(); err != nil {
			report.Errors = append(report.Errors, err)
		}
	}
}

// sameLogs reports whether the checksums of logs agree.
func sameLogs(sts []remoting.NodeStatus) bool {
	return !slices.ContainsFunc(sts, func(st remoting.NodeStatus) bool { return st.LogChecksum != sts[0].LogChecksum })
}

// repaired takes checksums until they agree or ctx ends; it returns the last ones.
func repaired(ctx context.Context, c *cluster.Cluster, sts []remoting.NodeStatus) []remoting.NodeStatus {
	for {
		if now, err := equalLogs(ctx, c); err == nil {
			if sts = now; sameLogs(sts) {
				return sts
			}
		}
		select {
		case <-ctx.Done():
			return sts
		case <-time.After(time.Second):
		}
	}
}

// equalLogs waits for logs of equal length. Where messages expire meanwhile, checksums of different beginnings say nothing and are
// taken again.
func equalLogs(ctx context.Context, c *cluster.Cluster) ([]remoting.NodeStatus, error) {
	for {
		sts, err := c.WaitConverged(ctx)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(sts, func(st remoting.NodeStatus) bool { return st.LogMin != sts[0].LogMin }) {
			return sts, nil
		}
		select {
		case <-ctx.Done():
			return sts, nil
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func judge(rec *history.Recorder, report *Report) error {
	ops, err := rec.Close()
	if err != nil {
		return err
	}
	return Judge(ops, report)
}

// Judge checks a history and fills in the report.
func Judge(ops []history.Op, report *Report) error {
	run, err := checker.FromHistory(ops)
	if err != nil {
		return err
	}
	report.Info, report.Statuses = run.Info, run.Statuses
	report.Results = checker.All(run)
	report.Gaps = checker.Gaps(ops)
	for i := range ops {
		op := &ops[i]
		switch op.Kind {
		case history.Fault:
			report.Faults = append(report.Faults, *op)
			continue
		case history.Send:
			report.Sent++
			if op.Outcome == history.OK {
				report.Acked++
			}
		case history.Leader, history.State, history.Header, history.Decide, history.Load:
			continue
		}
		if op.Outcome == history.OK {
			report.Ops++
		}
	}
	if report.Ops == 0 || report.Sent > 0 && report.Acked == 0 {
		report.Errors = append(report.Errors, errors.New("jepsen: nothing was acknowledged"))
	}
	slices.SortFunc(report.Faults, func(a, b history.Op) int { return cmp.Compare(a.Start, b.Start) })
	report.Valid = checker.Valid(report.Results) && len(report.Errors) == 0
	return nil
}

func within(ctx context.Context, d time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	return f(ctx)
}
