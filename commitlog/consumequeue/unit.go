package consumequeue

import (
	"encoding/binary"
	"math"
)

// UnitSize is the size of one unit, 20 bytes (RocketMQ's ConsumeQueue.CQ_STORE_UNIT_SIZE):
//
//	0   8  physical offset of the record
//	8   4  the record's size
//	12  8  tags code: Java hash of TAGS, or the deliver time of a delayed message
const UnitSize = 20

// Unit is one place of a queue.
type Unit struct {
	PhyOffset int64
	Size      int32
	TagsCode  int64
}

// fillerSize is the size field of a unit that only takes up room before a queue's first one.
const fillerSize = math.MaxInt32

// AppendUnit appends the unit's 20 bytes, big-endian.
func AppendUnit(dst []byte, u Unit) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(u.PhyOffset))
	dst = binary.BigEndian.AppendUint32(dst, uint32(u.Size))
	return binary.BigEndian.AppendUint64(dst, uint64(u.TagsCode))
}

// putUnit writes the unit's 20 bytes to the start of b.
func putUnit(b []byte, u Unit) {
	_ = b[UnitSize-1]
	binary.BigEndian.PutUint64(b, uint64(u.PhyOffset))
	binary.BigEndian.PutUint32(b[8:], uint32(u.Size))
	binary.BigEndian.PutUint64(b[12:], uint64(u.TagsCode))
}

// DecodeUnit reads the first 20 bytes of b; it is false when b is shorter. Any 20 bytes are a
// unit: whether it names a record is for IsRecord and the log to say.
func DecodeUnit(b []byte) (Unit, bool) {
	if len(b) < UnitSize {
		return Unit{}, false
	}
	return Unit{
		PhyOffset: int64(binary.BigEndian.Uint64(b)),
		Size:      int32(binary.BigEndian.Uint32(b[8:])),
		TagsCode:  int64(binary.BigEndian.Uint64(b[12:])),
	}, true
}

// IsFiller tells whether u is RocketMQ's {0, 2147483647, 0}, written before the first unit of
// a queue that does not begin at the start of a file.
func (u Unit) IsFiller() bool {
	return u.PhyOffset == 0 && u.Size == fillerSize && u.TagsCode == 0
}

// IsRecord tells whether u can name a record: not zeroes, not filler, nothing negative.
func (u Unit) IsRecord() bool {
	return u.PhyOffset >= 0 && u.Size > 0 && u.PhyOffset <= math.MaxInt64-int64(u.Size) && !u.IsFiller()
}

// End is the physical offset after the record.
func (u Unit) End() int64 { return u.PhyOffset + int64(u.Size) }

// Units is a run of encoded units.
type Units []byte

// Len is the number of whole units.
func (u Units) Len() int { return len(u) / UnitSize }

// At decodes unit i, which must be below Len.
func (u Units) At(i int) Unit {
	b := u[i*UnitSize : i*UnitSize+UnitSize]
	return Unit{
		PhyOffset: int64(binary.BigEndian.Uint64(b)),
		Size:      int32(binary.BigEndian.Uint32(b[8:])),
		TagsCode:  int64(binary.BigEndian.Uint64(b[12:])),
	}
}
