package raftnode

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/segment"
	"go.etcd.io/bbolt"
)

// backingStore is what both log stores are.
type backingStore interface {
	raft.LogStore
	io.Closer
}

// logStore is a raft.LogStore over the durable one. It keeps the newest entries in memory, bounded by
// bytes (entries are up to 1 MiB, so raft.LogCache's bound by count says nothing), for Apply on
// followers and for replication on the leader; and it counts bytes per entry for compaction.
type logStore struct {
	backing backingStore
	lazy    *lazySync // nil: what is stored is durable

	// start is the first index in the log, 0 when it is empty. raft-wal goes on serving entries of its newest segment that were compacted
	// away; until that segment is full a follower far behind would be fed with them, and when it is, no longer.
	// Written with mu held.
	start atomic.Uint64

	mu sync.RWMutex
	// guarded by mu; entries[first..last] form a contiguous window
	limit   int64
	entries map[uint64]*raft.Log
	first   uint64
	last    uint64
	size    int64
	// total bytes stored up to and including an index, since open; marks are thinned to one per
	// markEvery bytes so that a long log costs little. The first stands before the log, end is the last index.
	total int64
	marks []mark
	end   uint64
}

type mark struct {
	index uint64
	total int64
}

const markEvery = 1 << 20

func openLogStore(cfg Config) (*logStore, error) {
	s := &logStore{limit: cfg.CacheBytes, entries: map[uint64]*raft.Log{}}
	// One folder is never read by two kinds of log store: an operator who changes --raft-log-store on a
	// folder with data would otherwise start with an empty log and forget what it acknowledged.
	walDir, boltPath := filepath.Join(cfg.Dir, "wal"), filepath.Join(cfg.Dir, "log.db")
	switch cfg.LogStore {
	case Bolt:
		if _, err := os.Stat(walDir); err == nil {
			return nil, fmt.Errorf("raftnode: %s holds a raft-wal log, started with log store bolt: start it with wal, or wipe the node", walDir)
		}
		b, err := openBolt(boltPath)
		if err != nil {
			return nil, asDamage(fmt.Errorf("raftnode: open %s: %w", boltPath, err))
		}
		s.backing = b
	default:
		if _, err := os.Stat(boltPath); err == nil {
			return nil, fmt.Errorf("raftnode: %s holds a raft-boltdb log, started with log store wal: start it with bolt, or wipe the node", boltPath)
		}
		if err := os.MkdirAll(walDir, 0o755); err != nil {
			return nil, fmt.Errorf("raftnode: %w", err)
		}
		size := cfg.WALSegmentBytes
		if size <= 0 {
			size = wal.DefaultSegmentSize
		}
		if err := checkWAL(walDir, cfg.lazyTail || cfg.UnsafeSyncInterval > 0, cfg.Logger); err != nil {
			return nil, err
		}
		if cfg.UnsafeSyncInterval > 0 {
			w, err := openLazyWAL(walDir, cfg, size)
			if err != nil {
				return nil, asDamage(fmt.Errorf("raftnode: open %s: %w", walDir, err))
			}
			s.backing, s.lazy = w, w.lazy
			break
		}
		vfs, err := walVFS(walDir)
		if err != nil {
			return nil, fmt.Errorf("raftnode: open %s: %w", walDir, err)
		}
		var w *wal.WAL
		err = guarded(func() (err error) {
			w, err = wal.Open(walDir, wal.WithSegmentSize(size), wal.WithLogger(cfg.Logger.Named("wal")), wal.WithSegmentFiler(segment.NewFiler(walDir, vfs)))
			return err
		})
		if err != nil {
			return nil, asDamage(fmt.Errorf("raftnode: open %s: %w", walDir, err))
		}
		s.backing = w
	}
	if cfg.wrapStore != nil {
		s.backing = cfg.wrapStore(s.backing)
	}
	if err := s.countExisting(); err != nil {
		_ = s.backing.Close()
		return nil, err
	}
	return s, nil
}

