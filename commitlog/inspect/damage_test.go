package inspect

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"
)

// clean is a golden store of a broker that was stopped cleanly, to be damaged.
type clean struct {
	killed // the same helpers
}

func be64(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }
func be32(n int32) []byte { return binary.BigEndian.AppendUint32(nil, uint32(n)) }

// unitPlace is the file and offset of a queue's unit.
func (c *clean) unitPlace(queue string, n int64) (string, int64) {
	from := n * 20 / goldenQueueFile * goldenQueueFile
	return fmt.Sprintf("consumequeue/%s/%020d", queue, from), n*20 - from
}

func (c *clean) unit(queue string, n int64) [4]int64 { return c.m.ConsumeQueues[queue].Entries[n] }

func (c *clean) putUnit(queue string, n int64, phy int64, size int32, tags int64) (string, int64) {
	file, at := c.unitPlace(queue, n)
	poke(c.t, c.path(file), at, unitBytes(phy, size, tags))
	return file, at
}

// entry is the file and offset of index entry i of file f.
func (c *clean) entry(f int, i int64) (string, int64) {
	return "index/" + c.m.IndexFiles[f].File, 40 + 4*goldenSlots + 20*i
}

func (c *clean) poke32(file string, at int64, n int32) { poke(c.t, c.path(file), at, be32(n)) }
func (c *clean) poke64(file string, at int64, n int64) { poke(c.t, c.path(file), at, be64(n)) }

func (c *clean) truncate(file string, n int64) {
	if err := os.Truncate(c.path(file), n); err != nil {
		c.t.Fatal(err)
	}
}

