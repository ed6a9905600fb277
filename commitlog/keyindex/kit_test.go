package keyindex

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"raftmq/commitlog/faultfile"
)

// kit is a file system in memory with an index in it, and a clock.
type kit struct {
	t   testing.TB
	fs  *faultfile.FS
	c   Config
	log *bytes.Buffer // what the index says
	now time.Time
}

func newKit(t testing.TB, slots, entries int) *kit {
	k := &kit{t: t, fs: faultfile.New(), log: &bytes.Buffer{}, now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.Local)}
	k.c = Config{
		Dir: "store/index", Point: "store/indexpoint", Slots: slots, Entries: entries, AllocateStep: 200, FS: k.fs,
		Now:    func() time.Time { k.now = k.now.Add(time.Millisecond); return k.now },
		Logger: hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: k.log, DisableTime: true}),
	}
	if err := k.fs.MkdirAll("store"); err != nil {
		t.Fatal(err)
	}
	return k
}

// use goes on with another state of the disk.
func (k *kit) use(fs *faultfile.FS) {
	k.fs = fs
	k.c.FS = fs
}

// open opens the index of a log, and closes it when the test ends.
func (k *kit) open(low, end int64) *Index {
	k.t.Helper()
	k.log.Reset()
	ix, err := Open(k.c, low, end)
	if err != nil {
		k.t.Fatal(err)
	}
	k.t.Cleanup(func() { ix.Close() })
	return ix
}

// rec is a record of a test log.
type rec struct {
	topic, uniq, keys string
	phyOffset, stored int64
}

// has tells whether the record has the key.
func (r rec) has(topic, key string) bool {
	return r.topic == topic && (r.uniq == key || slices.Contains(strings.Fields(r.keys), key))
}

// testLog is n records with keys, equal ones among them, 100 bytes apart from start on.
func testLog(start int64, n int) []rec {
	log := make([]rec, n)
	for i := range log {
		log[i] = rec{
			topic: fmt.Sprintf("T%d", i%3), uniq: fmt.Sprintf("U%d", start+int64(i)*100), phyOffset: start + int64(i)*100,
			stored: 1_700_000_000_000 + (start/100+int64(i))*400,
		}
		switch i % 5 {
		case 0:
			log[i].keys = fmt.Sprintf("k%d  Aa BB", i%7)
		case 1:
			log[i].uniq = ""
		case 2:
			log[i].keys = " same same"
		case 3:
			log[i].uniq, log[i].keys = "", "k3"
		}
	}
	return log
}

// feed puts what the index asks for and commits each batch of 7 records, as dispatch does.
func feed(ix *Index, log []rec) error {
	from := ix.From()
	for i, r := range log {
		if r.phyOffset < from {
			continue
		}
		if err := ix.Put([]byte(r.topic), []byte(r.uniq), []byte(r.keys), r.phyOffset, r.stored); err != nil {
			return err
		}
		if i%7 == 6 || i == len(log)-1 {
			if err := ix.Commit(r.phyOffset + 100); err != nil {
				return err
			}
		}
	}
	return nil
}

func mustFeed(t testing.TB, ix *Index, log []rec) {
	t.Helper()
	if err := feed(ix, log); err != nil {
		t.Fatal(err)
	}
}

func flush(t testing.TB, ix *Index) {
	t.Helper()
	if err := ix.Flush(ix.Mark()); err != nil {
		t.Fatal(err)
	}
}

// bytesOf is the files' bytes, up to the last entry, and their headers.
func bytesOf(ix *Index) (files []string) {
	for _, f := range ix.list() {
		b := slices.Clone(f.table.b)
		putHeader(b, f.header)
		files = append(files, string(b))
	}
	return files
}

// reference is the files of an index that never fell.
func reference(t testing.TB, c *kit, log []rec) []string {
	t.Helper()
	k := newKit(t, c.c.Slots, c.c.Entries)
	ix := k.open(0, 0)
	mustFeed(t, ix, log)
	return bytesOf(ix)
}

// checkSame compares the files with those of an index that never fell.
func checkSame(t testing.TB, ix *Index, want []string) {
	t.Helper()
	got := bytesOf(ix)
	if len(got) != len(want) {
		t.Fatalf("%d files, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] {
			t.Fatalf("file %d differs: %+v, want %+v", i, decodeHeader([]byte(got[i])), decodeHeader([]byte(want[i])))
		}
	}
	for _, f := range ix.list() {
		if err := (Table{[]byte(got[slices.Index(ix.list(), f)]), f.table.slots}).Check(); err != nil {
			t.Fatal(err)
		}
	}
}

// find returns what Find yields, all of it.
func find(t testing.TB, ix *Index, topic, key string, begin, end int64) (offsets []int64) {
	t.Helper()
	err := ix.Find(context.Background(), topic, key, begin, end, func(phyOffset int64) bool {
		offsets = append(offsets, phyOffset)
		return true
	})
	if err != nil {
		t.Fatal(err)
	}
	return offsets
}

// checkFinds looks every key of the log up. Those of others may be there too.
func checkFinds(t testing.TB, ix *Index, log []rec, others ...rec) {
	t.Helper()
	byOffset := map[int64]rec{}
	want := map[[2]string][]int64{}
	for _, r := range log {
		byOffset[r.phyOffset] = r
		keys := append(strings.Fields(r.keys), r.uniq)
		slices.Sort(keys)
		for _, key := range slices.Compact(keys) {
			if key != "" {
				want[[2]string{r.topic, key}] = append(want[[2]string{r.topic, key}], r.phyOffset)
			}
		}
	}
	for k, offsets := range want {
		got := slices.DeleteFunc(find(t, ix, k[0], k[1], math.MinInt64, math.MaxInt64), func(phyOffset int64) bool {
			r, ok := byOffset[phyOffset]
			if !ok && !slices.ContainsFunc(others, func(r rec) bool { return r.phyOffset == phyOffset }) {
				t.Fatalf("%s#%s: no record at %d", k[0], k[1], phyOffset)
			}
			return !r.has(k[0], k[1]) // an equal hash
		})
		slices.Reverse(offsets)
		if !slices.Equal(got, offsets) {
			t.Fatalf("%s#%s: %v, want %v", k[0], k[1], got, offsets)
		}
	}
}
