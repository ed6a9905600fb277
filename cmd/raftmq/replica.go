package main

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"sync"
	"time"

	"raftmq/fsm"
	"raftmq/fsm/command"
	"raftmq/transport/remoting"
)

// replicaMark is what this node held at a mark: equal on all nodes, whenever each of them came to it.
type replicaMark struct {
	id             string
	index          uint64
	logEnd         int64
	tables, queues uint32
	err            error
}

// replicaMarks are the newest marks.
type replicaMarks struct {
	mu      sync.Mutex
	list    []replicaMark
	changed chan struct{} // closed at the next one
}

const keptMarks = 16

func newReplicaMarks() *replicaMarks { return &replicaMarks{changed: make(chan struct{})} }

func (r *replicaMarks) add(m replicaMark) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.list = append(r.list, m); len(r.list) > keptMarks {
		r.list = append(r.list[:0], r.list[1:]...)
	}
	close(r.changed)
	r.changed = make(chan struct{})
}

// wait returns the mark as soon as it is there.
func (r *replicaMarks) wait(ctx context.Context, id string) (replicaMark, error) {
	for {
		r.mu.Lock()
		changed := r.changed
		for _, m := range r.list {
			if m.id == id {
				r.mu.Unlock()
				return m, m.err
			}
		}
		r.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return replicaMark{}, fmt.Errorf("this node has not come to mark %s: %w", id, ctx.Err())
		}
	}
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// digest turns a mark of the FSM into what is kept of it.
func digest(m fsm.Mark) replicaMark {
	out := replicaMark{id: m.ID, index: m.Index, logEnd: m.Position.LogEnd}
	tables, err := m.Tables()
	if err == nil {
		out.tables = crc32.Checksum(tables, castagnoli)
		at := m.Position
		at.RaftIndex, at.RaftTerm = 0, 0 // of the entry before, which a node that was filled by a snapshot may not know
		tables, err = json.Marshal(at)
		out.queues = crc32.Checksum(tables, castagnoli)
	}
	out.err = err
	return out
}

// onMark runs on the FSM goroutine.
func (n *node) onMark(m fsm.Mark) {
	if !n.group.caughtUp() {
		return // replayed at start: nobody asks for that any more
	}
	n.spawn(func() { n.marks.add(digest(m)) })
}

// mark puts a mark into the log. Leader.
func (n *node) mark(ctx context.Context, req remoting.MarkRequest) (any, error) {
	if req.ID == "" {
		var err error
		if req.ID, err = randomID(8); err != nil {
			return nil, err
		}
	}
	return req, n.group.proposeJSON(ctx, command.KindMark, command.Mark{ID: req.ID})
}

// checksum tells what this node held at a mark.
func (n *node) checksum(ctx context.Context, req remoting.ChecksumRequest) (any, error) {
	waiting, cancel := context.WithTimeout(ctx, max(time.Duration(req.WaitMillis)*time.Millisecond, time.Second))
	defer cancel()
	m, err := n.marks.wait(waiting, req.ID)
	if err != nil {
		return nil, err
	}
	low, end := n.group.store.LogRange()
	for ; end < m.logEnd; _, end = n.group.store.LogRange() { // its batch is about to be published
		select {
		case <-waiting.Done():
			return nil, fmt.Errorf("the log ends at %d and at %d at the mark: %w", end, m.logEnd, waiting.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
	answer := remoting.ChecksumAnswer{NodeID: n.cfg.NodeID, Index: m.index, LogMin: low, LogEnd: m.logEnd,
		Tables: fmt.Sprintf("%08x", m.tables), Queues: fmt.Sprintf("%08x", m.queues)}
	applied, err := n.group.store.AppliedFrom()
	if err != nil {
		return nil, err
	}
	answer.LogApplied = min(applied, m.logEnd)
	if req.Log {
		sum, err := n.group.store.Checksum(req.From, m.logEnd)
		if err != nil {
			return nil, fmt.Errorf("checksum of log bytes [%d,%d): %w", req.From, m.logEnd, err)
		}
		answer.LogFrom, answer.Log = req.From, fmt.Sprintf("%08x", sum)
	}
	return answer, nil
}
