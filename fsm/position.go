package fsm

import (
	"errors"
	"fmt"

	"raftmq/commitlog/store"

	"github.com/hashicorp/raft"
)

// NewestPosition is the log position of the newest snapshot in files whose log bytes are in this node's store, zero when there is
// none: a store that lost its journal starts from there, as all behind it is in the Raft log. One that reaches beyond where staged bytes begin
// is not believed, nor one that is damaged.
func NewestPosition(files raft.SnapshotStore, staging *store.Staging) (store.Position, error) {
	list, err := files.List()
	if err != nil {
		return store.Position{}, fmt.Errorf("fsm: list snapshots: %w", err)
	}
	staged, err := staging.First()
	if err != nil {
		return store.Position{}, err
	}
	s := SnapshotStore{inner: files}
	for _, meta := range list {
		h, err := s.readHead(meta.ID)
		if errors.Is(err, ErrSnapshotVersion) {
			return store.Position{}, err
		}
		if err == nil && h.Position.LogEnd <= staged {
			return h.Position, nil
		}
	}
	return store.Position{}, nil
}
