package commitlog

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"raftmq/commitlog/record"
)

func goldenSegments(t *testing.T, name string) map[string][]byte {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if err == io.EOF {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if dir, file := path.Split(path.Clean(h.Name)); dir == "commitlog/" {
			if files[file], err = io.ReadAll(r); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestGoldenSegments appends the messages of a real store, one by one, and must get the very files that
// RocketMQ wrote: the same offsets, fillers, rolls and zeros.
func TestGoldenSegments(t *testing.T) {
	names, err := filepath.Glob("testdata/store-*.tar.gz")
	if err != nil || len(names) == 0 {
		t.Fatalf("no golden stores: %v", err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			golden := goldenSegments(t, name)
			dir := t.TempDir()
			cfg := testConfig(dir)
			cfg.SegmentSize = 65536
			l := openLog(t, cfg)
			index := uint64(0)
			for _, file := range slices.Sorted(maps.Keys(golden)) {
				for b := golden[file]; len(b) > 0; {
					n, err := record.Check(b, true)
					if err != nil {
						if !errors.Is(err, record.ErrBlank) && !errors.Is(err, record.ErrMagic) {
							t.Fatal(err)
						}
						break
					}
					rec := bytes.Clone(b[:n])
					v := record.View(rec)
					record.PatchOffsets(rec, -1, -1)
					index++
					apply(t, l, index, string(v.Topic()), v.QueueID(), rec, 1)
					b = b[n:]
				}
			}
			if err := l.Verify(0); err != nil {
				t.Fatal(err)
			}
			closeLog(t, l)
			for file, want := range golden {
				got, err := os.ReadFile(filepath.Join(cfg.Dir, file))
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want) {
					i := 0
					for got[i] == want[i] {
						i++
					}
					t.Errorf("segment %s differs at %d", file, i)
				}
			}
		})
	}
}

// The formats of DESIGN.md, fixed: a change of these bytes is a change of the format version.
const (
	goldenJournal = "524d514a01000000" + "0000000000000007" + "0000000000000003" + "0000000000001000" + "00000000000010fa" +
		"00000174876e807b" + "0000000000000000" + "deadbeef"
	goldenPoint = "524d515000010001" + "0000000000000007" + "0000000000000003" + "00000000000010fa" + "0000000000000080" +
		"0000000000001000" + "000000000000000000000000"
)

func TestGoldenFormats(t *testing.T) {
	r := journalRecord{index: 7, term: 3, start: 4096, end: 4346, lastStoreTimestamp: 1600000000123, crc: 0xDEADBEEF}
	var b [journalRecordSize]byte
	putJournalRecord(b[:], &r)
	if got := hex.EncodeToString(b[:60]); got != goldenJournal {
		t.Errorf("journal record\n%s want\n%s", got, goldenJournal)
	}
	if got := hex.EncodeToString(b[60:]); got != "0b14f21d" {
		t.Errorf("journal record checksum %s", got)
	}
	if got, err := decodeJournalRecord(b[:]); err != nil || got != r {
		t.Errorf("decoded %+v, %v", got, err)
	}
	p := Point{RaftIndex: 7, RaftTerm: 3, LogEnd: 4346, JournalEnd: 128, Base: 4096, resetting: true}
	e := appendPoint(nil, p)
	if got := hex.EncodeToString(e[:60]); got != goldenPoint {
		t.Errorf("recovery point\n%s want\n%s", got, goldenPoint)
	}
	if got := hex.EncodeToString(e[60:]); got != "44766ab9" {
		t.Errorf("recovery point checksum %s", got)
	}
	if got, err := decodePoint(e); err != nil || got != p {
		t.Errorf("decoded %+v, %v", got, err)
	}
}

// resum gives changed bytes a good checksum; both formats have it at the same place.
func resum(b []byte) []byte {
	binary.BigEndian.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
	return b
}

func TestCorruptJournalRecord(t *testing.T) {
	good := func() []byte {
		var b [journalRecordSize]byte
		putJournalRecord(b[:], &journalRecord{kind: kindInstall, index: 7, term: 3, start: 5, end: 9})
		return b[:]
	}
	tests := []struct {
		name    string
		corrupt func(b []byte) []byte
		want    error
	}{
		{"good", func(b []byte) []byte { return b }, nil},
		{"blank", func(b []byte) []byte { clear(b); return b }, errJournalBlank},
		{"short", func(b []byte) []byte { return b[:63] }, errJournalRecord},
		{"magic", func(b []byte) []byte { b[0]++; return resum(b) }, errJournalRecord},
		{"version", func(b []byte) []byte { b[4]++; return resum(b) }, ErrVersion},
		{"kind", func(b []byte) []byte { b[5] = 2; return resum(b) }, ErrVersion},
		{"reserved", func(b []byte) []byte { b[50] = 1; return resum(b) }, ErrVersion},
		{"empty range", func(b []byte) []byte { copy(b[32:40], b[24:32]); return resum(b) }, errJournalRecord},
		{"negative start", func(b []byte) []byte { b[24] = 0x80; return resum(b) }, errJournalRecord},
	}
	for i := range journalRecordSize {
		tests = append(tests, struct {
			name    string
			corrupt func(b []byte) []byte
			want    error
		}{fmt.Sprint("bit of byte ", i), func(b []byte) []byte { b[i] ^= 0x10; return b }, errJournalRecord})
	}
	for _, tt := range tests {
		if _, err := decodeJournalRecord(tt.corrupt(good())); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
}

func TestCorruptPoint(t *testing.T) {
	good := func() []byte { return appendPoint(nil, Point{RaftIndex: 1, LogEnd: 100, JournalEnd: 64}) }
	tests := map[string]func(b []byte) []byte{
		"empty":       func(b []byte) []byte { return nil },
		"short":       func(b []byte) []byte { return b[:63] },
		"long":        func(b []byte) []byte { return append(b, 0) },
		"magic":       func(b []byte) []byte { b[0]++; return resum(b) },
		"version":     func(b []byte) []byte { b[5]++; return resum(b) },
		"flags":       func(b []byte) []byte { b[7] = 2; return resum(b) },
		"reserved":    func(b []byte) []byte { b[50] = 1; return resum(b) },
		"log end":     func(b []byte) []byte { b[24] = 0x80; return resum(b) },
		"below base":  func(b []byte) []byte { b[47] = 101; return resum(b) },
		"odd journal": func(b []byte) []byte { b[39]++; return resum(b) },
	}
	for i := range pointSize {
		tests[fmt.Sprint("bit of byte ", i)] = func(b []byte) []byte { b[i] ^= 1; return b }
	}
	if _, err := decodePoint(good()); err != nil {
		t.Fatal(err)
	}
	for name, corrupt := range tests {
		want := errPoint
		if name == "version" || name == "flags" || name == "reserved" {
			want = ErrVersion
		}
		if p, err := decodePoint(corrupt(good())); !errors.Is(err, want) {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
}
