package raftnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// ReadLog visits the entries of a node's Raft log from index from on, in order, committed or not. dir must be a copy of
// the node's folder that nothing else has open: a log store writes when it opens. A log that begins behind from
// is an error: what is missing between was compacted into a snapshot.
func ReadLog(dir string, from uint64, logger hclog.Logger, visit func(*raft.Log) error) (err error) {
	cfg := Config{Dir: dir, LogStore: WAL, Logger: logger}
	if _, err := os.Stat(filepath.Join(dir, "log.db")); err == nil {
		cfg.LogStore = Bolt
	}
	s, err := openLogStore(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	first, err := s.FirstIndex()
	if err != nil {
		return fmt.Errorf("raftnode: read log: %w", err)
	}
	last, err := s.LastIndex()
	if err != nil {
		return fmt.Errorf("raftnode: read log: %w", err)
	}
	if last > 0 && from <= last && from < first {
		return fmt.Errorf("raftnode: log in %s begins with entry %d, wanted is %d", dir, first, from)
	}
	var l raft.Log
	for i := max(from, first); i <= last && last > 0; i++ {
		if err := s.GetLog(i, &l); err != nil {
			return fmt.Errorf("raftnode: read log entry %d: %w", i, err)
		}
		if err := visit(&l); err != nil {
			return err
		}
	}
	return nil
}
