package main

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/fsm/retention"
)

// flagError says what is wrong with one flag's value.
type flagError struct {
	flag    string // without dashes
	value   any
	allowed string // "allowed is …", or the reason
}

func (e flagError) Error() string {
	if s, ok := e.value.(string); ok {
		return fmt.Sprintf("--%s %q: %s", e.flag, s, e.allowed)
	}
	return fmt.Sprintf("--%s %v: %s", e.flag, e.value, e.allowed)
}

var (
	nodeIDPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$`)
	// Cluster and broker names are topic names too, and get suffixes such as _REPLY_TOPIC.
	namePattern = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,64}$`)
)

// reservedNames are topics that a broker has by itself (spec: system topics), which a cluster's or
// group's own topic would collide with.
var reservedNames = []string{metadata.AutoCreateTopic, metadata.SelfTestTopic, metadata.BenchmarkTopic, metadata.ScheduleTopic, metadata.OffsetMoved,
	metadata.HalfTopic, metadata.OpHalfTopic, metadata.CheckMaxTopic, metadata.TraceTopic}

// Limits of the values below.
const (
	minSegmentSize       = 64 * kib
	maxSegmentSize       = 4 * gib // a record's size and a queue unit's are 32 bits, and one mapping stays handy
	segmentAlignment     = 4096
	minQueueFileSize     = 2000
	minMappedSegments    = 4
	maxPoolSize          = 64
	maxTransferBytes     = 8 * mib // with one more message below the frame that clients take (16 MiB)
	maxTransferCount     = 1024    // the broker's own bound
	maxLeastPages        = 1 << 20
	maxMappedSegments    = 30_000 // below vm.max_map_count, with the queues' files
	maxHashSlots         = 100_000_000
	maxIndexEntries      = 1_000_000_000 // 20 GB
	maxQueueFileSize     = gib
	minMessageSize       = kib
	maxMessageSize       = 7 * mib // far below what one Raft command may be, with properties
	minRaftBytes         = mib
	maxRaftBytes         = 64 * gib
	minUnsafeSync        = time.Millisecond
	maxUnsafeSync        = time.Minute
	minRaftTimeout       = 50 * time.Millisecond
	maxRaftTimeout       = time.Minute
	minDeadTimeout       = 10 * time.Second
	maxDeadTimeout       = 365 * 24 * time.Hour
	minStallTimeout      = 100 * time.Millisecond
	maxStallTimeout      = time.Hour
	maxScrubRate         = 100 * gib
	minReplicaCheck      = time.Second
	maxReplicaCheck      = 24 * time.Hour
	maxHoldWrites        = 2500 * time.Millisecond
	maxBootstrap         = 9
	maxTopicQueues       = 1024
	maxReservedTime      = 100 * 365 * 24 * time.Hour
	minTransaction       = 100 * time.Millisecond
	maxTransaction       = 24 * time.Hour
	maxTransactionChecks = 1000
	recordBytesBeside    = 33 * kib // properties (32,767) and fixed fields, topic and a blank's head
)

// maxBodyInSegment is the largest body whose record surely fits a segment.
func maxBodyInSegment(segmentSize int64) int64 { return max(segmentSize-recordBytesBeside, 0) }

// Validate checks each value and that they fit together, and returns all that is wrong, one line each.
func (c *Config) Validate() error {
	errs := c.checkIdentity()
	errs = append(errs, c.checkAddresses()...)
	errs = append(errs, c.checkCluster()...)
	errs = append(errs, c.checkStore()...)
	errs = append(errs, c.checkRaft()...)
	errs = append(errs, c.checkBroker()...)
	return errors.Join(errs...)
}

