package inspect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"raftmq/commitlog/record"
)

// itemType is what stands at a place of a segment.
type itemType uint8

const (
	itemRecord itemType = iota // a whole record; item.kind is set if something in it is wrong
	itemFiller                 // the end-of-segment filler
	itemBad                    // bytes that are neither
	itemEnd                    // zeroes to the end of the segment, or the segment is full
)

// item is one place of a segment.
type item struct {
	itemType
	pos, size int64       // in the file
	rec       record.View // of an itemRecord; lives until the next call
	kind      Kind        // what is wrong, "" when nothing is
	detail    string
	full      bool // of itemEnd: nothing is left of the segment
}

// segmentScan goes through one segment, record by record. Behind a damaged place it goes on at the next
// one that a record vouches for with its own physical offset.
type segmentScan struct {
	w       *window
	from    int64 // physical offset of byte 0
	segment int64 // size of a whole segment
	limit   int64 // what of it the file has
	pos     int64
}

func newSegmentScan(w *window, from, segment int64) *segmentScan {
	return &segmentScan{w: w, from: from, segment: segment, limit: min(w.size, segment)}
}

func (s *segmentScan) next() (item, error) {
	it, err := s.item()
	s.pos = it.pos + it.size
	return it, err
}

func (s *segmentScan) item() (item, error) {
	pos := s.pos
	if pos >= s.limit {
		return item{itemType: itemEnd, pos: pos, full: true}, nil
	}
	head, err := s.w.at(pos, record.BlankMinSize)
	if err != nil {
		return item{}, err
	}
	if allZero(head) {
		return s.zeroes(pos)
	}
	if len(head) < record.BlankMinSize {
		return s.bad(pos, KindMagic, fmt.Sprintf("%d bytes before the end of the file, a filler needs %d", len(head), record.BlankMinSize))
	}
	size := int64(int32(binary.BigEndian.Uint32(head)))
	switch magic := binary.BigEndian.Uint32(head[4:]); magic {
	case record.MagicBlank:
		if size != s.segment-pos {
			return s.bad(pos, KindFiller, fmt.Sprintf("filler of %d bytes, %d remain of the segment", size, s.segment-pos))
		}
		return item{itemType: itemFiller, pos: pos, size: min(size, s.limit-pos)}, nil
	case record.MagicV1, record.MagicV2:
		return s.record(pos, size)
	default:
		return s.bad(pos, KindMagic, fmt.Sprintf("magic %#08x", magic))
	}
}

// zeroes decides whether the segment's records end at pos.
func (s *segmentScan) zeroes(pos int64) (item, error) {
	first, err := s.w.firstByte(pos, s.limit)
	if err != nil {
		return item{}, err
	}
	if first == s.limit {
		return item{itemType: itemEnd, pos: pos}, nil
	}
	if first-pos < record.MinSize {
		return s.bad(pos, KindMagic, "zeroes where a record must begin")
	}
	next, err := s.resync(max(pos+1, first-maxRecordHead))
	if err != nil {
		return item{}, err
	}
	if next < s.limit {
		return item{itemType: itemBad, pos: pos, size: next - pos, kind: KindHole,
			detail: fmt.Sprintf("zeroes for %d bytes, then a record at %d", first-pos, s.from+next)}, nil
	}
	last, err := s.w.lastByte(first, s.limit)
	if err != nil {
		return item{}, err
	}
	return item{itemType: itemBad, pos: first, size: last - first, kind: KindGarbage,
		detail: fmt.Sprintf("%d bytes behind the last record, which ends at %d", last-first, s.from+pos)}, nil
}

// maxRecordHead is how far before its first non-zero byte a record can begin: the size field's high
// bytes are zero.
const maxRecordHead = 4

func (s *segmentScan) record(pos, size int64) (item, error) {
	switch room := s.limit - pos; {
	case size < record.MinSize:
		return s.bad(pos, KindLength, fmt.Sprintf("total size %d, at least %d", size, record.MinSize))
	case size > maxRecord:
		return s.bad(pos, KindLength, fmt.Sprintf("total size %d, no broker takes more than %d", size, int64(maxRecord)))
	case size > room:
		return s.bad(pos, KindLength, fmt.Sprintf("total size %d, %d bytes remain of the file", size, room))
	}
	b, err := s.w.at(pos, int(size))
	if err != nil {
		return item{}, err
	}
	if _, err := record.Check(b, false); err != nil {
		kind := KindLength
		if errors.Is(err, record.ErrHost) {
			kind = KindHost
		}
		return s.bad(pos, kind, err.Error())
	}
	it := item{itemType: itemRecord, pos: pos, size: size, rec: record.View(b)}
	it.kind, it.detail = s.check(it.rec, s.from+pos)
	return it, nil
}

