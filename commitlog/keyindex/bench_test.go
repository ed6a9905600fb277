package keyindex

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"testing"
)

// benchKeys are record keys as clients make them.
func benchKeys(n int) [][]byte {
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "7F00000100002EEB%016X", uint64(i)*0x9E3779B97F4A7C15)
	}
	return keys
}

func benchConfig(b *testing.B, slots, entries int) Config {
	dir := b.TempDir()
	return Config{Dir: dir + "/index", Point: dir + "/indexpoint", Slots: slots, Entries: entries}
}

// fill puts n records of one key each and commits.
func fill(b *testing.B, ix *Index, keys [][]byte, n int) {
	b.Helper()
	topic := []byte("TopicTest")
	from := ix.From()
	for i := range n {
		if err := ix.Put(topic, keys[i%len(keys)], nil, from+int64(i)*1000, 1_700_000_000_000+int64(i)); err != nil {
			b.Fatal(err)
		}
	}
	if err := ix.Commit(from + int64(n)*1000); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkPut is one record with one key, into files of RocketMQ's size, rolls included.
func BenchmarkPut(b *testing.B) {
	for _, slots := range []int{DefaultSlots, 50_000} {
		b.Run("slots="+strconv.Itoa(slots), func(b *testing.B) {
			ix, err := Open(benchConfig(b, slots, 4*slots), 0, 0)
			if err != nil {
				b.Fatal(err)
			}
			defer ix.Close()
			keys := benchKeys(1 << 20)
			topic := []byte("TopicTest")
			b.ReportAllocs()
			at := int64(0)
			for b.Loop() {
				at++
				if err := ix.Put(topic, keys[at&(1<<20-1)], nil, at*1000, at); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFind is one key among so many entries, all of them in memory.
func BenchmarkFind(b *testing.B) {
	for _, n := range []int{100_000, 5_000_000} {
		b.Run("entries="+strconv.Itoa(n), func(b *testing.B) {
			ix, err := Open(benchConfig(b, DefaultSlots, DefaultEntries), 0, 0)
			if err != nil {
				b.Fatal(err)
			}
			defer ix.Close()
			keys := benchKeys(n)
			fill(b, ix, keys, n)
			ctx := context.Background()
			b.ReportAllocs()
			i, found := 0, 0
			yield := func(int64) bool { found++; return true }
			for b.Loop() {
				i = (i + 7919) % n
				if err := ix.Find(ctx, "TopicTest", string(keys[i]), 0, math.MaxInt64, yield); err != nil {
					b.Fatal(err)
				}
			}
			if found < b.N {
				b.Fatalf("found %d of %d", found, b.N)
			}
		})
	}
}

// BenchmarkOpen is the start with a last file of so many entries, in the page cache.
func BenchmarkOpen(b *testing.B) {
	for _, n := range []int{1_000_000, 10_000_000} {
		b.Run("entries="+strconv.Itoa(n), func(b *testing.B) {
			c := benchConfig(b, DefaultSlots, DefaultEntries)
			ix, err := Open(c, 0, 0)
			if err != nil {
				b.Fatal(err)
			}
			fill(b, ix, benchKeys(1<<20), n)
			end := ix.Mark().PhyOffset()
			if err := ix.Flush(ix.Mark()); err != nil {
				b.Fatal(err)
			}
			ix.Close()
			for b.Loop() {
				ix, err := Open(c, 0, end)
				if err != nil || ix.From() != end {
					b.Fatal(err, ix.From())
				}
				ix.Close()
			}
		})
	}
}

// BenchmarkFlush is a flush of 100,000 new entries.
func BenchmarkFlush(b *testing.B) {
	ix, err := Open(benchConfig(b, DefaultSlots, DefaultEntries), 0, 0)
	if err != nil {
		b.Fatal(err)
	}
	defer ix.Close()
	keys := benchKeys(100_000)
	for b.Loop() {
		b.StopTimer()
		fill(b, ix, keys, len(keys))
		b.StartTimer()
		if err := ix.Flush(ix.Mark()); err != nil {
			b.Fatal(err)
		}
	}
}