func (c *Config) checkIdentity() (errs []error) {
	bad := func(flag, value, allowed string) { errs = append(errs, flagError{flag, value, allowed}) }
	if !nodeIDPattern.MatchString(c.NodeID) {
		bad("node-id", c.NodeID, "allowed are 1 to 64 letters, digits, '.', '_' and '-', the first a letter or digit")
	}
	for _, n := range []struct{ flag, value string }{{"cluster-name", c.ClusterName}, {"broker-name", c.BrokerName}} {
		switch {
		case !namePattern.MatchString(n.value):
			bad(n.flag, n.value, "allowed are 1 to 64 letters, digits, '_' and '-'")
		case slices.Contains(reservedNames, n.value):
			bad(n.flag, n.value, "is the name of a system topic; allowed is any other")
		}
	}
	if c.ClusterName == c.BrokerName && c.ClusterName != "" {
		bad("broker-name", c.BrokerName, "contradicts --cluster-name of the same value: each is also a topic's name, so they must differ")
	}
	if c.DataDir == "" {
		bad("data-dir", c.DataDir, "allowed is a folder that this process may create and write")
	} else if st, err := os.Stat(c.DataDir); err == nil && !st.IsDir() {
		bad("data-dir", c.DataDir, "is a file; allowed is a folder")
	}
	if !slices.Contains([]string{"trace", "debug", "info", "warn", "error"}, c.LogLevel) {
		bad("log-level", c.LogLevel, "allowed are trace, debug, info, warn and error")
	}
	if c.LogFormat != logText && c.LogFormat != logJSON {
		bad("log-format", c.LogFormat, "allowed are text and json")
	}
	return errs
}

func (c *Config) checkAddresses() (errs []error) {
	if c.AdvertiseHost != "" {
		if err := checkReachable(c.AdvertiseHost, true); err != nil {
			errs = append(errs, flagError{"advertise-host", c.AdvertiseHost, err.Error()})
			return append(errs, c.checkListen()...) // derived addresses would repeat it
		}
	}
	errs = append(errs, c.checkListen()...)
	if len(errs) > 0 {
		return errs
	}
	seen := map[string]string{}
	for _, p := range c.ports() {
		flag := p.name + "-advertise"
		host, err := checkAddress(*p.advertise)
		if err == nil {
			err = checkReachable(host, p.literal)
		}
		if err != nil {
			errs = append(errs, flagError{flag, *p.advertise, err.Error()})
			continue
		}
		if other, taken := seen[*p.advertise]; taken {
			errs = append(errs, flagError{flag, *p.advertise, "contradicts --" + other + " of the same value: each port needs its own address"})
		}
		seen[*p.advertise] = flag
	}
	return errs
}

func (c *Config) checkListen() (errs []error) {
	ports := c.ports()
	for i, p := range ports {
		flag := p.name + "-address"
		if _, err := checkAddress(*p.listen); err != nil {
			errs = append(errs, flagError{flag, *p.listen, err.Error()})
			continue
		}
		for _, q := range ports[:i] {
			if sameListener(*p.listen, *q.listen) {
				errs = append(errs, flagError{flag, *p.listen, fmt.Sprintf("contradicts --%s-address %q: each needs a port of its own", q.name, *q.listen)})
			}
		}
	}
	return errs
}

// sameListener reports whether two listen addresses would take the same port of the same interface.
func sameListener(a, b string) bool {
	hostA, portA, errA := net.SplitHostPort(a)
	hostB, portB, errB := net.SplitHostPort(b)
	if errA != nil || errB != nil || portA != portB {
		return false
	}
	all := func(host string) bool {
		ip, err := netip.ParseAddr(host)
		return host == "" || err == nil && ip.IsUnspecified()
	}
	return hostA == hostB || all(hostA) || all(hostB)
}

func (c *Config) checkCluster() (errs []error) {
	for _, a := range c.Join {
		if _, err := checkAddress(a); err != nil {
			errs = append(errs, flagError{"join", a, err.Error()})
		}
	}
	if c.DeadServerTimeout != 0 {
		errs = append(errs, checkDuration("dead-server-timeout", c.DeadServerTimeout, minDeadTimeout, maxDeadTimeout)...)
	}
	switch {
	case c.BootstrapExpect < 0 || c.BootstrapExpect > maxBootstrap:
		errs = append(errs, flagError{"bootstrap-expect", c.BootstrapExpect, fmt.Sprintf("allowed are 0 to %d", maxBootstrap)})
	case c.BootstrapExpect == 1 && len(c.Join) > 0:
		errs = append(errs, flagError{"bootstrap-expect", 1, fmt.Sprintf(
			"contradicts --join %s: a cluster of one has nobody to meet; leave --bootstrap-expect out to join a cluster", strings.Join(c.Join, ","))})
	}
	return errs
}

