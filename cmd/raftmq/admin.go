package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"raftmq/fsm/command"
	"raftmq/fsm/raftnode"
	"raftmq/membership"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// Bounds of operators' requests on the server.
const (
	adminTimeout   = 10 * time.Minute // a checksum reads the whole log
	leaderTimeout  = 5 * time.Second  // how long such a request waits for a leader
	gossipTimeout  = 5 * time.Second
	quorumTimeout  = 1500 * time.Millisecond // several heartbeats
	transferTries  = 5
	forwardedField = "raftmqForwarded"
)

// removedNamespace is the KV namespace of nodes that were removed while they were alive: the key is node id/incarnation.
const removedNamespace = "RAFTMQ_REMOVED_NODES"

// errRefused: an operator's request that is not carried out, with the reason.
var errRefused = errors.New("refused")

// registerAdmin answers operators' requests.
func (n *node) registerAdmin(s *transport.Server) {
	handleAdmin(n, s, remoting.RequestTransferLeadership, true, n.transfer)
	handleAdmin(n, s, remoting.RequestRemoveNode, true, n.removeNode)
	handleAdmin(n, s, remoting.RequestReadmitNode, true, n.readmit)
	handleAdmin(n, s, remoting.RequestMark, true, n.mark)
	handleAdmin(n, s, remoting.RequestUpgrade, true, n.upgrade)
	handleAdmin(n, s, remoting.RequestDrain, false, n.drain)
	handleAdmin(n, s, remoting.RequestBackupStart, false, n.backupStart)
	n.registerBackupState(s)
	handleAdmin(n, s, remoting.RequestSnapshot, false, func(context.Context, struct{}) (any, error) {
		if err := n.group.raft.Snapshot(); err != nil {
			return nil, err
		}
		return remoting.SnapshotAnswer{NodeID: n.cfg.NodeID, Index: n.group.raft.Indexes().Snapshot}, nil
	})
	handleAdmin(n, s, remoting.RequestChecksum, false, n.checksum)
	handleAdmin(n, s, remoting.RequestRepairLog, false, n.repairLog)
	handleAdmin(n, s, remoting.RequestRejoin, false, n.rejoin)
	handleAdmin(n, s, remoting.RequestScrub, false, n.scrub)
	handleAdmin(n, s, remoting.RequestLeave, false, func(ctx context.Context, _ struct{}) (any, error) { return struct{}{}, n.leave(ctx) })
}

// handleAdmin registers a request with a JSON body and answer. leader: only a leader may carry it out; others pass it on.
func handleAdmin[T any](n *node, s *transport.Server, code int32, leader bool, f func(context.Context, T) (any, error)) {
	s.Handle(code, func(r transport.Responder, cmd *remoting.Command) {
		cmd = cmd.Clone()
		serve := func() {
			ctx, cancel := context.WithTimeout(n.ctx, adminTimeout)
			defer cancel()
			// An order whose giver has hung up is not carried out later: he has gone on without it.
			stop := closing(r.Conn.Done(), cancel)
			defer stop()
			if leader && !n.group.raft.State().Ready {
				if resp := n.elsewhere(ctx, cmd); resp != nil {
					r.Reply(resp)
					return
				}
			}
			resp, err := answerAdmin(ctx, cmd.Body, f)
			if err != nil {
				r.ReplyError(remoting.ResponseSystemError, err.Error())
				return
			}
			r.Reply(resp)
		}
		if !n.spawn(serve) {
			r.ReplyError(remoting.ResponseServiceNotAvailable, "this node is stopping")
		}
	})
}

// closing calls cancel when done is closed, until stop is called.
func closing(done <-chan struct{}, cancel context.CancelFunc) (stop func()) {
	ended := make(chan struct{})
	go func() {
		select {
		case <-done:
			cancel()
		case <-ended:
		}
	}()
	return func() { close(ended) }
}

func answerAdmin[T any](ctx context.Context, body []byte, f func(context.Context, T) (any, error)) (*remoting.Command, error) {
	var req T
	if len(body) > 0 {
		if err := json.Unmarshal(body, &req); err != nil {
			return nil, fmt.Errorf("body of the request: %w", err)
		}
	}
	answer, err := f(ctx, req)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(answer)
	if err != nil {
		return nil, err
	}
	return &remoting.Command{Code: remoting.ResponseSuccess, Body: b}, nil
}

