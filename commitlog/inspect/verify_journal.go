package inspect

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
)

// journalCheck goes through RaftMQ's journal beside the log, always far enough ahead that the entry of a record
// is verified before the record is.
type journalCheck struct {
	v      *verifier
	on     bool // there is a journal
	cursor journalCursor
	files  int

	last     JournalRecord // the last one that verified; its End is how far the journal goes
	have     bool
	end      int64 // of what the journal names
	position int64 // behind the last record, in the journal's address space
	done     bool

	run findingRun
	src *fileSource
	seg *Segment
	buf []byte
}

func newJournalCheck(v *verifier) (*journalCheck, error) {
	j := &journalCheck{v: v, end: math.MaxInt64}
	if v.s.Format != RaftMQ {
		return j, nil
	}
	files, err := v.s.journalFiles(func(f Finding) {
		if !v.s.InUse.Running {
			v.r.add(f)
		}
	})
	if err != nil {
		return nil, err
	}
	j.files = len(files)
	j.cursor = journalCursor{s: v.s, files: files}
	j.on = len(files) > 0
	if j.on {
		j.end = 0
		if len(v.s.Segments) > 0 {
			j.end = max(v.s.Segments[0].From, v.s.base())
		}
	}
	return j, nil
}

func (j *journalCheck) close() {
	j.cursor.close()
	if j.src != nil {
		_ = j.src.Close()
		j.src = nil
	}
}

// upTo verifies the entries that begin at or before phy.
func (j *journalCheck) upTo(phy int64) error {
	for j.on && !j.done && j.end <= phy {
		if err := j.next(); err != nil {
			return err
		}
	}
	return nil
}

// behind tells whether phy is behind everything that the journal names and that must be there.
func (j *journalCheck) behind(phy int64) bool {
	return j.on && j.done && phy >= max(j.end, j.v.s.point.logEnd)
}

func (j *journalCheck) next() error {
	r, damage, ok, err := j.cursor.next()
	if err != nil {
		return err
	}
	if !ok {
		j.done = true
		return nil
	}
	if damage != nil {
		return j.damage(r, damage)
	}
	j.v.summary.JournalRecords++
	if r.End > j.v.bound {
		j.done = true // of a running node, not judged
		return nil
	}
	j.order(&r)
	j.position = j.cursor.files[j.cursor.i].from + r.Offset + journalSize
	j.last, j.have, j.end = r, true, r.End
	return j.bytes(&r)
}

// damage tells of a record that does not verify. The last one may be half written, if no recovery point speaks of it.
func (j *journalCheck) damage(r JournalRecord, damage error) error {
	j.have = false // what follows can't be compared with what was before
	f := Finding{Kind: KindJournalRecord, File: r.File, Offset: r.Offset, Length: journalSize, Count: 1, Detail: damage.Error()}
	file := j.cursor.files[j.cursor.i]
	at := file.from + r.Offset
	j.position = min(at+journalSize, file.from+file.size)
	if j.v.s.points.recovery == nil && at >= j.v.s.point.journalEnd {
		if j.v.s.InUse.Running {
			j.done = true
			return nil
		}
		more, err := j.cursor.anything()
		if err != nil {
			return err
		}
		if !more {
			f.Kind, f.Notice = KindTornTail, true
			f.Detail = "the last journal record is half written; the next start cuts it off: " + f.Detail
		}
	}
	j.run.add(j.v.r, f)
	return nil
}

func (j *journalCheck) order(r *JournalRecord) {
	var detail string
	switch b := &j.last; {
	case !j.have:
		return
	case r.Start != b.End:
		detail = fmt.Sprintf("bytes %d to %d, the record before ends at %d", r.Start, r.End, b.End)
	case r.RaftIndex <= b.RaftIndex || r.RaftTerm < b.RaftTerm:
		detail = fmt.Sprintf("index %d of term %d after index %d of term %d", r.RaftIndex, r.RaftTerm, b.RaftIndex, b.RaftTerm)
	case r.LastStoreTimestamp < b.LastStoreTimestamp:
		detail = fmt.Sprintf("store time %d after %d", r.LastStoreTimestamp, b.LastStoreTimestamp)
	default:
		return
	}
	j.v.r.add(Finding{Kind: KindJournalOrder, File: r.File, Offset: r.Offset, Length: journalSize, PhyOffset: r.Start, Detail: detail})
}

