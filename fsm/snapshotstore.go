package fsm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"raftmq/commitlog/store"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// SnapshotStore is a raft.SnapshotStore over raft's file store. On disk a snapshot is only its head; a reader
// continues after the head with the log bytes that belong to it, straight from counted views of the store,
// so that Raft's own InstallSnapshot ships both. A local restore reads the head and stops.
//
// The sink of a received snapshot puts the log bytes that this node lacks into a staging file beside it:
// it runs on Raft's main goroutine, while the FSM's may still be applying. Restore, on the FSM's goroutine,
// reads them back through Open and installs them. A snapshot counts (List) only if its log is in the store or
// staged whole, so a half-received one is never visible, and a crash at any point is finished or forgotten at the next start.
type SnapshotStore struct {
	inner  raft.SnapshotStore
	dir    string // of staging files: <snapshot id>.<first offset>.log
	store  Store
	logger hclog.Logger
}

// NewSnapshotStore wraps raft's file snapshot store; dir takes the log bytes of received snapshots.
func NewSnapshotStore(inner raft.SnapshotStore, dir string, s Store, logger hclog.Logger) (*SnapshotStore, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("fsm: %w", err)
	}
	return &SnapshotStore{inner: inner, dir: dir, store: s, logger: logger}, nil
}

// List implements raft.SnapshotStore. A snapshot of a newer version is an error. It passes over others that cannot be restored here: damaged ones (F25: they are
// ignored, a peer has another), and those whose log bytes never arrived whole. It removes staging files that nobody needs.
func (s *SnapshotStore) List() ([]*raft.SnapshotMeta, error) {
	all, err := s.inner.List()
	if err != nil {
		return nil, err
	}
	_, end := s.store.LogRange()
	needed := map[string]bool{}
	usable := all[:0]
	for _, meta := range all {
		h, _, err := s.readHead(meta.ID)
		if errors.Is(err, ErrSnapshotVersion) {
			return nil, fmt.Errorf("snapshot %s: %w", meta.ID, err)
		}
		if err != nil {
			s.logger.Warn("snapshot is unreadable and ignored", "id", meta.ID, "error", err)
			continue
		}
		if h.Position.LogEnd > end {
			st, ok := s.staged(meta.ID)
			if !ok || st.from+st.size < h.Position.LogEnd || st.from > end && st.from != h.LogMin {
				s.logger.Warn("snapshot is ahead of the log and ignored: its transfer did not end", "id", meta.ID, "snapshot-log-end", h.Position.LogEnd, "log-end", end)
				continue
			}
			needed[meta.ID] = true
		}
		usable = append(usable, meta)
	}
	return usable, s.removeStaged(needed)
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

// staging is a file of log bytes [from, from+size).
type staging struct {
	path       string
	from, size int64
}

const (
	stagedSuffix  = ".log"
	partialSuffix = ".partial"
)

// staged finds a snapshot's whole staging file.
func (s *SnapshotStore) staged(id string) (staging, bool) {
	files, err := filepath.Glob(filepath.Join(s.dir, id+".*"+stagedSuffix))
	if err != nil || len(files) != 1 {
		return staging{}, false
	}
	middle := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(files[0]), id+"."), stagedSuffix)
	from, err := strconv.ParseInt(middle, 10, 64)
	if err != nil {
		return staging{}, false
	}
	fi, err := os.Stat(files[0])
	if err != nil {
		return staging{}, false
	}
	return staging{files[0], from, fi.Size()}, true
}

func (s *SnapshotStore) removeStaged(needed map[string]bool) error {
	files, err := filepath.Glob(filepath.Join(s.dir, "*"+stagedSuffix+"*")) // partial ones too
	if err != nil {
		return fmt.Errorf("fsm: %w", err)
	}
	var errs []error
	for _, f := range files {
		id, _, _ := strings.Cut(filepath.Base(f), ".")
		if !needed[id] {
			errs = append(errs, os.Remove(f))
		}
	}
	return errors.Join(errs...)
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
	pin := s.store.Pin(h.LogMin) // before the look at what is there
	low, end := s.store.LogRange()
	var log io.ReadCloser
	switch {
	case h.Position.LogEnd <= end:
		// Retention may have moved the log's start since: a peer needs what is there now, perhaps nothing. What
		// goes while it is sent stays until then.
		h.LogMin = max(h.LogMin, min(low, h.Position.LogEnd))
		pin.Move(h.LogMin)
		log = &logReader{store: s.store, pin: pin, off: h.LogMin, end: h.Position.LogEnd}
	default:
		pin.Release()
		st, ok := s.staged(id)
		if !ok {
			return nil, nil, fmt.Errorf("%w: snapshot %s is ahead of the log (%d, it ends at %d) and its bytes are not staged", ErrSnapshot, id, h.Position.LogEnd, end)
		}
		if log, err = os.Open(st.path); err != nil {
			return nil, nil, fmt.Errorf("fsm: %w", err)
		}
		h.LogMin = st.from
	}
	if raw, err = appendHead(raw[:0], h); err != nil { // it says where the bytes behind it start
		return nil, nil, errors.Join(err, log.Close())
	}
	withLog := *meta
	withLog.Size = int64(len(raw)) + h.Position.LogEnd - h.LogMin
	return &withLog, &snapshotReader{Reader: io.MultiReader(bytes.NewReader(raw), log), log: log}, nil
}