func (c *clean) write(file string, b []byte) {
	if err := os.MkdirAll(filepath.Dir(c.path(file)), 0o755); err != nil {
		c.t.Fatal(err)
	}
	if err := os.WriteFile(c.path(file), b, 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// topicAt is where a record's topic begins in its segment.
func (c *clean) topicAt(i int) (string, int64) {
	file, off := segment(c.m.Messages[i].CommitLogOffset)
	return file, off + body + int64(c.m.Messages[i].BodyLength) + 1
}

// filler is the file and offset of the first segment's filler.
func (c *clean) filler() (string, int64) {
	for i, m := range c.m.Messages {
		if m.CommitLogOffset >= goldenSegment {
			before := c.m.Messages[i-1]
			file, off := segment(before.CommitLogOffset)
			return file, off + int64(before.Size)
		}
	}
	c.t.Fatal("no filler")
	return "", 0
}

// rolled is a record of a few bytes in GoldenRoll/0 and its number there.
const rolled = 5

// damages are single damages of store-4.9.4-clean and where they are.
var damages = []struct {
	name string
	do   func(c *clean) []place
}{
	{"magic in the middle", func(c *clean) []place {
		file, off := segment(c.m.Messages[10].CommitLogOffset)
		c.poke32(file, off+4, 0x12345678)
		return []place{{KindMagic, file, off}}
	}},
	{"record zeroed", func(c *clean) []place {
		m := c.m.Messages[10]
		c.poke(m.CommitLogOffset, make([]byte, m.Size))
		return []place{c.at(KindHole, 10)}
	}},
	{"head of a record zeroed", func(c *clean) []place {
		c.poke(c.m.Messages[10].CommitLogOffset, make([]byte, 8))
		return []place{c.at(KindMagic, 10)}
	}},
	{"total size", func(c *clean) []place {
		c.poke(c.m.Messages[10].CommitLogOffset, be32(int32(c.m.Messages[10].Size)-3))
		return []place{c.at(KindLength, 10)}
	}},
	{"total size beyond the file", func(c *clean) []place {
		c.poke(c.m.Messages[10].CommitLogOffset, be32(1<<30))
		return []place{c.at(KindLength, 10)}
	}},
	{"negative total size", func(c *clean) []place {
		c.poke(c.m.Messages[10].CommitLogOffset, be32(-5))
		return []place{c.at(KindLength, 10)}
	}},
	{"body length", func(c *clean) []place {
		c.poke(c.m.Messages[10].CommitLogOffset+body-4, be32(1<<20))
		return []place{c.at(KindLength, 10)}
	}},
	{"port", func(c *clean) []place {
		c.poke(c.m.Messages[10].CommitLogOffset+52, be32(70000))
		return []place{c.at(KindHost, 10)}
	}},
	{"body", func(c *clean) []place {
		file, off := segment(c.m.Messages[10].CommitLogOffset)
		flip(c.t, c.path(file), off+body)
		return []place{c.at(KindCRC, 10)}
	}},
	{"body under CRC 0", func(c *clean) []place {
		m := c.m.Messages[10]
		file, off := segment(m.CommitLogOffset)
		b := peek(c.t, c.path(file), off+body, m.BodyLength)
		if m.BodyLength < 8 {
			c.t.Fatalf("body of %d bytes", m.BodyLength)
		}
		copy(b, crcZero(b[4:]))
		if crc32.ChecksumIEEE(b)&0x7FFFFFFF != 0 {
			c.t.Fatal("the body's checksum is not 0")
		}
		b[len(b)-1] ^= 1
		c.poke(m.CommitLogOffset+body, b)
		c.poke(m.CommitLogOffset+8, be32(0))
		return []place{c.at(KindCRC, 10)}
	}},
	{"stored checksum", func(c *clean) []place {
		c.poke(c.m.Messages[10].CommitLogOffset+8, be32(0))
		return []place{c.at(KindCRC, 10)}
	}},
	{"physical offset", func(c *clean) []place {
		c.poke(c.m.Messages[10].CommitLogOffset+28, be64(c.m.Messages[10].CommitLogOffset+1))
		return []place{c.at(KindPhyOffset, 10)}
	}},
	{"topic", func(c *clean) []place {
		file, at := c.topicAt(10)
		poke(c.t, c.path(file), at, []byte{'/'})
		return []place{c.at(KindTopic, 10)}
	}},
	{"zeroes in properties", func(c *clean) []place {
		m := c.m.Messages[10]
		c.poke(m.CommitLogOffset+int64(m.Size)-40, make([]byte, 20))
		return []place{c.at(KindProperties, 10)}
	}},
	{"filler size", func(c *clean) []place {
		file, at := c.filler()
		c.poke32(file, at, 8)
		return []place{{KindFiller, file, at}}
	}},
	{"filler removed", func(c *clean) []place {
		file, at := c.filler()
		poke(c.t, c.path(file), at, make([]byte, 8))
		return []place{{KindHole, file, at}}
	}},
	{"garbage far behind the end", func(c *clean) []place {
		file, off := segment(c.end() + 5000)
		poke(c.t, c.path(file), off, []byte("garbage"))
		return []place{{KindGarbage, file, off}}
	}},
	{"segment lost", func(c *clean) []place {
		c.remove("commitlog", fmt.Sprintf("%020d", goldenSegment))
		list := []place{{KindSegmentGap, fmt.Sprintf("commitlog/%020d", 2*goldenSegment), 0}}
		file, at := "", int64(0)
		for _, m := range c.m.Messages { // their units, all of one queue
			if m.CommitLogOffset/goldenSegment == 1 && file == "" {
				file, at = c.unitPlace("GoldenRoll/0", m.QueueOffset)
			}
		}
		list = append(list, place{KindUnitNowhere, file, at})
		for f := range c.m.IndexFiles {
			for i, e := range c.m.IndexFiles[f].Entries {
				if i > 0 && e[2]/goldenSegment == 1 {
					file, at := c.entry(f, int64(i))
					return append(list, place{KindIndexNowhere, file, at})
				}
			}
		}
		return list
	}},
	{"last segment of odd size", func(c *clean) []place {
		c.truncate(fmt.Sprintf("commitlog/%020d", 3*goldenSegment), 40000)
		return []place{{KindFileSize, fmt.Sprintf("commitlog/%020d", 3*goldenSegment), 40000}}
	}},
	{"first segment cut inside a record", func(c *clean) []place {
		m := c.m.Messages[80]
		file, off := segment(m.CommitLogOffset)
		c.truncate(file, off+100)
		list := []place{{KindFileSize, file, off + 100}, c.at(KindLength, 80)}
		// What stood behind it is gone.
		file, at := c.unitPlace("GoldenRoll/0", c.m.Messages[81].QueueOffset)
		if c.m.Messages[81].Topic != "GoldenRoll" {
			c.t.Fatal("another queue")
		}
		list = append(list, place{KindUnitNowhere, file, at})
		for i, e := range c.m.IndexFiles[1].Entries {
			if i > 0 && e[2] >= c.m.Messages[81].CommitLogOffset {
				file, at := c.entry(1, int64(i))
				return append(list, place{KindIndexNowhere, file, at})
			}
		}
		return list
	}},
	{"empty segment at the end", func(c *clean) []place {
		file := fmt.Sprintf("commitlog/%020d", 4*goldenSegment)
		c.write(file, nil)
		return []place{{KindFileEmpty, file, 0}, {KindAbort, "abort", 0}}
	}},
	{"foreign file among segments", func(c *clean) []place {
		c.write("commitlog/notes.txt", []byte("x"))
		return []place{{KindFileName, "commitlog/notes.txt", 0}}
	}},
	{"segment of a name between", func(c *clean) []place {
		c.write("commitlog/00000000000000000100", make([]byte, goldenSegment))
		return []place{{KindFileName, "commitlog/00000000000000000100", 0}}
	}},
	{"unit of another record", func(c *clean) []place {
		u := c.unit("GoldenRoll/0", rolled+1)
		file, at := c.putUnit("GoldenRoll/0", rolled, u[1], int32(u[2]), u[3])
		return []place{{KindUnitForeign, file, at}}
	}},
	{"unit of no record", func(c *clean) []place {
		u := c.unit("GoldenRoll/0", rolled)
		file, at := c.putUnit("GoldenRoll/0", rolled, u[1]+1, int32(u[2]), u[3])
		return []place{{KindUnitNowhere, file, at}}
	}},
	{"unit behind the log", func(c *clean) []place {
		file, at := c.putUnit("GoldenRoll/0", rolled, c.end(), 100, 0)
		return []place{{KindUnitBehindLog, file, at}}
	}},
	{"negative unit", func(c *clean) []place {
		file, at := c.putUnit("GoldenRoll/0", rolled, -7, 100, 0)
		return []place{{KindUnitNowhere, file, at}}
	}},
	{"unit size", func(c *clean) []place {
		u := c.unit("GoldenRoll/0", rolled)
		file, at := c.putUnit("GoldenRoll/0", rolled, u[1], int32(u[2])+1, u[3])
		return []place{{KindUnitSize, file, at}}
	}},
	{"unit tags code", func(c *clean) []place {
		u := c.unit("GoldenRoll/0", rolled)
		file, at := c.putUnit("GoldenRoll/0", rolled, u[1], int32(u[2]), u[3]^1)
		return []place{{KindUnitTags, file, at}}
	}},
	{"deliver time", func(c *clean) []place {
		u := c.unit("SCHEDULE_TOPIC_XXXX/2", 0)
		file, at := c.putUnit("SCHEDULE_TOPIC_XXXX/2", 0, u[1], int32(u[2]), u[3]+1000)
		return []place{{KindUnitTags, file, at}}
	}},
	{"units zeroed in the middle", func(c *clean) []place {
		c.putUnit("GoldenRoll/0", rolled+1, 0, 0, 0)
		file, at := c.putUnit("GoldenRoll/0", rolled, 0, 0, 0)
		return []place{{KindUnitMissing, file, at}}
	}},
	{"hole before a stray unit", func(c *clean) []place {
		n := int64(len(c.m.ConsumeQueues["GoldenTx/0"].Entries))
		file, at := c.putUnit("GoldenTx/0", n+2, c.end()+1, 100, 0)
		return []place{{KindUnitHole, file, at - 40}, {KindUnitBehindLog, file, at}}
	}},
	{"filler in the middle", func(c *clean) []place {
		file, at := c.putUnit("GoldenRoll/0", rolled, 0, 1<<31-1, 0)
		return []place{{KindUnitFiller, file, at}}
	}},
	{"filler behind the end", func(c *clean) []place {
		n := int64(len(c.m.ConsumeQueues["GoldenTx/0"].Entries))
		file, at := c.putUnit("GoldenTx/0", n, 0, 1<<31-1, 0)
		return []place{{KindUnitFiller, file, at}}
	}},
	{"a unit twice", func(c *clean) []place {
		n := int64(len(c.m.ConsumeQueues["GoldenTx/0"].Entries))
		u := c.unit("GoldenTx/0", n-1)
		file, at := c.putUnit("GoldenTx/0", n, u[1], int32(u[2]), u[3])
		return []place{{KindUnitForeign, file, at}}
	}},
	{"queue file lost", func(c *clean) []place {
		file, _ := c.unitPlace("GoldenRoll/0", 0)
		c.remove(file)
		return []place{{KindUnitMissing, file, 0}}
	}},
	{"queue file of odd size", func(c *clean) []place {
		file, at := c.unitPlace("GoldenTx/0", 0)
		c.truncate(file, 990)
		return []place{{KindFileSize, file, at + 990}}
	}},
	{"empty queue file at the end", func(c *clean) []place {
		file := fmt.Sprintf("consumequeue/GoldenTx/0/%020d", goldenQueueFile)
		c.write(file, nil)
		return []place{{KindFileEmpty, file, 0}}
	}},
	{"queue file behind a gap", func(c *clean) []place {
		file := fmt.Sprintf("consumequeue/GoldenTx/0/%020d", 2*goldenQueueFile)
		c.write(file, make([]byte, goldenQueueFile))
		return []place{{KindFileGap, file, 0}}
	}},
	{"foreign file in a queue", func(c *clean) []place {
		c.write("consumequeue/GoldenTx/0/x", nil)
		return []place{{KindFileName, "consumequeue/GoldenTx/0/x", 0}}
	}},
	{"index entry of another key", func(c *clean) []place {
		// A hash of the same slot, so that the chain is whole.
		file, at := c.entry(1, 7)
		c.poke32(file, at, int32(c.m.IndexFiles[1].Entries[7][1])^0x40000000)
		return append(c.slotPlaces(1), place{KindIndexForeign, file, at})
	}},
	{"index entry of no record", func(c *clean) []place {
		file, at := c.entry(1, 7)
		c.poke64(file, at+4, c.m.IndexFiles[1].Entries[7][2]+1)
		return []place{{KindIndexNowhere, file, at}, {KindIndexMissing, file, at + 20}}
	}},
	{"index entry behind the log", func(c *clean) []place {
		file, at := c.entry(1, 7)
		c.poke64(file, at+4, c.end()+9)
		// Nothing is there; what is told is that, since entries go on with smaller offsets.
		return []place{{KindIndexNowhere, file, at}, {KindIndexMissing, file, at + 20}}
	}},
	{"last index entry behind the log", func(c *clean) []place {
		last := c.m.IndexFiles[2].IndexCount - 1
		file, at := c.entry(2, int64(last))
		c.poke64(file, at+4, c.end()+9)
		return []place{{KindIndexBehindLog, file, at}, {KindIndexMissing, file, at}, {KindIndexHeader, file, 24}}
	}},
	{"index entry zeroed", func(c *clean) []place {
		file, at := c.entry(1, 7)
		poke(c.t, c.path(file), at, make([]byte, 20))
		return append(c.slotPlaces(1), place{KindIndexNowhere, file, at}, place{KindIndexMissing, file, at + 20})
	}},
	{"index entry twice", func(c *clean) []place {
		f := c.m.IndexFiles[2]
		n := int64(f.IndexCount)
		e := f.Entries[n-1]
		file, at := c.entry(2, n)
		poke(c.t, c.path(file), at, append(append(be32(int32(e[1])), be64(e[2])...), append(be32(int32(e[3])), be32(int32(n-1))...)...))
		c.poke32(file, 36, int32(n+1))
		c.poke32(file, 40+4*int64(int32(e[1])%goldenSlots), int32(n))
		return []place{{KindIndexDouble, file, at}}
	}},
	{"index time", func(c *clean) []place {
		file, at := c.entry(1, 7)
		c.poke32(file, at+12, 12345)
		return []place{{KindIndexTime, file, at}}
	}},
	{"index chain", func(c *clean) []place {
		i := c.chained(1)
		file, at := c.entry(1, i)
		c.poke32(file, at+16, 0)
		return []place{{KindIndexChain, file, at + 16}}
	}},
	{"index loop", func(c *clean) []place {
		i := c.chained(1)
		file, at := c.entry(1, i)
		c.poke32(file, at+16, int32(i))
		return []place{{KindIndexLoop, file, at + 16}}
	}},
	{"index slot", func(c *clean) []place {
		file, _ := c.entry(1, 0)
		for slot := range c.m.IndexFiles[1].SlotTable {
			var n int64
			fmt.Sscan(slot, &n)
			c.poke32(file, 40+4*n, 0)
			return []place{{KindIndexSlot, file, 40 + 4*n}}
		}
		return nil
	}},
	{"index begin time", func(c *clean) []place { return c.indexHeader(0, 8, c.indexTimes()...) }},
	{"index end time", func(c *clean) []place { return c.indexHeader(8, 8) }},
	{"index begin offset", func(c *clean) []place { return c.indexHeader(16, 8) }},
	{"index end offset", func(c *clean) []place { return c.indexHeader(24, 8) }},
	{"index slot count", func(c *clean) []place { return c.indexHeader(32, 4) }},
	{"index count too small", func(c *clean) []place {
		file, at := c.entry(2, int64(c.m.IndexFiles[2].IndexCount))
		c.poke32(file, 36, c.m.IndexFiles[2].IndexCount-1)
		list := []place{{KindIndexHeader, file, 36}, {KindIndexHeader, file, 24}, {KindIndexHeader, file, 8}, {KindIndexMissing, file, at - 20}}
		return append(list, c.lastSlot(2)...)
	}},
	{"index count too large", func(c *clean) []place {
		file, at := c.entry(2, int64(c.m.IndexFiles[2].IndexCount))
		c.poke32(file, 36, 1<<30)
		return []place{{KindIndexHeader, file, 36}, {KindIndexNowhere, file, at}}
	}},
	{"index file lost", func(c *clean) []place {
		c.remove("index", c.m.IndexFiles[1].File)
		file, at := c.entry(2, 1)
		return []place{{KindIndexMissing, file, at}}
	}},
	{"empty index file", func(c *clean) []place {
		c.write("index/20991231235959999", nil)
		return []place{{KindFileEmpty, "index/20991231235959999", 0}}
	}},
	{"checkpoint missing", func(c *clean) []place {
		c.remove("checkpoint")
		return []place{{KindCheckpoint, "checkpoint", 0}}
	}},
	{"checkpoint ahead", func(c *clean) []place {
		c.poke64("checkpoint", 8, c.newest(c.end())+1)
		return []place{{KindCheckpointAhead, "checkpoint", 8}}
	}},
	{"checkpoint ahead by offset", func(c *clean) []place {
		c.poke64("checkpoint", 24, c.end()+1)
		return []place{{KindCheckpointAhead, "checkpoint", 24}}
	}},
	{"checkpoint of a negative time", func(c *clean) []place {
		c.poke64("checkpoint", 16, -1)
		return []place{{KindCheckpointValue, "checkpoint", 16}}
	}},
	{"checkpoint of odd size", func(c *clean) []place {
		c.truncate("checkpoint", 100)
		return []place{{KindFileSize, "checkpoint", 100}}
	}},
	{"configuration cut", func(c *clean) []place {
		text := c.m.Config["topics.json"]
		c.truncate("config/topics.json", int64(len(text))-1)
		return []place{{KindConfig, "config/topics.json", int64(len(text)) - 1}}
	}},
	{"configuration garbled", func(c *clean) []place {
		text := c.m.Config["consumerOffset.json"]
		at := bytes.LastIndexByte([]byte(text), ':') // behind integer keys that get quotes
		poke(c.t, c.path("config/consumerOffset.json"), int64(at), []byte{'?'})
		return []place{{KindConfig, "config/consumerOffset.json", int64(at) - 1}}
	}},
	{"backup of a configuration empty", func(c *clean) []place {
		c.truncate("config/topics.json.bak", 0)
		return []place{{KindFileEmpty, "config/topics.json.bak", 0}}
	}},
}

// crcZero returns four bytes that, before rest, give the IEEE CRC-32 zero.
func crcZero(rest []byte) []byte {
	// The checksum is an affine map of the four bytes: solve it bit by bit.
	sum := func(x uint32) uint32 {
		return crc32.Update(crc32.ChecksumIEEE(binary.LittleEndian.AppendUint32(nil, x)), crc32.IEEETable, rest)
	}
	base := sum(0)
	var rows [32][2]uint32 // image and preimage
	for i := range rows {
		rows[i] = [2]uint32{sum(1<<i) ^ base, 1 << i}
	}
	want, x := base, uint32(0)
	for bit := range 32 {
		for i := bit; i < 32; i++ {
			if rows[i][0]>>bit&1 == 1 {
				rows[bit], rows[i] = rows[i], rows[bit]
				break
			}
		}
		for i := range rows {
			if i != bit && rows[i][0]>>bit&1 == 1 {
				rows[i][0] ^= rows[bit][0]
				rows[i][1] ^= rows[bit][1]
			}
		}
	}
	for bit := range 32 {
		if want>>bit&1 == 1 {
			x ^= rows[bit][1]
		}
	}
	return binary.LittleEndian.AppendUint32(nil, x)
}

// chained is an entry of an index file that has one before it in its slot.
func (c *clean) chained(f int) int64 {
	for i, e := range c.m.IndexFiles[f].Entries {
		if i > 0 && e[4] > 0 {
			return int64(i)
		}
	}
	c.t.Fatal("no chain")
	return 0
}

// indexHeader flips the low bit of a header field of the second index file.
func (c *clean) indexHeader(at int64, size int, more ...place) []place {
	file, _ := c.entry(1, 0)
	low := at + int64(size) - 1
	poke(c.t, c.path(file), low, []byte{peek(c.t, c.path(file), low, 1)[0] ^ 1})
	return append(more, place{KindIndexHeader, file, at})
}

// indexTimes are the entries of the second file whose seconds differ with the begin time's low bit flipped.
func (c *clean) indexTimes() (list []place) {
	f := c.m.IndexFiles[1]
	stored := map[int64]int64{}
	for _, m := range c.m.Messages {
		stored[m.CommitLogOffset] = m.StoreTimestamp
	}
	run := false
	for i, e := range f.Entries {
		if i < 2 {
			continue
		}
		differs := max((stored[e[2]]-(f.BeginTimestamp^1))/1000, 0) != e[3]
		if differs && !run {
			file, at := c.entry(1, int64(i))
			list = append(list, place{KindIndexTime, file, at})
		}
		run = differs
	}
	return list
}

// slotPlaces rebuilds the chains of the entries in a file as they now are and lists what differs.
func (c *clean) slotPlaces(f int) (list []place) {
	file, _ := c.entry(f, 0)
	last := map[int32]int32{}
	used := int32(0)
	for i := int64(1); i < int64(c.m.IndexFiles[f].IndexCount); i++ {
		_, at := c.entry(f, i)
		e, _ := decodeEntry(peek(c.t, c.path(file), at, 20))
		if e == (IndexEntry{}) {
			continue
		}
		slot := e.KeyHash % goldenSlots
		if e.Previous != last[slot] {
			list = append(list, place{KindIndexChain, file, at + 16})
		}
		if last[slot] == 0 {
			used++
		}
		last[slot] = int32(i)
	}
	for slot := range int32(goldenSlots) {
		if n := int32(binary.BigEndian.Uint32(peek(c.t, c.path(file), 40+4*int64(slot), 4))); n != last[slot] {
			list = append(list, place{KindIndexSlot, file, 40 + 4*int64(slot)})
		}
	}
	if used != c.m.IndexFiles[f].HashSlotCount {
		list = append(list, place{KindIndexHeader, file, 32})
	}
	return list
}

// lastSlot is what differs when the last entry of a file does not count.
func (c *clean) lastSlot(f int) (list []place) {
	file, _ := c.entry(f, 0)
	e := c.m.IndexFiles[f].Entries[c.m.IndexFiles[f].IndexCount-1]
	list = append(list, place{KindIndexSlot, file, 40 + 4*(e[1]%goldenSlots)})
	if e[4] == 0 {
		list = append(list, place{KindIndexHeader, file, 32})
	}
	return list
}

func TestDamage(t *testing.T) {
	m := readManifest(t, "4.9.4-clean")
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			c := &clean{killed{t: t, dir: unpack(t, "4.9.4-clean"), m: m, last: len(m.Messages) - 1}}
			want := d.do(c)
			if len(want) == 0 {
				t.Fatal("the test damages nothing")
			}
			found, sum := verify(t, c.dir)
			expect(t, found, want...)
			if sum.Damaged < int64(len(want)) {
				t.Errorf("%d damaged places, want %d at least", sum.Damaged, len(want))
			}
		})
	}
}
