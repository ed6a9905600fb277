package fsm

import (
	"errors"
	"fmt"
	"path/filepath"

	"raftmq/commitlog/store"

	"github.com/hashicorp/raft"
)

// NewestPosition is the log position of the newest snapshot in files whose log bytes are in this node's store, zero when there is
// none: a store that lost its journal starts from there, as all behind it is in the Raft log. A snapshot that a peer sent and
// that is still staged in stagingDir does not count, nor one that is damaged.
func NewestPosition(files raft.SnapshotStore, stagingDir string) (store.Position, error) {
	list, err := files.List()
	if err != nil {
		return store.Position{}, fmt.Errorf("fsm: list snapshots: %w", err)
	}
	s := SnapshotStore{inner: files}
	for _, meta := range list {
		staged, err := filepath.Glob(filepath.Join(stagingDir, meta.ID+".*"+stagedSuffix))
		if err != nil {
			return store.Position{}, fmt.Errorf("fsm: %w", err)
		}
		if len(staged) > 0 {
			continue
		}
		h, _, err := s.readHead(meta.ID)
		if errors.Is(err, ErrSnapshotVersion) {
			return store.Position{}, err
		}
		if err == nil {
			return h.Position, nil
		}
	}
	return store.Position{}, nil
}
