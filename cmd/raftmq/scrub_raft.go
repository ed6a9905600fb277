package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"raftmq/fsm/raftnode"
)

// What Raft keeps is scrubbed as the commit log is: its log, entry by entry, and its snapshots. A running node needs neither to go on, so there is time to heal: it writes a new snapshot
// in place of a damaged one, and leaves to join again when its log is damaged, if the others can do without it.

const (
	raftScrubRest  = 10 * time.Minute // between two passes
	raftScrubRetry = 30 * time.Second // while something is damaged
)

// raftHealth is what the last pass has found.
type raftHealth struct {
	wake chan struct{} // capacity 1: begin a pass now

	mu       sync.Mutex
	log      string // what is damaged of the Raft log, "" when nothing is
	snapshot string // and of the snapshots
}

func (h *raftHealth) set(log, snapshot string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.log, h.snapshot = log, snapshot
}

// problem says what is damaged and what to do, "" when nothing is.
func (h *raftHealth) problem() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.log != "":
		return fmt.Sprintf("%s: this node will join again as a newcomer when a majority of the others is there: start them", h.log)
	case h.snapshot != "":
		return fmt.Sprintf("%s: a new one is written with the next entry", h.snapshot)
	}
	return ""
}

// scrubRaft runs from when this node has caught up on.
func (n *node) scrubRaft() {
	rest := time.Duration(0)
	for {
		select {
		case <-n.ctx.Done():
			return
		case <-n.raftHealth.wake:
		case <-time.After(rest):
		}
		snapshot := n.scrubSnapshots()
		log := n.scrubRaftLog(n.ctx)
		n.raftHealth.set(log, snapshot)
		rest = raftScrubRest
		if log+snapshot != "" {
			rest = raftScrubRetry
		}
	}
}

// scrubRaftLog returns what is damaged and cannot be healed now.
func (n *node) scrubRaftLog(ctx context.Context) string {
	if n.cfg.ScrubRate <= 0 {
		return ""
	}
	var owed int64
	err := n.group.raft.CheckLog(ctx, func(ctx context.Context, bytes int64) error {
		if owed += bytes; owed < mib {
			return ctx.Err()
		}
		wait := time.Duration(float64(owed) / float64(n.cfg.ScrubRate) * float64(time.Second))
		owed = 0
		select {
		case <-time.After(wait):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	switch {
	case err == nil || ctx.Err() != nil:
		return ""
	case !errors.Is(err, raftnode.ErrLogDamaged):
		n.logger.Warn("the Raft log could not be scrubbed", "error", err)
		return ""
	}
	n.logger.Error("scrub: the Raft log is damaged", "error", err)
	if other := n.othersSuffice(ctx); other != nil {
		n.logger.Error("this node goes on with a damaged Raft log, as the others can't do without it", "reason", other)
		return err.Error()
	}
	n.die(&rejoinError{reason: err})
	return err.Error()
}

// othersSuffice returns nil when a majority of the voters, without this node, answers and has about all that is committed. What proves it comes when this node is down (rejoin.go).
func (n *node) othersSuffice(ctx context.Context) error {
	servers, err := n.group.raft.Servers()
	if err != nil {
		return err
	}
	voters, there := 0, 0
	var errs []error
	for _, s := range servers {
		if !s.Voter {
			continue
		}
		voters++
		if s.ID == n.cfg.NodeID {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, 5*time.Second)
		st, err := fetchStatus(asking, n.group.clientAddrOf(s.ID))
		cancel()
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s: %w", s.ID, err))
		case st.NodeID != s.ID || !st.CaughtUp || st.LeaderID == "":
			errs = append(errs, fmt.Errorf("%s has not caught up, or knows no leader", s.ID))
		default:
			there++
		}
	}
	if need := voters/2 + 1; there < need {
		return errors.Join(append([]error{fmt.Errorf("%d of the other voters are well, %d are needed", there, need)}, errs...)...)
	}
	return nil
}

// scrubSnapshots compares the snapshots with their checksums and has a damaged newest one replaced: with it a start would depend on an older one, and on log that may be compacted. It returns what is
// damaged still.
func (n *node) scrubSnapshots() string {
	bad := n.badSnapshot()
	if bad == nil {
		return ""
	}
	n.logger.Error("scrub: the newest snapshot is damaged, it is not used and a new one is taken", "error", bad)
	if err := n.group.raft.Snapshot(); err != nil {
		n.logger.Error("no new snapshot could be taken in place of a damaged one", "error", err)
		return bad.Error()
	}
	if bad = n.badSnapshot(); bad != nil {
		return bad.Error()
	}
	n.logger.Info("a new snapshot stands in for the damaged one", "index", n.group.raft.Indexes().Snapshot)
	return ""
}

// badSnapshot says why a restart would not find the snapshot that Raft relies on, nil when it would.
func (n *node) badSnapshot() error {
	relied := n.group.raft.Indexes().Snapshot
	if relied == 0 {
		return nil
	}
	list, err := n.group.heads.List()
	if err != nil {
		return fmt.Errorf("list snapshots: %w", err)
	}
	why := fmt.Errorf("the snapshot at entry %d is not there", relied)
	for _, meta := range list {
		_, r, err := n.group.heads.Open(meta.ID) // it compares the file with its checksum
		if err == nil {
			err = r.Close()
		}
		switch {
		case err != nil:
			why = fmt.Errorf("snapshot %s is damaged: %w", meta.ID, err)
		case meta.Index >= relied:
			return nil
		default:
			return why
		}
	}
	return why
}
