package inspect

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"slices"

	"raftmq/commitlog/record"
)

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

// lookahead is how many entries are looked through for a record's, when others stand before them.
const lookahead = 64

// indexCheck goes through the entries of all index files beside the log: they stand in the log's order.
type indexCheck struct {
	v     *verifier
	on    bool
	bound int64 // entries of records behind it are not judged: nothing vouches for them yet
	files []IndexFile

	i     int // file
	chain *chainCheck
	src   *fileSource
	w     *window
	next  int64 // entry of the file

	look  []placedEntry // read and not yet compared; a part of buf
	buf   []placedEntry
	want  []int32 // hashes of the current record's keys
	key   []byte
	run   findingRun
	last  []int32 // of chainCheck, kept for the next file
	count int64   // records with keys, for a missing index
	first int64   // physical offset of the first of them
}

// placedEntry is an entry and where it stands.
type placedEntry struct {
	IndexEntry
	file  *IndexFile
	index int64
}

func (e *placedEntry) finding(kind Kind, detail string) Finding {
	return Finding{Kind: kind, File: e.file.Path, Offset: e.file.entryAt(e.index), Length: entrySize, Count: 1, PhyOffset: e.PhyOffset,
		Detail: fmt.Sprintf("entry %d: %s", e.index, detail)}
}

func newIndexCheck(v *verifier) (*indexCheck, error) {
	x := &indexCheck{v: v, bound: v.bound}
	if v.s.opts.NoIndex {
		return x, nil
	}
	files, err := v.s.indexFiles(func(f Finding) {
		if !v.s.InUse.Running { // otherwise the newest may just be made
			v.r.add(f)
		}
	})
	if err != nil {
		return nil, err
	}
	v.summary.IndexFiles = len(files)
	if v.s.Format == RaftMQ {
		if files = x.vouched(files); files == nil {
			return x, nil
		}
	}
	x.on = true
	for _, f := range files {
		v.s.total += min(f.Size, indexHeaderSize+f.Slots*slotSize+(f.entries()+1)*entrySize)
		if f.Slots == 0 && f.entries() > 0 {
			v.r.add(Finding{Kind: KindIndexHeader, File: f.Path, Detail: "header and entries fit for no slot count"})
		}
		if f.MaxEntries > 0 {
			x.files = append(x.files, f)
		}
	}
	return x, nil
}

// vouched returns the files that RaftMQ's recovery point speaks of, as far as it does; nil when there is no point. What
// is behind it was put since, and the next start makes it again from the log.
func (x *indexCheck) vouched(files []IndexFile) []IndexFile {
	v := x.v
	p := v.s.points.indexPoint
	if p == nil {
		f := Finding{Kind: KindIndexPoint, File: indexPointName + ".0", Detail: v.s.points.index.Error() + "; the next start builds the index again"}
		switch {
		case !errors.Is(v.s.points.index, fs.ErrNotExist):
			f.Notice = v.s.InUse.Running // it may just be written
		case len(files) > 0:
			f.Notice, f.Detail = true, "there is none; the next start builds the index again"
		default:
			f.Kind, f.Notice, f.File, f.Detail = KindIndexMissing, true, indexDir, "the node keeps no key index"
		}
		v.r.add(f)
		return nil
	}
	x.bound = min(x.bound, p.phyOffset)
	kept := make([]IndexFile, 0, len(p.files)) // not nil
	for i, w := range p.files {
		at := slices.IndexFunc(files, func(f IndexFile) bool { return indexFileName(f.Path) == w.name })
		if at < 0 {
			continue // its entries will be missed
		}
		f := files[at]
		if last := i == len(p.files)-1; last && f.IndexCount != w.header.IndexCount {
			if !v.s.InUse.Running {
				v.r.add(Finding{Kind: KindIndexHeader, Notice: true, File: f.Path, Offset: 36, Length: 4,
					Detail: fmt.Sprintf("it counts %d, the index point %d; the next start writes it anew", f.IndexCount, w.header.IndexCount)})
			}
			f.IndexHeader, f.open = w.header, true
		}
		kept = append(kept, f)
	}
	return kept
}

