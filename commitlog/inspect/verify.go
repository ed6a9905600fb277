package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"time"

	"raftmq/commitlog/consumequeue"
	"raftmq/commitlog/record"
)

// Verify reads everything and compares it: records with themselves, the log's bytes with the journal, each record with
// its units and index entries, and what is left of these with the log. Findings go to report as they
// come. The error says that something could not be read; the store may be damaged or not.
//
// It goes once through the log, and at its side through journal and index; each record's unit is looked up. Units
// that no record asked for are then looked at one by one.
func (s *Store) Verify(report func(Finding)) (Summary, error) {
	v := &verifier{s: s, queues: map[string]*queueState{}, bound: math.MaxInt64, summary: Summary{Complete: true, Segments: len(s.Segments)}}
	begun := time.Now()
	v.r = newReporter(report, &v.summary)
	defer v.reader.close()
	v.reader.s = s
	err := v.run()
	v.r.flush()
	v.summary.JudgedTo = min(v.bound, v.summary.LogEnd)
	v.summary.Millis = time.Since(begun).Milliseconds()
	return v.summary, err
}

type verifier struct {
	s       *Store
	r       *reporter
	summary Summary
	reader  logReader

	// bound is where a running broker's moving part begins: what lies behind is not judged.
	bound int64

	damaged   ranges
	queues    map[string]*queueState
	windows   []*queueState // that hold a window of units, oldest first
	scratch   []byte
	journal   *journalCheck
	index     *indexCheck
	hole      *Finding // where a segment's records ended early
	torn      *Finding // bytes that no journal record names
	lastTime  int64    // of the last record, ms
	lastEmpty bool     // the last segment holds nothing
	lastBad   bool     // the last item was no record
}

func (v *verifier) run() error {
	s := v.s
	if s.Format == DLedger {
		return ErrDLedger
	}
	if err := v.setBound(); err != nil {
		return err
	}
	v.listings()
	v.checkMeta()
	var err error
	if v.journal, err = newJournalCheck(v); err != nil {
		return err
	}
	defer v.journal.close()
	if v.index, err = newIndexCheck(v); err != nil {
		return err
	}
	defer v.index.close()
	if err := v.walkLog(); err != nil {
		return err
	}
	if err := v.journal.finish(); err != nil {
		return err
	}
	if err := v.index.finish(); err != nil {
		return err
	}
	if err := v.restOfQueues(); err != nil {
		return err
	}
	if err := v.checkExt(); err != nil {
		return err
	}
	v.checkPoints()
	v.checkIndexPoint()
	if err := v.checkCheckpoint(); err != nil {
		return err
	}
	v.checkAbort()
	return v.checkConfig()
}

// setBound decides what is judged beside a running broker: what it had dispatched when reading began.
func (v *verifier) setBound() error {
	s := v.s
	if !s.InUse.Running {
		return nil
	}
	v.summary.Complete = false
	if s.Format == RaftMQ {
		v.bound = 0
		if s.points.recovery == nil && s.points.queuePoints {
			v.bound = min(s.point.logEnd, s.points.queuePoint.phyOffset)
		}
		return nil
	}
	// RocketMQ dispatches in the log's order, the queues first: everything before the newest unit's record is done.
	v.bound = 0
	for i := range s.Queues {
		last, err := s.lastUnit(&s.Queues[i])
		if err != nil {
			return err
		}
		v.bound = max(v.bound, last)
	}
	return nil
}

// lastUnit is the physical offset of a queue's last unit, 0 when there is none.
func (s *Store) lastUnit(q *Queue) (int64, error) {
	for i := len(q.Files) - 1; i >= 0; i-- {
		last := int64(-1)
		err := s.unitsOf(&window{}, &q.Files[i], func(_ *QueueFile, _ int64, u consumequeue.Unit) error {
			if u.Size <= 0 {
				return errEndOfFile
			}
			if u.IsRecord() {
				last = u.PhyOffset
			}
			return nil
		})
		if err != nil && !errors.Is(err, errEndOfFile) {
			return 0, err
		}
		if last >= 0 {
			return last, nil
		}
	}
	return 0, nil
}

