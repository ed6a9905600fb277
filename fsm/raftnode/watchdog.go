package raftnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
)

// DiskProblem says why this node stands aside: it takes no writes, does not lead and does not stand for election. It follows as
// far as its disk lets it.
type DiskProblem struct {
	Reason string
	Since  time.Time
	// Failed: a write failed; only opening the node again helps. Else the disk is slow, and the node comes back by itself.
	Failed bool
}

// DiskProblem is nil while the disk is well.
func (n *Node) DiskProblem() *DiskProblem { return n.aside.Load() }

// A node comes back when nothing hangs any more and this many probes in a row were quick. One that had to stand aside again
// soon after needs twice as many each time.
const (
	probeEvery     = time.Second
	probesNeeded   = 3
	probesMost     = 60
	relapseWithin  = 10 * time.Minute
	transferWithin = time.Second
)

// watchdog times the disk's writes. Raft does not: a leader whose fsync hangs goes on sending heartbeats, so that nobody else
// stands and nothing is committed (F31); and one whose writes fail gives leadership up and wins it again (F29).
type watchdog struct {
	n         *Node
	probing   chan error // nil while no probe is under way
	probed    time.Time  // when the last one began
	good      int        // probes in a row
	needed    int
	recovered time.Time
}

func (n *Node) watchDisk() {
	defer n.wg.Done()
	w := watchdog{n: n, needed: probesNeeded}
	var ticks <-chan time.Time
	if n.cfg.DiskStallTimeout > 0 {
		tick := time.NewTicker(min(n.cfg.DiskStallTimeout/20, 250*time.Millisecond))
		defer tick.Stop()
		ticks = tick.C
	}
	for {
		select {
		case <-ticks:
			w.look()
		case <-n.disk.failed:
			err := n.disk.failure()
			if errors.Is(err, ErrLogDamaged) {
				n.cfg.Logger.Error("the Raft log is damaged: this node acknowledges nothing and gives no vote any more", "error", err)
			} else {
				n.cfg.Logger.Error("the disk failed: this node acknowledges nothing and gives no vote until it is opened again", "error", err)
			}
			n.standAside(&DiskProblem{Reason: err.Error(), Since: time.Now(), Failed: true}, true)
			if n.cfg.OnFatal != nil {
				n.cfg.OnFatal(err)
			}
			return
		case <-n.stop:
			return
		}
	}
}

// look is one beat.
func (w *watchdog) look() {
	reason, own := w.stalled()
	aside := w.n.aside.Load()
	switch {
	case reason != "" && aside == nil:
		if time.Since(w.recovered) < relapseWithin && !w.recovered.IsZero() {
			w.needed = min(2*w.needed, probesMost)
		} else {
			w.needed = probesNeeded
		}
		w.n.cfg.Logger.Error("the disk stalls: this node stands aside until it is well", "reason", reason)
		w.n.standAside(&DiskProblem{Reason: reason, Since: time.Now()}, own)
	case reason != "":
		w.good = 0
		w.n.aside.Store(&DiskProblem{Reason: reason, Since: aside.Since})
	case aside != nil:
		w.probe()
	}
}

// stalled says what hangs. own: it is Raft's own write, so Raft's main loop is stuck with it.
func (w *watchdog) stalled() (reason string, own bool) {
	limit := w.n.cfg.DiskStallTimeout
	what, since := w.n.disk.oldest()
	if what != "" && time.Since(since) > limit {
		return hangs(what, since), true
	}
	if w.n.cfg.DiskBusy != nil {
		if what, since = w.n.cfg.DiskBusy(); what != "" && time.Since(since) > limit {
			return hangs(what, since), false
		}
	}
	return "", false
}

func hangs(what string, since time.Time) string {
	return fmt.Sprintf("a %s has taken %v", what, time.Since(since).Round(time.Second))
}

// probe starts or collects a write to the disk while the node stands aside.
func (w *watchdog) probe() {
	limit := max(w.n.cfg.DiskStallTimeout/5, time.Second)
	if w.probing == nil {
		if time.Since(w.probed) < probeEvery {
			return
		}
		w.probed = time.Now()
		result := make(chan error, 1)
		cfg := w.n.cfg
		go func() { result <- Probe(cfg) }() // not joined: it may hang as the disk does
		w.probing = result
		return
	}
	took := time.Since(w.probed)
	select {
	case err := <-w.probing:
		w.probing = nil
		switch {
		case err != nil:
			w.bad("a probe of the disk failed: " + err.Error())
		case took > limit:
			w.bad(fmt.Sprintf("a probe of the disk took %v", took.Round(time.Millisecond)))
		default:
			if w.good++; w.good >= w.needed {
				w.good, w.recovered = 0, time.Now()
				w.n.comeBack()
			}
		}
	default:
		if took > limit {
			w.bad(hangs("probe of the disk", w.probed))
		}
	}
}

func (w *watchdog) bad(reason string) {
	w.good = 0
	w.n.aside.Store(&DiskProblem{Reason: reason, Since: w.n.aside.Load().Since})
}

// standAside stops taking writes at once and makes others lead. stuck: Raft's main loop hangs, and can't hand leadership over.
func (n *Node) standAside(p *DiskProblem, stuck bool) {
	n.aside.Store(p)
	n.proposer.stopAccepting(ErrNotLeader)
	n.poke()
	if !stuck && n.raft.State() == raft.Leader {
		done := make(chan error, 1)
		go func() { done <- n.raft.LeadershipTransfer().Error() }() // not joined: Raft need not answer
		select {
		case err := <-done:
			if err != nil {
				n.cfg.Logger.Warn("could not hand leadership over, followers will elect", "error", err)
			}
		case <-time.After(transferWithin):
		case <-n.stop:
		}
	}
	n.link.shut.Store(true)
}

func (n *Node) comeBack() {
	n.cfg.Logger.Info("the disk is well again", "aside-for", time.Since(n.aside.Load().Since).Round(time.Second))
	n.link.shut.Store(false)
	n.aside.Store(nil)
	n.poke()
}

// poke makes the state be looked at again.
func (n *Node) poke() {
	select {
	case n.kicks <- struct{}{}:
	default:
	}
}

const probeDir = "probe"

// Probe writes, syncs and reads back what a log store does, in a folder of its own inside cfg.Dir (Dir and LogStore are
// looked at). It returns what failed; it may hang as long as the disk does.
func Probe(cfg Config) error {
	cfg.ensureDefaults()
	dir := filepath.Join(cfg.Dir, probeDir)
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("raftnode: probe: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("raftnode: probe: %w", err)
	}
	defer os.RemoveAll(dir)
	s, err := openProbe(cfg.LogStore, dir)
	if err != nil {
		return fmt.Errorf("raftnode: probe: %w", err)
	}
	if cfg.wrapStore != nil {
		s = cfg.wrapStore(s)
	}
	defer s.Close()
	if err := s.StoreLogs([]*raft.Log{{Index: 1, Term: 1, Data: make([]byte, 64<<10)}}); err != nil {
		return fmt.Errorf("raftnode: probe: %w", err)
	}
	var back raft.Log
	if err := s.GetLog(1, &back); err != nil {
		return fmt.Errorf("raftnode: probe: read back: %w", err)
	}
	return nil
}

func openProbe(kind LogStoreKind, dir string) (backingStore, error) {
	if kind == Bolt {
		return raftboltdb.New(raftboltdb.Options{Path: filepath.Join(dir, "log.db")})
	}
	return wal.Open(dir, wal.WithSegmentSize(1<<20), wal.WithLogger(hclog.NewNullLogger()))
}
