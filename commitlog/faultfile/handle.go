package faultfile

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
)

// handle implements mappedfile.Handle. The mapping is the inode's memory itself.
type handle struct {
	fs     *FS
	path   string
	node   *inode
	closed bool
}

func (h *handle) step(name string) error {
	if h.closed {
		panic(fmt.Sprintf("faultfile: %s of %s after close", name, h.path))
	}
	return h.fs.step(name, h.path)
}

func (h *handle) Truncate(size int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.step("truncate"); err != nil {
		return err
	}
	if h.node.mapped {
		panic("faultfile: truncate of a mapped file: " + h.path)
	}
	mem := make([]byte, size)
	copy(mem, h.node.mem)
	h.node.mem = mem
	h.fs.change(change{path: h.path, node: h.node, sized: true, size: int(size)})
	return nil
}

func (h *handle) Allocate(off, n int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if off < 0 || n <= 0 || off+n > int64(len(h.node.mem)) {
		panic(fmt.Sprintf("faultfile: allocate %d bytes at %d of %s with %d", n, off, h.path, len(h.node.mem)))
	}
	return h.step("allocate")
}

func (h *handle) Zero(off, n int64) (changed bool, err error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.step("zero"); err != nil {
		return false, err
	}
	b := h.node.mem[off : off+n]
	changed = len(bytes.TrimLeft(b, "\x00")) > 0
	clear(b)
	return changed, nil
}

func (h *handle) Map(size int64, _ bool) ([]byte, error) {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.step("map"); err != nil {
		return nil, err
	}
	if size > int64(len(h.node.mem)) {
		panic(fmt.Sprintf("faultfile: map %d bytes of %s with %d", size, h.path, len(h.node.mem)))
	}
	h.node.mapped = true
	return h.node.mem[:size:size], nil
}

func (h *handle) Dirty(off, n int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.step("dirty"); err != nil {
		return err
	}
	for at := off / pageSize; at*pageSize < off+n; at++ {
		delete(h.node.lost, int(at))
	}
	return nil
}

func (h *handle) WriteAt(b []byte, off int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if off < 0 || off+int64(len(b)) > int64(len(h.node.mem)) {
		panic(fmt.Sprintf("faultfile: write of %d bytes at %d of %s with %d", len(b), off, h.path, len(h.node.mem)))
	}
	err := h.step("writeat")
	if err != nil {
		b = b[:len(b)/2] // a part of it
	}
	copy(h.node.mem[off:], b)
	return err
}

func (h *handle) Sync() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	err := h.step("sync")
	// The size first: a file whose pages could not be written may have got it.
	if err == nil {
		h.node.grow(len(h.node.mem))
	}
	h.node.sync(0, len(h.node.mem), err)
	return err
}

func (h *handle) SyncSize() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	if err := h.step("syncsize"); err != nil {
		return err
	}
	h.node.grow(len(h.node.mem))
	return nil
}

func (h *handle) SyncRange(off, n int64) error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	err := h.step("syncrange")
	h.node.sync(int(off-off%pageSize), int(off+n), err)
	return err
}

func (h *handle) Close() error {
	h.fs.mu.Lock()
	defer h.fs.mu.Unlock()
	h.closed = true
	h.node.mapped = false
	return nil
}

// grow makes a size durable.
func (n *inode) grow(size int) {
	if size <= len(n.disk) {
		return
	}
	disk := make([]byte, size)
	copy(disk, n.disk)
	n.disk = disk
}

// sync copies [from, to) to the disk. Bytes behind the durable size get lost with it. Only the
// range is read: behind it the writer may be at work.
func (n *inode) sync(from, to int, err error) {
	if errors.Is(err, ErrPowerCut) {
		return
	}
	for at := from; at < to; at += pageSize {
		end := min(at+pageSize, to)
		page := n.mem[at:end]
		if err != nil {
			if n.lost == nil {
				n.lost = map[int][]byte{}
			}
			lost := make([]byte, pageSize)
			copy(lost, page)
			n.lost[at/pageSize] = lost
			continue
		}
		if old := n.lost[at/pageSize]; old != nil {
			if slices.Equal(old[:len(page)], page) {
				continue
			}
			delete(n.lost, at/pageSize)
		}
		if at < len(n.disk) {
			copy(n.disk[at:min(end, len(n.disk))], page)
		}
	}
}
