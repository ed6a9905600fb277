package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"raftmq/commitlog"
	"raftmq/commitlog/consumequeue"
	"raftmq/commitlog/dispatch"
)

// progressAfter is how long recovery may take before it says how far it is, and how often.
const progressAfter = 2 * time.Second

// Open opens and recovers: the log is cut back to the last whole entry whose journal
// record and bytes both verify (Index-With-Bytes), queues are caught up from it.
func Open(cfg Config) (*Store, error) {
	cfg.fillIn()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s, err := openOnce(cfg)
	var damage *commitlog.DamageError
	if (cfg.Fetch != nil || cfg.Copies != nil) && errors.As(err, &damage) && damage.Healing == nil {
		// It was met by who builds the queues, not by the log's own check, which looks there now and heals it or puts it into quarantine.
		s, err = openOnce(cfg)
	}
	return s, err
}

func openOnce(cfg Config) (*Store, error) {
	s := &Store{
		cfg: cfg, logger: cfg.Logger.Named("store"), tails: newTails(), stop: make(chan struct{}),
		points:  points{kick: make(chan struct{}, 1), bytes: cfg.PointBytes},
		cleaner: cleaner{wake: make(chan struct{}, 1)}, scrubber: scrubber{wake: make(chan struct{}, 1)}, units: unitRepairer{wake: make(chan struct{}, 1)},
		repairer: repairer{wake: make(chan struct{}, 1), attempts: map[int64]attempt{}},
		running:  running{opened: cfg.Now().Add(-time.Second)},
		reserve:  reserve{path: filepath.Join(cfg.Dir, reserveName), size: cfg.ReserveBytes},
	}
	var err error
	if s.folder, err = openFolder(&cfg); err != nil {
		return nil, err
	}
	if err := s.open(); err != nil {
		// In reverse; what fails here is a consequence.
		if s.queues != nil {
			s.queues.Close()
		}
		if s.log != nil {
			s.log.Close()
		}
		s.closePool()
		if s.points.file != nil {
			s.points.file.Close()
		}
		s.closeCheckpoint()
		s.folder.close()
		return nil, err
	}
	return s, nil
}

// open goes from the truth to what is built from it: log, queues, then the goroutines. Nobody
// is answered before dispatch has caught up, so that no queue looks shorter than it is.
func (s *Store) open() error {
	started := time.Now()
	if pid, killed := s.folder.killed(); killed {
		s.logger.Info("the node was not stopped in order the last time", "process", pid)
	}
	s.reserve.adopt()
	err := s.openPool()
	if err != nil {
		return err
	}
	s.log, err = commitlog.Open(commitlog.Config{
		Dir: filepath.Join(s.cfg.Dir, commitLogDir), JournalDir: filepath.Join(s.cfg.Dir, journalDir),
		QuarantineDir: filepath.Join(s.cfg.Dir, quarantineDir), Snapshot: s.cfg.Snapshot, Fetch: s.cfg.Fetch, RaftLast: s.cfg.RaftLast, BeforePoint: s.cfg.BeforePoint,
		VerifyBytes: s.cfg.VerifyBytes, KeepDamaged: s.heals(), Pool: s.pool, Warm: s.cfg.WarmMappedFile,
		SegmentSize: s.cfg.SegmentSize, AllocateStep: s.cfg.AllocateStep, MaxMapped: s.cfg.MaxMappedSegments,
		NoSpace: s.noSpace, Prepared: s.prepared, Logger: s.cfg.Logger, FS: s.cfg.FS,
	})
	if err != nil {
		return err
	}
	if err := s.dropHalfInstalled(); err != nil {
		return err
	}
	from, err := s.openQueues()
	if err != nil {
		return err
	}
	s.startDispatch(from)
	if err := s.catchUp(s.dispatcher.Load()); err != nil {
		d := s.dispatcher.Load()
		d.Close()
		return s.blame(d.To(), err)
	}
	if err := s.openIndex(); err != nil {
		s.dispatcher.Load().Close()
		return err
	}
	if err := s.openMarks(); err != nil {
		s.index.abandon()
		s.dispatcher.Load().Close()
		return err
	}
	s.startFlush()
	s.startCommit()
	s.opened.Store(true)
	s.checkSpace()
	s.loops.Go(s.pointLoop)
	s.loops.Go(s.cleanLoop)
	s.loops.Go(s.spaceLoop)
	s.readScrub()
	s.repairer.found.Store(uint64(len(s.log.Damaged())))
	s.loops.Go(s.repairLoop)
	s.loops.Go(s.scrubLoop)
	s.loops.Go(s.unitRepairLoop)
	if s.index != nil {
		go s.index.run()
	}
	low, end := s.LogRange()
	s.logger.Info("store is open", "dir", s.cfg.Dir, "min-offset", low, "max-offset", end,
		"dispatched-from", from, "queues", s.queues.Len(), "took", time.Since(started))
	return nil
}

