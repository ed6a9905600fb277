package raftnode

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/metadb"
	"github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"

	"raftmq/seam"
)

// The weaker mode (Config.UnsafeSyncInterval): the Raft log's writes reach the page cache before they are acknowledged, and the disk
// on a timer, as RocketMQ's and JetStream's defaults do. A process that is killed loses nothing. A machine that loses
// power loses up to an interval, and when a majority does, acknowledged messages are gone: Quorum-Durable does not hold.
// Term and vote are synced always, so no node votes twice.

// lazySync syncs the Raft log's files on a timer.
type lazySync struct {
	mu    sync.Mutex // held through a sync
	dirty map[*lazyFile]struct{}
	err   error // of the first sync that failed: no later one is believed (F33)

	stop chan struct{}
	done chan struct{}
}

func startLazySync(interval time.Duration) *lazySync {
	l := &lazySync{dirty: map[*lazyFile]struct{}{}, stop: make(chan struct{}), done: make(chan struct{})}
	go l.run(interval)
	return l
}

func (l *lazySync) run(interval time.Duration) {
	defer close(l.done)
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			_ = l.sync() // the next write is told
		case <-l.stop:
			return
		}
	}
}

// sync makes everything durable that was written before the call.
func (l *lazySync) sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for f := range l.dirty {
		l.syncLocked(f)
	}
	return l.err
}

func (l *lazySync) syncLocked(f *lazyFile) {
	delete(l.dirty, f)
	if err := f.WritableFile.Sync(); err != nil && l.err == nil {
		l.err = fmt.Errorf("sync on the timer: %w", err)
	}
}

// close syncs once more and joins the timer.
func (l *lazySync) close() error {
	close(l.stop)
	<-l.done
	return l.sync()
}

// lazyFS is the file system of raft-wal with syncs that are only noted.
type lazyFS struct {
	types.VFS
	lazy *lazySync
}

// Create implements types.VFS.
func (v lazyFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	return v.wrap(v.VFS.Create(dir, name, size))
}

// OpenWriter implements types.VFS.
func (v lazyFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	return v.wrap(v.VFS.OpenWriter(dir, name))
}

func (v lazyFS) wrap(f types.WritableFile, err error) (types.WritableFile, error) {
	if err != nil {
		return nil, err
	}
	return &lazyFile{WritableFile: f, lazy: v.lazy}, nil
}

type lazyFile struct {
	types.WritableFile
	lazy *lazySync
}

// Sync implements types.WritableFile: it is done later.
func (f *lazyFile) Sync() error {
	f.lazy.mu.Lock()
	defer f.lazy.mu.Unlock()
	f.lazy.dirty[f] = struct{}{}
	return f.lazy.err
}

// Close implements types.WritableFile.
func (f *lazyFile) Close() error {
	f.lazy.mu.Lock()
	defer f.lazy.mu.Unlock()
	if _, ok := f.lazy.dirty[f]; ok {
		f.lazy.syncLocked(f)
	}
	return errors.Join(f.lazy.err, f.WritableFile.Close())
}

// lazyMeta makes segments durable before raft-wal's metadata calls them complete.
type lazyMeta struct {
	types.MetaStore
	lazy *lazySync
}

// CommitState implements types.MetaStore.
func (m lazyMeta) CommitState(s types.PersistentState) error {
	if err := m.lazy.sync(); err != nil {
		return err
	}
	return m.MetaStore.CommitState(s)
}

// lazyWAL is raft-wal that syncs on a timer.
type lazyWAL struct {
	*wal.WAL
	lazy *lazySync
}

func openLazyWAL(dir string, cfg Config, size int) (*lazyWAL, error) {
	lazy := startLazySync(cfg.UnsafeSyncInterval)
	w, err := wal.Open(dir, wal.WithSegmentSize(size), wal.WithLogger(cfg.Logger.Named("wal")),
		wal.WithSegmentFiler(segment.NewFiler(dir, lazyFS{walfs.New(), lazy})), wal.WithMetaStore(lazyMeta{&metadb.BoltMetaDB{}, lazy}))
	if err != nil {
		return nil, errors.Join(err, lazy.close())
	}
	return &lazyWAL{w, lazy}, nil
}

// Close implements io.Closer.
func (w *lazyWAL) Close() error {
	err := w.lazy.close()
	return errors.Join(err, w.WAL.Close())
}

// SyncLog makes the Raft log durable as far as it is written; at once where it always is. In the weaker mode whoever calls something
// durable that entries have produced calls it first: after a power cut nothing else may be ahead of the Raft log.
func (n *Node) SyncLog() error {
	if n.logs.lazy == nil {
		return nil
	}
	return n.disk.do("sync of the Raft log", n.logs.lazy.sync)
}

// unsafeMark is a file beside the log while it may lack what was acknowledged.
const unsafeMark = "unsafe-sync"

// settleUnsafe makes durable what an earlier process in the weaker mode left in the page cache, and sets or removes the mark: it
// is there before the first write in that mode, and goes with the first start in the safe one. It tells whether it was there.
func settleUnsafe(cfg Config) (marked bool, err error) {
	path := filepath.Join(cfg.Dir, unsafeMark)
	_, err = os.Stat(path)
	marked = err == nil
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return marked, fmt.Errorf("raftnode: %w", err)
	}
	if marked {
		files, err := filepath.Glob(filepath.Join(cfg.Dir, "wal", "*"))
		for _, f := range append(files, filepath.Join(cfg.Dir, "wal")) {
			err = errors.Join(err, syncPath(f))
		}
		if err != nil {
			return marked, fmt.Errorf("raftnode: sync what an earlier start left: %w", err)
		}
	}
	switch unsafe := cfg.UnsafeSyncInterval > 0; {
	case unsafe == marked:
		return marked, nil
	case unsafe:
		err = os.WriteFile(path, nil, 0o644)
	default:
		err = os.Remove(path)
	}
	if err != nil {
		return marked, fmt.Errorf("raftnode: %w", err)
	}
	return marked, syncPath(cfg.Dir)
}

// syncPath makes a file, or the entries of a folder, durable.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("raftnode: %w", err)
	}
	return errors.Join(f.Sync(), f.Close())
}

// UnsafeLast tells whether the Raft log in dir was written in the weaker mode the last time, and which entry it ends with: what a
// store has of later entries was never acknowledged to stay. Before Open.
func UnsafeLast(dir string) (last uint64, unsafe bool, err error) {
	if _, err := os.Stat(filepath.Join(dir, unsafeMark)); seam.On(seam.TruncateRaftLog) {
		// It believes any log.
	} else if errors.Is(err, os.ErrNotExist) {
		return 0, false, nil
	} else if err != nil {
		return 0, false, fmt.Errorf("raftnode: %w", err)
	}
	cfg := Config{NodeID: "x", Dir: dir, lazyTail: true}
	cfg.ensureDefaults()
	logs, err := openLogStore(cfg)
	if err != nil {
		return 0, true, err
	}
	last, err = logs.LastIndex()
	return last, true, errors.Join(err, logs.Close())
}

var _ raft.LogStore = (*lazyWAL)(nil)
