package commitlog

import (
	"fmt"
	"testing"
)

// BenchmarkAppend is the apply path without Raft: one entry of batch records, published. Real
// files; the log is emptied now and then so that the disk does not fill.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{256, 1024, 4096} {
		for _, batch := range []int{1, 16, 256} {
			b.Run(fmt.Sprintf("size=%d/batch=%d", size, batch), func(b *testing.B) {
				cfg := testConfig(b.TempDir())
				cfg.SegmentSize, cfg.AllocateStep, cfg.JournalFileSize = 128<<20, 64<<20, 4<<20
				l := openLog(b, cfg)
				recs := records("TopicBench", 3, batch, size, 1, 0)
				topic := []byte("TopicBench")
				b.SetBytes(int64(len(recs)))
				b.ReportAllocs()
				index := uint64(0)
				for b.Loop() {
					index++
					if err := l.BeginEntry(index, 1); err != nil {
						b.Fatal(err)
					}
					if _, err := l.Append(topic, 3, recs, batch); err != nil {
						b.Fatal(err)
					}
					if err := l.EndEntry(); err != nil {
						b.Fatal(err)
					}
					l.Publish()
					if l.MaxOffset() > 512<<20 {
						b.StopTimer()
						if err := l.ResetTo(0); err != nil {
							b.Fatal(err)
						}
						index = 0
						b.StartTimer()
					}
				}
				b.ReportMetric(float64(b.N)*float64(batch)/b.Elapsed().Seconds(), "records/s")
			})
		}
	}
}

// BenchmarkReplay is an entry that is recomputed and compared instead of written.
func BenchmarkReplay(b *testing.B) {
	const entries, batch, size = 1000, 64, 1024
	cfg := testConfig(b.TempDir())
	cfg.SegmentSize, cfg.AllocateStep, cfg.JournalFileSize = 128<<20, 64<<20, 4<<20
	l := openLog(b, cfg)
	recs := records("T", 0, batch, size, 1, 0)
	topic := []byte("T")
	run := func() {
		for i := range uint64(entries) {
			if err := l.BeginEntry(i+1, 1); err != nil {
				b.Fatal(err)
			}
			if _, err := l.Append(topic, 0, recs, batch); err != nil {
				b.Fatal(err)
			}
			if err := l.EndEntry(); err != nil {
				b.Fatal(err)
			}
		}
		l.Publish()
	}
	run()
	b.SetBytes(entries * batch * size)
	for b.Loop() {
		if err := l.Restore(Position{}); err != nil {
			b.Fatal(err)
		}
		run()
	}
}

func BenchmarkJournalRecord(b *testing.B) {
	var buf [journalRecordSize]byte
	r := journalRecord{index: 1, term: 1, start: 0, end: 100, crc: 7}
	b.ReportAllocs()
	for b.Loop() {
		putJournalRecord(buf[:], &r)
		if _, err := decodeJournalRecord(buf[:]); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkFlush is a flush of what 64 messages of 1 KiB left.
func BenchmarkFlush(b *testing.B) {
	cfg := testConfig(b.TempDir())
	cfg.SegmentSize, cfg.AllocateStep, cfg.JournalFileSize = 128<<20, 64<<20, 4<<20
	l := openLog(b, cfg)
	recs := records("T", 0, 64, 1024, 1, 0)
	b.SetBytes(int64(len(recs)))
	index := uint64(0)
	for b.Loop() {
		index++
		apply(b, l, index, "T", 0, recs, 64)
		if _, err := l.Flush(0); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkVerify is what recovery does above the recovery point.
func BenchmarkVerify(b *testing.B) {
	cfg := testConfig(b.TempDir())
	cfg.SegmentSize, cfg.AllocateStep, cfg.JournalFileSize = 128<<20, 64<<20, 4<<20
	l := openLog(b, cfg)
	recs := records("T", 0, 256, 1024, 1, 0)
	for i := range uint64(400) {
		apply(b, l, i+1, "T", 0, recs, 256)
	}
	b.SetBytes(l.MaxOffset())
	for b.Loop() {
		if err := l.Verify(0); err != nil {
			b.Fatal(err)
		}
	}
}
