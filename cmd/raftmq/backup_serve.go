package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"raftmq/fsm"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// A node serves a backup by what it has for its own recovery: a snapshot's head, which is the tables and the log's position at one applied
// index, and the log bytes up to there. Nothing is copied or held for it, and it needs no leader.

// backupStart takes a snapshot and says where it stands.
func (n *node) backupStart(context.Context, struct{}) (any, error) {
	if !n.group.caughtUp() {
		return nil, fmt.Errorf("%w: this node has not caught up: ask another one", errRefused)
	}
	if err := n.group.raft.Snapshot(); err != nil {
		return nil, err
	}
	list, err := n.group.heads.List()
	if err != nil {
		return nil, err
	}
	_, end := n.group.store.LogRange()
	for _, meta := range list {
		raw, err := n.readHead(meta.ID)
		if err != nil {
			return nil, err
		}
		saved, err := fsm.ReadSaved(raw)
		if err != nil {
			return nil, fmt.Errorf("snapshot %s: %w", meta.ID, err)
		}
		if saved.Position.LogEnd > end {
			continue // from a peer, and not installed yet
		}
		s := saved.Settings
		return remoting.BackupStart{NodeID: n.cfg.NodeID, Version: version, ClusterID: s.ClusterID, ClusterName: s.ClusterName, BrokerName: s.BrokerName, SegmentSize: s.SegmentSize,
			Level: int(saved.Level), Snapshot: meta.ID, Index: meta.Index, Term: meta.Term, StateBytes: int64(len(raw)), StateCRC: hexSum(raw),
			LogMin: saved.LogMin, LogEnd: saved.Position.LogEnd}, nil
	}
	return nil, errors.New("this node has nothing to save yet")
}

func (n *node) readHead(id string) ([]byte, error) {
	if id == "" || filepath.Base(id) != id {
		return nil, fmt.Errorf("%q is no snapshot's id", id)
	}
	_, r, err := n.group.heads.Open(id)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(r)
	return raw, errors.Join(err, r.Close())
}

// statePart is the most of the tables that one answer has.
const statePart = 8 * mib

// registerBackupState answers remoting.RequestBackupState. A snapshot is kept until the one after the next.
func (n *node) registerBackupState(s *transport.Server) {
	s.Handle(remoting.RequestBackupState, func(r transport.Responder, cmd *remoting.Command) {
		var req remoting.BackupState
		err := json.Unmarshal(cmd.Body, &req)
		if err != nil {
			r.ReplyError(remoting.ResponseSystemError, "body of the request: "+err.Error())
			return
		}
		raw, err := n.readHead(req.Snapshot)
		if err == nil && (req.Offset < 0 || req.Offset > int64(len(raw))) {
			err = fmt.Errorf("offset %d of %d bytes", req.Offset, len(raw))
		}
		if err != nil {
			r.ReplyError(remoting.ResponseSystemError, fmt.Sprintf("snapshot %s: %v", req.Snapshot, err))
			return
		}
		raw = raw[req.Offset:]
		r.Reply(&remoting.Command{Code: remoting.ResponseSuccess, Body: raw[:min(len(raw), statePart)]})
	})
}
