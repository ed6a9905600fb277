package keyindex

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"raftmq/commitlog/mappedfile"
)

// goldenSeeds are the files of the golden stores.
func goldenSeeds(f *testing.F) (files [][]byte) {
	for _, path := range goldenFiles(f) {
		for _, g := range readGolden(f, path).IndexFiles {
			files = append(files, g.Bytes)
		}
	}
	return files
}

// FuzzQuery reads any bytes as an index file: no panic, no endless chain, and what a whole
// file (Check) yields is in order.
func FuzzQuery(f *testing.F) {
	for _, b := range goldenSeeds(f) {
		f.Add(b, uint16(goldenSlots), int32(964604106), int64(0), int64(math.MaxInt64))
	}
	f.Fuzz(func(t *testing.T, b []byte, slots uint16, hash int32, begin, end int64) {
		table, err := NewTable(b, int(slots))
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		whole := table.Check() == nil
		h := table.Header()
		hash = max(hash, -(hash + 1))
		c, err := table.chain(h, hash, table.Slot(int(hash)%table.slots), begin)
		last, n := int64(math.MaxInt64), 0
		for err == nil {
			var phyOffset int64
			var ok bool
			phyOffset, _, ok, err = c.next(3)
			if !ok && (err != nil || c.at == 0) {
				break
			}
			if n++; n > table.Entries() {
				t.Fatalf("%d steps among %d entries", n, table.Entries())
			}
			if ok && whole && phyOffset > last {
				t.Fatalf("offset %d behind %d", phyOffset, last)
			}
			if ok {
				last = phyOffset
			}
		}
		if err != nil && (!errors.Is(err, ErrDamaged) || whole) {
			t.Fatalf("%v, check says whole: %v", err, whole)
		}
	})
}

// FuzzOpenIndex opens any bytes as index files and recovery point, with checksums that fit: no
// panic, and whatever is left can be queried and written on.
func FuzzOpenIndex(f *testing.F) {
	seeds := goldenSeeds(f)
	for i := range seeds {
		next := seeds[(i+1)%len(seeds)]
		p := point{sequence: 2, next: position{1 << 20, 0}, slots: goldenSlots, entries: goldenEntries}
		for k, b := range [][]byte{seeds[i], next} {
			table, err := NewTable(b, goldenSlots)
			if err != nil {
				f.Fatal(err)
			}
			h := table.Header()
			p.files = append(p.files, pointed{int64(20261130120000000 + k), h, table.sum(0, 1, h.Count)})
		}
		f.Add(seeds[i], next, appendPoint(nil, &p), true)
		f.Add(seeds[i], next, appendPoint(nil, &p), false)
	}
	f.Fuzz(func(t *testing.T, first, second, pointBytes []byte, mend bool) {
		if len(first)+len(second)+len(pointBytes) > 1<<16 {
			return
		}
		if n := len(pointBytes) - pointCheckSize; mend && n >= pointHeadSize {
			// Past the checksum, where only the decoder's own checks help.
			p, err := decodePoint(pointBytes)
			if err != nil {
				p = &point{sequence: 2, next: position{int64(n), 1}, slots: goldenSlots, entries: goldenEntries}
			}
			p.files = nil
			for k, b := range [][]byte{first, second} {
				if table, err := NewTable(b, goldenSlots); err == nil && table.Entries() > 0 {
					h := table.Header()
					h.Count = min(h.Count, goldenEntries, int32(table.Entries()))
					p.next.phyOffset = max(p.next.phyOffset, h.EndPhyOffset)
					p.files = append(p.files, pointed{int64(20261130120000000 + k), h, table.sum(0, 1, h.Count)})
				}
			}
			pointBytes = appendPoint(nil, p)
		}
		k := newKit(t, goldenSlots, goldenEntries)
		for name, b := range map[string][]byte{"index/20261130120000000": first, "index/20261130120000001": second, "indexpoint.0": pointBytes} {
			if err := errors.Join(k.fs.MkdirAll(k.c.Dir), k.fs.WriteFile("store/"+name, b)); err != nil {
				t.Fatal(err)
			}
		}
		ix, err := Open(k.c, 0, math.MaxInt64)
		if err != nil {
			t.Fatalf("damage is no error: %v", err)
		}
		defer ix.Close()
		for i := range int32(60) {
			key := string(binary.BigEndian.AppendUint32(nil, uint32(i)))
			err := ix.Find(context.Background(), "GoldenB", key, 0, math.MaxInt64, func(int64) bool { return true })
			if err != nil && !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
		}
		if err := ix.Repair(0); err != nil {
			t.Fatal(err)
		}
		at := ix.From()
		if at > math.MaxInt64-10_000 {
			return
		}
		for i := range int64(20) {
			if err := ix.Put([]byte("T"), []byte("key"), []byte("a b"), at+1+i*100, i); err != nil && !errors.Is(err, mappedfile.ErrNoSpace) {
				t.Fatal(err)
			}
		}
		if err := errors.Join(ix.Commit(at+2001), ix.Flush(ix.Mark())); err != nil {
			t.Fatal(err)
		}
		n := 0
		err = ix.Find(context.Background(), "T", "key", math.MinInt64, math.MaxInt64, func(int64) bool { n++; return true })
		if n < 20 || err != nil && !errors.Is(err, ErrDamaged) { // an old file may be damaged still
			t.Fatalf("found %d: %v", n, err)
		}
	})
}

