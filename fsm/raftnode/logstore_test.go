package raftnode

import (
	"fmt"
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
