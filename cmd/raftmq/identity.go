package main

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"raftmq/commitlog/mappedfile"
	"raftmq/fsm/command"
)

// identity is DIR/node.json: whose folder this is. It is written when the folder is new and changed
// when the node learns its cluster's id, and when the cluster's feature level is raised.
type identity struct {
	FormatVersion int    `json:"formatVersion"`
	NodeID        string `json:"nodeId"`
	Incarnation   string `json:"incarnation"` // see raftnode.Config
	ClusterName   string `json:"clusterName"`
	BrokerName    string `json:"brokerName"`
	ClusterID     string `json:"clusterId,omitempty"`
	SegmentSize   int64  `json:"mappedFileSizeCommitLog"`
	// Level is the cluster's feature level as this node last knew it; absent in format 1, which raftmq without levels reads: command.Oldest.
	Level command.Level `json:"level,omitempty"`
	// Rejoined is this node's former incarnation while it has not caught up as a newcomer yet: until then its Raft log may be behind what its commit log holds (rejoin.go).
	Rejoined string `json:"rejoined,omitempty"`
}

const (
	identityFile   = "node.json"
	plainFormat    = 1
	levelFormat    = 2 // with Level
	folderFormat   = levelFormat
	incarnationLen = 4
)

// openIdentity reads the folder's identity and refuses a configuration that does not fit it; a new folder gets one.
func openIdentity(cfg *Config) (*identity, error) {
	if err := (mappedfile.OS{}).MkdirAll(cfg.DataDir); err != nil {
		return nil, fmt.Errorf("--data-dir %s: %w", cfg.DataDir, err)
	}
	path := filepath.Join(cfg.DataDir, identityFile)
	if err := finishAside(cfg.DataDir); err != nil {
		return nil, fmt.Errorf("--data-dir %s: finish putting data aside: %w", cfg.DataDir, err)
	}
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return newIdentity(cfg, path)
	}
	if err != nil {
		return nil, fmt.Errorf("--data-dir %s: %w", cfg.DataDir, err)
	}
	var id identity
	if err := json.Unmarshal(b, &id); err != nil {
		return nil, fmt.Errorf("%s is damaged: %w; restore it from a backup, or wipe the node so that it joins again", path, err)
	}
	if id.FormatVersion > folderFormat {
		return nil, fmt.Errorf("%s has format version %d, this raftmq %s reads up to %d: start the newer raftmq that wrote it", path, id.FormatVersion, version, folderFormat)
	}
	if id.Level > command.Newest {
		return nil, fmt.Errorf("%s: %w", path, command.TooNew(id.Level))
	}
	for _, f := range []struct{ flag, folder, configured string }{
		{"node-id", id.NodeID, cfg.NodeID},
		{"cluster-name", id.ClusterName, cfg.ClusterName},
		{"broker-name", id.BrokerName, cfg.BrokerName},
	} {
		if f.folder != f.configured {
			return nil, fmt.Errorf("--data-dir %s belongs to --%s %s, started with %s: name the right folder, or the right %s", cfg.DataDir, f.flag, f.folder, f.configured, f.flag)
		}
	}
	if id.SegmentSize != cfg.MappedFileSizeCommitLog {
		return nil, fmt.Errorf("--mapped-file-size-commit-log is %d, --data-dir %s was made with %d: the size is fixed at bootstrap because it decides physical offsets", cfg.MappedFileSizeCommitLog, cfg.DataDir, id.SegmentSize)
	}
	return &id, nil
}

func newIdentity(cfg *Config, path string) (*identity, error) {
	if _, err := os.Stat(filepath.Join(cfg.DataDir, restoreMarker)); err == nil {
		return nil, fmt.Errorf("--data-dir %s was being restored from a backup, and that did not end: give raftmq cluster restore again", cfg.DataDir)
	}
	// A folder with data but without node.json is somebody else's, or has lost it: never guess.
	for _, sub := range []string{"raft", "store"} {
		if _, err := os.Stat(filepath.Join(cfg.DataDir, sub)); err == nil {
			return nil, fmt.Errorf("--data-dir %s holds %s/ but no %s: restore that file from a backup, or wipe the node so that it joins again", cfg.DataDir, sub, identityFile)
		}
	}
	incarnation, err := newIncarnation()
	if err != nil {
		return nil, err
	}
	id := &identity{FormatVersion: plainFormat, NodeID: cfg.NodeID, Incarnation: incarnation, ClusterName: cfg.ClusterName,
		BrokerName: cfg.BrokerName, SegmentSize: cfg.MappedFileSizeCommitLog}
	if err := id.save(cfg.DataDir); err != nil {
		return nil, fmt.Errorf("--data-dir %s: %w", cfg.DataDir, err)
	}
	return id, nil
}

func newIncarnation() (string, error) {
	random := make([]byte, incarnationLen)
	if _, err := rand.Read(random); err != nil {
		return "", fmt.Errorf("make an incarnation: %w", err)
	}
	return hex.EncodeToString(random), nil
}

// raise notes the cluster's feature level. From level 2 on, a raftmq that knows none refuses the folder with its own words.
func (id *identity) raise(level command.Level) {
	if level > max(id.Level, command.Oldest) {
		id.Level, id.FormatVersion = level, levelFormat
	}
}

// save replaces node.json durably.
func (id *identity) save(dir string) error {
	b, err := json.MarshalIndent(id, "", "  ")
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, identityFile), append(b, '\n'))
}
