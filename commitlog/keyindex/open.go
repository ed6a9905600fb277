package keyindex

import (
	"errors"
	"fmt"
	"path/filepath"

	"raftmq/commitlog/mappedfile"
)

// Open opens the index of a log whose records are in [low, end). What its recovery point does not
// vouch for is removed: files are missing, odd or damaged, of other sizes than c's, ahead of
// the log, or newer than the point. From tells where to feed the log from. Damage is no error, it
// is told in the log once. Other files than index files are left alone.
func Open(c Config, low, end int64) (*Index, error) {
	if err := c.fillIn(); err != nil {
		return nil, err
	}
	ix := &Index{c: c, fs: c.FS, logger: c.Logger.Named("keyindex"), point: pointFile{fs: c.FS, path: c.Point}}
	ix.files.Store(&[]*file{})
	if err := ix.load(low, end); err != nil {
		for _, f := range ix.list() {
			f.release()
		}
		return nil, err
	}
	ix.mark = Mark{next: ix.next, files: ix.list()}
	if n := len(ix.mark.files); n > 0 {
		ix.mark.header = ix.mark.files[n-1].header
	}
	return ix, nil
}

func (ix *Index) load(low, end int64) error {
	if err := ix.fs.MkdirAll(ix.c.Dir); err != nil {
		return fmt.Errorf("keyindex: %w", err)
	}
	sizes, err := ix.sizes()
	if err != nil {
		return err
	}
	p, ok, err := ix.point.read()
	if err != nil {
		return err
	}
	var why error
	switch {
	case !ok && len(sizes) == 0:
		// New, or switched on just now.
	case !ok:
		why = errors.New("there is no whole recovery point")
	case int(p.slots) != ix.c.Slots || int(p.entries) != ix.c.Entries:
		why = fmt.Errorf("files had %d slots and %d entries, are to have %d and %d", p.slots, p.entries, ix.c.Slots, ix.c.Entries)
	case p.next.phyOffset > end:
		why = fmt.Errorf("recovery point is at physical offset %d, the log ends at %d", p.next.phyOffset, end)
	default:
		if why, err = ix.openFiles(p, sizes); err != nil {
			return err
		}
	}
	if ok {
		ix.point.written = *p
		ix.next = p.next
	}
	if why != nil || !ok {
		if ix.next, err = endOf(ix.list()); err != nil {
			return err
		}
	}
	if ix.next.phyOffset < low {
		ix.next = position{low, 0} // of older records there is nothing to find
	}
	if why != nil {
		ix.logger.Warn("building key index again from the log", "reason", why, "kept-files", len(ix.list()),
			"from", ix.next.phyOffset, "to", end)
		if err := ix.point.replace(ix.kept(ix.list())); err != nil {
			return fmt.Errorf("keyindex: %w", err)
		}
	}
	return ix.removeOthers(sizes)
}

// sizes lists the index files by name. Others are told, and are nobody's business here.
func (ix *Index) sizes() (map[int64]int64, error) {
	entries, err := ix.fs.ReadDir(ix.c.Dir)
	if err != nil {
		return nil, fmt.Errorf("keyindex: %w", err)
	}
	sizes := map[int64]int64{}
	for _, e := range entries {
		name, ok := parseName(e.Name)
		if e.Dir || !ok {
			ix.logger.Warn("ignoring what is no index file", "path", filepath.Join(ix.c.Dir, e.Name))
			continue
		}
		sizes[name] = e.Size
		ix.minName = max(ix.minName, nameAfter(name))
	}
	return sizes, nil
}

// openFiles opens the files of p up to the first one that isn't what p says, and why it isn't.
func (ix *Index) openFiles(p *point, sizes map[int64]int64) (why, err error) {
	for i, want := range p.files {
		path := filepath.Join(ix.c.Dir, fileName(want.name))
		size, ok := sizes[want.name]
		if !ok {
			return fmt.Errorf("%w: %s is missing", ErrDamaged, path), nil
		}
		if size != ix.fileSize() {
			return fmt.Errorf("%w: %s has %d bytes, expected %d", ErrDamaged, path, size, ix.fileSize()), nil
		}
		f, err := ix.openFile(want, i == len(p.files)-1)
		// Without space it can't be written, but it can give some back.
		if errors.Is(err, ErrDamaged) || errors.Is(err, mappedfile.ErrNoSpace) {
			return fmt.Errorf("%s: %w", path, err), nil
		}
		if err != nil {
			return nil, fmt.Errorf("keyindex: open %s: %w", path, err)
		}
		files := append(ix.list()[:i:i], f)
		ix.files.Store(&files)
	}
	return nil, nil
}

// openFile opens one file as the point says it is.
func (ix *Index) openFile(want pointed, last bool) (*file, error) {
	var slots []int32
	if last {
		var err error
		if slots, err = ix.scan(want); err != nil {
			return nil, err
		}
	}
	f, err := ix.open(want.name)
	if err != nil {
		return nil, err
	}
	f.header, f.summed, f.sum = want.header, want.header.Count, want.sum
	if last {
		err = f.restore(ix, slots)
	} else {
		f.named, f.whole = true, true
		f.allocated = ix.fileSize()
		err = f.compare(want.header)
	}
	if err != nil {
		return nil, errors.Join(err, f.handle.Close())
	}
	return f, nil
}

