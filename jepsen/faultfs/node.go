package faultfs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// node is a file or folder. Its name is where it is in the tree, so a rename changes nothing here.
type node struct {
	fs.Inode
	disk *Disk
}

// handle is an open file.
type handle struct {
	file *file
	ino  uint64
}

var (
	_ fs.NodeStatfser  = (*node)(nil)
	_ fs.NodeLookuper  = (*node)(nil)
	_ fs.NodeReaddirer = (*node)(nil)
	_ fs.NodeGetattrer = (*node)(nil)
	_ fs.NodeSetattrer = (*node)(nil)
	_ fs.NodeMkdirer   = (*node)(nil)
	_ fs.NodeRmdirer   = (*node)(nil)
	_ fs.NodeUnlinker  = (*node)(nil)
	_ fs.NodeRenamer   = (*node)(nil)
	_ fs.NodeCreater   = (*node)(nil)
	_ fs.NodeOpener    = (*node)(nil)
	_ fs.NodeReader    = (*node)(nil)
	_ fs.NodeWriter    = (*node)(nil)
	_ fs.NodeAllocater = (*node)(nil)
	_ fs.NodeFsyncer   = (*node)(nil)
	_ fs.NodeFlusher   = (*node)(nil)
	_ fs.NodeReleaser  = (*node)(nil)
)

func (n *node) name() string { return n.Path(nil) }
func (n *node) path() string { return filepath.Join(n.disk.backing, n.name()) }

func (n *node) OnForget() {}

// Statfs implements fs.NodeStatfser.
func (n *node) Statfs(_ context.Context, out *fuse.StatfsOut) syscall.Errno {
	var st syscall.Statfs_t
	if err := syscall.Statfs(n.disk.backing, &st); err != nil {
		return fs.ToErrno(err)
	}
	out.FromStatfsT(&st)
	return 0
}

// stat reads a file's attributes, with the size that the process sees.
func (n *node) stat(path string, out *fuse.Attr) (fs.StableAttr, syscall.Errno) {
	var st syscall.Stat_t
	if err := syscall.Lstat(path, &st); err != nil {
		return fs.StableAttr{}, fs.ToErrno(err)
	}
	out.FromStat(&st)
	n.disk.state.Lock()
	f := n.disk.state.files[st.Ino]
	n.disk.state.Unlock()
	if f != nil {
		out.Size = uint64(f.length())
	}
	// An inode number is given again after a file is gone; its birth tells the two apart.
	gen := uint64(1)
	var sx unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &sx); err == nil && sx.Mask&unix.STATX_BTIME != 0 {
		gen = uint64(sx.Btime.Sec)*1e9 + uint64(sx.Btime.Nsec)
	}
	return fs.StableAttr{Mode: st.Mode, Ino: st.Ino, Gen: gen}, 0
}

// child is a node for what was found or made.
func (n *node) child(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	id, errno := n.stat(filepath.Join(n.path(), name), &out.Attr)
	if errno != 0 {
		return nil, errno
	}
	return n.NewInode(ctx, &node{disk: n.disk}, id), 0
}

// Lookup implements fs.NodeLookuper.
func (n *node) Lookup(ctx context.Context, name string, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	return n.child(ctx, name, out)
}

// Readdir implements fs.NodeReaddirer.
func (n *node) Readdir(context.Context) (fs.DirStream, syscall.Errno) {
	return fs.NewLoopbackDirStream(n.path())
}

// Getattr implements fs.NodeGetattrer.
func (n *node) Getattr(_ context.Context, fh fs.FileHandle, out *fuse.AttrOut) syscall.Errno {
	if h, ok := fh.(*handle); ok { // it may have no name any more
		var st syscall.Stat_t
		if err := syscall.Fstat(int(h.file.backing.Fd()), &st); err != nil {
			return fs.ToErrno(err)
		}
		out.FromStat(&st)
		out.Size = uint64(h.file.length())
		return 0
	}
	_, errno := n.stat(n.path(), &out.Attr)
	return errno
}

// Setattr implements fs.NodeSetattrer: sizes. Modes and times are of no interest here.
func (n *node) Setattr(ctx context.Context, fh fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if size, ok := in.GetSize(); ok {
		if errno := n.resize(fh, int64(size)); errno != 0 {
			return errno
		}
	}
	return n.Getattr(ctx, fh, out)
}

func (n *node) resize(fh fs.FileHandle, size int64) syscall.Errno {
	if errno := n.disk.ask(Allocate, n.name()); errno != 0 {
		return errno
	}
	if errno := n.disk.begin(); errno != 0 {
		return errno
	}
	defer n.disk.end()
	h, ok := fh.(*handle)
	if !ok {
		var errno syscall.Errno
		if h, errno = n.open(); errno != 0 {
			return errno
		}
		defer n.disk.release(h)
	}
	h.file.resize(size)
	return 0
}

// open returns a handle on a file's state, which is made if need be.
func (n *node) open() (*handle, syscall.Errno) {
	backing, err := os.OpenFile(n.path(), os.O_RDWR, 0)
	if err != nil {
		return nil, fs.ToErrno(err)
	}
	return n.disk.adopt(backing)
}