func (x *indexCheck) close() {
	if x.src != nil {
		_ = x.src.Close()
		x.src = nil
	}
}

// keyHash is the hash of an index key (RocketMQ's IndexFile.indexKeyHashMethod).
func (x *indexCheck) keyHash(topic, key []byte) int32 {
	x.key = append(append(append(x.key[:0], topic...), '#'), key...)
	h := record.JavaHash(x.key)
	if h < 0 {
		h = -h
	}
	return max(h, 0) // −2^31 has no positive
}

// keys collects the hashes of a record's keys in the order in which they are put.
func (x *indexCheck) keys(rec record.View) []int32 {
	x.want = x.want[:0]
	if record.TransactionType(rec.SysFlag()) == record.SysFlagRollback {
		return x.want
	}
	props := rec.Properties()
	if key, ok := record.Property(props, record.PropertyUniqKey); ok {
		x.want = append(x.want, x.keyHash(rec.Topic(), key))
	}
	if keys, ok := record.Property(props, record.PropertyKeys); ok {
		for key := range bytes.SplitSeq(keys, []byte(" ")) {
			if len(key) > 0 {
				x.want = append(x.want, x.keyHash(rec.Topic(), key))
			}
		}
	}
	return x.want
}

// record compares the entries of one record.
func (x *indexCheck) record(rec record.View, phy int64) error {
	if !x.on || phy >= x.bound {
		return nil
	}
	want := x.keys(rec)
	if len(want) > 0 {
		if x.count == 0 {
			x.first = phy
		}
		x.count++
	}
	if err := x.fill(); err != nil {
		return err
	}
	for len(x.look) > 0 && x.look[0].PhyOffset < phy {
		if err := x.stray(); err != nil {
			return err
		}
	}
	if len(want) == 0 {
		return nil
	}
	at := -1
	for i := range x.look[:min(len(x.look), lookahead)] {
		if x.look[i].PhyOffset == phy {
			at = i
			break
		}
	}
	if at < 0 {
		x.missing(want, phy, x.front())
		return nil
	}
	for range at {
		if err := x.stray(); err != nil {
			return err
		}
	}
	return x.compare(rec, phy, want)
}

// compare takes the entries of phy off the front.
func (x *indexCheck) compare(rec record.View, phy int64, want []int32) error {
	i := 0 // of the next key that is wanted
	for {
		if err := x.fill(); err != nil {
			return err
		}
		if len(x.look) == 0 || x.look[0].PhyOffset != phy {
			break
		}
		e := x.pop()
		at := slices.Index(want[i:], e.KeyHash)
		switch {
		case at == 0:
			x.v.summary.IndexEntries++
			x.time(&e, rec.StoreTimestamp())
			i++
		case slices.Contains(want[:i], e.KeyHash):
			x.report(e.finding(KindIndexDouble, fmt.Sprintf("the record at %d has an entry for this key already", phy)))
		case at > 0:
			x.missing(want[i:i+at], phy, &e)
			i += at + 1
		case i < len(want):
			x.report(e.finding(KindIndexForeign, fmt.Sprintf("key hash %d, the record at %d gives %d", e.KeyHash, phy, want[i])))
			i++
		default:
			x.report(e.finding(KindIndexForeign, fmt.Sprintf("the record at %d has no key of hash %d", phy, e.KeyHash)))
		}
	}
	if i < len(want) {
		x.missing(want[i:], phy, x.front())
	}
	return nil
}

