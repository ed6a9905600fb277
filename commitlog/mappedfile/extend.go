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

// addFile puts the next file behind the last one, in an empty queue the file of off. makeMu is
// held until it is in the list, or Prepare would make it a second time.
func (q *Queue) addFile(off, need int64) error {
	q.makeMu.Lock()
	defer q.makeMu.Unlock()
	from := off - off%q.o.FileSize
	last := q.last()
	if last != nil {
		from = last.from + q.o.FileSize
	}
	f, err := q.take(from, need)
	if err != nil {
		return err
	}
	q.filesMu.Lock()
	old := q.list()
	files := append(make([]*File, 0, len(old)+1), old...)
	files = append(files, f)
	q.files.Store(&files)
	q.filesMu.Unlock()
	if last == nil && q.minOffset.Load() < from {
		q.minOffset.Store(from)
	}
	return nil
}

// take returns the file that starts at from: the prepared one, or a new one. makeMu is held.
func (q *Queue) take(from, need int64) (*File, error) {
	if ahead := q.ahead(); len(ahead) > 0 && ahead[0].from == from {
		rest := ahead[1:]
		q.prepared.Store(&rest)
		return ahead[0], nil
	}
	// Some that were made for another place: the first WriteAt of an empty queue chose another file.
	if err := q.dropPrepared(); err != nil {
		return nil, err
	}
	f, err := q.createFile(from, need)
	if err == nil {
		q.entriesDirty.Store(true)
		q.evict()
	}
	return f, err
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
		err = q.nameFiles(append(slices.Clone(q.list()), q.ahead()...))
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
	ahead := q.ahead()
	var from int64
	if last := q.last(); last != nil {
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
	more := append(slices.Clone(ahead), f)
	q.prepared.Store(&more)
	return f, nil
}
