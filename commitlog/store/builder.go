package store

import (
	"raftmq/commitlog/consumequeue"
	"raftmq/commitlog/dispatch"
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
	if err := b.batch.Write(); err != nil {
		return err
	}
	b.s.points.dispatched(b.s.queues.Point(to))
	return nil
}

// startDispatch starts the loop at a record boundary.
func (s *Store) startDispatch(from int64) {
	b := queueBuilder{s, s.queues.NewBatch()}
	s.points.dispatched(s.queues.Point(from))
	s.dispatcher.Store(dispatch.Start(dispatch.Config{
		Log: s.log, From: from, Builders: []dispatch.Builder{b}, Levels: s.cfg.DelayLevels,
		SegmentSize: s.cfg.SegmentSize, Logger: s.logger.Named("dispatch"),
		Committed: func(int64) {
			if f := s.arrival.Load(); f != nil {
				b.batch.Range(*f)
			}
		},
		OnFatal: func(err error) { s.fatal(err) },
	}))
}
