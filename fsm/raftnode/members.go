package raftnode

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// Server is one member of the Raft configuration.
type Server struct {
	ID, Incarnation string // see Config
	RaftAddr        string
	Voter           bool
}

const idSeparator = "/"

func serverID(id, incarnation string) raft.ServerID {
	if incarnation == "" {
		return raft.ServerID(id)
	}
	return raft.ServerID(id + idSeparator + incarnation)
}

func splitServerID(s raft.ServerID) (id, incarnation string) {
	id, incarnation, _ = strings.Cut(string(s), idSeparator)
	return id, incarnation
}

// changeTimeout bounds how long a membership change waits to be taken up by the leader's loop.
const changeTimeout = 10 * time.Second

// Servers is the latest configuration.
func (n *Node) Servers() ([]Server, error) {
	f := n.raft.GetConfiguration()
	if err := f.Error(); err != nil {
		return nil, fmt.Errorf("raftnode: read configuration: %w", err)
	}
	var out []Server
	for _, s := range f.Configuration().Servers {
		id, incarnation := splitServerID(s.ID)
		out = append(out, Server{ID: id, Incarnation: incarnation, RaftAddr: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return out, nil
}

// NodeAt is the id of the node that Raft calls at an address, "" when it calls nobody there.
func (n *Node) NodeAt(address string) string {
	id, _ := n.link.asked.Load(address)
	s, _ := id.(string)
	return s
}

// otherVoters are those whose votes this node needs; nil when it does not know.
func (n *Node) otherVoters() []raft.ServerID {
	others, _ := n.voters()
	return others
}

// voters are the other voters of the latest configuration, and whether this node is one; nil and false when it does not know.
func (n *Node) voters() (others []raft.ServerID, self bool) {
	r := n.running.Load()
	if r == nil {
		return nil, false
	}
	f := r.GetConfiguration()
	if f.Error() != nil {
		return nil, false
	}
	for _, s := range f.Configuration().Servers {
		switch {
		case s.Suffrage != raft.Voter:
		case s.ID == serverID(n.cfg.NodeID, n.cfg.Incarnation):
			self = true
		default:
			others = append(others, s.ID)
		}
	}
	return others, self
}

// AddNonvoter adds a node that receives the log and does not vote, or changes a non-voter's address. Leader only.
func (n *Node) AddNonvoter(s Server) error {
	return n.change("add non-voter", s, n.raft.AddNonvoter(serverID(s.ID, s.Incarnation), raft.ServerAddress(s.RaftAddr), 0, changeTimeout))
}

// AddVoter makes a node a voter, or changes a voter's address. Leader only.
func (n *Node) AddVoter(s Server) error {
	return n.change("add voter", s, n.raft.AddVoter(serverID(s.ID, s.Incarnation), raft.ServerAddress(s.RaftAddr), 0, changeTimeout))
}

// RemoveServer removes a node from the configuration. Leader only.
func (n *Node) RemoveServer(s Server) error {
	return n.change("remove", s, n.raft.RemoveServer(serverID(s.ID, s.Incarnation), 0, changeTimeout))
}

func (n *Node) change(what string, s Server, f raft.IndexFuture) error {
	if err := await(f, n.stop); err != nil {
		return fmt.Errorf("raftnode: %s %s: %w", what, s.ID, err)
	}
	return nil
}

// Contact is what this leader knows of a peer from replication.
type Contact struct {
	ID string
	// At is when the peer last answered this leader in its term, zero for not yet; LastIndex is the end of what it holds
	// of this leader's log, as far as is known.
	At        time.Time
	LastIndex uint64
}

// Contacts lists the other members as this leader has them in touch. On other nodes it says nothing useful.
func (n *Node) Contacts() []Contact {
	servers, err := n.Servers()
	if err != nil {
		return nil
	}
	var out []Contact
	for _, s := range servers {
		if s.ID == n.cfg.NodeID {
			continue
		}
		c := n.link.contactOf(serverID(s.ID, s.Incarnation))
		out = append(out, Contact{ID: s.ID, At: c.at, LastIndex: c.last})
	}
	return out
}

// ErrNoVoter: the named node is no voter of the configuration.
var ErrNoVoter = errors.New("raftnode: no such voter")

// TransferLeadershipTo hands leadership to one voter, "" for the most caught-up one, and waits until it is gone. ErrNotLeader
// when this node does not lead.
func (n *Node) TransferLeadershipTo(id string) error {
	if n.State().Role != Leader {
		return ErrNotLeader
	}
	if id == "" {
		return n.TransferLeadership()
	}
	servers, err := n.Servers()
	if err != nil {
		return err
	}
	for _, s := range servers {
		if s.ID != id || !s.Voter {
			continue
		}
		if id == n.cfg.NodeID {
			return nil
		}
		if err := n.handOver(func() raft.Future {
			return n.raft.LeadershipTransferToServer(serverID(s.ID, s.Incarnation), raft.ServerAddress(s.RaftAddr))
		}); err != nil {
			return fmt.Errorf("raftnode: transfer leadership to %s: %w", id, err)
		}
		return nil
	}
	return fmt.Errorf("%w: %s", ErrNoVoter, id)
}
