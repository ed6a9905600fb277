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
	"sync"
	"time"

	"raftmq/jepsen/checker"
	"raftmq/jepsen/nemesis"
	"raftmq/jepsen/workload"
	"raftmq/seam"
)

// Proof says which run is to find a planted bug.
type Proof struct {
	Bug      seam.Bug
	Workload string
	Nemesis  string        // "" for none
	Time     time.Duration // of load and faults, at the first try
	Leader   float64       // share of faults that hit the leader; 0 for the default
	Rate     float64       // messages a second (400: a bug shows at any rate, and some proofs run at a time)
	Body     int           // bytes of a message (256)
	Flags    []string      // of the servers
	Nodes    []string      // that have the bug; nil for all
	Late     time.Duration // until another consumer joins each group; 0 for never
	Work     time.Duration // of an ordered consumer on what it is given at once; 0 for the default
	// By are the checks of which one must have found it, or parts of an error's text: that something else went wrong is no proof.
	By []string
}

// ended is how a node that stops by itself is told of.
const ended = "ended by itself"

// Proofs are those of all bugs.
func Proofs() []Proof {
	// Snapshots early, so that restarts and wiped nodes meet them, and a Raft log that does not hold everything.
	small := []string{"--raft-snapshot-bytes", "1MiB", "--raft-trailing-bytes", "64KiB"}
	lost := []string{"acknowledged but lost", "missing on a node"}
	return []Proof{
		{Bug: seam.AckUncommitted, Workload: checker.Queue, Nemesis: "isolate", Time: 15 * time.Second, Leader: 1, By: lost},
		{Bug: seam.SkipRaftSync, Workload: checker.Queue, Nemesis: "power-all", Time: 12 * time.Second, By: lost},
		{Bug: seam.SkipLogSync, Workload: checker.Queue, Nemesis: "power-all", Time: 25 * time.Second, Rate: 100, Body: 64 << 10, Flags: append(small, "--flush-interval-commit-log", "5s"), By: append(lost, ended, "not all nodes serve")},
		{Bug: seam.SkipSnapshotFlush, Workload: checker.Queue, Nemesis: "power-all", Time: 25 * time.Second, Rate: 100, Body: 64 << 10, Flags: append(small, "--flush-interval-commit-log", "5s"), By: append(lost, ended, "not all nodes serve")},
		{Bug: seam.SkipNameSync, Workload: checker.Queue, Nemesis: "power-all", Time: 12 * time.Second, By: append(lost, ended, "not all nodes serve")},
		{Bug: seam.ApplyTwice, Workload: checker.Queue, Nemesis: "kill", Time: 12 * time.Second, By: []string{"duplicates", "logs differ", ended}},
		{Bug: seam.ApplyUncommitted, Workload: checker.Queue, Nemesis: "isolate", Time: 15 * time.Second, Leader: 1, By: []string{"two values at one offset", "logs differ", ended}},
		{Bug: seam.LoseQueueOffset, Workload: checker.Queue, Nemesis: "wipe", Time: 20 * time.Second, Rate: 100, Body: 64 << 10, Flags: small, By: []string{"two values at one offset", "holes in a queue", "logs differ", ended}},
		{Bug: seam.StaleReads, Workload: checker.Offsets, Nemesis: "isolate", Time: 30 * time.Second, Leader: 1, By: []string{"offsets not linearizable"}},
		{Bug: seam.ForgetDelay, Workload: checker.Delay, Nemesis: "kill", Time: 15 * time.Second, Leader: 1, By: []string{"duplicates"}},
		{Bug: seam.EarlyDelay, Workload: checker.Delay, Time: 6 * time.Second, By: []string{"delay not kept"}},
		{Bug: seam.ReuseOffset, Workload: checker.Queue, Time: 5 * time.Second, By: []string{"two values at one offset", "other message at the acknowledged offset", ended}},
		{Bug: seam.SkipPreVote, Workload: checker.Queue, Nemesis: "isolate", Time: 40 * time.Second, Leader: 0.01, By: []string{"leader deposed without cause"}},
		{Bug: seam.RefuseStored, Workload: checker.Queue, Time: 5 * time.Second, By: []string{"refused but stored", "duplicates"}},
		{Bug: seam.AckOffset, Workload: checker.Offsets, Nemesis: "kill", Time: 20 * time.Second, Leader: 1, By: []string{"offsets not linearizable"}},
		{Bug: seam.OffsetBack, Workload: checker.Offsets, Time: 5 * time.Second, By: []string{"offsets not linearizable"}},
		{Bug: seam.HalfVisible, Workload: checker.Transaction, Time: 6 * time.Second, By: []string{"transaction not kept"}},
		{Bug: seam.DropEnd, Workload: checker.Transaction, Time: 6 * time.Second, By: lost},
		{Bug: seam.DoubleSend, Workload: checker.Queue, Time: 5 * time.Second, By: []string{"duplicates"}},
		{Bug: seam.SwapBatch, Workload: checker.Batch, Time: 5 * time.Second, By: []string{"other message at the acknowledged offset", "out of order"}},
		{Bug: seam.HalfBatch, Workload: checker.Batch, Time: 5 * time.Second, By: append(lost, "half a batch")},
		{Bug: seam.WrongByte, Workload: checker.Queue, Time: 5 * time.Second, Nodes: []string{"n2"}, By: []string{"logs differ"}},
		{Bug: seam.ServeDamage, Workload: checker.Queue, Nemesis: "rot", Time: 20 * time.Second, By: []string{"drained", "bytes differ"}},
		{Bug: seam.EarlyTrim, Workload: checker.Retention, Time: 40 * time.Second, Rate: 1500, By: []string{"expired too early"}},
		{Bug: seam.TruncateLog, Workload: checker.Queue, Nemesis: "rot", Time: 25 * time.Second, Rate: 100, Body: 64 << 10, Flags: small, By: []string{"two values at one offset", "missing on a node", "holes in a queue"}},
		{Bug: seam.TruncateRaftLog, Workload: checker.Queue, Nemesis: "raft-rot", Time: 15 * time.Second, By: lost},
		{Bug: seam.SkipInstall, Workload: checker.Queue, Nemesis: "wipe", Time: 20 * time.Second, Rate: 100, Body: 64 << 10, Flags: small, By: []string{"two values at one offset", "missing on a node", "holes in a queue"}},
		{Bug: seam.TwoOwners, Workload: checker.Ordered, Time: 15 * time.Second, Rate: 40, Late: 4 * time.Second, Work: 5 * time.Second, By: []string{"two owners of a queue"}},
	}
}