// scan reads all entries of the last file, in order and with a mapping for that, and returns what
// its slots must be.
func (ix *Index) scan(want pointed) (slots []int32, err error) {
	h, err := ix.fs.Open(filepath.Join(ix.c.Dir, fileName(want.name)), true)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	b, err := h.Map(ix.fileSize(), false)
	if err != nil {
		return nil, err
	}
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	t, err := NewTable(b, ix.c.Slots)
	if err != nil {
		return nil, err
	}
	if got := t.sum(0, 1, want.header.Count); got != want.sum {
		return nil, fmt.Errorf("%w: checksum of %d entries is %#x, expected %#x", ErrDamaged, want.header.Count-1, got, want.sum)
	}
	return t.chains(want.header)
}

// compare looks at both ends of a full file. A query looks at what it reads.
func (f *file) compare(want Header) (err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	if got := f.table.Header(); got != want {
		return fmt.Errorf("%w: header %+v, expected %+v", ErrDamaged, got, want)
	}
	return f.table.ends(want)
}

// restore gives the last file the slots and header that go with its durable entries, and zeroes
// what is behind these.
func (f *file) restore(ix *Index, slots []int32) (err error) {
	used := FileSize(ix.c.Slots, int(f.header.Count))
	if err := f.allocate(ix, used); err != nil {
		return err
	}
	if used < ix.fileSize() {
		if _, err := f.handle.Zero(used, ix.fileSize()-used); err != nil {
			return err
		}
		f.allocated = used // blocks behind it may be gone
	}
	if err := f.restoreSlots(slots); err != nil {
		return err
	}
	// An earlier process may have stopped because a sync had failed, and the kernel then calls
	// pages clean that are not on disk (F33).
	return f.handle.Dirty(0, FileSize(ix.c.Slots, 0))
}

func (f *file) restoreSlots(slots []int32) (err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	for slot, v := range slots {
		if f.table.Slot(slot) != v {
			f.table.putSlot(slot, v)
		}
	}
	putHeader(f.table.b, f.header)
	return nil
}

// endOf is where the log must be fed from behind files: at the record of their last entry, of
// which the rest of the keys may be missing.
func endOf(files []*file) (end position, err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	for n := len(files) - 1; n >= 0; n-- {
		f := files[n]
		i := f.header.Count - 1
		if n == len(files)-1 {
			end.phyOffset = f.header.EndPhyOffset
		}
		for i > 0 && f.table.Entry(int(i)).PhyOffset == end.phyOffset {
			end.keys++
			i--
		}
		if i > 0 {
			break
		}
	}
	return end, nil
}

// kept is the point of files that are durable, as the index stands.
func (ix *Index) kept(files []*file) point {
	p := point{next: ix.next, slots: int32(ix.c.Slots), entries: int32(ix.c.Entries)}
	for _, f := range files {
		p.files = append(p.files, pointed{f.name, f.header, f.sum})
	}
	return p
}

// removeOthers removes index files that are not in use.
func (ix *Index) removeOthers(sizes map[int64]int64) error {
	for _, f := range ix.list() {
		delete(sizes, f.name)
	}
	for name := range sizes {
		if err := ix.fs.Remove(filepath.Join(ix.c.Dir, fileName(name))); err != nil {
			return fmt.Errorf("keyindex: %w", err)
		}
	}
	if len(sizes) == 0 {
		return nil
	}
	if err := ix.fs.SyncDir(ix.c.Dir); err != nil {
		return fmt.Errorf("keyindex: %w", err)
	}
	return nil
}

// Reset removes everything, durably; the log is to be fed from low. Not beside the writer.
func (ix *Index) Reset(low int64) error {
	ix.flushMu.Lock()
	defer ix.flushMu.Unlock()
	ix.damaged.Store(nil)
	return ix.cut(0, low)
}

// Repair drops, durably, the file that a query has found damaged and all later ones; From tells
// where the log, which begins at low, must be fed from. It does nothing when there is none. Not
// beside the writer.
func (ix *Index) Repair(low int64) error {
	ix.flushMu.Lock()
	defer ix.flushMu.Unlock()
	f := ix.damaged.Swap(nil)
	if f == nil {
		return nil
	}
	for i, other := range ix.list() {
		if other == f {
			ix.logger.Warn("building key index again from the log", "reason", "it is damaged", "path", f.path, "kept-files", i)
			return ix.cut(i, low)
		}
	}
	return nil
}

// cut keeps the first n files, or less when they are not durable yet.
func (ix *Index) cut(n int, low int64) error {
	if err := ix.usable(); err != nil {
		return err
	}
	files := ix.list()
	for n > 0 && !files[n-1].whole {
		n--
	}
	kept, dropped := files[:n:n], files[n:]
	var err error
	if ix.next, err = endOf(kept); err != nil {
		return ix.fail(err)
	}
	if ix.next.phyOffset < low {
		ix.next = position{low, 0}
	}
	if err := ix.point.replace(ix.kept(kept)); err != nil {
		return ix.fail(err)
	}
	ix.generation++
	ix.waiting = 0
	ix.mu.Lock()
	ix.files.Store(&kept)
	ix.mark = Mark{generation: ix.generation, next: ix.next, files: kept}
	if n > 0 {
		ix.mark.header = kept[n-1].header
	}
	ix.mu.Unlock()
	return ix.removeFiles(dropped)
}
