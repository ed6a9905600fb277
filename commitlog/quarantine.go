package commitlog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"raftmq/commitlog/mappedfile"
)

// ErrQuarantined: the bytes are known to be damaged, and nobody is given them before Repair.
var ErrQuarantined = mappedfile.ErrQuarantined

// The ranges in quarantine are whole journalled entries, or whole segments of what an installation brought. They are kept in memory
// for readers, and in the file suspects so that the next Open looks at them again, whatever their place.

// Damaged lists the ranges in quarantine, by offset. The caller must not change it.
func (l *Log) Damaged() []Damage {
	if list := l.damaged.Load(); list != nil {
		return *list
	}
	return nil
}

// clip bounds a view of at most max bytes from off on so that it ends before the next range in quarantine; ErrQuarantined inside one.
func (l *Log) clip(off int64, max int) (int, error) {
	list := l.damaged.Load()
	if list == nil {
		return max, nil
	}
	for i := range *list {
		d := &(*list)[i]
		switch {
		case off >= d.To:
		case off >= d.From:
			return 0, fmt.Errorf("%w: %d is in [%d, %d), log %s offset %d", ErrQuarantined, off, d.From, d.To, d.File, d.Pos)
		default:
			return int(min(int64(max), d.From-off)), nil
		}
	}
	return max, nil
}

// whole is ErrQuarantined when a part of [from, to) is in quarantine.
func (l *Log) whole(from, to int64) error {
	for _, d := range l.Damaged() {
		if d.From < to && from < d.To {
			return fmt.Errorf("%w: [%d, %d), log %s offset %d", ErrQuarantined, d.From, d.To, d.File, d.Pos)
		}
	}
	return nil
}

// Quarantine takes ranges away from readers: a copy of each is kept, the ranges are remembered for the next Open, and from then on a view
// of them is ErrQuarantined. What is there already is passed over; it returns what was new, whole entries all of it. It waits for the disk.
func (l *Log) Quarantine(damages ...Damage) (fresh []Damage, err error) {
	l.damagedMu.Lock()
	defer l.damagedMu.Unlock()
	list := slices.Clone(l.Damaged())
	for _, d := range damages {
		if d, err = l.widen(d); err != nil {
			return nil, err
		}
		covered := slices.ContainsFunc(list, func(x Damage) bool { return x.From <= d.From && d.To <= x.To })
		if !covered && d.From < d.To {
			fresh = append(fresh, d)
			list = union(append(list, d))
		}
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	l.quarantineBytes(fresh)
	if err := l.writeSuspects(list); err != nil {
		return nil, err
	}
	l.damaged.Store(&list)
	return fresh, nil
}

// union sorts ranges and joins those that overlap. Neighbours stay apart: they are repaired one by one.
func union(list []Damage) []Damage {
	slices.SortFunc(list, func(a, b Damage) int { return cmp.Compare(a.From, b.From) })
	out := list[:0]
	for _, d := range list {
		if n := len(out); n > 0 && d.From < out[n-1].To {
			out[n-1].To = max(out[n-1].To, d.To)
			continue
		}
		out = append(out, d)
	}
	return out
}

// widen takes a range to the borders of its entries, in an installed range to those of its segments: readers find whole records on
// both sides.
func (l *Log) widen(d Damage) (Damage, error) {
	low, end := l.log.MinOffset(), l.log.MaxOffset()
	d.From, d.To = max(d.From, low), min(d.To, end)
	if d.From >= d.To {
		return d, nil
	}
	pieces, err := l.pieces(d.From, d.To)
	if err != nil {
		return d, err
	}
	if n := len(pieces); n > 0 {
		d.From, d.To = min(d.From, pieces[0].from), max(d.To, pieces[n-1].to)
	}
	w := l.damage(max(d.From, low), min(d.To, end), d.RaftIndex, d.Reason)
	if len(pieces) > 0 && w.RaftIndex == 0 {
		w.RaftIndex = pieces[0].record.index
	}
	return w, nil
}

// piece is what is repaired at once: the bytes of an entry, or of an installed range within a segment.
type piece struct {
	from, to int64
	record   journalRecord
}

// pieces are those that have bytes in [from, to).
func (l *Log) pieces(from, to int64) (list []piece, err error) {
	l.published.Lock()
	end := l.published.pos
	l.published.Unlock()
	pos, err := l.journal.search(end, func(r *journalRecord) bool { return r.end > from })
	if err != nil {
		return nil, err
	}
	for ; pos < end; pos += journalRecordSize {
		r, err := l.journal.read(pos)
		if err != nil {
			return nil, l.journal.corrupt(pos, err)
		}
		if r.start >= to {
			break
		}
		if r.kind == kindEntry {
			list = append(list, piece{r.start, r.end, r})
			continue
		}
		size := l.cfg.SegmentSize
		for at := max(r.start, from-from%size); at < min(r.end, to); {
			next := min(at-at%size+size, r.end)
			list = append(list, piece{at, next, r})
			at = next
		}
	}
	return list, nil
}

// release gives [from, to) back to readers.
func (l *Log) release(from, to int64) error {
	l.damagedMu.Lock()
	defer l.damagedMu.Unlock()
	var list []Damage
	for _, d := range l.Damaged() {
		if d.From < from {
			rest := d
			rest.To = min(d.To, from)
			list = append(list, rest)
		}
		if d.To > to {
			start := max(d.From, to)
			list = append(list, l.damage(start, d.To, 0, d.Reason))
		}
	}
	if err := l.writeSuspects(list); err != nil {
		return err
	}
	if len(list) == 0 {
		l.damaged.Store(nil)
		return nil
	}
	l.damaged.Store(&list)
	return nil
}

// forgetDamaged drops what lies below off: its files are gone.
func (l *Log) forgetDamaged(off int64) error {
	list := l.Damaged()
	if len(list) == 0 || list[0].From >= off {
		return nil
	}
	return l.release(0, off)
}

// writeSuspects replaces the file suspects, durably; an empty list removes it.
func (l *Log) writeSuspects(list []Damage) error {
	if len(list) == 0 {
		return l.clearSuspects()
	}
	l.suspectMu.Lock()
	defer l.suspectMu.Unlock()
	var text strings.Builder
	for _, d := range list {
		fmt.Fprintf(&text, "%d %d\n", d.From, d.To)
	}
	path := l.suspectsPath()
	err := l.cfg.FS.WriteFile(path+".tmp", []byte(text.String()))
	if err == nil {
		err = l.cfg.FS.Rename(path+".tmp", path)
	}
	if err == nil {
		err = l.cfg.FS.SyncDir(l.cfg.JournalDir)
	}
	if err != nil {
		return fmt.Errorf("commitlog: remember damaged bytes in %s: %w", path, err)
	}
	return nil
}

// clearSuspects forgets all suspects. That it is durable does not matter: who looks once more finds nothing.
func (l *Log) clearSuspects() error {
	err := l.cfg.FS.Remove(l.suspectsPath())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