// listings passes on what the folder listings told. Beside a running broker the newest files may be half made.
func (v *verifier) listings() {
	newest := map[string]bool{}
	if v.s.InUse.Running {
		if n := len(v.s.Segments); n > 0 {
			newest[v.s.Segments[n-1].Path] = true
		}
		for _, q := range v.s.Queues {
			if n := len(q.Files); n > 0 {
				newest[q.Files[n-1].Path] = true
			}
		}
	}
	for _, f := range v.s.layout {
		if !newest[f.File] {
			v.r.add(f)
		}
	}
}

// walkLog goes through the log and compares each record.
func (v *verifier) walkLog() error {
	if n := len(v.s.Segments); n > 0 {
		v.summary.LogMin = max(v.s.Segments[0].From, v.s.base())
		v.summary.LogEnd = v.summary.LogMin
	}
	walk := logWalk{s: v.s}
	walk.visit = func(seg *Segment, it *item) error { return v.item(&walk, seg, it) }
	walk.begun = func(*Segment, item) error { v.lastEmpty, v.lastBad = true, false; return nil }
	walk.ended = func(seg *Segment, end item) error {
		if !end.full && !v.lastBad { // otherwise what is wrong at the end is told
			v.hole = &Finding{Kind: KindHole, File: seg.Path, Offset: end.pos, Length: v.s.SegmentSize - end.pos, PhyOffset: seg.From + end.pos,
				Detail: "the segment's records end here, without a filler, and later segments have more"}
		}
		return nil
	}
	walk.vanished = func(seg *Segment) {
		if v.s.InUse.Running && v.summary.Records == 0 {
			v.summary.LogMin = seg.From + v.s.SegmentSize // retention
			return
		}
		v.r.add(Finding{Kind: KindSegmentGap, File: seg.Path, PhyOffset: seg.From, Length: v.s.SegmentSize, Detail: "the segment vanished while it was to be read"})
	}
	return walk.run(0)
}

func (v *verifier) item(walk *logWalk, seg *Segment, it *item) error {
	phy := seg.From + it.pos
	v.lastEmpty, v.lastBad = false, it.itemType == itemBad
	if phy >= v.bound && it.kind != "" {
		return ErrStop // being written
	}
	if v.hole != nil {
		v.r.add(*v.hole)
		v.hole = nil
	}
	if err := v.journal.upTo(phy); err != nil {
		return err
	}
	if v.journal.behind(phy) {
		v.tear(seg, it)
		return nil
	}
	end := phy + it.size
	if it.kind != "" {
		v.damaged.add(phy, end)
		v.r.add(Finding{Kind: it.kind, File: seg.Path, Offset: it.pos, Length: it.size, PhyOffset: phy, Detail: it.detail})
	}
	switch it.itemType {
	case itemFiller:
		v.summary.LogEnd = seg.From + v.s.SegmentSize
		return v.filler(walk, seg, it)
	case itemRecord:
		v.summary.Records++
		v.summary.LogEnd = end
		if it.kind == "" && !v.damaged.has(phy) {
			return v.record(seg, it)
		}
	}
	return nil
}

// tear widens the notice about bytes that no journal record names.
func (v *verifier) tear(seg *Segment, it *item) {
	if v.torn == nil {
		v.torn = &Finding{Kind: KindTornTail, Notice: true, File: seg.Path, Offset: it.pos, PhyOffset: seg.From + it.pos}
	}
	v.torn.Length = seg.From + it.pos + it.size - v.torn.PhyOffset
}

func (v *verifier) filler(walk *logWalk, seg *Segment, it *item) error {
	from := it.pos + record.BlankMinSize
	end := it.pos + it.size
	first, err := walk.w.firstByte(from, end)
	if err != nil {
		return fmt.Errorf("%s: %w", seg.Path, err)
	}
	if first < end {
		// RocketMQ before 4.9.1 left stale bytes there; ours are zero on every node (Same-Bytes).
		v.r.add(Finding{Kind: KindFillerData, Notice: v.s.Format != RaftMQ, File: seg.Path, Offset: first, PhyOffset: seg.From + first,
			Detail: fmt.Sprintf("bytes that are not zero in the filler that begins at %d", seg.From+it.pos)})
	}
	return nil
}

// record compares a whole record with units and index.
func (v *verifier) record(seg *Segment, it *item) error {
	rec, phy := it.rec, seg.From+it.pos
	stored := rec.StoreTimestamp()
	if stored < v.lastTime {
		v.r.add(Finding{Kind: KindStoreTime, Notice: true, File: seg.Path, Offset: it.pos, PhyOffset: phy,
			Detail: fmt.Sprintf("store time %d, the record before has %d", stored, v.lastTime)})
	}
	v.lastTime = max(v.lastTime, stored)
	if phy >= v.bound {
		return nil
	}
	if err := v.places(seg, it); err != nil {
		return err
	}
	return v.index.record(rec, phy)
}

