package inspect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"raftmq/commitlog/consumequeue"
	"raftmq/commitlog/record"
)

// queueState is what is known of a queue while the log is read.
type queueState struct {
	topic string
	id    int32
	dir   *Queue // nil when there is no folder

	next    int64 // queue offset expected of the next record, −1 before the first
	first   int64 // of the first record in the log
	handled spans // units that were found right, or whose damage is told
	run     findingRun

	win     []byte // units from winFrom on
	winFrom int64
	ext     *extReader
	extNext int64 // address behind the last extension unit that was right, 0 when unknown
}

// maxWindows bounds the memory for windows of units, windowUnits each.
const (
	maxWindows  = 4096
	windowUnits = 204 // 4 KiB
)

// queue returns the state of a queue.
func (v *verifier) queue(topic []byte, id int32) *queueState {
	v.scratch = append(append(v.scratch[:0], topic...), 0)
	v.scratch = strconv.AppendInt(v.scratch, int64(id), 10)
	q := v.queues[string(v.scratch)]
	if q != nil {
		return q
	}
	q = &queueState{topic: string(topic), id: id, next: -1, first: -1}
	i, found := slices.BinarySearchFunc(v.s.Queues, q, func(a Queue, b *queueState) int {
		if c := strings.Compare(a.Topic, b.topic); c != 0 {
			return c
		}
		return cmpInt(int64(a.ID), int64(b.id))
	})
	if found {
		q.dir = &v.s.Queues[i]
	}
	v.queues[string(v.scratch)] = q
	return q
}

// Properties of multi-dispatch (RocketMQ's MessageConst): queues that list the record beside its own.
const (
	propertyMultiDispatch    = "INNER_MULTI_DISPATCH"
	propertyMultiQueueOffset = "INNER_MULTI_QUEUE_OFFSET"
	lmqPrefix                = "%LMQ%"
	sysFlagInnerBatch        = 0x80 // RocketMQ 5: listed in batchconsumequeue/, not here
)

// listed tells whether consume queues list a record.
func listed(rec record.View) bool {
	return record.AssignsQueueOffset(rec.SysFlag()) && rec.SysFlag()&sysFlagInnerBatch == 0
}

// places compares the units of all places that a record takes.
func (v *verifier) places(seg *Segment, it *item) error {
	rec := it.rec
	if !listed(rec) {
		return nil
	}
	want := consumequeue.Unit{PhyOffset: seg.From + it.pos, Size: int32(rec.Size()), TagsCode: v.s.tagsCode(rec)}
	q := v.queue(rec.Topic(), rec.QueueID())
	n := rec.QueueOffset()
	if q.next >= 0 && n != q.next {
		v.r.add(Finding{Kind: KindQueueJump, Notice: true, File: seg.Path, Offset: it.pos, PhyOffset: want.PhyOffset, Topic: q.topic, QueueID: q.id, QueueOffset: n,
			Detail: fmt.Sprintf("the record has queue offset %d of %s/%d, the one before it in this queue %d", n, q.topic, q.id, q.next-1)})
	}
	q.next = n + 1
	if err := v.place(q, n, want, rec.StoreTimestamp()); err != nil {
		return err
	}
	return eachDispatch(rec, func(topic []byte, id int32, n int64) error {
		return v.place(v.queue(topic, id), n, want, rec.StoreTimestamp())
	})
}

// eachDispatch calls f for the additional places of a record.
func eachDispatch(rec record.View, f func(topic []byte, id int32, n int64) error) error {
	topics, ok := record.Property(rec.Properties(), propertyMultiDispatch)
	offsets, ok2 := record.Property(rec.Properties(), propertyMultiQueueOffset)
	if !ok || !ok2 {
		return nil
	}
	names, places := bytes.Split(topics, []byte(",")), bytes.Split(offsets, []byte(","))
	if len(names) != len(places) {
		return nil
	}
	for i := range names {
		n, err := strconv.ParseInt(string(places[i]), 10, 64)
		if err != nil {
			continue
		}
		id := rec.QueueID()
		if bytes.HasPrefix(names[i], []byte(lmqPrefix)) {
			id = 0
		}
		if err := f(names[i], id, n); err != nil {
			return err
		}
	}
	return nil
}

