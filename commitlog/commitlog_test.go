package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"

	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
)

const testSegment = 4 * mappedfile.PageSize

func testConfig(dir string) Config {
	return Config{
		Dir: filepath.Join(dir, "commitlog"), JournalDir: filepath.Join(dir, "journal"),
		SegmentSize: testSegment, AllocateStep: mappedfile.PageSize, JournalFileSize: 4096,
	}
}

func openLog(t testing.TB, cfg Config) *Log {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func closeLog(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

var testHost = netip.MustParseAddrPort("127.0.0.1:10911")

// records returns n records of size bytes each for a queue.
func records(topic string, queueID int32, n, size int, storeTime int64, sysFlag int32) []byte {
	m := record.Message{
		Topic: []byte(topic), QueueID: queueID, SysFlag: sysFlag, BornHost: testHost, StoreHost: testHost,
		BornTimestamp: 1, StoreTimestamp: storeTime, QueueOffset: -1, PhyOffset: -1,
	}
	m.Body = bytes.Repeat([]byte{byte(size)}, size-m.Size())
	var b []byte
	for range n {
		b = record.Append(b, &m)
	}
	return b
}

// apply is one Raft entry of one append.
func apply(t testing.TB, l *Log, index uint64, topic string, queueID int32, b []byte, n int) Appended {
	t.Helper()
	if err := l.BeginEntry(index, 1); err != nil {
		t.Fatal(err)
	}
	a, err := l.Append([]byte(topic), queueID, b, n)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.EndEntry(); err != nil {
		t.Fatal(err)
	}
	l.Publish()
	return a
}

// content returns all published bytes.
func content(t testing.TB, l *Log) []byte {
	t.Helper()
	var b []byte
	for off := l.MinOffset(); off < l.MaxOffset(); {
		v, err := l.View(off, 1<<30)
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, v.Bytes...)
		off += int64(len(v.Bytes))
		v.Release()
	}
	return b
}

func TestAppendAssignsOffsets(t *testing.T) {
	l := openLog(t, testConfig(t.TempDir()))
	if a := apply(t, l, 3, "T", 1, records("T", 1, 3, 200, 1000, 0), 3); a != (Appended{0, 0}) {
		t.Fatalf("first: %+v", a)
	}
	if a := apply(t, l, 5, "T", 1, records("T", 1, 1, 200, 900, record.SysFlagCommit), 1); a != (Appended{3, 600}) {
		t.Fatalf("second: %+v", a)
	}
	if a := apply(t, l, 6, "T", 1, records("T", 1, 1, 200, 1100, record.SysFlagPrepared), 1); a != (Appended{0, 800}) {
		t.Fatalf("prepared: %+v", a)
	}
	if a := apply(t, l, 7, "U", 0, records("U", 0, 1, 200, 1050, record.SysFlagRollback), 1); a != (Appended{0, 1000}) {
		t.Fatalf("rollback: %+v", a)
	}
	if a := apply(t, l, 8, "T", 1, records("T", 1, 2, 200, 1200, 0), 2); a != (Appended{4, 1200}) {
		t.Fatalf("last: %+v", a)
	}
	wantTimes := []int64{1000, 1000, 1000, 1000, 1100, 1100, 1200, 1200}
	wantQueue := []int64{0, 1, 2, 3, 0, 0, 4, 5}
	b := content(t, l)
	for i := range wantTimes {
		var m record.Message
		n, err := record.Decode(b, &m)
		if err != nil {
			t.Fatal(err)
		}
		if m.PhyOffset != int64(200*i) || m.QueueOffset != wantQueue[i] || m.StoreTimestamp != wantTimes[i] {
			t.Errorf("record %d: phy %d queue %d time %d", i, m.PhyOffset, m.QueueOffset, m.StoreTimestamp)
		}
		b = b[n:]
	}
	p := l.Position()
	want := "{8 1 1600 1200 0 [{T 1 6} {U 0 0}]}"
	if got := fmt.Sprint(p); got != want {
		t.Errorf("position %s, want %s", got, want)
	}
	if l.QueueNext([]byte("T"), 1) != 6 || l.QueueNext([]byte("T"), 7) != 0 || l.QueueNext([]byte("X"), 0) != 0 {
		t.Error("QueueNext")
	}
}

func TestRollAndBlank(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, testConfig(dir))
	// One record that leaves 100 bytes, then one of 93: 93+8 > 100 rolls.
	apply(t, l, 1, "T", 0, records("T", 0, 1, testSegment-100, 1, 0), 1)
	if a := apply(t, l, 2, "T", 0, records("T", 0, 1, 93, 1, 0), 1); a.PhyOffset != testSegment {
		t.Fatalf("rolled to %d", a.PhyOffset)
	}
	// 92 fit exactly, with the 8 bytes that the next filler needs.
	apply(t, l, 3, "T", 0, records("T", 0, 1, testSegment-93-100, 1, 0), 1)
	if a := apply(t, l, 4, "T", 0, records("T", 0, 1, 92, 1, 0), 1); a.PhyOffset != 2*testSegment-100 {
		t.Fatalf("record of 92 went to %d", a.PhyOffset)
	}
	// Two records of a batch go together.
	if a := apply(t, l, 5, "T", 0, records("T", 0, 2, 92, 1, 0), 2); a.PhyOffset != 2*testSegment {
		t.Fatalf("batch went to %d", a.PhyOffset)
	}
	b := content(t, l)
	for _, tt := range []struct{ at, size int }{{testSegment - 100, 100}, {2*testSegment - 8, 8}} {
		want := append(record.AppendBlank(nil, tt.size), make([]byte, tt.size-8)...)
		if got := b[tt.at : tt.at+tt.size]; !bytes.Equal(got, want) {
			t.Errorf("filler at %d: %X", tt.at, got)
		}
		if n, err := record.Check(b[tt.at:tt.at+tt.size], true); n != tt.size || !errors.Is(err, record.ErrBlank) {
			t.Errorf("filler at %d: %d, %v", tt.at, n, err)
		}
	}
	closeLog(t, l)
	l = openLog(t, testConfig(dir))
	if index, term, end := l.Recovered(); index != 5 || term != 1 || end != 2*testSegment+184 {
		t.Fatalf("recovered %d %d %d", index, term, end)
	}
	if !bytes.Equal(content(t, l), b) {
		t.Fatal("reopened log has other bytes")
	}
	if err := l.Verify(0); err != nil {
		t.Fatal(err)
	}
}

