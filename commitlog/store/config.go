package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/go-hclog"

	"raftmq/commitlog"
	"raftmq/commitlog/consumequeue"
	"raftmq/commitlog/dispatch"
	"raftmq/commitlog/keyindex"
	"raftmq/commitlog/mappedfile"
	"raftmq/flush"
	"raftmq/seam"
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
	FlushLeastPages  int           // flushCommitLogLeastPages (4; negative: 0)
	FlushThorough    time.Duration // flushCommitLogThoroughInterval (10 s)
	SyncFlushTimeout time.Duration // (5 s)
	// MaxMappedSegments bounds how many segments are mapped at a time; others are mapped again by who reads them (128; negative:
	// all are mapped).
	MaxMappedSegments int
	// AllocateTimeout is how long making the next segment ahead may take before no messages are taken, if little is left of the present
	// one (5 s, as RocketMQ waits for a file).
	AllocateTimeout time.Duration
	// TransientStorePoolSize is how many write buffers of SegmentSize the log has (0: none, RocketMQ's transientStorePoolEnable with 5):
	// Apply fills memory then, and a commit thread carries it to the segments. Readers and dispatch see what is
	// committed. ASYNC_FLUSH only. CommitInterval (200 ms), CommitLeastPages (4) and CommitThoroughInterval (200 ms) are its
	// commitIntervalCommitLog and the like.
	TransientStorePoolSize                 int
	CommitInterval, CommitThoroughInterval time.Duration
	CommitLeastPages                       int // negative: 0
	// HotBytes is how far behind the log's end a message counts as still in memory (accessMessageInMemoryMaxRatio: 40 % of the
	// machine's memory; negative: nothing does). TransferInMemory (262,144 bytes, 32 messages) and TransferOnDisk (65,536 bytes, 8
	// messages) bound a Get of such messages and of others.
	HotBytes                         int64
	TransferInMemory, TransferOnDisk Transfer
	// WarmMappedFile brings segments that were made ahead into memory and locks them there (warmMapedFileEnable).
	WarmMappedFile bool
	// VerifyBytes is how much of the log below the recovery point Open verifies, in whole entries (64 MiB; negative: nothing).
	VerifyBytes int64
	// Snapshot returns the position of the newest snapshot whose log bytes are in this store, zero when there is none. Asked
	// when the journal or its recovery point is lost; nil: the node does not start then.
	Snapshot func() (Position, error)
	// RaftLast and BeforePoint are for a Raft log that syncs on a timer; see commitlog.Config.
	RaftLast    func() (uint64, error)
	BeforePoint func() error
	// Fetch copies the log bytes [from, to) of a peer to w. Asked when log bytes below the recovery point are damaged; nil:
	// the node does not start then.
	Fetch func(from, to int64, w io.Writer) error
	// Copies are the nodes to ask for damaged log bytes, best first, as they are known now; asked on the repair's goroutine. With it damage
	// neither keeps the store from opening nor stops it: what is damaged is not served before it is repaired, all else is.
	Copies func(context.Context) []Copy
	// Sums is the checksum of a whole sealed segment that the replicas have agreed on (CRC-32C), false when there is none. OnDiverged is called
	// when this node's segment has another one, although each of its entries is what the journal says. nil: there are none.
	Sums       func(segment int64) (sum uint32, ok bool)
	OnDiverged func(from, to int64, err error)
	// ScrubRate is how many bytes of log are verified a second, again and again (16 MiB; negative: none).
	ScrubRate int64
	Logger    hclog.Logger
	// OnFatal is called once when the node must stop: a local disk error in the append
	// path, a failed flush, a dead dispatcher. Default: panic. It runs on a goroutine that
	// Close joins, or on a caller's: it must return soon and leave closing to another one.
	OnFatal func(error)

	// DelayLevels decides the deliver times in the schedule topic's queues; the same on all
	// nodes (RocketMQ's eighteen, dispatch.DefaultLevels).
	DelayLevels []time.Duration
	// PointInterval is how often queues and log are flushed and the recovery points move, when
	// there is something new (5 s); PointBytes of new log move them at once (64 MiB). A restart
	// verifies and dispatches again what is behind the points.
	PointInterval time.Duration
	PointBytes    int64

	// MessageIndexEnable keeps the key index, of files with MaxHashSlotNum slots (5,000,000) and
	// MaxIndexNum entries (20,000,000; one less can be used). Local; other numbers build the
	// index again. Switched on later it is built from the whole log.
	MessageIndexEnable          bool
	MaxHashSlotNum, MaxIndexNum int

	// AllocateStep is how many bytes of a log segment are taken ahead of need (64 MiB).
	AllocateStep int64
	// DiskWarningRatio is the percentage of a partition in use above which the disk counts as full and no
	// messages are taken (diskSpaceWarningLevelRatio, 90); MinFreeBytes the least usable space on top of it (0: none).
	DiskWarningRatio int
	MinFreeBytes     int64
	// ReserveBytes is a file of blocks put by for messages that were accepted before the disk was found to be full
	// (0: none). As long as it cannot be made the disk counts as full.
	ReserveBytes int64
	// SpaceInterval is how often the disk is looked at (1 s), with Disk (StatDisk).
	SpaceInterval time.Duration
	Disk          func(path string) Disk
	// PageCacheBusyTimeout is how long one Apply batch may take before messages are refused as
	// OS_PAGECACHE_BUSY (osPageCacheBusyTimeOutMills, 1 s).
	PageCacheBusyTimeout time.Duration
	// PinTimeout is how long a reader of old segments may stand still before they are removed all the
	// same (destroyMapedFileIntervalForcibly, 120 s).
	PinTimeout time.Duration
	Now        func() time.Time // (time.Now)

	// FS holds log, journal and queue files (the operating system's); tests replace it.
	FS mappedfile.FS
}

