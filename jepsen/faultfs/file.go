package faultfs

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"syscall"
)

const (
	pageSize   = 4096
	sectorSize = 512
)

// file is what is known of an open file, or of one with something unsynced, beside its durable content.
type file struct {
	backing *os.File
	refs    int // open handles; guarded by Disk.state

	mu    sync.Mutex
	pages map[int64][]byte // by page number: written, not synced
	size  int64            // as the process sees it
	// cut is the least size since the last sync, when it was below the durable one: durable bytes from there on have become zeroes.
	cut     int64
	resized bool
}

func newFile(backing *os.File) (*file, error) {
	st, err := backing.Stat()
	if err != nil {
		return nil, err
	}
	return &file{backing: backing, pages: map[int64][]byte{}, size: st.Size(), cut: st.Size()}, nil
}

// pending reports whether something is not synced.
func (f *file) pending() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.resized || len(f.pages) > 0
}

// durableLocked reads page n as it would be without what was written since the last sync.
func (f *file) durableLocked(n int64, p []byte) error {
	clear(p)
	off := n * pageSize
	if off >= f.cut {
		return nil
	}
	_, err := f.backing.ReadAt(p[:min(pageSize, f.cut-off)], off)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return err
}

func (f *file) read(p []byte, off int64) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if off >= f.size {
		return 0, nil
	}
	p = p[:min(int64(len(p)), f.size-off)]
	var scratch [pageSize]byte
	for done := 0; done < len(p); {
		n, at := (off+int64(done))/pageSize, (off+int64(done))%pageSize
		page, ok := f.pages[n]
		if !ok {
			page = scratch[:]
			if err := f.durableLocked(n, page); err != nil {
				return done, err
			}
		}
		done += copy(p[done:], page[at:])
	}
	return len(p), nil
}

func (f *file) write(p []byte, off int64) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for done := 0; done < len(p); {
		n, at := (off+int64(done))/pageSize, (off+int64(done))%pageSize
		page, ok := f.pages[n]
		if !ok {
			page = make([]byte, pageSize)
			if err := f.durableLocked(n, page); err != nil {
				return err
			}
			f.pages[n] = page
		}
		done += copy(page[at:], p[done:])
	}
	if end := off + int64(len(p)); end > f.size {
		f.size, f.resized = end, true
	}
	return nil
}

func (f *file) resize(size int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if size == f.size {
		return
	}
	if size < f.size {
		for n, page := range f.pages {
			switch begin := n * pageSize; {
			case begin >= size:
				delete(f.pages, n)
			case begin+pageSize > size:
				clear(page[size-begin:])
			}
		}
		f.cut = min(f.cut, size)
	}
	f.size, f.resized = size, true
}

func (f *file) length() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.size
}

// sync makes everything durable.
func (f *file) sync() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.keepLocked(true, func(int64) int { return pageSize })
}

// drop forgets what was written since the last sync, as the kernel does with pages whose writing failed. The size stays.
func (f *file) drop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.pages)
}

// keepLocked makes the size durable if wanted, and of each page as many bytes as keep says, then forgets the rest.
func (f *file) keepLocked(size bool, keep func(page int64) int) error {
	st, err := f.backing.Stat()
	if err != nil {
		return err
	}
	end := st.Size()
	if size && f.resized {
		if f.cut < end {
			if err := f.backing.Truncate(f.cut); err != nil {
				return err
			}
		}
		if err := f.backing.Truncate(f.size); err != nil {
			return err
		}
		end = f.size
	}
	for n, page := range f.pages {
		count := min(int64(keep(n)), end-n*pageSize)
		if count <= 0 {
			continue
		}
		if _, err := f.backing.WriteAt(page[:count], n*pageSize); err != nil {
			return err
		}
	}
	clear(f.pages)
	f.resized = false
	f.cut = end
	return nil
}

// loseSome keeps the size, and each page, or sectors from its begin, at random.
func (f *file) loseSome(rng *rand.Rand) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	numbers := make([]int64, 0, len(f.pages)) // in order, so that a seed means one image
	for n := range f.pages {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	size := rng.IntN(2) == 0
	keep := make(map[int64]int, len(numbers))
	for _, n := range numbers {
		switch rng.IntN(8) {
		case 0:
			keep[n] = sectorSize * (1 + rng.IntN(pageSize/sectorSize-1)) // torn
		case 1, 2, 3:
			keep[n] = pageSize
		}
	}
	return f.keepLocked(size, func(n int64) int { return keep[n] })
}

// nameOp is a change of names that is not durable yet.
type nameOp struct {
	dir  uint64              // inode of the folder whose sync makes it durable
	undo func(dir int) error // dir is a descriptor of that folder
	done func()              // when it is durable: removes what undo would have needed; may be nil
	fd   int                 // of the folder, wherever it is now
	path string              // of the folder, as it was
}

func (o *nameOp) close() { _ = syscall.Close(o.fd) }

// takeBack undoes the change, unless its folder is durably gone.
func (o *nameOp) takeBack() error {
	if !removed(o.fd) {
		return o.undo(o.fd)
	}
	// The folder was removed; where that has been undone, it is another one under the same name.
	fd, err := syscall.Open(o.path, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if errors.Is(err, syscall.ENOENT) {
		if o.done != nil {
			o.done()
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	return o.undo(fd)
}

func removed(dir int) bool {
	var st syscall.Stat_t
	return syscall.Fstat(dir, &st) == nil && st.Nlink == 0
}

// syncNames makes the changes of one folder durable.
func (d *Disk) syncNames(dir uint64) {
	d.state.Lock()
	defer d.state.Unlock()
	d.state.names = slices.DeleteFunc(d.state.names, func(o nameOp) bool {
		if o.dir != dir {
			return false
		}
		if o.done != nil {
			o.done()
		}
		o.close()
		return true
	})
}

// lose turns the backing folder into what a disk could hold after a loss of power. Nothing is mounted; mu is held.
func (d *Disk) lose(loss Loss, rng *rand.Rand) error {
	d.state.Lock()
	defer d.state.Unlock()
	var errs error
	inodes := make([]uint64, 0, len(d.state.files))
	for ino := range d.state.files {
		inodes = append(inodes, ino)
	}
	slices.Sort(inodes)
	for _, ino := range inodes {
		f := d.state.files[ino]
		if loss == Some {
			errs = errors.Join(errs, f.loseSome(rng))
		}
		errs = errors.Join(errs, f.backing.Close())
	}
	kept := 0
	if loss == Some {
		kept = rng.IntN(len(d.state.names) + 1)
	}
	for i := len(d.state.names) - 1; i >= 0; i-- {
		o := d.state.names[i]
		if i >= kept {
			if err := o.takeBack(); err != nil {
				errs = errors.Join(errs, fmt.Errorf("in %s: %w", o.path, err))
			}
		} else if o.done != nil {
			o.done()
		}
		o.close()
	}
	d.state.files, d.state.names = nil, nil
	return errs
}
