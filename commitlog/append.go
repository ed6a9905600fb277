package commitlog

import (
	"errors"
	"fmt"
	"hash/crc32"

	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
	"raftmq/seam"
)

// zeros is what follows a filler's header, for its checksum; never written.
var zeros [mappedfile.PageSize]byte

// BeginEntry starts the bytes of one Raft entry. Indexes rise, gaps are allowed: entries without
// bytes need not be announced.
func (l *Log) BeginEntry(raftIndex, raftTerm uint64) error {
	switch {
	case l.failed != nil:
		return l.failed
	case l.closed.Load():
		return ErrClosed
	case l.entry.open:
		return fmt.Errorf("%w: entry %d begins inside entry %d", ErrIndex, raftIndex, l.entry.index)
	case l.raw.open:
		return fmt.Errorf("%w: entry %d begins inside an installation", ErrIndex, raftIndex)
	case raftIndex <= l.lastIndex:
		return fmt.Errorf("%w: entry %d after entry %d", ErrIndex, raftIndex, l.lastIndex)
	case raftTerm < l.lastTerm:
		return fmt.Errorf("%w: entry %d has term %d after term %d", ErrIndex, raftIndex, raftTerm, l.lastTerm)
	}
	replaying, err := l.beginReplay(raftIndex)
	if err != nil {
		return l.fail(err)
	}
	l.entry = entryState{open: true, replaying: replaying, index: raftIndex, term: raftTerm, start: l.pos}
	return nil
}

// Append copies n contiguous records of one topic and queue, in final form, into the log, all in
// one segment (the blank filler and roll before them if they do not fit), assigns their queue
// and physical offsets, and raises a store timestamp that is below the log's last one. ErrTooLarge and
// ErrRecords leave everything as it was; after any other error the log is ErrFailed and the node
// must stop (Apply-Never-Waits). records is only read. No allocation for a known queue.
func (l *Log) Append(topic []byte, queueID int32, records []byte, n int) (Appended, error) {
	if l.failed != nil {
		return Appended{}, l.failed
	}
	if !l.entry.open {
		return Appended{}, fmt.Errorf("%w: append outside an entry", ErrIndex)
	}
	total := int64(len(records))
	if total+record.BlankMinSize > l.cfg.SegmentSize {
		return Appended{}, fmt.Errorf("%w: %d bytes and %d for the filler, a segment has %d", ErrTooLarge,
			total, record.BlankMinSize, l.cfg.SegmentSize)
	}
	if err := checkRecords(topic, queueID, records, n); err != nil {
		return Appended{}, err
	}
	offsets, err := l.queues.counters(topic, queueID)
	if err != nil {
		return Appended{}, err
	}
	if room := l.cfg.SegmentSize - l.pos%l.cfg.SegmentSize; total+record.BlankMinSize > room {
		if err := l.fillSegment(int(room)); err != nil {
			return Appended{}, l.fail(err)
		}
	}
	dst, err := l.room(int(total))
	if err != nil {
		return Appended{}, l.fail(err)
	}
	a := Appended{PhyOffset: l.pos, QueueOffset: l.place(dst, records, &offsets[queueID])}
	l.pos += total
	return a, nil
}

// checkRecords makes sure that place works on n whole records of this queue: a length that lies
// would patch foreign bytes on every replica.
func checkRecords(topic []byte, queueID int32, records []byte, n int) error {
	for i := 0; ; i++ {
		if i == n || len(records) == 0 {
			if i == n && len(records) == 0 && n > 0 {
				return nil
			}
			return fmt.Errorf("%w: %d records announced, %d found, %d bytes over", ErrRecords, n, i, len(records))
		}
		size, err := record.Check(records, false)
		if err != nil {
			return fmt.Errorf("%w: record %d of %d: %w", ErrRecords, i+1, n, err)
		}
		v := record.View(records[:size])
		if t := v.Topic(); string(t) != string(topic) || v.QueueID() != queueID {
			return fmt.Errorf("%w: record %d of %d is of queue %q/%d, not %q/%d", ErrRecords, i+1, n, t, v.QueueID(), topic, queueID)
		}
		records = records[size:]
	}
}

// room returns where the next n bytes go: the log, or a scratch area in replay.
func (l *Log) room(n int) ([]byte, error) {
	if !l.entry.replaying {
		return l.reserve(l.log, n)
	}
	if cap(l.replay.scratch) < n {
		l.replay.scratch = make([]byte, n)
	}
	return l.replay.scratch[:n], nil
}

// reserve takes the next n bytes of the log or the journal. When the disk is full the owner may still have
// something put by.
func (l *Log) reserve(q *mappedfile.Queue, n int) ([]byte, error) {
	b, err := q.Append(n)
	if errors.Is(err, mappedfile.ErrNoSpace) && l.cfg.NoSpace != nil && l.cfg.NoSpace() {
		b, err = q.Append(n)
	}
	return b, err
}

