package store

import (
	"fmt"
	"testing"
	"time"
)

// benchStore has sizes like a server's.
func benchStore(b *testing.B, dir string) *Store {
	b.Helper()
	s, err := Open(Config{Dir: dir, SegmentSize: 256 << 20, PointInterval: time.Hour, PointBytes: 1 << 60, FlushInterval: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// benchRecords is one record a queue, as a batch on the leader holds them.
func benchRecords(queues, size int) (topic []byte, records [][]byte) {
	for q := range queues {
		c := command{topic: "TopicTest", queueID: int32(q), tag: "TagA", stored: 1_600_000_000_000, bodies: [][]byte{body(size)}}
		records = append(records, c.records())
	}
	return []byte("TopicTest"), records
}

// load appends n messages in entries of 256, and publishes each entry.
func load(b *testing.B, s *Store, index *uint64, n int, topic []byte, records [][]byte) {
	for done := 0; done < n; {
		*index++
		if err := s.BeginEntry(*index, 1); err != nil {
			b.Fatal(err)
		}
		for range min(256, n-done) {
			q := done % len(records)
			if _, err := s.Append(topic, int32(q), records[q], 1); err != nil {
				b.Fatal(err)
			}
			done++
		}
		if err := s.EndEntry(); err != nil {
			b.Fatal(err)
		}
		s.Publish()
	}
}

// BenchmarkAppend is the FSM's side, with dispatch running beside it as it does.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 1024} {
		for _, batch := range []int{1, 256} {
			b.Run(fmt.Sprintf("size=%d/batch=%d/queues=8", size, batch), func(b *testing.B) {
				s := benchStore(b, b.TempDir())
				defer s.Close()
				topic, records := benchRecords(8, size)
				index, n := uint64(0), 0
				b.ReportAllocs()
				b.SetBytes(int64(size * batch))
				for b.Loop() {
					load(b, s, &index, batch, topic, records)
					n += batch
				}
				b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "msg/s")
			})
		}
	}
}

// BenchmarkDispatch builds the queues of a log that is there already, as Open does.
func BenchmarkDispatch(b *testing.B) {
	for _, queues := range []int{8, 1000} {
		b.Run(fmt.Sprintf("size=1024/queues=%d", queues), func(b *testing.B) {
			s := benchStore(b, b.TempDir())
			defer s.Close()
			topic, records := benchRecords(queues, 1024)
			const messages = 200_000
			index := uint64(0)
			load(b, s, &index, messages, topic, records)
			waitDispatched(b, s)
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if err := s.dispatcher.Load().Close(); err != nil {
					b.Fatal(err)
				}
				s.startDispatch(0)
				waitDispatched(b, s)
				n += messages
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

func BenchmarkGet(b *testing.B) {
	s := benchStore(b, b.TempDir())
	defer s.Close()
	topic, records := benchRecords(8, 1024)
	const messages = 200_000
	index := uint64(0)
	load(b, s, &index, messages, topic, records)
	waitDispatched(b, s)
	for _, count := range []int{1, 32} {
		b.Run(fmt.Sprintf("size=1024/count=%d", count), func(b *testing.B) {
			var res GetResult
			req := GetRequest{Topic: topic, MaxMsgs: count}
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				s.Get(&req, &res)
				if res.Status != Found {
					b.Fatal(res.Status)
				}
				n += res.Count
				req.Offset = res.NextBeginOffset % (messages/8 - 64)
				req.QueueID = (req.QueueID + 1) % 8
				res.Release()
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

// BenchmarkMaxOffset is what every pull and acknowledgement may ask for.
func BenchmarkMaxOffset(b *testing.B) {
	s := benchStore(b, b.TempDir())
	defer s.Close()
	topic, records := benchRecords(8, 1024)
	index := uint64(0)
	load(b, s, &index, 1000, topic, records)
	waitDispatched(b, s)
	b.ReportAllocs()
	for b.Loop() {
		if s.MaxOffset("TopicTest", 3) != 125 {
			b.Fatal("wrong offset")
		}
	}
}

// BenchmarkOpen is a restart with 512 MiB of log: after a clean stop, and with the recovery
// points at the log's start, where everything is verified and dispatched again.
func BenchmarkOpen(b *testing.B) {
	for _, clean := range []bool{true, false} {
		b.Run(fmt.Sprintf("log=512MiB/clean=%v", clean), func(b *testing.B) {
			dir := b.TempDir()
			s := benchStore(b, dir)
			topic, records := benchRecords(8, 1024)
			index := uint64(0)
			load(b, s, &index, 512<<20/len(records[0]), topic, records)
			waitDispatched(b, s)
			killed := ""
			if !clean {
				killed = b.TempDir()
				copyDir(b, dir, killed)
			}
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				open := dir
				if !clean {
					b.StopTimer()
					open = b.TempDir()
					copyDir(b, killed, open)
					b.StartTimer()
				}
				s := benchStore(b, open)
				b.StopTimer()
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
				b.StartTimer()
			}
		})
	}
}
