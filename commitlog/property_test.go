package commitlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
)

// model is the log as a plain slice, written without looking at the log's code.
type model struct {
	bytes     []byte
	queues    map[string]int64
	lastStore int64
	segment   int
}

func (m *model) append(topic string, queue int32, b []byte) Appended {
	if room := m.segment - len(m.bytes)%m.segment; len(b)+8 > room {
		m.bytes = append(m.bytes, record.AppendBlank(nil, room)...)
		m.bytes = append(m.bytes, make([]byte, room-8)...)
	}
	a := Appended{PhyOffset: int64(len(m.bytes)), QueueOffset: -1}
	for len(b) > 0 {
		var msg record.Message
		n, err := record.Decode(b, &msg)
		if err != nil {
			panic(err)
		}
		key := fmt.Sprint(topic, "-", queue)
		msg.PhyOffset, msg.QueueOffset = int64(len(m.bytes)), 0
		if tt := msg.SysFlag & 0xC; tt == 0 || tt == 8 {
			msg.QueueOffset = m.queues[key]
			m.queues[key]++
		}
		msg.StoreTimestamp = max(msg.StoreTimestamp, m.lastStore)
		m.lastStore = msg.StoreTimestamp
		if a.QueueOffset < 0 {
			a.QueueOffset = msg.QueueOffset
		}
		m.bytes = record.Append(m.bytes, &msg)
		b = b[n:]
	}
	return a
}

// TestAgainstSlice runs random entries, several appends each, with restarts, flushes, readers and
// retention, and compares with a plain slice.
func TestAgainstSlice(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 2))
			cfg := testConfig(t.TempDir())
			cfg.SegmentSize = 8 * mappedfile.PageSize
			m := model{queues: map[string]int64{}, segment: int(cfg.SegmentSize)}
			l := openLog(t, cfg)
			var index uint64
			var positions []Position
			for range 400 {
				switch p := rng.IntN(100); {
				case p < 3:
					pos := l.Position()
					closeLog(t, l)
					l = openLog(t, cfg)
					if i, _, end := l.Recovered(); i != pos.RaftIndex || end != pos.LogEnd {
						t.Fatalf("recovered %d at %d, was %d at %d", i, end, pos.RaftIndex, pos.LogEnd)
					}
					if err := l.Restore(pos); err != nil {
						t.Fatal(err)
					}
				case p < 10:
					if _, err := l.Flush(rng.IntN(3)); err != nil {
						t.Fatal(err)
					}
				case p < 12:
					if _, err := l.SetRecoveryPoint(); err != nil {
						t.Fatal(err)
					}
				case p < 14:
					if _, err := l.DeleteBefore(rng.Int64N(l.MaxOffset() + 1)); err != nil {
						t.Fatal(err)
					}
				default:
					index++
					if err := l.BeginEntry(index, 1); err != nil {
						t.Fatal(err)
					}
					for range rng.IntN(4) {
						topic, queue, n := fmt.Sprint("topic", rng.IntN(4)), int32(rng.IntN(5)), 1+rng.IntN(6)
						flag := []int32{0, 0, 0, 4, 8, 12}[rng.IntN(6)]
						b := records(topic, queue, n, 110+rng.IntN(1500), rng.Int64N(2000), flag)
						want := m.append(topic, queue, b)
						got, err := l.Append([]byte(topic), queue, b, n)
						if err != nil || got != want {
							t.Fatalf("entry %d: %+v, %v; want %+v", index, got, err, want)
						}
					}
					if err := l.EndEntry(); err != nil {
						t.Fatal(err)
					}
					l.Publish()
					positions = append(positions, l.Position())
				}
				if l.MaxOffset() != int64(len(m.bytes)) {
					t.Fatalf("log ends at %d, want %d", l.MaxOffset(), len(m.bytes))
				}
			}
			if got := content(t, l); !bytes.Equal(got, m.bytes[l.MinOffset():]) {
				t.Fatal("bytes differ")
			}
			for key, next := range m.queues {
				i := slices.IndexFunc(l.Position().QueueOffsets, func(q QueueOffset) bool { return fmt.Sprint(q.Topic, "-", q.QueueID) == key })
				if i < 0 || l.Position().QueueOffsets[i].Next != next {
					t.Errorf("queue %s: next is not %d", key, next)
				}
			}
			// Restore to any position whose records are there still.
			for _, i := range []int{len(positions) - 1, len(positions) - 5} {
				if err := l.Restore(positions[i]); err != nil {
					t.Errorf("restore of index %d: %v", positions[i].RaftIndex, err)
				}
			}
		})
	}
}

// TestReadersBesideTheWriter: whatever a reader sees is whole, published and final.
func TestReadersBesideTheWriter(t *testing.T) {
	cfg := testConfig(t.TempDir())
	l := openLog(t, cfg)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				off, end := l.MinOffset(), l.MaxOffset()
				off = max(off, end-2*testSegment)
				off -= off % testSegment
				for off < end {
					v, err := l.View(off, 1<<20)
					if err != nil {
						break // deleted meanwhile
					}
					b := v.Bytes
					for len(b) > 0 {
						n, err := record.Check(b, true)
						if err != nil && n == 0 {
							t.Errorf("at %d: %v", off, err)
							v.Release()
							return
						}
						if err == nil && record.View(b).PhyOffset() != off {
							t.Errorf("record at %d says %d", off, record.View(b).PhyOffset())
						}
						n = min(n, len(b))
						b, off = b[n:], off+int64(n)
					}
					v.Release()
				}
			}
		})
	}
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := l.SetRecoveryPoint(); err != nil {
				t.Error(err)
				return
			}
			if _, err := l.DeleteBefore(l.MaxOffset() - 8*testSegment); err != nil {
				t.Error(err)
				return
			}
		}
	})
	b := records("T", 0, 4, 300, 1, 0)
	for i := range uint64(1500) {
		apply(t, l, i+1, "T", 0, b, 4)
	}
	close(stop)
	wg.Wait()
	if err := l.Verify(0); err != nil {
		t.Error(err)
	}
}
