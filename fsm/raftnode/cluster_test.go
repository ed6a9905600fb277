package raftnode

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// tcpStream is a plain raft.StreamLayer on loopback.
type tcpStream struct{ net.Listener }

func (tcpStream) Dial(a raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", string(a), timeout)
}

// logFSM remembers the data of every entry. Its result for an entry is the entry itself.
type logFSM struct {
	mu      sync.Mutex
	entries [][]byte
	bytes   int
	keep    bool
}

func (f *logFSM) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

func (f *logFSM) ApplyBatch(logs []*raft.Log) []any {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]any, len(logs))
	for i, l := range logs {
		if l.Type != raft.LogCommand {
			continue
		}
		if f.keep {
			f.entries = append(f.entries, l.Data)
		}
		f.bytes += len(l.Data)
		out[i] = l.Data
	}
	return out
}

func (f *logFSM) Snapshot() (raft.FSMSnapshot, error) { return nopSnapshot{}, nil }
func (f *logFSM) Restore(r io.ReadCloser) error       { return r.Close() }

type nopSnapshot struct{}

func (nopSnapshot) Persist(s raft.SnapshotSink) error { return s.Close() }
func (nopSnapshot) Release()                          {}

type testCluster struct {
	nodes   []*Node
	fsms    []*logFSM
	configs []Config
	addrs   []string
}

// listened is how many ports listen has looked at: tests that run at once get different ones.
var listened atomic.Int64

// listen is at a port below those that the system gives to outgoing connections: one of them could take the port of a node that is down, even that node's
// peer's, which would then be connected to itself.
func listen(tb testing.TB) net.Listener {
	tb.Helper()
	const first, last = 7000, 9800
	listened.CompareAndSwap(0, int64(os.Getpid()%100*28))
	for range last - first {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+int(listened.Add(1))%(last-first))); err == nil {
			return l
		}
	}
	tb.Fatal("no free port")
	return nil
}

// reopen starts a node that has been closed, as a process would be started again.
func (c *testCluster) reopen(tb testing.TB, i int) {
	tb.Helper()
	l, err := net.Listen("tcp", c.addrs[i])
	if err != nil {
		tb.Fatal(err)
	}
	cfg := c.configs[i]
	c.fsms[i] = &logFSM{keep: true}
	cfg.FSM, cfg.Transport = c.fsms[i], NewTransport(tcpStream{l}, hclog.NewNullLogger())
	n, err := Open(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	if err := n.Start(); err != nil {
		tb.Fatal(err)
	}
	c.nodes[i] = n
}

// startCluster starts three voters over loopback TCP, with real log stores in a test folder.
func startCluster(tb testing.TB, change func(i int, c *Config)) *testCluster {
	tb.Helper()
	c := &testCluster{}
	var servers []Server
	for i := range 3 {
		l := listen(tb)
		dir := tb.TempDir()
		snaps, err := raft.NewFileSnapshotStoreWithLogger(filepath.Join(dir, "snapshots"), 2, hclog.NewNullLogger())
		if err != nil {
			tb.Fatal(err)
		}
		fsm := &logFSM{}
		cfg := Config{NodeID: fmt.Sprintf("n%d", i+1), Incarnation: "test", Dir: filepath.Join(dir, "raft"), FSM: fsm, Snapshots: snaps,
			Transport: NewTransport(tcpStream{l}, hclog.NewNullLogger())}
		if change != nil {
			change(i, &cfg)
		}
		servers = append(servers, Server{ID: cfg.NodeID, Incarnation: "test", RaftAddr: l.Addr().String()})
		c.configs, c.addrs = append(c.configs, cfg), append(c.addrs, l.Addr().String())
		c.fsms = append(c.fsms, fsm)
	}
	for _, cfg := range c.configs {
		n, err := Open(cfg)
		if err != nil {
			tb.Fatal(err)
		}
		if err := n.Start(); err != nil {
			tb.Fatal(err)
		}
		c.nodes = append(c.nodes, n)
	}
	tb.Cleanup(func() {
		for _, n := range c.nodes {
			if err := n.Close(); err != nil {
				tb.Errorf("close: %v", err)
			}
		}
	})
	if err := c.nodes[0].Bootstrap(servers); err != nil {
		tb.Fatal(err)
	}
	return c
}

func eventually(tb testing.TB, within time.Duration, what string, ok func() bool) {
	tb.Helper()
	within *= 4 // on a machine that does much else
	for deadline := time.Now().Add(within); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			tb.Fatalf("not within %v: %s", within, what)
		}
	}
}

func (c *testCluster) leader(tb testing.TB) (i int) {
	tb.Helper()
	eventually(tb, 20*time.Second, "a ready leader", func() bool {
		for j, n := range c.nodes {
			if n.State().Ready {
				i = j
				return true
			}
		}
		return false
	})
	return i
}

// message is a proposal of fixed bytes that reports its outcome on a channel.
type message struct {
	data []byte
	done chan outcomeOf
}

type outcomeOf struct {
	result any
	i      int
	err    error
}

func (m *message) AppendCommand(dst []byte, _ int64) []byte { return append(dst, m.data...) }
func (m *message) Done(result any, i int, err error)        { m.done <- outcomeOf{result, i, err} }

var errInjected = errors.New("injected store fault")

// TestF59AllNodesMoved: after a restart every node is at another address. Nobody could be elected under those of the
// configuration, so what is known otherwise goes before it.
func TestF59AllNodesMoved(t *testing.T) {
	c := startCluster(t, nil)
	lead := c.leader(t)
	m := &message{data: []byte("kept"), done: make(chan outcomeOf, 1)}
	if err := c.nodes[lead].Propose(m); err != nil {
		t.Fatal(err)
	}
	if o := <-m.done; o.err != nil {
		t.Fatal(o.err)
	}
	known := map[string]string{}
	for i := range c.nodes {
		if err := c.nodes[i].Close(); err != nil {
			t.Fatal(err)
		}
	}
	for i := range c.nodes {
		l := listen(t)
		c.addrs[i] = l.Addr().String()
		known[c.configs[i].NodeID] = c.addrs[i]
		_ = l.Close()
	}
	for i := range c.nodes {
		c.configs[i].PeerAddr = func(nodeID string) string { return known[nodeID] }
		c.reopen(t, i)
	}
	lead = c.leader(t)
	// Leadership can be handed over too.
	if err := c.nodes[lead].TransferLeadership(); err != nil {
		t.Fatal(err)
	}
	c.leader(t)
}