// checkMeta looks at RaftMQ's store.json and the marker of an installation.
func (v *verifier) checkMeta() {
	s := v.s
	if s.Format != RaftMQ {
		return
	}
	switch {
	case s.metaErr != nil:
		v.r.add(Finding{Kind: KindMeta, File: metaName, Detail: s.metaErr.Error()})
	case s.Meta == Meta{}:
		v.r.add(Finding{Kind: KindMeta, File: metaName, Detail: "missing"})
	case s.Meta.FormatVersion != 1 || s.Meta.SegmentSize <= 0 || s.Meta.QueueFileSize <= 0 || s.Meta.QueueFileSize%consumequeue.UnitSize != 0:
		v.r.add(Finding{Kind: KindMeta, File: metaName, Detail: fmt.Sprintf("format version %d, segment size %d, queue file size %d", s.Meta.FormatVersion,
			s.Meta.SegmentSize, s.Meta.QueueFileSize)})
	}
	if exists(s.Dir, installingName) {
		v.r.add(Finding{Kind: KindInstalling, Notice: s.InUse.Running, File: installingName,
			Detail: "the log was being replaced by a peer's; the next start empties it and begins again"})
	}
}

// checkPoints compares RaftMQ's recovery points with what was found.
func (v *verifier) checkPoints() {
	s := v.s
	if s.Format != RaftMQ {
		return
	}
	switch err := s.points.recovery; {
	case errors.Is(err, fs.ErrNotExist):
		v.r.add(Finding{Kind: KindRecoveryPoint, File: recoveryPointName, Detail: "missing"})
	case err != nil:
		v.r.add(Finding{Kind: KindRecoveryPoint, File: recoveryPointName, Detail: err.Error()})
	case s.point.resetting:
		v.r.add(Finding{Kind: KindRecoveryPoint, Notice: true, File: recoveryPointName, Detail: "a reset of the log was interrupted; the next start finishes it"})
	case s.point.logEnd > v.summary.LogEnd && !v.damaged.has(s.point.logEnd-1):
		v.r.add(Finding{Kind: KindRecoveryPoint, File: recoveryPointName, Offset: 24, PhyOffset: s.point.logEnd,
			Detail: fmt.Sprintf("it says that the log is durable up to %d, which ends at %d", s.point.logEnd, v.summary.LogEnd)})
	}
	switch err := s.points.queues; {
	case errors.Is(err, fs.ErrNotExist):
		if v.summary.Records > 0 {
			v.r.add(Finding{Kind: KindQueuePoint, Notice: true, File: queuePointName, Detail: "there is none; the next start builds all queues again"})
		}
	case err != nil:
		v.r.add(Finding{Kind: KindQueuePoint, File: queuePointName, Detail: err.Error()})
	case !s.points.queuePoints:
		v.r.add(Finding{Kind: KindQueuePoint, File: queuePointName, Detail: "neither of its two slots verifies; the next start builds all queues again"})
	case s.points.queuePoint.phyOffset > v.summary.LogEnd && !v.damaged.has(s.points.queuePoint.phyOffset-1):
		v.r.add(Finding{Kind: KindQueuePoint, File: queuePointName, Offset: 16, PhyOffset: s.points.queuePoint.phyOffset,
			Detail: fmt.Sprintf("it says that the queues are complete up to %d, the log ends at %d", s.points.queuePoint.phyOffset, v.summary.LogEnd)})
	}
}

// checkIndexPoint compares the index's point with the log.
func (v *verifier) checkIndexPoint() {
	if p := v.s.points.indexPoint; p != nil && p.phyOffset > v.summary.LogEnd && !v.damaged.has(p.phyOffset-1) {
		v.r.add(Finding{Kind: KindIndexPoint, File: fmt.Sprintf("%s.%d", indexPointName, p.sequence%2), Offset: 16, PhyOffset: p.phyOffset,
			Detail: fmt.Sprintf("it says that the index is complete up to %d, the log ends at %d", p.phyOffset, v.summary.LogEnd)})
	}
}

