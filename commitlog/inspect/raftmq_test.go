package inspect

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
)

const (
	raftSegment   = 64 << 10
	raftQueueFile = 1000
)

var testHost = netip.MustParseAddrPort("127.0.0.1:10911")

// writeStore appends entries to a new store of RaftMQ, of several queues, with tags, keys, delay and transactions.
func writeStore(t testing.TB, dir string, entries int) *store.Store {
	t.Helper()
	s, err := store.Open(store.Config{Dir: dir, SegmentSize: raftSegment, QueueFileSize: raftQueueFile, MessageIndexEnable: true, MaxHashSlotNum: 50, MaxIndexNum: 100,
		PointInterval: time.Hour, // a running store's folder is copied: its points shall not move meanwhile
		OnFatal:       func(err error) { t.Errorf("fatal: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	appendEntries(t, s, 1, entries)
	return s
}

// appendEntries applies n entries from index on and waits until the queues have them.
func appendEntries(t testing.TB, s *store.Store, index, n int) {
	t.Helper()
	for i := index; i < index+n; i++ {
		if err := s.BeginEntry(uint64(i), 1); err != nil {
			t.Fatal(err)
		}
		for k := range 1 + i%3 {
			topic, queue, records, n := entryRecords(i, k)
			if _, err := s.Append([]byte(topic), queue, records, n); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.EndEntry(); err != nil {
			t.Fatal(err)
		}
		s.Publish()
	}
	done := make(chan struct{})
	_, end := s.LogRange()
	s.WaitDispatched(end, func() { close(done) })
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("not dispatched")
	}
}

func entryRecords(i, k int) (topic string, queue int32, records []byte, n int) {
	topic, queue, n = fmt.Sprintf("T%d", i%3), int32(k), 1
	m := record.Message{Topic: []byte(topic), QueueID: queue, BornTimestamp: int64(1000 + i), BornHost: testHost, StoreTimestamp: int64(1_600_000_000_000 + i*10),
		StoreHost: testHost, Body: make([]byte, 50+i*7%900),
		Properties: fmt.Appendf(nil, "KEYS\x01k%d\x02TAGS\x01Tag%d\x02UNIQ_KEY\x01u%d-%d", i, i%4, i, k)}
	for b := range m.Body {
		m.Body[b] = byte(i + b)
	}
	switch {
	case i%50 == 7:
		m.Topic, m.QueueID = []byte(record.ScheduleTopic), 2
		m.Properties = append(m.Properties, "\x02DELAY\x013"...)
		topic, queue = record.ScheduleTopic, 2
	case i%50 == 11:
		m.SysFlag = record.SysFlagPrepared
	case i%40 == 13:
		n = 3
	case i%60 == 17:
		m.Body = make([]byte, 20_000)
	}
	for range n {
		records = record.Append(records, &m)
	}
	return topic, queue, records, n
}

// closedStore is the folder of a store that was closed.
func closedStore(t testing.TB, entries int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	if err := writeStore(t, dir, entries).Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

const testEntries = 300

func TestRaftMQClean(t *testing.T) {
	dir := closedStore(t, testEntries)
	s := open(t, dir)
	if s.Format != RaftMQ || s.SegmentSize != raftSegment || s.QueueFileSize != raftQueueFile || s.InUse.Running {
		t.Fatalf("%s, segments of %d, queue files of %d, in use %+v", s.Format, s.SegmentSize, s.QueueFileSize, s.InUse)
	}
	found, sum := verifyStore(t, s)
	expect(t, found)
	if sum.JournalRecords != testEntries || sum.Records < testEntries || sum.Units == 0 || sum.Segments < 3 {
		t.Errorf("%+v", sum)
	}
	// The records are those that were appended, in order.
	got := records(t, s)
	at := 0
	for i := 1; i <= testEntries; i++ {
		for k := range 1 + i%3 {
			_, _, b, n := entryRecords(i, k)
			for range n {
				size, err := record.Check(b, true)
				if err != nil || at == len(got) || string(got[at].Body) != string(record.View(b[:size]).Body()) {
					t.Fatalf("record %d differs", at)
				}
				b, at = b[size:], at+1
			}
		}
	}
	if at != len(got) {
		t.Errorf("%d records, want %d", len(got), at)
	}
	n := uint64(0)
	if err := s.Journal(func(r JournalRecord, damage error) error {
		if n++; damage != nil || r.RaftIndex != n || r.RaftTerm != 1 || r.End <= r.Start {
			t.Errorf("journal record %+v, %v", r, damage)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	log, queues, index := s.Points()
	if index == nil || index.PhysicalOffset != sum.LogEnd || index.Slots != 50 || sum.IndexEntries != 2*sum.Records {
		t.Errorf("index point %+v; %+v", index, sum)
	}
	if log == nil || queues == nil || log.RaftIndex != testEntries || log.LogEnd != sum.LogEnd || queues.PhysicalOffset != sum.LogEnd || queues.Units != sum.Units {
		t.Errorf("points %+v, %+v; %+v", log, queues, sum)
	}
	st, err := s.Stat(false)
	if err != nil || st.Journal == nil || st.Journal.Records != testEntries || st.Log.Records != sum.Records {
		t.Errorf("stat %+v, %v", st, err)
	}
}

// TestRaftMQNodeFolder: a node's data folder stands for the store in it.
func TestRaftMQNodeFolder(t *testing.T) {
	dir := closedStore(t, 5)
	node := filepath.Dir(dir)
	if err := os.WriteFile(filepath.Join(node, "node.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	s := open(t, node)
	if s.Dir != dir || s.Node != node || s.Format != RaftMQ {
		t.Fatalf("store %s, node %s", s.Dir, s.Node)
	}
	found, _ := verifyStore(t, s)
	expect(t, found)
	st, err := s.Stat(true)
	if err != nil || st.Log.Counted || st.Node != node {
		t.Errorf("stat %+v, %v", st, err)
	}
}

// TestRaftMQDamage: single damages of a closed store and where they are.
func TestRaftMQDamage(t *testing.T) {
	const segment1 = "commitlog/00000000000000065536"
	tests := []struct {
		name string
		do   func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place
	}{
		{"body", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			r := got[40]
			flip(t, filepath.Join(dir, r.File), r.Offset+body)
			return []place{{KindCRC, r.File, r.Offset}, journalPlace(journal, r.PhyOffset)}
		}},
		{"properties, which no body checksum covers", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			r := got[40]
			poke(t, filepath.Join(dir, r.File), r.Offset+int64(r.Size)-1, []byte{'x'})
			return []place{journalPlace(journal, r.PhyOffset)}
		}},
		{"queue offset", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			r := got[40]
			flip(t, filepath.Join(dir, r.File), r.Offset+27)
			return []place{journalPlace(journal, r.PhyOffset)}
		}},
		{"byte in a filler", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			poke(t, filepath.Join(dir, "commitlog/00000000000000000000"), raftSegment-1, []byte{1})
			return []place{{KindFillerData, "commitlog/00000000000000000000", raftSegment - 1}, journalPlace(journal, raftSegment-1)}
		}},
		{"journal record", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			flip(t, filepath.Join(dir, journal[9].File), journal[9].Offset+30)
			return []place{{KindJournalRecord, journal[9].File, journal[9].Offset}}
		}},
		{"journal records zeroed", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			poke(t, filepath.Join(dir, journal[9].File), journal[9].Offset, make([]byte, 2*64))
			return []place{{KindJournalRecord, journal[9].File, journal[9].Offset}}
		}},
		{"journal record twice", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			path := filepath.Join(dir, journal[9].File)
			poke(t, path, journal[10].Offset, peek(t, path, journal[9].Offset, 64))
			return []place{{KindJournalOrder, journal[10].File, journal[10].Offset}, {KindJournalOrder, journal[11].File, journal[11].Offset}}
		}},
		{"end of the journal", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			last := journal[len(journal)-1]
			poke(t, filepath.Join(dir, last.File), last.Offset, make([]byte, 64))
			return []place{{KindJournalEnd, last.File, last.Offset}}
		}},
		{"journal lost", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			if err := os.RemoveAll(filepath.Join(dir, "journal/records")); err != nil {
				t.Fatal(err)
			}
			return []place{{KindJournalEnd, "journal/records", 0}}
		}},
		{"journal of odd size", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			if err := os.Truncate(filepath.Join(dir, journal[0].File), 64*200+10); err != nil {
				t.Fatal(err)
			}
			return []place{{KindFileSize, journal[0].File, 64*200 + 10}, {KindJournalRecord, journal[0].File, 64 * 200}, {KindJournalEnd, journal[0].File, 64*200 + 10}}
		}},
		{"recovery point", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			flip(t, filepath.Join(dir, "journal/recovery-point"), 30)
			return []place{{KindRecoveryPoint, "journal/recovery-point", 0}}
		}},
		{"recovery point lost", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			if err := os.Remove(filepath.Join(dir, "journal/recovery-point")); err != nil {
				t.Fatal(err)
			}
			return []place{{KindRecoveryPoint, "journal/recovery-point", 0}}
		}},
		{"recovery point ahead of the log", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			path := filepath.Join(dir, "journal/recovery-point")
			b := peek(t, path, 0, 64)
			binary.BigEndian.PutUint64(b[24:], uint64(journal[len(journal)-1].End+1))
			binary.BigEndian.PutUint32(b[60:], crc32.Checksum(b[:60], crc32.MakeTable(crc32.Castagnoli)))
			poke(t, path, 0, b)
			return []place{{KindRecoveryPoint, "journal/recovery-point", 24}}
		}},
		{"both slots of the queue point", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			if err := os.WriteFile(filepath.Join(dir, "queuepoint"), []byte("no point"), 0o644); err != nil {
				t.Fatal(err)
			}
			return []place{{KindQueuePoint, "queuepoint", 0}}
		}},
		{"store.json", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			if err := os.WriteFile(filepath.Join(dir, "store.json"), []byte(`{"formatVersion":`), 0o644); err != nil {
				t.Fatal(err)
			}
			return []place{{KindMeta, "store.json", 0}}
		}},
		{"interrupted installation", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			if err := os.WriteFile(filepath.Join(dir, "installing"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			return []place{{KindInstalling, "installing", 0}}
		}},
		{"segment lost", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			if err := os.Remove(filepath.Join(dir, segment1)); err != nil {
				t.Fatal(err)
			}
			return []place{{KindSegmentGap, "commitlog/00000000000000131072", 0}, journalPlace(journal, raftSegment)}
		}},
		{"segment zeroed", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			poke(t, filepath.Join(dir, segment1), 0, make([]byte, raftSegment))
			return []place{{KindHole, segment1, 0}, journalPlace(journal, raftSegment)}
		}},
		{"unit", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			poke(t, filepath.Join(dir, "consumequeue/T1/0/00000000000000000000"), 5*20, unitBytes(12345, 100, 7))
			return []place{{KindUnitNowhere, "consumequeue/T1/0/00000000000000000000", 100}}
		}},
		{"deliver time", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			flip(t, filepath.Join(dir, "consumequeue/SCHEDULE_TOPIC_XXXX/2/00000000000000000000"), 19)
			return []place{{KindUnitTags, "consumequeue/SCHEDULE_TOPIC_XXXX/2/00000000000000000000", 0}}
		}},
		{"queue lost", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			if err := os.RemoveAll(filepath.Join(dir, "consumequeue/SCHEDULE_TOPIC_XXXX")); err != nil {
				t.Fatal(err)
			}
			return []place{{KindUnitMissing, "consumequeue/SCHEDULE_TOPIC_XXXX/2/00000000000000000000", 0}}
		}},
		{"index entry", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			file := firstIndexFile(t, dir)
			flip(t, filepath.Join(dir, file), 40+4*50+20*5+11)
			return []place{{KindIndexNowhere, file, 40 + 4*50 + 20*5}, {KindIndexMissing, file, 40 + 4*50 + 20*6}}
		}},
		{"index file lost", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			files, err := open(t, dir).IndexFiles()
			if err != nil || len(files) < 3 {
				t.Fatalf("%d files, %v", len(files), err)
			}
			if err := os.Remove(filepath.Join(dir, files[0].Path)); err != nil {
				t.Fatal(err)
			}
			return []place{{KindIndexMissing, files[1].Path, files[1].entryAt(1)}}
		}},
		{"index lost", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			if err := os.RemoveAll(filepath.Join(dir, "index")); err != nil {
				t.Fatal(err)
			}
			return []place{{KindIndexMissing, "index", 0}}
		}},
		{"both files of the index point", func(t *testing.T, dir string, got []Record, journal []JournalRecord) []place {
			for _, name := range []string{"indexpoint.0", "indexpoint.1"} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte("no point"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			return []place{{KindIndexPoint, "indexpoint.0", 0}}
		}},
	}
	pristine := closedStore(t, testEntries)
	s := open(t, pristine)
	got := records(t, s)
	journal := journalOf(t, s)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "store")
			copyDir(t, pristine, dir)
			want := tt.do(t, dir, got, journal)
			found, _ := verify(t, dir)
			expectMerged(t, found, want)
		})
	}
}

func firstIndexFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := open(t, dir).IndexFiles()
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	return files[0].Path
}

// TestRaftMQIndexBehind: what the index point does not vouch for yet is told and not judged.
func TestRaftMQIndexBehind(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := writeStore(t, dir, 50)
	// The index follows the log on its own; a flush takes in how far it has come.
	for deadline := time.Now().Add(10 * time.Second); ; {
		if err := s.FlushAll(); err != nil {
			t.Fatal(err)
		}
		if _, _, point := open(t, dir).Points(); point != nil && point.PhysicalOffset > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the index is never flushed")
		}
	}
	appendEntries(t, s, 51, 50)
	crashed := filepath.Join(t.TempDir(), "store")
	copyDir(t, dir, crashed)
	found, sum := verify(t, crashed)
	expect(t, found)
	_, _, point := open(t, crashed).Points()
	if point == nil || point.PhysicalOffset >= sum.LogEnd || sum.ByKind[KindIndexPoint] != 1 {
		t.Errorf("point %+v, %+v", point, sum)
	}
}

// expectMerged is expect for damage that may touch several entries one behind the other: of these only the first counts.
func expectMerged(t *testing.T, found []Finding, want []place) {
	t.Helper()
	var first []Finding
	seen := map[Kind]bool{}
	for _, f := range found {
		if f.Kind == KindJournalBytes && seen[f.Kind] {
			continue
		}
		seen[f.Kind] = true
		first = append(first, f)
	}
	expect(t, first, want...)
}

