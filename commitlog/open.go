package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"time"

	"raftmq/commitlog/mappedfile"
	"raftmq/seam"
)

// errBytes: the log's bytes are not those a journal record names.
var errBytes = errors.New("log bytes do not match their journal record")

// Open opens and recovers: above the recovery point the log is cut back to the last whole entry whose
// journal record and bytes both verify (Index-With-Bytes). The cut is durable on return; what
// was found above the point is so after the next Flush. Damage below the point is ErrCorrupt, and nothing
// is changed.
func Open(cfg Config) (*Log, error) {
	cfg.ensureDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	l := &Log{
		began: time.Now(),
		cfg:   cfg, logger: cfg.Logger.Named("commitlog"),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), inMemory: stagedInMemory, served: boundaries{long: longRecord},
	}
	if err := l.open(); err != nil {
		return nil, errors.Join(err, l.closeFiles())
	}
	l.joined.Go(l.prepareLoop)
	l.wake <- struct{}{}
	return l, nil
}

func (l *Log) open() error {
	cfg := &l.cfg
	if err := cfg.FS.MkdirAll(cfg.JournalDir); err != nil {
		return fmt.Errorf("commitlog: journal folder: %w", err)
	}
	p, lost, err := l.loadPoint()
	if err != nil {
		return err
	}
	var f Position
	if lost != nil {
		if f, err = l.floor(lost); err != nil {
			return err
		}
		p = Point{LogEnd: f.LogEnd}
	}
	durable, durableRecords := p.LogEnd, p.JournalEnd
	if p.LogEnd == p.Base || p.resetting {
		durable, durableRecords = 0, 0 // nothing yet, or nothing any more
	}
	if err := l.openLog(durable); err != nil {
		return err
	}
	// why is what makes the journal unfit.
	why := l.openJournal(lost == nil, durableRecords)
	if why != nil && !errors.Is(why, mappedfile.ErrLayout) {
		return why
	}
	switch {
	case p.resetting:
		if why != nil {
			if err := l.newJournal(); err != nil {
				return err
			}
		}
		l.logger.Warn("finishing a reset of the log that a crash interrupted", "base", p.Base)
		if err := l.finishReset(p); err != nil {
			return err
		}
		p, why = l.point.Point, nil
	case lost != nil && why == nil:
		if p, why, err = l.derivePoint(f); err != nil {
			return err
		}
		if why == nil {
			l.logger.Warn("deriving the recovery point from journal and snapshot", "reason", lost, "snapshot-index", f.RaftIndex, "log-end", p.LogEnd)
			if err := writePoint(cfg, p); err != nil {
				return err
			}
		}
	case why != nil:
		why = fmt.Errorf("%w: journal: %w", ErrCorrupt, why)
	}
	for rebuilt := false; ; rebuilt = true {
		if why == nil {
			if why, err = l.checkPoint(p); err != nil {
				return err
			}
		}
		if why == nil {
			break
		}
		if rebuilt {
			return why
		}
		if lost == nil {
			if f, err = l.floor(why); err != nil {
				return err
			}
		}
		if p, err = l.rebuildJournal(p, f, why); err != nil {
			return err
		}
		why = nil
	}
	if seam.On(seam.TruncateLog) || seam.On(seam.TruncateRaftLog) {
		if p, err = l.forget(p); err != nil {
			return err
		}
	}
	l.point.Point = p
	t := tail{index: p.RaftIndex, term: p.RaftTerm, end: p.LogEnd, pos: p.JournalEnd}
	end, whyEnd, err := l.walk(t)
	if err != nil {
		return err
	}
	if end, whyEnd, err = l.notAhead(t, end, whyEnd); err != nil {
		return err
	}
	if err := l.cut(p, end, whyEnd); err != nil {
		return err
	}
	l.recovered = end
	l.setTail(end)
	l.woke = end
	return l.restoreEmpty()
}

// openLog opens the segments. Below end all of them must be there.
func (l *Log) openLog(end int64) error {
	missing, err := l.missingSegments(end)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		if l.cfg.Fetch == nil && !l.cfg.KeepDamaged {
			return &DamageError{Damages: missing}
		}
		if err := l.remakeSegments(missing); err != nil {
			return err
		}
	}
	l.log, err = mappedfile.Open(mappedfile.Options{
		Dir: l.cfg.Dir, FileSize: l.cfg.SegmentSize, AllocateStep: min(l.cfg.AllocateStep, l.cfg.SegmentSize),
		Random: l.cfg.Random, Staged: true, MaxMapped: l.cfg.MaxMapped, Pool: l.cfg.Pool, Ahead: 2,
		Recover: true, DurableEnd: end, Logger: l.logger, FS: l.cfg.FS,
	})
	if err != nil {
		return fmt.Errorf("commitlog: %w", err)
	}
	return nil
}

