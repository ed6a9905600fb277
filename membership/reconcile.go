package membership

import (
	"context"
	"errors"
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
	// LastContact is when the node last answered this leader's Raft, zero for never in its term.
	LastContact(nodeID string) time.Time
}

// Reconciler is the leader's loop that brings the Raft configuration in line with gossip: a newcomer becomes a non-voter,
// and a voter once it has caught up; a changed address follows; a node that said good-bye is removed; a wiped
// node's former self is replaced. A failed or suspect node stays (F65): an operator removes it, or DeadTimeout does
// when Raft too has not heard of it for so long.
type Reconciler struct {
	Self    Tags
	Members func() []Member
	Voters  Voters
	// Changed wakes the loop when members change. Interval is the beat without (1 s).
	Changed  <-chan struct{}
	Interval time.Duration
	// Update stores a node's addresses in the replicated tables if they differ; Forget drops those of a node that was removed.
	Update func(ctx context.Context, m Member) error
	Forget func(ctx context.Context, nodeID string) error
	// Barred reports that an operator has removed this node while it was alive: it is not added again. nil: nobody is.
	Barred func(m Member) bool
	// DeadTimeout removes a node that neither gossip nor Raft has heard of for so long; 0 never does.
	DeadTimeout time.Duration
	Logger      hclog.Logger

	leads time.Time // since when; what was before is not known here
}

// ErrNoQuorum: the change would leave too few voters that answer.
var ErrNoQuorum = errors.New("membership: too few voters would answer")

// healthyWithin is how recently a voter must have answered the leader's Raft to count as there: several heartbeats.
const healthyWithin = 2 * time.Second

// repeatAfter is the least time between two lines about the same failure.
const repeatAfter = 30 * time.Second

