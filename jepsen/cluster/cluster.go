// Package cluster starts and steers real raftmq processes for tests and fault runs: one
// process per node, signals by pid, data folders and logs kept in one place, and, on
// machines that allow it, one network namespace per node so that links can be cut.
//
// It judges nothing (jepsen/checker does) and it speaks to nodes only as any client could,
// through their client port. Only processes that it started itself are ever signalled, and
// they die with the program that started them.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"raftmq/transport/remoting"
)

// Errors of this package.
var (
	// ErrNotRunning: the node's process is not there.
	ErrNotRunning = errors.New("cluster: node is not running")
	// ErrRunning: the node's process is there already.
	ErrRunning = errors.New("cluster: node is running")
	// ErrNoPartitions: the network cannot cut links on this machine.
	ErrNoPartitions = errors.New("cluster: links cannot be cut")
)

// Config of a Cluster. Zero values take the defaults in parentheses.
type Config struct {
	Nodes int // number of nodes (3)
	// Expect is how many of them form the cluster, the first ones (all). The others join when they are started.
	Expect int
	// Dir gets a folder nN for each node, with data, log and pid as scripts/cluster lays them
	// out; created if it is missing, never removed by this package.
	Dir string
	// Binary is the raftmq executable (see Build).
	Binary string
	// Network gives addresses and cuts links; the cluster closes it (a loopback network
	// with free ports).
	Network Network
	// Flags are further server flags of every node.
	Flags []string
	// Detached makes the processes outlive this program (see HandOver); default is that they
	// die with it.
	Detached bool
	// Env are further NAME=value variables of every node.
	Env []string
	// Shadow has every node keep a shadow of what is durable (Node.ShadowDir); Binary has the seam then.
	Shadow bool
}

// Cluster is a set of node processes.
type Cluster struct {
	cfg   Config
	net   Network
	nodes []*Node
	once  sync.Once
}

