package main

import (
	"context"
	"errors"
	"fmt"

	"raftmq/transport/namesrv"
	"raftmq/transport/raftstream"
	"raftmq/transport/remoting"
)

// hello is what this node says first on a connection to another one's Raft port.
func (g *brokerGroup) hello() raftstream.Hello {
	h := raftstream.Hello{NodeID: g.cfg.NodeID, ClusterName: g.cfg.ClusterName, Group: g.cfg.BrokerName, ClusterID: g.identity.ClusterID}
	if s, ok := g.tables.Settings(); ok {
		h.ClusterID = s.ClusterID
	}
	return h
}

// hasPeers reports whether another node could lead.
func (g *brokerGroup) hasPeers() bool {
	servers, err := g.raft.Servers()
	return err != nil || len(servers) > 1
}

// leaderAddr is the leader's node id and client address, "" when unknown.
func (g *brokerGroup) leaderAddr() (nodeID, clientAddr string) {
	id := g.raft.State().LeaderID
	if id == "" {
		return "", ""
	}
	return id, g.clientAddrOf(id)
}

func (g *brokerGroup) clientAddrOf(nodeID string) string {
	if n, ok := g.tables.Node(nodeID); ok {
		return n.ClientAddr
	}
	return g.gossipAddr(nodeID)
}

func (g *brokerGroup) brokerIDOf(nodeID string) int64 {
	n, _ := g.tables.Node(nodeID)
	return n.Number
}

// replicas are the broker ids of the nodes that do not lead and are alive for gossip.
func (g *brokerGroup) replicas() (ids []int64) {
	leader := g.raft.State().LeaderID
	for _, n := range g.tables.Nodes() {
		if n.ID != leader && g.alive(n.ID) {
			ids = append(ids, n.Number)
		}
	}
	return ids
}

var errNoLeader = errors.New("no leader is known; try again")

// forward sends a request to the leader.
func (g *brokerGroup) forward(ctx context.Context, cmd *remoting.Command) (*remoting.Command, error) {
	id, addr := g.leaderAddr()
	if addr == "" {
		return nil, errNoLeader
	}
	if id == g.cfg.NodeID {
		return nil, fmt.Errorf("this node leads: %w", errNoLeader)
	}
	c, err := g.peers.Client(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("forward to leader %s at %s: %w", id, addr, err)
	}
	return c.Invoke(ctx, cmd)
}

// peerAddrs are the client addresses of the group's other nodes.
func (g *brokerGroup) peerAddrs() (addrs []string) {
	for _, n := range g.tables.Nodes() {
		if n.ID != g.cfg.NodeID && n.ClientAddr != "" {
			addrs = append(addrs, n.ClientAddr)
		}
	}
	return addrs
}

// askPeer sends a request to another node.
func (g *brokerGroup) askPeer(ctx context.Context, addr string, cmd *remoting.Command) (*remoting.Command, error) {
	c, err := g.peers.Client(ctx, addr)
	if err != nil {
		return nil, err
	}
	return c.Invoke(ctx, cmd)
}

// askLeader passes a request on; namesrv.ErrLeads when this node leads.
func (g *brokerGroup) askLeader(ctx context.Context, cmd *remoting.Command) (*remoting.Command, error) {
	if g.raft.State().Ready {
		return nil, namesrv.ErrLeads
	}
	return g.forward(ctx, cmd)
}