// check looks for damage in a record whose lengths agree.
func (s *segmentScan) check(v record.View, phy int64) (Kind, string) {
	if got := v.PhyOffset(); got != phy {
		return KindPhyOffset, fmt.Sprintf("the record is at %d and says %d", phy, got)
	}
	if got, want := record.BodyCRC(v.Body()), v.BodyCRC(); got != want {
		return KindCRC, fmt.Sprintf("body checksum stored %#08x, computed %#08x", want, got)
	}
	if topic := v.Topic(); !validTopic(topic) {
		return KindTopic, fmt.Sprintf("topic %q", topic)
	}
	if props := v.Properties(); torn(props) {
		return KindProperties, "zero bytes among the properties"
	}
	if room := s.segment - (phy - s.from) - int64(v.Size()); room < record.BlankMinSize {
		return KindLength, fmt.Sprintf("the record leaves %d bytes of its segment, a filler needs %d", room, record.BlankMinSize)
	}
	return "", ""
}

// torn tells whether properties look like half written ones: text with zeroes at its end, or a run
// of them. Nothing covers properties with a checksum.
func torn(props []byte) bool {
	return len(props) > 0 && props[len(props)-1] == 0 || bytes.Contains(props, zeroPage[:8])
}

// bad is a damaged place at pos that reaches to the next record or, when there is none, to the end of
// the segment's data.
func (s *segmentScan) bad(pos int64, kind Kind, detail string) (item, error) {
	next, err := s.resync(pos + 1)
	if err != nil {
		return item{}, err
	}
	if next >= s.limit {
		if next, err = s.w.lastByte(pos, s.limit); err != nil {
			return item{}, err
		}
		// The damaged record's own first bytes may be the only ones.
		next = max(next, min(pos+record.BlankMinSize, s.limit))
		detail += "; nothing valid follows in the segment"
	} else {
		detail += fmt.Sprintf("; the next valid place is %d", s.from+next)
	}
	return item{itemType: itemBad, pos: pos, size: next - pos, kind: kind, detail: detail}, nil
}

// Both magics of records begin so.
var magicPrefix = []byte{byte(record.MagicV1 >> 24), byte(record.MagicV1 >> 16 & 0xFF), byte(record.MagicV1 >> 8 & 0xFF)}

// resync finds the first place from pos on where a whole record says that it is here, or a filler of the
// right size; the end of the file's part of the segment when there is none.
func (s *segmentScan) resync(pos int64) (int64, error) {
	for pos < s.limit {
		b, err := s.w.at(pos, int(min(windowSize, s.limit-pos)))
		if err != nil {
			return 0, err
		}
		last := int64(len(b)) == s.limit-pos
		at, found := 0, newMagics(b)
		for at+record.BlankMinSize <= len(b) {
			if at = found.next(at+4) - 4; at+record.BlankMinSize > len(b) {
				at = len(b) - record.BlankMinSize + 1
				break
			}
			if !last && len(b)-at < record.MinSize {
				break // look again with more of it in the window
			}
			if s.likely(b[at:], pos+int64(at)) {
				// This may move the window.
				if ok, err := s.valid(pos + int64(at)); err != nil || ok {
					return pos + int64(at), err
				}
				if b, err = s.w.at(pos, int(min(windowSize, s.limit-pos))); err != nil {
					return 0, err
				}
				found = newMagics(b)
			}
			at++
		}
		if at == 0 || last {
			break
		}
		pos += int64(at)
	}
	return s.limit, nil
}

// likely is the part of valid that needs nothing but the head of a record.
func (s *segmentScan) likely(b []byte, pos int64) bool {
	if len(b) < record.BlankMinSize {
		return false
	}
	size := int64(int32(binary.BigEndian.Uint32(b)))
	switch binary.BigEndian.Uint32(b[4:]) {
	case record.MagicBlank:
		return size == s.segment-pos
	case record.MagicV1, record.MagicV2:
		return len(b) >= record.MinSize && size >= record.MinSize && size <= min(maxRecord, s.limit-pos) && record.View(b).PhyOffset() == s.from+pos
	}
	return false
}

var fillerMagic = binary.BigEndian.AppendUint32(nil, record.MagicBlank)

// magics finds one magic after the other in b.
type magics struct {
	b            []byte
	record, fill int // the next of each kind, or len(b); below the place that is searched from when stale
}

func newMagics(b []byte) magics { return magics{b, -1, -1} }

// next is the first magic at or behind from, len(b) when there is none.
func (m *magics) next(from int) int {
	if m.record < from {
		m.record = indexFrom(m.b, from, magicPrefix)
	}
	if m.fill < from {
		m.fill = indexFrom(m.b, from, fillerMagic)
	}
	return min(m.record, m.fill)
}

func indexFrom(b []byte, from int, pattern []byte) int {
	if i := bytes.Index(b[from:], pattern); i >= 0 {
		return from + i
	}
	return len(b)
}

// valid tells whether a record or the filler begins at pos, beyond doubt.
func (s *segmentScan) valid(pos int64) (bool, error) {
	b, err := s.w.at(pos, record.MinSize)
	if err != nil || !s.likely(b, pos) {
		return false, err
	}
	if binary.BigEndian.Uint32(b[4:]) == record.MagicBlank {
		return true, nil
	}
	b, err = s.w.at(pos, record.View(b).Size())
	if err != nil {
		return false, err
	}
	_, err = record.Check(b, false)
	return err == nil, nil
}

// validTopic: RocketMQ's topic characters (TopicValidator).
func validTopic(topic []byte) bool {
	for _, c := range topic {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-', c == '%', c == '|':
		default:
			return false
		}
	}
	return len(topic) > 0
}