// elsewhere passes a request on to the leader and returns the answer, or nil when this node has become the leader.
func (n *node) elsewhere(ctx context.Context, cmd *remoting.Command) *remoting.Command {
	waiting, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	var err error
	for {
		if n.group.raft.State().Ready {
			return nil
		}
		if cmd.Get(forwardedField) != nil {
			break // whoever passed it on looks for the leader again
		}
		request := &remoting.Command{Code: cmd.Code, Body: cmd.Body}
		request.Set(forwardedField, "true")
		var resp *remoting.Command
		if resp, err = n.group.forward(ctx, request); err == nil && resp.Code != remoting.ResponseServiceNotAvailable {
			return resp
		}
		select {
		case <-waiting.Done():
			return &remoting.Command{Code: remoting.ResponseServiceNotAvailable, Remark: fmt.Sprintf("no leader could be asked: %v", err)}
		case <-time.After(100 * time.Millisecond):
		}
	}
	return &remoting.Command{Code: remoting.ResponseServiceNotAvailable, Remark: "this node does not lead"}
}

// transfer hands leadership over. Leader.
func (n *node) transfer(ctx context.Context, req remoting.TransferRequest) (any, error) {
	raft := n.group.raft
	if req.To == n.cfg.NodeID {
		return remoting.TransferAnswer{From: n.cfg.NodeID, Leader: n.cfg.NodeID}, nil
	}
	var err error
	for try := 0; try < transferTries; try++ {
		if err = raft.TransferLeadershipTo(req.To); err == nil || errors.Is(err, raftnode.ErrNoVoter) || errors.Is(err, raftnode.ErrNotLeader) {
			break
		}
	}
	switch {
	case errors.Is(err, raftnode.ErrNoVoter):
		return nil, fmt.Errorf("%w: %s is no voter of this group; raftmq cluster peers lists them", errRefused, req.To)
	case err != nil && !errors.Is(err, raftnode.ErrNotLeader):
		return nil, err
	}
	waiting, cancel := context.WithTimeout(ctx, leaderTimeout)
	defer cancel()
	for {
		if s := raft.State(); s.LeaderID != "" && s.LeaderID != n.cfg.NodeID {
			if req.To != "" && s.LeaderID != req.To {
				return nil, fmt.Errorf("%s leads now, not %s", s.LeaderID, req.To)
			}
			return remoting.TransferAnswer{From: n.cfg.NodeID, Leader: s.LeaderID}, nil
		}
		select {
		case <-waiting.Done():
			return nil, errors.New("leadership was handed over, but no new leader is known yet")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// removeNode takes a node out of the configuration. Leader. A removal that might not commit, or that would leave no
// quorum, is refused (F63).
func (n *node) removeNode(ctx context.Context, req remoting.RemoveRequest) (any, error) {
	v := voters{n.group}
	list, err := v.List()
	if err != nil {
		return nil, err
	}
	var target *membership.Voter
	for i := range list {
		if list[i].NodeID == req.NodeID {
			target = &list[i]
		}
	}
	switch {
	case target == nil && req.Leaving:
		// It asked to be let go, and gossip's word of that was here first: the reconciler has removed it. Forgetting it comes behind that in the log.
		return struct{}{}, n.group.forgetNode(ctx, req.NodeID)
	case target == nil:
		return nil, fmt.Errorf("%w: %s is not in the configuration of this group", errRefused, req.NodeID)
	case req.NodeID == n.cfg.NodeID:
		return nil, fmt.Errorf("%w: %s leads; hand leadership over first (raftmq cluster transfer), or let it leave (raftmq node leave)", errRefused, req.NodeID)
	}
	if err := n.awaitQuorumWithout(ctx, *target, list); err != nil {
		return nil, fmt.Errorf("%w: %w", errRefused, err)
	}
	alive := n.isAlive(*target)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	switch {
	case req.Leaving:
		if err := n.awaitLeaving(ctx, *target); err != nil {
			return nil, err
		}
	case alive && !req.Force:
		return nil, fmt.Errorf("%w: %s is alive; let it leave (raftmq node leave), stop it first, or use --force, which keeps it out until raftmq cluster add %s", errRefused, req.NodeID, req.NodeID)
	case alive:
		if err := n.group.proposeJSON(ctx, command.KindKVPut, command.KVPut{Namespace: removedNamespace, Key: barKey(target.NodeID, target.Incarnation),
			Value: time.Now().UTC().Format(time.RFC3339)}); err != nil {
			return nil, err
		}
	}
	n.logger.Info("removing a node", "node", req.NodeID, "alive", alive, "force", req.Force, "leaving", req.Leaving)
	if err := v.Remove(*target); err != nil {
		return nil, err
	}
	return struct{}{}, n.group.forgetNode(ctx, req.NodeID)
}

func barKey(nodeID, incarnation string) string { return nodeID + "/" + incarnation }

// awaitQuorumWithout waits until a majority of the voters that would stay has answered this leader since now. What they said before
// may have been said before a partition.
func (n *node) awaitQuorumWithout(ctx context.Context, target membership.Voter, list []membership.Voter) error {
	ctx, cancel := context.WithTimeout(ctx, quorumTimeout)
	defer cancel()
	began := time.Now()
	for {
		err := membership.CheckRemoval(n.cfg.NodeID, target, list, func(nodeID string) time.Time {
			if at := (voters{n.group}).LastContact(nodeID); at.After(began) {
				return at
			}
			return time.Time{}
		})
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// isAlive reports whether gossip sees this very incarnation.
func (n *node) isAlive(v membership.Voter) bool {
	for _, m := range n.members.Members() {
		if m.NodeID == v.NodeID && m.Incarnation == v.Incarnation {
			return !m.Leaving && (m.State == membership.Alive || m.State == membership.Suspect)
		}
	}
	return false
}

// awaitLeaving waits until gossip has told that the node is about to leave: else the reconciler would add it again at once.
func (n *node) awaitLeaving(ctx context.Context, v membership.Voter) error {
	ctx, cancel := context.WithTimeout(ctx, gossipTimeout)
	defer cancel()
	for n.isAlive(v) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: gossip has not told yet that %s is leaving", errRefused, v.NodeID)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// leave takes this node out of its cluster for good. It goes on as before if that is refused.
func (n *node) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	servers, err := n.group.raft.Servers()
	if err != nil {
		return err
	}
	member, voters := false, 0
	for _, s := range servers {
		if s.Voter {
			voters++
		}
		member = member || s.ID == n.cfg.NodeID
	}
	if member {
		if voters == 1 && n.group.raft.State().Role == raftnode.Leader {
			return fmt.Errorf("%w: %s is the only voter: what it holds is nowhere else; stop it instead", errRefused, n.cfg.NodeID)
		}
		if err := n.askToBeRemoved(ctx); err != nil {
			return errors.Join(err, n.members.AnnounceLeave(false))
		}
	}
	if err := n.members.Leave(gossipTimeout); err != nil {
		n.logger.Warn("the good-bye may not have reached everybody", "error", err)
	}
	n.leftOnce.Do(func() { close(n.left) })
	return nil
}

// askToBeRemoved hands leadership over and has the next leader remove this node, again if leadership comes back meanwhile.
func (n *node) askToBeRemoved(ctx context.Context) error {
	for {
		if removed, err := n.askOnceToBeRemoved(ctx); removed || err != nil {
			return err
		}
		n.logger.Info("leadership came back while this node was leaving, handing it over again")
	}
}

// askOnceToBeRemoved reports false when this node leads again.
func (n *node) askOnceToBeRemoved(ctx context.Context) (removed bool, err error) {
	raft := n.group.raft
	for raft.State().Role == raftnode.Leader {
		if err := raft.TransferLeadershipTo(""); err != nil {
			n.logger.Warn("could not hand leadership over yet", "error", err)
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("hand leadership over: %w", ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	if err := n.members.AnnounceLeave(true); err != nil {
		return false, err
	}
	body, err := json.Marshal(remoting.RemoveRequest{NodeID: n.cfg.NodeID, Leaving: true})
	if err != nil {
		return false, err
	}
	resp := n.elsewhere(ctx, &remoting.Command{Code: remoting.RequestRemoveNode, Body: body})
	switch {
	case resp == nil:
		return false, ctx.Err()
	case resp.Code != remoting.ResponseSuccess:
		return false, errors.New(resp.Remark)
	}
	return true, nil
}

// proposeJSON applies one table command. Leader.
func (g *brokerGroup) proposeJSON(ctx context.Context, kind command.Kind, payload any) error {
	b, err := command.AppendJSON(nil, kind, payload)
	if err != nil {
		return err
	}
	return g.propose(ctx, b)
}

// forgetNode drops a removed node from the tables. Leader.
func (g *brokerGroup) forgetNode(ctx context.Context, nodeID string) error {
	if _, ok := g.tables.Node(nodeID); !ok {
		return nil
	}
	return g.proposeJSON(ctx, command.KindNodeDelete, command.NodeDelete{ID: nodeID})
}

func randomID(bytes int) (string, error) {
	b := make([]byte, bytes)
	if _, err := rand.Read(b); err != nil {
		return "", fmt.Errorf("make an id: %w", err)
	}
	return hex.EncodeToString(b), nil
}
