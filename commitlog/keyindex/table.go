package keyindex

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
)

// An index file, big-endian (RocketMQ's IndexHeader and IndexFile):
//
//	0   8  store time of the first key, ms     } of a file that follows a full one, and has
//	8   8  store time of the last key          } no key yet, all four are the last ones
//	16  8  physical offset of the first key    } of that
//	24  8  physical offset of the last key     }
//	32  4  slots in use
//	36  4  entries + 1: entry 0 is never used
//	40     slots, 4 each: the last entry whose hash mod slots is the slot's number; 0 none
//	       entries, 20 each:
//	         0   4  hash of "topic#key", not negative
//	         4   8  physical offset of the record
//	         12  4  seconds from the file's first store time, rounded down; in the first entry
//	                of a file from the last store time of the file before
//	         16  4  the entry before it in the slot; 0 none
const (
	headerSize = 40
	slotSize   = 4
	entrySize  = 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is the start of a file.
type Header struct {
	BeginTimestamp, EndTimestamp int64 // ms
	BeginPhyOffset, EndPhyOffset int64
	SlotCount                    int32 // slots in use
	Count                        int32 // entries + 1
}

// Entry is one key of one record.
type Entry struct {
	KeyHash     int32
	PhyOffset   int64
	TimeDiff    int32 // s
	Predecessor int32
}

func putHeader(b []byte, h Header) {
	_ = b[headerSize-1]
	binary.BigEndian.PutUint64(b, uint64(h.BeginTimestamp))
	binary.BigEndian.PutUint64(b[8:], uint64(h.EndTimestamp))
	binary.BigEndian.PutUint64(b[16:], uint64(h.BeginPhyOffset))
	binary.BigEndian.PutUint64(b[24:], uint64(h.EndPhyOffset))
	binary.BigEndian.PutUint32(b[32:], uint32(h.SlotCount))
	binary.BigEndian.PutUint32(b[36:], uint32(h.Count))
}

// decodeHeader reads what putHeader wrote; a count below 1 is 1, as RocketMQ takes it.
func decodeHeader(b []byte) Header {
	_ = b[headerSize-1]
	return Header{
		BeginTimestamp: int64(binary.BigEndian.Uint64(b)),
		EndTimestamp:   int64(binary.BigEndian.Uint64(b[8:])),
		BeginPhyOffset: int64(binary.BigEndian.Uint64(b[16:])),
		EndPhyOffset:   int64(binary.BigEndian.Uint64(b[24:])),
		SlotCount:      int32(binary.BigEndian.Uint32(b[32:])),
		Count:          max(1, int32(binary.BigEndian.Uint32(b[36:]))),
	}
}

func putEntry(b []byte, e Entry) {
	_ = b[entrySize-1]
	binary.BigEndian.PutUint32(b, uint32(e.KeyHash))
	binary.BigEndian.PutUint64(b[4:], uint64(e.PhyOffset))
	binary.BigEndian.PutUint32(b[12:], uint32(e.TimeDiff))
	binary.BigEndian.PutUint32(b[16:], uint32(e.Predecessor))
}

func decodeEntry(b []byte) Entry {
	_ = b[entrySize-1]
	return Entry{
		KeyHash:     int32(binary.BigEndian.Uint32(b)),
		PhyOffset:   int64(binary.BigEndian.Uint64(b[4:])),
		TimeDiff:    int32(binary.BigEndian.Uint32(b[12:])),
		Predecessor: int32(binary.BigEndian.Uint32(b[16:])),
	}
}

// Table is the bytes of one index file, read as such: whoever wrote them, and whatever they are.
type Table struct {
	b     []byte
	slots int
}

// FileSize is the size of a file of so many slots and entries.
func FileSize(slots, entries int) int64 {
	return headerSize + int64(slots)*slotSize + int64(entries)*entrySize
}

// NewTable reads b as a file of so many slots. ErrDamaged when it is too short or has half an
// entry.
func NewTable(b []byte, slots int) (Table, error) {
	if rest := int64(len(b)) - FileSize(slots, 0); slots < 1 || rest < 0 || rest%entrySize != 0 {
		return Table{}, fmt.Errorf("%w: %d bytes can't be a file of %d slots", ErrDamaged, len(b), slots)
	}
	return Table{b, slots}, nil
}

func (t Table) slotAt(slot int) int { return headerSize + slot*slotSize }
func (t Table) entryAt(i int) int   { return headerSize + t.slots*slotSize + i*entrySize }

// slotOf is the slot of a hash that is not negative.
func (t Table) slotOf(hash int32) int { return int(uint32(hash) % uint32(t.slots)) }

// Slots is the number of slots.
func (t Table) Slots() int { return t.slots }

// Entries is how many entries there is room for, entry 0 included.
func (t Table) Entries() int { return (len(t.b) - t.entryAt(0)) / entrySize }

// Header reads the header; Count is at least 1.
func (t Table) Header() Header { return decodeHeader(t.b) }

// Slot reads slot number slot, below Slots.
func (t Table) Slot(slot int) int32 {
	return int32(binary.BigEndian.Uint32(t.b[t.slotAt(slot):]))
}

// Entry reads entry i, below Entries.
func (t Table) Entry(i int) Entry { return decodeEntry(t.b[t.entryAt(i):]) }

func (t Table) putSlot(slot int, v int32) {
	binary.BigEndian.PutUint32(t.b[t.slotAt(slot):], uint32(v))
}

// sum continues a CRC-32C over entries [from, to).
func (t Table) sum(crc uint32, from, to int32) uint32 {
	return crc32.Update(crc, castagnoli, t.b[t.entryAt(int(from)):t.entryAt(int(to))])
}

// Check tells what is wrong with the file, if anything: counts, order, chains and slots.
func (t Table) Check() error {
	h := t.Header()
	last, err := t.chains(h)
	if err != nil {
		return err
	}
	for slot, want := range last {
		if got := t.Slot(slot); got != want {
			return fmt.Errorf("%w: position %d: slot %d says entry %d, its last entry is %d", ErrDamaged, t.slotAt(slot), slot, got, want)
		}
	}
	return nil
}

// chains follows the entries of a file with header h and returns what its slots must hold.
func (t Table) chains(h Header) ([]int32, error) {
	if int(h.Count) > t.Entries() {
		return nil, fmt.Errorf("%w: header counts %d entries, there is room for %d", ErrDamaged, h.Count, t.Entries())
	}
	last := make([]int32, t.slots)
	used, before := int32(0), int64(math.MinInt64)
	for i := int32(1); i < h.Count; i++ {
		e := t.Entry(int(i))
		if e.KeyHash < 0 || e.TimeDiff < 0 || e.PhyOffset < before || e.PhyOffset < 0 {
			return nil, fmt.Errorf("%w: position %d: entry %d %+v behind physical offset %d", ErrDamaged, t.entryAt(int(i)), i, e, before)
		}
		before = e.PhyOffset
		slot := t.slotOf(e.KeyHash)
		if e.Predecessor != last[slot] {
			return nil, fmt.Errorf("%w: position %d: entry %d names %d as the one before it, that is %d",
				ErrDamaged, t.entryAt(int(i)), i, e.Predecessor, last[slot])
		}
		if last[slot] == 0 {
			used++
		}
		last[slot] = i
	}
	if used != h.SlotCount {
		return nil, fmt.Errorf("%w: header counts %d slots in use, it is %d", ErrDamaged, h.SlotCount, used)
	}
	if err := t.ends(h); err != nil {
		return nil, err
	}
	return last, nil
}

// ends compares the offsets in h with the first and last entry.
func (t Table) ends(h Header) error {
	if h.Count <= 1 {
		return nil
	}
	first, last := t.Entry(1).PhyOffset, t.Entry(int(h.Count)-1).PhyOffset
	if first != h.BeginPhyOffset || last != h.EndPhyOffset {
		return fmt.Errorf("%w: header has physical offsets %d to %d, entries %d to %d", ErrDamaged, h.BeginPhyOffset, h.EndPhyOffset, first, last)
	}
	return nil
}

// put enters one key into the bytes and into h, which the bytes' own header doesn't follow.
// There must be room. (RocketMQ's IndexFile.putKey.)
func (t Table) put(h *Header, hash int32, phyOffset, storeTime int64) {
	i := h.Count
	slot := t.slotOf(hash)
	before := t.Slot(slot)
	if before <= 0 || before >= i {
		before = 0
		h.SlotCount++
	}
	putEntry(t.b[t.entryAt(int(i)):], Entry{hash, phyOffset, timeDiff(storeTime, h.BeginTimestamp), before})
	t.putSlot(slot, i)
	if i <= 1 {
		h.BeginTimestamp, h.BeginPhyOffset = storeTime, phyOffset
	}
	h.EndTimestamp, h.EndPhyOffset = storeTime, phyOffset
	h.Count = i + 1
}

func timeDiff(storeTime, begin int64) int32 {
	if begin <= 0 {
		return 0
	}
	return int32(min(max((storeTime-begin)/1000, 0), math.MaxInt32))
}

// chain is a walk through the entries of one hash, the last first.
type chain struct {
	t     Table
	h     Header
	hash  int32
	slot  int
	begin int64 // entries that are older for sure end the walk
	at    int32 // the next entry to look at; 0 at the end
}

// chain begins a walk among the first h.Count-1 entries; last is what the slot of hash held then.
func (t Table) chain(h Header, hash, last int32, begin int64) (chain, error) {
	c := chain{t, h, hash, t.slotOf(hash), begin, last}
	if last < 0 || last >= h.Count || int(h.Count) > t.Entries() {
		return c, fmt.Errorf("%w: position %d: slot %d says entry %d of %d", ErrDamaged, t.slotAt(c.slot), c.slot, last, h.Count)
	}
	return c, nil
}

// next returns the next entry of the hash and the earliest time it may have, ms; it may be up
// to 999 ms later. ok is false when there is none among the next steps entries of the slot;
// then at is 0 at the end of the walk.
func (c *chain) next(steps int) (phyOffset, storeTime int64, ok bool, err error) {
	for ; c.at > 0 && steps > 0; steps-- {
		i := c.at
		e := c.t.Entry(int(i))
		if e.KeyHash < 0 || c.t.slotOf(e.KeyHash) != c.slot || e.Predecessor < 0 || e.Predecessor >= i ||
			e.TimeDiff < 0 || e.PhyOffset < c.h.BeginPhyOffset || e.PhyOffset > c.h.EndPhyOffset {
			return 0, 0, false, fmt.Errorf("%w: position %d: entry %d %+v in the chain of slot %d", ErrDamaged, c.t.entryAt(int(i)), i, e, c.slot)
		}
		storeTime = c.h.BeginTimestamp
		if i > 1 { // the first one's is the begin itself, and its difference counts from elsewhere
			storeTime += int64(e.TimeDiff) * 1000
		}
		c.at = e.Predecessor
		if storeTime < c.begin && c.begin-storeTime > 999 {
			c.at = 0
			return 0, 0, false, nil
		}
		if e.KeyHash == c.hash {
			return e.PhyOffset, storeTime, true, nil
		}
	}
	return 0, 0, false, nil
}
