package inspect

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"raftmq/commitlog/record"
)

// memory is a source in memory.
type memory struct{ *bytes.Reader }

func inMemory(b []byte) memory { return memory{bytes.NewReader(b)} }

// seedFiles adds the first bytes of the golden stores' files whose path matches.
func seedFiles(f *testing.F, pattern string, max int) {
	f.Helper()
	n := 0
	for _, name := range goldenNames {
		dir := unpack(f, name)
		files, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			f.Fatal(err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b[:min(len(b), max)])
			n++
		}
	}
	if n == 0 {
		f.Fatal("no seeds")
	}
}

// FuzzSegment: a scan of any bytes ends, goes forward only, and what it calls a record is one.
func FuzzSegment(f *testing.F) {
	seedFiles(f, "commitlog/*", 8<<10)
	f.Fuzz(func(t *testing.T, b []byte) {
		const segment, from = 8 << 10, 3 * 8 << 10
		s := newSegmentScan(newWindow(inMemory(b)), from, segment)
		for pos := int64(0); ; {
			it, err := s.next()
			if err != nil {
				t.Fatal(err)
			}
			if it.pos < pos || it.pos+it.size > s.limit || it.itemType != itemEnd && it.size <= 0 {
				t.Fatalf("item at %d of %d bytes behind %d, limit %d", it.pos, it.size, pos, s.limit)
			}
			pos = it.pos + it.size
			switch it.itemType {
			case itemEnd:
				return
			case itemBad:
				if it.kind == "" || it.detail == "" {
					t.Fatal("a bad place without a reason")
				}
			case itemRecord:
				var m record.Message
				_, err := record.Decode(it.rec, &m)
				if it.kind == "" && (err != nil || m.PhyOffset != from+it.pos) {
					t.Fatalf("record at %d: %v", it.pos, err)
				}
			}
		}
	})
}

// FuzzStandardJSON: what comes out is JSON, JSON comes out as it was, and an error has a place in the text.
func FuzzStandardJSON(f *testing.F) {
	seedFiles(f, "config/*.json", 4<<10)
	f.Add([]byte(`{"a":{0:1,-5 :[2,{3:"x{4:"}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		out, err := StandardJSON(text)
		var bad *DialectError
		switch {
		case err == nil && !json.Valid(out):
			t.Fatalf("%q is no JSON", out)
		case err != nil && (!errors.As(err, &bad) || bad.Offset < 0 || bad.Offset > int64(len(text))):
			t.Fatalf("%v for %d bytes", err, len(text))
		case len(out) > 2*len(text)+2:
			t.Fatalf("%d bytes out of %d", len(out), len(text))
		}
		if json.Valid(text) && (err != nil || !bytes.Equal(bytes.TrimSpace(out), bytes.TrimSpace(text))) {
			t.Fatalf("%q became %q, %v", text, out, err)
		}
	})
}

func FuzzJournalRecord(f *testing.F) {
	f.Add(peek(f, filepath.Join(closedStore(f, 3), "journal/records/00000000000000000000"), 0, 64))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeJournal(b)
		if err == nil && (r.End <= r.Start || r.Start < 0 || r.Kind > 1) {
			t.Fatalf("%+v", r)
		}
		if err != nil && !errors.Is(err, errBlankRecord) && !errors.Is(err, errRecord) {
			t.Fatal(err)
		}
	})
}

func FuzzPoints(f *testing.F) {
	dir := closedStore(f, 3)
	for _, name := range []string{recoveryPointName, queuePointName, indexPointName + ".0", indexPointName + ".1"} {
		if b, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			f.Add(b)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if p, err := decodePoint(b); err == nil && (p.base < 0 || p.logEnd < p.base) {
			t.Fatalf("%+v", p)
		}
		decodeQueuePoint(b)
		if p, err := decodeIndexPoint(b); err == nil && len(p.files)*indexPointFile > len(b) {
			t.Fatalf("%d files in %d bytes", len(p.files), len(b))
		}
	})
}

func FuzzExtUnit(f *testing.F) {
	seedFiles(f, "consumequeue_ext/*/*/*", 100)
	f.Fuzz(func(t *testing.T, b []byte) {
		u, err := decodeExt(b)
		if err == nil && (int(u.Size) > len(b) || len(u.Bitmap)+extHead != int(u.Size)) {
			t.Fatalf("%+v of %d bytes", u, len(b))
		}
	})
}

// FuzzIndexFile: the slot count of any file is found or not, and then entries are in the file.
func FuzzIndexFile(f *testing.F) {
	seedFiles(f, "index/*", 4<<10)
	f.Fuzz(func(t *testing.T, b []byte) {
		h, ok := decodeIndexHeader(b)
		if !ok {
			return
		}
		slots := findSlots(inMemory(b), &h)
		file := IndexFile{Size: int64(len(b)), IndexHeader: h, Slots: slots}
		if slots < 0 || slots > 0 && file.entryAt(h.entries()+1) > file.Size {
			t.Fatalf("%d slots in %d bytes with %d entries", slots, len(b), h.entries())
		}
	})
}

func FuzzCheckpoint(f *testing.F) {
	seedFiles(f, "checkpoint", 4<<10)
	f.Fuzz(func(t *testing.T, b []byte) {
		if c := decodeCheckpoint(b); c.Size != int64(len(b)) {
			t.Fatalf("%+v", c)
		}
	})
}

// FuzzStore puts bytes somewhere into a store's files: Verify must come to an end.
func FuzzStore(f *testing.F) {
	dirs := []string{unpack(f, "4.9.4-ext"), unpack(f, "5.3.3-killed"), closedStore(f, 60)}
	var files [][]string
	for _, dir := range dirs {
		files = append(files, filesOf(f, dir))
	}
	f.Add(uint8(0), uint16(0), uint16(36), []byte{0x7F, 0xFF, 0xFF, 0xFF})
	f.Add(uint8(1), uint16(3), uint16(0), []byte{0, 0, 0, 0, 0, 0, 0, 0})
	f.Add(uint8(2), uint16(9), uint16(99), []byte("x"))
	f.Fuzz(func(t *testing.T, which uint8, file, at uint16, b []byte) {
		i := int(which) % len(dirs)
		path := filepath.Join(dirs[i], files[i][int(file)%len(files[i])])
		old, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		now := bytes.Clone(old)
		copy(now[min(int(at), len(now)):], b)
		if err := os.WriteFile(path, now, 0o644); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := os.WriteFile(path, old, 0o644); err != nil {
				t.Fatal(err)
			}
		}()
		s, err := Open(dirs[i], Options{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Verify(func(Finding) {}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Stat(false); err != nil {
			t.Fatal(err)
		}
		for _, walk := range []error{s.Records(RecordFilter{}, func(*Record) error { return nil }, nil),
			s.Units(QueueFilter{}, func(*Queue, Unit) error { return nil }), s.Journal(func(JournalRecord, error) error { return nil })} {
			if walk != nil {
				t.Fatal(walk)
			}
		}
	})
}

// filesOf lists the files below a folder.
func filesOf(t testing.TB, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		list = append(list, rel)
		return err
	})
	if err != nil || len(list) == 0 {
		t.Fatalf("%d files, %v", len(list), err)
	}
	return list
}
