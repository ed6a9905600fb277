package fsm

import (
	"os"

	"raftmq/commitlog/mappedfile"
)

// lazyFS makes nothing durable: crashes here are of the process, not of the machine, and a sync is only time.
type lazyFS struct{ mappedfile.OS }

type lazyHandle struct{ mappedfile.Handle }

func (lazyFS) SyncDir(string) error                  { return nil }
func (lazyFS) MkdirAll(dir string) error             { return os.MkdirAll(dir, 0o755) }
func (lazyFS) WriteFile(path string, b []byte) error { return os.WriteFile(path, b, 0o644) }

func (l lazyFS) Create(path string, size int64) (mappedfile.Handle, error) {
	h, err := l.OS.Create(path, size)
	return lazyHandle{h}, err
}

func (l lazyFS) Open(path string, readOnly bool) (mappedfile.Handle, error) {
	h, err := l.OS.Open(path, readOnly)
	return lazyHandle{h}, err
}

func (lazyHandle) Sync() error                  { return nil }
func (lazyHandle) SyncSize() error              { return nil }
func (lazyHandle) SyncRange(off, n int64) error { return nil }
