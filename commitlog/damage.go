package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"raftmq/commitlog/mappedfile"
)

// Damage is a range of the log below the recovery point that does not hold what was applied: whole
// journalled entries, or segments that are missing or have a wrong size.
type Damage struct {
	From, To  int64  // physical offsets
	File      string // of From
	Pos       int64  // of From in File
	RaftIndex uint64 // of the first entry; 0 for a segment
	Reason    error
}

// DamageError names every damaged range that was found. It is ErrCorrupt. The log was not changed, and the bytes
// that are there were copied to the quarantine folder (Never-Clean-Up).
type DamageError struct {
	Damages []Damage
	Healing error // why a peer's bytes did not help; nil when nobody could be asked
}

func (e *DamageError) Error() string {
	d := &e.Damages[0]
	var bytes int64
	for i := range e.Damages {
		bytes += e.Damages[i].To - e.Damages[i].From
	}
	text := fmt.Sprintf("%v: %d bytes in %d ranges, the first is [%d, %d), log %s offset %d: %v", ErrCorrupt, bytes, len(e.Damages), d.From, d.To, d.File, d.Pos, d.Reason)
	if e.Healing != nil {
		text += fmt.Sprintf("; not healed from a peer: %v", e.Healing)
	}
	return text
}

// Unwrap makes it ErrCorrupt, and what was met.
func (e *DamageError) Unwrap() []error {
	list := []error{ErrCorrupt}
	for i := range e.Damages {
		list = append(list, e.Damages[i].Reason)
	}
	if e.Healing != nil {
		list = append(list, e.Healing)
	}
	return list
}

// merge puts neighbours together.
func merge(list []Damage, d Damage) []Damage {
	if n := len(list); n > 0 && d.From <= list[n-1].To {
		list[n-1].To = max(list[n-1].To, d.To)
		return list
	}
	return append(list, d)
}

// scan verifies the entries that end behind from and whose records are below the journal position end. long leaves out
// ranges of more bytes, which an installation brought (0: none). why is damage of the journal itself; an
// error is the device's.
func (l *Log) scan(from, end, long int64) (damages []Damage, why, err error) {
	pos, err := l.journal.search(end, func(r *journalRecord) bool { return r.end > from })
	if err != nil {
		return nil, asDamage(err), notDamage(err)
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
			err = l.journal.corrupt(pos, err)
			return damages, asDamage(err), notDamage(err)
		}
		before = tail{index: r.index, term: r.term, end: r.end, pos: pos + journalRecordSize}
		if long > 0 && r.end-r.start > long {
			continue
		}
		switch err := l.checkBytes(&r); {
		case err == nil:
		case errors.Is(err, mappedfile.ErrOutOfRange) && r.start < l.log.MinOffset(): // deleted
		case isDamage(err):
			damages = merge(damages, l.damage(r.start, r.end, r.index, err))
		default:
			return damages, nil, fmt.Errorf("commitlog: log %s: %w", l.log.Path(r.start), err)
		}
	}
	return damages, nil, nil
}

func asDamage(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return err
	}
	return nil
}

func notDamage(err error) error {
	if errors.Is(err, ErrCorrupt) {
		return nil
	}
	return err
}

func (l *Log) damage(from, to int64, index uint64, reason error) Damage {
	size := l.cfg.SegmentSize
	path := filepath.Join(l.cfg.Dir, fmt.Sprintf("%020d", from-from%size))
	return Damage{From: from, To: to, File: path, Pos: from % size, RaftIndex: index, Reason: reason}
}