// checkOrigin refuses a server that could never serve: no data yet, nobody to join, and no new
// cluster to form. It is apart from Validate since it looks at the folder's content.
func (c *Config) checkOrigin() error {
	if c.BootstrapExpect > 0 || len(c.Join) > 0 {
		return nil
	}
	entries, err := os.ReadDir(c.DataDir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return flagError{"data-dir", c.DataDir, err.Error()}
	}
	if len(entries) > 0 {
		return nil
	}
	return flagError{"bootstrap-expect", 0, fmt.Sprintf("%s holds no data and there is nobody to join; allowed are "+
		"--bootstrap-expect 1 for a new cluster of this node alone, --bootstrap-expect 3 with --join for a new cluster of three, "+
		"or --join to enter an existing one", c.DataDir)}
}

func (c *Config) checkStore() (errs []error) {
	if c.FlushDiskType != asyncFlush && c.FlushDiskType != syncFlush {
		errs = append(errs, flagError{"flush-disk-type", c.FlushDiskType, "allowed are ASYNC_FLUSH and SYNC_FLUSH"})
	}
	segment := c.MappedFileSizeCommitLog
	if segment < minSegmentSize || segment > maxSegmentSize || segment%segmentAlignment != 0 {
		errs = append(errs, flagError{"mapped-file-size-commit-log", formatSize(segment),
			fmt.Sprintf("allowed are multiples of %d from %s to %s", segmentAlignment, formatSize(minSegmentSize), formatSize(maxSegmentSize))})
	}
	errs = append(errs, checkSize("mapped-file-size-consume-queue", c.MappedFileSizeConsumeQueue, minQueueFileSize, maxQueueFileSize)...)
	if c.EnableConsumeQueueExt {
		errs = append(errs, flagError{"enable-consume-queue-ext", true, "allowed is false: the extension serves SQL92 filters, and this broker filters by tags; a folder that RocketMQ wrote with it is read by \"raftmq store\""})
	}
	errs = append(errs, checkDuration("flush-interval-commit-log", c.FlushIntervalCommitLog, time.Millisecond, time.Minute)...)
	errs = append(errs, checkNumber("flush-commit-log-least-pages", c.FlushCommitLogLeastPages, 0, maxLeastPages)...)
	errs = append(errs, checkDuration("flush-commit-log-thorough-interval", c.FlushCommitLogThoroughInterval, time.Millisecond, 10*time.Minute)...)
	errs = append(errs, checkDuration("sync-flush-timeout", c.SyncFlushTimeout, 10*time.Millisecond, time.Minute)...)
	errs = append(errs, checkDuration("os-page-cache-busy-timeout", c.OSPageCacheBusyTimeout, 10*time.Millisecond, time.Minute)...)
	if c.TransientStorePoolEnable && c.FlushDiskType == syncFlush {
		errs = append(errs, flagError{"transient-store-pool-enable", true, "contradicts --flush-disk-type SYNC_FLUSH, as in RocketMQ: allowed is ASYNC_FLUSH"})
	}
	errs = append(errs, checkNumber("transient-store-pool-size", c.TransientStorePoolSize, 1, maxPoolSize)...)
	errs = append(errs, checkDuration("commit-interval-commit-log", c.CommitIntervalCommitLog, time.Millisecond, time.Minute)...)
	errs = append(errs, checkDuration("commit-commit-log-thorough-interval", c.CommitCommitLogThoroughInterval, time.Millisecond, time.Minute)...)
	errs = append(errs, checkNumber("commit-commit-log-least-pages", c.CommitCommitLogLeastPages, 0, maxLeastPages)...)
	errs = append(errs, checkNumber("access-message-in-memory-max-ratio", c.AccessMessageInMemoryMaxRatio, 0, 100)...)
	errs = append(errs, checkSize("max-transfer-bytes-on-message-in-memory", c.MaxTransferBytesOnMessageInMemory, 1, maxTransferBytes)...)
	errs = append(errs, checkSize("max-transfer-bytes-on-message-in-disk", c.MaxTransferBytesOnMessageInDisk, 1, maxTransferBytes)...)
	errs = append(errs, checkNumber("max-transfer-count-on-message-in-memory", c.MaxTransferCountOnMessageInMemory, 1, maxTransferCount)...)
	errs = append(errs, checkNumber("max-transfer-count-on-message-in-disk", c.MaxTransferCountOnMessageInDisk, 1, maxTransferCount)...)
	if c.MaxMappedSegments < minMappedSegments || c.MaxMappedSegments > maxMappedSegments {
		errs = append(errs, flagError{"max-mapped-segments", c.MaxMappedSegments, fmt.Sprintf("allowed are %d to %d", minMappedSegments, maxMappedSegments)})
	}
	errs = append(errs, checkNumber("max-hash-slot-num", c.MaxHashSlotNum, 1, maxHashSlots)...)
	errs = append(errs, checkNumber("max-index-num", c.MaxIndexNum, 2, maxIndexEntries)...)
	errs = append(errs, c.checkRetention()...)
	sizeErrs := checkSize("max-message-size", c.MaxMessageSize, min(minMessageSize, maxBodyInSegment(segment)), maxMessageSize)
	if most := maxBodyInSegment(segment); len(sizeErrs) == 0 && segment >= minSegmentSize && c.MaxMessageSize > most {
		sizeErrs = append(sizeErrs, flagError{"max-message-size", formatSize(c.MaxMessageSize), fmt.Sprintf(
			"contradicts --mapped-file-size-commit-log %s: a message must fit a segment with its properties; allowed are at most %s", formatSize(segment), formatSize(most))})
	}
	return append(errs, sizeErrs...)
}

