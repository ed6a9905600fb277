package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"raftmq/commitlog/store"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// SnapshotStore is a raft.SnapshotStore over raft's file store. On disk a snapshot is only its head; a reader
// continues after the head with the log bytes that belong to it, straight from counted views of the store,
// so that Raft's own InstallSnapshot ships both. A local restore reads the head and stops. The
// sink of a received snapshot does the reverse: head to the file, log bytes to the store.
//
// A half-received snapshot is never visible: a snapshot counts only if the store holds the log that it
// describes, so the store's durable end of the installation is the one point of no return. A crash before it leaves a
// file that List passes over, and the old log and the old snapshot.
type SnapshotStore struct {
	inner  raft.SnapshotStore
	store  Store
	logger hclog.Logger
}

// NewSnapshotStore wraps raft's file snapshot store.
func NewSnapshotStore(inner raft.SnapshotStore, s Store, logger hclog.Logger) *SnapshotStore {
	return &SnapshotStore{inner: inner, store: s, logger: logger}
}

// List implements raft.SnapshotStore. It passes over snapshots that cannot be restored here: damaged ones (F25: they are
// ignored, a peer has another), and those whose log bytes never arrived whole.
func (s *SnapshotStore) List() ([]*raft.SnapshotMeta, error) {
	all, err := s.inner.List()
	if err != nil {
		return nil, err
	}
	_, end := s.store.LogRange()
	usable := all[:0]
	for _, meta := range all {
		h, _, err := s.readHead(meta.ID)
		switch {
		case err != nil:
			s.logger.Warn("snapshot is unreadable and ignored", "id", meta.ID, "error", err)
		case h.Position.LogEnd > end:
			s.logger.Warn("snapshot is ahead of the log and ignored: its transfer did not end", "id", meta.ID, "snapshot-log-end", h.Position.LogEnd, "log-end", end)
		default:
			usable = append(usable, meta)
		}
	}
	return usable, nil
}

func (s *SnapshotStore) readHead(id string) (*head, []byte, error) {
	_, r, err := s.inner.Open(id)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = r.Close() }()
	var raw bytes.Buffer
	h, _, err := readHead(io.TeeReader(r, &raw))
	return h, raw.Bytes(), err
}

// Open implements raft.SnapshotStore: meta.Size counts the log bytes too.
func (s *SnapshotStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, r, err := s.inner.Open(id)
	if err != nil {
		return nil, nil, err
	}
	_ = r.Close()
	h, raw, err := s.readHead(id)
	if err != nil {
		return nil, nil, fmt.Errorf("snapshot %s: %w", id, err)
	}
	// Retention may have moved the log's start since; a peer needs only what is still there, and the head says
	// where that starts.
	min, _ := s.store.LogRange()
	if min > h.LogMin && min <= h.Position.LogEnd {
		h.LogMin = min
		if raw, err = appendHead(nil, h); err != nil {
			return nil, nil, err
		}
	}
	withLog := *meta
	withLog.Size = int64(len(raw)) + h.Position.LogEnd - h.LogMin
	return &withLog, &snapshotReader{head: raw, store: s.store, off: h.LogMin, end: h.Position.LogEnd}, nil
}

// snapshotReader reads the head and then the log bytes [off, end).
type snapshotReader struct {
	head     []byte
	store    Store
	off, end int64
}

func (r *snapshotReader) Read(p []byte) (int, error) {
	if len(r.head) > 0 {
		n := copy(p, r.head)
		r.head = r.head[n:]
		return n, nil
	}
	if r.off >= r.end {
		return 0, io.EOF
	}
	b, release, err := r.store.ReadLog(r.off, int(min(int64(len(p)), r.end-r.off)))
	if err != nil {
		return 0, fmt.Errorf("fsm: read log at %d for a snapshot: %w", r.off, err)
	}
	n := copy(p, b)
	release()
	r.off += int64(n)
	return n, nil
}

// Close implements io.Closer.
func (r *snapshotReader) Close() error { return nil }

// Create implements raft.SnapshotStore, for Persist and for received snapshots alike: only the latter have bytes
// behind the head.
func (s *SnapshotStore) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	inner, err := s.inner.Create(version, index, term, configuration, configurationIndex, trans)
	if err != nil {
		return nil, err
	}
	return &sink{SnapshotSink: inner, store: s.store}, nil
}

type sink struct {
	raft.SnapshotSink
	store   Store
	pending []byte // of the head, until it is whole
	head    *head
	install store.Installer
	got     int64
	done    bool
}

// Write implements io.Writer.
func (s *sink) Write(p []byte) (int, error) {
	if s.head == nil {
		return s.writeHead(p)
	}
	return s.writeLog(p)
}

func (s *sink) writeHead(p []byte) (int, error) {
	s.pending = append(s.pending, p...)
	if len(s.pending) < headBytes(s.pending) {
		return len(p), nil
	}
	h, n, err := readHead(bytes.NewReader(s.pending))
	if err != nil {
		return 0, err
	}
	s.head = h
	if _, err := s.SnapshotSink.Write(s.pending[:n]); err != nil {
		return 0, err
	}
	rest := s.pending[n:]
	s.pending = nil
	if len(rest) > 0 {
		if _, err := s.writeLog(rest); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (s *sink) writeLog(p []byte) (int, error) {
	if s.install == nil {
		var err error
		if s.install, err = s.store.Install(s.head.LogMin, s.head.Position.LogEnd); err != nil {
			return 0, fmt.Errorf("fsm: install log bytes [%d,%d): %w", s.head.LogMin, s.head.Position.LogEnd, err)
		}
	}
	n, err := s.install.Write(p)
	s.got += int64(n)
	return n, err
}

// Close implements raft.SnapshotSink: the file first, then the end of the installation; see SnapshotStore.
func (s *sink) Close() error {
	if s.done {
		return nil
	}
	s.done = true
	if s.head == nil {
		return errors.Join(fmt.Errorf("%w: it ends inside the head", ErrSnapshot), s.SnapshotSink.Cancel())
	}
	if s.install == nil {
		return s.SnapshotSink.Close()
	}
	if want := s.head.Position.LogEnd - s.head.LogMin; s.got != want {
		return errors.Join(fmt.Errorf("%w: %d log bytes, expected %d", ErrSnapshot, s.got, want), s.install.Abort(), s.SnapshotSink.Cancel())
	}
	if err := s.SnapshotSink.Close(); err != nil {
		return errors.Join(err, s.install.Abort())
	}
	return s.install.Commit(s.head.Position)
}

// Cancel implements raft.SnapshotSink.
func (s *sink) Cancel() error {
	if s.done {
		return nil
	}
	s.done = true
	var err error
	if s.install != nil {
		err = s.install.Abort()
	}
	return errors.Join(err, s.SnapshotSink.Cancel())
}
