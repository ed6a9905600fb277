package mappedfile

// extend returns the file of off, making every file up to it that is missing.
func (q *Queue) extend(off int64) (*File, error) {
	for {
		files := q.list()
		if f := q.fileAt(files, off); f != nil {
			return f, nil
		}
		from := off - off%q.o.FileSize
		if len(files) > 0 {
			from = files[len(files)-1].from + q.o.FileSize
		}
		f, err := q.take(from)
		if err != nil {
			return nil, err
		}
		q.filesMu.Lock()
		old := q.list()
		files = append(make([]*File, 0, len(old)+1), old...)
		files = append(files, f)
		q.files.Store(&files)
		q.filesMu.Unlock()
		if len(old) == 0 && q.minOffset.Load() < from {
			q.minOffset.Store(from)
		}
	}
}

// take returns the file that starts at from: the prepared one, or a new one.
func (q *Queue) take(from int64) (*File, error) {
	q.makeMu.Lock()
	defer q.makeMu.Unlock()
	if f := q.prepared.Swap(nil); f != nil {
		if f.from == from {
			return f, nil
		}
		// Made for a place that the queue did not come to (Reset): never used.
		f.release()
		if err := q.fs.Remove(f.path); err != nil {
			return nil, err
		}
	}
	f, err := q.createFile(from)
	if err == nil {
		q.entriesDirty.Store(true)
	}
	return f, err
}

// Prepare makes the next file ahead of need (called by the pre-allocation goroutine), and takes
// blocks ahead in the current one. It may run beside the writer; it does nothing when the
// next file is there already. It waits for the disk, but holds up nobody meanwhile.
func (q *Queue) Prepare() error {
	if err := q.writable(); err != nil {
		return err
	}
	f, err := q.prepareFile()
	if err != nil || f == nil {
		return err
	}
	// The writer may have taken f by now; its views keep it mapped, and so does ours.
	defer f.release()
	if err := f.handle.Sync(); err != nil {
		return q.fail(err)
	}
	if err := q.fs.SyncDir(q.o.Dir); err != nil {
		return q.fail(err)
	}
	f.named.Store(true)
	return nil
}

// prepareFile returns a new prepared file with a reference for the caller, or nil if there is one.
func (q *Queue) prepareFile() (*File, error) {
	q.makeMu.Lock()
	defer q.makeMu.Unlock()
	var from int64
	if last := q.last(); last != nil {
		ahead := min(q.readable.Load()-last.from+q.allocateStep(), q.o.FileSize)
		if err := q.allocate(last, ahead); err != nil {
			return nil, err
		}
		from = last.from + q.o.FileSize
	} else {
		end := q.readable.Load()
		from = end - end%q.o.FileSize
	}
	if p := q.prepared.Load(); p != nil || q.closed.Load() {
		return nil, nil
	}
	f, err := q.createFile(from)
	if err != nil {
		return nil, err
	}
	q.entriesDirty.Store(true)
	f.refs.Add(1)
	q.prepared.Store(f)
	return f, nil
}