// place compares unit n of a queue with the record that should be there.
func (v *verifier) place(q *queueState, n int64, want consumequeue.Unit, stored int64) error {
	if q.first < 0 {
		q.first = n
	}
	if n < 0 || n > math.MaxInt64/consumequeue.UnitSize {
		v.unit(q, n, KindUnitMissing, want.PhyOffset, fmt.Sprintf("the record at %d has the impossible queue offset %d", want.PhyOffset, n))
		return nil
	}
	u, err := v.unitAt(q, n)
	if err != nil {
		return err
	}
	switch {
	case u == want:
		q.handled.add(n)
		return nil
	case u == consumequeue.Unit{}:
		v.unit(q, n, KindUnitMissing, want.PhyOffset, fmt.Sprintf("the record at %d has no unit", want.PhyOffset))
	case u.IsFiller():
		v.unit(q, n, KindUnitFiller, want.PhyOffset, fmt.Sprintf("a filler unit where the record at %d should be", want.PhyOffset))
	case u.PhyOffset != want.PhyOffset:
		// Where it points to is told in the second pass, which knows the log's end; unless two records
		// claim the place.
		other, err := v.reader.record(u.PhyOffset)
		if err != nil {
			return err
		}
		if other == nil || !claims(other, q.topic, q.id, n) {
			return nil
		}
		v.unit(q, n, KindUnitForeign, want.PhyOffset, fmt.Sprintf("the records at %d and %d both have this queue offset", want.PhyOffset, u.PhyOffset))
	case u.Size != want.Size:
		v.unit(q, n, KindUnitSize, want.PhyOffset, fmt.Sprintf("size %d, the record at %d has %d", u.Size, want.PhyOffset, want.Size))
	case isExtAddress(u.TagsCode):
		return v.extUnit(q, n, u, want, stored)
	default:
		detail := fmt.Sprintf("tags code %d, the record at %d gives %d", u.TagsCode, want.PhyOffset, want.TagsCode)
		if q.topic == record.ScheduleTopic {
			detail += " with these delay levels"
		}
		v.unit(q, n, KindUnitTags, want.PhyOffset, detail)
	}
	return nil
}

// claims tells whether a record lists itself at a place.
func claims(rec record.View, topic string, id int32, n int64) bool {
	if string(rec.Topic()) == topic && rec.QueueID() == id && rec.QueueOffset() == n {
		return true
	}
	found := false
	_ = eachDispatch(rec, func(t []byte, i int32, o int64) error {
		found = found || string(t) == topic && i == id && o == n
		return nil
	})
	return found
}

// extUnit compares the extension that a unit refers to.
func (v *verifier) extUnit(q *queueState, n int64, u, want consumequeue.Unit, stored int64) error {
	if q.ext == nil {
		q.ext = &extReader{s: v.s, topic: q.topic, id: q.id}
	}
	defer q.ext.close()
	e, err := q.ext.unit(u.TagsCode)
	if err != nil {
		return err
	}
	q.handled.add(n)
	if e == nil {
		v.unit(q, n, KindExtUnit, want.PhyOffset, fmt.Sprintf("it refers to extension %d, where no unit is", u.TagsCode-math.MinInt64))
		return nil
	}
	v.summary.ExtUnits++
	next := q.extNext
	q.extNext = e.Address + int64(e.Size)
	if e.TagsCode == want.TagsCode && e.StoreTimestamp == stored {
		return nil
	}
	detail := fmt.Sprintf("tags code %d and store time %d, the record at %d has %d and %d", e.TagsCode, e.StoreTimestamp, want.PhyOffset, want.TagsCode, stored)
	other := false // Extension units follow each other as queue units do: this one is another record's.
	if next != 0 && e.Address != next {
		after, err := q.ext.unit(next)
		if err != nil {
			return err
		}
		if other = e.Address < next || after != nil; other && after != nil {
			next = after.Address + int64(after.Size)
		}
	}
	if other {
		q.extNext = next
		v.unit(q, n, KindExtUnit, want.PhyOffset, fmt.Sprintf("it refers to extension %d, with %s", e.Address-math.MinInt64, detail))
		return nil
	}
	v.r.add(Finding{Kind: KindExtUnit, File: e.File, Offset: e.Offset, Length: int64(e.Size), PhyOffset: want.PhyOffset, Topic: q.topic, QueueID: q.id, QueueOffset: n, Detail: detail})
	return nil
}

// unit reports one unit; neighbours are put together.
func (v *verifier) unit(q *queueState, n int64, kind Kind, phy int64, detail string) {
	q.handled.add(n)
	path, off := v.s.queuePath(q.topic, q.id, max(n, 0))
	q.run.add(v.r, Finding{Kind: kind, File: path, Offset: off, Length: consumequeue.UnitSize, Count: 1, PhyOffset: phy, Topic: q.topic, QueueID: q.id, QueueOffset: n, Detail: detail})
}