func (c *Config) checkRetention() []error {
	errs := checkDuration("file-reserved-time", c.FileReservedTime, time.Second, maxReservedTime)
	errs = append(errs, checkDuration("clean-resource-interval", c.CleanResourceInterval, 100*time.Millisecond, time.Hour)...)
	if _, err := retention.ParseDeleteWhen(c.DeleteWhen); err != nil {
		errs = append(errs, flagError{"delete-when", c.DeleteWhen, "allowed are hours of the day, 0 to 23, separated by ';'"})
	}
	errs = append(errs, checkNumber("disk-max-used-space-ratio", c.DiskMaxUsedSpaceRatio, 10, 95)...)
	errs = append(errs, checkNumber("disk-space-clean-forcibly-ratio", c.DiskSpaceCleanForciblyRatio, 30, 98)...)
	errs = append(errs, checkNumber("disk-space-warning-level-ratio", c.DiskSpaceWarningLevelRatio, 35, 98)...)
	if len(errs) == 0 && c.DiskSpaceWarningLevelRatio < c.DiskSpaceCleanForciblyRatio {
		errs = append(errs, flagError{"disk-space-warning-level-ratio", c.DiskSpaceWarningLevelRatio,
			fmt.Sprintf("contradicts --disk-space-clean-forcibly-ratio %d: allowed is that or more, or cleaning would come too late", c.DiskSpaceCleanForciblyRatio)})
	}
	return errs
}

func checkNumber(flag string, n, least, most int) []error {
	if n >= least && n <= most {
		return nil
	}
	return []error{flagError{flag, n, fmt.Sprintf("allowed are %d to %d", least, most)}}
}

func checkSize(flag string, n, least, most int64) []error {
	if n >= least && n <= most {
		return nil
	}
	return []error{flagError{flag, formatSize(n), fmt.Sprintf("allowed are %s to %s", formatSize(least), formatSize(most))}}
}

