// Package commitlog is the log: append, roll to the next segment, read by physical offset,
// recover. It joins RocketMQ's commit log, a queue of mapped segments in which records of all
// topics stand one behind the other, with an apply journal that says which Raft entry
// produced which bytes.
//
// It does not dispatch to consume queues, wait for replicas, decide when to flush or what to
// delete, and knows neither Raft nor sockets. DESIGN.md specifies the journal's and the
// recovery point's format and what recovery does.
//
// Invariants:
//
//   - Deterministic-Apply, Same-Bytes: the bytes and offsets follow from the entries, the position
//     they start from and the segment size only.
//   - Index-With-Bytes: each entry that produced bytes has one journal record with its index, term,
//     range and checksum. After a crash the log ends with the last entry whose record and bytes verify.
//   - Never-Clean-Up: only what is above the recovery point is ever cut. Damage below it is
//     ErrCorrupt and stays as it is.
//   - Apply-Never-Waits: BeginEntry, Append, EndEntry and Publish sync nothing and take no lock that
//     is held across a sync.
//   - Views-Are-Counted: bytes leave as counted views only.
//
// One goroutine, the FSM's, calls BeginEntry, Append, EndEntry, Publish, Trim, Restore, Position,
// QueueNext, ResetTo, WriteRaw and DiscardRaw. Everything else may be called from anywhere.
package commitlog

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"raftmq/commitlog/mappedfile"
)

// Sentinel errors; they come wrapped with the facts.
var (
	// ErrClosed: the log was closed.
	ErrClosed = errors.New("commitlog: closed")
	// ErrTooLarge: the records cannot fit an empty segment. Nothing was written.
	ErrTooLarge = errors.New("commitlog: larger than a segment")
	// ErrRecords: the bytes are not n whole records of this topic and queue. Nothing was written.
	ErrRecords = errors.New("commitlog: malformed records")
	// ErrIndex: an entry out of turn.
	ErrIndex = errors.New("commitlog: raft index out of order")
	// ErrDiverged: replay, or a snapshot, contradicts the journal: this node's log is not what its
	// entries say. The node must stop.
	ErrDiverged = errors.New("commitlog: log diverged from its entries")
	// ErrBehind: a snapshot is ahead of this log; its bytes must be installed first.
	ErrBehind = errors.New("commitlog: log is behind the snapshot")
	// ErrCorrupt: damage below the recovery point, or of the recovery point. Nothing was cut.
	ErrCorrupt = errors.New("commitlog: corrupt")
	// ErrVersion: a file is whole but of a format version that this program does not know, so a newer
	// one wrote it. Nothing was cut.
	ErrVersion = errors.New("commitlog: written by a newer version of this program")
	// ErrFailed: an earlier error left an entry half written; only opening again helps.
	ErrFailed = errors.New("commitlog: failed earlier")
	// ErrTrim: not a segment boundary, or one behind the last segment. The same on all nodes; nothing changed.
	ErrTrim = errors.New("commitlog: illegal minimum")
)

// castagnoli is the table of CRC-32C; it is never written.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Config of a Log. Zero values take the defaults in parentheses.
type Config struct {
	Dir         string // segments
	JournalDir  string // journal and recovery point
	SegmentSize int64  // mappedFileSizeCommitLog, bytes, cluster-wide (1 GiB)
	// AllocateStep is how many bytes of a segment are reserved at once, ahead of need (64 MiB).
	AllocateStep    int64
	JournalFileSize int64 // bytes, a multiple of 64 (4 MiB)
	// VerifyBytes is how much of the log below the recovery point Open verifies as well, in whole
	// entries (64 MiB; negative: nothing). Above it everything is verified always.
	VerifyBytes int64
	// Random advises the kernel (MADV_RANDOM) to keep the pages of the segment that is written apart: for logs that are flushed
	// after each few entries, where msync would otherwise write eight times as much.
	Random bool
	// MaxMapped bounds how many segments are mapped at a time; others are mapped again by who reads them (128; negative: all are
	// mapped).
	MaxMapped int
	// Warm brings segments that were made ahead into memory and locks them there until the writer has left them (warmMapedFileEnable).
	Warm bool
	// Pool lends write buffers of SegmentSize (transientStorePoolEnable); nil: none. What is published is readable after
	// CommitBuffers then. The owner closes it after the log.
	Pool *mappedfile.Pool
	// Snapshot returns the position of the newest snapshot whose log bytes are in this log, zero when there is none. It is asked
	// when the recovery point or the journal is lost: what the snapshot covers is durable, and what is behind it comes again
	// from the Raft log. nil: such a loss is ErrCorrupt.
	Snapshot func() (Position, error)
	// Fetch copies the log bytes [from, to) of a peer to w, in order. Open asks for it when it finds damage
	// below the recovery point, and believes only what has the journal's checksum. nil: such damage is a DamageError.
	Fetch func(from, to int64, w io.Writer) error
	// KeepDamaged lets Open return a log whose damaged ranges could not be healed: they are in quarantine, everything else is served, and
	// Repair brings them back. False: such damage is a DamageError.
	KeepDamaged bool
	// RaftLast tells which entry the Raft log ends with, where that may lack what was applied (UnsafeSyncInterval and a power
	// cut): Open cuts later entries off. nil: the Raft log has all.
	RaftLast func() (uint64, error)
	// BeforePoint is called before the recovery point moves, on any goroutine: it makes the Raft log durable, where that is not so
	// anyway.
	BeforePoint func() error
	// QuarantineDir takes copies of what was damaged or given up (JournalDir/quarantine).
	QuarantineDir string
	// NoSpace is called on the writer's goroutine when the disk has no room for what it must write: true when room
	// was made, and the write is worth another attempt.
	NoSpace func() bool
	// Prepared tells how it went to make the next segments ahead, on the pre-allocation goroutine.
	Prepared func(error)
	Logger   hclog.Logger
	FS       mappedfile.FS // (the operating system's)
}

