package membership

import (
	"fmt"
	"time"

	"github.com/hashicorp/memberlist"
)

// delegate is the table as memberlist calls it. All calls but AckPayload and NotifyPingComplete
// come with memberlist's node lock held or before it runs.
type delegate struct{ t *table }

func (t *table) install(c *memberlist.Config) {
	d := delegate{t}
	c.Delegate, c.Events, c.Alive, c.Merge, c.Conflict, c.Ping = d, d, d, d, d, d
}

// NodeMeta are our tags.
func (d delegate) NodeMeta(limit int) []byte {
	d.t.mu.Lock()
	defer d.t.mu.Unlock()
	b, err := encodeTags(d.t.mu.self.Tags, d.t.mu.leaving)
	if err != nil || len(b) > limit {
		// Open and UpdateTags have encoded exactly these tags before.
		panic(fmt.Sprintf("membership: tags that were checked do not encode: %d bytes, limit %d, %v", len(b), limit, err))
	}
	return b
}

// No messages or state of our own travel.
func (delegate) NotifyMsg([]byte)                  {}
func (delegate) GetBroadcasts(int, int) [][]byte   { return nil }
func (delegate) LocalState(bool) []byte            { return nil }
func (delegate) MergeRemoteState([]byte, bool)     {}
func (delegate) AckPayload() []byte                { return nil }
func (d delegate) NotifyJoin(n *memberlist.Node)   { d.t.alive(n, true) }
func (d delegate) NotifyUpdate(n *memberlist.Node) { d.t.alive(n, false) }

// NotifyPingComplete: the node answered our probe.
func (d delegate) NotifyPingComplete(n *memberlist.Node, _ time.Duration, _ []byte) {
	d.t.mu.Lock()
	defer d.t.mu.Unlock()
	if e := d.t.mu.others[n.Name]; e != nil {
		e.lastAck = time.Now()
	}
}

// NotifyAlive lets a node in, or says why not.
func (d delegate) NotifyAlive(n *memberlist.Node) error {
	m, _, err := member(n)
	if err == nil {
		d.t.mu.Lock()
		err = d.t.checkLocked(m)
		if err != nil {
			delete(d.t.mu.others, n.Name) // was let in before it was known to be another cluster's
		}
		d.t.mu.Unlock()
	}
	if err != nil {
		d.t.refuse(refusal{m, err})
	}
	return err
}

// NotifyMerge refuses to join a list of strangers. A list that also names nodes of ours is
// taken: NotifyAlive sorts the strangers out, and one of them must not keep us apart.
func (d delegate) NotifyMerge(nodes []*memberlist.Node) error {
	var first error
	for _, n := range nodes {
		if n.State == memberlist.StateDead || n.State == memberlist.StateLeft {
			continue
		}
		m, _, err := member(n)
		if err == nil {
			d.t.mu.Lock()
			err = d.t.checkLocked(m)
			d.t.mu.Unlock()
		}
		if err == nil {
			if n.Name != d.t.nodeID {
				return nil
			}
			continue
		}
		d.t.refuse(refusal{m, err})
		if first == nil {
			first = err
		}
	}
	return first
}

// NotifyConflict: other claims the id of existing, which is alive elsewhere.
func (d delegate) NotifyConflict(existing, other *memberlist.Node) {
	t := d.t
	m, _, err := member(other)
	if err == nil {
		if existing.Name == t.nodeID {
			err = fmt.Errorf("%w: node id %s is this node's at %s and in use at %s too; if this node has moved, it is taken in when the old address is found dead, else give one of them another node id",
				ErrNameConflict, existing.Name, existing.Address(), other.Address())
		} else {
			err = fmt.Errorf("%w: node id %s is in use at %s, the node at %s is refused; if the node has moved, it is taken in when the old address is found dead, else give one of them another node id",
				ErrNameConflict, existing.Name, existing.Address(), other.Address())
		}
	}
	if existing.Name == t.nodeID {
		t.mu.Lock()
		t.mu.conflictUntil = time.Now().Add(12 * t.cfg.ProbeInterval)
		t.mu.Unlock()
		t.lonely()
	}
	t.refuse(refusal{m, err})
}

// NotifyLeave: the node was declared dead, or has left.
func (d delegate) NotifyLeave(n *memberlist.Node) {
	t := d.t
	t.mu.Lock()
	if n.Name == t.nodeID {
		t.mu.self.State, t.mu.self.Since = Left, time.Now()
		t.mu.Unlock()
		poke(t.wake)
		return
	}
	e := t.mu.others[n.Name]
	if e == nil { // a stranger
		t.mu.Unlock()
		return
	}
	e.State, e.Since = Failed, time.Now()
	if e.leaving {
		e.State = Left
	}
	state, addr := e.State, e.GossipAddr
	t.mu.Unlock()
	if state == Left {
		t.logger.Info("member left", "node", n.Name, "address", addr)
	} else {
		t.logger.Warn("member failed", "node", n.Name, "address", addr)
	}
	poke(t.wake)
	t.lonely()
}

// alive takes in what a living node tells.
func (t *table) alive(n *memberlist.Node, joined bool) {
	if n.Name == t.nodeID {
		return // our own words
	}
	m, leaving, err := member(n)
	if err != nil {
		return // NotifyAlive has refused it
	}
	now := time.Now()
	t.mu.Lock()
	if t.checkLocked(m) != nil { // our cluster id has become known since NotifyAlive
		t.mu.Unlock()
		return
	}
	e := t.mu.others[n.Name]
	if e == nil {
		e, joined = &entry{}, true
		t.mu.others[n.Name] = e
	}
	m.State, m.Since, m.Leaving = Alive, e.Since, leaving
	if joined {
		m.Since, e.lastAck = now, now
	}
	e.Member, e.leaving = m, leaving
	t.mu.Unlock()
	if joined {
		t.logger.Info("member joined", "node", n.Name, "address", m.GossipAddr, "group", m.Group, "version", m.Version)
	}
	poke(t.wake)
}

// member reads a node. On error its id and address are still there.
func member(n *memberlist.Node) (m Member, leaving bool, err error) {
	tags, leaving, err := decodeTags(n.Name, n.Meta)
	if err != nil {
		return Member{Tags: Tags{NodeID: n.Name}, GossipAddr: n.Address()}, false, fmt.Errorf("node %s at %s: %w", n.Name, n.Address(), err)
	}
	return Member{Tags: tags, GossipAddr: n.Address(), State: Alive}, leaving, nil
}
