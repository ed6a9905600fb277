package store

import (
	"errors"
	"fmt"
	"path/filepath"

	"raftmq/commitlog/consumequeue"
	"raftmq/commitlog/record"
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
// replaced, an empty one: half of an installation is never seen. Reads meanwhile answer
// "nothing yet". FSM goroutine only.
func (s *Store) Install(from, to int64) (Installer, error) {
	if err := s.alive(); err != nil {
		return nil, err
	}
	if from < 0 || to < from {
		return nil, fmt.Errorf("%w: range [%d, %d)", ErrInstall, from, to)
	}
	if s.installing.Load() {
		return nil, fmt.Errorf("%w: another installation is going on", ErrInstall)
	}
	low, end := s.LogRange()
	in := &installer{s: s, from: from, at: from, to: to, replace: from != end}
	s.installing.Store(true)
	if in.replace {
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
	// What dispatch dies of it has told.
	if err := s.dispatcher.Load().Close(); err != nil {
		return err
	}
	if err := s.suspendPoints(); err != nil {
		return err
	}
	if err := s.log.ResetTo(base); err != nil {
		return err
	}
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
	if err := s.log.ResetTo(0); err != nil {
		return err
	}
	return s.folder.remove(installName)
}

// installer checks the chain of records on its way into the log.
type installer struct {
	s        *Store
	from, to int64
	replace  bool

	at    int64  // offset of the first byte of carry
	carry []byte // the begin of a record whose end has not come yet
	blank int64  // what is left of a blank filler, which is passed on as it comes
	err   error
	done  bool
}

func (in *installer) Write(p []byte) (int, error) {
	if in.done {
		return 0, fmt.Errorf("%w: it has ended", ErrInstall)
	}
	if in.err == nil {
		in.err = in.write(p)
	}
	if in.err != nil {
		return 0, in.err
	}
	return len(p), nil
}

func (in *installer) write(p []byte) error {
	if in.at+int64(len(in.carry))+int64(len(p)) > in.to {
		return fmt.Errorf("%w: more than the %d bytes up to %d", ErrInstall, in.to-in.from, in.to)
	}
	if len(in.carry) > 0 {
		in.carry = append(in.carry, p...)
		p, in.carry = in.carry, nil
	}
	for len(p) > 0 {
		n, err := in.next(p)
		if err != nil {
			return err
		}
		if n == 0 {
			in.carry = append(in.carry, p...)
			return nil
		}
		if err := in.s.log.WriteRaw(p[:n]); err != nil {
			return err
		}
		in.at += int64(n)
		p = p[n:]
	}
	return nil
}

// next tells how much of p can go into the log; 0 when it must be more first.
func (in *installer) next(p []byte) (int, error) {
	size := in.s.cfg.SegmentSize
	room := size - in.at%size
	if in.blank > 0 {
		n := min(in.blank, int64(len(p)))
		in.blank -= n
		return int(n), nil
	}
	n, err := record.Check(p, true)
	switch {
	case errors.Is(err, record.ErrBlank), errors.Is(err, record.ErrTruncated) && n > 0 && isBlank(p):
		if int64(n) != room {
			return 0, fmt.Errorf("%w: filler of %d bytes at %d, %d remain of the segment", ErrInstall, n, in.at, room)
		}
		in.blank = int64(n) - record.BlankMinSize
		return record.BlankMinSize, nil
	case errors.Is(err, record.ErrTruncated):
		if int64(n) > room {
			return 0, fmt.Errorf("%w: record of %d bytes at %d, %d remain of the segment", ErrInstall, n, in.at, room)
		}
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("%w: at %d: %w", ErrInstall, in.at, err)
	}
	if got := record.View(p).PhyOffset(); got != in.at || int64(n)+record.BlankMinSize > room {
		return 0, fmt.Errorf("%w: record of %d bytes at %d says it is at %d, %d remain of the segment", ErrInstall, n, in.at, got, room)
	}
	return n, nil
}

func isBlank(p []byte) bool {
	return len(p) >= record.BlankMinSize && record.View(p).Magic() == record.MagicBlank
}

func (in *installer) Commit(p Position) error {
	s := in.s
	switch {
	case in.done:
		return fmt.Errorf("%w: it has ended", ErrInstall)
	case in.err != nil:
		return in.err
	case in.at != in.to || len(in.carry) > 0 || in.blank > 0:
		return fmt.Errorf("%w: %d bytes of [%d, %d) came, the last record whole up to %d", ErrInstall,
			in.at+int64(len(in.carry))-in.from, in.from, in.to, in.at)
	case p.LogEnd != in.to:
		return fmt.Errorf("%w: the snapshot ends at %d, the bytes at %d", ErrInstall, p.LogEnd, in.to)
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
		err = s.catchUp(s.dispatcher.Load())
	}
	if err != nil {
		return s.fatal(err)
	}
	s.flush.wake()
	s.installing.Store(false)
	s.logger.Info("installed log bytes of a peer", "from", in.from, "to", in.to, "raft-index", p.RaftIndex)
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
	in.s.installing.Store(false)
	return nil
}
