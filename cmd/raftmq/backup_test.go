package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"raftmq/commitlog/store"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/transport"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// sourceNode is a node as a backup sees it: a real store behind a real server, with faults on demand.
type sourceNode struct {
	id    string
	addr  string
	store *store.Store
	ready bool

	answers atomic.Int64 // requests for log bytes that were answered
	cutAt   atomic.Int64 // that many answers, then the connection is cut once; 0: never
	damaged atomic.Bool  // says that its bytes are damaged
	refuse  atomic.Bool  // cannot take a snapshot
	trimmed atomic.Int64 // retention is here when the first log bytes are asked for
}

// head is a snapshot's head over the store as it is, in the layout of package fsm.
func (n *sourceNode) head(t testing.TB) []byte {
	t.Helper()
	tables := metadata.New()
	if err := tables.PutSettings(command.Settings{ClusterID: "c1", ClusterName: "C", BrokerName: "B", SegmentSize: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	exported, err := tables.Export()
	if err != nil {
		t.Fatal(err)
	}
	low, _ := n.store.LogRange()
	b, err := json.Marshal(map[string]any{"version": 1, "applied": 7, "term": 1, "logMin": max(low, n.trimmed.Load()), "position": n.store.Position(), "tables": json.RawMessage(exported)})
	if err != nil {
		t.Fatal(err)
	}
	raw := binary.BigEndian.AppendUint32([]byte("RMQSNAP\x01"), uint32(len(b)))
	raw = append(raw, b...)
	return binary.BigEndian.AppendUint32(raw, crc32.Checksum(b, castagnoli))
}

func startSource(t *testing.T, id string, s *store.Store, ready bool) *sourceNode {
	t.Helper()
	n := &sourceNode{id: id, store: s, ready: ready}
	server := transport.NewServer(transport.Config{})
	ranges := &logRanges{store: s}
	reply := func(r transport.Responder, v any) {
		b, err := json.Marshal(v)
		if err != nil {
			t.Error(err)
		}
		r.Reply(&remoting.Command{Body: b})
	}
	server.Handle(remoting.RequestNodeStatus, func(r transport.Responder, _ *remoting.Command) {
		reply(r, remoting.NodeStatus{NodeID: id, Ready: ready, CaughtUp: true, ClusterID: "c1"})
	})
	server.Handle(remoting.RequestBackupStart, func(r transport.Responder, _ *remoting.Command) {
		if n.refuse.Load() {
			r.ReplyError(remoting.ResponseSystemError, "no snapshot today")
			return
		}
		head := n.head(t)
		low, end := s.LogRange()
		reply(r, remoting.BackupStart{NodeID: id, Version: "1", ClusterID: "c1", ClusterName: "C", BrokerName: "B", SegmentSize: 1 << 20, Level: 1, Snapshot: "s1", Index: 7, Term: 1,
			StateBytes: int64(len(head)), StateCRC: hexSum(head), LogMin: max(low, n.trimmed.Load()), LogEnd: end})
	})
	server.Handle(remoting.RequestBackupState, func(r transport.Responder, cmd *remoting.Command) {
		var req remoting.BackupState
		if err := json.Unmarshal(cmd.Body, &req); err != nil {
			t.Error(err)
		}
		rest := n.head(t)[req.Offset:]
		r.Reply(&remoting.Command{Body: rest[:min(len(rest), 100)]}) // in many pieces
	})
	ranges.register(server)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	n.addr = faulty(t, n, l.Addr().String())
	done := make(chan struct{})
	go func() { server.Serve(l); close(done) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
		<-done
	})
	return n
}

// faulty is a server before the real one that passes requests on and puts the faults in.
func faulty(t *testing.T, n *sourceNode, behind string) string {
	t.Helper()
	front := transport.NewServer(transport.Config{})
	pass := func(r transport.Responder, cmd *remoting.Command) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		c, err := client.Dial(ctx, behind)
		if err != nil {
			_ = r.Conn.Close()
			return
		}
		defer c.Close()
		resp, err := c.Invoke(ctx, &remoting.Command{Code: cmd.Code, Ext: cmd.Ext, Body: cmd.Body})
		if err != nil {
			_ = r.Conn.Close()
			return
		}
		r.Reply(resp)
	}
	for _, code := range []int32{remoting.RequestNodeStatus, remoting.RequestBackupStart, remoting.RequestBackupState, remoting.RequestLogSum} {
		front.Handle(code, pass)
	}
	front.Handle(remoting.RequestLogRange, func(r transport.Responder, cmd *remoting.Command) {
		req, err := remoting.DecodeLogRange(cmd)
		if err != nil {
			t.Error(err)
		}
		switch cut := n.cutAt.Load(); {
		case n.damaged.Load():
			r.ReplyError(remoting.ResponseLogRangeDamaged, "damaged here")
		case req.Offset < n.trimmed.Load():
			answer := remoting.LogRangeAnswer{Offset: req.Offset, MinOffset: n.trimmed.Load()}
			resp := &remoting.Command{Code: remoting.ResponseLogRangeOutside, Remark: "it is gone"}
			answer.SetExt(resp)
			r.Reply(resp)
		case cut > 0 && n.answers.Load() >= cut:
			n.cutAt.Store(0)
			_ = r.Conn.Close()
		default:
			n.answers.Add(1)
			pass(r, cmd)
		}
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { front.Serve(l); close(done) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = front.Shutdown(ctx)
		<-done
	})
	return l.Addr().String()
}

// twoSources are two nodes with the same log, the second one leading.
func twoSources(t *testing.T) (a, b *sourceNode) {
	t.Helper()
	return startSource(t, "n1", filledStore(t, t.TempDir(), 120, 30000), false), startSource(t, "n2", filledStore(t, t.TempDir(), 120, 30000), true)
}

func backUp(t *testing.T, dir, from string, nodes ...*sourceNode) (string, error) {
	t.Helper()
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.addr)
	}
	args := []string{"cluster", "backup", dir, "--name-servers", strings.Join(addrs, ",")}
	if from != "" {
		args = append(args, "--from", from)
	}
	out, _, err := runTool(t, "", args...)
	return out, err
}

