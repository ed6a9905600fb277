package inspect

import (
	"path/filepath"
	"runtime"
	"testing"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
)

// manyRecords is a closed store of n small records with a key each.
func manyRecords(t testing.TB, n int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	s, err := store.Open(store.Config{Dir: dir, SegmentSize: 1 << 20, QueueFileSize: 20_000, MessageIndexEnable: true, MaxHashSlotNum: 500, MaxIndexNum: 1000,
		OnFatal: func(err error) { t.Errorf("fatal: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	const entry = 100
	m := record.Message{Topic: []byte("T"), BornHost: testHost, StoreHost: testHost, Body: make([]byte, 100), Properties: []byte("KEYS\x01k\x02TAGS\x01a")}
	for i := range n / entry {
		m.StoreTimestamp = 1_600_000_000_000 + int64(i)
		var b []byte
		for range entry {
			b = record.Append(b, &m)
		}
		if err := s.BeginEntry(uint64(i+1), 1); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Append(m.Topic, 0, b, entry); err != nil {
			t.Fatal(err)
		}
		if err := s.EndEntry(); err != nil {
			t.Fatal(err)
		}
		s.Publish()
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestConstantMemory: what is allocated in all grows with the number of files, not with that of records.
func TestConstantMemory(t *testing.T) {
	allocated := func(n int) int64 {
		s := open(t, manyRecords(t, n))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		found, sum := verifyStore(t, s)
		if _, err := s.Stat(false); err != nil {
			t.Fatal(err)
		}
		if err := s.Records(RecordFilter{}, func(*Record) error { return nil }, nil); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if len(found) > 0 || sum.Records != int64(n) || sum.IndexEntries != int64(n) {
			t.Fatalf("%+v, %v", sum, found)
		}
		return int64(after.TotalAlloc - before.TotalAlloc)
	}
	few, many := allocated(2_000), allocated(20_000)
	if perRecord := (many - few) / 18_000; perRecord > 20 {
		t.Errorf("%d bytes a record: %d for 2000, %d for 20000", perRecord, few, many)
	}
	t.Logf("%d bytes for 2000 records, %d for 20000", few, many)
}

func BenchmarkVerify(b *testing.B) {
	const n = 50_000
	s := open(b, manyRecords(b, n))
	b.SetBytes(s.Segments[len(s.Segments)-1].From)
	b.ReportAllocs()
	for b.Loop() {
		if _, sum := verifyStore(b, s); sum.Damaged > 0 {
			b.Fatalf("%+v", sum)
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
