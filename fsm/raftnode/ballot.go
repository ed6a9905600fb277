package raftnode

import (
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// ballots decides whether a granted vote counts. Raft counts an answer for the server that it asked, whoever sits at that
// address. A node that was wiped, or that took over another one's address, is a stranger there: it has not kept
// what the server acknowledged, and its grant with that of a node that lags would elect a leader without
// acknowledged entries (amnesia). Its answer names who gave it.
//
// A stranger's vote is not worthless, though: when two of three nodes were wiped, the third needs them to lead again (F57). It counts
// when every voter that was asked has granted, by itself or through a stranger: then the candidate's log is at least as new
// as any that there is.
type ballots struct {
	voters   func() []raft.ServerID // the other voters of the latest configuration
	patience time.Duration          // a stranger's vote waits so long for the other answers
	logger   hclog.Logger
	now      func() time.Time

	mu     sync.Mutex
	rounds [2]*round // the latest vote and pre-vote
	told   time.Time
}

func newBallots(voters func() []raft.ServerID, patience time.Duration, logger hclog.Logger) *ballots {
	return &ballots{voters: voters, patience: patience, logger: logger, now: time.Now}
}

// round is one term's vote or pre-vote; guarded by ballots.mu.
type round struct {
	term    uint64
	granted map[raft.ServerID]bool
	changed chan struct{} // closed and replaced at each answer
}

// ballotRepeat is the least time between two warnings.
const ballotRepeat = time.Minute

// counts notes what asked's address answered and reports whether it is a granted vote that counts.
func (b *ballots) counts(pre bool, term uint64, asked raft.ServerID, answered []byte, granted bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	r := b.round(pre, term)
	r.granted[asked] = granted
	close(r.changed)
	r.changed = make(chan struct{})
	if !granted || len(answered) == 0 || raft.ServerID(answered) == asked {
		return granted
	}
	late := time.NewTimer(b.patience)
	defer late.Stop()
	for {
		all, refused := b.unanimous(r)
		if all {
			return true
		}
		if !refused {
			changed := r.changed
			b.mu.Unlock()
			select {
			case <-changed:
			case <-late.C:
				refused = true
			}
			b.mu.Lock()
		}
		if refused {
			if now := b.now(); now.Sub(b.told) >= ballotRepeat {
				b.told = now
				b.logger.Warn("vote not counted: the node there is not the one that was asked, it has lost its data or moved",
					"asked", asked, "answered", string(answered), "term", term)
			}
			return false
		}
	}
}

func (b *ballots) round(pre bool, term uint64) *round {
	i := 0
	if pre {
		i = 1
	}
	if r := b.rounds[i]; r != nil && r.term == term {
		return r
	}
	b.rounds[i] = &round{term: term, granted: map[raft.ServerID]bool{}, changed: make(chan struct{})}
	return b.rounds[i]
}

// unanimous reports whether all voters have granted, or one has not.
func (b *ballots) unanimous(r *round) (all, refused bool) {
	voters := b.voters()
	all = len(voters) > 0
	for _, id := range voters {
		granted, answered := r.granted[id]
		all = all && granted
		refused = refused || answered && !granted
	}
	return all, refused
}
