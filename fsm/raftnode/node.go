// Package raftnode wires hashicorp/raft: stable, log and snapshot store, configuration, the
// proposer that batches commands into entries, leadership events and voters. It knows nothing
// of what an entry means.
package raftnode

import (
	"context"
	"errors"
	"time"
)

// Errors of Propose and of Proposal.Done.
var (
	// ErrNotLeader: this node may not take writes now: it does not lead, or has not yet applied its barrier.
	ErrNotLeader = errors.New("raftnode: not the leader")
	// ErrLeadershipLost: the outcome is unknown; the entry may still be committed by the next leader.
	ErrLeadershipLost = errors.New("raftnode: leadership lost while the entry was in flight")
	// ErrBusy: too many bytes are in flight.
	ErrBusy = errors.New("raftnode: too many bytes in flight")
	// ErrTooLarge: one command is larger than an entry may be.
	ErrTooLarge = errors.New("raftnode: command larger than an entry may be")
	// ErrClosed: the node is shutting down.
	ErrClosed = errors.New("raftnode: closed")
)

// Proposal is one command on its way into an entry.
type Proposal interface {
	// AppendCommand appends exactly one encoded command to dst, called once, before Propose
	// returns, under the proposer's lock: it must be quick and must not call back. storeMillis is the
	// leader's stamp in Unix milliseconds; it never decreases.
	AppendCommand(dst []byte, storeMillis int64) []byte
	// Done is called exactly once if Propose returned nil: with what the FSM returned for the
	// whole entry and the command's position in it, or with an error. It runs on the completion goroutine in
	// log order and must not block.
	Done(entryResult any, i int, err error)
}

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
	LeaderID string // "" while none is known
	// Ready: this node leads, has applied its barrier and takes writes.
	Ready bool
	Since time.Time
}

// Server is one member of the Raft configuration.
type Server struct {
	ID, RaftAddr string
	Voter        bool
}

// Node is a running Raft node.
type Node struct{}

// State is a cheap snapshot (one atomic load).
func (n *Node) State() State { panic("stub") }

// OnState registers a callback for changes, called in order from one goroutine, before Start.
func (n *Node) OnState(f func(State)) { panic("stub") }

// Propose puts p into the entry being built.
func (n *Node) Propose(p Proposal) error { panic("stub") }

// ProposeWait proposes one command of raw bytes and waits for what the FSM returned for it.
func (n *Node) ProposeWait(ctx context.Context, command []byte) (entryResult any, i int, err error) {
	panic("stub")
}

// Servers is the latest configuration.
func (n *Node) Servers() ([]Server, error) { panic("stub") }
