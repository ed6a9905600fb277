package main

import (
	"context"
	"fmt"
	"time"

	"raftmq/fsm/raftnode"
	"raftmq/membership"
)

// voters is the reconciler's view of the group's Raft configuration.
type voters struct{ g *brokerGroup }

func (v voters) List() ([]membership.Voter, error) {
	servers, err := v.g.raft.Servers()
	if err != nil {
		return nil, err
	}
	out := make([]membership.Voter, len(servers))
	for i, s := range servers {
		out[i] = membership.Voter{NodeID: s.ID, Incarnation: s.Incarnation, RaftAddr: s.RaftAddr, Votes: s.Voter}
	}
	return out, nil
}

func asServer(v membership.Voter) raftnode.Server {
	return raftnode.Server{ID: v.NodeID, Incarnation: v.Incarnation, RaftAddr: v.RaftAddr, Voter: v.Votes}
}

func (v voters) AddNonvoter(m membership.Voter) error { return v.g.raft.AddNonvoter(asServer(m)) }
func (v voters) AddVoter(m membership.Voter) error    { return v.g.raft.AddVoter(asServer(m)) }
func (v voters) Remove(m membership.Voter) error      { return v.g.raft.RemoveServer(asServer(m)) }

// LastContact is when a node last answered this leader.
func (v voters) LastContact(nodeID string) time.Time {
	for _, c := range v.g.raft.Contacts() {
		if c.ID == nodeID {
			return c.At
		}
	}
	return time.Time{}
}

// CaughtUp asks the node itself what it has applied.
func (v voters) CaughtUp(ctx context.Context, m membership.Member) (bool, error) {
	committed := v.g.raft.Indexes().Commit
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	s, err := fetchStatus(ctx, m.ClientAddr)
	if err != nil {
		return false, err
	}
	if s.NodeID != m.NodeID || s.ClusterName != m.ClusterName {
		return false, fmt.Errorf("node %s of cluster %s answers at %s, where %s should", s.NodeID, s.ClusterName, m.ClientAddr, m.NodeID)
	}
	const near = 64 // entries; the last ones arrive while we ask
	return s.AppliedIndex+near >= committed, nil
}