// unitAt reads unit n, zero when there is none.
func (v *verifier) unitAt(q *queueState, n int64) (consumequeue.Unit, error) {
	if q.dir == nil {
		return consumequeue.Unit{}, nil
	}
	at := (n - q.winFrom) * consumequeue.UnitSize
	if n < q.winFrom || at+consumequeue.UnitSize > int64(len(q.win)) {
		if err := v.fillWindow(q, n); err != nil {
			return consumequeue.Unit{}, err
		}
		at = 0
	}
	u, _ := consumequeue.DecodeUnit(q.win[min(at, int64(len(q.win))):])
	return u, nil
}

func (v *verifier) fillWindow(q *queueState, n int64) error {
	if q.win == nil {
		if len(v.windows) >= maxWindows {
			oldest := v.windows[0]
			v.windows = append(v.windows[:0], v.windows[1:]...)
			q.win, oldest.win = oldest.win, nil
		} else {
			q.win = make([]byte, windowUnits*consumequeue.UnitSize)
		}
		v.windows = append(v.windows, q)
	}
	q.win, q.winFrom = q.win[:0], n
	pos := n * consumequeue.UnitSize
	files := q.dir.Files
	i, found := slices.BinarySearchFunc(files, pos, func(f QueueFile, pos int64) int { return cmpInt(f.From, pos) })
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	src, err := openSource(files[i].path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer src.Close()
	end := min(src.size, v.s.QueueFileSize)
	room := min(end-(pos-files[i].From), int64(cap(q.win)))
	if room < consumequeue.UnitSize {
		return nil
	}
	got, err := src.ReadAt(q.win[:room], pos-files[i].From)
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("inspect: %w", err)
	}
	q.win = q.win[:got]
	return nil
}

// restOfQueues looks at the units that no record asked for.
func (v *verifier) restOfQueues() error {
	for _, key := range slices.Sorted(maps.Keys(v.queues)) {
		q := v.queues[key]
		q.run.flush(v.r)
		q.win = nil
	}
	v.windows = nil
	for i := range v.s.Queues {
		d := &v.s.Queues[i]
		q := v.queue([]byte(d.Topic), d.ID)
		v.summary.Queues++
		p := unitPass{v: v, q: q, zeroes: -1}
		if err := v.s.units(d, p.unit); err != nil {
			return err
		}
		q.run.flush(v.r)
	}
	return nil
}

// unitPass goes through one queue's units.
type unitPass struct {
	v      *verifier
	q      *queueState
	real   bool  // a unit of a record was met
	zeroes int64 // where a run of zero units began, −1 outside of one
}

func (p *unitPass) unit(f *QueueFile, at int64, u consumequeue.Unit) error {
	if at+consumequeue.UnitSize > p.v.s.QueueFileSize {
		return errEndOfFile // of a file that is too long
	}
	n := (f.From + at) / consumequeue.UnitSize
	if u == (consumequeue.Unit{}) {
		if p.zeroes < 0 {
			p.zeroes = n
		}
		return nil
	}
	if p.zeroes >= 0 {
		if !p.q.handled.has(p.zeroes) && p.q.first <= p.zeroes { // otherwise it is told, or the log has no more of it
			path, off := p.v.s.queuePath(p.q.topic, p.q.id, p.zeroes)
			p.v.r.add(Finding{Kind: KindUnitHole, File: path, Offset: off, Length: (n - p.zeroes) * consumequeue.UnitSize, Topic: p.q.topic, QueueID: p.q.id,
				QueueOffset: p.zeroes, Detail: fmt.Sprintf("units %d to %d are zero, and unit %d is not", p.zeroes, n-1, n)})
		}
		p.zeroes = -1
	}
	switch {
	case p.q.handled.has(n):
		p.v.summary.Units++
		p.real = p.real || !u.IsFiller()
		return nil
	case u.IsFiller() && !p.real:
		p.v.summary.Fillers++
		return nil
	}
	if !u.IsFiller() {
		p.real = true
	}
	return p.v.stray(p.q, n, u)
}