// blame finds out whether dispatch, which came to at, has died of damage of the log: then the next Open looks there.
func (s *Store) blame(at int64, err error) error {
	return errors.Join(err, s.log.VerifyRange(at, at+dispatch.DefaultBatchBytes))
}

// openQueues opens the queues as of the recovery point, or empty when they can't be trusted,
// and returns where dispatch begins.
func (s *Store) openQueues() (from int64, err error) {
	p := &s.points
	var ok bool
	p.file, p.written, ok, err = consumequeue.OpenPointFile(filepath.Join(s.cfg.Dir, pointName))
	if err != nil {
		return 0, err
	}
	low, end := s.LogRange()
	config := consumequeue.Config{
		Dir: filepath.Join(s.cfg.Dir, queueDir), FileSize: s.cfg.QueueFileSize, Logger: s.logger, FS: s.cfg.FS,
	}
	var why error
	switch {
	case s.folder.meta.QueueFileSize != s.cfg.QueueFileSize:
		why = fmt.Errorf("queue file size was %d, is %d", s.folder.meta.QueueFileSize, s.cfg.QueueFileSize)
	case !ok && end > low:
		why = errors.New("there is no whole recovery point")
	case ok && (p.written.PhyOffset > end || p.written.PhyOffset < low):
		why = fmt.Errorf("recovery point is at %d, the log is [%d, %d)", p.written.PhyOffset, low, end)
	default:
		s.queues, err = consumequeue.Open(config, p.written, low)
		if err == nil {
			return max(p.written.PhyOffset, low), nil
		}
		if !errors.Is(err, consumequeue.ErrDamaged) {
			return 0, err
		}
		why = err
	}
	s.logger.Warn("building all consume queues again from the log", "reason", why, "from", low, "to", end)
	if err := s.forgetQueues(); err != nil {
		return 0, err
	}
	p.file, p.written, _, err = consumequeue.OpenPointFile(filepath.Join(s.cfg.Dir, pointName))
	if err != nil {
		return 0, err
	}
	s.queues, err = consumequeue.Open(config, consumequeue.Point{}, 0)
	return low, err
}

// forgetQueues removes queues and point, the point first: half-built queues must not meet it.
func (s *Store) forgetQueues() error {
	if err := s.points.file.Close(); err != nil {
		return fmt.Errorf("store: %w", err)
	}
	s.points.file, s.points.written = nil, consumequeue.Point{}
	if err := s.folder.remove(pointName); err != nil {
		return err
	}
	if err := s.folder.remove(queueDir); err != nil {
		return err
	}
	if s.folder.meta.QueueFileSize == s.cfg.QueueFileSize {
		return nil
	}
	s.folder.meta.QueueFileSize = s.cfg.QueueFileSize
	return s.folder.writeMeta()
}

// catchUp waits until dispatch has reached the end of the log, or damaged bytes that are to be repaired: then the queues stay behind, which
// their readers know from what is published, and grow when it goes on.
func (s *Store) catchUp(d *dispatch.Dispatcher) error {
	end := s.log.MaxOffset()
	from := d.To()
	reached := make(chan error, 1)
	d.Wait(end, func(err error) { reached <- err })
	tick := time.NewTicker(progressAfter)
	defer tick.Stop()
	for {
		select {
		case err := <-reached:
			if errors.Is(err, dispatch.ErrBlocked) {
				return nil
			}
			return err
		case <-tick.C:
			s.logger.Info("building consume queues", "from", from, "at", d.To(), "to", end)
		}
	}
}
