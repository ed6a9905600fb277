package raftnode

import (
	"time"

	"github.com/hashicorp/raft"
)

// Role of this node.
type Role string

// Roles.
const (
	Follower  Role = "follower"
	Candidate Role = "candidate"
	Leader    Role = "leader"
	Stopped   Role = "stopped"
)

// State is who leads, as this node knows now.
type State struct {
	Role     Role
	Term     uint64
	LeaderID string // node id, "" while none is known
	// Ready: this node leads, has applied its barrier and takes writes. It takes none while it hands leadership over.
	Ready bool
	Since time.Time // when Role, Term, LeaderID or Ready last changed
}

// State is a cheap snapshot (one atomic load).
func (n *Node) State() State { return *n.state.Load() }

// QuorumLost reports that this node led and gave that up by itself, because a majority did not answer or because of its disk, and has
// heard of no later term since: whoever may lead now, it is not this node. After a transfer, or when another one was elected, it is false.
func (n *Node) QuorumLost() bool {
	s := n.State()
	return s.Role != Leader && s.LeaderID == "" && n.ledTerm.Load() != 0 && n.ledTerm.Load() == n.raft.CurrentTerm()
}

// watch turns Raft's observations into States, runs the barrier of each new term that this
// node leads, and opens and closes the proposer. Owned by Start, ends with Close.
func (n *Node) watch() {
	defer n.wg.Done()
	var barrierTerm, readyTerm uint64
	for {
		s := n.current()
		if s.Role == Leader {
			n.ledTerm.Store(s.Term)
		}
		if s.Role == Leader && s.Term > barrierTerm {
			barrierTerm = s.Term
			n.link.forget()
			n.wg.Add(1)
			go n.barrier(s.Term)
		}
		s.Ready = s.Role == Leader && s.Term == readyTerm && !n.handing.Load()
		n.publish(s)
		select {
		case <-n.events:
		case <-n.kicks:
		case readyTerm = <-n.barriers:
		case <-n.stop:
			n.publish(State{Role: Stopped, Term: s.Term})
			return
		}
	}
}

func (n *Node) current() State {
	s := State{Term: n.raft.CurrentTerm()}
	_, id := n.raft.LeaderWithID()
	s.LeaderID, _ = splitServerID(id)
	switch n.raft.State() {
	case raft.Leader:
		s.Role = Leader
	case raft.Candidate:
		s.Role = Candidate
	case raft.Shutdown:
		s.Role = Stopped
	default:
		s.Role = Follower
	}
	if n.aside.Load() != nil && s.Role == Leader {
		s.Role = Follower // whatever Raft thinks: its heartbeats reach nobody any more
	}
	if s.Role != Leader && id == serverID(n.cfg.NodeID, n.cfg.Incarnation) {
		s.LeaderID = "" // deposed, the next leader is not known yet
	}
	return s
}

func (n *Node) publish(s State) {
	old := n.state.Load()
	if s.Role == old.Role && s.Term == old.Term && s.LeaderID == old.LeaderID && s.Ready == old.Ready {
		return
	}
	s.Since = n.cfg.Now()
	n.tell(old, &s)
	if !s.Ready {
		n.proposer.stopAccepting(ErrNotLeader)
	}
	n.state.Store(&s)
	if s.Ready {
		n.proposer.accept()
	}
	for _, f := range n.watchers {
		f(s)
	}
}

// tell logs a change of leadership, one line an event.
func (n *Node) tell(old, s *State) {
	switch {
	case s.Ready:
		n.cfg.Logger.Info("this node leads and takes writes", "term", s.Term)
	case old.Role == Leader && s.Role != Leader && s.Role != Stopped:
		n.cfg.Logger.Info("this node leads no more", "term", s.Term, "leader", s.LeaderID)
	case s.Role == Follower && s.LeaderID != "" && s.LeaderID != old.LeaderID:
		n.cfg.Logger.Info("following a new leader", "leader", s.LeaderID, "term", s.Term)
	case s.LeaderID == "" && old.LeaderID != "" && s.Role != Stopped:
		n.cfg.Logger.Info("the leader is lost, an election follows", "leader", old.LeaderID, "term", s.Term)
	}
}

// barrier waits until everything of earlier terms is applied, then lets Prepare run: a leader that
// has not caught up must not answer or write (Never-Guess).
func (n *Node) barrier(term uint64) {
	defer n.wg.Done()
	if err := await(n.raft.Barrier(0), n.stop); err != nil {
		return // leadership is gone again; the next term has its own barrier
	}
	if n.cfg.Prepare != nil {
		apply := func(command []byte) error {
			entry := append(n.cfg.EntryHead(nil), command...)
			return await(n.raft.Apply(entry, 0), n.stop)
		}
		if err := n.cfg.Prepare(apply); err != nil {
			n.cfg.Logger.Error("new leader could not prepare, giving leadership up", "term", term, "error", err)
			if err := await(n.raft.LeadershipTransfer(), n.stop); err != nil {
				n.cfg.Logger.Warn("could not hand leadership over", "error", err)
			}
			return
		}
	}
	select {
	case n.barriers <- term:
	case <-n.stop:
	}
}
