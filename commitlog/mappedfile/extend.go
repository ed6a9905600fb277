package mappedfile

import "slices"

// extend returns the file of off, making every file up to it that is missing. A new one has blocks for
// its first need bytes.
func (q *Queue) extend(off, need int64) (*File, error) {
	for {
		if f := q.fileAt(q.list(), off); f != nil {
			return f, nil
		}
		if err := q.addFile(off, need); err != nil {
			return nil, err
		}
	}
}

// addFile puts the next file behind the last one, in an empty queue the file of off. One that was made ahead is taken at once, also
// while the disk hangs in making the one after it.
func (q *Queue) addFile(off, need int64) error {
	if q.takePrepared(off) {
		return nil
	}
	q.makeMu.Lock()
	defer q.makeMu.Unlock()
	if q.takePrepared(off) { // made meanwhile
		return nil
	}
	// Some that were made for another place: the first WriteAt of an empty queue chose another file.
	if err := q.dropPrepared(); err != nil {
		return err
	}
	from, first := q.nextFile(off)
	f, err := q.createFile(from, need)
	if err != nil {
		return err
	}
	q.entriesDirty.Store(true)
	q.evict()
	q.appendFile(f, first)
	return nil
}

// nextFile is where the file behind the last one starts, in an empty queue the file of off.
func (q *Queue) nextFile(off int64) (from int64, first bool) {
	if last := q.last(); last != nil {
		return last.from + q.o.FileSize, false
	}
	return off - off%q.o.FileSize, true
}

// takePrepared makes the first prepared file the last one, if it is the one for off.
func (q *Queue) takePrepared(off int64) bool {
	q.aheadMu.Lock()
	defer q.aheadMu.Unlock()
	from, first := q.nextFile(off)
	ahead := q.ahead()
	if len(ahead) == 0 || ahead[0].from != from {
		return false
	}
	rest := ahead[1:]
	q.prepared.Store(&rest)
	q.appendFile(ahead[0], first)
	return true
}

func (q *Queue) appendFile(f *File, first bool) {
	q.filesMu.Lock()
	old := q.list()
	files := append(make([]*File, 0, len(old)+1), old...)
	files = append(files, f)
	q.files.Store(&files)
	q.filesMu.Unlock()
	if first && q.minOffset.Load() < f.from {
		q.minOffset.Store(f.from)
	}
}

// Prepare makes the next files ahead of need (called by the pre-allocation goroutine), and takes
// blocks ahead in the current one. It may run beside the writer; it does nothing when they are
// there already. It waits for the disk, but holds up nobody meanwhile.
func (q *Queue) Prepare() error {
	for {
		if err := q.writable(); err != nil {
			return err
		}
		f, err := q.prepareFile()
		if err != nil || f == nil {
			return err
		}
		q.evict()
		// Those before it as well: a file must not be on disk without its predecessor.
		q.aheadMu.Lock()
		files := append(slices.Clone(q.list()), q.ahead()...)
		q.aheadMu.Unlock()
		err = q.nameFiles(files)
		f.release() // the writer may have taken it by now, and retention removed it
		if err != nil {
			return err
		}
	}
}

// prepareFile returns a new prepared file with a reference for the caller, or nil if there are enough.
func (q *Queue) prepareFile() (*File, error) {
	q.makeMu.Lock()
	defer q.makeMu.Unlock()
	q.aheadMu.Lock() // the writer may take one at any moment
	ahead, last := q.ahead(), q.last()
	q.aheadMu.Unlock()
	var from int64
	if last != nil {
		to := min(q.published.Load()-last.from+q.allocateStep(), q.o.FileSize)
		if err := q.allocateHeld(last, to, to); err != nil {
			return nil, err
		}
		from = last.from + q.o.FileSize
	} else {
		end := q.published.Load()
		from = end - end%q.o.FileSize
	}
	if n := len(ahead); n > 0 {
		from = ahead[n-1].from + q.o.FileSize
	}
	if len(ahead) >= max(q.o.Ahead, 1) || q.closed.Load() {
		return nil, nil
	}
	f, err := q.createFile(from, q.allocateStep())
	if err != nil {
		return nil, err
	}
	q.entriesDirty.Store(true)
	f.refs.Add(1)
	q.aheadMu.Lock()
	defer q.aheadMu.Unlock()
	more := append(slices.Clone(q.ahead()), f)
	q.prepared.Store(&more)
	return f, nil
}