// checkLog looks for damage below the recovery point: at the newest VerifyBytes, and where earlier runs suspected some. What is
// found goes to the quarantine, and is healed with a peer's bytes when there is one to ask.
func (l *Log) checkLog(p Point) (whyJournal, err error) {
	suspects := append(l.remade, l.readSuspects()...)
	look := func() (damages []Damage, why, err error) {
		if l.cfg.VerifyBytes >= 0 {
			if damages, why, err = l.scan(p.LogEnd-l.cfg.VerifyBytes, p.JournalEnd, l.cfg.VerifyBytes); why != nil || err != nil {
				return damages, why, err
			}
		}
		for _, s := range suspects {
			end, err := l.journal.search(p.JournalEnd, func(r *journalRecord) bool { return r.start >= s.To })
			if err != nil {
				return damages, asDamage(err), notDamage(err)
			}
			more, why, err := l.scan(s.From, end, 0)
			if why != nil || err != nil {
				return damages, why, err
			}
			for _, d := range more {
				if d.From < p.LogEnd-l.cfg.VerifyBytes || l.cfg.VerifyBytes < 0 {
					damages = append(damages, d)
				}
			}
		}
		return damages, nil, nil
	}
	damages, why, err := look()
	if why != nil || err != nil {
		return why, err
	}
	if len(damages) == 0 {
		return nil, l.clearSuspects()
	}
	l.quarantineBytes(damages)
	l.Suspect(damages...) // the window of the next Open may be another one
	broken := &DamageError{Damages: damages}
	if l.cfg.Fetch == nil {
		return nil, l.keepDamaged(broken)
	}
	for _, d := range damages {
		l.logger.Warn("fetching damaged log bytes from a peer", "from", d.From, "to", d.To, "file", d.File)
		if broken.Healing = l.fetch(d.From, d.To); broken.Healing != nil {
			return nil, l.keepDamaged(broken)
		}
	}
	if damages, why, err = look(); why != nil || err != nil {
		return why, err
	}
	if len(damages) > 0 {
		broken.Damages, broken.Healing = damages, errors.New("what it sent does not match the journal either")
		return nil, l.keepDamaged(broken)
	}
	if _, err := l.log.Flush(0); err != nil {
		return nil, fmt.Errorf("commitlog: %w", err)
	}
	l.logger.Warn("damaged log bytes are healed", "ranges", len(broken.Damages), "quarantine", l.cfg.QuarantineDir)
	return nil, l.clearSuspects()
}

// keepDamaged goes on with damage in quarantine, if that is wished.
func (l *Log) keepDamaged(broken *DamageError) error {
	if !l.cfg.KeepDamaged {
		return broken
	}
	list := union(broken.Damages)
	l.damaged.Store(&list)
	return nil
}

// fetch writes a peer's bytes over [from, to).
func (l *Log) fetch(from, to int64) error {
	w := &overwriter{l: l, at: from, to: to}
	if err := l.cfg.Fetch(from, to, w); err != nil {
		return err
	}
	if w.at != to {
		return fmt.Errorf("it sent [%d, %d) only", from, w.at)
	}
	return nil
}

type overwriter struct {
	l      *Log
	at, to int64
}

// Write implements io.Writer.
func (w *overwriter) Write(p []byte) (int, error) {
	if int64(len(p)) > w.to-w.at {
		return 0, fmt.Errorf("it sent more than up to %d", w.to)
	}
	if err := w.l.log.WriteAt(p, w.at); err != nil {
		return 0, err
	}
	w.at += int64(len(p))
	return len(p), nil
}

var _ io.Writer = (*overwriter)(nil)

// quarantineBytes copies damaged bytes, as far as they can be read. It is evidence, not state: what fails is told.
func (l *Log) quarantineBytes(damages []Damage) {
	for _, d := range damages {
		l.logger.Error("log bytes are damaged", "from", d.From, "to", d.To, "file", d.File, "offset", d.Pos, "raft-index", d.RaftIndex, "reason", d.Reason)
		if err := l.quarantineRange(d.From, d.To); err != nil {
			l.logger.Error("could not copy damaged log bytes", "from", d.From, "to", d.To, "folder", l.cfg.QuarantineDir, "error", err)
		}
	}
}

// Bounds of a copy: what it holds in memory, and how much of a range is kept.
const (
	quarantineChunk = 16 << 20
	quarantineMost  = 1 << 30
)

// quarantineRange copies [from, to), or its begin when it is very long, into files named log-<from>-<to>.
func (l *Log) quarantineRange(from, to int64) error {
	if err := l.cfg.FS.MkdirAll(l.cfg.QuarantineDir); err != nil {
		return err
	}
	for to = min(to, from+quarantineMost); from < to; {
		b, err := l.copyOut(from, int(min(to-from, quarantineChunk)))
		if err != nil {
			return err
		}
		name := fmt.Sprintf("log-%020d-%020d", from, from+int64(len(b)))
		if err := l.cfg.FS.WriteFile(filepath.Join(l.cfg.QuarantineDir, name), b); err != nil {
			return err
		}
		from += int64(len(b))
	}
	return l.cfg.FS.SyncDir(l.cfg.QuarantineDir)
}

func (l *Log) copyOut(off int64, max int) (b []byte, err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	v, err := l.log.View(off, max)
	if err != nil {
		return nil, err
	}
	defer v.Release()
	return append([]byte(nil), v.Bytes...), nil
}

