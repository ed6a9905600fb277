package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"raftmq/fsm"
	"raftmq/fsm/raftnode"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// logAnswerTimeout is how long one answer of a peer's log may take; goodbyeTimeout how long the last request may.
const (
	logAnswerTimeout = 15 * time.Second
	goodbyeTimeout   = time.Second
)

// receive takes a leader's snapshot before Raft does.
func (g *brokerGroup) receive(ctx context.Context, leader string, snapshot []byte) error {
	err := g.catchUp.Receive(ctx, leader, snapshot)
	if errors.Is(err, fsm.ErrNotYet) {
		return fmt.Errorf("%w: %w", raftnode.ErrNotYet, err)
	}
	return err
}

// errOldReceiver: nodes of before the catch-up want log bytes within the snapshot.
var errOldReceiver = errors.New("the node's raftmq is older and can't fetch the messages that this node's Raft log no longer has; upgrade that node, or transfer leadership to one of its version")

// canReceive tells by gossip whether a node takes snapshots of this build.
func (n *node) canReceive(nodeID string) error {
	if m, ok := n.members.Member(nodeID); ok && !m.FetchesLog {
		return fmt.Errorf("%s (raftmq %s): %w", nodeID, m.Version, errOldReceiver)
	}
	return nil
}

// dialLog reaches another node's commit log.
func (g *brokerGroup) dialLog(ctx context.Context, nodeID string) (fsm.LogSource, error) {
	addr := g.clientAddrOf(nodeID)
	if addr == "" {
		return nil, fmt.Errorf("the client address of %s is not known yet", nodeID)
	}
	c, err := client.Dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	return &peerLog{c: c, self: g.cfg.NodeID}, nil
}

// peerLog is another node's commit log, over its client port. What it is asked for it keeps for this node.
type peerLog struct {
	c    *client.Client
	self string
}

// Range implements fsm.LogSource.
func (p *peerLog) Range(ctx context.Context, off, n int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, logAnswerTimeout)
	defer cancel()
	b, _, err := p.c.LogRange(ctx, remoting.LogRange{Offset: off, Length: n, Peer: p.self})
	return b, outside(err)
}

// Sum implements fsm.LogSource.
func (p *peerLog) Sum(ctx context.Context, from, to int64) (uint32, int64, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*logAnswerTimeout) // a long log's journal is read
	defer cancel()
	sum, answer, err := p.c.LogSum(ctx, remoting.LogRange{Offset: from, Length: to - from, Peer: p.self})
	return sum, answer.MinOffset, outside(err)
}

func outside(err error) error {
	if errors.Is(err, client.ErrLogOutside) {
		return fmt.Errorf("%w: %w", fsm.ErrSourceOutside, err)
	}
	return err
}

// Close implements fsm.LogSource.
func (p *peerLog) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), goodbyeTimeout)
	defer cancel()
	// If it does not arrive the peer gives up what it keeps in two minutes.
	_, _, _ = p.c.LogSum(ctx, remoting.LogRange{Peer: p.self, Done: true})
	return p.c.Close()
}

// catchUpStatus is nil when nothing is under way.
func (g *brokerGroup) catchUpStatus() *remoting.CatchUpStatus {
	s := g.catchUp.Status()
	if s.State == "" {
		return nil
	}
	status := &remoting.CatchUpStatus{State: s.State, From: s.From, At: s.At, To: s.To, Replaces: s.Replaces, Leader: s.Leader,
		FetchedBytes: s.Fetched, BytesPerSecond: int64(s.BytesPerSecond), Problem: s.Problem}
	if !s.Began.IsZero() {
		status.Seconds = time.Since(s.Began).Seconds()
	}
	return status
}

// describeCatchUp says in words how far a node is.
func describeCatchUp(s *remoting.CatchUpStatus) string {
	switch s.State {
	case "comparing":
		return fmt.Sprintf("comparing its log with that of %s", s.Leader)
	case "installing", "fetched":
		return "putting the fetched messages into its log"
	}
	text := fmt.Sprintf("fetching messages from %s: %s of %s (%.1f %%)", s.Leader, formatBytes(s.At-s.From), formatBytes(s.To-s.From),
		100*float64(s.At-s.From)/float64(max(s.To-s.From, 1)))
	if s.State == "waiting" {
		return text + ", held up: " + s.Problem
	}
	if s.BytesPerSecond > 0 {
		left := time.Duration(float64(s.To-s.At) / float64(s.BytesPerSecond) * float64(time.Second))
		text += fmt.Sprintf(", %s/s, %v left", formatBytes(s.BytesPerSecond), left.Round(time.Second))
	}
	return text
}
