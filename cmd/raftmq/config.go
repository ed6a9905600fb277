package main

import (
	"fmt"
	"time"

	"raftmq/fsm/command"

	"github.com/spf13/pflag"
)

// Config is everything that a server is told: by flags, by the environment (RAFTMQ_ and the
// flag's name in capitals, "-" as "_") and by a YAML file whose keys are the flags' names; the
// first of these that names a value wins. loadConfig fills it, completes what is left to
// defaults, and validates it: a Config that reaches startNode is complete and consistent.
//
// Sizes are bytes. Addresses are host:port with a numeric port.
type Config struct {
	// NodeID is this node's name for life: it is written into the data folder, and a folder
	// of another node is refused. 1 to 64 letters, digits, '.', '_', '-'. Default: the host's name.
	NodeID string
	// ClusterName is RocketMQ's cluster name, equal on all nodes and fixed at bootstrap. It is also a
	// topic of that name, hence the characters allowed.
	ClusterName string
	// BrokerName is the RocketMQ broker name of this node's Raft group, equal on its members and
	// fixed at bootstrap.
	BrokerName string
	// DataDir is the folder for the commit log, consume queues, Raft log, snapshots and identity.
	DataDir string

	// ClientAddress is where clients connect, for the broker and for the name-server requests.
	ClientAddress string
	// RaftAddress is where peers replicate.
	RaftAddress string
	// GossipAddress is where memberlist listens, TCP and UDP.
	GossipAddress string
	// HTTPAddress is where status, health and metrics pages are served.
	HTTPAddress string

	// AdvertiseHost is the IP address under which others reach all four ports. Default for each
	// port: the host it listens on; where it listens on all interfaces, this machine's first
	// global address. An …Advertise below overrides it for one port.
	AdvertiseHost string
	// ClientAdvertise is what routes and message ids tell clients. Its host is an IP literal, as
	// stock clients put it into records and the Go client refuses names. Filled in by loadConfig.
	ClientAdvertise string
	// RaftAdvertise is what peers dial; a host name is allowed. Filled in by loadConfig.
	RaftAdvertise string
	// GossipAdvertise is what memberlist tells others, an IP literal. Filled in by loadConfig.
	GossipAdvertise string
	// HTTPAdvertise is what status pages link to; a host name is allowed. Filled in by loadConfig.
	HTTPAdvertise string

	// Join lists gossip addresses of nodes to meet; one that answers is enough.
	Join []string
	// BootstrapExpect is how many nodes must have met before exactly one of them forms the new
	// cluster. 0: never, this node only joins one or has data already. It has no effect on a
	// node with data.
	BootstrapExpect int
	// DeadServerTimeout removes a node that neither gossip nor Raft has heard of for so long; 0 leaves that to an operator.
	DeadServerTimeout time.Duration

	// FlushDiskType is ASYNC_FLUSH or SYNC_FLUSH: whether an answer also waits for this
	// leader's own commit log flush. The quorum's fsync of the Raft log comes first in both.
	FlushDiskType string
	// MappedFileSizeCommitLog is the commit log's segment size: cluster-wide, fixed at bootstrap,
	// because it decides physical offsets. A multiple of 4096.
	MappedFileSizeCommitLog int64
	// MappedFileSizeConsumeQueue is the size of a consume queue file, rounded up to units of 20
	// by the store. Local.
	MappedFileSizeConsumeQueue int64
	// EnableConsumeQueueExt is RocketMQ's setting of that name: extension files with SQL92 bitmaps. This broker filters by tags and has
	// none, so true is refused.
	EnableConsumeQueueExt bool
	// MaxMappedSegments is how many commit log segments are mapped at a time. Others are mapped again by who reads them, so that
	// terabytes of log cost neither page tables nor descriptors. Local.
	MaxMappedSegments int
	// FlushIntervalCommitLog, FlushCommitLogLeastPages and FlushCommitLogThoroughInterval are ASYNC_FLUSH's: how often the commit log is flushed, how
	// many pages must wait for it, and how often fewer do. SyncFlushTimeout is how long a SYNC_FLUSH answer waits, and
	// OSPageCacheBusyTimeout how long an Apply batch may take before messages are refused. RocketMQ's; local.
	FlushIntervalCommitLog         time.Duration
	FlushCommitLogLeastPages       int
	FlushCommitLogThoroughInterval time.Duration
	SyncFlushTimeout               time.Duration
	OSPageCacheBusyTimeout         time.Duration
	// TransientStorePoolEnable, TransientStorePoolSize and CommitIntervalCommitLog, CommitCommitLogLeastPages,
	// CommitCommitLogThoroughInterval are RocketMQ's: Apply fills one of so many buffers of a segment's size, and a commit thread
	// carries it to the log. With ASYNC_FLUSH only. Local.
	TransientStorePoolEnable        bool
	TransientStorePoolSize          int
	CommitIntervalCommitLog         time.Duration
	CommitCommitLogLeastPages       int
	CommitCommitLogThoroughInterval time.Duration
	// WarmMappedFileEnable brings the next segments into memory and locks them there (warmMapedFileEnable). Local.
	WarmMappedFileEnable bool
	// AccessMessageInMemoryMaxRatio is the percentage of the machine's memory within which of the log's end messages count as in memory,
	// and the others bound one pull of such messages and of those behind them (RocketMQ's). Local.
	AccessMessageInMemoryMaxRatio     int
	MaxTransferBytesOnMessageInMemory int64
	MaxTransferCountOnMessageInMemory int
	MaxTransferBytesOnMessageInDisk   int64
	MaxTransferCountOnMessageInDisk   int
	// SlaveReadEnable sends consumers that are behind what is in memory to a replica. Local: the node that answers counts.
	SlaveReadEnable bool
	// TraceTopicEnable has the leader make RMQ_SYS_TRACE_TOPIC, and store with each message what consumers of 5.3.3 need to trace it. Local: the leader's
	// counts.
	TraceTopicEnable bool
	// MessageIndexEnable keeps the key index that queries by key and by unique key need. Local. Switched on
	// later, it is built from the whole log while the node serves.
	MessageIndexEnable bool
	// MaxHashSlotNum and MaxIndexNum are the slots and entries of an index file, local: 4 and 20 bytes each.
	// Other numbers build the index again.
	MaxHashSlotNum, MaxIndexNum int

	// FileReservedTime is how long messages are kept: whole segments go when their newest record is older. What of the following
	// the leader is told counts.
	FileReservedTime time.Duration
	// CleanResourceInterval is how often the leader looks for what is to go.
	CleanResourceInterval time.Duration
	// DeleteWhen are the hours of the day, local time, in which old segments go, separated by ';'.
	DeleteWhen string
	// DiskMaxUsedSpaceRatio is the percentage of the disk in use above which old segments go at any hour;
	// DiskSpaceCleanForciblyRatio that above which segments go whatever their age if CleanFileForciblyEnable; and
	// DiskSpaceWarningLevelRatio, which each node looks at for itself, that above which no messages are taken.
	DiskMaxUsedSpaceRatio, DiskSpaceCleanForciblyRatio, DiskSpaceWarningLevelRatio int
	CleanFileForciblyEnable                                                        bool

	// RaftLogStore is wal (hashicorp/raft-wal) or bolt (raft-boltdb). It can't change on a folder
	// with data.
	RaftLogStore string
	// UnsafeRaftSyncInterval syncs the Raft log on a timer instead of before each acknowledgement. 0: never so. It can lose
	// acknowledged messages when a majority of machines loses power within an interval (Quorum-Durable does not hold);
	// killed processes lose nothing. With RaftLogStore wal only.
	UnsafeRaftSyncInterval time.Duration
	// RaftHeartbeatTimeout is how long a follower hears nothing before it asks for votes.
	RaftHeartbeatTimeout time.Duration
	// ScrubRate is how many bytes of the commit log are verified a second, 0 for none; ReplicaCheckInterval how often the leader compares what
	// all nodes hold, 0 for never.
	ScrubRate            int64
	ReplicaCheckInterval time.Duration
	// RejoinWait is how long a node whose data is not to be believed waits for a majority of the others before it ends.
	RejoinWait time.Duration
	// DiskStallTimeout is how long a write or fsync may take before the node stands aside (raftnode.Config).
	DiskStallTimeout time.Duration
	// RaftElectionTimeout is how long a candidate waits for votes; at least RaftHeartbeatTimeout.
	RaftElectionTimeout time.Duration
	// RaftSnapshotBytes is how many bytes of Raft log are written before a snapshot is taken.
	// It bounds the replay at a restart.
	RaftSnapshotBytes int64
	// RaftTrailingBytes is how many bytes of Raft log stay behind a snapshot, so that a follower that
	// was away for a moment needs no snapshot.
	RaftTrailingBytes int64

	// CatchUpRate is how many bytes a second this node fetches from the leader when it is so far behind that the Raft log does not reach
	// back to it. 0: as fast as it goes.
	CatchUpRate int64

	// MaxMessageSize is the largest body, and the largest batch. It and the properties must
	// fit a segment; left to its default it is lowered to what a small segment takes.
	MaxMessageSize int64
	// HoldWrites is how long a write waits for a leader during an election before it is refused
	// with SERVICE_NOT_AVAILABLE. It stays below the clients' 3 s send timeout. 0: not at all.
	HoldWrites time.Duration
	// ForwardWrites makes a follower that knows its leader pass writes on to it, where it would refuse them. Clients that ask for routes
	// every 30 s only then notice no change of leader, as long as the node that they send to is there; each write costs a node more.
	ForwardWrites bool
	// LeaderAddress is published as broker id 0 instead of the leader's own address: an address that the operator points at whoever leads, with
	// the HTTP check /health/leader behind a proxy or a Kubernetes Service. The same on all nodes.
	LeaderAddress string
	// AutoCreateTopic creates unknown topics at the first send, as through TBW102. Fixed at bootstrap.
	AutoCreateTopic bool
	// AutoCreateGroup creates unknown consumer groups at their first heartbeat. Fixed at bootstrap.
	AutoCreateGroup bool
	// DefaultTopicQueues is TBW102's queue count, the most that an automatically created topic gets. Fixed at
	// bootstrap.
	DefaultTopicQueues int
	// MessageDelayLevel is RocketMQ's setting of that name: the delays of levels 1, 2, …, numbers with a unit s, m, h or
	// d, separated by spaces. Cluster-wide, fixed at bootstrap.
	MessageDelayLevel string
	// TransactionTimeout is how old a half message is before its producer is asked about it (transactionTimeOut).
	TransactionTimeout time.Duration
	// TransactionCheckInterval is the time between two such rounds.
	TransactionCheckInterval time.Duration
	// TransactionCheckMax is how often a producer is asked before the message goes to TRANS_CHECK_MAX_TIME_TOPIC.
	TransactionCheckMax int

	// TestClockOffsetFile makes this node's clock be off by what the file says (testclock.go). For RaftMQ's own tests.
	TestClockOffsetFile string
	now                 func() time.Time // nil: the machine's clock

	// LogLevel is trace, debug, info, warn or error.
	LogLevel string
	// LogFormat is text or json, one line an event, on standard error.
	LogFormat string
}

