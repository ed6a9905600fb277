package commitlog

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
)

func FuzzJournal(f *testing.F) {
	var b [journalRecordSize]byte
	f.Add(b[:])
	putJournalRecord(b[:], &journalRecord{index: 7, term: 3, start: 4096, end: 4346, lastStoreTimestamp: 1600000000123, crc: 0xDEADBEEF})
	f.Add(b[:])
	putJournalRecord(b[:], &journalRecord{kind: kindInstall, index: 1, end: 1 << 40})
	f.Add(b[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, fuzzSum(b)} {
			r, err := decodeJournalRecord(b)
			if err != nil {
				continue
			}
			var again [journalRecordSize]byte
			putJournalRecord(again[:], &r)
			if !bytes.Equal(again[:], b[:journalRecordSize]) {
				t.Fatalf("encodes to\n%X\nwas\n%X", again, b)
			}
		}
	})
}

// fuzzSum lets the fuzzer past the checksum.
func fuzzSum(b []byte) []byte {
	if len(b) < 64 {
		return b
	}
	return resum(bytes.Clone(b[:64]))
}

func FuzzPoint(f *testing.F) {
	f.Add(appendPoint(nil, Point{}))
	f.Add(appendPoint(nil, Point{RaftIndex: 7, RaftTerm: 3, LogEnd: 4346, JournalEnd: 128, Base: 4096, resetting: true}))
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, fuzzSum(b)} {
			if p, err := decodePoint(b); err == nil && !bytes.Equal(appendPoint(nil, p), b) {
				t.Fatalf("encodes to\n%X\nwas\n%X", appendPoint(nil, p), b)
			}
		}
	})
}

func FuzzSuspects(f *testing.F) {
	f.Add("0 4096\n4096 8192\n")
	f.Add("1 2")
	f.Add("-1 5\n9 9\nx y\n1 2 3\n99999999999999999999 1\n")
	f.Fuzz(func(t *testing.T, text string) {
		list := parseSuspects(text)
		var again strings.Builder
		for _, d := range list {
			if d.From < 0 || d.From >= d.To {
				t.Fatalf("range [%d, %d)", d.From, d.To)
			}
			fmt.Fprintf(&again, "%d %d\n", d.From, d.To)
		}
		if got := parseSuspects(again.String()); !slices.EqualFunc(got, list, func(a, b Damage) bool { return a.From == b.From && a.To == b.To }) {
			t.Fatalf("%v becomes %v", list, got)
		}
	})
}
