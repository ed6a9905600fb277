package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// Host stands for this program's side of the network in Cut: its clients.
const Host = 0

// Addresses are a node's four listen addresses.
type Addresses struct {
	Client, Raft, Gossip, HTTP string
}

// All returns the four addresses.
func (a Addresses) All() []string { return []string{a.Client, a.Raft, a.Gossip, a.HTTP} }

// Network gives nodes their addresses and cuts the links between them. Nodes are numbered from
// 1; Host is this program.
type Network interface {
	// Addresses of node n.
	Addresses(n int) Addresses
	// Wrap returns the command line that runs argv inside node n's network.
	Wrap(n int, argv []string) []string
	// Cut drops silently whatever goes from the one to the other, one way. ErrNoPartitions
	// where that is impossible.
	Cut(from, to int) error
	// Mend undoes Cut of that direction.
	Mend(from, to int) error
	// Probe connects from inside node n's network (or the host's) to addr.
	Probe(ctx context.Context, from int, addr string) error
	// Close removes what the network set up. Nodes have ended before.
	Close() error
}

// Isolate cuts both ways between node n and all other nodes of a cluster of size nodes; with
// clients set, between it and the host too.
func Isolate(net Network, n, nodes int, clients bool) error {
	for other := range nodes + 1 {
		if other == n || other == Host && !clients {
			continue
		}
		if err := errors.Join(net.Cut(n, other), net.Cut(other, n)); err != nil {
			return err
		}
	}
	return nil
}

// Partition cuts both ways between every node of a and every node of b.
func Partition(net Network, a, b []int) error {
	for _, i := range a {
		for _, j := range b {
			if err := errors.Join(net.Cut(i, j), net.Cut(j, i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// Heal mends all links among the nodes and the host.
func Heal(net Network, nodes int) error {
	var err error
	for i := range nodes + 1 {
		for j := range nodes + 1 {
			if i != j {
				err = errors.Join(err, net.Mend(i, j))
			}
		}
	}
	return err
}

// loopback is the network of any machine: one address, a range of ports, no cuts.
type loopback struct {
	addrs []Addresses
	guard net.Listener // nil with fixed ports
}

// Ports below the kernel's ephemeral range, so that no outgoing connection takes the port of a
// node that is down for a moment, and below those that tests of single processes take. They are given away in blocks; whoever has a block listens at
// its first port, so that another harness does not take the block while its nodes are down.
const (
	loopbackFirstPort = 10240
	loopbackLastPort  = 25024
	loopbackBlock     = 64
)

// NewLoopback finds ports on 127.0.0.1 that are free for TCP and UDP: four in a row for each of
// the nodes, at most 15. No other NewLoopback of this machine gets them before Close.
func NewLoopback(nodes int) (Network, error) {
	if nodes > (loopbackBlock-1)/4 {
		return nil, fmt.Errorf("cluster: %d nodes on one address, at most %d", nodes, (loopbackBlock-1)/4)
	}
	for range 200 {
		base := loopbackFirstPort + loopbackBlock*rand.IntN((loopbackLastPort-loopbackFirstPort)/loopbackBlock)
		guard, err := net.Listen("tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(base)))
		if err != nil {
			continue
		}
		if portsFree(base+1, 4*nodes) {
			l := newLoopbackAt(base+1, nodes, 4)
			l.guard = guard
			return l, nil
		}
		_ = guard.Close()
	}
	return nil, fmt.Errorf("cluster: no %d free ports in a row in %d–%d", 4*nodes, loopbackFirstPort, loopbackLastPort)
}

// NewLoopbackAt uses the fixed ports of scripts/cluster: node N has base+10·(N−1) and the
// three after it.
func NewLoopbackAt(base, nodes int) Network { return newLoopbackAt(base, nodes, 10) }

func newLoopbackAt(base, nodes, step int) *loopback {
	l := &loopback{}
	for i := range nodes {
		at := func(k int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(base+step*i+k)) }
		l.addrs = append(l.addrs, Addresses{Client: at(0), Raft: at(1), Gossip: at(2), HTTP: at(3)})
	}
	return l
}

// portsFree binds all ports for both protocols at the same time and lets them go.
func portsFree(base, n int) bool {
	for port := base; port < base+n; port++ {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		tcp, err := net.Listen("tcp4", addr)
		if err != nil {
			return false
		}
		defer tcp.Close()
		udp, err := net.ListenPacket("udp4", addr)
		if err != nil {
			return false
		}
		defer udp.Close()
	}
	return true
}

func (l *loopback) Addresses(n int) Addresses          { return l.addrs[n-1] }
func (l *loopback) Wrap(_ int, argv []string) []string { return argv }

// Close gives the ports back.
func (l *loopback) Close() error {
	if l.guard == nil {
		return nil
	}
	return l.guard.Close()
}

func (l *loopback) Cut(from, to int) error {
	return fmt.Errorf("%w on loopback (%d to %d)", ErrNoPartitions, from, to)
}

// Mend has nothing to undo.
func (l *loopback) Mend(int, int) error { return nil }

func (l *loopback) Probe(ctx context.Context, _ int, addr string) error { return probe(ctx, addr) }

func probe(ctx context.Context, addr string) error {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	return c.Close()
}
