package raftnode

import (
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// sizes is a transport that notes how many bytes of entries each call carries.
type sizes struct {
	raft.Transport
	calls [][]uint64
}

// AppendEntries implements raft.Transport.
func (s *sizes) AppendEntries(_ raft.ServerID, _ raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	var indexes []uint64
	for _, e := range args.Entries {
		indexes = append(indexes, e.Index)
	}
	s.calls = append(s.calls, indexes)
	resp.Success = true
	return nil
}

// One call carries maxAppendBytes at most, but one entry at least; what Raft and the link take for stored is what was sent.
func TestAppendEntriesIsBoundByBytes(t *testing.T) {
	for _, tc := range []struct {
		name  string
		sizes []int
		want  []uint64
	}{
		{"heartbeat", nil, nil},
		{"small ones go together", []int{100, 200, 300}, []uint64{1, 2, 3}},
		{"of 1 MiB", []int{1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 1 << 20}, []uint64{1, 2, 3}},
		{"a large one alone", []int{17 << 20, 1}, []uint64{1}},
		{"a large one behind a small one", []int{1, 17 << 20, 1}, []uint64{1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &sizes{}
			l := newLink(s, nil, nil, time.Now)
			args := &raft.AppendEntriesRequest{}
			for i, n := range tc.sizes {
				args.Entries = append(args.Entries, &raft.Log{Index: uint64(i + 1), Data: make([]byte, n)})
			}
			if err := l.AppendEntries("n2/x", "a", args, &raft.AppendEntriesResponse{}); err != nil {
				t.Fatal(err)
			}
			if got := s.calls[0]; !slices.Equal(got, tc.want) {
				t.Errorf("sent %v, want %v", got, tc.want)
			}
			if got, want := len(args.Entries), len(tc.want); got != want {
				t.Errorf("Raft takes %d entries for sent, %d were", got, want)
			}
			last := uint64(0)
			if len(tc.want) > 0 {
				last = tc.want[len(tc.want)-1]
			}
			if got := l.contactOf("n2/x").last; got != last {
				t.Errorf("the peer has entries up to %d, want %d", got, last)
			}
		})
	}
}

// A follower that missed more than one call may carry gets all of it.
func TestFollowerBehindByManyCalls(t *testing.T) {
	c := startCluster(t, func(_ int, cfg *Config) { cfg.WALSegmentBytes = 8 << 20 })
	lead := c.leader(t)
	away := (lead + 1) % 3
	if err := c.nodes[away].Close(); err != nil {
		t.Fatal(err)
	}
	const entries, size = 14, 1<<20 - 100
	for range entries {
		m := &message{data: make([]byte, size), done: make(chan outcomeOf, 1)}
		if err := c.nodes[lead].Propose(m); err != nil {
			t.Fatal(err)
		}
		if o := <-m.done; o.err != nil {
			t.Fatal(o.err)
		}
	}
	c.reopen(t, away)
	eventually(t, 30*time.Second, "the follower has applied all of it", func() bool {
		f := c.fsms[away]
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.bytes >= entries*size
	})
}