func (c *Config) fillIn() {
	if seam.On(seam.ServeDamage) {
		c.VerifyBytes = -1
	}
	if c.SegmentSize == 0 {
		c.SegmentSize = 1 << 30
	}
	if c.QueueFileSize == 0 {
		c.QueueFileSize = consumequeue.DefaultFileSize
	}
	c.QueueFileSize = (c.QueueFileSize + consumequeue.UnitSize - 1) / consumequeue.UnitSize * consumequeue.UnitSize
	if c.MaxMessageSize == 0 {
		c.MaxMessageSize = 4 << 20
	}
	if c.FlushInterval == 0 {
		c.FlushInterval = 500 * time.Millisecond
	}
	if c.SyncFlushTimeout == 0 {
		c.SyncFlushTimeout = 5 * time.Second
	}
	if c.AllocateTimeout == 0 {
		c.AllocateTimeout = 5 * time.Second
	}
	if c.HotBytes == 0 {
		c.HotBytes = MemoryBytes() / 100 * 40
	}
	c.TransferInMemory.fillIn(transferInMemory)
	c.TransferOnDisk.fillIn(transferOnDisk)
	if c.ScrubRate == 0 {
		c.ScrubRate = DefaultScrubRate
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.OnFatal == nil {
		c.OnFatal = func(err error) { panic(err) }
	}
	if c.DelayLevels == nil {
		c.DelayLevels = dispatch.DefaultLevels()
	}
	if c.PointInterval == 0 {
		c.PointInterval = 5 * time.Second
	}
	if c.PointBytes == 0 {
		c.PointBytes = 64 << 20
	}
	if c.DiskWarningRatio == 0 {
		c.DiskWarningRatio = 90
	}
	if c.SpaceInterval == 0 {
		c.SpaceInterval = time.Second
	}
	if c.Disk == nil {
		c.Disk = StatDisk
	}
	if c.PageCacheBusyTimeout == 0 {
		c.PageCacheBusyTimeout = time.Second
	}
	if c.PinTimeout == 0 {
		c.PinTimeout = 2 * time.Minute
	}
	if c.Now == nil {
		c.Now = time.Now
	}
}

func (c *Config) validate() error {
	switch {
	case c.Dir == "":
		return errors.New("store: no data folder given")
	case c.SegmentSize < 4096 || c.SegmentSize%4096 != 0 || c.SegmentSize > 1<<31-4096:
		return fmt.Errorf("store: segment size %d: must be a multiple of 4096 below 2 GiB", c.SegmentSize)
	case c.QueueFileSize < consumequeue.UnitSize:
		return fmt.Errorf("store: queue file size %d: must be positive", c.QueueFileSize)
	case c.DiskWarningRatio < 1 || c.DiskWarningRatio > 100:
		return fmt.Errorf("store: disk warning ratio %d: must be 1 to 100 percent", c.DiskWarningRatio)
	case c.MinFreeBytes < 0 || c.ReserveBytes < 0:
		return fmt.Errorf("store: least free %d, reserve %d bytes: must not be negative", c.MinFreeBytes, c.ReserveBytes)
	case c.TransientStorePoolSize < 0:
		return fmt.Errorf("store: transient store pool of %d: must not be negative", c.TransientStorePoolSize)
	case c.TransientStorePoolSize > 0 && c.FlushMode == SyncFlush:
		return errors.New("store: the transient store pool works with ASYNC_FLUSH only, as in RocketMQ")
	case c.FlushMode > SyncFlush:
		return fmt.Errorf("store: flush mode %d: 0 (async) or 1 (sync)", c.FlushMode)
	}
	index := keyindex.Config{Slots: c.MaxHashSlotNum, Entries: c.MaxIndexNum}
	return index.Validate()
}

// Sentinel errors.
var (
	// ErrClosed: the store was closed.
	ErrClosed = errors.New("store: closed")
	// ErrNotFound: no record begins at the physical offset.
	ErrNotFound = errors.New("store: no record at this offset")
	// ErrFlushTimeout: not durable in time; it may become so later (FLUSH_DISK_TIMEOUT).
	ErrFlushTimeout = flush.ErrTimeout
	// ErrLocked: another store, here or in another process, has the folder.
	ErrLocked = errors.New("store: data folder is in use")
	// ErrFolder: the folder is of another format, segment size or program.
	ErrFolder = errors.New("store: unusable data folder")
	// ErrStopped: the store has failed (OnFatal was called) and does nothing any more.
	ErrStopped = errors.New("store: stopped by an earlier error")
	// ErrRecords: what Append was given is not n records of this topic and queue, or the topic or
	// queue id can't be one.
	ErrRecords = commitlog.ErrRecords
	// ErrTooLarge: the records cannot fit an empty segment.
	ErrTooLarge = commitlog.ErrTooLarge
	// ErrBehind: a snapshot is ahead of the log. Install first.
	ErrBehind = commitlog.ErrBehind
	// ErrDiverged: the log is not what snapshot or entries say. The node must stop.
	ErrDiverged = commitlog.ErrDiverged
	// ErrInstall: bytes of an installation that are no log.
	ErrInstall = errors.New("store: bytes to install are no log")
)