// bytes compares the checksum of an entry's bytes in the log.
func (j *journalCheck) bytes(r *JournalRecord) error {
	if len(j.v.s.Segments) == 0 || r.Start < max(j.v.s.Segments[0].From, j.v.s.base()) {
		return nil // deleted with its segment
	}
	crc, end, err := j.checksum(r.Start, r.End)
	if err != nil || end == r.End && crc == r.Checksum {
		return err
	}
	detail := fmt.Sprintf("bytes %d to %d of entry %d have checksum %#08x, the journal says %#08x", r.Start, r.End, r.RaftIndex, crc, r.Checksum)
	if end < r.End {
		detail = fmt.Sprintf("bytes %d to %d of entry %d are not there", end, r.End, r.RaftIndex)
	}
	f := Finding{Kind: KindJournalBytes, Length: r.End - r.Start, Count: 1, PhyOffset: r.Start, Detail: detail}
	f.File, f.Offset = j.place(r.Start)
	j.v.damaged.add(r.Start, r.End)
	j.run.add(j.v.r, f)
	return nil
}

func (j *journalCheck) place(phy int64) (file string, offset int64) {
	from := phy - phy%j.v.s.SegmentSize
	if seg := j.v.s.segmentOf(phy); seg != nil {
		return seg.Path, phy - seg.From
	}
	return fmt.Sprintf("%s/%020d", commitLogDir, from), phy - from
}

// checksum returns the CRC-32C of the log's bytes [from, to) and how far there are any.
func (j *journalCheck) checksum(from, to int64) (crc uint32, end int64, err error) {
	if j.buf == nil {
		j.buf = make([]byte, windowSize)
	}
	for from < to {
		seg := j.v.s.segmentOf(from)
		if seg == nil {
			return crc, from, nil
		}
		if seg != j.seg {
			if j.src != nil {
				_ = j.src.Close()
				j.src, j.seg = nil, nil
			}
			src, err := openSource(seg.path)
			if errors.Is(err, fs.ErrNotExist) {
				return crc, from, nil
			}
			if err != nil {
				return 0, 0, err
			}
			j.src, j.seg = src, seg
		}
		room := seg.From + min(seg.Size, j.v.s.SegmentSize) - from
		n, err := j.src.ReadAt(j.buf[:min(int64(len(j.buf)), to-from, room)], from-seg.From)
		if n == 0 {
			if err != nil && !isEOF(err) {
				return 0, 0, fmt.Errorf("inspect: %w", err)
			}
			return crc, from, nil
		}
		crc = crc32.Update(crc, castagnoli, j.buf[:n])
		from += int64(n)
	}
	return crc, from, nil
}

// finish verifies what is left and compares the journal's end with the log's.
func (j *journalCheck) finish() error {
	v := j.v
	for j.on && !j.done {
		if err := j.next(); err != nil {
			return err
		}
	}
	j.run.flush(v.r)
	if v.s.Format != RaftMQ || v.s.InUse.Running {
		return nil
	}
	p := v.s.point
	switch {
	case !j.on && v.summary.Records > 0:
		v.r.add(Finding{Kind: KindJournalEnd, File: journalDir, PhyOffset: v.summary.LogMin, Length: 0,
			Detail: "there is no journal, so nothing says which Raft entries the log's records came from"})
	case j.on && j.position < p.journalEnd:
		file := j.cursor.files[len(j.cursor.files)-1]
		v.r.add(Finding{Kind: KindJournalEnd, File: v.s.rel(file.path), Offset: j.position - file.from, PhyOffset: j.end,
			Detail: fmt.Sprintf("the journal ends at position %d, the recovery point says %d", j.position, p.journalEnd)})
	}
	if v.torn != nil {
		v.torn.Detail = fmt.Sprintf("%d bytes that no journal record names; the next start cuts them off", v.torn.Length)
		v.r.add(*v.torn)
	}
	return nil
}