// checkCheckpoint compares the checkpoint's times with the newest record.
func (v *verifier) checkCheckpoint() error {
	c, err := v.s.Checkpoint()
	if err != nil {
		return err
	}
	if c == nil {
		if v.s.Format == RocketMQ && v.summary.Records > 0 {
			v.r.add(Finding{Kind: KindCheckpoint, File: checkpointName, Detail: "missing; after a crash recovery begins at the oldest segment"})
		}
		return nil
	}
	if c.Size != pageSize {
		v.r.add(Finding{Kind: KindFileSize, File: checkpointName, Offset: c.Size, Detail: fmt.Sprintf("%d bytes, must be %d", c.Size, pageSize)})
	}
	if v.s.InUse.Running {
		return nil // it moves with the log
	}
	for i, t := range []int64{c.PhysicMsgTimestamp, c.LogicsMsgTimestamp, c.IndexMsgTimestamp} {
		name := []string{"physicMsgTimestamp", "logicsMsgTimestamp", "indexMsgTimestamp"}[i]
		switch {
		case t < 0:
			v.r.add(Finding{Kind: KindCheckpointValue, File: checkpointName, Offset: int64(8 * i), Length: 8, Detail: fmt.Sprintf("%s %d", name, t)})
		case t > v.lastTime:
			f := Finding{Kind: KindCheckpointAhead, File: checkpointName, Offset: int64(8 * i), Length: 8,
				Detail: fmt.Sprintf("%s %d, the log's newest record has %d", name, t, v.lastTime)}
			if n := len(v.damaged.list); n > 0 && v.damaged.list[n-1][1] >= v.summary.LogEnd {
				f.Notice = true
				f.Detail += "; what is damaged at the log's end may have been newer"
			}
			v.r.add(f)
		}
	}
	for i, off := range []int64{c.MasterFlushedOffset, c.ConfirmPhyOffset} {
		if off > v.summary.LogEnd {
			v.r.add(Finding{Kind: KindCheckpointAhead, File: checkpointName, Offset: int64(24 + 8*i), Length: 8, PhyOffset: off,
				Detail: fmt.Sprintf("%s %d, the log ends at %d", []string{"masterFlushedOffset", "confirmPhyOffset"}[i], off, v.summary.LogEnd)})
		}
	}
	if !c.RestIsZero {
		v.r.add(Finding{Kind: KindCheckpointValue, Notice: true, File: checkpointName, Offset: checkpointFields, Detail: "bytes behind the known fields"})
	}
	return nil
}

// checkAbort: a clean stop of RocketMQ removes the segment that was made ahead.
func (v *verifier) checkAbort() {
	s := v.s
	if n := len(s.Segments); s.Format == RocketMQ && !s.Abort && !s.InUse.Running && n > 1 && v.lastEmpty {
		v.r.add(Finding{Kind: KindAbort, File: abortName, Detail: fmt.Sprintf(
			"missing, as after a clean stop, but %s was made ahead and a clean stop would have removed it; recovery would look at the last three segments only", s.Segments[n-1].Path)})
	}
}

func (v *verifier) checkConfig() error {
	files, err := v.s.Config(true)
	if err != nil {
		return err
	}
	v.summary.ConfigFiles = len(files)
	for _, f := range files {
		path := filepath.Join(configDir, f.Name)
		var bad *DialectError
		switch {
		case len(f.Text) == 0:
			v.r.add(Finding{Kind: KindFileEmpty, File: path, Detail: "0 bytes"})
		case errors.As(f.Err, &bad):
			v.r.add(Finding{Kind: KindConfig, File: path, Offset: bad.Offset, Detail: bad.Err.Error()})
		}
	}
	return nil
}

// ranges is a set of physical ranges, in ascending order of their starts.
type ranges struct{ list [][2]int64 }

// maxRanges bounds the memory; above it the last range takes in everything that follows it.
const maxRanges = 1 << 16

func (r *ranges) add(from, to int64) {
	n := len(r.list)
	if n > 0 && (from <= r.list[n-1][1] || n >= maxRanges) {
		r.list[n-1][1] = max(to, r.list[n-1][1])
		return
	}
	r.list = append(r.list, [2]int64{from, to})
}

func (r *ranges) has(x int64) bool {
	lo, hi := 0, len(r.list)
	for lo < hi {
		mid := (lo + hi) / 2
		if r.list[mid][1] <= x {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo < len(r.list) && r.list[lo][0] <= x
}
