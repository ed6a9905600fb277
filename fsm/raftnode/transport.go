package raftnode

import (
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// NewTransport is raft's network transport without pipelining: with more than one RPC in flight a
// follower's short store fault can stop replication to it for good (F91).
func NewTransport(stream raft.StreamLayer, logger hclog.Logger) *raft.NetworkTransport {
	return raft.NewNetworkTransportWithConfig(&raft.NetworkTransportConfig{
		Stream:          stream,
		MaxPool:         3,
		MaxRPCsInFlight: 1,
		Timeout:         10 * time.Second,
		Logger:          logger,
	})
}