// Run works until ctx, which ends with the leadership, is done.
func (r *Reconciler) Run(ctx context.Context) {
	r.leads = time.Now()
	interval := r.Interval
	if interval == 0 {
		interval = time.Second
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	var told string
	var toldAt time.Time
	for {
		if err := r.pass(ctx); err != nil && ctx.Err() == nil && (err.Error() != told || time.Since(toldAt) >= repeatAfter) {
			told, toldAt = err.Error(), time.Now()
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

// pass makes at most one configuration change per member. What fails for one does not keep the others waiting.
func (r *Reconciler) pass(ctx context.Context) error {
	voters, err := r.Voters.List()
	if err != nil {
		return err
	}
	var errs []error
	there := map[string]bool{} // node id/incarnation
	for _, m := range r.Members() {
		if m.ClusterName != r.Self.ClusterName || m.Group != r.Self.Group || m.RaftAddr == "" {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		there[m.NodeID+"/"+m.Incarnation] = m.State == Alive || m.State == Suspect
		switch {
		case m.State == Left || m.State == Alive && m.Leaving:
			err = r.left(ctx, m, voters)
		case m.State == Alive:
			err = r.alive(ctx, m, voters)
		default: // failed or suspect: gossip's opinion changes nothing
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", m.NodeID, err))
		}
	}
	return errors.Join(append(errs, r.dead(ctx, voters, there))...)
}

// taken reports whether another server of the configuration stands at addr, as when nodes have swapped their addresses: Raft
// refuses it twice. Peers are reached by what gossip says in any case.
func taken(voters []Voter, addr string) bool {
	for _, v := range voters {
		if v.RaftAddr == addr {
			return true
		}
	}
	return false
}

func (r *Reconciler) alive(ctx context.Context, m Member, voters []Voter) error {
	want := Voter{NodeID: m.NodeID, Incarnation: m.Incarnation, RaftAddr: m.RaftAddr}
	have, found := find(voters, m)
	switch {
	case found && have.RaftAddr != m.RaftAddr && !taken(voters, m.RaftAddr):
		if have.Votes {
			if err := r.Voters.AddVoter(want); err != nil {
				return err
			}
		} else if err := r.Voters.AddNonvoter(want); err != nil {
			return err
		}
		r.Logger.Info("node has a new address", "node", m.NodeID, "from", have.RaftAddr, "to", m.RaftAddr)
	case !found && r.Barred != nil && r.Barred(m):
		return nil
	case !found:
		for _, v := range voters {
			if v.NodeID == m.NodeID {
				// Its data folder is gone, and with it everything that it acknowledged under its former incarnation.
				if err := CheckRemoval(r.Self.NodeID, v, voters, r.Voters.LastContact); err != nil {
					return err
				}
				if err := r.Voters.Remove(v); err != nil {
					return err
				}
				r.Logger.Info("node came back without its data, replacing its former self", "node", m.NodeID)
			}
		}
		if err := r.Voters.AddNonvoter(want); err != nil {
			return err
		}
		r.Logger.Info("newcomer joins as non-voter", "node", m.NodeID, "raft", m.RaftAddr)
	case !have.Votes:
		ok, err := r.Voters.CaughtUp(ctx, m)
		if err != nil || !ok {
			if err != nil {
				r.Logger.Debug("can't ask a non-voter how far it is", "node", m.NodeID, "error", err)
			}
			break
		}
		if err := r.Voters.AddVoter(want); err != nil {
			return err
		}
		r.Logger.Info("node has caught up and becomes a voter", "node", m.NodeID)
	}
	return r.Update(ctx, m)
}

// left removes a node that said good-bye.
func (r *Reconciler) left(ctx context.Context, m Member, voters []Voter) error {
	have, found := find(voters, m)
	if !found || m.NodeID == r.Self.NodeID {
		return nil
	}
	if err := CheckRemoval(r.Self.NodeID, have, voters, r.Voters.LastContact); err != nil {
		return err
	}
	r.Logger.Info("node has left, removing it", "node", m.NodeID)
	return r.remove(ctx, have)
}

// dead removes one node that has been silent for DeadTimeout.
func (r *Reconciler) dead(ctx context.Context, voters []Voter, there map[string]bool) error {
	if r.DeadTimeout <= 0 {
		return nil
	}
	for _, v := range voters {
		silent := time.Since(latest(r.leads, r.Voters.LastContact(v.NodeID)))
		if v.NodeID == r.Self.NodeID || there[v.NodeID+"/"+v.Incarnation] || silent < r.DeadTimeout {
			continue
		}
		if CheckRemoval(r.Self.NodeID, v, voters, r.Voters.LastContact) != nil {
			continue // told by the status page; the cluster needs it back
		}
		r.Logger.Warn("node has been dead for too long, removing it", "node", v.NodeID, "silent-for", silent.Round(time.Second), "dead-server-timeout", r.DeadTimeout)
		return r.remove(ctx, v)
	}
	return nil
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

func (r *Reconciler) remove(ctx context.Context, v Voter) error {
	if err := r.Voters.Remove(v); err != nil {
		return err
	}
	if r.Forget == nil {
		return nil
	}
	return r.Forget(ctx, v.NodeID)
}

// CheckRemoval says why v must not be removed from voters by the leader self: of the voters that stay, fewer than a majority have
// answered the leader lately, so that the change might never commit, or the next failure would be one too many (F63).
func CheckRemoval(self string, v Voter, voters []Voter, lastContact func(nodeID string) time.Time) error {
	if !v.Votes {
		return nil
	}
	stay, healthy := 0, 0
	for _, o := range voters {
		if !o.Votes || o == v {
			continue
		}
		stay++
		if o.NodeID == self || time.Since(lastContact(o.NodeID)) < healthyWithin {
			healthy++
		}
	}
	if need := stay/2 + 1; healthy < need {
		return fmt.Errorf("%w: %d of the %d voters that would stay answer the leader, %d are needed", ErrNoQuorum, healthy, stay, need)
	}
	return nil
}

func find(voters []Voter, m Member) (Voter, bool) {
	for _, v := range voters {
		if v.NodeID == m.NodeID && v.Incarnation == m.Incarnation {
			return v, true
		}
	}
	return Voter{}, false
}
