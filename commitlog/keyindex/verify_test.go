package keyindex

import (
	"errors"
	"slices"
	"testing"
)

// TestVerifyFindsFlippedBits: any bit of what is durable, and of a full file's slots and head too, although the entry may still make sense; Repair and the log make the files what they
// were.
func TestVerifyFindsFlippedBits(t *testing.T) {
	const slots, entries = 20, 30
	k := newKit(t, slots, entries)
	log := testLog(0, 60)
	want := reference(t, k, log)
	ix := k.open(0, 0)
	mustFeed(t, ix, log)
	flush(t, ix)
	whole := func() error { return ix.Verify(func(int64) error { return nil }) }
	if err := whole(); err != nil {
		t.Fatal(err)
	}
	errPace := errors.New("enough")
	if err := ix.Verify(func(int64) error { return errPace }); !errors.Is(err, errPace) {
		t.Errorf("an error of pace: %v", err)
	}
	if n := len(ix.list()); n < 3 {
		t.Fatalf("%d files", n)
	}
	for _, at := range []int{0, 9, 18, 30, 33, 38, headerSize + 3, headerSize + slots*slotSize - 1, placeOf(slots, 1), placeOf(slots, 2) + 11, placeOf(slots, 7) + 13, placeOf(slots, entries-1) + 3} {
		full := ix.list()[0]
		full.table.b[at] ^= 2
		if err := whole(); !errors.Is(err, ErrDamaged) && at >= headerSize {
			t.Errorf("byte %d of a full file: %v", at, err)
		} else if err == nil {
			full.table.b[at] ^= 2 // a time in a head, which nothing else tells
			continue
		}
		if err := ix.Repair(0); err != nil {
			t.Fatal(err)
		}
		rest := slices.DeleteFunc(slices.Clone(log), func(r rec) bool { return r.phyOffset < ix.From() })
		mustFeed(t, ix, rest)
		flush(t, ix)
		checkSame(t, ix, want)
		if err := whole(); err != nil {
			t.Fatal(err)
		}
	}
	// The last file: entries that are durable.
	last := ix.list()[len(ix.list())-1]
	last.table.b[placeOf(slots, 1)+5] ^= 1
	if err := whole(); !errors.Is(err, ErrDamaged) {
		t.Errorf("the last file: %v", err)
	}
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
	if err := whole(); !errors.Is(err, ErrClosed) {
		t.Errorf("closed: %v", err)
	}
}

// placeOf is where entry i of a file begins.
func placeOf(slots, i int) int { return headerSize + slots*slotSize + i*entrySize }
