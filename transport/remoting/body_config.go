package remoting

import "encoding/json"

// TopicConfig is one topic's configuration (RocketMQ TopicConfig).
type TopicConfig struct {
	Attributes      map[string]string `json:"attributes,omitzero"` // 5.x
	Order           bool              `json:"order"`
	Perm            int32             `json:"perm"` // Perm… bits
	ReadQueueNums   int32             `json:"readQueueNums"`
	TopicFilterType string            `json:"topicFilterType"` // FilterSingleTag or FilterMultiTag
	TopicName       string            `json:"topicName"`
	TopicSysFlag    int32             `json:"topicSysFlag"` // TopicFlag… bits
	WriteQueueNums  int32             `json:"writeQueueNums"`
}

// UnmarshalJSON fills in Java's defaults for what is absent.
func (b *TopicConfig) UnmarshalJSON(text []byte) error {
	type plain TopicConfig
	p := plain{Perm: PermRead | PermWrite, ReadQueueNums: 16, WriteQueueNums: 16, TopicFilterType: FilterSingleTag}
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	*b = TopicConfig(p)
	return nil
}

// Decode reads b from body.
func (b *TopicConfig) Decode(body []byte) error {
	*b = TopicConfig{}
	return decodeBody(body, b, "topic configuration")
}

// Encode returns the body.
func (b *TopicConfig) Encode() []byte { return encodeBody(b) }

// TopicConfigSerializeWrapper is the answer's body of GET_ALL_TOPIC_CONFIG (21).
type TopicConfigSerializeWrapper struct {
	DataVersion        DataVersion            `json:"dataVersion"`
	MappingDataVersion *DataVersion           `json:"mappingDataVersion,omitempty"` // 5.x
	TopicConfigTable   map[string]TopicConfig `json:"topicConfigTable"`
}

// Decode reads b from body.
func (b *TopicConfigSerializeWrapper) Decode(body []byte) error {
	*b = TopicConfigSerializeWrapper{}
	return decodeBody(body, b, "topic table")
}

// Encode returns the body.
func (b *TopicConfigSerializeWrapper) Encode() []byte {
	c := *b
	if c.TopicConfigTable == nil {
		c.TopicConfigTable = map[string]TopicConfig{}
	}
	return encodeBody(&c)
}

// SubscriptionGroupConfig is one consumer group's configuration and the body of
// UPDATE_AND_CREATE_SUBSCRIPTIONGROUP (200) (RocketMQ SubscriptionGroupConfig).
type SubscriptionGroupConfig struct {
	Attributes                     map[string]string `json:"attributes,omitzero"` // 5.x
	BrokerID                       int64             `json:"brokerId"`
	ConsumeBroadcastEnable         bool              `json:"consumeBroadcastEnable"`
	ConsumeEnable                  bool              `json:"consumeEnable"`
	ConsumeFromMinEnable           bool              `json:"consumeFromMinEnable"`
	ConsumeMessageOrderly          *bool             `json:"consumeMessageOrderly,omitempty"` // 5.x
	ConsumeTimeoutMinute           *int32            `json:"consumeTimeoutMinute,omitempty"`  // 5.x
	GroupName                      string            `json:"groupName"`
	GroupRetryPolicy               json.RawMessage   `json:"groupRetryPolicy,omitempty"` // 5.x, as it came
	GroupSysFlag                   *int32            `json:"groupSysFlag,omitempty"`     // 5.x
	NotifyConsumerIDsChangedEnable bool              `json:"notifyConsumerIdsChangedEnable"`
	RetryMaxTimes                  int32             `json:"retryMaxTimes"`
	RetryQueueNums                 int32             `json:"retryQueueNums"`
	WhichBrokerWhenConsumeSlowly   int64             `json:"whichBrokerWhenConsumeSlowly"`
}

// DefaultSubscriptionGroup returns what a broker gives a group that it creates itself.
func DefaultSubscriptionGroup(group string) SubscriptionGroupConfig {
	return SubscriptionGroupConfig{
		ConsumeBroadcastEnable: true, ConsumeEnable: true, ConsumeFromMinEnable: true, GroupName: group,
		NotifyConsumerIDsChangedEnable: true, RetryMaxTimes: 16, RetryQueueNums: 1, WhichBrokerWhenConsumeSlowly: 1,
	}
}

// UnmarshalJSON fills in Java's defaults for what is absent.
func (b *SubscriptionGroupConfig) UnmarshalJSON(text []byte) error {
	type plain SubscriptionGroupConfig
	p := plain(DefaultSubscriptionGroup(""))
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	*b = SubscriptionGroupConfig(p)
	return nil
}

// Decode reads b from body.
func (b *SubscriptionGroupConfig) Decode(body []byte) error {
	*b = SubscriptionGroupConfig{}
	return decodeBody(body, b, "group configuration")
}

// Encode returns the body.
func (b *SubscriptionGroupConfig) Encode() []byte { return encodeBody(b) }

// SubscriptionGroupTable is the answer's body of GET_ALL_SUBSCRIPTIONGROUP_CONFIG
// (201) (RocketMQ SubscriptionGroupWrapper).
type SubscriptionGroupTable struct {
	DataVersion            DataVersion                        `json:"dataVersion"`
	SubscriptionGroupTable map[string]SubscriptionGroupConfig `json:"subscriptionGroupTable"`
}

// Decode reads b from body.
func (b *SubscriptionGroupTable) Decode(body []byte) error {
	*b = SubscriptionGroupTable{}
	return decodeBody(body, b, "group table")
}

// Encode returns the body.
func (b *SubscriptionGroupTable) Encode() []byte {
	c := *b
	if c.SubscriptionGroupTable == nil {
		c.SubscriptionGroupTable = map[string]SubscriptionGroupConfig{}
	}
	return encodeBody(&c)
}