// writeOut writes what the entry has gathered to its segment.
func (l *Log) writeOut() error {
	err := l.log.WriteOut()
	if errors.Is(err, mappedfile.ErrNoSpace) && l.cfg.NoSpace != nil && l.cfg.NoSpace() {
		err = l.log.WriteOut()
	}
	return err
}

// seamByte is one of a record's born timestamp, which nobody verifies but by comparing nodes.
const seamByte = 47

// place copies records to dst, which is at l.pos, patches them and adds them to the entry's checksum.
// next is their queue's counter; the first queue offset is returned.
func (l *Log) place(dst, records []byte, next *int64) (first int64) {
	copy(dst, records)
	*next = max(0, *next)
	for off := 0; off < len(dst); {
		v := record.View(dst[off:])
		var queueOffset int64 // stays 0 for prepared and rollback records, which no queue lists
		if record.AssignsQueueOffset(v.SysFlag()) {
			queueOffset = *next
			if !seam.Often(seam.ReuseOffset, 100) {
				*next++
			}
		}
		if off == 0 {
			first = queueOffset
		}
		record.PatchOffsets(v, queueOffset, l.pos+int64(off))
		if t := v.StoreTimestamp(); t > l.lastStoreTimestamp {
			l.lastStoreTimestamp = t
		} else if t < l.lastStoreTimestamp {
			record.PatchStoreTimestamp(v, l.lastStoreTimestamp)
		}
		if seam.Often(seam.WrongByte, 100) {
			v[seamByte] ^= 1
		}
		off += v.Size()
	}
	l.entry.crc = crc32.Update(l.entry.crc, castagnoli, dst)
	return first
}

// fillSegment writes the blank filler: all n bytes that remain of the segment, zero behind its header.
func (l *Log) fillSegment(n int) error {
	var buf [record.BlankMinSize]byte
	header := record.AppendBlank(buf[:0], n)
	if !l.entry.replaying {
		dst, err := l.reserve(l.log, len(header))
		if err != nil {
			return err
		}
		copy(dst, header)
		if err := l.log.Skip(int64(n - len(header))); err != nil {
			return err
		}
	}
	crc := crc32.Update(l.entry.crc, castagnoli, header)
	for rest := n - len(header); rest > 0; rest -= len(zeros) {
		crc = crc32.Update(crc, castagnoli, zeros[:min(rest, len(zeros))])
	}
	l.entry.crc = crc
	l.pos += int64(n)
	return nil
}

// EndEntry writes the entry's journal record if it produced bytes; in replay it compares instead.
// Readers see the entry after Publish.
func (l *Log) EndEntry() error {
	if l.failed != nil {
		return l.failed
	}
	e := &l.entry
	if !e.open {
		return fmt.Errorf("%w: no entry to end", ErrIndex)
	}
	e.open = false
	r := journalRecord{
		kind: kindEntry, index: e.index, term: e.term, start: e.start, end: l.pos,
		lastStoreTimestamp: l.lastStoreTimestamp, crc: e.crc,
	}
	if e.replaying {
		if err := l.endReplay(&r); err != nil {
			return l.fail(err)
		}
	} else {
		if l.pos > e.start {
			if err := l.writeOut(); err != nil {
				return l.fail(err)
			}
			if err := l.writeJournal(&r); err != nil {
				return l.fail(err)
			}
		}
		l.last = tail{index: e.index, term: e.term, end: l.pos, pos: l.journal.WriteOffset()}
		l.replay.pos = l.last.pos // nothing to compare
	}
	l.lastIndex, l.lastTerm = e.index, e.term
	return nil
}

// Publish makes all ended entries readable. Once per Apply batch. It waits for nothing.
func (l *Log) Publish() {
	l.published.Lock()
	defer l.published.Unlock()
	if l.published.tail == l.last {
		return
	}
	// The journal first: who sees the bytes and flushes them flushes their record as well.
	l.journal.Commit(l.last.pos - l.published.pos)
	l.log.Commit(l.last.end - l.published.end)
	l.published.tail = l.last
	if l.last.end-l.woke.end >= l.cfg.AllocateStep/2 || l.last.end/l.cfg.SegmentSize != l.woke.end/l.cfg.SegmentSize ||
		l.last.pos/l.cfg.JournalFileSize != l.woke.pos/l.cfg.JournalFileSize {
		l.woke = l.last
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// fail remembers that an entry may be half written.
func (l *Log) fail(err error) error {
	l.failed = fmt.Errorf("%w: %w", ErrFailed, err)
	return err
}
