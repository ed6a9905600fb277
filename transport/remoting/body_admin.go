package remoting

import "strconv"

// ClientOffsets is what a consumer answers to GET_CONSUMER_STATUS_FROM_CLIENT (221): where it is in each queue (a part
// of RocketMQ's GetConsumerStatusBody).
type ClientOffsets struct {
	MessageQueueTable []QueueOffset
}

// Decode reads b from body.
func (b *ClientOffsets) Decode(body []byte) (err error) {
	b.MessageQueueTable, err = decodeOffsets(body, "messageQueueTable", "consumer status")
	return err
}

// Encode returns the body.
func (b *ClientOffsets) Encode() []byte {
	return append(appendOffsets([]byte(`{"consumerTable":{},"messageQueueTable":`), b.MessageQueueTable), '}')
}

// ConsumerStatus is the answer's body of INVOKE_BROKER_TO_GET_CONSUMER_STATUS (223), by client id.
type ConsumerStatus struct {
	Clients []ClientStatus
}

// ClientStatus is one client of a ConsumerStatus.
type ClientStatus struct {
	ClientID string
	Offsets  []QueueOffset
}

// Encode returns the body.
func (b *ConsumerStatus) Encode() []byte {
	dst := []byte(`{"consumerTable":{`)
	for i := range b.Clients {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendJSONString(dst, b.Clients[i].ClientID), ':')
		dst = appendOffsets(dst, b.Clients[i].Offsets)
	}
	return append(dst, `},"messageQueueTable":{}}`...)
}

// ResetOffsetForC is the body of RESET_CONSUMER_CLIENT_OFFSET (220) for C++ tools: a plain list (RocketMQ ResetOffsetBodyForC).
type ResetOffsetForC struct {
	OffsetTable []QueueOffset
}

// Encode returns the body.
func (b *ResetOffsetForC) Encode() []byte {
	dst := []byte(`{"offsetTable":[`)
	for i := range b.OffsetTable {
		if i > 0 {
			dst = append(dst, ',')
		}
		q := &b.OffsetTable[i].Queue
		dst = appendJSONString(append(dst, `{"brokerName":`...), q.BrokerName)
		dst = strconv.AppendInt(append(dst, `,"offset":`...), b.OffsetTable[i].Offset, 10)
		dst = strconv.AppendInt(append(dst, `,"queueId":`...), int64(q.QueueID), 10)
		dst = append(appendJSONString(append(dst, `,"topic":`...), q.Topic), '}')
	}
	return append(dst, `]}`...)
}

// BrokerConsumeStats is the answer's body of GET_BROKER_CONSUME_STATS (317): of each group, one ConsumeStats a topic.
type BrokerConsumeStats struct {
	BrokerAddr string
	Groups     []GroupConsumeStats
	TotalDiff  int64
}

// GroupConsumeStats is one group of a BrokerConsumeStats.
type GroupConsumeStats struct {
	Group  string
	Topics []ConsumeStats
}

// Encode returns the body.
func (b *BrokerConsumeStats) Encode() []byte {
	dst := appendJSONString([]byte(`{"brokerAddr":`), b.BrokerAddr)
	dst = append(dst, `,"consumeStatsList":[`...)
	for i := range b.Groups {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendJSONString(append(dst, '{'), b.Groups[i].Group), ":["...)
		for j := range b.Groups[i].Topics {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = append(dst, b.Groups[i].Topics[j].Encode()...)
		}
		dst = append(dst, "]}"...)
	}
	dst = strconv.AppendInt(append(dst, `],"totalDiff":`...), b.TotalDiff, 10)
	return append(dst, '}')
}

// QueueTimeSpan is one queue of a TimeSpans body; times are store times in ms, -1 for none.
type QueueTimeSpan struct {
	ConsumeTimeStamp    int64        `json:"consumeTimeStamp"`
	ConsumeTimeStampStr string       `json:"consumeTimeStampStr"`
	DelayTime           int64        `json:"delayTime"` // ms since the next message to be consumed was stored
	MaxTimeStamp        int64        `json:"maxTimeStamp"`
	MaxTimeStampStr     string       `json:"maxTimeStampStr"`
	MessageQueue        MessageQueue `json:"messageQueue"`
	MinTimeStamp        int64        `json:"minTimeStamp"`
	MinTimeStampStr     string       `json:"minTimeStampStr"`
}

// TimeSpans is the answer's body of QUERY_CONSUME_TIME_SPAN (303).
type TimeSpans struct {
	Queues []QueueTimeSpan `json:"consumeTimeSpanSet"`
}

// Encode returns the body.
func (b *TimeSpans) Encode() []byte {
	c := TimeSpans{Queues: list(b.Queues)}
	return encodeBody(&c)
}

// ConsumeQueueUnit is one unit of a ConsumeQueueRange.
type ConsumeQueueUnit struct {
	Eval           bool  `json:"eval"`
	PhysicalOffset int64 `json:"physicOffset"`
	PhysicalSize   int32 `json:"physicSize"`
	TagsCode       int64 `json:"tagsCode"`
}

// ConsumeQueueRange is the answer's body of QUERY_CONSUME_QUEUE (321).
type ConsumeQueueRange struct {
	FilterData    string             `json:"filterData,omitempty"`
	MaxQueueIndex int64              `json:"maxQueueIndex"`
	MinQueueIndex int64              `json:"minQueueIndex"`
	QueueData     []ConsumeQueueUnit `json:"queueData"`
	Subscription  *SubscriptionData  `json:"subscriptionData,omitempty"`
}

// Encode returns the body.
func (b *ConsumeQueueRange) Encode() []byte {
	c := *b
	c.QueueData = list(c.QueueData)
	return encodeBody(&c)
}