// openJournal opens the journal's files; known tells that end is their recovery point.
func (l *Log) openJournal(known bool, end int64) error {
	records, err := mappedfile.Open(mappedfile.Options{
		Dir: l.recordsDir(), FileSize: l.cfg.JournalFileSize, Random: true, Recover: known, DurableEnd: end, Logger: l.logger, FS: l.cfg.FS,
	})
	if err != nil {
		return fmt.Errorf("commitlog: %w", err)
	}
	l.journal = &journal{records}
	return nil
}

// loadPoint reads the recovery point. lost tells why there is none, though there is a log: the first Open stores one
// before anything else, so that a lost journal folder is never taken for a torn tail.
func (l *Log) loadPoint() (p Point, lost, err error) {
	p, err = readPoint(&l.cfg)
	if err == nil {
		// A process that was killed between rename and sync left the name in the cache only.
		return p, nil, l.cfg.FS.SyncDir(l.cfg.JournalDir)
	}
	if errors.Is(err, ErrCorrupt) {
		return p, err, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return p, nil, err
	}
	segments, err := l.count(l.cfg.Dir)
	if err != nil {
		return p, nil, err
	}
	records, err := l.count(l.recordsDir())
	if err != nil {
		return p, nil, err
	}
	if segments > 0 || records > 0 {
		return p, fmt.Errorf("%w: %s is missing, but %s has %d segments and the journal %d files", ErrCorrupt,
			l.cfg.pointPath(), l.cfg.Dir, segments, records), nil
	}
	return p, nil, writePoint(&l.cfg, p)
}

// count is how many entries a folder has that may be missing.
func (l *Log) count(dir string) (int, error) {
	entries, err := l.cfg.FS.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("commitlog: %w", err)
	}
	return len(entries), nil
}

// checkPoint checks that log and journal reach up to the recovery point, and verifies the entries
// right below it. whyJournal is damage of the journal.
func (l *Log) checkPoint(p Point) (whyJournal, err error) {
	if l.log.Files() == 0 && p.LogEnd == p.Base {
		// Nothing was written since the log was made or reset.
		if err := l.log.Reset(p.Base); err != nil {
			return nil, err
		}
	}
	if l.log.MaxOffset() < p.LogEnd {
		d := l.damage(l.log.MaxOffset(), p.LogEnd, 0, fmt.Errorf("%w: the log ends at %d, below the recovery point %d", mappedfile.ErrLayout, l.log.MaxOffset(), p.LogEnd))
		return nil, &DamageError{Damages: []Damage{d}}
	}
	if l.log.MinOffset() > p.LogEnd {
		return nil, fmt.Errorf("%w: log begins at %d, above the recovery point %d", ErrCorrupt, l.log.MinOffset(), p.LogEnd)
	}
	if l.journal.MaxOffset() < p.JournalEnd || l.journal.MinOffset() > p.JournalEnd {
		return fmt.Errorf("%w: journal %s has [%d, %d), the recovery point is %d", ErrCorrupt,
			l.journal.Path(p.JournalEnd), l.journal.MinOffset(), l.journal.MaxOffset(), p.JournalEnd), nil
	}
	if l.log.Files() > 0 && p.Base > l.log.MinOffset() {
		if err := l.log.SetMinOffset(p.Base); err != nil {
			return nil, fmt.Errorf("%w: recovery point: %w", ErrCorrupt, err)
		}
	}
	if p.JournalEnd == l.journal.MinOffset() {
		return nil, nil
	}
	last := p.JournalEnd - journalRecordSize
	r, err := l.journal.read(last)
	if err == nil && (r.end != p.LogEnd || r.index > p.RaftIndex) {
		err = fmt.Errorf("%w: ends at %d, index %d; the recovery point has %d, index %d", errJournalRecord,
			r.end, r.index, p.LogEnd, p.RaftIndex)
	}
	if err != nil {
		err = l.journal.corrupt(last, err)
		return asDamage(err), notDamage(err)
	}
	return l.checkLog(p)
}