// Values of FlushDiskType, as RocketMQ names them, and of RaftLogStore and LogFormat.
const (
	asyncFlush = "ASYNC_FLUSH"
	syncFlush  = "SYNC_FLUSH"

	raftLogWAL  = "wal"
	raftLogBolt = "bolt"

	logText = "text"
	logJSON = "json"
)

// Size units.
const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// serverFlags registers a flag for every field of c; its default becomes the field's value.
func serverFlags(fs *pflag.FlagSet, c *Config) {
	fs.SortFlags = false
	fs.StringVar(&c.NodeID, "node-id", defaultNodeID(), "this node's `name`, for life")
	fs.StringVar(&c.ClusterName, "cluster-name", "DefaultCluster", "RocketMQ cluster `name`, equal on all nodes")
	fs.StringVar(&c.BrokerName, "broker-name", "raftmq-a", "RocketMQ broker `name` of the Raft group, equal on its members")
	fs.StringVar(&c.DataDir, "data-dir", "raftmq-data", "`folder` of this node's data")

	fs.StringVar(&c.ClientAddress, "client-address", "0.0.0.0:9876", "listen `host:port` for clients; also the name server's")
	fs.StringVar(&c.RaftAddress, "raft-address", "0.0.0.0:9877", "listen `host:port` for Raft peers")
	fs.StringVar(&c.GossipAddress, "gossip-address", "0.0.0.0:9878", "listen `host:port` for gossip, TCP and UDP")
	fs.StringVar(&c.HTTPAddress, "http-address", "0.0.0.0:9879", "listen `host:port` for status, health and metrics")
	fs.StringVar(&c.AdvertiseHost, "advertise-host", "", "`IP` under which others reach all four ports (default: where it listens, or this machine's first address)")
	fs.StringVar(&c.ClientAdvertise, "client-advertise", "", "`IP:port` told to clients, when it differs")
	fs.StringVar(&c.RaftAdvertise, "raft-advertise", "", "`host:port` told to Raft peers, when it differs")
	fs.StringVar(&c.GossipAdvertise, "gossip-advertise", "", "`IP:port` told to gossip peers, when it differs")
	fs.StringVar(&c.HTTPAdvertise, "http-advertise", "", "`host:port` of the HTTP page, when it differs")

	fs.StringSliceVar(&c.Join, "join", nil, "gossip `addresses` of nodes to meet, separated by commas; one is enough")
	fs.IntVar(&c.BootstrapExpect, "bootstrap-expect", 0, "form a new cluster once this `number` of nodes have met; 0 only joins")

	fs.DurationVar(&c.DeadServerTimeout, "dead-server-timeout", 0, "remove a node that has been silent for this `duration`, if a quorum of the others answers; 0 never")

	fs.StringVar(&c.FlushDiskType, "flush-disk-type", asyncFlush, "`mode` "+asyncFlush+", or "+syncFlush+": an answer also waits for the commit log's flush")
	sizeVar(fs, &c.MappedFileSizeCommitLog, "mapped-file-size-commit-log", gib, "commit log segment `size`, equal on all nodes, fixed at bootstrap")
	sizeVar(fs, &c.MappedFileSizeConsumeQueue, "mapped-file-size-consume-queue", 6_000_000, "consume queue file `size`")
	fs.BoolVar(&c.EnableConsumeQueueExt, "enable-consume-queue-ext", false, "consume queue extension files; not in this broker, so only false is allowed")
	fs.IntVar(&c.MaxMappedSegments, "max-mapped-segments", 128, "commit log segments that are mapped at a time, `number`")
	fs.DurationVar(&c.FlushIntervalCommitLog, "flush-interval-commit-log", 500*time.Millisecond, "ASYNC_FLUSH: `duration` between two flushes")
	fs.IntVar(&c.FlushCommitLogLeastPages, "flush-commit-log-least-pages", 4, "`number` of 4 KiB pages that such a flush waits for")
	fs.DurationVar(&c.FlushCommitLogThoroughInterval, "flush-commit-log-thorough-interval", 10*time.Second, "`duration` after which it flushes less")
	fs.DurationVar(&c.SyncFlushTimeout, "sync-flush-timeout", 5*time.Second, "SYNC_FLUSH: `duration` after which an answer says FLUSH_DISK_TIMEOUT; the message is stored")
	fs.DurationVar(&c.OSPageCacheBusyTimeout, "os-page-cache-busy-timeout", time.Second, "refuse messages while the log has been writing one batch for longer than this `duration`")
	fs.BoolVar(&c.TransientStorePoolEnable, "transient-store-pool-enable", false, "write the commit log through a pool of buffers and a commit thread; with ASYNC_FLUSH")
	fs.IntVar(&c.TransientStorePoolSize, "transient-store-pool-size", 5, "`number` of those buffers, each as long as a segment")
	fs.DurationVar(&c.CommitIntervalCommitLog, "commit-interval-commit-log", 200*time.Millisecond, "commit thread's `duration` between two looks")
	fs.IntVar(&c.CommitCommitLogLeastPages, "commit-commit-log-least-pages", 4, "`number` of 4 KiB pages that the commit thread waits for")
	fs.DurationVar(&c.CommitCommitLogThoroughInterval, "commit-commit-log-thorough-interval", 200*time.Millisecond, "`duration` after which it commits less")
	fs.BoolVar(&c.WarmMappedFileEnable, "warm-mapped-file-enable", false, "bring the next segments into memory and lock them there")
	fs.IntVar(&c.AccessMessageInMemoryMaxRatio, "access-message-in-memory-max-ratio", 40, "messages within this `percent` of the machine's memory of the log's end count as in memory")
	sizeVar(fs, &c.MaxTransferBytesOnMessageInMemory, "max-transfer-bytes-on-message-in-memory", 256*kib, "most of a pull of such messages, `size`")
	fs.IntVar(&c.MaxTransferCountOnMessageInMemory, "max-transfer-count-on-message-in-memory", 32, "and their most `number`")
	sizeVar(fs, &c.MaxTransferBytesOnMessageInDisk, "max-transfer-bytes-on-message-in-disk", 64*kib, "most of a pull of other messages, `size`")
	fs.IntVar(&c.MaxTransferCountOnMessageInDisk, "max-transfer-count-on-message-in-disk", 8, "and their most `number`")
	fs.BoolVar(&c.TraceTopicEnable, "trace-topic-enable", false, "make RMQ_SYS_TRACE_TOPIC, to which clients with tracing send what they did with messages, and store MSG_REGION and TRACE_ON with each message, without which consumers of 5.3.3 trace none")
	fs.BoolVar(&c.SlaveReadEnable, "slave-read-enable", false, "send consumers that are behind what is in memory to a replica")
	fs.BoolVar(&c.MessageIndexEnable, "message-index-enable", true, "keep the key index, for queries by key and unique key")
	fs.IntVar(&c.MaxHashSlotNum, "max-hash-slot-num", 5_000_000, "`number` of hash slots of a key index file")
	fs.IntVar(&c.MaxIndexNum, "max-index-num", 20_000_000, "`number` of entries of a key index file")

	fs.DurationVar(&c.FileReservedTime, "file-reserved-time", 72*time.Hour, "keep messages for this `duration`; the leader's value counts, here and below")
	fs.DurationVar(&c.CleanResourceInterval, "clean-resource-interval", 10*time.Second, "look for messages to delete once in this `duration`")
	fs.StringVar(&c.DeleteWhen, "delete-when", "04", "`hours` of the day in which older ones are deleted, separated by ';'")
	fs.IntVar(&c.DiskMaxUsedSpaceRatio, "disk-max-used-space-ratio", 75, "`percent` of the disk in use above which older ones are deleted at any hour")
	fs.IntVar(&c.DiskSpaceCleanForciblyRatio, "disk-space-clean-forcibly-ratio", 85, "`percent` of the disk in use above which messages are deleted whatever their age")
	fs.BoolVar(&c.CleanFileForciblyEnable, "clean-file-forcibly-enable", true, "allow that")
	fs.IntVar(&c.DiskSpaceWarningLevelRatio, "disk-space-warning-level-ratio", 90, "`percent` of this node's disk in use above which it takes no messages")

	fs.StringVar(&c.RaftLogStore, "raft-log-store", raftLogWAL, "Raft log `store`: "+raftLogWAL+" or "+raftLogBolt)
	fs.DurationVar(&c.UnsafeRaftSyncInterval, "unsafe-raft-sync-interval", 0, "fsync the Raft log only every `duration`: faster, and a power cut can lose acknowledged messages; 0 fsyncs before each acknowledgement")
	fs.DurationVar(&c.RaftHeartbeatTimeout, "raft-heartbeat-timeout", 800*time.Millisecond, "silence of the leader before an election, `duration`")
	fs.DurationVar(&c.RaftElectionTimeout, "raft-election-timeout", 800*time.Millisecond, "wait for votes, `duration`; at least the heartbeat timeout")
	fs.DurationVar(&c.DiskStallTimeout, "disk-stall-timeout", 5*time.Second, "a write or fsync that takes longer than this `duration` makes the node give leadership up until its disk is well")
	sizeVar(fs, &c.ScrubRate, "scrub-rate", 16*mib, "verify so much of the commit log a second in the background, `size`; 0 never does")
	fs.DurationVar(&c.RejoinWait, "rejoin-wait", time.Minute, "a node with a damaged Raft log, or another commit log than the others, waits so long for a majority of them to be filled from, and ends then, `duration`")
	fs.DurationVar(&c.ReplicaCheckInterval, "replica-check-interval", time.Minute, "the leader compares what all nodes hold every `duration`; 0 never does")
	sizeVar(fs, &c.RaftSnapshotBytes, "raft-snapshot-bytes", 128*mib, "Raft log `size` after which a snapshot is taken")
	sizeVar(fs, &c.RaftTrailingBytes, "raft-trailing-bytes", 128*mib, "Raft log `size` kept behind a snapshot for late followers")
	sizeVar(fs, &c.CatchUpRate, "catch-up-rate", 0, "fetch at most this `size` a second from the leader while this node is far behind; 0 no limit")

	sizeVar(fs, &c.MaxMessageSize, "max-message-size", 4*mib, "largest message body or batch, `size`")
	fs.DurationVar(&c.HoldWrites, "hold-writes", time.Second, "wait for a leader before a write is refused, `duration`")
	fs.StringVar(&c.LeaderAddress, "leader-address", "", "publish `host:port` as the leader's address: one that a proxy with the check /health/leader points at whoever leads")
	fs.BoolVar(&c.ForwardWrites, "forward-writes", false, "pass clients' writes on to the leader instead of refusing them on a follower")
	fs.BoolVar(&c.AutoCreateTopic, "auto-create-topic", true, "create unknown topics at the first send; fixed at bootstrap")
	fs.BoolVar(&c.AutoCreateGroup, "auto-create-group", true, "create unknown consumer groups at the first heartbeat; fixed at bootstrap")
	fs.IntVar(&c.DefaultTopicQueues, "default-topic-queues", 8, "`number` of queues that an automatically created topic gets at most; fixed at bootstrap")

	fs.StringVar(&c.MessageDelayLevel, "message-delay-level", command.DefaultDelayLevels, "`delays` of levels 1, 2, …; equal on all nodes, fixed at bootstrap")
	fs.DurationVar(&c.TransactionTimeout, "transaction-timeout", 6*time.Second, "age at which a producer is first asked about a half message, `duration`")
	fs.DurationVar(&c.TransactionCheckInterval, "transaction-check-interval", time.Minute, "time between two rounds of asking, `duration`")
	fs.IntVar(&c.TransactionCheckMax, "transaction-check-max", 15, "`number` of times that a producer is asked before a half message is given up")

	const testClockFlag = "test-clock-offset-file"
	fs.StringVar(&c.TestClockOffsetFile, testClockFlag, "", "for RaftMQ's own tests: `file` that says how far this node's clock is off")
	_ = fs.MarkHidden(testClockFlag) // there is such a flag

	fs.StringVar(&c.LogLevel, "log-level", "info", "`level` trace, debug, info, warn or error")
	fs.StringVar(&c.LogFormat, "log-format", logText, "`format` text or json")
}

// Values of NodeStatus.Mode.
const (
	modeDurable = "durable"
	modeUnsafe  = "unsafe"
)

// mode is Durability in a word.
func (c *Config) mode() string {
	if c.UnsafeRaftSyncInterval > 0 {
		return modeUnsafe
	}
	return modeDurable
}

// Durability says in words what SEND_OK promises in this configuration (Quorum-Durable).
func (c *Config) Durability() string {
	if c.UnsafeRaftSyncInterval > 0 {
		return fmt.Sprintf("UNSAFE: SEND_OK after a majority has the message in memory; Raft logs are fsynced every %s (--unsafe-raft-sync-interval), "+
			"so a power cut of a majority can lose acknowledged messages", c.UnsafeRaftSyncInterval)
	}
	const quorum = "SEND_OK after a majority has fsynced the Raft log"
	if c.FlushDiskType == syncFlush {
		return quorum + " and the leader has flushed its commit log (SYNC_FLUSH)"
	}
	return quorum + "; the commit log is flushed in the background (ASYNC_FLUSH)"
}

// wallClock is what this node takes for the time.
func (c *Config) wallClock() time.Time {
	if c.now == nil {
		return time.Now()
	}
	return c.now()
}
