package membership

import (
	"context"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// table is what this node knows about all nodes. memberlist forgets dead nodes after a
// while and tells neither suspicion nor leaving; here they stay. Its lock is a leaf: memberlist calls
// in with its own locks held, so nothing of memberlist is called under it.
type table struct {
	cfg    Config
	logger hclog.Logger
	nodeID string
	// lonely is called when a member is lost or this node's id is in conflict.
	lonely func()

	wake    chan struct{}
	refused chan refusal // full: dropped, they are repeats

	mu struct {
		sync.Mutex
		self          Member
		leaving       bool
		others        map[string]*entry
		callbacks     []func()
		reported      map[string]time.Time // refusals told, by node, address and kind
		conflictUntil time.Time
	}
}

// entry is another node.
type entry struct {
	Member
	leaving bool
	lastAck time.Time // of this node's own probe
}

type refusal struct {
	member Member
	err    error
}

func newTable(cfg Config, logger hclog.Logger, lonely func()) *table {
	t := &table{cfg: cfg, logger: logger, nodeID: cfg.Tags.NodeID, lonely: lonely, wake: make(chan struct{}, 1), refused: make(chan refusal, 16)}
	t.mu.self = Member{Tags: cfg.Tags, State: Alive, Since: time.Now()}
	t.mu.others = map[string]*entry{}
	t.mu.reported = map[string]time.Time{}
	return t
}

func (t *table) setSelfAddr(addr string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.self.GossipAddr = addr
}

func (t *table) self() Member {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.self
}

// updateSelf changes this node's tags if the result can be told.
func (t *table) updateSelf(change func(*Tags)) (changed bool, err error) {
	t.mu.Lock()
	tags := t.mu.self.Tags
	change(&tags)
	tags.NodeID, tags.ClusterName = t.mu.self.NodeID, t.mu.self.ClusterName
	if tags == t.mu.self.Tags {
		t.mu.Unlock()
		return false, nil
	}
	if _, err := encodeTags(tags, t.mu.leaving); err != nil {
		t.mu.Unlock()
		return false, err
	}
	t.mu.self.Tags = tags
	// Now that our cluster's id is known, members of another one are found out.
	var foreign []refusal
	for id, e := range t.mu.others {
		if err := t.checkLocked(e.Member); err != nil {
			foreign = append(foreign, refusal{e.Member, err})
			delete(t.mu.others, id)
		}
	}
	t.mu.Unlock()
	for _, r := range foreign {
		t.refuse(r)
	}
	poke(t.wake)
	return true, nil
}

// setLeaving marks this node as saying good-bye.
func (t *table) setLeaving(leaving bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.leaving, t.mu.self.Leaving = leaving, leaving
}

// onChange adds a callback.
func (t *table) onChange(f func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.callbacks = append(t.mu.callbacks, f)
}

// notify tells changes and refusals until ctx ends. It is the only caller of callbacks.
func (t *table) notify(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-t.refused:
			if t.cfg.OnRefused != nil {
				t.cfg.OnRefused(r.member, r.err)
			}
		case <-t.wake:
			t.mu.Lock()
			fs := t.mu.callbacks
			t.mu.Unlock()
			for _, f := range fs {
				f()
			}
		}
	}
}

// members lists all nodes by id and forgets the long gone.
func (t *table) members(now time.Time) []Member {
	t.mu.Lock()
	out := make([]Member, 1, len(t.mu.others)+1)
	out[0] = t.mu.self
	for id, e := range t.mu.others {
		if t.forgottenLocked(e, now) {
			delete(t.mu.others, id)
			continue
		}
		out = append(out, t.seenLocked(e, now))
	}
	t.mu.Unlock()
	sort.Slice(out, func(i, j int) bool { return out[i].NodeID < out[j].NodeID })
	return out
}

// member is one of members. It allocates nothing: Raft asks for addresses with each heartbeat.
func (t *table) member(nodeID string, now time.Time) (Member, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.self.NodeID == nodeID {
		return t.mu.self, true
	}
	e, ok := t.mu.others[nodeID]
	if !ok || t.forgottenLocked(e, now) {
		return Member{}, false
	}
	return t.seenLocked(e, now), true
}

// forgottenLocked tells that a member is gone for so long that nobody need know of it.
func (t *table) forgottenLocked(e *entry, now time.Time) bool {
	age := now.Sub(e.Since)
	return e.State == Failed && age > t.cfg.KeepFailed || e.State == Left && age > t.cfg.KeepLeft
}

// seenLocked is a member with the state that follows from its last sign of life.
func (t *table) seenLocked(e *entry, now time.Time) Member {
	m := e.Member
	// Each beat probes one member, so each is probed once in a round of all of them.
	silent := t.cfg.ProbeInterval * time.Duration(2*(len(t.mu.others)+1))
	if m.State == Alive && now.Sub(e.Since) > silent && now.Sub(e.lastAck) > silent {
		m.State, m.Since = Suspect, e.lastAck
	}
	return m
}

// peers are the gossip addresses of the members in one of the states.
func (t *table) peers(state State) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var out []string
	for _, e := range t.mu.others {
		if e.State == state {
			out = append(out, e.GossipAddr)
		}
	}
	sort.Strings(out)
	return out
}

// inConflict reports whether another address has claimed this node's id a short while ago.
func (t *table) inConflict(now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return now.Before(t.mu.conflictUntil)
}

// checkLocked says why m may not be a member.
func (t *table) checkLocked(m Member) error {
	own := &t.mu.self
	switch {
	case m.ClusterName != own.ClusterName:
		return fmt.Errorf("%w: node %s at %s belongs to cluster %q and this node to %q; correct the cluster name or the join list",
			ErrOtherCluster, m.NodeID, m.GossipAddr, m.ClusterName, own.ClusterName)
	case m.ClusterID != "" && own.ClusterID != "" && m.ClusterID != own.ClusterID:
		return fmt.Errorf("%w: node %s at %s belongs to a cluster with the same name %q but the id %s, this node's is %s; they were bootstrapped apart",
			ErrOtherCluster, m.NodeID, m.GossipAddr, m.ClusterName, m.ClusterID, own.ClusterID)
	}
	return nil
}

// tellAgain is how long a refusal of the same node for the same reason is kept quiet.
const tellAgain = 30 * time.Second

// refuse logs a refusal and hands it to OnRefused, unless that was done a short while ago.
func (t *table) refuse(r refusal) {
	now := time.Now()
	key := r.member.NodeID + "\x00" + r.member.GossipAddr + "\x00" + r.member.ClusterName + "\x00" + r.member.ClusterID
	t.mu.Lock()
	last, told := t.mu.reported[key]
	if told && now.Sub(last) < tellAgain {
		t.mu.Unlock()
		return
	}
	if len(t.mu.reported) >= 256 { // strangers with ever new names must not fill memory
		clear(t.mu.reported)
	}
	t.mu.reported[key] = now
	t.mu.Unlock()
	t.logger.Warn("node refused", "node", r.member.NodeID, "address", r.member.GossipAddr, "reason", r.err)
	select {
	case t.refused <- r:
	default:
	}
}
