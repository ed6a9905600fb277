package keyindex

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	goldenSlots   = 50
	goldenEntries = 100
)

// goldenStore is what RocketMQ wrote, see testdata/README.md.
type goldenStore struct {
	Messages []struct {
		Topic, UniqKey, Keys      string
		PhyOffset, StoreTimestamp int64
		SysFlag                   int32
	}
	IndexFiles []struct {
		File                         string
		BeginTimestamp, EndTimestamp int64
		BeginPhyOffset, EndPhyOffset int64
		HashSlotCount, IndexCount    int32
		Entries                      [][5]int64
		SlotTable                    map[string]int32
		Bytes                        []byte
	}
}

func readGolden(t testing.TB, path string) (g goldenStore) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &g)
	}
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func goldenFiles(t testing.TB) []string {
	t.Helper()
	paths, err := filepath.Glob("testdata/index-*.json")
	if err != nil || len(paths) < 7 {
		t.Fatalf("%d golden stores: %v", len(paths), err)
	}
	return paths
}

// rollback is the transaction type that is not indexed.
const rollback = 0xC

// TestGoldenDecode: files of RocketMQ read as an independent reader reads them.
func TestGoldenDecode(t *testing.T) {
	for _, path := range goldenFiles(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			for _, w := range readGolden(t, path).IndexFiles {
				table, err := NewTable(w.Bytes, goldenSlots)
				if err != nil || table.Entries() != goldenEntries {
					t.Fatalf("%s: %v, %d entries", w.File, err, table.Entries())
				}
				want := Header{w.BeginTimestamp, w.EndTimestamp, w.BeginPhyOffset, w.EndPhyOffset, w.HashSlotCount, max(1, w.IndexCount)}
				if h := table.Header(); h != want {
					t.Errorf("%s: header %+v, want %+v", w.File, h, want)
				}
				for i, e := range w.Entries {
					want := Entry{int32(e[1]), e[2], int32(e[3]), int32(e[4])}
					if got := table.Entry(i); got != want {
						t.Errorf("%s: entry %d %+v, want %+v", w.File, i, got, want)
					}
				}
				for slot := range goldenSlots {
					if got, want := table.Slot(slot), w.SlotTable[strconv.Itoa(slot)]; got != want {
						t.Errorf("%s: slot %d has %d, want %d", w.File, slot, got, want)
					}
				}
				if err := table.Check(); err != nil {
					t.Errorf("%s: %v", w.File, err)
				}
			}
		})
	}
}

// goldenIndex is our index of a golden store's records.
func goldenIndex(t testing.TB, g goldenStore) *Index {
	t.Helper()
	k := newKit(t, goldenSlots, goldenEntries)
	ix := k.open(0, math.MaxInt64)
	for _, m := range g.Messages {
		if m.SysFlag&rollback == rollback {
			continue
		}
		if err := ix.Put([]byte(m.Topic), []byte(m.UniqKey), []byte(m.Keys), m.PhyOffset, m.StoreTimestamp); err != nil {
			t.Fatal(err)
		}
	}
	if err := ix.Commit(1 << 40); err != nil {
		t.Fatal(err)
	}
	if n := len(ix.list()); n > 0 {
		if err := ix.writeHeader(ix.list()[n-1]); err != nil {
			t.Fatal(err)
		}
	}
	return ix
}

// TestGoldenBuild: from the same records come the same files, byte for byte: header, slots, entries.
func TestGoldenBuild(t *testing.T) {
	for _, path := range goldenFiles(t) {
		name := filepath.Base(path)
		t.Run(name, func(t *testing.T) {
			g := readGolden(t, path)
			files := goldenIndex(t, g).list()
			switch {
			case strings.Contains(name, "ext"):
				// No record has a key. RocketMQ makes the first file all the same, and leaves it empty.
				if len(files) != 0 || len(g.IndexFiles) != 1 || g.IndexFiles[0].IndexCount != 0 {
					t.Fatalf("%d files, RocketMQ has %d", len(files), len(g.IndexFiles))
				}
				return
			case strings.Contains(name, "nocq"):
				compareRestarted(t, g, files)
				return
			}
			if len(files) != len(g.IndexFiles) {
				t.Fatalf("%d files, want %d", len(files), len(g.IndexFiles))
			}
			for i, w := range g.IndexFiles {
				if !bytes.Equal(files[i].table.b, w.Bytes) {
					t.Errorf("file %d, %s differs: header %+v, want %+v", i, w.File, files[i].header, w)
				}
			}
		})
	}
}

