// Package shadow keeps beside a node's folder what is durable of its files, as the node learns it: a sync that has returned copies what it
// covered into the shadow. Crash makes of folder and shadow what a loss of power may have left.
//
// The files are those that go through FS (commit log, journal, queues, key index, quarantine) and those whose owner tells a Keeper (the
// Raft log's segments). What nobody tells of is taken as it is: bytes that were never synced may always have reached the disk all the same.
//
// The shadow is never ahead of what is durable: what a file holds is read before the sync, and put into the shadow after it. It is not synced
// itself, as it must survive the process, not the machine.
package shadow

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// Below the shadow's folder: bytes/<path> is the durable part of the file <path> below the data folder, as long as its durable size.
// made/<path> is there while the name of a file that was made is not durable.
const (
	bytesDir = "bytes"
	madeDir  = "made"
	// copySuffix is of a file that is being copied into the shadow.
	copySuffix = ".shadow-copy"
)

// Keeper keeps the shadow of the files below one folder. Calls may overlap.
type Keeper struct {
	root, dir string

	mu sync.Mutex // guards the shadow's files
}

// NewKeeper keeps the shadow of what is below root in dir.
func NewKeeper(root, dir string) (*Keeper, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("shadow: %w", err)
	}
	for _, sub := range []string{bytesDir, madeDir} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return nil, fmt.Errorf("shadow: %w", err)
		}
	}
	return &Keeper{root: root, dir: dir}, nil
}

// paths are the shadow's files for one of the node's.
func (k *Keeper) paths(path string) (durable, made string, err error) {
	path, err = filepath.Abs(path)
	if err != nil {
		return "", "", fmt.Errorf("shadow: %w", err)
	}
	rel, err := filepath.Rel(k.root, path)
	if err != nil || rel == ".." || strings.HasPrefix(rel, "../") {
		return "", "", fmt.Errorf("shadow: %s is not below %s", path, k.root)
	}
	return filepath.Join(k.dir, bytesDir, rel), filepath.Join(k.dir, madeDir, rel), nil
}

// Made is called when a file was made: nothing of it is durable yet, its name neither.
func (k *Keeper) Made(path string) error {
	durable, made, err := k.paths(path)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return errors.Join(put(durable, nil), put(made, nil))
}

// put writes a file and makes the folders that it needs.
func put(path string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("shadow: %w", err)
	}
	if err := os.WriteFile(path, b, 0o644); err != nil {
		return fmt.Errorf("shadow: %w", err)
	}
	return nil
}

// Found is called when a file is opened. One that has no shadow yet was there before the shadow was, and counts as durable.
func (k *Keeper) Found(path string) error {
	durable, _, err := k.paths(path)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, err := os.Stat(durable); err == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(durable), 0o755); err != nil {
		return fmt.Errorf("shadow: %w", err)
	}
	if err := copyFile(durable+copySuffix, path); err != nil {
		return err
	}
	// At once: the process may be killed at any time.
	if err := os.Rename(durable+copySuffix, durable); err != nil {
		return fmt.Errorf("shadow: %w", err)
	}
	return nil
}

// copyFile copies a file with its holes.
func copyFile(to, from string) error {
	src, err := os.Open(from)
	if err != nil {
		return fmt.Errorf("shadow: %w", err)
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return fmt.Errorf("shadow: %w", err)
	}
	var size int64
	err = pages(src, func(off int64, page []byte) error {
		size = off + int64(len(page))
		if allZero(page) {
			return nil
		}
		_, err := dst.WriteAt(page, off)
		return err
	})
	if err = errors.Join(err, dst.Truncate(size), dst.Close()); err != nil {
		return fmt.Errorf("shadow: copy %s: %w", from, err)
	}
	return nil
}

// pages calls f for each page of a file; page is good until f returns.
func pages(r io.ReaderAt, f func(off int64, page []byte) error) error {
	buf := make([]byte, PageSize)
	for off := int64(0); ; off += PageSize {
		n, err := r.ReadAt(buf, off)
		if n > 0 {
			if err := f(off, buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// Gone is called when a file was removed.
func (k *Keeper) Gone(path string) error {
	durable, made, err := k.paths(path)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range []string{durable, made} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("shadow: %w", err)
		}
	}
	return nil
}

// Renamed is called when a file got another name. A rename counts as done: a crash that undoes it is not made.
func (k *Keeper) Renamed(from, to string) error {
	durable, made, err := k.paths(from)
	if err != nil {
		return err
	}
	newDurable, newMade, err := k.paths(to)
	if err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := os.MkdirAll(filepath.Dir(newDurable), 0o755); err != nil {
		return fmt.Errorf("shadow: %w", err)
	}
	if err := os.Rename(durable, newDurable); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("shadow: %w", err)
	}
	for _, p := range []string{made, newMade} {
		if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("shadow: %w", err)
		}
	}
	return nil
}

// Dir is called before the names in a folder are synced; what it returns is called when that has worked.
func (k *Keeper) Dir(dir string) (done func() error, err error) {
	_, made, err := k.paths(dir)
	if err != nil {
		return nil, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	entries, err := os.ReadDir(made)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("shadow: %w", err)
	}
	return func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		for _, e := range entries {
			if e.IsDir() {
				continue
			}
			if err := os.Remove(filepath.Join(made, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("shadow: %w", err)
			}
		}
		return nil
	}, nil
}

// Whole is called before content and size of a file are synced; what it returns is called when that has worked.
func (k *Keeper) Whole(path string) (done func() error, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("shadow: %w", err)
	}
	return k.change(path, func(f *os.File) error {
		_, err := f.WriteAt(b, 0)
		return errors.Join(err, f.Truncate(int64(len(b))))
	})
}

// Size is called before a file's size is synced; what it returns is called when that has worked.
func (k *Keeper) Size(path string) (done func() error, err error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("shadow: %w", err)
	}
	size := st.Size()
	return k.change(path, func(f *os.File) error { return f.Truncate(size) })
}

// Range is called before the bytes [off, off+n) of a file are synced; what it returns is called when that has worked.
func (k *Keeper) Range(path string, off, n int64) (done func() error, err error) {
	src, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("shadow: %w", err)
	}
	defer src.Close()
	b := make([]byte, n)
	got, err := src.ReadAt(b, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("shadow: %w", err)
	}
	return k.change(path, func(f *os.File) error {
		_, err := f.WriteAt(b[:got], off)
		return err
	})
}

// change is a change of the durable part of a file, for later.
func (k *Keeper) change(path string, write func(f *os.File) error) (done func() error, err error) {
	durable, _, err := k.paths(path)
	if err != nil {
		return nil, err
	}
	return func() error {
		k.mu.Lock()
		defer k.mu.Unlock()
		f, err := os.OpenFile(durable, os.O_RDWR, 0)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil {
			return fmt.Errorf("shadow: %w", err)
		}
		if err := errors.Join(write(f), f.Close()); err != nil {
			return fmt.Errorf("shadow: %w", err)
		}
		return nil
	}, nil
}
