package commitlog

import "errors"

// Flush makes what is published durable when at least leastPages pages wait (0: any), the log first
// and then the journal that names its bytes, and returns how far both are durable. A failed flush poisons
// the log (mappedfile.ErrPoisoned).
func (l *Log) Flush(leastPages int) (int64, error) {
	if leastPages == 0 {
		if _, err := l.log.CommitBuffers(0); err != nil {
			return l.flushedTo.Load(), err
		}
	}
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	end, err := l.log.Flush(leastPages)
	if err != nil {
		return l.flushedTo.Load(), err
	}
	if end > l.flushedTo.Load() || leastPages == 0 {
		if _, err := l.journal.Flush(0); err != nil {
			return l.flushedTo.Load(), err
		}
		l.flushedTo.Store(end)
	}
	return end, nil
}

// CommitBuffers writes what is published from the pool's buffers to the segments and makes it readable, when at least leastPages
// pages wait (0: any) or a segment is full, and returns the readable end. Without a pool there is nothing to do. A write that fails
// poisons the log.
func (l *Log) CommitBuffers(leastPages int) (int64, error) { return l.log.CommitBuffers(leastPages) }

// Uncommitted is how many published bytes wait in write buffers.
func (l *Log) Uncommitted() int64 { return l.log.Uncommitted() }

// Close stops the pre-allocation goroutine, makes everything durable, stores the recovery point and
// unmaps, each segment after its views are gone. A second call does nothing.
func (l *Log) Close() error {
	if !l.closed.CompareAndSwap(false, true) {
		return nil
	}
	close(l.stop)
	l.joined.Wait()
	l.point.Lock()
	defer l.point.Unlock()
	_, err := l.setPointLocked()
	return errors.Join(err, l.closeFiles())
}

// closeFiles unmaps what Open got.
func (l *Log) closeFiles() error {
	var err error
	if l.log != nil {
		err = l.log.Close()
	}
	if l.journal != nil {
		err = errors.Join(err, l.journal.Close())
	}
	return err
}
