// Package faultfile is a test twin of mappedfile's file system, in memory: it fails on demand, and
// its power can be cut at any moment. Production code does not import it.
//
// It keeps two states of each file and folder: what the process sees, and what is on disk. Only
// Sync, SyncRange, SyncDir and WriteFile move something from the first to the second. Crash makes
// a disk of which any page that was not synced may be old, new, or torn between sectors, as the
// kernel may write mapped pages at any time; entries of a folder and sizes of its files that were
// not synced come back as a prefix of what was done to them, as journaling file systems keep
// their order. (So a new file can be empty, and a file made after it absent, but not the other way round.)
//
// It has no page faults and no timing.
package faultfile

import (
	"errors"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path"
	"slices"
	"sort"
	"strings"
	"sync"

	"raftmq/commitlog/mappedfile"
)

// Errors that the twin injects.
var (
	// ErrInjected is the default error of a failing operation.
	ErrInjected = errors.New("faultfile: injected error")
	// ErrPowerCut: the power went off at this operation or before.
	ErrPowerCut = errors.New("faultfile: power cut")
)

const (
	pageSize   = mappedfile.PageSize
	sectorSize = 512
)

// FS implements mappedfile.FS. Its zero value is not usable; see New.
type FS struct {
	mu      sync.Mutex
	seen    map[string]*inode // by path; the running process's view
	disk    map[string]*inode // what SyncDir has made durable
	pending map[string][]entryOp
	dirs    map[string]bool

	ops    int
	failAt map[int]error
	cutAt  int // operation from which on the power is off; -1 never
	trace  []string
}

var _ mappedfile.FS = (*FS)(nil)

// inode is a file's content, apart from its names.
type inode struct {
	mem    []byte // as mapped
	disk   []byte // as durable; its length is the durable size
	mapped bool
	// lost are pages whose sync failed: the kernel calls them clean, so that a later sync leaves them
	// out as long as they do not change again (F33).
	lost map[int][]byte
}

// entryOp is one change of a folder that is not durable: name → inode, nil for a removal, or
// the size of an inode. A rename is two changes that happen together.
type entryOp []change

type change struct {
	path  string
	node  *inode
	sized bool // the size of node was set to size, its name is as it was
	size  int
}

// New returns an empty file system.
func New() *FS {
	return &FS{
		seen: map[string]*inode{}, disk: map[string]*inode{}, pending: map[string][]entryOp{}, dirs: map[string]bool{},
		failAt: map[int]error{}, cutAt: -1,
	}
}

// FailAt lets operation i (from 0) fail once with err (nil: ErrInjected), without effect.
func (f *FS) FailAt(i int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		err = ErrInjected
	}
	f.failAt[i] = err
}

// CutAt switches the power off at operation i: it and all later ones are ErrPowerCut.
func (f *FS) CutAt(i int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cutAt = i
}

// Ops is how many operations were asked for.
func (f *FS) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

// Trace lists the operations by name and path, for messages.
func (f *FS) Trace() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.trace)
}

// step counts an operation and returns its error. f.mu is held.
func (f *FS) step(name, path string) error {
	i := f.ops
	f.ops++
	f.trace = append(f.trace, name+" "+path)
	if f.cutAt >= 0 && i >= f.cutAt {
		return &fs.PathError{Op: name, Path: path, Err: ErrPowerCut}
	}
	if err, ok := f.failAt[i]; ok {
		return &fs.PathError{Op: name, Path: path, Err: err}
	}
	return nil
}

func (f *FS) change(op ...change) {
	applyTo(f.seen, op)
	dir := path.Dir(op[0].path)
	f.pending[dir] = append(f.pending[dir], op)
}

// MkdirAll implements mappedfile.FS. Folders are durable at once.
func (f *FS) MkdirAll(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step("mkdir", dir); err != nil {
		return err
	}
	for ; dir != "." && dir != "/" && !f.dirs[dir]; dir = path.Dir(dir) {
		f.dirs[dir] = true
	}
	return nil
}

