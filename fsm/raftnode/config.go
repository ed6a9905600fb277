// Package raftnode wires hashicorp/raft: stable, log and snapshot store, configuration, the
// proposer that batches commands into entries, leadership events and voters. It knows nothing
// of what an entry means; the FSM and the entry's head are given to it.
//
// Invariant: Quorum-Durable. The log store syncs before it returns, on the leader and on
// followers, so a committed entry is on the disks of a majority. UnsafeSyncInterval gives it up (lazysync.go).
package raftnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"raftmq/seam"
)

// Errors of Propose and of Proposal.Done.
var (
	// ErrNotLeader: this node takes no writes now: it does not lead, or has not yet applied its
	// barrier. The command was certainly not proposed.
	ErrNotLeader = errors.New("raftnode: not the leader")
	// ErrLeadershipLost: the outcome is unknown; the entry may still be committed by the next leader.
	ErrLeadershipLost = errors.New("raftnode: leadership lost while the entry was in flight")
	// ErrBusy: too many bytes are in flight.
	ErrBusy = errors.New("raftnode: too many bytes in flight")
	// ErrTooLarge: one command is larger than an entry may be.
	ErrTooLarge = errors.New("raftnode: command larger than an entry may be")
	// ErrClosed: the node is shutting down.
	ErrClosed = errors.New("raftnode: closed")
)

// MaxCommandBytes is the default limit of one command: a batch of 4 MiB that is four times as large when it is stored, as one of many tiny
// messages is. The Raft log takes entries of up to 64 MiB.
const MaxCommandBytes = 17 << 20

// LogStoreKind chooses the Raft log store.
type LogStoreKind string

// Log stores. WAL is raft-wal (append-only segments), Bolt is raft-boltdb.
const (
	WAL  LogStoreKind = "wal"
	Bolt LogStoreKind = "bolt"
)

// Config of a Node. Zero values take the defaults in parentheses.
type Config struct {
	// NodeID is the node's name for people and tables. Incarnation is random, made when the data folder was
	// new; together they are the Raft server id. A wiped node is therefore a newcomer to Raft, and its vote in place
	// of the node whose acknowledgements it has forgotten does not count (see ballots).
	NodeID      string
	Incarnation string
	Dir         string // holds stable.db and the log store
	LogStore    LogStoreKind
	FSM         raft.FSM
	Snapshots   raft.SnapshotStore
	Transport   raft.Transport
	// Receive takes what a leader sends as a snapshot, before Raft does. nil: it can be installed now; ErrNotYet, wrapped or not: what belongs
	// to it is being fetched, and the leader comes again; other errors are told to the leader. It returns within the context. nil: snapshots need
	// nothing else.
	Receive func(ctx context.Context, leader string, snapshot []byte) error
	// ReadSnapshot reads from a leader's stream what Receive and Raft's snapshot store need; what follows is dropped, since earlier builds send more. nil:
	// all of it.
	ReadSnapshot func(stream io.Reader) ([]byte, error)
	// CanReceive says why a node can't be sent a snapshot of this build, nil when it can, or when that is not known. nil: all can.
	CanReceive func(nodeID string) error
	// PeerAddr is where a node's Raft port is now, as far as is known ("" otherwise, or nil); it goes before the
	// address in the Raft configuration.
	PeerAddr func(nodeID string) string
	// EntryHead appends the head of a new entry (command.AppendEntryHead).
	EntryHead func(dst []byte) []byte
	// Admit refuses an encoded command that must not be proposed now. It is called under the proposer's lock: it must be quick. nil: all are.
	Admit func(command []byte) error
	// Prepare runs on a new leader after its barrier and before it takes writes; it may apply
	// commands itself. An error makes the node give leadership up.
	Prepare func(apply func(command []byte) error) error

	HeartbeatTimeout time.Duration // (800 ms) follower without contact starts an election after 1–2 of it
	ElectionTimeout  time.Duration // (as HeartbeatTimeout)
	LeaseTimeout     time.Duration // (15/16 of HeartbeatTimeout) leader without a quorum steps down

	MaxEntryBytes    int   // an entry that reached this size takes no further command (1 MiB)
	MaxCommandBytes  int   // one command (MaxCommandBytes)
	MaxEntryCommands int   // (4096)
	InFlightEntries  int   // entries handed to Raft and not yet applied (2)
	InFlightBytes    int64 // waiting and in flight; beyond it Propose says ErrBusy (64 MiB)

	WALSegmentBytes int // of raft-wal, taken on disk as a whole; new segments get it (raft-wal's 64 MiB)

	SnapshotBytes int64 // log bytes since the last snapshot that call for one (128 MiB)
	TrailingBytes int64 // log bytes kept behind a snapshot for followers that lag; 0: none
	CacheBytes    int64 // newest entries kept in memory for Apply and replication (16 MiB)

	// DiskStallTimeout is how long one write or fsync may take before this node stands aside (5 s; negative: no limit).
	DiskStallTimeout time.Duration
	// DiskBusy names a write elsewhere on this node that has been under way since then, "" when none is. It counts as a stall too.
	DiskBusy func() (what string, since time.Time)
	// OnFatal is called once when a write failed (ErrDisk): close the node, and open it again when the disk is well.
	OnFatal func(error)

	// UnsafeSyncInterval syncs the Raft log on a timer instead of before each acknowledgement (0: never so). With WAL only.
	UnsafeSyncInterval time.Duration

	Now    func() time.Time
	Logger hclog.Logger

	// Applied is the last entry whose effect the FSM's own store holds when the node is opened: the Raft log, or a snapshot, must reach it.
	Applied uint64

	wrapStore func(backingStore) backingStore // tests inject store faults here
	lazyTail  bool                            // the log was written in the weaker mode the last time
}