func TestRejectedBeforeAnythingIsWritten(t *testing.T) {
	l := openLog(t, testConfig(t.TempDir()))
	apply(t, l, 1, "T", 0, records("T", 0, 1, 200, 1, 0), 1)
	good := records("T", 0, 2, 200, 1, 0)
	damaged := bytes.Clone(good)
	damaged[3]++
	tests := []struct {
		name  string
		topic string
		queue int32
		b     []byte
		n     int
		want  error
	}{
		{"segment size", "T", 0, records("T", 0, 1, testSegment-7, 1, 0), 1, ErrTooLarge},
		{"fewer announced", "T", 0, good, 1, ErrRecords},
		{"more announced", "T", 0, good, 3, ErrRecords},
		{"none announced", "T", 0, nil, 0, ErrRecords},
		{"cut", "T", 0, good[:399], 2, ErrRecords},
		{"bytes over", "T", 0, append(bytes.Clone(good), 0), 2, ErrRecords},
		{"size field", "T", 0, damaged, 2, ErrRecords},
		{"other topic", "U", 0, good, 2, ErrRecords},
		{"other queue", "T", 1, good, 2, ErrRecords},
		{"negative queue", "T", -1, records("T", -1, 1, 200, 1, 0), 1, ErrRecords},
		{"huge queue", "T", 1 << 30, records("T", 1<<30, 1, 200, 1, 0), 1, ErrRecords},
		{"blank", "T", 0, append(record.AppendBlank(nil, 100), make([]byte, 92)...), 1, ErrRecords},
	}
	if err := l.BeginEntry(2, 1); err != nil {
		t.Fatal(err)
	}
	before := fmt.Sprint(l.Position())
	for _, tt := range tests {
		if _, err := l.Append([]byte(tt.topic), tt.queue, tt.b, tt.n); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
		if after := fmt.Sprint(l.Position()); after != before {
			t.Errorf("%s: position %s, before %s", tt.name, after, before)
		}
	}
	if err := l.EndEntry(); err != nil {
		t.Fatal(err)
	}
	// The largest that fits an empty segment.
	if a := apply(t, l, 3, "T", 0, records("T", 0, 1, testSegment-8, 1, 0), 1); a.PhyOffset != testSegment {
		t.Errorf("largest record at %d", a.PhyOffset)
	}
}

func TestOutOfTurn(t *testing.T) {
	l := openLog(t, testConfig(t.TempDir()))
	b := records("T", 0, 1, 200, 1, 0)
	if _, err := l.Append([]byte("T"), 0, b, 1); !errors.Is(err, ErrIndex) {
		t.Errorf("append outside an entry: %v", err)
	}
	if err := l.EndEntry(); !errors.Is(err, ErrIndex) {
		t.Errorf("end without begin: %v", err)
	}
	apply(t, l, 5, "T", 0, b, 1)
	if err := l.BeginEntry(5, 1); !errors.Is(err, ErrIndex) {
		t.Errorf("entry 5 again: %v", err)
	}
	if err := l.BeginEntry(6, 0); !errors.Is(err, ErrIndex) {
		t.Errorf("term goes back: %v", err)
	}
	if err := l.BeginEntry(6, 1); err != nil {
		t.Fatal(err)
	}
	if err := l.BeginEntry(7, 1); !errors.Is(err, ErrIndex) {
		t.Errorf("entry in an entry: %v", err)
	}
	if err := errors.Join(l.EndEntry(), l.BeginEntry(7, 2)); err != nil {
		t.Error(err)
	}
}

