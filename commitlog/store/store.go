// Package store is the facade over the commit log, consume queues, dispatch and flush: it
// opens and recovers them in order, owns their goroutines, and offers append (to the FSM
// only), get and query (to the broker). It knows no Raft and no sockets.
package store

import (
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"
)

// FlushMode is flushDiskType.
type FlushMode uint8

// Flush modes.
const (
	AsyncFlush FlushMode = iota
	SyncFlush
)

// Config of a Store. Zero values take the defaults in parentheses.
type Config struct {
	Dir              string // root: commitlog/, journal/, consumequeue/ below it
	SegmentSize      int64  // mappedFileSizeCommitLog, cluster-wide (1 GiB)
	QueueFileSize    int64  // mappedFileSizeConsumeQueue, rounded up to 20 (6,000,000)
	MaxMessageSize   int    // (4 MiB)
	FlushMode        FlushMode
	FlushInterval    time.Duration // flushIntervalCommitLog (500 ms)
	SyncFlushTimeout time.Duration // (5 s)
	Logger           hclog.Logger
	// OnFatal is called once when the node must stop: a local disk error in the append
	// path, a failed flush, a dead dispatcher. Default: panic.
	OnFatal func(error)
}

// Sentinel errors.
var (
	ErrClosed       = errors.New("store: closed")
	ErrNotFound     = errors.New("store: no record at this offset")
	ErrFlushTimeout = errors.New("store: flush not confirmed in time")
)

// Store is the open store.
type Store struct{}

// Open opens and recovers: the log is cut back to the last whole entry whose journal
// record and bytes both verify (Index-With-Bytes), queues are caught up from it.
func Open(cfg Config) (*Store, error) { panic("stub") }

// Close stops dispatch and flush, flushes everything and unmaps.
func (s *Store) Close() error { panic("stub") }

// ---- the FSM's side: one goroutine ----

// Position is what a snapshot says about the log: replicated, equal on all nodes at equal RaftIndex.
type Position struct {
	RaftIndex, RaftTerm uint64
	LogEnd              int64 // physical offset after the last entry
	LastStoreTimestamp  int64
	QueueOffsets        []QueueOffset // next offset of every queue ever written, sorted by topic, queue
}

// QueueOffset is the next offset of one queue.
type QueueOffset struct {
	Topic   string
	QueueID int32
	Next    int64
}

// Appended tells where a command's records went.
type Appended struct {
	QueueOffset int64 // of the first
	PhyOffset   int64 // of the first; the others follow without gap
}

// Recovered is the position of the last whole journalled entry on disk (zero when empty).
// Its QueueOffsets is nil.
func (s *Store) Recovered() Position { panic("stub") }

// Restore sets the replay position from a snapshot, before the first entry after it. Entries
// at or below the recovered index are then recomputed and compared with the journal, not written.
// A snapshot that is ahead of the recovered log is an error (the bytes must be installed first).
func (s *Store) Restore(p Position) error { panic("stub") }

// BeginEntry starts the bytes of one Raft entry.
func (s *Store) BeginEntry(raftIndex, raftTerm uint64) error { panic("stub") }

// Append copies n contiguous records of one topic and queue into the log, all in one segment (the
// blank filler and roll before them if they do not fit), assigns their queue and physical
// offsets, and raises a store timestamp that is below the log's last one. An error here must
// stop the node (Apply-Never-Waits).
func (s *Store) Append(topic []byte, queueID int32, records []byte, n int) (Appended, error) {
	panic("stub")
}

// EndEntry writes the entry's journal record if it produced bytes. Readers see it after Publish.
func (s *Store) EndEntry() error { panic("stub") }

// Publish makes all ended entries readable and wakes dispatch and flush. Once per Apply batch.
func (s *Store) Publish() { panic("stub") }

// Position returns the current replicated position (for a snapshot). FSM goroutine only.
func (s *Store) Position() Position { panic("stub") }

// FlushAll makes log, journal and queues durable up to what is published and stores the
// recovery point. Called by Persist (Flush-Before-Truncate).
func (s *Store) FlushAll() error { panic("stub") }

// ---- everybody's side ----

// LogRange is the readable physical range.
func (s *Store) LogRange() (min, max int64) { panic("stub") }

