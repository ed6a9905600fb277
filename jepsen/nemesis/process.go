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

// restart starts nodes again, in random order.
func restart(s *site, nodes []*cluster.Node) func(context.Context) (string, error) {
	return func(context.Context) (string, error) {
		var err error
		for _, i := range s.rng.Perm(len(nodes)) {
			if !nodes[i].Running() {
				err = errors.Join(err, nodes[i].Start())
			}
		}
		return "", err
	}
}

// kill sends SIGKILL to the target and others, count of them in all.
func kill(count func(nodes int) int) func(context.Context, *site) (*wound, error) {
	return func(_ context.Context, s *site) (*wound, error) {
		nodes := append([]*cluster.Node{s.target}, s.others(count(len(s.nodes))-1)...)
		w := &wound{nodes: nodes, heal: restart(s, nodes)}
		var proofs []string
		for _, n := range nodes {
			if err := n.Kill(); err != nil {
				return w, err
			}
			if got := n.Exit(); got != "signal: killed" {
				return w, fmt.Errorf("%w: %s ended with %q after SIGKILL", ErrNoEffect, n.ID, got)
			}
			proofs = append(proofs, n.ID+": "+n.Exit())
		}
		w.proof = strings.Join(proofs, ", ")
		return w, nil
	}
}

// stopTimeout is how long a graceful stop may take: the server drains and hands leadership over.
const stopTimeout = 30 * time.Second

// stop sends SIGTERM and wants a clean end.
func stop(ctx context.Context, s *site) (*wound, error) {
	n := s.target
	w := &wound{nodes: []*cluster.Node{n}, heal: restart(s, []*cluster.Node{n})}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	began := time.Now()
	if err := n.Stop(ctx); err != nil {
		return w, err
	}
	w.proof = fmt.Sprintf("%s after %v", n.Exit(), time.Since(began).Round(time.Millisecond))
	return w, nil
}

// rolling restarts every node, the next one when the last one has caught up, as an operator would do it.
func rolling(ctx context.Context, s *site) (*wound, error) {
	nodes := slices.Clone(s.nodes)
	w := &wound{nodes: nodes, heal: restart(s, nodes)}
	for _, n := range nodes {
		one := &site{c: s.c, nodes: s.nodes, target: n, rng: s.rng}
		if _, err := stop(ctx, one); err != nil {
			return w, err
		}
		if err := n.Start(); err != nil {
			return w, err
		}
		if err := caughtUp(ctx, s.c, n); err != nil {
			return w, err
		}
		w.proof += n.ID + ": " + fmt.Sprint(n.Starts()) + " starts, "
	}
	w.proof = strings.TrimSuffix(w.proof, ", ")
	return w, nil
}

const caughtUpTimeout = time.Minute

// caughtUp waits until all nodes serve and n has applied what its leader had committed then.
func caughtUp(ctx context.Context, c *cluster.Cluster, n *cluster.Node) error {
	ctx, cancel := context.WithTimeout(ctx, caughtUpTimeout)
	defer cancel()
	leader, err := c.WaitServing(ctx)
	if err != nil {
		return err
	}
	st, err := leader.Status(ctx)
	if err != nil {
		return err
	}
	_, err = n.WaitStatus(ctx, "catching up", func(got remoting.NodeStatus) bool { return got.AppliedIndex >= st.AppliedIndex })
	return err
}

// pause sends SIGSTOP: connections stay open, nothing is answered.
func pause(ctx context.Context, s *site) (*wound, error) {
	n := s.target
	w := &wound{nodes: []*cluster.Node{n}, heal: func(context.Context) (string, error) { return "", n.Resume() }}
	if err := n.Pause(); err != nil {
		return w, err
	}
	// The signal is delivered asynchronously.
	for deadline := time.Now().Add(2 * time.Second); ; {
		state, err := n.State()
		if err != nil {
			return w, err
		}
		if state == "T" {
			w.proof = "process state T (stopped)"
			return w, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return w, fmt.Errorf("%w: %s is in state %q after SIGSTOP", ErrNoEffect, n.ID, state)
		}
		time.Sleep(time.Millisecond)
	}
}

// transfer hands leadership over to the target, or to anybody if that leads.
func transfer(ctx context.Context, s *site) (*wound, error) {
	w := &wound{nodes: []*cluster.Node{s.target}}
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	// On a bad link a transfer may take longer than Raft gives it, or be under way still. What an operator would do is to ask again.
	for {
		from, to, err := transferOnce(ctx, s)
		if err == nil {
			w.proof = fmt.Sprintf("from %s to %s", from, to)
			return w, nil
		}
		if !wait(ctx, 500*time.Millisecond) {
			return w, err
		}
	}
}

func transferOnce(ctx context.Context, s *site) (from, to string, err error) {
	leader, err := s.c.Leader(ctx)
	if err != nil {
		return "", "", err
	}
	req := remoting.TransferRequest{To: s.target.ID}
	if s.target == leader {
		req.To = ""
	}
	var answer remoting.TransferAnswer
	if err := leader.Admin(ctx, remoting.RequestTransferLeadership, req, &answer); err != nil {
		return "", "", err
	}
	if answer.Leader == "" || answer.Leader == leader.ID {
		return "", "", fmt.Errorf("%w: %+v after %s was asked to hand leadership over", ErrNoEffect, answer, leader.ID)
	}
	return leader.ID, answer.Leader, nil
}
