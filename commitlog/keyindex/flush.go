package keyindex

import (
	"errors"
	"fmt"

	"raftmq/commitlog/mappedfile"
)

// Mark is a state of the index as of a Commit. It holds no resources.
type Mark struct {
	generation uint64
	next       position
	files      []*file
	header     Header // of the last file
}

// PhyOffset is the end of the log whose keys the mark covers.
func (m Mark) PhyOffset() int64 { return m.next.phyOffset }

// Mark is the state as of the last Commit. Any goroutine.
func (ix *Index) Mark() Mark {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	return ix.mark
}

// Flushed is the physical offset up to which the point on disk vouches for the index: where an
// Open now would begin.
func (ix *Index) Flushed() int64 {
	ix.flushMu.Lock()
	defer ix.flushMu.Unlock()
	return ix.point.written.next.phyOffset
}

// FlushedEnd is the end timestamp of the newest file that is full and durable, ms, 0 when there is none (RocketMQ's
// indexMsgTimestamp).
func (ix *Index) FlushedEnd() int64 {
	ix.flushMu.Lock()
	defer ix.flushMu.Unlock()
	if files := ix.point.written.files; len(files) > 1 {
		return files[len(files)-2].header.EndTimestamp
	}
	return 0
}

// Flush makes the entries of m durable and moves the point there (Point-Behind-All). The log up to
// m.PhyOffset must be durable before, or the next Open finds the index ahead of it and drops it.
// Of a file that was filled since, all bytes are made durable, slots too, before a point names
// the next one. After a failed sync the index is of no use (ErrFailed). mappedfile.ErrNoSpace:
// the point could not be moved, it may be tried again. Any goroutine.
func (ix *Index) Flush(m Mark) error {
	ix.flushMu.Lock()
	defer ix.flushMu.Unlock()
	if err := ix.usable(); err != nil {
		return err
	}
	written := &ix.point.written
	if m.generation != ix.generation || m.next == written.next {
		return nil
	}
	p := point{next: m.next, slots: int32(ix.c.Slots), entries: int32(ix.c.Entries)}
	now := ix.list()
	synced := true
	for i, f := range m.files {
		if f.name < now[0].name {
			continue // removed since
		}
		h, last := m.header, i == len(m.files)-1
		if !last {
			h = f.header // of a full file: nobody writes it
		}
		if err := ix.flushFile(f, h, !last, &synced); err != nil {
			return ix.fail(err)
		}
		p.files = append(p.files, pointed{f.name, h, f.sum})
	}
	if !synced {
		if err := ix.fs.SyncDir(ix.c.Dir); err != nil {
			return ix.fail(err)
		}
		for _, f := range m.files {
			f.named = true
		}
	}
	return ix.writePoint(p)
}

// writePoint moves the point. A full disk is no failure: the point stays where it was.
func (ix *Index) writePoint(p point) error {
	err := ix.point.write(p)
	if err != nil && !errors.Is(err, mappedfile.ErrNoSpace) {
		err = ix.fail(err)
	}
	return err
}

// flushFile makes the entries that h counts durable, and a full file as a whole. synced
// becomes false when the folder needs a sync.
func (ix *Index) flushFile(f *file, h Header, full bool, synced *bool) (err error) {
	if !f.named {
		*synced = false
		if err := f.handle.SyncSize(); err != nil {
			return fmt.Errorf("sync %s: %w", f.path, err)
		}
	}
	switch from, to := f.table.entryAt(int(f.summed)), f.table.entryAt(int(h.Count)); {
	case full && !f.whole: // nobody writes it any more
		if err := f.handle.Sync(); err != nil {
			return fmt.Errorf("sync %s: %w", f.path, err)
		}
		f.whole = true
	case from < to:
		if err := f.handle.SyncRange(int64(from), int64(to-from)); err != nil {
			return fmt.Errorf("sync %s bytes %d to %d: %w", f.path, from, to, err)
		}
	}
	if f.summed >= h.Count {
		return nil
	}
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	f.sum = f.table.sum(f.sum, f.summed, h.Count)
	f.summed = h.Count
	return nil
}

// DeleteBefore removes the oldest files while all their records begin below phyOffset, the
// log's first byte, but never the last file (RocketMQ's deleteExpiredFile). Readers of a removed
// file finish with it.
func (ix *Index) DeleteBefore(phyOffset int64) (removed int, err error) {
	ix.flushMu.Lock()
	defer ix.flushMu.Unlock()
	if err := ix.usable(); err != nil {
		return 0, err
	}
	files := ix.list()
	for removed < len(files)-1 && files[removed].header.EndPhyOffset < phyOffset {
		removed++
	}
	if removed == 0 {
		return 0, nil
	}
	p := ix.point.written
	for len(p.files) > 0 && p.files[0].name < files[removed].name {
		p.files = p.files[1:]
	}
	// First the point: files that it doesn't name are removed by Open, a missing one is damage.
	if err := ix.writePoint(p); err != nil {
		return 0, err
	}
	ix.mu.Lock()
	now := append([]*file(nil), ix.list()[removed:]...) // the writer may have added one
	ix.files.Store(&now)
	ix.mu.Unlock()
	return removed, ix.removeFiles(files[:removed])
}

// removeFiles takes files that are no longer listed from the disk and lets go of them.
func (ix *Index) removeFiles(files []*file) error {
	var errs []error
	for _, f := range files {
		if err := ix.fs.Remove(f.path); err != nil {
			errs = append(errs, fmt.Errorf("keyindex: %w", err))
		}
		f.release()
	}
	if len(files) > 0 {
		errs = append(errs, ix.fs.SyncDir(ix.c.Dir))
	}
	return errors.Join(errs...)
}
