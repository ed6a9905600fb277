package inspect

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"raftmq/commitlog/consumequeue"
)

// Settings of the golden stores.
const (
	goldenSegment   = 65536
	goldenQueueFile = 1000
	goldenSlots     = 50
)

// goldenNames are the stores whose log is RocketMQ's.
var goldenNames = []string{"4.9.4-clean", "4.9.4-killed", "4.9.4-ext", "4.9.4-ipv6", "5.3.3-clean", "5.3.3-killed", "5.3.3-nocq"}

// unpack makes a folder of a golden store.
func unpack(t testing.TB, name string) string {
	t.Helper()
	f, err := os.Open("testdata/store-" + name + ".tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return dir
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// manifest is what the independent reader found.
type manifest struct {
	Abort      bool
	Checkpoint struct {
		Size, PhysicMsgTimestamp, LogicsMsgTimestamp, IndexMsgTimestamp, At24, At32 int64
		RestIsZero                                                                  bool
	}
	Segments []struct {
		File          string
		Size, Records int64
		End           int64
	}
	Messages []struct {
		Topic                         string
		QueueID                       int32
		QueueOffset, CommitLogOffset  int64
		Size                          int
		Magic, MsgID                  string
		UniqKey, Tags, Keys           *string
		TagsHash                      int64
		Flag, SysFlag                 int32
		BornTimestamp, StoreTimestamp int64
		BornHost, StoreHost           string
		ReconsumeTimes                int32
		PreparedTransactionOffset     int64
		BodyCRC                       uint32
		BodyLength                    int
		Properties                    map[string]string
		PropertiesRaw                 string
		BodySha256                    string
	}
	ConsumeQueues map[string]struct {
		Files []struct {
			File    string
			Size    int64
			Entries int64
		}
		Entries [][4]int64
	}
	ConsumeQueueExt map[string]struct{ Units [][5]any }
	IndexFiles      []struct {
		File                                                       string
		Size, Slots, MaxEntries                                    int64
		BeginTimestamp, EndTimestamp, BeginPhyOffset, EndPhyOffset int64
		HashSlotCount, IndexCount                                  int32
		Entries                                                    [][5]int64
		SlotTable                                                  map[string]int32
	}
	Config   map[string]string
	Problems []string
}

func readManifest(t testing.TB, name string) *manifest {
	t.Helper()
	f, err := os.Open("testdata/store-" + name + ".json.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var m manifest
	d := json.NewDecoder(z)
	d.UseNumber() // extension addresses don't fit a float
	if err := d.Decode(&m); err != nil {
		t.Fatal(err)
	}
	return &m
}

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// verify returns all findings.
func verify(t testing.TB, dir string) ([]Finding, Summary) {
	t.Helper()
	return verifyStore(t, open(t, dir))
}

func verifyStore(t testing.TB, s *Store) ([]Finding, Summary) {
	t.Helper()
	var found []Finding
	sum, err := s.Verify(func(f Finding) { found = append(found, f) })
	if err != nil {
		t.Fatal(err)
	}
	return found, sum
}

// units collects the units of one queue.
func units(t testing.TB, s *Store, topic string, id int32) []Unit {
	t.Helper()
	var list []Unit
	if err := s.Units(QueueFilter{Topic: topic, QueueID: &id}, func(_ *Queue, u Unit) error {
		list = append(list, u)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return list
}

// records collects all records; bodies are copied.
func records(t testing.TB, s *Store) []Record {
	t.Helper()
	var list []Record
	if err := s.Records(RecordFilter{}, func(r *Record) error {
		c := *r
		c.Topic, c.Body, c.Properties = append([]byte(nil), r.Topic...), append([]byte(nil), r.Body...), append([]byte(nil), r.Properties...)
		list = append(list, c)
		return nil
	}, nil); err != nil {
		t.Fatal(err)
	}
	return list
}

// poke writes bytes into a file.
func poke(t testing.TB, path string, at int64, b []byte) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
}

// peek reads n bytes of a file.
func peek(t testing.TB, path string, at int64, n int) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, n)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	return b
}

// flip changes every bit of one byte.
func flip(t testing.TB, path string, at int64) {
	t.Helper()
	poke(t, path, at, []byte{peek(t, path, at, 1)[0] ^ 0xFF})
}

func unitBytes(phy int64, size int32, tags int64) []byte {
	return consumequeue.AppendUnit(nil, consumequeue.Unit{PhyOffset: phy, Size: size, TagsCode: tags})
}
