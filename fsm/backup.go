package fsm

import (
	"bytes"
	"fmt"

	"raftmq/commitlog/store"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
)

// Saved is what the head of a snapshot says of itself, to whoever keeps it outside of a node: a backup is a head and the log bytes
// [LogMin, Position.LogEnd) of the same cluster.
type Saved struct {
	Applied, Term uint64
	LogMin        int64
	Position      store.Position
	Settings      command.Settings
	Level         command.Level
}

// ReadSaved checks a head and says what it is: ErrSnapshot when it is damaged or has anything behind it, ErrSnapshotVersion or
// command.ErrUnknown when it takes a newer raftmq.
func ReadSaved(raw []byte) (Saved, error) {
	h, tables, err := readSaved(raw)
	if err != nil {
		return Saved{}, err
	}
	settings, ok := tables.Settings()
	if !ok {
		return Saved{}, fmt.Errorf("%w: it has no cluster settings", ErrSnapshot)
	}
	return Saved{Applied: h.Applied, Term: h.Term, LogMin: h.LogMin, Position: h.Position, Settings: settings, Level: tables.Level()}, nil
}

func readSaved(raw []byte) (*head, *metadata.Tables, error) {
	h, n, err := readHead(bytes.NewReader(raw))
	if err != nil {
		return nil, nil, err
	}
	if n != int64(len(raw)) {
		return nil, nil, fmt.Errorf("%w: %d bytes behind its head", ErrSnapshot, int64(len(raw))-n)
	}
	if h.LogMin < 0 || h.LogMin > h.Position.LogEnd {
		return nil, nil, fmt.Errorf("%w: log from %d to %d", ErrSnapshot, h.LogMin, h.Position.LogEnd)
	}
	tables := metadata.New()
	if err := tables.Import(h.Tables); err != nil {
		return nil, nil, err
	}
	return h, tables, nil
}

// Detach returns the head for another cluster, of the given id, that begins with the same messages, topics, groups and offsets: the former
// cluster's nodes are not in it.
func Detach(raw []byte, clusterID string) ([]byte, error) {
	h, tables, err := readSaved(raw)
	if err != nil {
		return nil, err
	}
	if err := tables.Detach(clusterID); err != nil {
		return nil, err
	}
	if h.Tables, err = tables.Export(); err != nil {
		return nil, err
	}
	return appendHead(nil, h)
}