// quarantineFile moves a file away under a name that no other has.
func (l *Log) quarantineFile(path, name string) error {
	c := &l.cfg
	if err := c.FS.MkdirAll(c.QuarantineDir); err != nil {
		return err
	}
	taken := map[string]bool{}
	entries, err := c.FS.ReadDir(c.QuarantineDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		taken[e.Name] = true
	}
	free := name
	for i := 1; taken[free]; i++ {
		free = fmt.Sprintf("%s.%d", name, i)
	}
	if err := c.FS.Rename(path, filepath.Join(c.QuarantineDir, free)); err != nil {
		return err
	}
	return c.FS.SyncDir(c.QuarantineDir)
}

// Ranges that a run suspects are remembered in a text file, one "from to" a line, because the next Open looks at the newest
// bytes only.
const suspectsName = "suspects"

func (l *Log) suspectsPath() string { return filepath.Join(l.cfg.JournalDir, suspectsName) }

func (l *Log) readSuspects() (list []Damage) {
	b, err := l.cfg.FS.ReadFile(l.suspectsPath())
	if err != nil {
		return nil // there is none, or it can't be read: then the scrub finds it again
	}
	return parseSuspects(string(b))
}

// parseSuspects takes the lines that are ranges; others are what a crash left of one.
func parseSuspects(text string) (list []Damage) {
	for line := range strings.Lines(text) {
		var d Damage
		if n, err := fmt.Sscanf(line, "%d %d\n", &d.From, &d.To); n == 2 && err == nil && 0 <= d.From && d.From < d.To {
			list = append(list, d)
		}
	}
	return list
}

// Suspect remembers ranges so that the next Open verifies them, and heals them when it can. For damage that a reader or
// Verify has met.
func (l *Log) Suspect(damages ...Damage) {
	l.damagedMu.Lock()
	defer l.damagedMu.Unlock()
	if err := l.writeSuspects(union(append(l.readSuspects(), damages...))); err != nil {
		l.logger.Error("could not remember damaged log bytes", "error", err)
	}
}

// missingSegments finds segments below end that are not there, or not of their size.
func (l *Log) missingSegments(end int64) (missing []Damage, err error) {
	entries, err := l.cfg.FS.ReadDir(l.cfg.Dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0 {
		return nil, nil // told by checkPoint
	}
	if err != nil {
		return nil, fmt.Errorf("commitlog: %w", err)
	}
	size := l.cfg.SegmentSize
	sizes := map[int64]int64{}
	first := int64(-1)
	for _, e := range entries {
		from, ok := parseSegment(e.Name)
		if !ok || e.Dir || from%size != 0 {
			return nil, nil // mappedfile refuses it by its name
		}
		if first < 0 {
			first = from
		}
		sizes[from] = e.Size
	}
	for from := first; from < end; from += size {
		has, ok := sizes[from]
		switch {
		case !ok:
			missing = append(missing, l.damage(from, from+size, 0, fmt.Errorf("%w: the segment is missing", mappedfile.ErrLayout)))
		case has > size || has < size && from+has < end:
			missing = append(missing, l.damage(from, from+size, 0, fmt.Errorf("%w: the segment has %d bytes, expected %d", mappedfile.ErrLayout, has, size)))
		}
	}
	return missing, nil
}

func parseSegment(name string) (from int64, ok bool) {
	n, err := fmt.Sscanf(name, "%020d", &from)
	return from, n == 1 && err == nil && name == fmt.Sprintf("%020d", from)
}

// remakeSegments puts empty files into the place of missing ones, to be filled by a peer; files of a wrong size are moved away. A crash
// here leaves empty segments or holes: as damaged as before.
func (l *Log) remakeSegments(missing []Damage) error {
	// Before a file that looks whole stands there.
	l.Suspect(missing...)
	for _, d := range missing {
		l.logger.Error("a log segment is lost", "file", d.File, "reason", d.Reason)
		if err := l.quarantineFile(d.File, "segment-"+filepath.Base(d.File)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("commitlog: quarantine %s: %w", d.File, err)
		}
		h, err := l.cfg.FS.Create(d.File, l.cfg.SegmentSize)
		if err == nil { // the flush behind a repair takes files below the recovery point for named
			err = errors.Join(h.SyncSize(), h.Close())
		}
		if err != nil {
			return fmt.Errorf("commitlog: make %s again: %w", d.File, err)
		}
	}
	l.remade = missing
	if err := l.cfg.FS.SyncDir(l.cfg.Dir); err != nil {
		return fmt.Errorf("commitlog: %w", err)
	}
	return nil
}
