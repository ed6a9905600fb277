package commitlog

import (
	"fmt"
	"hash/crc32"
	"math"

	"raftmq/commitlog/mappedfile"
)

// rawState is a range of bytes that WriteRaw brought and no journal record names yet.
type rawState struct {
	open bool
	crc  uint32
}

// ResetTo empties the log and lets it start at the physical offset base: for a follower whose log
// ends below the leader's first segment. Everything that was in it is given up; a crash after the call
// began ends in the empty log too. Readers get mappedfile.ErrOutOfRange, views stay valid.
func (l *Log) ResetTo(base int64) error {
	switch {
	case l.failed != nil:
		return l.failed
	case l.closed.Load():
		return ErrClosed
	case l.entry.open:
		return fmt.Errorf("%w: reset inside entry %d", ErrIndex, l.entry.index)
	case base < 0:
		return fmt.Errorf("%w: reset to %d", mappedfile.ErrOutOfRange, base)
	}
	l.point.Lock()
	defer l.point.Unlock()
	p := Point{LogEnd: base, Base: base, resetting: true}
	if err := writePoint(&l.cfg, p); err != nil {
		return l.fail(err)
	}
	if err := l.finishReset(p); err != nil {
		return l.fail(err)
	}
	l.setTail(tail{end: base})
	l.installed.Lock()
	l.installed.pos, l.installed.end = 0, 0
	l.installed.Unlock()
	if err := l.release(0, math.MaxInt64); err != nil {
		return l.fail(err)
	}
	return l.restoreEmpty()
}

// finishReset does what a recovery point with the reset flag asks for. It may be repeated.
func (l *Log) finishReset(p Point) error {
	l.flushMu.Lock()
	defer l.flushMu.Unlock()
	if err := l.journal.Reset(0); err != nil {
		return err
	}
	if err := l.log.Reset(p.Base); err != nil {
		return err
	}
	l.flushedTo.Store(p.Base)
	p.resetting = false
	if err := writePoint(&l.cfg, p); err != nil {
		return err
	}
	l.point.Point = p
	return nil
}

func (l *Log) setTail(t tail) {
	l.last = t
	l.published.Lock()
	defer l.published.Unlock()
	l.published.tail = t
}

// restoreEmpty sets the position of an empty snapshot. Replay begins at offset 0; with nothing
// to replay the next entry goes to the end of the log.
func (l *Log) restoreEmpty() error {
	l.queues, l.lastStoreTimestamp, l.lastIndex, l.lastTerm = queueTable{}, 0, 0, 0
	l.replay.pos, l.replay.have = l.journal.MinOffset(), false
	l.raw = rawState{}
	l.trim(0)
	l.pos = 0
	if l.last.index == 0 {
		l.pos = l.last.end
	}
	return nil
}

// WriteRaw appends bytes of a peer's log, in order, from the log's end on. They are no part of the
// log before Restore; a crash before that cuts them off.
func (l *Log) WriteRaw(p []byte) error {
	switch {
	case l.failed != nil:
		return l.failed
	case l.closed.Load():
		return ErrClosed
	case l.entry.open:
		return fmt.Errorf("%w: raw bytes inside entry %d", ErrIndex, l.entry.index)
	}
	l.raw.open = true
	for len(p) > 0 {
		n := min(int64(len(p)), l.log.Remaining())
		dst, err := l.log.Append(int(n))
		if err != nil {
			return err
		}
		copy(dst, p[:n])
		l.raw.crc = crc32.Update(l.raw.crc, castagnoli, p[:n])
		p = p[n:]
	}
	if err := l.log.WriteOut(); err != nil {
		return l.fail(err)
	}
	return nil
}

// DiscardRaw gives up what WriteRaw brought.
func (l *Log) DiscardRaw() error {
	if !l.raw.open {
		return nil
	}
	if err := l.log.Truncate(l.last.end); err != nil {
		return l.fail(err)
	}
	l.raw = rawState{}
	return nil
}

// endInstall gives the raw bytes their journal record and makes both durable.
func (l *Log) endInstall(p Position) error {
	end := l.log.WriteOffset()
	if p.LogEnd != end || p.RaftIndex <= l.last.index || p.RaftTerm < l.last.term {
		return fmt.Errorf("%w: installed up to %d after index %d term %d, the snapshot ends at %d, index %d term %d", ErrDiverged,
			end, l.last.index, l.last.term, p.LogEnd, p.RaftIndex, p.RaftTerm)
	}
	t := tail{index: p.RaftIndex, term: p.RaftTerm, end: end, pos: l.last.pos}
	if end > l.last.end {
		r := journalRecord{
			kind: kindInstall, index: t.index, term: t.term, start: l.last.end, end: end,
			lastStoreTimestamp: p.LastStoreTimestamp, crc: l.raw.crc,
		}
		if err := l.writeJournal(&r); err != nil {
			return l.fail(err)
		}
		t.pos = l.journal.WriteOffset()
	}
	l.last, l.raw = t, rawState{}
	l.Publish()
	if _, err := l.SetRecoveryPoint(); err != nil {
		return l.fail(err)
	}
	return nil
}