func (c *Config) ensureDefaults() {
	def(&c.LogStore, WAL)
	def(&c.HeartbeatTimeout, 800*time.Millisecond)
	def(&c.ElectionTimeout, c.HeartbeatTimeout)
	def(&c.LeaseTimeout, c.HeartbeatTimeout*15/16)
	def(&c.MaxEntryBytes, 1<<20)
	def(&c.MaxCommandBytes, MaxCommandBytes)
	def(&c.MaxEntryCommands, 4096)
	def(&c.InFlightEntries, 2)
	def(&c.InFlightBytes, 64<<20)
	def(&c.SnapshotBytes, 128<<20)
	def(&c.CacheBytes, 16<<20)
	def(&c.DiskStallTimeout, 5*time.Second)
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.ReadSnapshot == nil {
		c.ReadSnapshot = io.ReadAll
	}
	if c.CanReceive == nil {
		c.CanReceive = func(string) error { return nil }
	}
	if c.EntryHead == nil {
		c.EntryHead = func(dst []byte) []byte { return dst }
	}
}

func def[T comparable](p *T, v T) {
	var zero T
	if *p == zero {
		*p = v
	}
}

func (c *Config) validate() error {
	switch {
	case c.NodeID == "":
		return errors.New("raftnode: NodeID is empty")
	case strings.Contains(c.NodeID, idSeparator):
		return fmt.Errorf("raftnode: NodeID %q contains %q", c.NodeID, idSeparator)
	case c.Dir == "":
		return errors.New("raftnode: Dir is empty")
	case c.FSM == nil || c.Snapshots == nil || c.Transport == nil:
		return errors.New("raftnode: FSM, Snapshots and Transport are required")
	case c.LogStore != WAL && c.LogStore != Bolt:
		return fmt.Errorf("raftnode: log store %q: want wal or bolt", c.LogStore)
	case c.UnsafeSyncInterval > 0 && c.LogStore != WAL:
		return errors.New("raftnode: a Raft log that syncs on a timer must be a wal: a bolt file without syncs does not survive a power cut at all")
	case c.LeaseTimeout > c.HeartbeatTimeout:
		return fmt.Errorf("raftnode: lease timeout %v is longer than the heartbeat timeout %v", c.LeaseTimeout, c.HeartbeatTimeout)
	}
	return nil
}

func (c *Config) raftConfig() *raft.Config {
	r := raft.DefaultConfig()
	r.LocalID = serverID(c.NodeID, c.Incarnation)
	r.Logger = quietLoggerAt(c.Logger, c.Now)
	r.HeartbeatTimeout = c.HeartbeatTimeout
	r.ElectionTimeout = c.ElectionTimeout
	r.LeaderLeaseTimeout = c.LeaseTimeout
	r.BatchApplyCh = true
	// Followers learn that the newest entry is committed with the next entry, or after this. It costs an
	// idle leader an RPC each time; a pull on a follower waits that much longer for the very last message.
	r.CommitTimeout = 200 * time.Millisecond
	r.MaxAppendEntries = maxAppendEntries
	// Snapshots and compaction are driven by bytes (compaction.go): entries are large, so
	// counting them says nothing.
	r.SnapshotInterval = 365 * 24 * time.Hour
	r.SnapshotThreshold = 1 << 62
	r.TrailingLogs = 1 << 40
	r.NoLegacyTelemetry = true
	r.ShutdownOnRemove = false
	r.PreVoteDisabled = seam.On(seam.SkipPreVote)
	return r
}

// maxAppendEntries bounds one replication call and one Apply batch; entries are up to 1 MiB.
const maxAppendEntries = 16
