package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"raftmq/commitlog/consumequeue"
	"raftmq/flush"
)

// checkpoint, abort and lock are RocketMQ's files: with them a RocketMQ broker that is started on a copy of this folder recovers it
// rightly, and tools of its users read what they expect. Nothing here recovers by them: our points are offsets, durable
// and checksummed (the recovery point, the queue point, the index point).

// openMarks makes checkpoint and abort say that the store runs.
func (s *Store) openMarks() error {
	err := s.openCheckpoint()
	if err == nil {
		err = s.folder.markRunning()
	}
	if isNoSpace(err) {
		s.logger.Warn("could not write checkpoint and abort, the disk is full", "error", err)
		return nil
	}
	return err
}

// openCheckpoint opens the file, whatever is in it, and makes it say what is so now.
func (s *Store) openCheckpoint() error {
	path := filepath.Join(s.cfg.Dir, checkpointName)
	c, why, err := flush.OpenCheckpoint(path)
	if err != nil {
		return err
	}
	s.checkpoint = c
	low, end := s.LogRange()
	if why != nil && end > low {
		s.logger.Warn("writing the checkpoint again", "file", path, "reason", why)
	}
	_, written := s.points.state()
	return s.writeCheckpoint(s.log.RecoveryPoint().LogEnd, written)
}

// writeCheckpoint follows a move of the points: log and queues are durable up to them. points.flushMu is held, or nobody else is there
// yet.
func (s *Store) writeCheckpoint(logEnd int64, queues consumequeue.Point) error {
	if s.checkpoint == nil {
		return nil
	}
	var now flush.Checkpoint
	var err error
	if now.Physic, err = s.log.StoreTimestampUpTo(logEnd); err != nil {
		return err
	}
	if now.Logics, err = s.log.StoreTimestampUpTo(queues.PhyOffset); err != nil {
		return err
	}
	if s.index != nil {
		now.Index = s.index.ix.FlushedEnd()
	}
	return s.checkpoint.Write(now)
}

func (s *Store) closeCheckpoint() error {
	if s.checkpoint == nil {
		return nil
	}
	return s.checkpoint.Close()
}

// markRunning makes the file abort, which stays behind when the process is killed. It holds the process id, as RocketMQ 5's.
func (f *folder) markRunning() error {
	return f.writeFile(abortName, strconv.AppendInt(nil, int64(os.Getpid()), 10))
}

// markStopped removes it. Only a stop that left nothing behind gets here.
func (f *folder) markStopped() error { return f.remove(abortName) }

// killed tells whether the process before did not stop in order, and its id, "" when it is not known.
func (f *folder) killed() (pid string, yes bool) {
	b, err := os.ReadFile(filepath.Join(f.dir, abortName))
	if err != nil {
		return "", !errors.Is(err, os.ErrNotExist)
	}
	pid = strings.TrimSpace(string(b))
	if _, err := strconv.Atoi(pid); err != nil {
		pid = ""
	}
	return pid, true
}

// lockedBy words who has the folder.
func (f *folder) lockedBy() error {
	pid, _ := f.killed()
	if pid == "" {
		pid = "unknown"
	}
	return fmt.Errorf("%w: %s, by process %s", ErrLocked, f.dir, pid)
}