// countExisting estimates the bytes of the log found at start from its newest entries, so that compaction
// does not wait for a whole SnapshotBytes after every restart.
func (s *logStore) countExisting() error {
	first, err := s.backing.FirstIndex()
	if err != nil {
		return fmt.Errorf("raftnode: read log: %w", err)
	}
	last, err := s.backing.LastIndex()
	if err != nil {
		return fmt.Errorf("raftnode: read log: %w", err)
	}
	s.start.Store(first)
	if last == 0 {
		return nil
	}
	const sample = 64
	var bytes, n int64
	var l raft.Log
	step := max((last-first)/sample, 1)
	for i := first; i <= last; i += step {
		if err := s.read(i, &l); err != nil {
			return fmt.Errorf("raftnode: read log entry %d: %w", i, err)
		}
		bytes, n = bytes+entrySize(&l), n+1
	}
	mean := bytes / n
	s.marks = append(s.marks, mark{first - 1, 0})
	for i := first; i <= last; i += step {
		s.marks = append(s.marks, mark{i, mean * int64(i-first+1)})
	}
	s.total, s.end = mean*int64(last-first+1), last
	return nil
}

// openBolt opens a raft-boltdb log.
func openBolt(path string) (b *raftboltdb.BoltStore, err error) {
	err = guarded(func() (err error) {
		b, err = raftboltdb.New(raftboltdb.Options{Path: path})
		return err
	})
	return b, err
}

func entrySize(l *raft.Log) int64 { return int64(len(l.Data)) + 64 }

// cacheCost is what an entry in memory takes: on the leader Raft's future, which the entry is a part of, the FSM's
// results that hang on it, and the map's slot.
func cacheCost(l *raft.Log) int64 { return int64(cap(l.Data)) + 512 }

// FirstIndex implements raft.LogStore.
func (s *logStore) FirstIndex() (uint64, error) { return s.backing.FirstIndex() }

// LastIndex implements raft.LogStore.
func (s *logStore) LastIndex() (uint64, error) { return s.backing.LastIndex() }

// IsMonotonic implements raft.MonotonicLogStore for the stores that are.
func (s *logStore) IsMonotonic() bool {
	m, ok := s.backing.(raft.MonotonicLogStore)
	return ok && m.IsMonotonic()
}

// GetLog implements raft.LogStore: raft.ErrLogNotFound for what was compacted away.
func (s *logStore) GetLog(index uint64, l *raft.Log) error {
	if start := s.start.Load(); start == 0 || index < start {
		return raft.ErrLogNotFound
	}
	s.mu.RLock()
	e, ok := s.entries[index]
	s.mu.RUnlock()
	if ok {
		*l = *e
		return nil
	}
	return s.read(index, l)
}

// read takes an entry from the durable store, and compares it with its checksum: ErrLogDamaged when it is not what was stored.
func (s *logStore) read(index uint64, l *raft.Log) error {
	err := guarded(func() error { return s.backing.GetLog(index, l) })
	if errors.Is(err, raft.ErrLogNotFound) {
		if first, last := s.bounds(); index < first || index > last || last == 0 {
			return err
		}
		return damaged("entry %d is not there", index)
	}
	if err == nil {
		return checkEntry(index, l)
	}
	var errno syscall.Errno
	if errors.As(err, &errno) || errors.Is(err, wal.ErrClosed) || errors.Is(err, bbolt.ErrDatabaseNotOpen) || errors.Is(err, bbolt.ErrTxClosed) {
		return asDamage(err) // the disk's, or this process's, but for a file that is gone
	}
	return fmt.Errorf("%w: entry %d: %w", ErrLogDamaged, index, err) // a library could not make sense of what is there
}