// ReadLog returns a counted view of raw log bytes from off, at most max, within a segment.
func (s *Store) ReadLog(off int64, max int) (bytes []byte, release func(), err error) { panic("stub") }

// Install replaces an empty or shorter log by bytes fetched from a peer: write is called in
// order from offset 'from'; then Restore with a position at its end.
// (Used by the FSM when a snapshot is ahead of this node's log.)
type Installer interface {
	Write(p []byte) (int, error)
	Commit(p Position) error
	Abort() error
}

// Install starts an installation of log bytes [from, to).
func (s *Store) Install(from, to int64) (Installer, error) { panic("stub") }

// WaitFlushed calls done once [0,end) of the log is durable on this node, or with
// ErrFlushTimeout. done runs on a flush goroutine and must be quick.
func (s *Store) WaitFlushed(end int64, done func(error)) { panic("stub") }

// Mode returns the flush mode.
func (s *Store) Mode() FlushMode { panic("stub") }

// GetStatus is RocketMQ's GetMessageStatus.
type GetStatus uint8

// Statuses of Get, named as in RocketMQ.
const (
	Found GetStatus = iota
	NoMatchedMessage
	MessageWasRemoving
	OffsetFoundNull
	OffsetOverflowBadly
	OffsetOverflowOne
	OffsetTooSmall
	NoMatchedLogicQueue
	NoMessageInQueue
)

// GetRequest asks for records of a queue.
type GetRequest struct {
	Topic    []byte
	QueueID  int32
	Offset   int64
	MaxMsgs  int
	MaxBytes int // 0: RocketMQ's 262144
	// MinFloor hides offsets below it (deleted and re-created topics).
	MinFloor int64
	// Match decides by tags code; nil matches all.
	Match func(tagsCode int64) bool
}

// GetResult holds counted views. Reuse it; Release before reuse.
type GetResult struct {
	Status                                GetStatus
	NextBeginOffset, MinOffset, MaxOffset int64
	Buffers                               [][]byte // whole records, in order; adjacent ones may share a buffer
	Count, Bytes                          int
	// unexported: held views
}

// Release gives the views back.
func (r *GetResult) Release() { panic("stub") }

// Get reads by queue offset (spec/store.md §8.1).
func (s *Store) Get(req *GetRequest, res *GetResult) { panic("stub") }

// MinOffset and MaxOffset of a queue: 0 when it does not exist. MaxOffset counts what is
// readable and dispatched.
func (s *Store) MinOffset(topic string, queueID int32) int64 { panic("stub") }
func (s *Store) MaxOffset(topic string, queueID int32) int64 { panic("stub") }

// OffsetByTime is the smallest offset whose store time is at or after millis, the max offset when all are older.
func (s *Store) OffsetByTime(topic string, queueID int32, millis int64) int64 { panic("stub") }

// StoreTimeAt is the store time of the record at a queue offset, -1 when there is none.
func (s *Store) StoreTimeAt(topic string, queueID int32, offset int64) int64 { panic("stub") }

// RecordAt returns a counted view of the record that starts at a physical offset. An offset
// inside a record is ErrNotFound.
func (s *Store) RecordAt(phyOffset int64) (rec []byte, release func(), err error) { panic("stub") }

// DispatchedTo is the physical offset up to which queues are built. WaitDispatched calls
// done once it reaches end.
func (s *Store) DispatchedTo() int64                   { panic("stub") }
func (s *Store) WaitDispatched(end int64, done func()) { panic("stub") }

// OnArrival registers the listener that dispatch calls, one goroutine, after new records of a queue
// are readable: next is the queue's new max offset. Before Publish is first called.
func (s *Store) OnArrival(f func(topic []byte, queueID int32, next int64, tagsCode int64)) {
	panic("stub")
}

// Checksum is a CRC-32C over log bytes [from, to).
func (s *Store) Checksum(from, to int64) (uint32, error) { panic("stub") }

// Stats for status and metrics.
type Stats struct {
	MinOffset, MaxOffset, FlushedTo, DispatchedTo int64
	Queues, Segments                              int
	PutMessages, PutBytes                         uint64
	FlushCount                                    uint64
	LastFlush                                     time.Duration
}

// Stats returns a snapshot.
func (s *Store) Stats() Stats { panic("stub") }
