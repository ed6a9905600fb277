package raftnode

import (
	"fmt"
	"sync"
	"testing"

	"github.com/hashicorp/raft"
)

const messageSize = 1024

// BenchmarkBareRaft is the yardstick: hashicorp/raft alone with raft-wal, three nodes in this process over
// loopback TCP, fsync on each, a fixed number of 1 KiB messages per entry, two entries in flight.
func BenchmarkBareRaft(b *testing.B) {
	for _, perEntry := range []int{1, 64, 256, 1024} {
		b.Run(fmt.Sprintf("size=1KiB/batch=%d", perEntry), func(b *testing.B) {
			c := startCluster(b, nil)
			leader := c.nodes[c.leader(b)].raft
			entry := make([]byte, perEntry*messageSize)
			b.SetBytes(messageSize)
			b.ReportAllocs()
			futures := make(chan raft.ApplyFuture, 2)
			var done sync.WaitGroup
			done.Go(func() {
				for f := range futures {
					if err := f.Error(); err != nil {
						b.Error(err)
					}
				}
			})
			b.ResetTimer()
			for i := 0; i < b.N; i += perEntry {
				futures <- leader.Apply(append([]byte(nil), entry...), 0)
			}
			close(futures)
			done.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
		})
	}
}

type benchMessage struct {
	data []byte
	slot chan struct{}
}

func (m *benchMessage) AppendCommand(dst []byte, _ int64) []byte { return append(dst, m.data...) }
func (m *benchMessage) Done(_ any, _ int, err error) {
	if err != nil {
		panic(err)
	}
	<-m.slot
}

// BenchmarkPropose is the product's path: single messages, batched by the proposer, with a bounded number
// of them outstanding.
func BenchmarkPropose(b *testing.B) {
	for _, outstanding := range []int{1, 64, 1024} {
		for _, inFlight := range []int{1, 2, 3, 4} {
			if outstanding == 1 && inFlight > 1 {
				continue
			}
			b.Run(fmt.Sprintf("size=1KiB/outstanding=%d/entries=%d", outstanding, inFlight), func(b *testing.B) {
				c := startCluster(b, func(_ int, cfg *Config) { cfg.InFlightEntries = inFlight })
				leader := c.nodes[c.leader(b)]
				m := &benchMessage{data: make([]byte, messageSize), slot: make(chan struct{}, outstanding)}
				b.SetBytes(messageSize)
				b.ReportAllocs()
				b.ResetTimer()
				for range b.N {
					m.slot <- struct{}{}
					if err := leader.Propose(m); err != nil {
						b.Fatal(err)
					}
				}
				for range outstanding {
					m.slot <- struct{}{}
				}
				b.StopTimer()
				s := leader.Stats()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
				b.ReportMetric(float64(s.Commands)/float64(s.Entries), "msg/entry")
			})
		}
	}
}