// bounds are the first and the last entry, 0 without any.
func (s *logStore) bounds() (first, last uint64) {
	first, err := s.backing.FirstIndex()
	if err == nil {
		last, err = s.backing.LastIndex()
	}
	if err != nil {
		return 0, 0
	}
	return first, last
}

// StoreLog implements raft.LogStore.
func (s *logStore) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore: durable when it returns nil.
func (s *logStore) StoreLogs(logs []*raft.Log) error {
	if err := s.backing.StoreLogs(withSums(logs)); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(logs) > 0 {
		s.start.CompareAndSwap(0, logs[0].Index)
	}
	for _, l := range logs {
		s.addLocked(l)
	}
	return nil
}

func (s *logStore) addLocked(l *raft.Log) {
	if len(s.entries) > 0 && l.Index != s.last+1 {
		s.dropLocked()
	}
	if len(s.entries) == 0 {
		s.first = l.Index
	}
	s.entries[l.Index], s.last = l, l.Index
	s.size += cacheCost(l)
	for s.size > s.limit && s.first < s.last {
		s.size -= cacheCost(s.entries[s.first])
		delete(s.entries, s.first)
		s.first++
	}
	if len(s.marks) == 0 {
		s.marks = append(s.marks, mark{l.Index - 1, s.total})
	}
	s.total += entrySize(l)
	s.end = l.Index
	if s.total-s.marks[len(s.marks)-1].total >= markEvery {
		s.marks = append(s.marks, mark{l.Index, s.total})
	}
}

func (s *logStore) dropLocked() {
	clear(s.entries)
	s.size, s.first, s.last = 0, 0, 0
}

// DeleteRange implements raft.LogStore.
func (s *logStore) DeleteRange(from, to uint64) error {
	s.mu.Lock()
	if to >= s.first {
		s.dropLocked() // a conflicting suffix, or compaction up to the newest: rare, read them again
	}
	s.dropMarksLocked(from, to)
	s.mu.Unlock()
	if err := s.backing.DeleteRange(from, to); err != nil {
		return err
	}
	// Raft compacts beside its appends: an entry that comes to an emptied log either is here already, or sets start behind this.
	s.mu.Lock()
	defer s.mu.Unlock()
	first, err := s.backing.FirstIndex()
	if err != nil {
		return fmt.Errorf("raftnode: read log: %w", err)
	}
	s.start.Store(first)
	return nil
}

// dropMarksLocked counts entries as gone, a prefix or a suffix.
func (s *logStore) dropMarksLocked(from, to uint64) {
	if to >= s.end && from > s.start.Load() { // a suffix
		s.total, s.end = s.totalAtLocked(from-1), from-1
		s.marks = slices.DeleteFunc(s.marks, func(m mark) bool { return m.index >= from })
		return // the first stays: the log goes on behind its start
	}
	gone := mark{to, s.totalAtLocked(to)}
	s.marks = slices.Insert(slices.DeleteFunc(s.marks, func(m mark) bool { return m.index <= to }), 0, gone)
}

// bytesSince is about how many log bytes lie behind index.
func (s *logStore) bytesSince(index uint64) int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.total - s.totalAtLocked(index)
}

func (s *logStore) totalAtLocked(index uint64) int64 {
	if index >= s.end {
		return s.total
	}
	for i := len(s.marks) - 1; i >= 0; i-- {
		if i == 0 || s.marks[i].index <= index {
			return s.marks[i].total
		}
	}
	return 0
}

// indexBehind is about the index that has the given bytes behind it, 0 when the log is shorter. No bytes: the last index, or a later one.
func (s *logStore) indexBehind(bytes int64) uint64 {
	if bytes <= 0 {
		return math.MaxUint64
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	for i := len(s.marks) - 1; i >= 0; i-- {
		if s.total-s.marks[i].total >= bytes {
			return s.marks[i].index
		}
	}
	return 0
}

// Close closes the durable store.
func (s *logStore) Close() error { return s.backing.Close() }