// time compares an entry's seconds. The first entry of a file counts from the end of the file before, which may have
// been deleted.
func (x *indexCheck) time(e *placedEntry, stored int64) {
	if e.index == 1 {
		if e.file != &x.files[0] {
			x.seconds(e, stored, x.before(e.file).EndTimestamp)
		}
		if stored != e.file.BeginTimestamp {
			x.report(Finding{Kind: KindIndexHeader, File: e.file.Path, Offset: 0, Length: 8, PhyOffset: e.PhyOffset,
				Detail: fmt.Sprintf("begin time %d, the first entry's record has %d", e.file.BeginTimestamp, stored)})
		}
	} else {
		x.seconds(e, stored, e.file.BeginTimestamp)
	}
	if e.index == e.file.entries() && stored != e.file.EndTimestamp {
		x.report(Finding{Kind: KindIndexHeader, File: e.file.Path, Offset: 8, Length: 8, PhyOffset: e.PhyOffset,
			Detail: fmt.Sprintf("end time %d, the last entry's record has %d", e.file.EndTimestamp, stored)})
	}
}

func (x *indexCheck) seconds(e *placedEntry, stored, begin int64) {
	want := int64(0)
	if begin > 0 {
		want = min(max((stored-begin)/1000, 0), math.MaxInt32)
	}
	if int64(e.Seconds) != want {
		x.report(e.finding(KindIndexTime, fmt.Sprintf("%d seconds, the record at %d gives %d", e.Seconds, e.PhyOffset, want)))
	}
}

// before is the file before f, which is not the first.
func (x *indexCheck) before(f *IndexFile) *IndexFile {
	for i := range x.files[1:] {
		if f == &x.files[i+1] {
			return &x.files[i]
		}
	}
	return f
}

// front is the next entry, nil at the end.
func (x *indexCheck) front() *placedEntry {
	if len(x.look) == 0 {
		return nil
	}
	return &x.look[0]
}

// missing tells of keys without an entry, which would be in front of the given one or, when that is nil, behind the
// last. Neighbours are put together.
func (x *indexCheck) missing(want []int32, phy int64, before *placedEntry) {
	if len(x.files) == 0 {
		return // told at the end, for all of them
	}
	f := Finding{Kind: KindIndexMissing, Count: int64(len(want)), PhyOffset: phy, Detail: fmt.Sprintf("no entry for key hash %d of the record at %d", want[0], phy)}
	if before != nil {
		f.File, f.Offset = before.file.Path, before.file.entryAt(before.index)
	} else {
		last := &x.files[len(x.files)-1]
		f.File, f.Offset = last.Path, last.entryAt(last.entries()+1)
	}
	if p := x.run.pending; p != nil && p.Kind == f.Kind && p.File == f.File && p.Offset == f.Offset {
		p.Count += f.Count
		return
	}
	x.report(f)
}

func (x *indexCheck) report(f Finding) { x.run.add(x.v.r, f) }

func (x *indexCheck) pop() placedEntry {
	e := x.look[0]
	x.look = x.look[1:]
	return e
}

// stray takes the first entry, which no record in its place asked for, and says what is wrong with it.
func (x *indexCheck) stray() error {
	if err := x.fill(); err != nil {
		return err
	}
	e := x.pop()
	v := x.v
	switch phy := e.PhyOffset; {
	case e.IndexEntry == IndexEntry{}:
	case v.damaged.has(phy) || phy >= x.bound:
		return nil
	case phy >= 0 && phy < v.summary.LogMin:
		v.summary.Expired++
		return nil
	}
	if e.IndexEntry == (IndexEntry{}) {
		x.report(e.finding(KindIndexNowhere, "all zero"))
		return nil
	}
	rec, err := v.reader.record(e.PhyOffset)
	if err != nil {
		return err
	}
	switch {
	case rec == nil:
		x.report(e.finding(KindIndexNowhere, fmt.Sprintf("no record begins at %d", e.PhyOffset)))
	case slices.Contains(x.keys(rec), e.KeyHash):
		x.report(e.finding(KindIndexDouble, fmt.Sprintf("a second entry, or one out of the log's order, for the record at %d", e.PhyOffset)))
	default:
		x.report(e.finding(KindIndexForeign, fmt.Sprintf("the record at %d has no key of hash %d", e.PhyOffset, e.KeyHash)))
	}
	return nil
}

