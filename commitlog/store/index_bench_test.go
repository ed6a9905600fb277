package store

import (
	"fmt"
	"math"
	"testing"
	"time"

	"raftmq/commitlog/record"
)

// indexedStore holds messages of 1 KiB with a unique key and a key each, in files of RocketMQ's size.
func indexedStore(b *testing.B, messages int) *Store {
	b.Helper()
	s, err := Open(Config{
		Dir: b.TempDir(), SegmentSize: 256 << 20, PointInterval: time.Hour, PointBytes: 1 << 60, FlushInterval: time.Hour,
		MessageIndexEnable: true,
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	payload := body(1024)
	for i := 0; i < messages; {
		if err := s.BeginEntry(uint64(i+1), 1); err != nil {
			b.Fatal(err)
		}
		for range 256 {
			props := fmt.Appendf(nil, "KEYS\x01order-%d\x02UNIQ_KEY\x017F00000100002EEB%016X", i, i)
			m := record.Message{Topic: []byte("TopicTest"), StoreTimestamp: 1_600_000_000_000, BornHost: testHost, StoreHost: testHost, Body: payload, Properties: props}
			if _, err := s.Append(m.Topic, 0, record.Append(nil, &m), 1); err != nil {
				b.Fatal(err)
			}
			i++
		}
		if err := s.EndEntry(); err != nil {
			b.Fatal(err)
		}
		s.Publish()
	}
	waitIndexed(b, s)
	return s
}

// BenchmarkIndexDispatch builds the index again: two keys a message.
func BenchmarkIndexDispatch(b *testing.B) {
	const messages = 256 << 10
	s := indexedStore(b, messages)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		b.StopTimer()
		if err := s.emptyIndex(0); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		if err := s.index.restart(); err != nil {
			b.Fatal(err)
		}
		waitIndexed(b, s)
		n += messages
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkQuery is one unique key among half a million.
func BenchmarkQuery(b *testing.B) {
	const messages = 256 << 10
	s := indexedStore(b, messages)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		i = (i + 7919) % messages
		q := QueryRequest{Topic: "TopicTest", Key: fmt.Sprintf("7F00000100002EEB%016X", i), Unique: true, Max: 32, End: math.MaxInt64}
		res, err := s.Query(b.Context(), q)
		if err != nil || len(res.Records) != 1 {
			b.Fatal(err, len(res.Records))
		}
		res.Release()
	}
}
