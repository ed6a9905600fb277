package raftnode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

// ErrNotYet is what a node answers to a snapshot that it can't install yet, because it still fetches what belongs to it. The leader
// comes again.
var ErrNotYet = errors.New("raftnode: not yet, this node still fetches what belongs to the snapshot")

// errNotAsked: a snapshot is not sent, as this node does not lead any more or the follower is no member.
var errNotAsked = errors.New("raftnode: the snapshot is not sent: this node leads no longer, or the follower was removed")

// Pauses of a snapshot's transfer.
const (
	installPause     = 500 * time.Millisecond // before the leader comes again
	installPauseMost = 15 * time.Second
	installHold      = 2 * time.Second // how long a follower's answer may be kept back
	// maxSnapshotBytes bounds a snapshot in memory.
	maxSnapshotBytes = 1 << 30
)

// Raft's InstallSnapshot is one call that lasts until the follower has restored the snapshot, with a deadline by the snapshot's size, which is
// small here. So the call is cut into short ones: the follower answers ErrNotYet within installHold as long as
// Config.Receive fetches, or its Raft restores, and the leader's link comes again while it leads. Raft sees one call on the leader, and
// on the follower one that has everything at hand. Heartbeats and votes go their usual way meanwhile.

// InstallSnapshot implements raft.Transport.
func (l *link) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	nodeID, _ := splitServerID(id)
	if err := l.canReceive(nodeID); err != nil {
		return err
	}
	snapshot, err := io.ReadAll(io.LimitReader(data, maxSnapshotBytes))
	if err != nil {
		return fmt.Errorf("raftnode: read the snapshot: %w", err)
	}
	for {
		if l.shut.Load() {
			return errAside
		}
		if !l.leads(args.Term, id) { // or the server was removed: another incarnation may be at its address by now
			return errNotAsked
		}
		*resp = raft.InstallSnapshotResponse{}
		began := time.Now()
		err := l.Transport.InstallSnapshot(id, l.where(id, target), args, resp, bytes.NewReader(snapshot))
		if err == nil {
			l.note(id, 0)
			return nil
		}
		// The transport carries an error as text.
		if !strings.Contains(err.Error(), ErrNotYet.Error()) || !l.leads(args.Term, id) {
			return err
		}
		l.note(id, 0)
		// On a slow link most of what it carries shall be log bytes.
		pause := min(max(installPause, 3*(time.Since(began)-installHold)), installPauseMost)
		select {
		case <-l.stop:
			return raft.ErrTransportShutdown
		case <-time.After(pause):
		}
	}
}
