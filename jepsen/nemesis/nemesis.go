// Package nemesis hurts a cluster on purpose: it kills, stops, pauses and isolates nodes at
// random, leaders preferred, makes sure that each fault took effect, and heals it again.
//
// Randomness comes from a seed, so that a run's plan can be repeated; the cluster's timing can't.
package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"raftmq/jepsen/cluster"
)

// ErrNoEffect: a fault was injected and did not take effect; the run proves nothing.
var ErrNoEffect = errors.New("nemesis: fault took no effect")

// Fault is one kind of fault.
type Fault struct {
	Name string
	// inject hurts node n of c and returns what shows that it worked.
	inject func(ctx context.Context, c *cluster.Cluster, n *cluster.Node, rng *rand.Rand) (proof string, err error)
	// heal undoes it; the cluster may take a while to recover.
	heal func(c *cluster.Cluster, n *cluster.Node) error
}

// Faults are all kinds, by name.
func Faults() []Fault {
	restart := func(_ *cluster.Cluster, n *cluster.Node) error { return n.Start() }
	return []Fault{
		{"kill", kill, restart},
		{"stop", stop, restart},
		{"pause", pause, func(_ *cluster.Cluster, n *cluster.Node) error { return n.Resume() }},
		{"isolate", isolate, func(c *cluster.Cluster, _ *cluster.Node) error { return cluster.Heal(c.Network(), len(c.Nodes())) }},
	}
}

// Parse reads a list of fault names separated by commas.
func Parse(list string) ([]Fault, error) {
	all := Faults()
	var out []Fault
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		i := slices.IndexFunc(all, func(f Fault) bool { return f.Name == name })
		if i < 0 {
			var names []string
			for _, f := range all {
				names = append(names, f.Name)
			}
			return nil, fmt.Errorf("nemesis: unknown fault %q, known are %s", name, strings.Join(names, ", "))
		}
		out = append(out, all[i])
	}
	return out, nil
}

// Available says why a fault can't be had on this network, nil if it can.
func (f Fault) Available(net cluster.Network) error {
	if f.Name != "isolate" {
		return nil
	}
	if err := net.Cut(1, 2); err != nil {
		return err
	}
	return net.Mend(1, 2)
}

// kill sends SIGKILL.
func kill(_ context.Context, _ *cluster.Cluster, n *cluster.Node, _ *rand.Rand) (string, error) {
	if err := n.Kill(); err != nil {
		return "", err
	}
	if got := n.Exit(); got != "signal: killed" {
		return "", fmt.Errorf("%w: %s ended with %q after SIGKILL", ErrNoEffect, n.ID, got)
	}
	return n.Exit(), nil
}

// stopTimeout is how long a graceful stop may take: the server drains and hands leadership over.
const stopTimeout = 30 * time.Second

// stop sends SIGTERM and wants a clean end.
func stop(ctx context.Context, _ *cluster.Cluster, n *cluster.Node, _ *rand.Rand) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	began := time.Now()
	if err := n.Stop(ctx); err != nil {
		return "", err
	}
	return fmt.Sprintf("%s after %v", n.Exit(), time.Since(began).Round(time.Millisecond)), nil
}

// pause sends SIGSTOP: connections stay open, nothing is answered.
func pause(ctx context.Context, _ *cluster.Cluster, n *cluster.Node, _ *rand.Rand) (string, error) {
	if err := n.Pause(); err != nil {
		return "", err
	}
	// The signal is delivered asynchronously.
	for deadline := time.Now().Add(2 * time.Second); ; {
		state, err := n.State()
		if err != nil {
			return "", err
		}
		if state == "T" {
			return "process state T (stopped)", nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return "", fmt.Errorf("%w: %s is in state %q after SIGSTOP", ErrNoEffect, n.ID, state)
		}
		time.Sleep(time.Millisecond)
	}
}

// isolate cuts a node off from its peers; every other time from the clients too, else they go
// on talking to it.
func isolate(ctx context.Context, c *cluster.Cluster, n *cluster.Node, rng *rand.Rand) (string, error) {
	clients := rng.IntN(2) == 0
	peers := reachable(ctx, c, n)
	if err := cluster.Isolate(c.Network(), n.Index, len(c.Nodes()), clients); err != nil {
		return "", err
	}
	for _, peer := range peers {
		switch err := probe(ctx, c, n.Index, peer.Addrs.Raft); {
		case err == nil:
			return "", fmt.Errorf("%w: %s still reaches %s", ErrNoEffect, n.ID, peer.ID)
		case !isTimeout(err):
			return "", fmt.Errorf("%w: %s gets an error from %s instead of silence: %w", ErrNoEffect, n.ID, peer.ID, err)
		}
	}
	what := "from peers, clients still reach it"
	if clients {
		what = "from peers and clients"
	}
	return fmt.Sprintf("cut off %s: connects to %d peers before, to none after", what, len(peers)), nil
}

// reachable lists the peers that n can connect to.
func reachable(ctx context.Context, c *cluster.Cluster, n *cluster.Node) []*cluster.Node {
	var peers []*cluster.Node
	for _, peer := range c.Nodes() {
		if peer != n && probe(ctx, c, n.Index, peer.Addrs.Raft) == nil {
			peers = append(peers, peer)
		}
	}
	return peers
}

const probeTimeout = 200 * time.Millisecond

func probe(ctx context.Context, c *cluster.Cluster, from int, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return c.Network().Probe(ctx, from, addr)
}

func isTimeout(err error) bool {
	var nerr net.Error
	return errors.Is(err, context.DeadlineExceeded) || errors.As(err, &nerr) && nerr.Timeout()
}
