package store

import (
	"fmt"
	"math"
	"path/filepath"

	"raftmq/commitlog/consumequeue"
)

// Installer receives the bytes of an installation: Write in order, then Commit or Abort, once.
// All of it on the FSM's goroutine. After an error only Abort is left.
type Installer interface {
	// Write takes the next bytes, cut as the sender likes. Each record is verified: lengths,
	// body checksum, and that it names its own offset. ErrInstall when it is no log.
	Write(p []byte) (int, error)
	// Commit makes the bytes the log, durably, and p its position, and returns when the queues
	// are built. p.LogEnd is the installation's end.
	Commit(p Position) error
	// Abort leaves the log as it was when it was being extended, and an empty log when it was
	// being replaced.
	Abort() error
}

// Install starts an installation of log bytes [from, to), which a peer's log begins with or
// goes on with. When from is this log's end, the bytes extend it; otherwise they replace the
// whole log. A crash before Commit has returned leaves the old log or, if it was being
// replaced, an empty one: half of an installation is never seen. Reads go on while the log is
// extended; while it is replaced they answer "nothing yet" (Replacing). FSM goroutine only.
func (s *Store) Install(from, to int64) (Installer, error) {
	if err := s.alive(); err != nil {
		return nil, err
	}
	if from < 0 || to < from {
		return nil, fmt.Errorf("%w: range [%d, %d)", ErrInstall, from, to)
	}
	if s.installer != nil {
		return nil, fmt.Errorf("%w: another installation is going on", ErrInstall)
	}
	low, end := s.LogRange()
	in := &installer{s: s, from: from, replace: from != end}
	in.chain = chain{sink: s.log.WriteRaw, segment: s.cfg.SegmentSize, at: from, to: to}
	s.installer = in
	if in.replace {
		s.replacing.Store(true)
		if err := s.emptyLog(from); err != nil {
			return nil, s.fatal(err)
		}
	}
	s.logger.Info("installing log bytes of a peer", "from", from, "to", to, "log-min", low, "log-max", end, "replace", in.replace)
	return in, nil
}

// emptyLog gives up log and queues, and marks the folder until an installation is complete.
func (s *Store) emptyLog(base int64) error {
	if err := s.folder.writeFile(installName, nil); err != nil {
		return err
	}
	s.cleaner.mu.Lock()
	defer s.cleaner.mu.Unlock()
	s.cleaner.raised = 0
	s.cleaner.cleaned.Store(0)
	// What dispatch dies of it has told.
	if err := s.dispatcher.Load().Close(); err != nil {
		return err
	}
	if err := s.suspendPoints(); err != nil {
		return err
	}
	if err := s.emptyIndex(base); err != nil {
		return err
	}
	if err := s.log.ResetTo(base); err != nil {
		return err
	}
	s.scrubber.forgetSums(0, math.MaxInt64, 0)
	s.tails.clear()
	return s.queues.Clear()
}

// restart begins anew behind emptyLog: points, dispatch from the log's start.
func (s *Store) restart() error {
	p := &s.points
	p.flushMu.Lock()
	err := p.file.Close()
	if err == nil {
		p.file, _, _, err = consumequeue.OpenPointFile(filepath.Join(s.cfg.Dir, pointName))
	}
	p.mu.Lock()
	p.written, p.latest = consumequeue.Point{}, consumequeue.Point{}
	p.mu.Unlock()
	p.suspended = false
	p.flushMu.Unlock()
	if err != nil {
		return err
	}
	s.startDispatch(s.log.MinOffset())
	if err := s.index.restart(); err != nil {
		return err
	}
	if err := s.catchUp(s.dispatcher.Load()); err != nil {
		return err
	}
	if err := s.flushAll(); err != nil {
		return err
	}
	return s.folder.remove(installName)
}

// dropHalfInstalled empties a log whose replacement a crash interrupted.
func (s *Store) dropHalfInstalled() error {
	half, err := s.folder.exists(installName)
	if err != nil || !half {
		return err
	}
	s.logger.Warn("emptying a log whose installation was interrupted")
	if err := s.folder.remove(pointName); err != nil {
		return err
	}
	if err := s.folder.remove(queueDir); err != nil {
		return err
	}
	if err := s.forgetIndex(); err != nil {
		return err
	}
	if err := s.log.ResetTo(0); err != nil {
		return err
	}
	return s.folder.remove(installName)
}

// installer puts checked bytes into the log.
type installer struct {
	s       *Store
	from    int64
	replace bool
	chain   chain
	err     error
	done    bool
}

func (in *installer) Write(p []byte) (int, error) {
	if in.done {
		return 0, fmt.Errorf("%w: it has ended", ErrInstall)
	}
	if in.err == nil {
		in.err = in.chain.write(p)
	}
	if in.err != nil {
		return 0, in.err
	}
	return len(p), nil
}

func (in *installer) Commit(p Position) error {
	s := in.s
	switch {
	case in.done:
		return fmt.Errorf("%w: it has ended", ErrInstall)
	case in.err != nil:
		return in.err
	case p.LogEnd != in.chain.to:
		return fmt.Errorf("%w: the snapshot ends at %d, the bytes at %d", ErrInstall, p.LogEnd, in.chain.to)
	}
	if err := in.chain.end(); err != nil {
		return err
	}
	if err := s.log.Restore(p); err != nil {
		in.err = err
		return err
	}
	in.done = true
	s.tails.restore(p.QueueOffsets)
	var err error
	if in.replace {
		err = s.restart()
	} else {
		s.dispatcher.Load().Wake()
		s.index.wake()
		err = s.catchUp(s.dispatcher.Load())
	}
	if err != nil {
		return s.fatal(err)
	}
	s.flush.wake()
	in.end()
	s.logger.Info("installed log bytes of a peer", "from", in.from, "to", p.LogEnd, "raft-index", p.RaftIndex)
	return nil
}

func (in *installer) Abort() error {
	if in.done {
		return nil
	}
	in.done = true
	var err error
	if in.replace {
		err = in.s.log.ResetTo(0)
		if err == nil {
			err = in.s.restart()
		}
	} else {
		err = in.s.log.DiscardRaw()
	}
	if err != nil {
		return in.s.fatal(err)
	}
	in.end()
	return nil
}

func (in *installer) end() {
	in.s.installer = nil
	in.s.replacing.Store(false)
}
