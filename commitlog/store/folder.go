package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"raftmq/commitlog/mappedfile"
)

// Names below the data folder.
const (
	commitLogDir   = "commitlog"
	journalDir     = "journal"
	queueDir       = "consumequeue"
	lockName       = "lock"
	abortName      = "abort"
	checkpointName = "checkpoint"
	quarantineDir  = "quarantine"
	metaName       = "store.json"
	pointName      = "queuepoint"
	installName    = "installing"
	formatVersion  = 1
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
	if err := (mappedfile.OS{}).MkdirAll(cfg.Dir); err != nil {
		return nil, fmt.Errorf("store: data folder: %w", err)
	}
	f := &folder{dir: cfg.Dir}
	if err := f.takeLock(); err != nil {
		return nil, err
	}
	if err := f.checkMeta(cfg); err != nil {
		f.lock.Close()
		return nil, err
	}
	return f, nil
}

// takeLock takes the lock that keeps a second process out; it goes with the process. It is the lock of RocketMQ, of byte 0 of the
// file, so that neither starts on the other's folder; but as a lock of the open file and not of the process, because
// that one would let a second store in the same process in.
func (f *folder) takeLock() error {
	file, err := os.OpenFile(filepath.Join(f.dir, lockName), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("store: data folder: %w", err)
	}
	byte0 := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 0, Len: 1}
	if err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &byte0); err != nil {
		defer file.Close()
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			return fmt.Errorf("store: lock %s: %w", file.Name(), err)
		}
		return f.lockedBy()
	}
	err = file.Truncate(int64(len(lockText)))
	if err == nil {
		_, err = file.WriteAt([]byte(lockText), 0)
	}
	if err != nil {
		file.Close()
		return fmt.Errorf("store: write %s: %w", file.Name(), err)
	}
	f.lock = file
	return nil
}

// lockText is what RocketMQ writes into the file.
const lockText = "lock"

var errNoMeta = errors.New("it is missing")

func (f *folder) checkMeta(cfg *Config) error {
	path := filepath.Join(f.dir, metaName)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return f.createMeta(cfg, path, errNoMeta)
	}
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	if err := json.Unmarshal(b, &f.meta); err != nil {
		return f.createMeta(cfg, path, err)
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

// createMeta is for a new folder, and for one of ours whose store.json is lost or damaged: what it said is in the segments' sizes,
// and queues whose file size is not known are built again. A folder with a log and nothing of ours beside it is somebody
// else's.
func (f *folder) createMeta(cfg *Config, path string, why error) error {
	f.meta = meta{FormatVersion: formatVersion, SegmentSize: cfg.SegmentSize, QueueFileSize: cfg.QueueFileSize}
	ours, err := f.holds(journalDir)
	if err != nil {
		return err
	}
	if ours != "" {
		segments, err := os.ReadDir(filepath.Join(f.dir, commitLogDir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("store: %w", err)
		}
		for _, e := range segments {
			if info, err := e.Info(); err == nil && info.Size() > 0 && info.Size() != cfg.SegmentSize && len(segments) > 1 {
				return fmt.Errorf("%w: %s is unusable (%w), and %s has %d bytes, configured are segments of %d", ErrFolder, path, why, e.Name(), info.Size(), cfg.SegmentSize)
			}
		}
		cfg.Logger.Named("store").Warn("writing the store's description again", "file", path, "reason", why)
		f.meta.QueueFileSize = 0
		return f.writeMeta()
	}
	if !errors.Is(why, errNoMeta) {
		return fmt.Errorf("%w: %s: %w", ErrFolder, path, why)
	}
	for _, name := range []string{commitLogDir, queueDir} {
		held, err := f.holds(name)
		if err != nil {
			return err
		}
		if held != "" {
			return fmt.Errorf("%w: %s holds %s but no usable %s (%w), so another program wrote it", ErrFolder, f.dir, held, metaName, why)
		}
	}
	return f.writeMeta()
}

// holds is name when there is a folder of that name with something in it, else "".
func (f *folder) holds(name string) (string, error) {
	entries, err := os.ReadDir(filepath.Join(f.dir, name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("store: %w", err)
	}
	if len(entries) == 0 {
		return "", nil
	}
	return name, nil
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
