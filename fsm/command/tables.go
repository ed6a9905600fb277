package command

import "time"

// Settings are fixed once at bootstrap and equal on all nodes (Same-Bytes needs SegmentSize).
type Settings struct {
	ClusterID       string `json:"clusterId"`
	ClusterName     string `json:"clusterName"`
	BrokerName      string `json:"brokerName"`
	SegmentSize     int64  `json:"segmentSize"`
	AutoCreateTopic bool   `json:"autoCreateTopic"`
	AutoCreateGroup bool   `json:"autoCreateGroup"`
	// DefaultTopicQueues is TBW102's queue count (8).
	DefaultTopicQueues int `json:"defaultTopicQueues"`
	// MessageDelayLevel is RocketMQ's setting of that name (see ParseDelayLevels); empty means its default. It
	// decides bytes of the schedule topic's queues.
	MessageDelayLevel string `json:"messageDelayLevel,omitempty"`
}

// DelayLevels are the delays of levels 1, 2, … of this cluster.
func (s Settings) DelayLevels() []time.Duration {
	text := s.MessageDelayLevel
	if text == "" {
		text = DefaultDelayLevels
	}
	levels, err := ParseDelayLevels(text)
	if err != nil {
		panic(err) // checked before it was proposed
	}
	return levels
}

// NodePut stores or changes a node's addresses. Apply gives a new node the next free
// number ≥ 1, its stable broker id as a replica.
type NodePut struct {
	ID         string `json:"id"`
	ClientAddr string `json:"clientAddr"`
	RaftAddr   string `json:"raftAddr"`
	HTTPAddr   string `json:"httpAddr,omitempty"`
	Version    string `json:"version,omitempty"`
}

// NodeDelete forgets a removed node.
type NodeDelete struct {
	ID string `json:"id"`
}

// TopicConfig is RocketMQ's.
type TopicConfig struct {
	TopicName       string `json:"topicName"`
	ReadQueueNums   int    `json:"readQueueNums"`
	WriteQueueNums  int    `json:"writeQueueNums"`
	Perm            int    `json:"perm"`
	TopicFilterType string `json:"topicFilterType"`
	TopicSysFlag    int    `json:"topicSysFlag"`
	Order           bool   `json:"order"`
}

// TopicPut creates or changes a topic. With OnlyIfAbsent an existing one stays as it is.
type TopicPut struct {
	Topic        TopicConfig `json:"topic"`
	OnlyIfAbsent bool        `json:"onlyIfAbsent,omitempty"`
	Millis       int64       `json:"millis"` // leader's clock, for the data version
}

// TopicDelete removes a topic, its consumer offsets, and hides its messages. Queue offsets
// go on where they were, so that an offset never means two messages.
type TopicDelete struct {
	Topic  string `json:"topic"`
	Millis int64  `json:"millis"`
}

// GroupConfig is RocketMQ's SubscriptionGroupConfig.
type GroupConfig struct {
	GroupName                      string `json:"groupName"`
	ConsumeEnable                  bool   `json:"consumeEnable"`
	ConsumeFromMinEnable           bool   `json:"consumeFromMinEnable"`
	ConsumeBroadcastEnable         bool   `json:"consumeBroadcastEnable"`
	RetryQueueNums                 int    `json:"retryQueueNums"`
	RetryMaxTimes                  int    `json:"retryMaxTimes"`
	BrokerID                       int64  `json:"brokerId"`
	WhichBrokerWhenConsumeSlowly   int64  `json:"whichBrokerWhenConsumeSlowly"`
	NotifyConsumerIDsChangedEnable bool   `json:"notifyConsumerIdsChangedEnable"`
}

// DefaultGroup is what an automatically created group gets.
func DefaultGroup(name string) GroupConfig {
	return GroupConfig{GroupName: name, ConsumeEnable: true, ConsumeFromMinEnable: true, ConsumeBroadcastEnable: true,
		RetryQueueNums: 1, RetryMaxTimes: 16, WhichBrokerWhenConsumeSlowly: 1, NotifyConsumerIDsChangedEnable: true}
}

// GroupPut creates or changes a subscription group.
type GroupPut struct {
	Group        GroupConfig `json:"group"`
	OnlyIfAbsent bool        `json:"onlyIfAbsent,omitempty"`
	Millis       int64       `json:"millis"`
}

// GroupDelete removes a group, and its consumer offsets when RemoveOffsets is set.
type GroupDelete struct {
	Group         string `json:"group"`
	RemoveOffsets bool   `json:"removeOffsets,omitempty"`
	Millis        int64  `json:"millis"`
}

// OffsetsCommit sets consumer offsets, in order; later ones win.
type OffsetsCommit struct {
	Offsets []ConsumerOffset `json:"offsets"`
}

// ConsumerOffset is the next offset that a group wants from a queue.
type ConsumerOffset struct {
	Topic   string `json:"t"`
	Group   string `json:"g"`
	QueueID int32  `json:"q"`
	Offset  int64  `json:"o"`
}

// KVPut and KVDelete change the name server's KV table.
type KVPut struct {
	Namespace string `json:"namespace"`
	Key       string `json:"key"`
	Value     string `json:"value"`
}

// TransactionCheck notes that producers were really asked for the state of half messages (F21), given by queue offset.
type TransactionCheck struct {
	Checked []int64 `json:"checked,omitempty"`
	// LostBelow: half messages below it are no longer in the log, and count as ended.
	LostBelow int64 `json:"lostBelow,omitempty"`
}

// KVDelete removes a key.
type KVDelete struct {
	Namespace string `json:"namespace"`
	Key       string `json:"key"`
}
