package inspect

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"raftmq/commitlog/record"
)

// logWalk goes through the whole log. Its visitor sees every item but the ends of segments.
type logWalk struct {
	s     *Store
	w     *window
	it    item // the visited one, here so that it is not allocated for each record
	visit func(seg *Segment, it *item) error
	// begun is called before a segment's first item, ended behind its last.
	begun, ended func(seg *Segment, end item) error
	vanished     func(seg *Segment)
}

// run visits the items that end behind the physical offset from. Segments that vanish meanwhile, by
// retention, are passed over.
func (l *logWalk) run(from int64) error {
	for i := range l.s.Segments {
		seg := &l.s.Segments[i]
		if seg.From+max(seg.Size, l.s.SegmentSize) <= from {
			l.s.progress(seg.Size)
			continue
		}
		if err := l.segment(seg, from); err != nil {
			if errors.Is(err, ErrStop) {
				return nil
			}
			return err
		}
	}
	return nil
}

func (l *logWalk) segment(seg *Segment, from int64) error {
	src, err := openSource(seg.path)
	if errors.Is(err, fs.ErrNotExist) {
		if l.vanished != nil {
			l.vanished(seg)
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer src.Close()
	if l.w == nil {
		l.w = newWindow(src)
	} else {
		l.w.reset(src)
	}
	scan := newSegmentScan(l.w, seg.From, l.s.SegmentSize)
	if base := l.s.base(); base > seg.From {
		scan.pos = min(base-seg.From, scan.limit)
	}
	if from > seg.From {
		// Straight there if a record begins there; otherwise record by record.
		if ok, err := scan.valid(from - seg.From); err != nil {
			return err
		} else if ok {
			scan.pos = from - seg.From
		}
	}
	if l.begun != nil {
		if err := l.begun(seg, item{pos: scan.pos}); err != nil {
			return err
		}
	}
	told := int64(0) // of this segment, for Progress
	it := &l.it
	for {
		if *it, err = scan.next(); err != nil {
			return fmt.Errorf("%s: %w", seg.Path, err)
		}
		if it.itemType == itemEnd {
			l.s.progress(seg.Size - told)
			if l.ended != nil {
				return l.ended(seg, *it)
			}
			return nil
		}
		if it.pos-told >= windowSize {
			l.s.progress(it.pos - told)
			told = it.pos
		}
		if seg.From+it.pos+it.size <= from {
			continue
		}
		if err := l.visit(seg, it); err != nil {
			return err
		}
	}
}

// base is where RaftMQ's log begins inside its first segment.
func (s *Store) base() int64 { return s.point.base }

// Record is a record of the log.
type Record struct {
	record.Message
	Size   int
	File   string // relative to the store's root
	Offset int64  // in the file
	Damage Kind   // what is wrong with it, "" when nothing is
}

// RecordFilter chooses records. The zero value chooses all.
type RecordFilter struct {
	Topic    string // "" all
	QueueID  *int32 // nil all
	From, To int64  // physical offsets; To 0 is the end of the log
	Limit    int64  // at most so many, 0 all
}

// Records visits records in the log's order. The record's slices live until visit returns. Places
// that hold no record go to damaged; it may be nil. A visitor may return ErrStop.
func (s *Store) Records(f RecordFilter, visit func(*Record) error, damaged func(Finding)) error {
	if s.Format == DLedger {
		return ErrDLedger
	}
	var r Record
	n := int64(0)
	walk := logWalk{s: s, visit: func(seg *Segment, it *item) error {
		phy := seg.From + it.pos
		if f.To > 0 && phy >= f.To {
			return ErrStop
		}
		if it.kind != "" && damaged != nil {
			damaged(Finding{Kind: it.kind, File: seg.Path, Offset: it.pos, Length: it.size, PhyOffset: phy, Detail: it.detail})
		}
		if it.itemType != itemRecord || phy < f.From ||
			f.Topic != "" && string(it.rec.Topic()) != f.Topic || f.QueueID != nil && it.rec.QueueID() != *f.QueueID {
			return nil
		}
		r.fill(seg, it)
		if err := visit(&r); err != nil {
			return err
		}
		if n++; f.Limit > 0 && n >= f.Limit {
			return ErrStop
		}
		return nil
	}}
	return walk.run(f.From)
}

// fill decodes by the view, since a damaged record does not pass record.Decode.
func (r *Record) fill(seg *Segment, it *item) {
	v := it.rec
	*r = Record{Size: v.Size(), File: seg.Path, Offset: it.pos, Damage: it.kind, Message: record.Message{
		Topic: v.Topic(), QueueID: v.QueueID(), Flag: v.Flag(), QueueOffset: v.QueueOffset(), PhyOffset: v.PhyOffset(), SysFlag: v.SysFlag(),
		BornTimestamp: v.BornTimestamp(), BornHost: v.BornHost(), StoreTimestamp: v.StoreTimestamp(), StoreHost: v.StoreHost(),
		ReconsumeTimes: v.ReconsumeTimes(), PreparedTransactionOffset: v.PreparedTransactionOffset(), BodyCRC: v.BodyCRC(),
		Magic: v.Magic(), Body: v.Body(), Properties: v.Properties(),
	}}
}

// segmentOf is the segment that holds a physical offset, nil when none does.
func (s *Store) segmentOf(phy int64) *Segment {
	i, found := slices.BinarySearchFunc(s.Segments, phy, func(seg Segment, phy int64) int { return cmpInt(seg.From, phy) })
	if !found {
		i--
	}
	if i < 0 || phy < s.Segments[i].From || phy >= s.Segments[i].From+min(s.Segments[i].Size, s.SegmentSize) {
		return nil
	}
	return &s.Segments[i]
}

// logReader reads single records anywhere in the log.
type logReader struct {
	s   *Store
	seg *Segment
	src *fileSource
	buf []byte
}

func (l *logReader) close() error {
	if l.src == nil {
		return nil
	}
	err := l.src.Close()
	l.src, l.seg = nil, nil
	return err
}

// record returns the record that begins at phy and says so; nil when there is none. It lives until the
// next call.
func (l *logReader) record(phy int64) (record.View, error) {
	seg := l.s.segmentOf(phy)
	if seg == nil {
		return nil, nil
	}
	if seg != l.seg {
		if err := l.close(); err != nil {
			return nil, fmt.Errorf("inspect: %w", err)
		}
		src, err := openSource(seg.path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		l.seg, l.src = seg, src
	}
	// Most records are smaller than this.
	b, err := l.read(phy-seg.From, 1024)
	if err != nil || len(b) < record.MinSize {
		return nil, err
	}
	v := record.View(b)
	if m := v.Magic(); m != record.MagicV1 && m != record.MagicV2 || v.PhyOffset() != phy {
		return nil, nil
	}
	size := v.Size()
	if size < record.MinSize || size > maxRecord {
		return nil, nil
	}
	if size > len(b) {
		if b, err = l.read(phy-seg.From, size); err != nil {
			return nil, err
		}
	}
	if _, err := record.Check(b, false); err != nil {
		return nil, nil
	}
	return record.View(b[:size]), nil
}

func (l *logReader) read(pos int64, n int) ([]byte, error) {
	if cap(l.buf) < n {
		l.buf = make([]byte, n)
	}
	n = int(min(int64(n), l.src.size-pos))
	got, err := l.src.ReadAt(l.buf[:max(n, 0)], pos)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	return l.buf[:got], nil
}
