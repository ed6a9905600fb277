package store

import (
	"errors"
	"fmt"
	"syscall"
	"time"

	"raftmq/commitlog"
	"raftmq/commitlog/consumequeue"
	"raftmq/commitlog/dispatch"
	"raftmq/commitlog/keyindex"
	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
)

// queueBuilder feeds the consume queues from dispatch (RocketMQ's
// CommitLogDispatcherBuildConsumeQueue): types none and commit only.
type queueBuilder struct {
	s     *Store
	batch *consumequeue.Batch
}

func (b queueBuilder) Add(v record.View, tagsCode int64) error {
	if !record.AssignsQueueOffset(v.SysFlag()) {
		return nil
	}
	return b.batch.Add(v.Topic(), v.QueueID(), v.QueueOffset(), consumequeue.Unit{
		PhyOffset: v.PhyOffset(), Size: int32(v.Size()), TagsCode: tagsCode,
	})
}

// Commit comes before anybody is told of to, so that a point taken then covers it.
func (b queueBuilder) Commit(to int64) error {
	if err := b.write(); err != nil {
		return err
	}
	b.s.points.dispatched(b.s.queues, to)
	return nil
}

// errStopping ends what waits for space when the store stops.
var errStopping = errors.New("store: stopping")

// mendTries bounds how often a batch is written again after files were made again.
const mendTries = 3

// spacePause is how long dispatch waits on a full disk before it looks again.
const spacePause = 100 * time.Millisecond

// write writes the batch. On a full disk it waits, for space or for the end: dispatch may fall behind, and catches up. No
// message is taken meanwhile, and the flag goes when the queues are written (F27).
func (b queueBuilder) write() error {
	s := b.s
	err := b.batch.Write()
	for tries := 0; err != nil && tries < mendTries && s.mend(b.batch.Failing(), err); tries++ {
		err = b.batch.Write()
	}
	if err == nil || !isNoSpace(err) {
		return err
	}
	s.running.set(FlagQueueError, true)
	s.logger.Warn("consume queues wait for space on the disk", "error", err)
	for isNoSpace(err) {
		// Before Open has returned nobody writes to the log, for which the reserve is.
		if s.opened.Load() || !s.reserve.release() {
			if !s.pause(spacePause) {
				return fmt.Errorf("%w: consume queues wait for space: %w", errStopping, err)
			}
		}
		err = b.batch.Write()
	}
	if err == nil {
		s.running.set(FlagQueueError, false)
		s.logger.Info("consume queues go on, the disk has space again")
	}
	return err
}

// isNoSpace reports whether err is for want of space and over when there is some. A sync that failed for want of space is not: what it was to
// write is lost, and its file takes nothing any more.
func isNoSpace(err error) bool {
	if errors.Is(err, mappedfile.ErrPoisoned) || errors.Is(err, keyindex.ErrFailed) {
		return false
	}
	return errors.Is(err, mappedfile.ErrNoSpace) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// keptLog is the log with what was trimmed and not removed yet: queues have no holes.
type keptLog struct{ *commitlog.Log }

func (l keptLog) View(off int64, max int) (mappedfile.View, error) { return l.ViewKept(off, max) }

// startDispatch starts the loop at a record boundary.
func (s *Store) startDispatch(from int64) {
	b := queueBuilder{s, s.queues.NewBatch()}
	s.points.dispatched(s.queues, from)
	s.dispatcher.Store(dispatch.Start(dispatch.Config{
		Log: keptLog{s.log}, From: from, Builders: []dispatch.Builder{b}, Levels: s.cfg.DelayLevels,
		SegmentSize: s.cfg.SegmentSize, Logger: s.logger.Named("dispatch"),
		Committed: func(int64) {
			if f := s.arrival.Load(); f != nil {
				b.batch.Range(*f)
			}
		},
		OnFatal: func(err error) {
			if !errors.Is(err, errStopping) {
				s.fatal(err)
			}
		},
	}))
}