// cell is the run without the bug: proofs with the same one need it once.
func (p Proof) cell() string {
	return fmt.Sprint(p.Workload, p.Nemesis, p.Time, p.Leader, p.Rate, p.Body, p.Flags, p.Late, p.Work)
}

// Proven is what became of a proof.
type Proven struct {
	Proof
	Found bool
	Got   []string      // checks that failed and errors, with an example each
	After time.Duration // from the start of the run that found it to its verdict
	Tries int
	// Control tells whether the same run was made without the bug, and Clean what was wrong with it: nothing, as it should be.
	Control bool
	Clean   []string
}

// Prover proves that bugs are found.
type Prover struct {
	Binary string // with the seam
	Dir    string // for the runs' folders; what is to be looked at stays there
	Tries  int    // runs, each twice as long as the one before, until a bug counts as not found (2)
	Seed   uint64 // of the first run
	// Control is whether each cell is run without the bug too.
	Control bool
	Logf    func(format string, args ...any)

	mu    sync.Mutex
	clean map[string]func() ([]string, error) // by cell
}

// Prove plants a bug and runs until it is found, and runs the same cell without it. An error says that a run could not be made. Calls may
// overlap.
func (p *Prover) Prove(ctx context.Context, proof Proof) (Proven, error) {
	out := Proven{Proof: proof}
	tries := max(p.Tries, 1)
	for out.Tries < tries && !out.Found {
		began := time.Now()
		found, err := p.run(ctx, proof, proof.Bug, out.Tries)
		if err != nil {
			return out, err
		}
		out.Tries++
		out.After, out.Got = time.Since(began), found
		out.Found = slices.ContainsFunc(found, proof.expects)
	}
	if !p.Control {
		return out, nil
	}
	p.mu.Lock()
	if p.clean == nil {
		p.clean = map[string]func() ([]string, error){}
	}
	clean := p.clean[proof.cell()]
	if clean == nil {
		clean = sync.OnceValues(func() ([]string, error) { return p.run(ctx, proof, "", 0) })
		p.clean[proof.cell()] = clean
	}
	p.mu.Unlock()
	var err error
	out.Clean, err = clean()
	out.Control = err == nil
	return out, err
}