// snapshotReader reads the head and then the log bytes.
type snapshotReader struct {
	io.Reader
	log io.Closer
}

// Close implements io.Closer.
func (r *snapshotReader) Close() error { return r.log.Close() }

// logReader reads the log bytes [off, end) from views. A reader that stands still for long loses its pin: its next read
// may fail, and Raft sends the snapshot again, from where the log begins then.
type logReader struct {
	store    Store
	pin      *store.Pin
	off, end int64
}

func (r *logReader) Read(p []byte) (int, error) {
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
	r.pin.Move(r.off)
	return n, nil
}

func (r *logReader) Close() error {
	r.pin.Release()
	return nil
}

// Create implements raft.SnapshotStore, for Persist and for received snapshots alike: only the latter have bytes
// behind the head.
func (s *SnapshotStore) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration,
	configurationIndex uint64, trans raft.Transport) (raft.SnapshotSink, error) {
	inner, err := s.inner.Create(version, index, term, configuration, configurationIndex, trans)
	if err != nil {
		return nil, err
	}
	return &sink{SnapshotSink: inner, owner: s}, nil
}

type sink struct {
	raft.SnapshotSink
	owner   *SnapshotStore
	pending []byte // of the head, until it is whole
	head    *head
	file    *os.File // staging, nil until the first log byte
	path    string
	skip    int64 // log bytes still to come that this node has
	got     int64
	done    bool
}

// Write implements io.Writer.
func (s *sink) Write(p []byte) (int, error) {
	if s.head == nil {
		return s.writeHead(p)
	}
	return len(p), s.writeLog(p)
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
		if err := s.writeLog(rest); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

func (s *sink) writeLog(p []byte) error {
	if s.file == nil {
		if err := s.stage(); err != nil {
			return err
		}
	}
	s.got += int64(len(p))
	if s.skip > 0 {
		n := min(s.skip, int64(len(p)))
		s.skip -= n
		p = p[n:]
	}
	if _, err := s.file.Write(p); err != nil {
		return fmt.Errorf("fsm: stage log bytes in %s: %w", s.path, err)
	}
	return nil
}

// stage opens the staging file. What this node has already (Same-Bytes) is not staged: its log only grows meanwhile.
func (s *sink) stage() (err error) {
	from := s.head.LogMin
	if _, end := s.owner.store.LogRange(); end > from {
		from = min(end, s.head.Position.LogEnd)
	}
	s.skip = from - s.head.LogMin
	s.path = filepath.Join(s.owner.dir, s.ID()+"."+strconv.FormatInt(from, 10)+stagedSuffix)
	s.owner.logger.Info("receiving a snapshot", "id", s.ID(), "log-from", from, "log-to", s.head.Position.LogEnd)
	if s.file, err = os.Create(s.path + partialSuffix); err != nil {
		return fmt.Errorf("fsm: stage log bytes: %w", err)
	}
	return nil
}

// Close implements raft.SnapshotSink. The staged bytes are durable before the snapshot is visible.
func (s *sink) Close() error {
	if s.done {
		return nil
	}
	s.done = true
	if s.head == nil {
		return errors.Join(fmt.Errorf("%w: it ends inside the head", ErrSnapshot), s.SnapshotSink.Cancel())
	}
	if s.file != nil {
		if err := s.finishStaging(); err != nil {
			return errors.Join(err, s.SnapshotSink.Cancel())
		}
	}
	return s.SnapshotSink.Close()
}

func (s *sink) finishStaging() error {
	partial := s.path + partialSuffix
	err := errors.Join(s.file.Sync(), s.file.Close())
	if want := s.head.Position.LogEnd - s.head.LogMin; err == nil && s.got != want {
		err = fmt.Errorf("%w: %d log bytes, expected %d", ErrSnapshot, s.got, want)
	}
	if err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	if err := os.Rename(partial, s.path); err != nil {
		return fmt.Errorf("fsm: %w", err)
	}
	d, err := os.Open(s.owner.dir)
	if err != nil {
		return fmt.Errorf("fsm: %w", err)
	}
	return errors.Join(d.Sync(), d.Close())
}

// Cancel implements raft.SnapshotSink.
func (s *sink) Cancel() error {
	if s.done {
		return nil
	}
	s.done = true
	var err error
	if s.file != nil {
		err = errors.Join(s.file.Close(), os.Remove(s.path+partialSuffix))
	}
	return errors.Join(err, s.SnapshotSink.Cancel())
}