// whole checks that a backup is whole and has exactly the log of a node.
func whole(t *testing.T, dir string, n *sourceNode, from int64) {
	t.Helper()
	m, _, err := openBackup(dir)
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	if err := m.copyLog(dir, &log); err != nil {
		t.Fatal(err)
	}
	_, end := n.store.LogRange()
	want, err := n.store.Checksum(from, end)
	if err != nil {
		t.Fatal(err)
	}
	if got := crc32.Checksum(log.Bytes(), castagnoli); m.LogMin != from || m.LogEnd != end || got != want {
		t.Errorf("log [%d, %d) with checksum %08x, want [%d, %d) with %08x", m.LogMin, m.LogEnd, got, from, end, want)
	}
}

// TestBackupGoesToTheNextNode: the copy begins at a follower; a cut connection, damaged bytes and a node that takes no snapshot only mean that
// another one is asked.
func TestBackupGoesToTheNextNode(t *testing.T) {
	a, b := twoSources(t)
	dir := t.TempDir()
	a.cutAt.Store(2)
	if out, err := backUp(t, filepath.Join(dir, "cut"), "", a, b); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	whole(t, filepath.Join(dir, "cut"), a, 0)
	if a.answers.Load() != 2 || b.answers.Load() == 0 {
		t.Errorf("%d answers by the follower, %d by the leader", a.answers.Load(), b.answers.Load())
	}

	a.damaged.Store(true)
	if out, err := backUp(t, filepath.Join(dir, "damaged"), "n1", a, b); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	whole(t, filepath.Join(dir, "damaged"), b, 0)
	a.damaged.Store(false)

	a.refuse.Store(true)
	if out, err := backUp(t, filepath.Join(dir, "refused"), "", a, b); err != nil {
		t.Fatalf("%s%v", out, err)
	}
	if m, _, err := openBackup(filepath.Join(dir, "refused")); err != nil || m.Node != "n2" {
		t.Errorf("%+v, %v", m, err)
	}

	if _, err := backUp(t, filepath.Join(dir, "nobody"), "n9", a, b); err == nil || !strings.Contains(err.Error(), "--from n9: there is no such node") {
		t.Errorf("from a node that is not there: %v", err)
	}
}

// TestBackupWhileMessagesExpire: what is gone on all nodes before it is copied means a new moment whose log begins later.
func TestBackupWhileMessagesExpire(t *testing.T) {
	a, _ := twoSources(t)
	dir := filepath.Join(t.TempDir(), "backup")
	if _, err := backUp(t, dir, "", a); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, backupLogDir)); err != nil {
		t.Fatal(err)
	}
	// The first moment has the whole log; then its first segment goes.
	b := &backup{dir: dir, out: &bytes.Buffer{}, src: &source{addrs: []string{a.addr}, peer: "test"}}
	defer b.src.close()
	old, err := b.open()
	if err != nil {
		t.Fatal(err)
	}
	m, err := b.begin(t.Context(), old)
	if err != nil || b.start.LogMin != 0 || m.LogMin != 0 {
		t.Fatalf("%+v, %v", b.start, err)
	}
	a.trimmed.Store(1 << 20)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := b.segment(ctx, 0, 1<<20); !errors.Is(err, client.ErrLogOutside) {
		t.Fatalf("the segment that is gone: %v", err)
	}
	if _, err := backUp(t, dir, "", a); err != nil {
		t.Fatal(err)
	}
	whole(t, dir, a, 1<<20)

	// It can be restored like any other: the log begins where it did there.
	data := filepath.Join(t.TempDir(), "data")
	mustRun(t, "", "cluster", "restore", dir, "--data-dir", data, "--node-id", "n1", "--raft-advertise", "127.0.0.1:1", "--cluster-name", "C", "--broker-name", "B",
		"--mapped-file-size-commit-log", "1MiB", "--max-hash-slot-num", "1000", "--max-index-num", "2000")
	mustRun(t, "", "store", "verify", filepath.Join(data, "store"))
	s, err := store.Open(store.Config{Dir: filepath.Join(data, "store"), SegmentSize: 1 << 20, OnFatal: func(err error) { t.Error(err) }})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	low, end := s.LogRange()
	if _, want := a.store.LogRange(); low != 1<<20 || end != want || s.MaxOffset("T", 0) != 120 || s.MinOffset("T", 0) == 0 {
		t.Errorf("log [%d, %d), want [%d, %d); queue [%d, %d)", low, end, 1<<20, want, s.MinOffset("T", 0), s.MaxOffset("T", 0))
	}
}