// ReadDir implements mappedfile.FS.
func (f *FS) ReadDir(dir string) ([]mappedfile.Entry, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step("readdir", dir); err != nil {
		return nil, err
	}
	if !f.dirs[dir] {
		return nil, &fs.PathError{Op: "readdir", Path: dir, Err: fs.ErrNotExist}
	}
	var list []mappedfile.Entry
	for p, node := range f.seen {
		if path.Dir(p) == dir {
			list = append(list, mappedfile.Entry{Name: path.Base(p), Size: int64(len(node.mem))})
		}
	}
	for p := range f.dirs {
		if path.Dir(p) == dir {
			list = append(list, mappedfile.Entry{Name: path.Base(p), Dir: true})
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list, nil
}

// Create implements mappedfile.FS.
func (f *FS) Create(p string, size int64) (mappedfile.Handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step("create", p); err != nil {
		return nil, err
	}
	if f.seen[p] != nil {
		return nil, &fs.PathError{Op: "create", Path: p, Err: fs.ErrExist}
	}
	node := &inode{mem: make([]byte, size)}
	f.change(change{path: p, node: node})
	f.change(change{path: p, node: node, sized: true, size: int(size)})
	return &handle{fs: f, path: p, node: node}, nil
}

// Open implements mappedfile.FS.
func (f *FS) Open(p string, _ bool) (mappedfile.Handle, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step("open", p); err != nil {
		return nil, err
	}
	node := f.seen[p]
	if node == nil {
		return nil, &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
	}
	return &handle{fs: f, path: p, node: node}, nil
}

// Remove implements mappedfile.FS.
func (f *FS) Remove(p string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step("remove", p); err != nil {
		return err
	}
	if f.seen[p] == nil {
		return &fs.PathError{Op: "remove", Path: p, Err: fs.ErrNotExist}
	}
	f.change(change{path: p})
	return nil
}

// Rename implements mappedfile.FS, within one folder.
func (f *FS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step("rename", to); err != nil {
		return err
	}
	node := f.seen[from]
	if node == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	f.change(change{path: from}, change{path: to, node: node})
	return nil
}

// SyncDir implements mappedfile.FS.
func (f *FS) SyncDir(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step("syncdir", dir); err != nil {
		return err
	}
	for _, op := range f.pending[dir] {
		applyTo(f.disk, op) // entries only: a size needs the file's own sync
	}
	delete(f.pending, dir)
	return nil
}

func applyTo(names map[string]*inode, op entryOp) {
	for _, c := range op {
		switch {
		case c.sized:
		case c.node == nil:
			delete(names, c.path)
		default:
			names[c.path] = c.node
		}
	}
}

// ReadFile implements mappedfile.FS.
func (f *FS) ReadFile(p string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step("readfile", p); err != nil {
		return nil, err
	}
	node := f.seen[p]
	if node == nil {
		return nil, &fs.PathError{Op: "readfile", Path: p, Err: fs.ErrNotExist}
	}
	return slices.Clone(node.mem), nil
}

// WriteFile implements mappedfile.FS.
func (f *FS) WriteFile(p string, b []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	node := f.seen[p]
	if node == nil {
		node = &inode{}
		f.change(change{path: p, node: node})
	}
	node.mem = slices.Clone(b) // also when it fails: then any part of it may be on disk
	if err := f.step("writefile", p); err != nil {
		return err
	}
	node.disk = slices.Clone(b)
	return nil
}

// Corrupt changes the bytes of a file that is not open, seen and durable alike: bit rot.
func (f *FS) Corrupt(p string, change func(b []byte) []byte) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	node := f.seen[p]
	if node == nil {
		return &fs.PathError{Op: "corrupt", Path: p, Err: fs.ErrNotExist}
	}
	node.mem = change(slices.Clone(node.mem))
	node.disk = slices.Clone(node.mem)
	return nil
}

// Files lists the paths of all files below dir.
func (f *FS) Files(dir string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []string
	for p := range f.seen {
		if strings.HasPrefix(p, dir+"/") {
			list = append(list, p)
		}
	}
	slices.Sort(list)
	return list
}

// Loss chooses what a crash leaves of what was not synced.
type Loss uint8

// Choices of Crash.
const (
	LoseNothing Loss = iota // the process was killed, the machine lives: a later power cut may still lose it
	LoseAll                 // nothing that was not synced is there
	LoseSome                // each entry and page by chance, pages torn too
)

// Crash returns the disk as the next start finds it. f must be at rest and is not usable afterwards.
func (f *FS) Crash(loss Loss, rng *rand.Rand) *FS {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := New()
	for d := range f.dirs {
		next.dirs[d] = true
	}
	if loss == LoseNothing {
		f.copyTo(next)
		return next
	}
	names, sizes := f.names(loss, rng)
	paths := make([]string, 0, len(names))
	for p := range names {
		paths = append(paths, p)
	}
	slices.Sort(paths) // a seed gives one image
	for _, p := range paths {
		b := names[p].image(loss, max(sizes[names[p]], len(names[p].disk)), rng)
		node := &inode{mem: b, disk: slices.Clone(b)}
		next.seen[p], next.disk[p] = node, node
	}
	return next
}

// copyTo gives next the same files in the same state: the page cache outlives the process.
func (f *FS) copyTo(next *FS) {
	copies := map[*inode]*inode{nil: nil}
	clone := func(n *inode) *inode {
		if c, ok := copies[n]; ok {
			return c
		}
		c := &inode{mem: slices.Clone(n.mem), disk: slices.Clone(n.disk), lost: maps.Clone(n.lost)}
		copies[n] = c
		return c
	}
	for p, n := range f.seen {
		next.seen[p] = clone(n)
	}
	for p, n := range f.disk {
		next.disk[p] = clone(n)
	}
	for d, ops := range f.pending {
		for _, op := range ops {
			op = slices.Clone(op)
			for i := range op {
				op[i].node = clone(op[i].node)
			}
			next.pending[d] = append(next.pending[d], op)
		}
	}
}

// names returns the entries that are found, and the sizes that their folder's changes gave them.
func (f *FS) names(loss Loss, rng *rand.Rand) (names map[string]*inode, sizes map[*inode]int) {
	names, sizes = make(map[string]*inode, len(f.disk)), make(map[*inode]int)
	for p, node := range f.disk {
		names[p] = node
	}
	dirs := make([]string, 0, len(f.pending))
	for d := range f.pending {
		dirs = append(dirs, d)
	}
	slices.Sort(dirs)
	for _, d := range dirs {
		ops := f.pending[d]
		n := len(ops)
		switch loss {
		case LoseAll:
			n = 0
		case LoseSome:
			n = rng.IntN(n + 1)
		}
		for _, op := range ops[:n] {
			applyTo(names, op)
			for _, c := range op {
				if c.sized {
					sizes[c.node] = c.size
				}
			}
		}
	}
	return names, sizes
}

// image is the content that is found.
func (n *inode) image(loss Loss, size int, rng *rand.Rand) []byte {
	if loss == LoseAll {
		return slices.Clone(n.disk)
	}
	b := make([]byte, size)
	copy(b, n.disk)
	for at := 0; at < size && at < len(n.mem); at += pageSize {
		end := min(at+pageSize, size, len(n.mem))
		choice := rng.IntN(4)
		if old := n.lost[at/pageSize]; old != nil && slices.Equal(old[:end-at], n.mem[at:end]) {
			choice = 0
		}
		switch choice {
		case 0: // old
		case 1, 2: // new
			copy(b[at:end], n.mem[at:end])
		case 3: // torn
			for s := at; s < end; s += sectorSize {
				if rng.IntN(2) == 0 {
					copy(b[s:min(s+sectorSize, end)], n.mem[s:min(s+sectorSize, end)])
				}
			}
		}
	}
	return b
}
