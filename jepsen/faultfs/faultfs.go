// Package faultfs is a file system for tests that lies under a process's data folder and fails as disks do: writes and fsyncs
// that fail or hang, a disk that became read-only, and a loss of power, after which only what was synced is there.
//
// It is a FUSE file system over a folder that holds the durable state alone. What a process writes stays in memory until the file is synced,
// as it would in the kernel's cache; a created, renamed or removed name is durable once its folder is synced. Pages that a process changes
// through a mapping arrive when the kernel writes them back, at the latest with msync or fsync, so that those that never arrived are lost
// with the power, as they should be.
//
// What it models, and what not: any unsynced page may be old, new, or new up to a sector (Some); a file's size and its pages are
// independent of each other; names come in the order of the calls, and a call is durable with all before it or not at all. It does not
// model a disk that says synced and has not, reordered names, or a loss of what was synced.
//
// It needs root and /dev/fuse (ErrUnavailable). The program that mounts a Disk must not touch files below its mount point itself:
// it would wait for itself. Not safe against other users of the backing folder.
package faultfs

import (
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
)

// ErrUnavailable: FUSE cannot be used on this machine.
var ErrUnavailable = errors.New("faultfs: FUSE is not available")

// Op is what a Hook is asked about.
type Op string

// Ops.
const (
	Write    Op = "write"
	Sync     Op = "sync"     // of a file or folder
	Allocate Op = "allocate" // fallocate and truncate
	Name     Op = "name"     // create, rename, remove, of files and folders
)

// Hook is asked before an operation that changes something, with the path below the mount point; 0 lets it happen. It may block: that is a
// disk that hangs. A Sync that fails has lost what was to be synced (the kernel does not keep dirty pages for another try).
type Hook func(op Op, path string) syscall.Errno

// Loss says what a loss of power does to what was not synced.
type Loss int

// Losses.
const (
	All  Loss = iota // all of it is gone
	Some             // each page, size and run of names at random
)

// Disk is a mounted file system. Its methods may be called from several goroutines.
type Disk struct {
	Dir     string // the mount point
	backing string
	saved   string // hard links to files that unsynced removals would bring back

	hook atomic.Pointer[Hook]
	// frozen: the power is gone, nothing changes any more. Held for reading by every operation that changes something.
	mu     sync.RWMutex
	frozen bool

	state struct {
		sync.Mutex // taken inside mu
		files      map[uint64]*file
		names      []nameOp // unsynced changes of names, oldest first
		links      int
	}
	server *fuse.Server // of the present mount
}

// Mount puts a Disk at dir, which must exist and be empty, over a new folder under work, on one file system.
func Mount(dir, work string) (*Disk, error) {
	dir, err := filepath.Abs(dir) // as the list of mounts has it
	if err != nil {
		return nil, fmt.Errorf("faultfs: %w", err)
	}
	d := &Disk{Dir: dir, backing: filepath.Join(work, "durable"), saved: filepath.Join(work, "saved")}
	for _, p := range []string{d.backing, d.saved} {
		if err := os.MkdirAll(p, 0o755); err != nil {
			return nil, fmt.Errorf("faultfs: %w", err)
		}
	}
	if err := d.mount(); err != nil {
		return nil, err
	}
	return d, nil
}

// Available says why there can be no Disk on this machine, nil if there can.
func Available() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("%w: it needs root", ErrUnavailable)
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return nil
}

