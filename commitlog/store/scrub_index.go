package store

import (
	"errors"

	"raftmq/commitlog/keyindex"
)

// scrubIndex compares the key index's files with their checksums, at the scrub's pace. What is damaged is dropped and built again from the log.
func (s *Store) scrubIndex() error {
	x := s.index
	if x == nil || x.dispatcher.Load() == nil {
		return nil
	}
	err := x.ix.Verify(func(bytes int64) error {
		if !s.pause(s.scrubTime(bytes)) {
			return errStopping
		}
		return nil
	})
	switch {
	case errors.Is(err, keyindex.ErrDamaged):
		s.logger.Warn("the key index is damaged, what is damaged is built again from the log", "error", err)
		s.indexRepairs.Add(1)
		x.spoilt()
		return nil
	case errors.Is(err, keyindex.ErrClosed), errors.Is(err, errStopping):
		return nil
	}
	return err
}