// walk verifies journal records and their bytes from t on, as far as they go. why tells what was
// met there; an error is one of the device, never of the data.
func (l *Log) walk(t tail) (end tail, why, err error) {
	for {
		if t.pos >= l.journal.MaxOffset() {
			return t, errJournalBlank, nil // exactly to the end of the last file
		}
		r, err := l.journal.read(t.pos)
		if err == nil {
			err = r.follows(t)
		}
		if err == nil {
			err = l.checkBytes(&r)
		}
		switch {
		case err == nil:
			t = tail{index: r.index, term: r.term, end: r.end, pos: t.pos + journalRecordSize}
		case isDamage(err):
			return t, err, nil
		default:
			return t, nil, l.journal.corrupt(t.pos, err)
		}
	}
}

// notAhead takes the end back to the last entry that the Raft log has.
func (l *Log) notAhead(from, end tail, why error) (tail, error, error) {
	if l.cfg.RaftLast == nil {
		return end, why, nil
	}
	last, err := l.cfg.RaftLast()
	if err != nil || end.index <= last {
		return end, why, err
	}
	if from.index > last {
		return end, why, fmt.Errorf("%w: the Raft log ends with entry %d, the recovery point is at entry %d: entries were lost that this node called durable; wipe it so that its peers fill it", ErrCorrupt, last, from.index)
	}
	pos, err := l.journal.search(end.pos, func(r *journalRecord) bool { return r.index > last })
	if err != nil {
		return end, why, err
	}
	why = fmt.Errorf("the Raft log, which syncs on a timer, ends with entry %d, and the log with entry %d", last, end.index)
	if pos <= from.pos {
		return from, why, nil
	}
	r, err := l.journal.read(pos - journalRecordSize)
	if err != nil {
		return end, why, l.journal.corrupt(pos-journalRecordSize, err)
	}
	return tail{index: r.index, term: r.term, end: r.end, pos: pos}, why, nil
}

// checkBytes compares the checksum of the bytes that r names.
func (l *Log) checkBytes(r *journalRecord) error {
	got, err := l.checksum(0, r.start, r.end)
	if err == nil && got != r.crc {
		err = fmt.Errorf("%w: entry %d, bytes %d to %d: checksum %#08x, journal has %#08x", errBytes, r.index, r.start, r.end, got, r.crc)
	}
	return err
}

// cut removes what is behind end, durably. The log first: a crash between leaves journal records
// without bytes, which the next Open cuts again.
func (l *Log) cut(p Point, end tail, why error) error {
	if !errors.Is(why, errJournalBlank) {
		l.logger.Warn("log is cut back to the last whole entry", "raft-index", end.index, "log-end", end.end,
			"journal-end", end.pos, "reason", why)
	}
	if err := l.log.Truncate(end.end); err != nil {
		return fmt.Errorf("commitlog: cut: %w", err)
	}
	if err := l.journal.Truncate(end.pos); err != nil {
		return fmt.Errorf("commitlog: cut: %w", err)
	}
	// What a killed process wrote is in the page cache, not on disk.
	if err := errors.Join(l.log.SetFlushed(p.LogEnd), l.journal.SetFlushed(p.JournalEnd)); err != nil {
		return fmt.Errorf("commitlog: %w", err)
	}
	l.flushedTo.Store(l.log.FlushedOffset())
	return nil
}

// VerifyRange is Verify for the entries that have bytes in [from, to).
func (l *Log) VerifyRange(from, to int64) error {
	l.published.Lock()
	end := l.published.pos
	l.published.Unlock()
	end, err := l.journal.search(end, func(r *journalRecord) bool { return r.start >= to })
	if err != nil {
		return err
	}
	return l.report(l.scan(from, end, 0))
}

// report tells what a scan has found, and lets the next Open look at it again.
func (l *Log) report(damages []Damage, why, err error) error {
	if len(damages) > 0 {
		l.Suspect(damages...)
		return errors.Join(&DamageError{Damages: damages}, why, err)
	}
	return errors.Join(why, err)
}

// Verify checks every journal record whose entry lies at or above from, up to the end of what is
// published, and the bytes they name, against their checksums. It reads everything; for scrubbing. A DamageError names all
// damaged ranges, which the next Open looks at again.
func (l *Log) Verify(from int64) error {
	l.published.Lock()
	end := l.published.pos
	l.published.Unlock()
	if _, err := l.log.CommitBuffers(0); err != nil {
		return err
	}
	return l.report(l.scan(from, end, 0))
}
