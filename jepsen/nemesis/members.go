package nemesis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"raftmq/jepsen/cluster"
	"raftmq/transport/remoting"
)

var errNoSpare = errors.New("nemesis: there is no node that is no member yet")

// memberTimeout is how long a change of members may take while everything else works.
const memberTimeout = time.Minute

// voters are those of the leader's configuration, in order of their names.
func voters(ctx context.Context, c *cluster.Cluster) (ids []string, err error) {
	leader, err := c.Leader(ctx)
	if err != nil {
		return nil, err
	}
	st, err := leader.Status(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range st.Peers {
		if p.Suffrage == "voter" {
			ids = append(ids, p.NodeID)
		}
	}
	slices.Sort(ids)
	return ids, nil
}

// awaitVoter waits until a node is a voter, or none.
func awaitVoter(ctx context.Context, c *cluster.Cluster, id string, want bool) (ids []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	for {
		ids, err = voters(ctx, c)
		if err == nil && slices.Contains(ids, id) == want {
			return ids, nil
		}
		if !wait(ctx, waitEvery) {
			return ids, fmt.Errorf("%w: voters are %v, %s is to be among them: %v: %w", ErrNoEffect, ids, id, want, ctx.Err())
		}
	}
}

// join starts an empty node and waits until it is a voter.
func join(ctx context.Context, c *cluster.Cluster, n *cluster.Node) (string, error) {
	if n.Running() {
		return "", nil
	}
	if _, err := empty(n.DataDir); err != nil {
		return "", err
	}
	if err := n.ForgetShadow(); err != nil {
		return "", err
	}
	if err := n.Start(); err != nil {
		return "", err
	}
	began := time.Now()
	ids, err := awaitVoter(ctx, c, n.ID, true)
	return fmt.Sprintf("%s is a voter again after %v, all are %s", n.ID, time.Since(began).Round(10*time.Millisecond), strings.Join(ids, " ")), err
}

// JoinAll starts the nodes that do not run and waits until each is a voter.
func JoinAll(ctx context.Context, c *cluster.Cluster) error {
	for _, n := range c.Nodes() {
		if n.Running() {
			continue
		}
		if err := n.Crashed(); err != nil {
			return err
		}
		if err := n.Start(); err != nil {
			return err
		}
		if _, err := awaitVoter(ctx, c, n.ID, true); err != nil {
			return err
		}
	}
	return nil
}

// shrink makes the target leave for good; one without data joins in its place when it is healed.
func shrink(ctx context.Context, s *site) (*wound, error) {
	n := s.target
	w := &wound{nodes: []*cluster.Node{n}}
	w.heal = func(ctx context.Context) (string, error) { return join(ctx, s.c, n) }
	ids, err := leave(ctx, s.c, n)
	w.proof = fmt.Sprintf("%s has left, voters are %s", n.ID, strings.Join(ids, " "))
	return w, err
}

func leave(ctx context.Context, c *cluster.Cluster, n *cluster.Node) (ids []string, err error) {
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	if err := n.Leave(ctx); err != nil {
		return nil, err
	}
	return awaitVoter(ctx, c, n.ID, false)
}

// replace kills the target and has it removed by an operator; one without data joins in its place when it is healed.
func replace(ctx context.Context, s *site) (*wound, error) {
	n := s.target
	w := &wound{nodes: []*cluster.Node{n}}
	w.heal = func(ctx context.Context) (string, error) { return join(ctx, s.c, n) }
	if err := n.Kill(); err != nil {
		return w, err
	}
	ctx, cancel := context.WithTimeout(ctx, memberTimeout)
	defer cancel()
	for {
		leader, err := s.c.Leader(ctx)
		if err != nil {
			return w, err
		}
		// It may have lost its leadership meanwhile, or not yet believe that the node is gone.
		err = leader.Admin(ctx, remoting.RequestRemoveNode, remoting.RemoveRequest{NodeID: n.ID}, nil)
		if ids, verr := voters(ctx, s.c); verr == nil && !slices.Contains(ids, n.ID) {
			w.proof = fmt.Sprintf("%s: %s, removed, voters are %s", n.ID, n.Exit(), strings.Join(ids, " "))
			return w, nil
		}
		if !wait(ctx, 200*time.Millisecond) {
			return w, fmt.Errorf("%w: %s was not removed: %w", ErrNoEffect, n.ID, err)
		}
	}
}

// grow starts a node that is no member yet and waits until it votes; it leaves again when it is healed.
func grow(ctx context.Context, s *site) (*wound, error) {
	var spare *cluster.Node
	for _, n := range s.c.Nodes() {
		if !n.Running() && !slices.Contains(s.nodes, n) {
			spare = n
			break
		}
	}
	w := &wound{}
	if spare == nil {
		return w, errNoSpare
	}
	w.nodes = []*cluster.Node{spare}
	w.heal = func(ctx context.Context) (string, error) {
		if !spare.Running() {
			return "", nil
		}
		ids, err := leave(ctx, s.c, spare)
		return fmt.Sprintf("%s has left, voters are %s", spare.ID, strings.Join(ids, " ")), err
	}
	if _, err := empty(spare.DataDir); err != nil {
		return w, err
	}
	if err := spare.Start(); err != nil {
		return w, err
	}
	ids, err := awaitVoter(ctx, s.c, spare.ID, true)
	w.proof = fmt.Sprintf("%s has joined, voters are %s", spare.ID, strings.Join(ids, " "))
	return w, err
}