func TestReadersSeePublishedBytesOnly(t *testing.T) {
	l := openLog(t, testConfig(t.TempDir()))
	if err := l.BeginEntry(1, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append([]byte("T"), 0, records("T", 0, 1, 200, 1, 0), 1); err != nil {
		t.Fatal(err)
	}
	l.Publish() // in the middle of an entry: publishes nothing of it
	if err := l.EndEntry(); err != nil {
		t.Fatal(err)
	}
	if l.MaxOffset() != 0 {
		t.Fatalf("readable up to %d before publish", l.MaxOffset())
	}
	if end, err := l.Flush(0); end != 0 || err != nil {
		t.Fatalf("flush: %d, %v", end, err)
	}
	l.Publish()
	if l.MaxOffset() != 200 {
		t.Fatalf("readable up to %d after publish", l.MaxOffset())
	}
	if end, err := l.Flush(0); end != 200 || err != nil || l.FlushedTo() != 200 {
		t.Fatalf("flush: %d, %v", end, err)
	}
	crc, err := l.Checksum(0, 200)
	if r, rerr := l.journal.read(0); err != nil || rerr != nil || r.crc != crc {
		t.Fatalf("checksum %#x, %v; journal %+v, %v", crc, err, r, rerr)
	}
	if _, err := l.Checksum(0, 201); !errors.Is(err, mappedfile.ErrOutOfRange) {
		t.Errorf("checksum past the end: %v", err)
	}
}

func TestReplay(t *testing.T) {
	dir := t.TempDir()
	l := openLog(t, testConfig(dir))
	type op struct {
		index uint64
		topic string
		b     []byte
		n     int
	}
	ops := []op{}
	for i := range 60 {
		n := i % 4 // entries without bytes too
		ops = append(ops, op{uint64(2*i + 1), fmt.Sprint("T", i%3), records(fmt.Sprint("T", i%3), 0, n, 150+i, int64(100-i%7), 0), n})
	}
	play := func(l *Log, ops []op) error {
		for _, o := range ops {
			if err := l.BeginEntry(o.index, 1); err != nil {
				return err
			}
			if o.n > 0 {
				if _, err := l.Append([]byte(o.topic), 0, o.b, o.n); err != nil {
					return err
				}
			}
			if err := l.EndEntry(); err != nil {
				return err
			}
			l.Publish()
		}
		return nil
	}
	positions := []Position{{}}
	for _, o := range ops[:50] {
		if err := play(l, []op{o}); err != nil {
			t.Fatal(err)
		}
		positions = append(positions, l.Position())
	}
	want50 := content(t, l)
	closeLog(t, l)

	for s := 0; s <= 50; s += 5 {
		l := openLog(t, testConfig(dir))
		if err := l.Restore(positions[s]); err != nil {
			t.Fatalf("restore %d: %v", s, err)
		}
		if err := play(l, ops[s:50]); err != nil {
			t.Fatalf("replay from %d: %v", s, err)
		}
		if got := fmt.Sprint(l.Position()); got != fmt.Sprint(positions[50]) {
			t.Fatalf("replay from %d: position %s", s, got)
		}
		if !bytes.Equal(content(t, l), want50) {
			t.Fatalf("replay from %d changed the log", s)
		}
		closeLog(t, l)
	}

	bad := []struct {
		name string
		f    func(o []op) []op
	}{
		{"one record less", func(o []op) []op { o[2].n--; o[2].b = o[2].b[:o[2].n*152]; return o }},
		{"entry missing", func(o []op) []op { return append(o[:2:2], o[3:]...) }},
		{"entry empty", func(o []op) []op { o[2].n = 0; return o }},
		{"entry with bytes where there was none", func(o []op) []op { o[4].n = 1; o[4].b = records("T1", 0, 1, 154, 9, 0); return o }},
		{"other body", func(o []op) []op { o[2].b = bytes.Clone(o[2].b); o[2].b[90] ^= 1; return o }},
	}
	for _, tt := range bad {
		t.Run(tt.name, func(t *testing.T) {
			l := openLog(t, testConfig(dir))
			err := play(l, tt.f(append([]op(nil), ops[:50]...)))
			if !errors.Is(err, ErrDiverged) {
				t.Fatalf("got %v, want ErrDiverged", err)
			}
			if err := l.BeginEntry(1000, 1); !errors.Is(err, ErrFailed) {
				t.Fatalf("afterwards: %v", err)
			}
		})
	}

	l = openLog(t, testConfig(dir))
	wrong := positions[20]
	wrong.LogEnd++
	if err := l.Restore(wrong); !errors.Is(err, ErrDiverged) {
		t.Errorf("snapshot between entries: %v", err)
	}
	wrong = positions[50]
	wrong.RaftIndex += 10
	wrong.LogEnd += 10
	if err := l.Restore(wrong); !errors.Is(err, ErrBehind) {
		t.Errorf("snapshot ahead: %v", err)
	}
	wrong.LogEnd -= 20
	if err := l.Restore(wrong); !errors.Is(err, ErrDiverged) {
		t.Errorf("later snapshot with a shorter log: %v", err)
	}
	wrong = positions[49]
	wrong.RaftTerm = 7
	if err := l.Restore(wrong); !errors.Is(err, ErrDiverged) {
		t.Errorf("other term: %v", err)
	}
	// Entries without bytes above the log's end.
	ahead := positions[50]
	ahead.RaftIndex, ahead.RaftTerm = 99+1, 1
	if err := l.Restore(ahead); err != nil {
		t.Fatal(err)
	}
	if err := l.BeginEntry(100, 1); !errors.Is(err, ErrIndex) {
		t.Errorf("entry at the snapshot's index: %v", err)
	}
	if err := play(l, ops[50:]); err != nil {
		t.Fatal(err)
	}
	if err := l.Verify(0); err != nil {
		t.Fatal(err)
	}
}

// TestDeleteBefore: retention stops at the recovery point, and journal files go with their bytes.
func TestDeleteBefore(t *testing.T) {
	cfg := testConfig(t.TempDir())
	l := openLog(t, cfg)
	for i := range uint64(300) {
		apply(t, l, i+1, "T", 0, records("T", 0, 1, 1000, 1, 0), 1)
	}
	if n, err := l.DeleteBefore(l.MaxOffset()); n != 0 || err != nil {
		t.Fatalf("without a recovery point %d segments went, %v", n, err)
	}
	if _, err := l.SetRecoveryPoint(); err != nil {
		t.Fatal(err)
	}
	journalFiles := l.journal.Files()
	n, err := l.DeleteBefore(l.MaxOffset() - testSegment)
	if err != nil || n == 0 || l.Segments() != 2 && l.Segments() != 3 {
		t.Fatalf("%d segments went, %v, %d are left", n, err, l.Segments())
	}
	if l.journal.Files() >= journalFiles {
		t.Errorf("%d of %d journal files are left", l.journal.Files(), journalFiles)
	}
	min := l.MinOffset()
	p := l.Position()
	if err := l.Verify(0); err != nil {
		t.Error(err)
	}
	closeLog(t, l)
	l = openLog(t, cfg)
	if l.MinOffset() != min || l.MaxOffset() != p.LogEnd {
		t.Fatalf("reopened: %d to %d", l.MinOffset(), l.MaxOffset())
	}
	// A snapshot below what was deleted: its entries are recomputed without comparison.
	old := Position{RaftIndex: 2, RaftTerm: 1, LogEnd: 2000, LastStoreTimestamp: 1, QueueOffsets: []QueueOffset{{"T", 0, 2}}}
	if err := l.Restore(old); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(300) {
		if i >= 2 {
			apply(t, l, i+1, "T", 0, records("T", 0, 1, 1000, 1, 0), 1)
		}
	}
	if got := l.Position(); fmt.Sprint(got) != fmt.Sprint(p) {
		t.Errorf("position %+v, want %+v", got, p)
	}
	apply(t, l, 301, "T", 0, records("T", 0, 1, 1000, 1, 0), 1)
	if err := l.Verify(0); err != nil {
		t.Error(err)
	}
}

// TestClosed: a second Close is harmless, and nothing works after the first.
func TestClosed(t *testing.T) {
	l := openLog(t, testConfig(t.TempDir()))
	apply(t, l, 1, "T", 0, records("T", 0, 1, 1000, 1, 0), 1)
	closeLog(t, l)
	closeLog(t, l)
	_, err1 := l.View(0, 1)
	_, err2 := l.SetRecoveryPoint()
	_, err3 := l.DeleteBefore(1)
	_, err4 := l.Flush(0)
	for i, err := range []error{err1, err2, err3, err4, l.BeginEntry(2, 1), l.Restore(Position{}), l.ResetTo(0), l.WriteRaw([]byte("x"))} {
		if !errors.Is(err, ErrClosed) && !errors.Is(err, mappedfile.ErrClosed) {
			t.Errorf("call %d after Close: %v", i, err)
		}
	}
}