// New prepares folders and addresses; no process runs yet.
func New(cfg Config) (*Cluster, error) {
	if cfg.Nodes == 0 {
		cfg.Nodes = 3
	}
	if cfg.Expect == 0 {
		cfg.Expect = cfg.Nodes
	}
	if cfg.Dir == "" || cfg.Binary == "" {
		return nil, errors.New("cluster: Dir and Binary are required")
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	c := &Cluster{cfg: cfg, net: cfg.Network}
	if c.net == nil {
		n, err := NewLoopback(cfg.Nodes)
		if err != nil {
			return nil, err
		}
		c.net = n
	}
	for i := 1; i <= cfg.Nodes; i++ {
		id := "n" + strconv.Itoa(i)
		if err := os.MkdirAll(filepath.Join(cfg.Dir, id), 0o755); err != nil {
			return nil, fmt.Errorf("cluster: %w", err)
		}
		c.nodes = append(c.nodes, &Node{
			ID:      id,
			Index:   i,
			Addrs:   c.net.Addresses(i),
			DataDir: filepath.Join(cfg.Dir, id, "data"),
			LogPath: filepath.Join(cfg.Dir, id, "log"),
			cluster: c,
		})
		if cfg.Shadow {
			c.nodes[i-1].ShadowDir = filepath.Join(cfg.Dir, id, "shadow")
		}
	}
	return c, nil
}

// Start is New, StartAll and WaitServing; on an error nothing is left running.
func Start(ctx context.Context, cfg Config) (*Cluster, error) {
	c, err := New(cfg)
	if err != nil {
		return nil, err
	}
	err = c.StartAll()
	if err == nil {
		_, err = c.WaitServing(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Nodes returns all nodes in order; node N is Nodes()[N-1].
func (c *Cluster) Nodes() []*Node { return c.nodes }

// Node returns the node with this id, nil if there is none.
func (c *Cluster) Node(id string) *Node {
	for _, n := range c.nodes {
		if n.ID == id {
			return n
		}
	}
	return nil
}

// Network returns the network that the nodes run in.
func (c *Cluster) Network() Network { return c.net }

// Dir is the folder with data and logs.
func (c *Cluster) Dir() string { return c.cfg.Dir }

// ClientAddrs are the client addresses of all nodes, running or not.
func (c *Cluster) ClientAddrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		addrs[i] = n.Addrs.Client
	}
	return addrs
}

// RunningAddrs are the client addresses of the nodes that run now.
func (c *Cluster) RunningAddrs() (addrs []string) {
	for _, n := range c.nodes {
		if n.Running() {
			addrs = append(addrs, n.Addrs.Client)
		}
	}
	return addrs
}

// StartAll starts every node that is not running; it does not wait for them to serve.
func (c *Cluster) StartAll() error { return c.startFirst(len(c.nodes)) }

// StartExpected starts those that form the cluster.
func (c *Cluster) StartExpected() error { return c.startFirst(c.cfg.Expect) }

func (c *Cluster) startFirst(count int) error {
	for _, n := range c.nodes[:count] {
		if n.Running() {
			continue
		}
		if err := n.Start(); err != nil {
			return err
		}
	}
	return nil
}

// Close resumes and kills what still runs and removes the network. Data and logs stay.
// A second call does nothing.
func (c *Cluster) Close() error {
	var err error
	c.once.Do(func() {
		for _, n := range c.nodes {
			if kerr := n.Kill(); kerr != nil && !errors.Is(kerr, ErrNotRunning) {
				err = errors.Join(err, kerr)
			}
		}
		err = errors.Join(err, c.net.Close())
	})
	return err
}

// Leader asks all running nodes and returns the one that takes writes, in the highest term
// seen; it waits for one until ctx ends.
func (c *Cluster) Leader(ctx context.Context) (*Node, error) {
	var last []NodeReport
	for {
		last = c.Statuses(ctx, 500*time.Millisecond)
		if n := leaderOf(c, last); n != nil {
			return n, nil
		}
		if err := pause(ctx, 20*time.Millisecond); err != nil {
			return nil, fmt.Errorf("cluster: no leader takes writes: %w; nodes: %s", err, describe(last))
		}
	}
}

func leaderOf(c *Cluster, reports []NodeReport) *Node {
	var leader *Node
	var term uint64
	for i, r := range reports {
		if r.Err == nil && r.Status.Ready && r.Status.Term >= term {
			leader, term = c.nodes[i], r.Status.Term
		}
	}
	return leader
}

// WaitServing waits until one node takes writes and every running node names it as leader.
// It returns that leader.
func (c *Cluster) WaitServing(ctx context.Context) (*Node, error) {
	var last []NodeReport
	for {
		last = c.Statuses(ctx, time.Second)
		leader := leaderOf(c, last)
		agree := leader != nil
		for i, r := range last {
			if !c.nodes[i].Running() {
				if c.nodes[i].crashed() {
					return nil, fmt.Errorf("cluster: %s ended by itself: %w", c.nodes[i].ID, c.nodes[i].exitError())
				}
				continue
			}
			agree = agree && r.Err == nil && leader != nil && r.Status.LeaderID == leader.ID
		}
		if agree {
			return leader, nil
		}
		if err := pause(ctx, 25*time.Millisecond); err != nil {
			return nil, fmt.Errorf("cluster: not all nodes serve: %w; nodes: %s", err, describe(last))
		}
	}
}

// WaitConverged waits until every node runs, has applied the same index, and has logs of the
// same length, dispatched to the end. It returns the statuses, with checksums of the whole log.
func (c *Cluster) WaitConverged(ctx context.Context) ([]remoting.NodeStatus, error) {
	var last []NodeReport
	for {
		last = c.Statuses(ctx, time.Second)
		if converged(last) {
			return c.checksums(ctx, last[0].Status.LogMax)
		}
		if err := pause(ctx, 50*time.Millisecond); err != nil {
			return nil, fmt.Errorf("cluster: logs did not become equal in length: %w; nodes: %s", err, describe(last))
		}
	}
}

func converged(reports []NodeReport) bool {
	for _, r := range reports {
		first := &reports[0].Status
		if r.Err != nil || r.Status.LogMax != first.LogMax || r.Status.AppliedIndex != first.AppliedIndex ||
			r.Status.DispatchedTo < r.Status.LogMax {
			return false
		}
	}
	return len(reports) > 0
}

func (c *Cluster) checksums(ctx context.Context, to int64) ([]remoting.NodeStatus, error) {
	out := make([]remoting.NodeStatus, 0, len(c.nodes))
	for _, n := range c.nodes {
		st, err := n.Checksum(ctx, to)
		if err != nil {
			return nil, err
		}
		out = append(out, st)
	}
	return out, nil
}

// NodeReport is a node's status or why there is none.
type NodeReport struct {
	Status remoting.NodeStatus
	Err    error
}

// Statuses asks all nodes at once, each for at most timeout. The order is that of Nodes.
func (c *Cluster) Statuses(ctx context.Context, timeout time.Duration) []NodeReport {
	out := make([]NodeReport, len(c.nodes))
	var wg sync.WaitGroup
	for i, n := range c.nodes {
		wg.Go(func() {
			if !n.Running() {
				out[i].Err = ErrNotRunning
				return
			}
			ctx, cancel := context.WithTimeout(ctx, timeout)
			defer cancel()
			out[i].Status, out[i].Err = n.Status(ctx)
		})
	}
	wg.Wait()
	return out
}

// describe puts what is known about all nodes in one line, for error messages.
func describe(reports []NodeReport) string {
	var b strings.Builder
	for i, r := range reports {
		if i > 0 {
			b.WriteString(", ")
		}
		if r.Err != nil {
			fmt.Fprintf(&b, "n%d: %v", i+1, r.Err)
			continue
		}
		s := &r.Status
		fmt.Fprintf(&b, "%s: %s term=%d leader=%q ready=%v applied=%d log=[%d,%d) dispatched=%d %s",
			s.NodeID, s.Role, s.Term, s.LeaderID, s.Ready, s.AppliedIndex, s.LogMin, s.LogMax, s.DispatchedTo, s.Problem)
	}
	return b.String()
}

// pause waits d or until ctx ends, then with its error.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
