package store

import (
	"raftmq/commitlog/mappedfile"
	"raftmq/flush"
)

// The transient store pool (RocketMQ's transientStorePoolEnable). What Apply has filled in and the commit thread has not carried to
// a segment is in no file: a process that is killed loses it, the log is cut back to the last entry whose bytes are there, and
// Raft brings the rest again, as after a power cut (Index-With-Bytes). Its journal records may be on disk before its bytes; they do
// not verify then, and that is what the cut goes by.
//
// An acknowledgement does not wait for the commit. A queue's max offset counts what is published (F94), reads of what is not
// committed yet answer "nothing yet", and a read by physical offset commits first.

func (s *Store) openPool() (err error) {
	if s.cfg.TransientStorePoolSize == 0 {
		return nil
	}
	s.pool, err = mappedfile.NewPool(s.cfg.TransientStorePoolSize, s.cfg.SegmentSize, true, s.logger)
	return err
}

func (s *Store) closePool() error {
	if s.pool == nil {
		return nil
	}
	return s.pool.Close()
}

// startCommit starts the commit thread.
func (s *Store) startCommit() {
	if s.pool == nil {
		return
	}
	s.commit = flush.NewCommit(flush.CommitConfig{
		Target: s.log, Interval: s.cfg.CommitInterval, LeastPages: s.cfg.CommitLeastPages, ThoroughInterval: s.cfg.CommitThoroughInterval,
		Committed: func(int64) { s.committed() }, OnError: func(err error) { s.fatal(err) }, Logger: s.logger,
	})
}

// committed wakes who works on readable bytes.
func (s *Store) committed() {
	s.dispatcher.Load().Wake()
	s.index.wake()
	s.flush.wake()
}

// commitNow makes readable what is published.
func (s *Store) commitNow() error {
	if s.pool == nil {
		return nil
	}
	_, err := s.log.CommitBuffers(0)
	s.committed()
	return err
}

// TransientStorePoolDeficient tells that there is a pool and no buffer is free: RocketMQ's broker takes no messages then.
func (s *Store) TransientStorePoolDeficient() bool { return s.pool != nil && s.pool.Available() == 0 }
