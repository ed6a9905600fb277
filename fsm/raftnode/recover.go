package raftnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// Folder is what a stopped node's Raft folder says.
type Folder struct {
	Term, FirstIndex, LastIndex uint64
	SnapshotIndex               uint64 // 0: none
	Servers                     []Server
}

// ErrInUse: a running process has the folder.
var ErrInUse = errors.New("raftnode: the folder is in use by a running node")

// Inspect reads the Raft folder of a stopped node. cfg needs Dir, LogStore and Snapshots.
func Inspect(cfg Config) (Folder, error) {
	var f Folder
	err := withStores(cfg, func(s stores) error {
		var err error
		f, err = s.read(cfg)
		return err
	})
	return f, err
}

// Recover makes the node with this id and incarnation the only member of the group, in a stopped node's Raft folder: for when a majority
// of the voters is gone for good. All entries of its log count as committed from then on. What the lost nodes had committed and this one
// does not hold is lost, and they must never run again with the data that they have.
//
// It appends a configuration to the log, in a new term, and behind it the given commands' entry, if any. Done again, it does the same
// again, without harm.
func Recover(cfg Config, entry []byte) (Folder, error) {
	var f Folder
	err := withStores(cfg, func(s stores) error {
		var err error
		if f, err = s.read(cfg); err != nil {
			return err
		}
		var self *Server
		for i := range f.Servers {
			if f.Servers[i].ID == cfg.NodeID && f.Servers[i].Incarnation == cfg.Incarnation {
				self = &f.Servers[i]
			}
		}
		if self == nil {
			return fmt.Errorf("raftnode: %s is no member of the configuration in %s, so it holds nothing to recover from", serverID(cfg.NodeID, cfg.Incarnation), cfg.Dir)
		}
		term := f.Term + 1
		alone := raft.Configuration{Servers: []raft.Server{{Suffrage: raft.Voter, ID: serverID(self.ID, self.Incarnation), Address: raft.ServerAddress(self.RaftAddr)}}}
		at := max(f.LastIndex, f.SnapshotIndex) + 1
		logs := []*raft.Log{{Index: at, Term: term, Type: raft.LogConfiguration, Data: raft.EncodeConfiguration(alone), AppendedAt: time.Now()}}
		if len(entry) > 0 {
			logs = append(logs, &raft.Log{Index: at + 1, Term: term, Type: raft.LogCommand, Data: entry, AppendedAt: time.Now()})
		}
		if f.LastIndex > 0 && f.LastIndex < f.SnapshotIndex { // a snapshot was installed, and the older log not yet removed
			if err := s.logs.DeleteRange(f.FirstIndex, f.LastIndex); err != nil {
				return fmt.Errorf("raftnode: drop log entries %d to %d behind snapshot %d: %w", f.FirstIndex, f.LastIndex, f.SnapshotIndex, err)
			}
		}
		// The term first: an entry of a term that the node does not know yet must not exist.
		if err := s.stable.SetUint64(keyCurrentTerm, term); err != nil {
			return fmt.Errorf("raftnode: save term %d: %w", term, err)
		}
		if err := s.logs.StoreLogs(logs); err != nil {
			return fmt.Errorf("raftnode: append the new configuration: %w", err)
		}
		f, err = s.read(cfg)
		return err
	})
	return f, err
}

type stores struct {
	logs   *logStore
	stable *raftboltdb.BoltStore
}

// withStores opens the stores of a folder that exists, and closes them.
func withStores(cfg Config, f func(stores) error) (err error) {
	cfg.ensureDefaults()
	path := filepath.Join(cfg.Dir, "stable.db")
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("raftnode: no Raft folder: %w", err)
	}
	stable, err := openStable(path, &bbolt.Options{Timeout: time.Second})
	if errors.Is(err, bbolt.ErrTimeout) {
		return fmt.Errorf("%w: %s", ErrInUse, cfg.Dir)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stable.Close()) }()
	cfg.Logger = hclog.NewNullLogger()
	logs, err := openLogStore(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, logs.Close()) }()
	return f(stores{logs, stable})
}

// read finds out where the log stands and the latest configuration, committed or not, as Raft does at start.
func (s stores) read(cfg Config) (f Folder, err error) {
	if f.FirstIndex, err = s.logs.FirstIndex(); err != nil {
		return f, fmt.Errorf("raftnode: read log: %w", err)
	}
	if f.LastIndex, err = s.logs.LastIndex(); err != nil {
		return f, fmt.Errorf("raftnode: read log: %w", err)
	}
	if f.Term, err = s.stable.GetUint64(keyCurrentTerm); err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return f, fmt.Errorf("raftnode: read term: %w", err)
	}
	snaps, err := cfg.Snapshots.List()
	if err != nil {
		return f, fmt.Errorf("raftnode: list snapshots: %w", err)
	}
	var latest raft.Configuration
	if len(snaps) > 0 {
		f.SnapshotIndex, latest = snaps[0].Index, snaps[0].Configuration
		f.Term = max(f.Term, snaps[0].Term)
	}
	var l raft.Log
	for i := f.LastIndex; i > 0 && i >= f.FirstIndex; i-- {
		if err := s.logs.GetLog(i, &l); err != nil {
			return f, fmt.Errorf("raftnode: read log entry %d: %w", i, err)
		}
		f.Term = max(f.Term, l.Term)
		if l.Type == raft.LogConfiguration {
			latest = raft.DecodeConfiguration(l.Data)
			break
		}
	}
	for _, s := range latest.Servers {
		id, incarnation := splitServerID(s.ID)
		f.Servers = append(f.Servers, Server{ID: id, Incarnation: incarnation, RaftAddr: string(s.Address), Voter: s.Suffrage == raft.Voter})
	}
	return f, nil
}
