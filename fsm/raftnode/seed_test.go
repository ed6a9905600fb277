package raftnode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// seededFSM remembers what it was restored from.
type seededFSM struct {
	logFSM
	once     sync.Once
	restored chan []byte
}

func (f *seededFSM) Restore(r io.ReadCloser) error {
	b, err := io.ReadAll(r)
	f.once.Do(func() { f.restored <- b })
	return errors.Join(err, r.Close())
}

// TestSeededNodesFormACluster: three folders that were seeded alike elect a leader, in a term above that of the state, and go on behind its index.
func TestSeededNodesFormACluster(t *testing.T) {
	const index, term = 1000, 7
	state := []byte("state of another cluster")
	var listeners []net.Listener
	var servers []Server
	for i := range 3 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		servers = append(servers, Server{ID: fmt.Sprintf("n%d", i+1), Incarnation: "seeded", RaftAddr: l.Addr().String(), Voter: true})
	}
	var nodes []*Node
	for i, l := range listeners {
		dir := t.TempDir()
		snaps, err := raft.NewFileSnapshotStoreWithLogger(filepath.Join(dir, "snapshots"), 2, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		fsm := &seededFSM{restored: make(chan []byte, 1)}
		cfg := Config{NodeID: servers[i].ID, Incarnation: "seeded", Dir: filepath.Join(dir, "raft"), FSM: fsm, Snapshots: snaps, Transport: NewTransport(tcpStream{l}, hclog.NewNullLogger())}
		if err := Seed(cfg, index, term, servers, state); err != nil {
			t.Fatal(err)
		}
		if err := Seed(cfg, index, term, servers, state); !errors.Is(err, ErrNotEmpty) {
			t.Fatalf("seeded twice: %v", err)
		}
		f, err := Inspect(cfg)
		if err != nil || f.Term != term || f.SnapshotIndex != index || f.LastIndex != 0 || len(f.Servers) != 3 || f.Servers[i] != servers[i] {
			t.Fatalf("folder %+v, %v", f, err)
		}
		n, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = n.Close() })
		if !n.HasState() {
			t.Fatal("a seeded node counts as new: it would form a cluster of its own")
		}
		if err := n.Start(); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
		if got := <-fsm.restored; !bytes.Equal(got, state) {
			t.Fatalf("restored %q", got)
		}
	}
	done := make(chan outcomeOf, 1)
	eventually(t, 20*time.Second, "a write is taken", func() bool {
		for _, n := range nodes {
			if n.Propose(&message{data: []byte("m"), done: done}) == nil {
				return (<-done).err == nil
			}
		}
		return false
	})
	for i, n := range nodes { // two are enough for the write; the third hears of it
		eventually(t, 20*time.Second, fmt.Sprintf("node %d is in a later term, behind the state", i), func() bool {
			return n.State().Term > term && n.Indexes().Last > index
		})
	}
}
