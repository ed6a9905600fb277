package raftnode

import (
	"fmt"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// snapshotFiles is raft's file store, whose snapshots survive a loss of power: it syncs a snapshot's files and the folder that holds the snapshots, but not the names in
// a snapshot's own folder, and Raft gives up the log behind a snapshot as soon as its sink is closed (Flush-Before-Truncate, F35).
type snapshotFiles struct {
	*raft.FileSnapshotStore
	dir string
}

// OpenSnapshotFiles opens, or makes, the snapshots in dir/snapshots, of which the newest keep are kept. A snapshot whose sink was closed without an error is durable.
func OpenSnapshotFiles(dir string, keep int, logger hclog.Logger) (raft.SnapshotStore, error) {
	files, err := raft.NewFileSnapshotStoreWithLogger(dir, keep, logger)
	if err != nil {
		return nil, fmt.Errorf("open snapshots in %s: %w", dir, err)
	}
	return &snapshotFiles{files, filepath.Join(dir, "snapshots")}, nil
}

// Create implements raft.SnapshotStore.
func (s *snapshotFiles) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	inner, err := s.FileSnapshotStore.Create(version, index, term, configuration, configurationIndex, trans)
	if err != nil {
		return nil, err
	}
	return &fileSink{inner, s.dir}, nil
}

type fileSink struct {
	raft.SnapshotSink
	dir string
}

// Close implements raft.SnapshotSink.
func (s *fileSink) Close() error {
	if err := s.SnapshotSink.Close(); err != nil {
		return err
	}
	return syncFolders(filepath.Join(s.dir, s.ID()))
}