func (d *Disk) mount() error {
	if err := Available(); err != nil {
		return err
	}
	d.state.files = map[uint64]*file{}
	timeout := time.Minute // nobody else changes anything
	// A process that inherits the connection keeps it alive when this program dies, and then waits for ever for an answer.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	defer closeOnExec()
	server, err := fs.Mount(d.Dir, &node{disk: d}, &fs.Options{
		EntryTimeout: &timeout, AttrTimeout: &timeout,
		MountOptions: fuse.MountOptions{DirectMountStrict: true, FsName: "raftmq-faultfs", Name: "faultfs", MaxWrite: 1 << 20,
			ExplicitDataCacheControl: true, DisableXAttrs: true, DisableReadDirPlus: true, Logger: log.New(discard{}, "", 0)},
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	d.server = server
	return nil
}

// closeOnExec keeps child processes from inheriting connections to FUSE; go-fuse opens them without that flag.
func closeOnExec() {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range list {
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil && to == "/dev/fuse" {
			if fd, err := strconv.Atoi(e.Name()); err == nil {
				syscall.CloseOnExec(fd)
			}
		}
	}
}

// discard takes the server's lines about requests that a dying process no longer waits for.
type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// SetHook makes h decide about operations from now on; nil lets all happen. Operations that hang in an old hook are that hook's matter.
func (d *Disk) SetHook(h Hook) {
	if h == nil {
		d.hook.Store(nil)
		return
	}
	d.hook.Store(&h)
}

// ask is the hook's answer.
func (d *Disk) ask(op Op, path string) syscall.Errno {
	if h := d.hook.Load(); h != nil {
		return (*h)(op, path)
	}
	return 0
}

// begin is called by each operation that changes something, after the hook; end must follow unless it fails.
func (d *Disk) begin() syscall.Errno {
	d.mu.RLock()
	if d.frozen {
		d.mu.RUnlock()
		return syscall.EIO
	}
	return 0
}

func (d *Disk) end() { d.mu.RUnlock() }

// Freeze takes the power away: what is durable now stays, and nothing else becomes so. Kill the process next, then call Restore.
func (d *Disk) Freeze() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.frozen = true
}

// Restore gives the power back after Freeze, when no process uses the file system any more: the folder is what a disk could hold.
func (d *Disk) Restore(loss Loss, rng *rand.Rand) error {
	if err := d.unmount(); err != nil {
		return err
	}
	d.mu.Lock()
	err := d.lose(loss, rng)
	d.frozen = false
	d.mu.Unlock()
	if err != nil {
		return fmt.Errorf("faultfs: make the crash image: %w", err)
	}
	return d.mount()
}

// Close unmounts. What was not synced is gone. No process may use the file system any more.
func (d *Disk) Close() error {
	d.SetHook(nil)
	err := d.unmount()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.frozen = true
	d.state.Lock()
	defer d.state.Unlock()
	for _, f := range d.state.files {
		_ = f.backing.Close()
	}
	for _, op := range d.state.names {
		op.close()
	}
	d.state.files, d.state.names = nil, nil
	return err
}

// abortAfter is how long a file system may go on to be used after it was unmounted.
const abortAfter = 3 * time.Second

func (d *Disk) unmount() error {
	device, err := deviceOf(d.Dir)
	if err != nil {
		return err
	}
	for range 100 { // a process that was killed just now may still hold files
		if err = syscall.Unmount(d.Dir, 0); err == nil || errors.Is(err, syscall.EINVAL) {
			return d.await(device)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("faultfs: unmount %s: %w", d.Dir, err)
}

// await waits for the end of the server. A process with a mount namespace of its own, somebody else's even, may have a copy of the mount and
// keep it alive; the connection is cut then.
func (d *Disk) await(device string) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		d.server.Wait()
	}()
	late := time.NewTimer(abortAfter)
	defer late.Stop()
	select {
	case <-ended:
		return nil
	case <-late.C:
	}
	if device == "" {
		<-ended
		return nil
	}
	if err := abort(device); err != nil {
		return fmt.Errorf("faultfs: %s is still in use elsewhere: %w", d.Dir, err)
	}
	<-ended
	return nil
}

// deviceOf is the minor number of the FUSE mount at dir, "" if there is none.
func deviceOf(dir string) (string, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", fmt.Errorf("faultfs: %w", err)
	}
	device := ""
	for line := range strings.Lines(string(mounts)) {
		// 36 35 0:57 / /mount/point options … - type source options; the newest mount is the last one.
		fields := strings.Fields(line)
		if len(fields) > 4 && fields[4] == dir && strings.Contains(line, " fuse.faultfs ") {
			_, device, _ = strings.Cut(fields[2], ":")
		}
	}
	return device, nil
}

// abort cuts the connection between the kernel and a FUSE server.
func abort(device string) error {
	at := "/sys/fs/fuse/connections"
	if _, err := os.Stat(filepath.Join(at, device)); err != nil {
		tmp, err := os.MkdirTemp("", "faultfs-control-")
		if err != nil {
			return err
		}
		defer os.Remove(tmp)
		if err := syscall.Mount("none", tmp, "fusectl", 0, ""); err != nil {
			return fmt.Errorf("mount fusectl: %w", err)
		}
		defer syscall.Unmount(tmp, 0)
		at = tmp
	}
	return os.WriteFile(filepath.Join(at, device, "abort"), []byte("1"), 0)
}