// stray says what is wrong with a unit that no record asked for.
func (v *verifier) stray(q *queueState, n int64, u consumequeue.Unit) error {
	phy := u.PhyOffset
	switch {
	case u.IsFiller():
		v.unit(q, n, KindUnitFiller, 0, "a filler unit behind units of records")
		return nil
	case !u.IsRecord():
		v.unit(q, n, KindUnitNowhere, phy, fmt.Sprintf("physical offset %d and size %d are no record's", phy, u.Size))
		return nil
	case v.damaged.has(phy):
		return nil // told where the damage is
	case phy < v.summary.LogMin && (q.first < 0 || n < q.first):
		v.summary.Expired++
		return nil
	case phy < v.summary.LogMin:
		v.unit(q, n, KindUnitNowhere, phy, fmt.Sprintf("it points to %d, before the log's start %d", phy, v.summary.LogMin))
		return nil
	case phy >= v.bound:
		return nil
	case phy >= v.summary.LogEnd:
		v.unit(q, n, KindUnitBehindLog, phy, fmt.Sprintf("it points to %d, the log ends at %d", phy, v.summary.LogEnd))
		return nil
	}
	rec, err := v.reader.record(phy)
	if err != nil {
		return err
	}
	switch {
	case rec == nil:
		v.unit(q, n, KindUnitNowhere, phy, fmt.Sprintf("no record begins at %d", phy))
	case !claims(rec, q.topic, q.id, n):
		v.unit(q, n, KindUnitForeign, phy, fmt.Sprintf("the record at %d is of %s/%d with queue offset %d", phy, rec.Topic(), rec.QueueID(), rec.QueueOffset()))
	case !listed(rec):
		v.unit(q, n, KindUnitForeign, phy, fmt.Sprintf("the record at %d is of a type that no queue lists", phy))
	default:
		v.summary.Units++ // right, but told apart too often to be remembered
	}
	return nil
}

// checkExt looks for extension files of an odd name or without bytes.
func (v *verifier) checkExt() error {
	before := len(v.s.layout)
	queues, err := v.s.listQueueFolders(extDir)
	if err != nil {
		return err
	}
	for _, f := range v.s.layout[before:] {
		v.r.add(f)
	}
	v.s.layout = v.s.layout[:before]
	for _, q := range queues {
		var sizes []int64
		for _, f := range q.Files {
			sizes = append(sizes, f.Size)
		}
		usual := usualSize(sizes, 0)
		for i, f := range q.Files {
			at := Finding{File: f.Path, Topic: q.Topic, QueueID: q.ID}
			switch {
			case v.s.InUse.Running && i == len(q.Files)-1:
			case f.Size == 0:
				at.Kind, at.Detail = KindFileEmpty, "0 bytes"
				v.r.add(at)
			case f.Size != usual:
				at.Kind, at.Offset, at.Detail = KindFileSize, f.Size, fmt.Sprintf("%d bytes, the others have %d", f.Size, usual)
				v.r.add(at)
			}
		}
	}
	return nil
}

// findingRun puts findings together that lie one behind the other.
type findingRun struct{ pending *Finding }

func (r *findingRun) add(out *reporter, f Finding) {
	if p := r.pending; p != nil && p.Kind == f.Kind && p.File == f.File && p.Offset+p.Length == f.Offset {
		p.Length += f.Length
		p.Count += f.Count
		return
	}
	r.flush(out)
	r.pending = &f
}

func (r *findingRun) flush(out *reporter) {
	if r.pending == nil {
		return
	}
	f := *r.pending
	r.pending = nil
	if f.Count > 1 {
		f.Detail = fmt.Sprintf("%d of them; the first: %s", f.Count, f.Detail)
	}
	out.add(f)
}

// spans is a set of integers that come mostly in ascending order without gaps.
type spans struct{ list [][2]int64 } // half open, ascending

// maxSpans bounds the memory. What is not remembered is looked at again in the second pass.
const maxSpans = 4096

func (s *spans) add(n int64) {
	k := len(s.list)
	if k > 0 && n == s.list[k-1][1] {
		s.list[k-1][1]++
		return
	}
	if s.has(n) {
		return
	}
	if k >= maxSpans {
		return
	}
	i, _ := slices.BinarySearchFunc(s.list, n, func(r [2]int64, n int64) int { return cmpInt(r[0], n) })
	s.list = slices.Insert(s.list, i, [2]int64{n, n + 1})
}

func (s *spans) has(n int64) bool {
	i, found := slices.BinarySearchFunc(s.list, n, func(r [2]int64, n int64) int { return cmpInt(r[0], n) })
	if found {
		return true
	}
	return i > 0 && n < s.list[i-1][1]
}
