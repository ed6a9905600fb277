package raftnode

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// errAside is what Raft's own calls get while this node stands aside (see watchdog.go).
var errAside = errors.New("raftnode: this node stands aside because of its disk")

// link is Raft's transport with some additions. It reaches peers where they are now, which only a leader could tell Raft (F59).
// It passes only such votes on as may be counted (see ballots). It lets snapshots wait for what belongs to them
// (see install.go). It notes what each peer last answered, which Raft keeps to itself; and it can be
// shut, one way: calls of this node fail at once, calls of others still reach it. Behind a shut link nobody hears a heartbeat
// or a request for votes from this node, so it neither leads nor stands; it can still follow. Raft has no
// switch of its own for that, and its main loop may be stuck in a write at that very moment.
type link struct {
	raft.Transport
	shut    atomic.Bool
	now     func() time.Time
	ballots *ballots
	addr    func(nodeID string) string // where a peer is now, "" when unknown; nil: as Raft says
	asked   sync.Map                   // address → id of the node that was last called there
	intake  *intake                    // nil: snapshots go straight to Raft
	leads   func(term uint64, id raft.ServerID) bool
	stop    <-chan struct{}
	// canReceive says why a node can't be sent a snapshot
	canReceive func(nodeID string) error
	lease      *lease // learns who has answered; nil: nobody asks
	young      *young // nil: candidates are not turned away

	mu    sync.Mutex
	peers map[raft.ServerID]contact // guarded by mu
}

type contact struct {
	at   time.Time
	last uint64
}

func newLink(t raft.Transport, b *ballots, addr func(string) string, now func() time.Time) *link {
	return &link{Transport: t, ballots: b, addr: addr, now: now, peers: map[raft.ServerID]contact{}}
}

func (l *link) note(id raft.ServerID, last uint64) {
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.peers[id]
	c.at = now
	c.last = max(c.last, last)
	l.peers[id] = c
}

// forget drops what a peer said in an earlier term: its log may have been cut since.
func (l *link) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.peers)
}

func (l *link) contactOf(id raft.ServerID) contact {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.peers[id]
}

// where is the address to reach id at. A leader has the configuration changed when a node moves, but when all have moved
// nobody can be elected under the old addresses.
func (l *link) where(id raft.ServerID, configured raft.ServerAddress) raft.ServerAddress {
	nodeID, _ := splitServerID(id)
	at := configured
	if l.addr != nil {
		if now := l.addr(nodeID); now != "" {
			at = raft.ServerAddress(now)
		}
	}
	if was, ok := l.asked.Load(string(at)); !ok || was.(string) != nodeID {
		l.asked.Store(string(at), nodeID)
	}
	return at
}

// maxAppendBytes bounds one replication call, which carries one entry at least. Raft counts entries only, and sixteen of 1 MiB
// do not pass a link of 1 MB/s before the call's deadline: they would be sent again and again.
const maxAppendBytes = 4 << 20

// AppendEntries implements raft.Transport. It sends as many entries as one call may carry: Raft goes on behind the last one that is in args when the call
// returns.
func (l *link) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if l.shut.Load() {
		return errAside
	}
	args.Entries = firstBytes(args.Entries, maxAppendBytes)
	var began time.Duration
	if l.lease != nil {
		began = l.lease.clock()
	}
	err := l.Transport.AppendEntries(id, l.where(id, target), args, resp)
	// A stranger at the address is not the voter whose vote is bound.
	if err == nil && l.lease != nil && resp.Success && resp.Term == args.Term && (len(resp.ID) == 0 || raft.ServerID(resp.ID) == id) {
		l.lease.answered(id, args.Term, began)
	}
	if err == nil && resp.Term <= args.Term {
		var last uint64
		if resp.Success { // up to here its log is equal to ours; resp.LastLog may lie beyond that
			last = args.PrevLogEntry
			if n := len(args.Entries); n > 0 {
				last = args.Entries[n-1].Index
			}
		}
		l.note(id, last)
	}
	return err
}

// firstBytes is a head of entries of at most limit bytes, the first one in any case.
func firstBytes(entries []*raft.Log, limit int64) []*raft.Log {
	for i, e := range entries {
		if limit -= entrySize(e); limit < 0 && i > 0 {
			return entries[:i]
		}
	}
	return entries
}

// AppendEntriesPipeline implements raft.Transport: never (F91).
func (l *link) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// RequestVote implements raft.Transport.
func (l *link) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if l.shut.Load() {
		return errAside
	}
	err := l.Transport.RequestVote(id, l.where(id, target), args, resp)
	resp.Granted = l.ballots.counts(false, args.Term, id, resp.ID, err == nil && resp.Granted)
	return err
}

// RequestPreVote implements raft.WithPreVote.
func (l *link) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if l.shut.Load() {
		return errAside
	}
	t, ok := l.Transport.(raft.WithPreVote)
	if !ok {
		return errors.New("raftnode: the transport has no pre-vote")
	}
	err := t.RequestPreVote(id, l.where(id, target), args, resp)
	resp.Granted = l.ballots.counts(true, args.Term, id, resp.ID, err == nil && resp.Granted)
	return err
}

// TimeoutNow implements raft.Transport.
func (l *link) TimeoutNow(id raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return l.Transport.TimeoutNow(id, l.where(id, target), args, resp)
}

// Close implements raft.WithClose.
func (l *link) Close() error {
	if c, ok := l.Transport.(raft.WithClose); ok {
		return c.Close()
	}
	return nil
}
