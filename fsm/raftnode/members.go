package raftnode

import (
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
	if err := f.Error(); err != nil {
		return fmt.Errorf("raftnode: %s %s: %w", what, s.ID, err)
	}
	return nil
}
