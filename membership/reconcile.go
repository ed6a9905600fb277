package membership

import (
	"context"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Voter is one server of the group's Raft configuration.
type Voter struct {
	NodeID, Incarnation, RaftAddr string
	Votes                         bool
}

// Voters is the Raft configuration as the reconciler needs it. Changes are made on the leader only, one at a
// time, and return when they are committed.
type Voters interface {
	List() ([]Voter, error)
	AddNonvoter(Voter) error
	AddVoter(Voter) error
	Remove(Voter) error
	// CaughtUp reports whether a node has applied about everything that this leader had committed when it was asked.
	CaughtUp(ctx context.Context, m Member) (bool, error)
}

// Reconciler is the leader's loop that brings the Raft configuration in line with gossip: a newcomer becomes a non-voter,
// and a voter once it has caught up; a changed address follows; a node that said good-bye is removed; a wiped
// node's former self is replaced. A failed or suspect node stays (F65): only an operator removes it.
type Reconciler struct {
	Self    Tags
	Members func() []Member
	Voters  Voters
	// Changed wakes the loop when members change. Interval is the beat without (1 s).
	Changed  <-chan struct{}
	Interval time.Duration
	// Update stores a node's addresses in the replicated tables if they differ.
	Update func(ctx context.Context, m Member) error
	Logger hclog.Logger
}

// Run works until ctx, which ends with the leadership, is done.
func (r *Reconciler) Run(ctx context.Context) {
	interval := r.Interval
	if interval == 0 {
		interval = time.Second
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if err := r.pass(ctx); err != nil && ctx.Err() == nil {
			r.Logger.Warn("membership change failed, trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-r.Changed:
		case <-tick.C:
		}
	}
}

// pass makes at most one configuration change per member and stops at the first error.
func (r *Reconciler) pass(ctx context.Context) error {
	voters, err := r.Voters.List()
	if err != nil {
		return err
	}
	for _, m := range r.Members() {
		if m.ClusterName != r.Self.ClusterName || m.Group != r.Self.Group || m.RaftAddr == "" {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		switch m.State {
		case Alive:
			err = r.alive(ctx, m, voters)
		case Left:
			err = r.left(m, voters)
		default: // failed or suspect: gossip's opinion changes nothing
		}
		if err != nil {
			return fmt.Errorf("node %s: %w", m.NodeID, err)
		}
	}
	return nil
}

func (r *Reconciler) alive(ctx context.Context, m Member, voters []Voter) error {
	want := Voter{NodeID: m.NodeID, Incarnation: m.Incarnation, RaftAddr: m.RaftAddr}
	have, found := find(voters, m)
	switch {
	case found && have.RaftAddr != m.RaftAddr:
		r.Logger.Info("node has a new address", "node", m.NodeID, "from", have.RaftAddr, "to", m.RaftAddr)
		if have.Votes {
			if err := r.Voters.AddVoter(want); err != nil {
				return err
			}
		} else if err := r.Voters.AddNonvoter(want); err != nil {
			return err
		}
	case !found:
		for _, v := range voters {
			if v.NodeID == m.NodeID {
				// Its data folder is gone, and with it everything that it acknowledged under its former incarnation.
				r.Logger.Info("node came back without its data, replacing its former self", "node", m.NodeID)
				if err := r.Voters.Remove(v); err != nil {
					return err
				}
			}
		}
		r.Logger.Info("newcomer joins as non-voter", "node", m.NodeID, "raft", m.RaftAddr)
		if err := r.Voters.AddNonvoter(want); err != nil {
			return err
		}
	case !have.Votes:
		ok, err := r.Voters.CaughtUp(ctx, m)
		if err != nil || !ok {
			if err != nil {
				r.Logger.Debug("can't ask a non-voter how far it is", "node", m.NodeID, "error", err)
			}
			break
		}
		r.Logger.Info("node has caught up and becomes a voter", "node", m.NodeID)
		if err := r.Voters.AddVoter(want); err != nil {
			return err
		}
	}
	return r.Update(ctx, m)
}

// left removes a node that said good-bye, if a quorum of voters stays.
func (r *Reconciler) left(m Member, voters []Voter) error {
	have, found := find(voters, m)
	if !found || m.NodeID == r.Self.NodeID {
		return nil
	}
	r.Logger.Info("node has left, removing it", "node", m.NodeID)
	return r.Voters.Remove(have)
}

func find(voters []Voter, m Member) (Voter, bool) {
	for _, v := range voters {
		if v.NodeID == m.NodeID && v.Incarnation == m.Incarnation {
			return v, true
		}
	}
	return Voter{}, false
}
