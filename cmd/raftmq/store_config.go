package main

import (
	"net"
	"path/filepath"
	"strconv"

	"raftmq/commitlog/store"
)

// poolSize is the number of write buffers, 0 without TransientStorePoolEnable.
func (c *Config) poolSize() int {
	if !c.TransientStorePoolEnable {
		return 0
	}
	return c.TransientStorePoolSize
}

// hotBytes is AccessMessageInMemoryMaxRatio in bytes for the store, whose 0 is its default.
func (c *Config) hotBytes() int64 {
	if c.AccessMessageInMemoryMaxRatio == 0 {
		return -1
	}
	return store.MemoryBytes() / 100 * int64(c.AccessMessageInMemoryMaxRatio)
}

// orNone is a number of pages for the store, whose 0 is its default.
func orNone(pages int) int {
	if pages == 0 {
		return -1
	}
	return pages
}

// properties are the lines of GET_BROKER_CONFIG that this node was started with.
func (c *Config) properties() map[string]string {
	return map[string]string{
		"brokerClusterName": c.ClusterName, "brokerName": c.BrokerName, "storePathRootDir": filepath.Join(c.DataDir, "store"),
		"listenPort":              portOf(c.ClientAdvertise),
		"mappedFileSizeCommitLog": strconv.FormatInt(c.MappedFileSizeCommitLog, 10), "mappedFileSizeConsumeQueue": strconv.FormatInt(c.MappedFileSizeConsumeQueue, 10),
		"fileReservedTime": strconv.FormatFloat(c.FileReservedTime.Hours(), 'f', -1, 64), "deleteWhen": c.DeleteWhen, "cleanResourceInterval": strconv.FormatInt(c.CleanResourceInterval.Milliseconds(), 10),
		"diskMaxUsedSpaceRatio": strconv.Itoa(c.DiskMaxUsedSpaceRatio), "cleanFileForciblyEnable": strconv.FormatBool(c.CleanFileForciblyEnable),
		"diskSpaceWarningLevelRatio": strconv.Itoa(c.DiskSpaceWarningLevelRatio), "diskSpaceCleanForciblyRatio": strconv.Itoa(c.DiskSpaceCleanForciblyRatio),
		"messageIndexEnable": strconv.FormatBool(c.MessageIndexEnable), "maxHashSlotNum": strconv.Itoa(c.MaxHashSlotNum), "maxIndexNum": strconv.Itoa(c.MaxIndexNum),
		"transientStorePoolEnable": strconv.FormatBool(c.TransientStorePoolEnable), "transientStorePoolSize": strconv.Itoa(c.TransientStorePoolSize),
		"flushIntervalCommitLog":            strconv.FormatInt(c.FlushIntervalCommitLog.Milliseconds(), 10),
		"flushCommitLogLeastPages":          strconv.Itoa(c.FlushCommitLogLeastPages),
		"flushCommitLogThoroughInterval":    strconv.FormatInt(c.FlushCommitLogThoroughInterval.Milliseconds(), 10),
		"syncFlushTimeout":                  strconv.FormatInt(c.SyncFlushTimeout.Milliseconds(), 10),
		"osPageCacheBusyTimeOutMills":       strconv.FormatInt(c.OSPageCacheBusyTimeout.Milliseconds(), 10),
		"commitIntervalCommitLog":           strconv.FormatInt(c.CommitIntervalCommitLog.Milliseconds(), 10),
		"commitCommitLogLeastPages":         strconv.Itoa(c.CommitCommitLogLeastPages),
		"commitCommitLogThoroughInterval":   strconv.FormatInt(c.CommitCommitLogThoroughInterval.Milliseconds(), 10),
		"accessMessageInMemoryMaxRatio":     strconv.Itoa(c.AccessMessageInMemoryMaxRatio),
		"maxTransferBytesOnMessageInMemory": strconv.FormatInt(c.MaxTransferBytesOnMessageInMemory, 10),
		"maxTransferCountOnMessageInMemory": strconv.Itoa(c.MaxTransferCountOnMessageInMemory),
		"maxTransferBytesOnMessageInDisk":   strconv.FormatInt(c.MaxTransferBytesOnMessageInDisk, 10),
		"maxTransferCountOnMessageInDisk":   strconv.Itoa(c.MaxTransferCountOnMessageInDisk),
		"warmMapedFileEnable":               strconv.FormatBool(c.WarmMappedFileEnable), "enableConsumeQueueExt": "false",
		"flushDiskType": c.FlushDiskType, "maxMessageSize": strconv.FormatInt(c.MaxMessageSize, 10),
		"autoCreateTopicEnable": strconv.FormatBool(c.AutoCreateTopic), "autoCreateSubscriptionGroup": strconv.FormatBool(c.AutoCreateGroup),
		"defaultTopicQueueNums": strconv.Itoa(c.DefaultTopicQueues), "messageDelayLevel": c.MessageDelayLevel,
		"transactionTimeOut": strconv.FormatInt(c.TransactionTimeout.Milliseconds(), 10), "transactionCheckMax": strconv.Itoa(c.TransactionCheckMax),
		"transactionCheckInterval": strconv.FormatInt(c.TransactionCheckInterval.Milliseconds(), 10),
	}
}

func portOf(hostPort string) string {
	_, port, _ := net.SplitHostPort(hostPort)
	return port
}
