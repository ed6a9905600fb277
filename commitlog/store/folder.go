package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Names below the data folder.
const (
	commitLogDir  = "commitlog"
	journalDir    = "journal"
	queueDir      = "consumequeue"
	lockName      = "lock"
	metaName      = "store.json"
	pointName     = "queuepoint"
	installName   = "installing"
	formatVersion = 1
)

// folder is the locked data folder.
type folder struct {
	dir  string
	lock *os.File
	meta meta
}

// meta is store.json: what can't be changed once there is data.
type meta struct {
	FormatVersion int   `json:"formatVersion"`
	SegmentSize   int64 `json:"segmentSize"`
	QueueFileSize int64 `json:"queueFileSize"`
}

// openFolder makes and locks the folder, and reads or writes its store.json.
func openFolder(cfg *Config) (*folder, error) {
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("store: data folder: %w", err)
	}
	lock, err := lockFolder(cfg.Dir)
	if err != nil {
		return nil, err
	}
	f := &folder{dir: cfg.Dir, lock: lock}
	if err := f.checkMeta(cfg); err != nil {
		lock.Close()
		return nil, err
	}
	return f, nil
}

// lockFolder takes the lock that keeps a second process out; it goes with the process. The
// file names the holder. flock and not RocketMQ's record lock: that one would let a second
// store in the same process in.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, lockName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("store: data folder: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("store: lock %s: %w", f.Name(), err)
		}
		b := make([]byte, 32)
		n, _ := f.ReadAt(b, 0) // only for the message
		return nil, fmt.Errorf("%w: %s, process %s", ErrLocked, dir, strings.TrimSpace(string(b[:n])))
	}
	pid := strconv.AppendInt(nil, int64(os.Getpid()), 10)
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt(append(pid, '\n'), 0)
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("store: write %s: %w", f.Name(), err)
	}
	return f, nil
}

func (f *folder) checkMeta(cfg *Config) error {
	path := filepath.Join(f.dir, metaName)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f.createMeta(cfg, path)
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := json.Unmarshal(b, &f.meta); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrFolder, path, err)
	}
	if v := f.meta.FormatVersion; v != formatVersion {
		return fmt.Errorf("%w: %s has format version %d, this program reads %d", ErrFolder, path, v, formatVersion)
	}
	if size := f.meta.SegmentSize; size != cfg.SegmentSize {
		return fmt.Errorf("%w: %s has segment size %d, configured is %d; it is the same on all nodes and never changes",
			ErrFolder, path, size, cfg.SegmentSize)
	}
	return nil
}

// createMeta is for a new folder. One with a log but without store.json is somebody else's.
func (f *folder) createMeta(cfg *Config, path string) error {
	for _, name := range []string{commitLogDir, journalDir, queueDir} {
		entries, err := os.ReadDir(filepath.Join(f.dir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("store: %w", err)
		}
		if len(entries) > 0 {
			return fmt.Errorf("%w: %s holds %s but no %s, so another program wrote it", ErrFolder, f.dir, name, metaName)
		}
	}
	f.meta = meta{FormatVersion: formatVersion, SegmentSize: cfg.SegmentSize, QueueFileSize: cfg.QueueFileSize}
	return f.writeMeta()
}

func (f *folder) writeMeta() error {
	b, err := json.MarshalIndent(f.meta, "", "  ")
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return f.writeFile(metaName, append(b, '\n'))
}

// writeFile replaces a small file, durably and as a whole.
func (f *folder) writeFile(name string, b []byte) error {
	path := filepath.Join(f.dir, name)
	tmp, err := os.OpenFile(path+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	_, err = bytes.NewReader(b).WriteTo(tmp)
	if err == nil {
		err = tmp.Sync()
	}
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("store: write %s: %w", path, err)
	}
	return f.sync()
}

// remove deletes a file or folder, durably; a missing one is fine.
func (f *folder) remove(names ...string) error {
	for _, name := range names {
		if err := os.RemoveAll(filepath.Join(f.dir, name)); err != nil {
			return fmt.Errorf("store: %w", err)
		}
	}
	return f.sync()
}

func (f *folder) exists(name string) (bool, error) {
	_, err := os.Stat(filepath.Join(f.dir, name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("store: %w", err)
	}
	return true, nil
}

func (f *folder) sync() error {
	d, err := os.Open(f.dir)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	defer d.Close()
	if err := d.Sync(); err != nil {
		return fmt.Errorf("store: sync folder %s: %w", f.dir, err)
	}
	return nil
}

// close gives the lock back.
func (f *folder) close() error { return f.lock.Close() }
