package raftnode

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// A follower drops a suffix that conflicts with its leader; after a restart the entries before and
// after the cut are there. raft-wal v0.4.0 lost the index of the segment that was cut: its entries
// could not be read any more, and the node did not start (hashicorp/raft-wal#31).
func TestSuffixTruncationSurvivesRestart(t *testing.T) {
	for _, kind := range []LogStoreKind{WAL, Bolt} {
		t.Run(string(kind), func(t *testing.T) {
			cfg := Config{Dir: t.TempDir(), LogStore: kind, CacheBytes: 1, Logger: hclog.NewNullLogger()}
			entry := func(index, term uint64) *raft.Log {
				return &raft.Log{Index: index, Term: term, Data: fmt.Appendf(nil, "entry %d of term %d", index, term)}
			}
			s, err := openLogStore(cfg)
			if err != nil {
				t.Fatal(err)
			}
			for i := uint64(1); i <= 10; i++ {
				if err := s.StoreLog(entry(i, 1)); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.DeleteRange(6, 10); err != nil {
				t.Fatal(err)
			}
			if err := s.StoreLogs([]*raft.Log{entry(6, 2), entry(7, 2)}); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if s, err = openLogStore(cfg); err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			first, ferr := s.FirstIndex()
			last, lerr := s.LastIndex()
			if first != 1 || last != 7 || ferr != nil || lerr != nil {
				t.Errorf("entries %d to %d, want 1 to 7; %v, %v", first, last, ferr, lerr)
			}
			for i := uint64(1); i <= 7; i++ {
				want := entry(i, 1)
				if i >= 6 {
					want = entry(i, 2)
				}
				var got raft.Log
				if err := s.GetLog(i, &got); err != nil || got.Term != want.Term || string(got.Data) != string(want.Data) {
					t.Errorf("entry %d: %q of term %d, %v; want %q", i, got.Data, got.Term, err, want.Data)
				}
			}
		})
	}
}

// TestCacheOfSmallEntries: many small entries take about as much memory as the cache may, whatever their buffers had to spare.
func TestCacheOfSmallEntries(t *testing.T) {
	const limit = 256 << 10
	c := startCluster(t, func(_ int, c *Config) { c.CacheBytes = limit })
	n := c.nodes[c.leader(t)]
	payload := make([]byte, 100)
	for range 20 {
		done := make(chan outcomeOf, 50)
		for range 50 {
			// One at a time, so that each is an entry.
			if err := n.Propose(&message{data: payload, done: done}); err != nil {
				t.Fatal(err)
			}
			if o := <-done; o.err != nil {
				t.Fatal(o.err)
			}
		}
	}
	n.logs.mu.Lock()
	defer n.logs.mu.Unlock()
	held := 0
	for _, l := range n.logs.entries {
		held += cap(l.Data) + 512
	}
	if held > limit || len(n.logs.entries) < limit/2/(512+128) {
		t.Errorf("%d entries hold %d bytes, limit %d", len(n.logs.entries), held, limit)
	}
}

// What was compacted away is gone, also while raft-wal still has it in its newest segment: whether a follower far behind gets entries or a snapshot
// must not depend on where segments end. A log that was emptied takes any next entry.
func TestCompactedEntriesAreNotRead(t *testing.T) {
	for _, kind := range []LogStoreKind{WAL, Bolt} {
		for _, cache := range []int64{1, 1 << 20} {
			t.Run(fmt.Sprintf("%s/cache=%d", kind, cache), func(t *testing.T) {
				cfg := Config{Dir: t.TempDir(), LogStore: kind, CacheBytes: cache, Logger: hclog.NewNullLogger()}
				s, err := openLogStore(cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = s.Close() }()
				store := func(indexes ...uint64) {
					t.Helper()
					for _, i := range indexes {
						if err := s.StoreLog(&raft.Log{Index: i, Term: 1, Data: make([]byte, markEvery)}); err != nil {
							t.Fatal(err)
						}
					}
				}
				check := func(first, last uint64) {
					t.Helper()
					for i := uint64(1); i <= 12; i++ {
						var l raft.Log
						err := s.GetLog(i, &l)
						if want := first != 0 && i >= first && i <= last; want != (err == nil) {
							t.Errorf("entry %d of [%d, %d]: %v", i, first, last, err)
						} else if err != nil && !errors.Is(err, raft.ErrLogNotFound) {
							t.Errorf("entry %d: %v", i, err)
						}
					}
				}
				store(1, 2, 3, 4, 5, 6)
				if err := s.DeleteRange(1, 4); err != nil {
					t.Fatal(err)
				}
				check(5, 6)
				const size = markEvery + 64
				bytes := func(want int64) {
					t.Helper()
					if got := s.bytesSince(0); got != want*size {
						t.Errorf("%d bytes are counted, want %d", got, want*size)
					}
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if s, err = openLogStore(cfg); err != nil {
					t.Fatal(err)
				}
				check(5, 6)
				store(7)
				check(5, 7)
				if err := s.DeleteRange(5, 7); err != nil {
					t.Fatal(err)
				}
				check(0, 0)
				bytes(0)
				store(10, 11, 12)
				check(10, 12)
				bytes(3)
				if err := s.DeleteRange(12, 12); err != nil {
					t.Fatal(err)
				}
				check(10, 11)
				bytes(2)
			})
		}
	}
}

// emptied is a store that lets an entry come between what it says of its first one and whoever asked.
type emptied struct {
	backingStore
	armed         atomic.Bool
	asked, stored chan struct{}
}

func (s *emptied) FirstIndex() (uint64, error) {
	first, err := s.backingStore.FirstIndex()
	if s.armed.CompareAndSwap(true, false) {
		s.asked <- struct{}{}
		<-s.stored
	}
	return first, err
}

func (s *emptied) StoreLogs(logs []*raft.Log) error {
	err := s.backingStore.StoreLogs(logs)
	s.stored <- struct{}{}
	return err
}

// An entry that is stored while compaction empties the log stays readable: Raft panics over one that it cannot read (found by a proof of
// catch-up with small logs).
func TestEntryWhileTheLogIsEmptied(t *testing.T) {
	between := &emptied{asked: make(chan struct{}), stored: make(chan struct{}, 2)}
	s, err := openLogStore(Config{Dir: t.TempDir(), LogStore: WAL, CacheBytes: 1 << 20, Logger: hclog.NewNullLogger(), wrapStore: func(b backingStore) backingStore {
		between.backingStore = b
		return between
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	if err := s.StoreLogs([]*raft.Log{{Index: 1, Term: 1}, {Index: 2, Term: 1}}); err != nil {
		t.Fatal(err)
	}
	<-between.stored
	between.armed.Store(true)
	deleted := make(chan error, 1)
	go func() { deleted <- s.DeleteRange(1, 2) }()
	<-between.asked // the log is empty, and whoever empties it has seen that
	if err := s.StoreLogs([]*raft.Log{{Index: 3, Term: 1}}); err != nil {
		t.Fatal(err)
	}
	if err := <-deleted; err != nil {
		t.Fatal(err)
	}
	var l raft.Log
	if err := s.GetLog(3, &l); err != nil {
		t.Errorf("entry 3: %v", err)
	}
}
