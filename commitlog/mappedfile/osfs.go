package mappedfile

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"
)

// OS is the operating system's file system (Linux).
type OS struct{}

var _ FS = OS{}

// MkdirAll makes dir and its parents and the entries of the new ones durable, from the
// deepest folder that was there on.
func (OS) MkdirAll(dir string) error {
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	parent := filepath.Dir(dir)
	if parent != dir {
		if err := (OS{}).MkdirAll(parent); err != nil {
			return err
		}
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return noSpace(err)
	}
	return OS{}.SyncDir(parent)
}

// ReadDir implements FS.
func (OS) ReadDir(dir string) ([]Entry, error) {
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	entries := make([]Entry, 0, len(list))
	for _, d := range list {
		info, err := d.Info()
		if err != nil {
			return nil, err
		}
		entries = append(entries, Entry{Name: d.Name(), Size: info.Size(), Dir: d.IsDir()})
	}
	return entries, nil
}

// Create implements FS.
func (OS) Create(path string, size int64) (Handle, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return nil, noSpace(err)
	}
	h := &osHandle{file: f, writable: true}
	// The size first and at once: fallocate would let it grow in steps, and a crash between
	// would leave a file of an odd size.
	if err := h.Truncate(size); err != nil {
		return nil, errors.Join(err, f.Close(), os.Remove(path))
	}
	return h, nil
}

// Open implements FS.
func (OS) Open(path string, readOnly bool) (Handle, error) {
	flag := os.O_RDWR
	if readOnly {
		flag = os.O_RDONLY
	}
	f, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return nil, err
	}
	return &osHandle{file: f, writable: !readOnly}, nil
}

// Remove implements FS.
func (OS) Remove(path string) error { return os.Remove(path) }

// Rename implements FS.
func (OS) Rename(from, to string) error { return os.Rename(from, to) }

// SyncDir implements FS.
func (OS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ReadFile implements FS.
func (OS) ReadFile(path string) ([]byte, error) { return os.ReadFile(path) }

// WriteFile implements FS.
func (OS) WriteFile(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return noSpace(err)
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return noSpace(errors.Join(err, f.Close()))
}

type osHandle struct {
	file     *os.File
	data     mmap.MMap
	writable bool
}

func (h *osHandle) Truncate(size int64) error { return noSpace(h.file.Truncate(size)) }

func (h *osHandle) Allocate(off, n int64) error {
	// The mode without KEEP_SIZE would do as well: the size is the file's already.
	err := h.fallocate(unix.FALLOC_FL_KEEP_SIZE, off, n)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	}
	return noSpace(err)
}

func (h *osHandle) fallocate(mode uint32, off, n int64) error {
	for {
		err := unix.Fallocate(int(h.file.Fd()), mode, off, n)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EINTR) {
			return &os.PathError{Op: "fallocate", Path: h.file.Name(), Err: err}
		}
	}
}

// Zero clears what is left of the first page by hand and punches out the rest: writing
// zeros would cost a whole segment of I/O after each crash. A queue that was closed in order
// has nothing there, and pays one system call.
func (h *osHandle) Zero(off, n int64) (changed bool, err error) {
	page := int64(os.Getpagesize())
	end := off + n
	head := min(end, (off+page-1)/page*page)
	err = Guard(func() error {
		if b := h.data[off:head]; len(bytes.TrimLeft(b, "\x00")) > 0 {
			changed = true
			clear(b)
		}
		return nil
	})
	if err != nil || head == end {
		return changed, err
	}
	if at, err := unix.Seek(int(h.file.Fd()), head, unix.SEEK_DATA); errors.Is(err, unix.ENXIO) || err == nil && at >= end {
		return changed, nil // nothing was ever written there
	}
	err = h.fallocate(unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, head, end-head)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		err = Guard(func() error { clear(h.data[head:end]); return nil })
	}
	return true, err
}

func (h *osHandle) Map(size int64, random bool) ([]byte, error) {
	prot := mmap.RDONLY
	if h.writable {
		prot = mmap.RDWR
	}
	data, err := mmap.MapRegion(h.file, int(size), prot, 0, 0)
	if err != nil {
		return nil, &os.PathError{Op: "mmap", Path: h.file.Name(), Err: err}
	}
	if random {
		if err := unix.Madvise(data, unix.MADV_RANDOM); err != nil {
			return nil, errors.Join(&os.PathError{Op: "madvise", Path: h.file.Name(), Err: err}, data.Unmap())
		}
	}
	h.data = data
	return data, nil
}

// Dirty copies each page over itself.
func (h *osHandle) Dirty(off, n int64) error {
	return Guard(func() error {
		var page [PageSize]byte
		for b := h.data[off : off+n]; len(b) > 0; {
			k := copy(page[:], b)
			copy(b, page[:k])
			b = b[k:]
		}
		return nil
	})
}

// populateFrom is the size from which a write has its pages made ready by one system call: below, single faults cost less.
const populateFrom = 16 << 10

// WriteAt copies through the mapping. An error of the device is a fault, and ErrFault here (F37).
func (h *osHandle) WriteAt(b []byte, off int64) (err error) {
	defer CatchFault(ArmFault(), &err)
	dst := h.data[off : off+int64(len(b))]
	if len(b) >= populateFrom {
		page := int64(os.Getpagesize())
		end := min((off+int64(len(b))+page-1)/page*page, int64(len(h.data)))
		// Where this fails the copy finds out why.
		_ = unix.Madvise(h.data[off/page*page:end], unix.MADV_POPULATE_WRITE)
	}
	copy(dst, b)
	return nil
}

func (h *osHandle) Sync() error     { return h.file.Sync() }
func (h *osHandle) SyncSize() error { return h.file.Sync() }

// SyncRange is msync(MS_SYNC) of the pages that hold the range. DESIGN.md says what we rely on. A file that somebody has cut is
// found here, because writes by position would make it longer again and leave a hole (F37).
func (h *osHandle) SyncRange(off, n int64) error {
	st, err := h.file.Stat()
	if err != nil {
		return err
	}
	if st.Size() < int64(len(h.data)) {
		return fmt.Errorf("%w: %s has %d bytes, %d are mapped: it was cut from outside", ErrFault, h.file.Name(), st.Size(), len(h.data))
	}
	start := off - off%int64(os.Getpagesize())
	if err := h.data[start : off+n].Flush(); err != nil {
		return &os.PathError{Op: "msync", Path: h.file.Name(), Err: err}
	}
	return nil
}

func (h *osHandle) Close() error {
	var err error
	if h.data != nil {
		err = h.data.Unmap()
	}
	// Some file systems (FUSE, NFS) write back at close and report what failed then, or before. That is not news: what counts as durable was
	// synced, and a sync that failed was reported and has poisoned the file. A descriptor that is not ours is a bug of ours.
	if cerr := h.file.Close(); errors.Is(cerr, os.ErrClosed) || errors.Is(cerr, unix.EBADF) {
		err = errors.Join(err, cerr)
	}
	return err
}

func noSpace(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) {
		return fmt.Errorf("%w: %w", ErrNoSpace, err)
	}
	return err
}
