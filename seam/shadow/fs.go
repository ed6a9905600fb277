package shadow

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"raftmq/commitlog/mappedfile"
)

// FS is the operating system's file system, which tells a Keeper what is durable.
type FS struct {
	mappedfile.OS
	keeper *Keeper
	lies   Lies
}

// Lies are planted bugs: what is called durable and is not. The zero value tells none.
type Lies struct {
	Bytes func(path string) bool // of a file
	Names func(dir string) bool  // in a folder
}

func (l Lies) bytes(path string) bool { return l.Bytes != nil && l.Bytes(path) }
func (l Lies) names(dir string) bool  { return l.Names != nil && l.Names(dir) }

// NewFS returns a file system that tells keeper.
func NewFS(keeper *Keeper, lies Lies) *FS { return &FS{keeper: keeper, lies: lies} }

var _ mappedfile.FS = (*FS)(nil)

// synced runs a sync between what is to be known before it and what is noted after it.
func synced(before func() (func() error, error), sync func() error) error {
	done, err := before()
	if err != nil {
		return err
	}
	if err := sync(); err != nil {
		return err
	}
	return done()
}

// Create implements mappedfile.FS.
func (f *FS) Create(path string, size int64) (mappedfile.Handle, error) {
	h, err := f.OS.Create(path, size)
	if err != nil {
		return nil, err
	}
	if err := f.keeper.Made(path); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return &handle{Handle: h, path: path, fs: f}, nil
}

// Open implements mappedfile.FS.
func (f *FS) Open(path string, readOnly bool) (mappedfile.Handle, error) {
	if err := f.keeper.Found(path); err != nil {
		return nil, err
	}
	h, err := f.OS.Open(path, readOnly)
	if err != nil {
		return nil, err
	}
	return &handle{Handle: h, path: path, fs: f}, nil
}

// Remove implements mappedfile.FS.
func (f *FS) Remove(path string) error {
	if err := f.OS.Remove(path); err != nil {
		return err
	}
	return f.keeper.Gone(path)
}

// Rename implements mappedfile.FS.
func (f *FS) Rename(from, to string) error {
	if err := f.OS.Rename(from, to); err != nil {
		return err
	}
	return f.keeper.Renamed(from, to)
}

// SyncDir implements mappedfile.FS.
func (f *FS) SyncDir(dir string) error {
	if f.lies.names(dir) {
		return nil
	}
	return synced(func() (func() error, error) { return f.keeper.Dir(dir) }, func() error { return f.OS.SyncDir(dir) })
}

// MkdirAll implements mappedfile.FS. A folder that was not there has the one above synced, and with it the names of the files there.
func (f *FS) MkdirAll(dir string) error {
	if _, err := os.Stat(dir); err == nil || filepath.Clean(dir) == f.keeper.root || f.lies.names(filepath.Dir(dir)) {
		return f.OS.MkdirAll(dir)
	}
	return synced(func() (func() error, error) { return f.keeper.Dir(filepath.Dir(dir)) }, func() error { return f.OS.MkdirAll(dir) })
}

// WriteFile implements mappedfile.FS.
func (f *FS) WriteFile(path string, b []byte) error {
	_, err := os.Stat(path)
	made := errors.Is(err, fs.ErrNotExist)
	if !made {
		if err := f.keeper.Found(path); err != nil {
			return err
		}
	}
	if err := f.OS.WriteFile(path, b); err != nil {
		return err
	}
	if made {
		if err := f.keeper.Made(path); err != nil {
			return err
		}
	}
	done, err := f.keeper.Whole(path)
	if err != nil {
		return err
	}
	return done()
}

// handle is an open file.
type handle struct {
	mappedfile.Handle
	path string
	fs   *FS
}

// Sync implements mappedfile.Handle.
func (h *handle) Sync() error {
	if h.fs.lies.bytes(h.path) {
		return nil
	}
	return synced(func() (func() error, error) { return h.fs.keeper.Whole(h.path) }, h.Handle.Sync)
}

// SyncSize implements mappedfile.Handle.
func (h *handle) SyncSize() error {
	return synced(func() (func() error, error) { return h.fs.keeper.Size(h.path) }, h.Handle.SyncSize)
}

// SyncRange implements mappedfile.Handle.
func (h *handle) SyncRange(off, n int64) error {
	if h.fs.lies.bytes(h.path) {
		return nil
	}
	return synced(func() (func() error, error) { return h.fs.keeper.Range(h.path, off, n) }, func() error { return h.Handle.SyncRange(off, n) })
}
