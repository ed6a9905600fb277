package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
)

// removeUnfinishedSnapshots removes what a process that was killed while it took or received a snapshot left in the folder of
// Raft's snapshot store. Raft never counts, finishes or removes those. The store's lock says that no other process is at it.
func removeUnfinishedSnapshots(raftDir string, logger hclog.Logger) error {
	unfinished, err := filepath.Glob(filepath.Join(raftDir, "snapshots", "*.tmp"))
	if err != nil {
		return fmt.Errorf("unfinished snapshots: %w", err)
	}
	for _, path := range unfinished {
		if err := os.RemoveAll(path); err != nil {
			return fmt.Errorf("remove an unfinished snapshot: %w", err)
		}
		logger.Info("removed a snapshot that was not finished when the process ended", "folder", path)
	}
	return nil
}
