package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"raftmq/commitlog/store"
	"raftmq/seam"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// SnapshotStore is a raft.SnapshotStore over raft's file store. A snapshot is a head, here and on its way to a follower. One counts (List)
// only if its log bytes are in the store, or staged whole for just this snapshot (CatchUp): so a half-received one is
// never visible, and a crash at any point is finished or forgotten at the next start.
type SnapshotStore struct {
	inner   raft.SnapshotStore
	store   Store
	staging *store.Staging
	logger  hclog.Logger
}

// NewSnapshotStore wraps raft's file snapshot store.
func NewSnapshotStore(inner raft.SnapshotStore, s Store, staging *store.Staging, logger hclog.Logger) *SnapshotStore {
	return &SnapshotStore{inner: inner, store: s, staging: staging, logger: logger}
}

// List implements raft.SnapshotStore. A snapshot of a newer version is an error. It passes over others that cannot be restored here: damaged ones (F25: they are
// ignored, a peer has another), and those whose log bytes never arrived whole.
func (s *SnapshotStore) List() ([]*raft.SnapshotMeta, error) {
	all, err := s.inner.List()
	if err != nil {
		return nil, err
	}
	usable := all[:0]
	for _, meta := range all {
		h, err := s.readHead(meta.ID)
		if errors.Is(err, ErrSnapshotVersion) {
			return nil, fmt.Errorf("snapshot %s: %w", meta.ID, err)
		}
		if err != nil {
			s.logger.Warn("snapshot is unreadable and ignored", "id", meta.ID, "error", err)
			continue
		}
		if !s.hasLog(h) {
			s.logger.Warn("snapshot is ahead of the log and ignored: its log bytes never came", "id", meta.ID, "snapshot-log-end", h.Position.LogEnd)
			continue
		}
		usable = append(usable, meta)
	}
	return usable, nil
}

// hasLog tells whether the log bytes of a snapshot are in the store, or staged for it.
func (s *SnapshotStore) hasLog(h *head) bool {
	if _, end := s.store.LogRange(); h.Position.LogEnd <= end || seam.On(seam.TruncateLog) || seam.On(seam.SkipInstall) {
		return true
	}
	seal, ok := s.staging.Sealed()
	return ok && seal.RaftIndex == h.Applied && seal.To == h.Position.LogEnd
}

func (s *SnapshotStore) readHead(id string) (*head, error) {
	_, r, err := s.inner.Open(id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	h, _, err := readHead(r)
	return h, err
}

// Open implements raft.SnapshotStore.
func (s *SnapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	return s.inner.Open(id)
}

// Create implements raft.SnapshotStore, for Persist and for received snapshots alike.
func (s *SnapshotStore) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	inner, err := s.inner.Create(version, index, term, configuration, configurationIndex, trans)
	if err != nil {
		return nil, err
	}
	return &sink{SnapshotSink: inner, owner: s}, nil
}

// sink takes a snapshot, and lets it be visible only if it is whole and its log bytes are here.
type sink struct {
	raft.SnapshotSink
	owner *SnapshotStore
	bytes bytes.Buffer
	done  bool
}

// Write implements io.Writer.
func (s *sink) Write(p []byte) (int, error) {
	_, _ = s.bytes.Write(p)
	return s.SnapshotSink.Write(p)
}

// Close implements raft.SnapshotSink.
func (s *sink) Close() error {
	if s.done {
		return nil
	}
	s.done = true
	h, n, err := readHead(bytes.NewReader(s.bytes.Bytes()))
	switch {
	case err != nil:
	case n != int64(s.bytes.Len()):
		err = fmt.Errorf("%w: %d bytes behind the head", ErrSnapshot, int64(s.bytes.Len())-n)
	case !s.owner.hasLog(h):
		err = fmt.Errorf("%w: its log bytes up to %d are not here", ErrNotYet, h.Position.LogEnd)
	}
	if err != nil {
		return errors.Join(err, s.SnapshotSink.Cancel())
	}
	return s.SnapshotSink.Close()
}

// Cancel implements raft.SnapshotSink.
func (s *sink) Cancel() error {
	if s.done {
		return nil
	}
	s.done = true
	return s.SnapshotSink.Cancel()
}