// Seen is what was found, what the bug was to be found by first.
func (p *Proven) Seen() []string {
	seen := slices.Clone(p.Got)
	slices.SortStableFunc(seen, func(a, b string) int { return cmp.Compare(rank(p.expects(a)), rank(p.expects(b))) })
	return seen
}

func rank(expected bool) int {
	if expected {
		return 0
	}
	return 1
}

// expects tells whether what a run found is what the bug is to be found by.
func (p Proof) expects(found string) bool {
	return slices.ContainsFunc(p.By, func(by string) bool { return strings.Contains(found, by) })
}

// run makes one run and returns what is wrong with it.
func (p *Prover) run(ctx context.Context, proof Proof, bug seam.Bug, try int) (found []string, err error) {
	cfg := Config{Time: proof.Time << try, Seed: p.Seed + uint64(try), Nemesis: proof.Nemesis, Binary: p.Binary, SeamBinary: p.Binary, Bug: bug, BugNodes: proof.Nodes,
		LeaderShare: proof.Leader, Keep: true, Dir: filepath.Join(p.Dir, fmt.Sprintf("%s-%d", cmp.Or(string(bug), "clean-"+string(proof.Bug)), try)), Flags: append(DefaultFlags(), proof.Flags...),
		Hold: [2]time.Duration{2 * time.Second, 3 * time.Second}, Quiet: [2]time.Duration{time.Second, 2 * time.Second},
		Logf: p.Logf,
		// Raw clients look for a leader at once: that is what makes these runs short.
		Workload: workload.Config{Kind: proof.Workload, Client: workload.Raw, Rate: cmp.Or(proof.Rate, 400), BodySize: proof.Body, Late: proof.Late, Work: proof.Work, Grace: 10 * time.Second}}
	if strings.HasPrefix(proof.Nemesis, "power") { // it is over at once, and there is to be something to lose
		cfg.Hold, cfg.Quiet = [2]time.Duration{200 * time.Millisecond, 500 * time.Millisecond}, [2]time.Duration{3 * time.Second, 5 * time.Second}
	}
	if bug != "" { // what was lost is not waited for; a run that is to be clean has all the time
		cfg.Patience, cfg.Recovery, cfg.Workload.Grace = 5*time.Second, 10*time.Second, 2*time.Second
	}
	if proof.Nemesis != "" {
		if cfg.Faults, err = nemesis.Parse(proof.Nemesis); err != nil {
			return nil, err
		}
	}
	report, err := Run(ctx, cfg)
	if report == nil || ctx.Err() != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	for _, r := range report.Results {
		if !r.Valid {
			found = append(found, r.Name+": "+r.Problems[0])
		}
	}
	for _, e := range report.Errors {
		found = append(found, e.Error())
	}
	if len(found) == 0 && err != nil {
		found = append(found, err.Error())
	}
	// What was to be found and was, and what was to be clean and is, is of no further use.
	if bug == "" && len(found) == 0 || bug != "" && slices.ContainsFunc(found, proof.expects) {
		err = os.RemoveAll(cfg.Dir)
	} else {
		err = nil
	}
	return found, err
}