func (d *Disk) adopt(backing *os.File) (*handle, syscall.Errno) {
	var st syscall.Stat_t
	if err := syscall.Fstat(int(backing.Fd()), &st); err != nil {
		_ = backing.Close()
		return nil, fs.ToErrno(err)
	}
	d.state.Lock()
	defer d.state.Unlock()
	f := d.state.files[st.Ino]
	if f != nil {
		_ = backing.Close()
	} else {
		var err error
		if f, err = newFile(backing); err != nil {
			_ = backing.Close()
			return nil, syscall.EIO
		}
		d.state.files[st.Ino] = f
	}
	f.refs++
	return &handle{f, st.Ino}, 0
}

func (d *Disk) release(h *handle) {
	d.state.Lock()
	defer d.state.Unlock()
	h.file.refs--
	if h.file.refs == 0 && !h.file.pending() && d.state.files[h.ino] == h.file {
		delete(d.state.files, h.ino)
		_ = h.file.backing.Close()
	}
}

// Open implements fs.NodeOpener.
func (n *node) Open(_ context.Context, flags uint32) (fs.FileHandle, uint32, syscall.Errno) {
	h, errno := n.open()
	if errno != 0 {
		return nil, 0, errno
	}
	if flags&syscall.O_TRUNC != 0 {
		if errno := n.resize(h, 0); errno != 0 {
			n.disk.release(h)
			return nil, 0, errno
		}
	}
	return h, fuse.FOPEN_KEEP_CACHE, 0
}

// Create implements fs.NodeCreater.
func (n *node) Create(ctx context.Context, name string, flags, mode uint32, out *fuse.EntryOut) (*fs.Inode, fs.FileHandle, uint32, syscall.Errno) {
	var h *handle
	errno := n.change(name, func(dir int) (undo func(dir int) error, done func(), err error) {
		fd, err := unix.Openat(dir, name, unix.O_RDWR|unix.O_CREAT|int(flags)&unix.O_EXCL|unix.O_CLOEXEC, mode&0o777)
		if err != nil {
			return nil, nil, err
		}
		var errno syscall.Errno
		if h, errno = n.disk.adopt(os.NewFile(uintptr(fd), name)); errno != 0 {
			return nil, nil, errno
		}
		return func(dir int) error { return unix.Unlinkat(dir, name, 0) }, nil, nil
	})
	if errno != 0 {
		return nil, nil, 0, errno
	}
	inode, errno := n.child(ctx, name, out)
	if errno != 0 {
		n.disk.release(h)
		return nil, nil, 0, errno
	}
	return inode, h, fuse.FOPEN_KEEP_CACHE, 0
}

// change makes one change of names in this folder and keeps how to undo it, until the folder is synced. f gets a descriptor of the backing
// folder that stays open that long.
func (n *node) change(name string, f func(dir int) (undo func(dir int) error, done func(), err error)) syscall.Errno {
	if errno := n.disk.ask(Name, filepath.Join(n.name(), name)); errno != 0 {
		return errno
	}
	if errno := n.disk.begin(); errno != 0 {
		return errno
	}
	defer n.disk.end()
	fd, err := syscall.Open(n.path(), syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return fs.ToErrno(err)
	}
	var st syscall.Stat_t
	if err = syscall.Fstat(fd, &st); err == nil {
		var op nameOp
		if op.undo, op.done, err = f(fd); err == nil {
			op.dir, op.fd, op.path = st.Ino, fd, n.path()
			n.disk.state.Lock()
			n.disk.state.names = append(n.disk.state.names, op)
			n.disk.state.Unlock()
			return 0
		}
	}
	_ = syscall.Close(fd)
	return fs.ToErrno(err)
}

// save keeps a hard link to a file that is about to lose its name; back gives it that name again.
func (d *Disk) save(dir int, name string) (back func(dir int) error, done func(), err error) {
	d.state.Lock()
	d.state.links++
	link := filepath.Join(d.saved, fmt.Sprint(d.state.links))
	d.state.Unlock()
	if err := unix.Linkat(dir, name, unix.AT_FDCWD, link, 0); err != nil {
		return nil, nil, err
	}
	done = func() { _ = os.Remove(link) }
	return func(dir int) error {
		defer done()
		return unix.Linkat(unix.AT_FDCWD, link, dir, name, 0)
	}, done, nil
}

// Mkdir implements fs.NodeMkdirer.
func (n *node) Mkdir(ctx context.Context, name string, mode uint32, out *fuse.EntryOut) (*fs.Inode, syscall.Errno) {
	at := filepath.Join(n.path(), name)
	errno := n.change(name, func(dir int) (func(int) error, func(), error) {
		if err := unix.Mkdirat(dir, name, mode&0o777); err != nil {
			return nil, nil, err
		}
		return func(int) error { return os.RemoveAll(at) }, nil, nil
	})
	if errno != 0 {
		return nil, errno
	}
	return n.child(ctx, name, out)
}