func (c *Config) ensureDefaults() {
	if c.SegmentSize == 0 {
		c.SegmentSize = 1 << 30
	}
	if c.AllocateStep == 0 {
		c.AllocateStep = 64 << 20
	}
	if c.JournalFileSize == 0 {
		c.JournalFileSize = 4 << 20
	}
	if c.VerifyBytes == 0 {
		c.VerifyBytes = 64 << 20
	}
	if c.MaxMapped == 0 {
		c.MaxMapped = 128
	}
	c.MaxMapped = max(c.MaxMapped, 0)
	if c.QuarantineDir == "" {
		c.QuarantineDir = filepath.Join(c.JournalDir, "quarantine")
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.FS == nil {
		c.FS = mappedfile.OS{}
	}
}

// Validate tells what is wrong.
func (c *Config) Validate() error {
	switch {
	case c.Dir == "" || c.JournalDir == "":
		return errors.New("commitlog: Dir and JournalDir must be set")
	case c.SegmentSize < mappedfile.PageSize || c.SegmentSize > math.MaxInt32:
		// The size field of a blank filler is a signed 4-byte integer.
		return fmt.Errorf("commitlog: segment size %d: must be %d to %d", c.SegmentSize, mappedfile.PageSize, math.MaxInt32)
	case c.AllocateStep < 0:
		return fmt.Errorf("commitlog: allocate step %d: must not be negative", c.AllocateStep)
	case c.JournalFileSize <= 0 || c.JournalFileSize%journalRecordSize != 0:
		return fmt.Errorf("commitlog: journal file size %d: must be a multiple of %d", c.JournalFileSize, journalRecordSize)
	}
	return nil
}

// Position is what a snapshot says about the log: replicated, equal on all nodes at equal RaftIndex.
type Position struct {
	RaftIndex, RaftTerm uint64
	LogEnd              int64 // physical offset after the last entry
	LastStoreTimestamp  int64 // ms
	MinOffset           int64 // the minimum as trimmed (Trim); files may go later
	QueueOffsets        []QueueOffset
}

// QueueOffset is the next offset of one queue.
type QueueOffset struct {
	Topic   string
	QueueID int32
	Next    int64
}

// Appended tells where records went.
type Appended struct {
	QueueOffset int64 // of the first
	PhyOffset   int64 // of the first; the others follow without gap
}

// tail is an end of log and journal: everything up to raft index is before it.
type tail struct {
	index, term uint64
	end         int64 // log
	pos         int64 // journal
}

// Log is the open log.
type Log struct {
	cfg     Config
	logger  hclog.Logger
	log     *mappedfile.Queue
	journal *journal

	recovered tail     // as Open found it
	remade    []Damage // segments that Open made again
	suspectMu sync.Mutex
	damagedMu sync.Mutex // serialises changes of damaged; taken before suspectMu
	damaged   atomic.Pointer[[]Damage]
	inMemory  int64      // stagedInMemory
	served    boundaries // of CheckServed
	installed struct {   // of AppliedFrom
		sync.Mutex
		pos int64 // journal position up to which it has looked
		end int64 // of the last installed range there
	}

	// The writer's.
	queues             queueTable
	lastStoreTimestamp int64
	last               tail   // of everything ended, whether published or not
	lastIndex          uint64 // of the last entry begun or restored; below last.index in replay
	lastTerm           uint64
	pos                int64 // where the next record goes; behind last.end in replay
	entry              entryState
	replay             replayState
	raw                rawState
	trimmed            int64 // the minimum that the entries have set; files may go later
	failed             error
	woke               tail // where the pre-allocation goroutine was last called

	published struct {
		sync.Mutex
		tail
	}
	hidden    atomic.Int64 // trimmed, for readers
	flushMu   sync.Mutex   // orders Flush and ResetTo; taken after pointMu
	flushedTo atomic.Int64
	point     struct {
		sync.Mutex // serialises the file; the first of all locks
		Point
	}

	began     time.Time
	preparing atomic.Int64 // ns after began since when a segment is being made ahead, 0: none is
	warmTold  bool         // of prepareLoop
	wake      chan struct{}
	stop      chan struct{}
	joined    sync.WaitGroup
	closed    atomic.Bool
}

// entryState is the entry between BeginEntry and EndEntry.
type entryState struct {
	open        bool
	replaying   bool
	index, term uint64
	start       int64
	crc         uint32
}

// MinOffset is the first readable physical offset.
func (l *Log) MinOffset() int64 { return max(l.hidden.Load(), l.log.MinOffset()) }

// FileMin is the first physical offset that a file holds: below MinOffset while trimmed segments wait for
// their removal.
func (l *Log) FileMin() int64 { return l.log.MinOffset() }

// MaxOffset is the end of what is published.
func (l *Log) MaxOffset() int64 { return l.log.MaxOffset() }

// FlushedTo is the end of what is durable, bytes and journal records.
func (l *Log) FlushedTo() int64 { return l.flushedTo.Load() }

// SegmentSize is the size of each segment.
func (l *Log) SegmentSize() int64 { return l.cfg.SegmentSize }

// Segments is the number of segments.
func (l *Log) Segments() int { return l.log.Files() }

// Mapped is how many segments are mapped now.
func (l *Log) Mapped() int { return l.log.Mapped() }

// Recovered is the last whole journalled entry that Open found: zero index and term when there is
// none. end is where the log ended.
func (l *Log) Recovered() (raftIndex, raftTerm uint64, end int64) {
	return l.recovered.index, l.recovered.term, l.recovered.end
}

// View returns the published bytes from off to at most off+max within off's segment. Outside
// [MinOffset, MaxOffset) it is mappedfile.ErrOutOfRange, in a damaged range ErrQuarantined; a view ends before such a range.
func (l *Log) View(off int64, max int) (mappedfile.View, error) {
	if low := l.hidden.Load(); off < low {
		return mappedfile.View{}, fmt.Errorf("%w: %d, the log was trimmed to %d", mappedfile.ErrOutOfRange, off, low)
	}
	return l.ViewKept(off, max)
}

// ViewKept is View that also sees what was trimmed, as long as its file is there: for who builds from the log, or
// sends it to a peer.
func (l *Log) ViewKept(off int64, max int) (mappedfile.View, error) {
	max, err := l.clip(off, max)
	if err != nil {
		return mappedfile.View{}, err
	}
	return l.log.View(off, max)
}

// Checksum is a CRC-32C over the published bytes [from, to); ErrQuarantined when some of them are damaged.
func (l *Log) Checksum(from, to int64) (uint32, error) {
	if err := l.whole(from, to); err != nil {
		return 0, err
	}
	return l.checksum(0, from, to)
}

// checksum goes on from crc with the bytes [from, to).
func (l *Log) checksum(crc uint32, from, to int64) (uint32, error) {
	const chunk = 1 << 20 // bounds how long a view is held
	for from < to {
		n, c, err := l.checksumView(crc, from, int(min(to-from, chunk)))
		if err != nil {
			return 0, err
		}
		crc = c
		from += int64(n)
	}
	return crc, nil
}

func (l *Log) checksumView(crc uint32, off int64, max int) (n int, sum uint32, err error) {
	v, err := l.log.View(off, max)
	if err != nil {
		return 0, 0, err
	}
	defer v.Release()
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	return len(v.Bytes), crc32.Update(crc, castagnoli, v.Bytes), nil
}

// pointPath is the recovery point's file.
func (c *Config) pointPath() string { return filepath.Join(c.JournalDir, pointName) }
