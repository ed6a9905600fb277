package mappedfile

import "errors"

// ErrUnsupported: the file system cannot reserve blocks ahead.
var ErrUnsupported = errors.New("mappedfile: fallocate not supported")

// FS is what a queue needs of a file system. It exists so that faultfile can fail any
// operation and cut the power; the real one is OS. Paths are those given by the caller.
// Nothing but Handle.Sync, SyncSize, SyncRange, FS.SyncDir and WriteFile waits for the disk, and nothing is
// durable without them.
type FS interface {
	MkdirAll(dir string) error
	// ReadDir lists plain files and folders of dir by ascending name.
	ReadDir(dir string) ([]Entry, error)
	// Create makes a new file of the given size, all zero and without blocks; it must not exist.
	Create(path string, size int64) (Handle, error)
	Open(path string, readOnly bool) (Handle, error)
	Remove(path string) error
	Rename(from, to string) error
	// SyncDir makes the entries of dir durable.
	SyncDir(dir string) error
	ReadFile(path string) ([]byte, error)
	// WriteFile writes a whole small file and makes its content (not its entry) durable.
	WriteFile(path string, b []byte) error
}

// Entry is one name in a folder.
type Entry struct {
	Name string
	Size int64
	Dir  bool
}

// Handle is one open file. Calls may overlap, but not with Close.
type Handle interface {
	// Truncate sets the file size.
	Truncate(size int64) error
	// Allocate takes blocks for [off, off+n); taken ones stay as they are. Errors: ErrNoSpace,
	// ErrUnsupported.
	Allocate(off, n int64) error
	// Zero makes [off, off+n) read as zero and may give its blocks back. It tells whether there
	// was anything to do.
	Zero(off, n int64) (changed bool, err error)
	// Map maps the first size bytes; once per handle.
	Map(size int64, random bool) ([]byte, error)
	// Dirty marks mapped bytes [off, off+n) as to be written by the next sync, though they are not
	// changed: after a failed sync the kernel may call pages clean that never reached the disk.
	Dirty(off, n int64) error
	// WriteAt writes b at off, within the file, as a mapped write would, without making it durable. After an error a part may
	// be written.
	WriteAt(b []byte, off int64) error
	// Sync makes content and size of the whole file durable. Nobody writes meanwhile.
	Sync() error
	// SyncSize makes the size durable; of the content it says nothing. The writer may be at work.
	SyncSize() error
	// SyncRange makes mapped bytes [off, off+n) durable.
	SyncRange(off, n int64) error
	// Close unmaps and closes.
	Close() error
}
