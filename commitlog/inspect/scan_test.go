package inspect

import (
	"fmt"
	"testing"
	"time"

	"raftmq/commitlog/record"
)

// logBytes is n records of about the given size that say they are at from.
func logBytes(n, size int, from int64) []byte {
	var b []byte
	for i := range n {
		at := len(b)
		b = record.Append(b, &record.Message{Topic: []byte("T"), QueueOffset: int64(i), BornHost: testHost, StoreHost: testHost,
			StoreTimestamp: 1_600_000_000_000, Body: make([]byte, size), Properties: []byte("TAGS\x01a")})
		record.PatchOffsets(b[at:], int64(i), from+int64(at))
	}
	return b
}

// TestResync: a scan finds back behind damage of any length, however windows fall, and in time that does not
// grow with the number of places that only look like records.
func TestResync(t *testing.T) {
	const n, size = 20_000, 50
	good := logBytes(n, size, 0)
	one := len(good) / n
	segment := int64(len(good)) + 1000
	for _, from := range []int{0, one, one * 100, windowSize/one*one - one, len(good) / one / 2 * one} {
		for _, length := range []int{1, one, 3*one + 7, windowSize + 5} {
			t.Run(fmt.Sprintf("%d bytes at %d", length, from), func(t *testing.T) {
				b := append([]byte(nil), good...)
				to := min(from+length, len(b))
				for i := from; i < to; i++ {
					b[i] ^= 0x5A
				}
				s := newSegmentScan(newWindow(inMemory(b)), 0, segment)
				var bad, records int
				end := int64(0)
				for {
					it, err := s.next()
					if err != nil {
						t.Fatal(err)
					}
					if it.itemType == itemEnd {
						break
					}
					end = it.pos + it.size
					if it.itemType == itemRecord && it.kind == "" {
						records++
						continue
					}
					bad++
					if it.pos != int64(from/one*one) {
						t.Errorf("%s at %d, damage is at %d", it.kind, it.pos, from)
					}
				}
				if lost := (to+one-1)/one - from/one; bad != 1 || records != n-lost || end != int64(len(b)) {
					t.Errorf("%d bad places, %d records of %d, %d lost, end %d of %d", bad, records, n, lost, end, len(b))
				}
			})
		}
	}

	// Everything shifted by a byte: no record is where it says, each is looked at.
	shifted := append([]byte{1}, logBytes(100_000, size, 0)...)
	begun := time.Now()
	s := newSegmentScan(newWindow(inMemory(shifted)), 0, int64(len(shifted))+1000)
	it, err := s.next()
	if err != nil || it.itemType != itemBad || it.size != int64(len(shifted)) {
		t.Fatalf("%+v, %v", it, err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("%d bytes took %s", len(shifted), took)
	}
}

// TestSplitMagic: a record whose magic lies across the end of a window is found.
func TestSplitMagic(t *testing.T) {
	for shift := range 2 * record.MinSize {
		b := make([]byte, windowSize-shift)
		for i := range b {
			b[i] = 0x11
		}
		b = append(b, logBytes(1, 200, int64(len(b)))...)
		s := newSegmentScan(newWindow(inMemory(b)), 0, int64(len(b))+100)
		first, err := s.next()
		if err != nil {
			t.Fatal(err)
		}
		at, size := first.pos, first.size
		second, err := s.next()
		if err != nil || first.itemType != itemBad || at != 0 || size != int64(windowSize-shift) || second.itemType != itemRecord || second.kind != "" {
			t.Fatalf("shift %d: %d bytes bad, then %+v, %v", shift, size, second, err)
		}
	}
}
