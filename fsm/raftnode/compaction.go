package raftnode

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"
)

// compact takes a snapshot whenever SnapshotBytes of log have come since the last one, and keeps TrailingBytes
// behind it. Raft itself counts entries, which say nothing when an entry may hold one message or four
// thousand; so the count is computed from bytes each time.
func (n *Node) compact() {
	defer n.wg.Done()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-n.stop:
			return
		}
		if n.Indexes().LogBytes < n.cfg.SnapshotBytes {
			continue
		}
		if err := n.Snapshot(); err != nil {
			n.cfg.Logger.Error("snapshot failed, the raft log keeps growing until one succeeds", "error", err)
		}
	}
}

// Snapshot takes a snapshot now and compacts the log behind it.
func (n *Node) Snapshot() error {
	rc := n.raft.ReloadableConfig()
	rc.TrailingLogs = n.raft.LastIndex() - min(n.logs.indexBehind(n.cfg.TrailingBytes), n.raft.LastIndex())
	if err := n.raft.ReloadConfig(rc); err != nil {
		return fmt.Errorf("raftnode: set trailing logs to %d: %w", rc.TrailingLogs, err)
	}
	began := n.cfg.Now()
	if err := await(n.raft.Snapshot(), n.stop); errors.Is(err, raft.ErrNothingNewToSnapshot) {
		return nil
	} else if err != nil {
		return fmt.Errorf("raftnode: snapshot: %w", err)
	}
	n.taken.Add(1)
	n.cfg.Logger.Debug("snapshot taken and raft log compacted", "index", n.Indexes().Snapshot, "took", n.cfg.Now().Sub(began))
	return nil
}