// journalPlace is where damage at phy shows in the journal's view: at the start of its entry.
func journalPlace(journal []JournalRecord, phy int64) place {
	for _, r := range journal {
		if phy < r.End {
			return place{KindJournalBytes, fmt.Sprintf("commitlog/%020d", r.Start/raftSegment*raftSegment), r.Start % raftSegment}
		}
	}
	return place{}
}

func journalOf(t testing.TB, s *Store) (list []JournalRecord) {
	t.Helper()
	if err := s.Journal(func(r JournalRecord, damage error) error {
		list = append(list, r)
		return damage
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

func copyDir(t testing.TB, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil // renamed meanwhile
		}
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestRaftMQTornTail: what a killed node leaves behind its last whole entry is told, and is no damage.
func TestRaftMQTornTail(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := writeStore(t, dir, 50)
	// An entry whose bytes reached the disk, and whose journal record did not.
	if err := s.BeginEntry(51, 1); err != nil {
		t.Fatal(err)
	}
	topic, queue, b, n := entryRecords(51, 0)
	at, err := s.Append([]byte(topic), queue, b, n)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.EndEntry(); err != nil {
		t.Fatal(err)
	}
	crashed := filepath.Join(t.TempDir(), "store")
	copyDir(t, dir, crashed)
	journal := filepath.Join(crashed, "journal", "records", fmt.Sprintf("%020d", 0))
	text, err := os.ReadFile(journal)
	if err != nil {
		t.Fatal(err)
	}
	end := len(bytes.TrimRight(text, "\x00"))
	clear(text[(end-1)/64*64 : end])
	if err := os.WriteFile(journal, text, 0o644); err != nil {
		t.Fatal(err)
	}
	found, sum := verify(t, crashed)
	if sum.Damaged != 0 || sum.LogEnd != at.PhyOffset {
		t.Errorf("%+v, log ends at %d\n%v", sum, at.PhyOffset, found)
	}
	torn := 0
	for _, f := range found {
		if f.Kind == KindTornTail && f.PhyOffset == at.PhyOffset && f.Length == int64(len(b)) {
			torn++
		}
	}
	if torn != 1 {
		t.Errorf("torn tail not told: %v", found)
	}
	// Damage in an entry that has its journal record is damage, though a recovery point does not speak of it yet.
	got := records(t, open(t, crashed))
	r := got[len(got)-2]
	flip(t, filepath.Join(crashed, r.File), r.Offset+body)
	if _, sum := verify(t, crashed); sum.Damaged == 0 {
		t.Error("damage of the last entry not found")
	}
}

// TestRaftMQRunning: beside a running store nothing is taken for damage, and nothing is locked or changed.
func TestRaftMQRunning(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := writeStore(t, dir, 100)
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		written := make(chan struct{})
		go func() {
			defer close(written)
			appendEntries(t, s, 101+20*i, 20)
		}()
		in := open(t, dir)
		if in.InUse.Unknown {
			<-written
			t.Skip("the kernel's list of locks can't be read")
		}
		if !in.InUse.Running || in.InUse.PID != os.Getpid() && in.InUse.PID != 0 {
			t.Errorf("in use %+v, want process %d", in.InUse, os.Getpid())
		}
		found, sum := verifyStore(t, in)
		expect(t, found)
		if sum.Complete || sum.JudgedTo == 0 {
			t.Errorf("%+v", sum)
		}
		if _, err := in.Stat(false); err != nil {
			t.Error(err)
		}
		<-written
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	found, _ := verify(t, dir)
	expect(t, found)
}

// TestRaftMQTrimmed: what retention has removed is not missed.
func TestRaftMQTrimmed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	s := writeStore(t, dir, testEntries)
	if err := s.Trim(3 * raftSegment); err != nil {
		t.Fatal(err)
	}
	appendEntries(t, s, testEntries+1, 10)
	for deadline := time.Now().Add(10 * time.Second); ; {
		if err := s.FlushAll(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "commitlog/00000000000000000000")); errors.Is(err, fs.ErrNotExist) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the first segment is not removed")
		}
		time.Sleep(10 * time.Millisecond)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	found, sum := verify(t, dir)
	expect(t, found)
	if sum.LogMin != 3*raftSegment || sum.Expired == 0 || sum.Records == 0 {
		t.Errorf("%+v", sum)
	}
}
