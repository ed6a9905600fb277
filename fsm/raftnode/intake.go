package raftnode

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

// intake stands between the transport and Raft: snapshots that others send pass when they can be installed at once.
type intake struct {
	readSnapshot func(stream io.Reader) ([]byte, error)
	receive      func(ctx context.Context, leader string, snapshot []byte) error
	term         func() uint64 // Raft's; 0 before it runs
	// beyond tells that Raft's log has an entry of this index and term, or has applied it, and goes on behind it.
	beyond func(index, term uint64) bool
	rpcs   chan raft.RPC
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu        sync.Mutex
	closed    bool          // guarded by mu, as what follows
	busy      chan struct{} // not nil while Raft installs a snapshot
	installed snapshotAt    // the last that Raft has installed
}

type snapshotAt struct{ index, term uint64 }

func newIntake(read func(stream io.Reader) ([]byte, error), receive func(ctx context.Context, leader string, snapshot []byte) error, term func() uint64, beyond func(index, term uint64) bool) *intake {
	in := &intake{readSnapshot: read, receive: receive, term: term, beyond: beyond, rpcs: make(chan raft.RPC)}
	in.ctx, in.cancel = context.WithCancel(context.Background())
	return in
}

// close ends it: Raft gets nothing more.
func (in *intake) close() {
	in.mu.Lock()
	in.closed = true
	in.mu.Unlock()
	in.cancel()
	in.wg.Wait()
}

// begin counts a goroutine that close waits for; false when it is too late.
func (in *intake) begin() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if !in.closed {
		in.wg.Add(1)
	}
	return !in.closed
}

// Consumer implements raft.Transport.
func (l *link) Consumer() <-chan raft.RPC {
	switch {
	case l.intake != nil:
		return l.intake.rpcs
	case l.young != nil:
		return l.young.outer
	}
	return l.Transport.Consumer()
}

// run passes on what comes.
func (in *intake) run(from <-chan raft.RPC) {
	defer in.wg.Done()
	for {
		select {
		case rpc := <-from:
			if req, ok := rpc.Command.(*raft.InstallSnapshotRequest); ok {
				go in.read(rpc, req)
			} else if !in.pass(rpc) {
				rpc.Respond(nil, raft.ErrTransportShutdown)
			}
		case <-in.ctx.Done():
			return
		}
	}
}

// pass gives a call to Raft; false when this node is stopping.
func (in *intake) pass(rpc raft.RPC) bool {
	select {
	case in.rpcs <- rpc:
		return true
	case <-in.ctx.Done():
		return false
	}
}

// read takes a snapshot from the connection, whose goroutine waits for the answer. It ends with the connection, which is the transport's.
func (in *intake) read(rpc raft.RPC, req *raft.InstallSnapshotRequest) {
	counted := &countReader{r: rpc.Reader}
	snapshot, err := in.readSnapshot(io.LimitReader(counted, maxSnapshotBytes))
	_, _ = io.Copy(io.Discard, counted) // the connection's next call begins behind it
	if err == nil && counted.n != req.Size {
		err = fmt.Errorf("raftnode: a snapshot of %d bytes, expected %d: %w", counted.n, req.Size, io.ErrUnexpectedEOF)
	}
	own := *req
	own.Size, req = int64(len(snapshot)), &own
	resp := &raft.InstallSnapshotResponse{Term: in.term()}
	switch {
	case err != nil:
		rpc.Respond(resp, err)
	case !in.begin():
		rpc.Respond(resp, raft.ErrTransportShutdown)
	default:
		defer in.wg.Done()
		in.take(rpc, req, resp, snapshot)
	}
}

// take answers an InstallSnapshot.
func (in *intake) take(rpc raft.RPC, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, snapshot []byte) {
	ctx, cancel := context.WithTimeout(in.ctx, installHold)
	defer cancel()
	if req.Term < resp.Term { // of a leader that is none any more
		rpc.Respond(resp, nil)
		return
	}
	if !in.idle(ctx) || resp.Term == 0 {
		rpc.Respond(resp, ErrNotYet)
		return
	}
	in.mu.Lock()
	installed := in.installed
	in.mu.Unlock()
	if installed == (snapshotAt{req.LastLogIndex, req.LastLogTerm}) { // the answer came too late for the call before
		resp.Success = true
		rpc.Respond(resp, nil)
		return
	}
	if in.needless(rpc, req, resp) {
		return
	}
	leader, _ := splitServerID(raft.ServerID(req.ID))
	if err := in.receive(ctx, leader, snapshot); err != nil {
		rpc.Respond(resp, err)
		return
	}
	if in.needless(rpc, req, resp) { // receive may have taken a while
		return
	}
	in.install(ctx, rpc, req, resp, snapshot)
}

// needless answers a snapshot that says nothing new: what it covers is here, with more behind it. A leader sends such a one when it has not heard how far this node is, or still to
// a former self of this node, which had the same address. Raft would remove the whole log for it (removeOldLogs, of a log store that is monotonic), what lies behind the snapshot too, which this node has
// acknowledged, and go on as if it had that.
func (in *intake) needless(rpc raft.RPC, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse) bool {
	if !in.beyond(req.LastLogIndex, req.LastLogTerm) {
		return false
	}
	resp.Success = true
	rpc.Respond(resp, nil)
	return true
}

// idle waits until Raft is not installing a snapshot.
func (in *intake) idle(ctx context.Context) bool {
	in.mu.Lock()
	busy := in.busy
	in.mu.Unlock()
	if busy == nil {
		return true
	}
	select {
	case <-busy:
		return true
	case <-ctx.Done():
		return false
	}
}

// install gives a snapshot to Raft and passes its answer on if it comes soon.
func (in *intake) install(ctx context.Context, rpc raft.RPC, req *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, snapshot []byte) {
	done := make(chan struct{})
	in.mu.Lock()
	taken := in.busy != nil
	if !taken {
		in.busy = done
	}
	in.mu.Unlock()
	if taken {
		rpc.Respond(resp, ErrNotYet)
		return
	}
	answer := make(chan raft.RPCResponse, 1)
	var got raft.RPCResponse
	defer func() {
		in.mu.Lock()
		defer in.mu.Unlock()
		if r, ok := got.Response.(*raft.InstallSnapshotResponse); ok && got.Error == nil && r.Success {
			in.installed = snapshotAt{req.LastLogIndex, req.LastLogTerm}
		}
		in.busy = nil
		close(done)
	}()
	if !in.pass(raft.RPC{Command: req, Reader: bytes.NewReader(snapshot), RespChan: answer}) {
		rpc.Respond(resp, raft.ErrTransportShutdown)
		return
	}
	select {
	case got = <-answer:
		rpc.Respond(got.Response, got.Error)
		return
	case <-ctx.Done():
		rpc.Respond(resp, ErrNotYet)
	}
	select {
	case got = <-answer: // Raft's log says it if it failed; the leader comes again
	case <-in.ctx.Done():
	}
}

// countReader counts what is read.
type countReader struct {
	r io.Reader
	n int64
}

// Read implements io.Reader.
func (c *countReader) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	return n, err
}
