//go:build raftmq_seam

package raftnode

import (
	"path/filepath"
	"sync"

	"github.com/hashicorp/raft"
	walfs "github.com/hashicorp/raft-wal/fs"
	"github.com/hashicorp/raft-wal/types"

	"raftmq/seam"
	"raftmq/seam/shadow"
)

// walVFS is the file system of raft-wal, which tells the shadow what it has synced.
func walVFS(dir string) (types.VFS, error) {
	if seam.Shadow() == "" {
		return walfs.New(), nil
	}
	keeper, err := shadow.NewKeeper(dir, filepath.Join(seam.Shadow(), shadow.WAL.Name))
	if err != nil {
		return nil, err
	}
	return shadowVFS{walfs.New(), keeper}, nil
}

// shadowVFS is the file system of raft-wal.
type shadowVFS struct {
	types.VFS
	keeper *shadow.Keeper
}

// Create implements types.VFS.
func (v shadowVFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	f, err := v.VFS.Create(dir, name, size)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	return &shadowFile{WritableFile: f, path: path, made: true, keeper: v.keeper}, v.keeper.Made(path)
}

// OpenWriter implements types.VFS.
func (v shadowVFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	path := filepath.Join(dir, name)
	f, err := v.VFS.OpenWriter(dir, name)
	if err != nil {
		return nil, err
	}
	return &shadowFile{WritableFile: f, path: path, keeper: v.keeper}, v.keeper.Found(path)
}

// Delete implements types.VFS.
func (v shadowVFS) Delete(dir, name string) error {
	done, err := v.keeper.Dir(dir) // it syncs the folder
	if err != nil {
		return err
	}
	if err := v.VFS.Delete(dir, name); err != nil {
		return err
	}
	if err := v.keeper.Gone(filepath.Join(dir, name)); err != nil {
		return err
	}
	return done()
}

// shadowFile is a segment that is written.
type shadowFile struct {
	types.WritableFile
	path   string
	keeper *shadow.Keeper

	mu    sync.Mutex
	made  bool // its folder is synced with the next Sync
	dirty []span
}

type span struct{ off, n int64 }

// WriteAt implements types.WritableFile.
func (f *shadowFile) WriteAt(b []byte, off int64) (int, error) {
	f.mu.Lock()
	f.dirty = append(f.dirty, span{off, int64(len(b))})
	f.mu.Unlock()
	return f.WritableFile.WriteAt(b, off)
}

// Sync implements types.WritableFile.
func (f *shadowFile) Sync() error {
	if seam.On(seam.SkipRaftSync) {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var notes []func() error
	note := func(done func() error, err error) error {
		notes = append(notes, done)
		return err
	}
	for _, s := range f.dirty {
		if err := note(f.keeper.Range(f.path, s.off, s.n)); err != nil {
			return err
		}
	}
	if err := note(f.keeper.Size(f.path)); err != nil {
		return err
	}
	if f.made && !seam.On(seam.SkipNameSync) {
		if err := note(f.keeper.Dir(filepath.Dir(f.path))); err != nil {
			return err
		}
	}
	if err := f.WritableFile.Sync(); err != nil {
		return err
	}
	f.dirty, f.made = nil, false
	for _, done := range notes {
		if err := done(); err != nil {
			return err
		}
	}
	return nil
}

// earlyApply is the bug ApplyUncommitted: a leader applies what it has stored before anybody else has it, and remembers the results for
// when it is committed.
type earlyApply struct {
	raft.BatchingFSM

	mu      sync.Mutex
	applied uint64
	results map[uint64]any
}

func newEarlyApply(fsm raft.FSM) (raft.FSM, *earlyApply) {
	batching, ok := fsm.(raft.BatchingFSM)
	if !ok || !seam.On(seam.ApplyUncommitted) {
		return fsm, nil
	}
	e := &earlyApply{BatchingFSM: batching, results: map[uint64]any{}}
	return e, e
}

// stored is called when entries are in the Raft log of this node.
func (e *earlyApply) stored(n *Node, logs []*raft.Log) {
	if e == nil {
		return
	}
	r := n.running.Load()
	if r == nil || r.State() != raft.Leader {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	// All before it must be applied, or the order would not be the log's.
	if len(logs) == 0 || max(e.applied, r.AppliedIndex())+1 < logs[0].Index {
		return
	}
	e.applyLocked(logs)
}

func (e *earlyApply) applyLocked(logs []*raft.Log) {
	for i, result := range e.BatchingFSM.ApplyBatch(logs) {
		e.results[logs[i].Index] = result
		e.applied = max(e.applied, logs[i].Index)
	}
}

// Apply implements raft.FSM.
func (e *earlyApply) Apply(l *raft.Log) any { return e.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM.
func (e *earlyApply) ApplyBatch(logs []*raft.Log) []any {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range logs {
		if l.Index > e.applied {
			e.applyLocked([]*raft.Log{l})
		}
	}
	out := make([]any, len(logs))
	for i, l := range logs {
		out[i] = e.results[l.Index]
		delete(e.results, l.Index)
	}
	return out
}