// FuzzPoint decodes any bytes: no panic, no more memory than the input, and what is accepted
// encodes to the same.
func FuzzPoint(f *testing.F) {
	f.Add(appendPoint(nil, &point{slots: 1, entries: 2}))
	f.Add(appendPoint(nil, &point{
		sequence: 7, next: position{100, 2}, slots: 5, entries: 9,
		files: []pointed{{1, Header{1, 2, 3, 4, 5, 9}, 8}, {2, Header{3, 4, 5, 99, 2, 3}, 0}},
	}))
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := decodePoint(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Fatal(err)
			}
			return
		}
		if again := appendPoint(nil, p); string(again) != string(b) {
			// A count of 0 reads as 1.
			if q, err := decodePoint(again); err != nil || len(q.files) != len(p.files) {
				t.Fatalf("%x encodes to %x", b, again)
			}
		}
	})
}

// TestPointRefused: each field has its check behind the checksum.
func TestPointRefused(t *testing.T) {
	good := func() *point {
		return &point{
			sequence: 7, next: position{100, 2}, slots: 5, entries: 9,
			files: []pointed{{1, Header{1, 2, 3, 4, 5, 9}, 8}, {2, Header{3, 4, 5, 99, 2, 3}, 0}},
		}
	}
	if p, err := decodePoint(appendPoint(nil, good())); err != nil || p.files[1] != good().files[1] || p.next != good().next {
		t.Fatalf("%+v, %v", p, err)
	}
	for name, harm := range map[string]func(p *point){
		"negative offset":    func(p *point) { p.next.phyOffset = -1 },
		"negative keys":      func(p *point) { p.next.keys = -1 },
		"no slots":           func(p *point) { p.slots = 0 },
		"no entries":         func(p *point) { p.entries = 1 },
		"files not in order": func(p *point) { p.files[1].name = 1 },
		"negative name":      func(p *point) { p.files[0].name = -1 },
		"first not full":     func(p *point) { p.files[0].header.Count = 8 },
		"more than full":     func(p *point) { p.files[1].header.Count = 10 },
		"offsets overlap":    func(p *point) { p.files[1].header.BeginPhyOffset = 3 },
		"offsets turned":     func(p *point) { p.files[1].header.EndPhyOffset = 4 },
		"behind the point":   func(p *point) { p.files[1].header.EndPhyOffset = 101 },
	} {
		p := good()
		harm(p)
		if _, err := decodePoint(appendPoint(nil, p)); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := appendPoint(nil, good())
	for i := range b {
		b[i] ^= 1
		if _, err := decodePoint(b); !errors.Is(err, ErrDamaged) {
			t.Errorf("byte %d: %v", i, err)
		}
		b[i] ^= 1
		if _, err := decodePoint(b[:i]); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes: %v", i, err)
		}
	}
}
