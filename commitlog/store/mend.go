package store

import (
	"errors"
	"io/fs"

	"raftmq/commitlog/consumequeue"
	"raftmq/commitlog/mappedfile"
)

// Somebody may remove or cut a consume queue's file while it is open. The log is the truth: the file is made again beside the running store, and its units are written from
// the log as damaged ones are. That costs nobody else anything; before, the node stopped and built all queues again.

// lostFile reports whether err is what a file that was removed or cut makes of a read or write.
func lostFile(err error) bool {
	return errors.Is(err, mappedfile.ErrFault) || errors.Is(err, fs.ErrNotExist)
}

// mend makes files of q again that were removed or cut. False: there are none, err has another cause.
func (s *Store) mend(q *consumequeue.Queue, err error) bool {
	if q == nil || !lostFile(err) || !s.opened.Load() || s.replacing.Load() || s.alive() != nil {
		return false
	}
	lost, mended, merr := s.queues.Mend(q)
	if merr != nil {
		s.logger.Error("a consume queue's files could not be made again", "topic", q.Topic(), "queue", q.ID(), "error", merr)
		return false
	}
	if !mended {
		return false
	}
	s.logger.Warn("files of a consume queue were removed or cut while it was open: they are made again, and their units written from the log", "topic", q.Topic(), "queue", q.ID(),
		"from-queue-offset", lost, "to-queue-offset", q.Max())
	if lost < q.Max() {
		s.units.add(q, lost)
	}
	return true
}

// scrubFiles looks whether all queues' files are there, once a pass: nothing else notices one that was removed, before it is opened again. mended: one was not.
func (s *Store) scrubFiles() (mended bool) {
	s.queues.Range(func(q *consumequeue.Queue) bool {
		mended = s.mend(q, fs.ErrNotExist) || mended
		return !s.stopping() && s.alive() == nil
	})
	return mended
}
