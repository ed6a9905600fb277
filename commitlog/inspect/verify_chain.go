package inspect

import "fmt"

// chainCheck rebuilds a file's slots from its entries and compares.
type chainCheck struct {
	x       *indexCheck
	f       *IndexFile
	last    []int32 // newest entry of each slot
	used    int32
	entries int64
}

func (c *chainCheck) entry(i int64, e IndexEntry) {
	c.entries = i
	if e == (IndexEntry{}) {
		return // nothing was written: told when it is compared with the log
	}
	at := placedEntry{e, c.f, i}
	if e.KeyHash < 0 {
		c.x.v.r.add(at.finding(KindIndexChain, fmt.Sprintf("key hash %d is negative", e.KeyHash)))
		return
	}
	slot := c.f.slot(e.KeyHash)
	if want := c.last[slot]; e.Previous != want {
		f := at.finding(KindIndexChain, fmt.Sprintf("the entry before it in slot %d is %d, it names %d", slot, want, e.Previous))
		if int64(e.Previous) >= i {
			f.Kind, f.Detail = KindIndexLoop, fmt.Sprintf("entry %d: it names entry %d as the one before it in slot %d, where that is %d", i, e.Previous, slot, want)
		}
		f.Offset, f.Length = f.Offset+16, 4
		c.x.v.r.add(f)
	}
	if c.last[slot] == 0 {
		c.used++
	}
	c.last[slot] = int32(i)
	if i == 1 && e.PhyOffset != c.f.BeginPhyOffset {
		c.header(16, fmt.Sprintf("begin offset %d, the first entry has %d", c.f.BeginPhyOffset, e.PhyOffset))
	}
	if i == c.f.entries() && e.PhyOffset != c.f.EndPhyOffset {
		c.header(24, fmt.Sprintf("end offset %d, the last entry has %d", c.f.EndPhyOffset, e.PhyOffset))
	}
}

func (c *chainCheck) header(offset int64, detail string) {
	size := int64(8)
	if offset >= 32 {
		size = 4
	}
	c.x.v.r.add(Finding{Kind: KindIndexHeader, File: c.f.Path, Offset: offset, Length: size, Detail: detail})
}

// finish compares slots and header behind the last entry.
func (c *chainCheck) finish(w *window) error {
	f := c.f
	if f.open || c.x.v.s.InUse.Running && c.x.i == len(c.x.files)-1 {
		return nil // slots and header are being written, or are made again at the next start
	}
	switch {
	case f.IndexCount < 0 || f.entries() >= f.MaxEntries || c.entries < f.entries():
		c.header(36, fmt.Sprintf("%d entries, the file has room for %d", f.IndexCount, f.MaxEntries))
	case f.entries()+1 < f.MaxEntries:
		b, err := w.at(f.entryAt(f.entries()+1), entrySize)
		if err != nil {
			return err
		}
		if !allZero(b) {
			c.header(36, fmt.Sprintf("entries end with %d, but entry %d is not empty", f.entries(), f.entries()+1))
		}
	}
	if f.HashSlotCount != c.used {
		c.header(32, fmt.Sprintf("%d slots in use, the entries use %d", f.HashSlotCount, c.used))
	}
	return eachSlot(w, f, func(slot int64, entry int32) error {
		if entry != c.last[slot] {
			c.x.v.r.add(Finding{Kind: KindIndexSlot, File: f.Path, Offset: indexHeaderSize + slot*slotSize, Length: slotSize,
				Detail: fmt.Sprintf("slot %d names entry %d, its newest is %d", slot, entry, c.last[slot])})
		}
		return nil
	})
}
