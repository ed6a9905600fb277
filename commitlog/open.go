package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"raftmq/commitlog/mappedfile"
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
		cfg: cfg, logger: cfg.Logger.Named("commitlog"),
		wake: make(chan struct{}, 1), stop: make(chan struct{}),
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
	var err error
	l.log, err = mappedfile.Open(mappedfile.Options{
		Dir: cfg.Dir, FileSize: cfg.SegmentSize, AllocateStep: min(cfg.AllocateStep, cfg.SegmentSize),
		Random: true, Logger: l.logger, FS: cfg.FS,
	})
	if err != nil {
		return fmt.Errorf("commitlog: %w", err)
	}
	records, err := mappedfile.Open(mappedfile.Options{
		Dir: filepath.Join(cfg.JournalDir, "records"), FileSize: cfg.JournalFileSize, Random: true, Logger: l.logger, FS: cfg.FS,
	})
	if err != nil {
		return fmt.Errorf("commitlog: %w", err)
	}
	l.journal = &journal{records}

	p, err := l.loadPoint()
	if err != nil {
		return err
	}
	l.point.Point = p
	if p.resetting {
		l.logger.Warn("finishing a reset of the log that a crash interrupted", "base", p.Base)
		if err := l.finishReset(p); err != nil {
			return err
		}
		p = l.point.Point
	}
	if err := l.checkPoint(p); err != nil {
		return err
	}
	t := tail{index: p.RaftIndex, term: p.RaftTerm, end: p.LogEnd, pos: p.JournalEnd}
	end, why, err := l.walk(t)
	if err != nil {
		return err
	}
	if err := l.cut(p, end, why); err != nil {
		return err
	}
	l.recovered = end
	l.setTail(end)
	l.woke = end
	return l.restoreEmpty()
}

// loadPoint reads the recovery point. Without one the log must be empty: the first Open stores one
// before anything else, so that a lost journal folder is never taken for a torn tail.
func (l *Log) loadPoint() (Point, error) {
	p, err := readPoint(&l.cfg)
	if err == nil {
		// A process that was killed between rename and sync left the name in the cache only.
		return p, l.cfg.FS.SyncDir(l.cfg.JournalDir)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return p, err
	}
	if l.log.Files() > 0 || l.journal.Files() > 0 {
		return Point{}, fmt.Errorf("%w: %s is missing, but %s has %d segments and the journal %d files", ErrCorrupt,
			l.cfg.pointPath(), l.cfg.Dir, l.log.Files(), l.journal.Files())
	}
	return p, writePoint(&l.cfg, p)
}

// checkPoint checks that log and journal reach up to the recovery point, and verifies the entries
// right below it.
func (l *Log) checkPoint(p Point) error {
	if l.log.Files() == 0 && p.LogEnd == p.Base {
		// Nothing was written since the log was made or reset.
		if err := l.log.Reset(p.Base); err != nil {
			return err
		}
	}
	if l.journal.MaxOffset() < p.JournalEnd {
		return fmt.Errorf("%w: journal %s ends at %d, below the recovery point %d", ErrCorrupt,
			l.journal.Path(p.JournalEnd), l.journal.MaxOffset(), p.JournalEnd)
	}
	if l.log.MaxOffset() < p.LogEnd {
		return fmt.Errorf("%w: log %s ends at %d, below the recovery point %d", ErrCorrupt,
			l.log.Path(p.LogEnd), l.log.MaxOffset(), p.LogEnd)
	}
	if l.log.MinOffset() > p.LogEnd || l.journal.MinOffset() > p.JournalEnd {
		return fmt.Errorf("%w: log begins at %d and journal at %d, above the recovery point %d, %d", ErrCorrupt,
			l.log.MinOffset(), l.journal.MinOffset(), p.LogEnd, p.JournalEnd)
	}
	if l.log.Files() > 0 && p.Base > l.log.MinOffset() {
		if err := l.log.SetMinOffset(p.Base); err != nil {
			return fmt.Errorf("%w: recovery point: %w", ErrCorrupt, err)
		}
	}
	if l.cfg.VerifyBytes < 0 || p.JournalEnd == l.journal.MinOffset() {
		return nil
	}
	last := p.JournalEnd - journalRecordSize
	r, err := l.journal.read(last)
	if err != nil {
		return l.journal.corrupt(last, err)
	}
	if r.end != p.LogEnd || r.index > p.RaftIndex {
		return l.journal.corrupt(last, fmt.Errorf("%w: ends at %d, index %d; the recovery point has %d, index %d", errJournalRecord,
			r.end, r.index, p.LogEnd, p.RaftIndex))
	}
	return l.verify(p.LogEnd-l.cfg.VerifyBytes, p.JournalEnd)
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

// Verify checks every journal record whose entry lies at or above from, up to the end of what is
// published, and the bytes they name, against their checksums. ErrCorrupt names file and offset.
// It reads everything; for scrubbing.
func (l *Log) Verify(from int64) error {
	l.published.Lock()
	end := l.published.pos
	l.published.Unlock()
	return l.verify(from, end)
}

// verify checks the entries that end behind from and whose records are below the journal position end.
func (l *Log) verify(from, end int64) error {
	pos, err := l.journal.search(end, func(r *journalRecord) bool { return r.end > from })
	if err != nil {
		return err
	}
	var before tail
	for ; pos < end; pos += journalRecordSize {
		r, err := l.journal.read(pos)
		if errors.Is(err, mappedfile.ErrOutOfRange) && pos < l.journal.MinOffset() {
			before = tail{} // deleted meanwhile
			continue
		}
		if err == nil && before.pos != 0 {
			err = r.follows(before)
		}
		if err != nil {
			return l.journal.corrupt(pos, err)
		}
		if err := l.checkBytes(&r); err != nil {
			switch {
			case errors.Is(err, mappedfile.ErrOutOfRange) && r.start < l.log.MinOffset(): // deleted
			case isDamage(err):
				return fmt.Errorf("%w: log %s offset %d: %w", ErrCorrupt, l.log.Path(r.start), r.start%l.cfg.SegmentSize, err)
			default:
				return fmt.Errorf("commitlog: log %s: %w", l.log.Path(r.start), err)
			}
		}
		before = tail{index: r.index, term: r.term, end: r.end, pos: pos + journalRecordSize}
	}
	return nil
}
