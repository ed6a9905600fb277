package raftnode

import (
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// Server is one member of the Raft configuration.
type Server struct {
	ID, RaftAddr string
	Voter        bool
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
		out = append(out, Server{ID: string(s.ID), RaftAddr: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return out, nil
}

// AddNonvoter adds a node that receives the log and does not vote, or changes a node's address. Leader only.
func (n *Node) AddNonvoter(id, raftAddr string) error {
	return n.change("add non-voter", id, n.raft.AddNonvoter(raft.ServerID(id), raft.ServerAddress(raftAddr), 0, changeTimeout))
}

// AddVoter makes a node a voter, or changes a voter's address. Leader only.
func (n *Node) AddVoter(id, raftAddr string) error {
	return n.change("add voter", id, n.raft.AddVoter(raft.ServerID(id), raft.ServerAddress(raftAddr), 0, changeTimeout))
}

// RemoveServer removes a node from the configuration. Leader only.
func (n *Node) RemoveServer(id string) error {
	return n.change("remove", id, n.raft.RemoveServer(raft.ServerID(id), 0, changeTimeout))
}

func (n *Node) change(what, id string, f raft.IndexFuture) error {
	if err := f.Error(); err != nil {
		return fmt.Errorf("raftnode: %s %s: %w", what, id, err)
	}
	return nil
}