// compareRestarted: RocketMQ was killed, dropped its last file and fed its log again, and so
// entered the keys of the record at the end of the file before a second time. We don't: ours
// are the same entries without these.
func compareRestarted(t *testing.T, g goldenStore, files []*file) {
	t.Helper()
	type key struct {
		hash      int32
		phyOffset int64
	}
	var got, want []key
	for _, f := range files {
		for i := 1; i < int(f.header.Count); i++ {
			e := f.table.Entry(i)
			got = append(got, key{e.KeyHash, e.PhyOffset})
		}
	}
	doubled := 0
	for _, f := range g.IndexFiles {
		before := slices.Clone(want)
		for _, e := range f.Entries[1:] {
			k := key{int32(e[1]), e[2]}
			if slices.Contains(before, k) {
				doubled++
				continue
			}
			want = append(want, k)
		}
	}
	if doubled == 0 {
		t.Error("the golden file shows no double entries")
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d entries, RocketMQ has %d and %d doubled", len(got), len(want), doubled)
	}
	for i, f := range g.IndexFiles[:len(g.IndexFiles)-1] {
		if !bytes.Equal(files[i].table.b, f.Bytes) {
			t.Errorf("file %d differs", i)
		}
	}
}

// TestGoldenFind: every key of every record is found, and what is found in addition has the
// same hash.
func TestGoldenFind(t *testing.T) {
	for _, path := range goldenFiles(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			g := readGolden(t, path)
			ix := goldenIndex(t, g)
			n := 0
			for _, m := range g.Messages {
				if m.SysFlag&rollback == rollback {
					continue
				}
				for _, key := range append(strings.Fields(m.Keys), m.UniqKey) {
					if key == "" {
						continue
					}
					n++
					var got []int64
					err := ix.Find(context.Background(), m.Topic, key, m.StoreTimestamp, m.StoreTimestamp, func(phyOffset int64) bool {
						got = append(got, phyOffset)
						return true
					})
					if err != nil || !slices.Contains(got, m.PhyOffset) {
						t.Errorf("%s#%s at %d: found %v, %v", m.Topic, key, m.PhyOffset, got, err)
					}
				}
			}
			if n < 20 && !strings.Contains(path, "ext") && !strings.Contains(path, "ipv6") {
				t.Fatalf("only %d keys", n)
			}
		})
	}
}

// TestHash: values of the format notes, computed by Java.
func TestHash(t *testing.T) {
	for _, c := range []struct {
		topic, key string
		want       int32
	}{
		{"TopicTest", "k1", 2746024},
	} {
		if got := keyHash(javaHash(0, c.topic), c.key); got != c.want {
			t.Errorf("%s#%s: %d, want %d", c.topic, c.key, got, c.want)
		}
	}
	for s, want := range map[string]int32{
		"TagA": 2598919, "TagB": 2598920, "a": 97, "": 0, "order-pay": -392735319, "Aa": 2112, "BB": 2112,
		"polygenelubricants": math.MinInt32,
	} {
		if got := javaHash(0, s); got != want {
			t.Errorf("%s: %d, want %d", s, got, want)
		}
	}
	// A topic and key whose hash has no absolute value: "#" + x, from the tail on.
	topic, key := minHash(t)
	if h := javaHash(0, topic+"#"+key); h != math.MinInt32 {
		t.Fatalf("%s#%s: %d", topic, key, h)
	}
	if got := keyHash(javaHash(0, topic), key); got != 0 {
		t.Errorf("%s#%s: %d, want 0", topic, key, got)
	}
}

// minHash finds a topic and key of hash -2^31.
func minHash(t *testing.T) (topic, key string) {
	t.Helper()
	// 31 is odd, so each prefix has one 32-bit value that the last characters must make up for;
	// three of them reach 31·31·0xFFFF and more of it.
	for i := range 1 << 20 {
		topic := "T" + strconv.Itoa(i)
		rest := uint32(1<<31) - uint32(javaHash(0, topic+"#"))*31*31*31
		a := rest / (31 * 31)
		b := rest % (31 * 31) / 31
		c := rest % 31
		if a < 0xD800 && a > 0 {
			return topic, string([]rune{rune(a), rune(b), rune(c)})
		}
	}
	t.Fatal("none found")
	return "", ""
}