func (c *Config) checkRaft() (errs []error) {
	if c.RaftLogStore != raftLogWAL && c.RaftLogStore != raftLogBolt {
		errs = append(errs, flagError{"raft-log-store", c.RaftLogStore, "allowed are wal and bolt"})
	}
	if c.UnsafeRaftSyncInterval != 0 {
		errs = append(errs, checkDuration("unsafe-raft-sync-interval", c.UnsafeRaftSyncInterval, minUnsafeSync, maxUnsafeSync)...)
		if c.RaftLogStore == raftLogBolt {
			errs = append(errs, flagError{"unsafe-raft-sync-interval", c.UnsafeRaftSyncInterval,
				"contradicts --raft-log-store bolt: without syncs a bolt file does not survive a power cut at all; allowed is wal"})
		}
	}
	errs = append(errs, checkDuration("raft-heartbeat-timeout", c.RaftHeartbeatTimeout, minRaftTimeout, maxRaftTimeout)...)
	errs = append(errs, checkDuration("raft-election-timeout", c.RaftElectionTimeout, minRaftTimeout, maxRaftTimeout)...)
	if len(errs) == 0 && c.RaftElectionTimeout < c.RaftHeartbeatTimeout {
		errs = append(errs, flagError{"raft-election-timeout", c.RaftElectionTimeout,
			fmt.Sprintf("contradicts --raft-heartbeat-timeout %s: allowed is that or longer", c.RaftHeartbeatTimeout)})
	}
	errs = append(errs, checkSize("scrub-rate", c.ScrubRate, 0, maxScrubRate)...)
	errs = append(errs, checkDuration("rejoin-wait", c.RejoinWait, time.Second, 24*time.Hour)...)
	if c.ReplicaCheckInterval != 0 {
		errs = append(errs, checkDuration("replica-check-interval", c.ReplicaCheckInterval, minReplicaCheck, maxReplicaCheck)...)
	}
	errs = append(errs, checkDuration("disk-stall-timeout", c.DiskStallTimeout, minStallTimeout, maxStallTimeout)...)
	errs = append(errs, checkSize("raft-snapshot-bytes", c.RaftSnapshotBytes, minRaftBytes, maxRaftBytes)...)
	errs = append(errs, checkSize("catch-up-rate", c.CatchUpRate, 0, maxRaftBytes)...)
	return append(errs, checkSize("raft-trailing-bytes", c.RaftTrailingBytes, 0, maxRaftBytes)...)
}

func checkDuration(flag string, d, least, most time.Duration) []error {
	if d >= least && d <= most {
		return nil
	}
	return []error{flagError{flag, d, fmt.Sprintf("allowed are %s to %s", least, most)}}
}

func (c *Config) checkBroker() (errs []error) {
	errs = append(errs, checkDuration("hold-writes", c.HoldWrites, 0, maxHoldWrites)...)
	if c.LeaderAddress != "" {
		if host, err := checkAddress(c.LeaderAddress); err != nil || host == "" || strings.ContainsAny(host, ", \"{}") {
			errs = append(errs, flagError{"leader-address", c.LeaderAddress, "allowed is host:port, as clients reach it"})
		}
	}
	if c.DefaultTopicQueues < 1 || c.DefaultTopicQueues > maxTopicQueues {
		errs = append(errs, flagError{"default-topic-queues", c.DefaultTopicQueues, fmt.Sprintf("allowed are 1 to %d", maxTopicQueues)})
	}
	if _, err := command.ParseDelayLevels(c.MessageDelayLevel); err != nil {
		errs = append(errs, flagError{"message-delay-level", c.MessageDelayLevel, err.Error()})
	}
	errs = append(errs, checkDuration("transaction-timeout", c.TransactionTimeout, minTransaction, maxTransaction)...)
	errs = append(errs, checkDuration("transaction-check-interval", c.TransactionCheckInterval, minTransaction, maxTransaction)...)
	if c.TransactionCheckMax < 1 || c.TransactionCheckMax > maxTransactionChecks {
		errs = append(errs, flagError{"transaction-check-max", c.TransactionCheckMax, fmt.Sprintf("allowed are 1 to %d", maxTransactionChecks)})
	}
	return errs
}
