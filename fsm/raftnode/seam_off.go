//go:build !raftmq_seam

package raftnode

import (
	"github.com/hashicorp/raft"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"
)

// A server with the seam (package seam) has other ones of these, in seam_on.go.

func walVFS(string) (types.VFS, error) { return walfs.New(), nil }

type earlyApply struct{}

func newEarlyApply(fsm raft.FSM) (raft.FSM, *earlyApply) { return fsm, nil }

func (*earlyApply) stored(*Node, []*raft.Log) {}