// fill reads entries until the lookahead is full.
func (x *indexCheck) fill() error {
	for len(x.look) < lookahead {
		if x.src == nil {
			ok, err := x.open()
			if err != nil || !ok {
				return err
			}
		}
		f := &x.files[x.i]
		if x.next > f.entries() || x.next >= f.MaxEntries {
			if err := x.closeFile(); err != nil {
				return err
			}
			continue
		}
		b, err := x.w.at(f.entryAt(x.next), entrySize)
		if err != nil {
			return err
		}
		e, ok := decodeEntry(b)
		if !ok {
			x.next = f.entries() + 1
			continue
		}
		x.chain.entry(x.next, e)
		if len(x.look) == cap(x.look) { // at the end of buf
			if x.buf == nil {
				x.buf = make([]placedEntry, 8*lookahead)
			}
			x.look = x.buf[:copy(x.buf, x.look)]
		}
		x.look = append(x.look, placedEntry{e, f, x.next})
		x.next++
	}
	return nil
}

// open goes to the next file; ok is false when there is none.
func (x *indexCheck) open() (ok bool, err error) {
	for ; x.i < len(x.files); x.i++ {
		f := &x.files[x.i]
		x.src, err = openSource(f.path)
		if errors.Is(err, fs.ErrNotExist) {
			x.src = nil
			continue
		}
		if err != nil {
			x.src = nil
			return false, err
		}
		if x.w == nil {
			x.w = newWindow(x.src)
		} else {
			x.w.reset(x.src)
		}
		x.next = 1
		if int64(cap(x.last)) < f.Slots {
			x.last = make([]int32, f.Slots)
		}
		x.last = x.last[:f.Slots]
		clear(x.last)
		x.chain = &chainCheck{x: x, f: f, last: x.last}
		return true, nil
	}
	return false, nil
}

func (x *indexCheck) closeFile() error {
	f := &x.files[x.i]
	if err := x.chain.finish(x.w); err != nil {
		return err
	}
	x.v.s.progress(min(f.Size, f.entryAt(f.entries()+1)))
	err := x.src.Close()
	x.src = nil
	x.i++
	return err
}

// finish looks at what is left of the index behind the log's end.
func (x *indexCheck) finish() error {
	if !x.on {
		return nil
	}
	for {
		if err := x.fill(); err != nil {
			return err
		}
		if len(x.look) == 0 {
			break
		}
		if e := &x.look[0]; e.PhyOffset >= x.v.summary.LogEnd && !x.v.damaged.has(e.PhyOffset) {
			if e.PhyOffset < x.bound {
				x.report(e.finding(KindIndexBehindLog, fmt.Sprintf("it points to %d, the log ends at %d", e.PhyOffset, x.v.summary.LogEnd)))
			}
			x.pop()
			continue
		}
		if err := x.stray(); err != nil {
			return err
		}
	}
	x.run.flush(x.v.r)
	if len(x.files) == 0 && x.count > 0 && x.v.summary.IndexFiles == 0 {
		x.v.r.add(Finding{Kind: KindIndexMissing, File: indexDir, Count: x.count, PhyOffset: x.first,
			Detail: fmt.Sprintf("there are no index files, and %d records with keys, the first at %d", x.count, x.first)})
	}
	if p := x.v.s.points.indexPoint; p != nil && p.phyOffset < x.v.summary.LogEnd && !x.v.s.InUse.Running {
		x.v.r.add(Finding{Kind: KindIndexPoint, Notice: true, File: fmt.Sprintf("%s.%d", indexPointName, p.sequence%2), Offset: 16, PhyOffset: p.phyOffset,
			Detail: fmt.Sprintf("the index is complete up to %d, the log ends at %d; the next start goes on from there", p.phyOffset, x.v.summary.LogEnd)})
	}
	return nil
}