// Rmdir implements fs.NodeRmdirer.
func (n *node) Rmdir(_ context.Context, name string) syscall.Errno {
	return n.change(name, func(dir int) (func(int) error, func(), error) {
		if err := unix.Unlinkat(dir, name, unix.AT_REMOVEDIR); err != nil {
			return nil, nil, err
		}
		return func(dir int) error { return unix.Mkdirat(dir, name, 0o755) }, nil, nil
	})
}

// Unlink implements fs.NodeUnlinker.
func (n *node) Unlink(_ context.Context, name string) syscall.Errno {
	return n.change(name, func(dir int) (func(int) error, func(), error) {
		back, done, err := n.disk.save(dir, name)
		if err == nil {
			err = unix.Unlinkat(dir, name, 0)
		}
		return back, done, err
	})
}

// Rename implements fs.NodeRenamer. The new name's folder makes it durable.
func (n *node) Rename(_ context.Context, name string, newParent fs.InodeEmbedder, newName string, flags uint32) syscall.Errno {
	to, ok := newParent.(*node)
	if !ok || flags != 0 {
		return syscall.EINVAL
	}
	from := n.path()
	return to.change(newName, func(dir int) (func(int) error, func(), error) {
		old, err := syscall.Open(from, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
		if err != nil {
			return nil, nil, err
		}
		back, done := func(int) error { return nil }, func() {}
		var st unix.Stat_t
		if unix.Fstatat(dir, newName, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			if back, done, err = n.disk.save(dir, newName); err != nil {
				_ = syscall.Close(old)
				return nil, nil, err
			}
		}
		if err := unix.Renameat(old, name, dir, newName); err != nil {
			done()
			_ = syscall.Close(old)
			return nil, nil, err
		}
		return func(dir int) error {
				defer syscall.Close(old)
				if removed(old) { // durably: the file has no other name left
					return back(dir)
				}
				return errors.Join(unix.Renameat(dir, newName, old, name), back(dir))
			}, func() {
				done()
				_ = syscall.Close(old)
			}, nil
	})
}

// Read implements fs.NodeReader.
func (n *node) Read(_ context.Context, fh fs.FileHandle, dest []byte, off int64) (fuse.ReadResult, syscall.Errno) {
	count, err := fh.(*handle).file.read(dest, off)
	if err != nil {
		return nil, syscall.EIO
	}
	return fuse.ReadResultData(dest[:count]), 0
}

// Write implements fs.NodeWriter.
func (n *node) Write(_ context.Context, fh fs.FileHandle, data []byte, off int64) (uint32, syscall.Errno) {
	if errno := n.disk.ask(Write, n.name()); errno != 0 {
		return 0, errno
	}
	if errno := n.disk.begin(); errno != 0 {
		return 0, errno
	}
	defer n.disk.end()
	if err := fh.(*handle).file.write(data, off); err != nil {
		return 0, syscall.EIO
	}
	return uint32(len(data)), 0
}

// Allocate implements fs.NodeAllocater. Space is not accounted for.
func (n *node) Allocate(_ context.Context, fh fs.FileHandle, off, size uint64, mode uint32) syscall.Errno {
	if errno := n.disk.ask(Allocate, n.name()); errno != 0 {
		return errno
	}
	if errno := n.disk.begin(); errno != 0 {
		return errno
	}
	defer n.disk.end()
	f := fh.(*handle).file
	switch {
	case mode&unix.FALLOC_FL_PUNCH_HOLE != 0:
		end := min(int64(off+size), f.length())
		if end <= int64(off) {
			return 0
		}
		return fs.ToErrno(f.write(make([]byte, end-int64(off)), int64(off)))
	case mode&^unix.FALLOC_FL_KEEP_SIZE != 0:
		return syscall.EOPNOTSUPP
	case mode == 0 && int64(off+size) > f.length():
		f.resize(int64(off + size))
	}
	return 0
}

// Fsync implements fs.NodeFsyncer, for folders too.
func (n *node) Fsync(_ context.Context, fh fs.FileHandle, _ uint32) syscall.Errno {
	h, isFile := fh.(*handle)
	errno := n.disk.ask(Sync, n.name())
	if begun := n.disk.begin(); begun != 0 {
		return begun
	}
	defer n.disk.end()
	if errno != 0 {
		if isFile {
			h.file.drop()
		}
		return errno
	}
	if !isFile {
		var st syscall.Stat_t
		if err := syscall.Lstat(n.path(), &st); err != nil {
			return fs.ToErrno(err)
		}
		n.disk.syncNames(st.Ino)
		return 0
	}
	if err := h.file.sync(); err != nil {
		return syscall.EIO
	}
	return 0
}

// Flush implements fs.NodeFlusher: closing a file makes nothing durable.
func (n *node) Flush(context.Context, fs.FileHandle) syscall.Errno { return 0 }

// Release implements fs.NodeReleaser.
func (n *node) Release(_ context.Context, fh fs.FileHandle) syscall.Errno {
	if h, ok := fh.(*handle); ok {
		n.disk.release(h)
	}
	return 0
}
