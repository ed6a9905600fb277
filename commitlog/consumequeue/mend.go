package consumequeue

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"raftmq/commitlog/mappedfile"
)

// Mend looks for files of q that somebody has removed or cut while the set was open, and makes them again: of a removed one what is still mapped, of others zeros, which are no units: lost is the
// first of them, Max when there is none. They follow from the log (Rewrite). mended is false when all files are as they should be; then a fault had another
// cause. Beside readers, the writer and flushes.
func (s *Set) Mend(q *Queue) (lost int64, mended bool, err error) {
	q.rw.Lock()
	defer q.rw.Unlock()
	end := q.max.Load()
	lost = end
	if end == 0 || s.closed.Load() {
		return lost, false, nil
	}
	sizes := map[string]int64{}
	list, err := s.fs().ReadDir(q.dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return lost, false, fmt.Errorf("consumequeue %s/%d: %w", q.topic, q.id, err)
	}
	for _, e := range list {
		sizes[e.Name] = e.Size
	}
	files := q.files.Load()
	gone := false
	for first := q.begin.Load() - q.begin.Load()%q.inFile; first < end; first += q.inFile {
		name := fmt.Sprintf("%020d", first*UnitSize)
		size, there := sizes[name]
		switch {
		case !there:
			kept, err := s.makeAgain(q, files, filepath.Join(q.dir, name), first)
			if err != nil {
				return lost, false, err
			}
			if !kept {
				lost = min(lost, max(first, q.min.Load()))
			}
			gone, mended = true, true
		case size < s.opts.FileSize:
			if err := s.extendAgain(q, filepath.Join(q.dir, name)); err != nil {
				return lost, false, err
			}
			lost, mended = min(lost, max(first+size/UnitSize, q.min.Load())), true
		}
	}
	if !mended {
		return lost, false, nil
	}
	if err := s.fs().SyncDir(q.dir); err != nil {
		return lost, false, fmt.Errorf("consumequeue %s/%d: %w", q.topic, q.id, err)
	}
	if gone && files != nil {
		// What is mapped is not what is there now. Nobody writes meanwhile, and who reads keeps its view.
		if _, err := files.Flush(0); err != nil {
			return lost, false, fmt.Errorf("consumequeue %s/%d: %w", q.topic, q.id, err)
		}
		if err := q.pool.drop(q); err != nil {
			return lost, false, fmt.Errorf("consumequeue %s/%d: %w", q.topic, q.id, err)
		}
	}
	return lost, true, nil
}

// makeAgain writes a removed file, durably. kept: with all of its units.
func (s *Set) makeAgain(q *Queue, files *mappedfile.Queue, path string, first int64) (kept bool, err error) {
	if err := s.fs().MkdirAll(q.dir); err != nil {
		return false, fmt.Errorf("consumequeue %s/%d: %w", q.topic, q.id, err)
	}
	h, err := s.fs().Create(path, s.opts.FileSize)
	if err != nil {
		return false, fmt.Errorf("consumequeue %s/%d: make %s again: %w", q.topic, q.id, path, err)
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	if files != nil {
		if kept, err = copyFile(h, files, first*UnitSize, s.opts.FileSize); err != nil {
			return false, fmt.Errorf("consumequeue %s/%d: make %s again: %w", q.topic, q.id, path, err)
		}
	}
	return kept, h.Sync()
}

// copyFile writes what is mapped of a file; whole is false when there is nothing.
func copyFile(h mappedfile.Handle, files *mappedfile.Queue, from, size int64) (whole bool, err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	v, err := files.View(max(from, files.MinOffset()), int(size))
	if errors.Is(err, mappedfile.ErrOutOfRange) || errors.Is(err, mappedfile.ErrClosed) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer v.Release()
	at := max(from, files.MinOffset()) - from
	if err := h.Allocate(0, at+int64(len(v.Bytes))); err != nil && !errors.Is(err, mappedfile.ErrUnsupported) {
		return false, err
	}
	if _, err := h.Map(size, true); err != nil {
		return false, err
	}
	return true, h.WriteAt(v.Bytes, at)
}

// extendAgain gives a cut file its size back: what is mapped of it is there again, as zeros.
func (s *Set) extendAgain(q *Queue, path string) (err error) {
	h, err := s.fs().Open(path, false)
	if err != nil {
		return fmt.Errorf("consumequeue %s/%d: %w", q.topic, q.id, err)
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	err = h.Truncate(s.opts.FileSize)
	if err == nil {
		// Blocks too: a mapped write on a full disk is a fault.
		if err = h.Allocate(0, s.opts.FileSize); errors.Is(err, mappedfile.ErrUnsupported) {
			err = nil
		}
	}
	if err == nil {
		err = h.Sync()
	}
	if err != nil {
		return fmt.Errorf("consumequeue %s/%d: extend %s: %w", q.topic, q.id, path, err)
	}
	return nil
}

// drop closes a queue's files, to be opened again by the next use. q.rw is held exclusively.
func (p *pool) drop(q *Queue) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	files := q.files.Swap(nil)
	if files == nil {
		return nil
	}
	for i, o := range p.open {
		if o == q {
			last := len(p.open) - 1
			p.open[i], p.open[last] = p.open[last], nil
			p.open = p.open[:last]
			p.files -= q.opened
			break
		}
	}
	return files.Close()
}

// Failing is the queue that Write could not write, nil when it did not fail.
func (b *Batch) Failing() *Queue {
	if b.written && b.done < len(b.runs) {
		return b.runs[b.done].queue
	}
	return nil
}

func (s *Set) fs() mappedfile.FS {
	if s.opts.FS == nil {
		return mappedfile.OS{}
	}
	return s.opts.FS
}
