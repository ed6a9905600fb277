package raftnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// ErrNotEmpty: the folder has Raft state already.
var ErrNotEmpty = errors.New("raftnode: the folder is not empty")

// Seed makes the Raft folder of a node of a new cluster that begins with a snapshot: what the state machine held at an entry of another
// cluster's log. All of the new cluster's first members are seeded with the same state, index, term and servers. cfg needs Dir and
// Snapshots, which must be empty.
func Seed(cfg Config, index, term uint64, servers []Server, state []byte) (err error) {
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return fmt.Errorf("raftnode: %w", err)
	}
	path := filepath.Join(cfg.Dir, "stable.db")
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		return errors.Join(fmt.Errorf("%w: %s", ErrNotEmpty, path), err)
	}
	if list, err := cfg.Snapshots.List(); err != nil || len(list) > 0 {
		return errors.Join(fmt.Errorf("%w: it has snapshots: %s", ErrNotEmpty, cfg.Dir), err)
	}
	// The term first: a snapshot of a term that the node does not know yet must not exist, or it would elect leaders in terms of the past.
	stable, err := raftboltdb.New(raftboltdb.Options{Path: path})
	if err != nil {
		return fmt.Errorf("raftnode: open stable store in %s: %w", cfg.Dir, err)
	}
	if err := errors.Join(stable.SetUint64(keyCurrentTerm, term), stable.Close()); err != nil {
		return fmt.Errorf("raftnode: save term %d: %w", term, err)
	}
	var c raft.Configuration
	for _, s := range servers {
		suffrage := raft.Nonvoter
		if s.Voter {
			suffrage = raft.Voter
		}
		c.Servers = append(c.Servers, raft.Server{Suffrage: suffrage, ID: serverID(s.ID, s.Incarnation), Address: raft.ServerAddress(s.RaftAddr)})
	}
	_, encoder := raft.NewInmemTransport("") // it writes addresses as they are
	sink, err := cfg.Snapshots.Create(raft.SnapshotVersionMax, index, term, c, index, encoder)
	if err != nil {
		return fmt.Errorf("raftnode: create snapshot: %w", err)
	}
	if _, err := sink.Write(state); err != nil {
		return errors.Join(fmt.Errorf("raftnode: write snapshot: %w", err), sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return fmt.Errorf("raftnode: write snapshot: %w", err)
	}
	return nil
}
