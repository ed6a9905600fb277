package remoting

import (
	"encoding/json"
	"strconv"
)

// Values of ConsumerData.ConsumeType, MessageModel and ConsumeFromWhere.
const (
	ConsumeActively  = "CONSUME_ACTIVELY"  // pull consumers
	ConsumePassively = "CONSUME_PASSIVELY" // push consumers
	ConsumePop       = "CONSUME_POP"       // 5.x

	Clustering   = "CLUSTERING"
	Broadcasting = "BROADCASTING"

	ConsumeFromLastOffset  = "CONSUME_FROM_LAST_OFFSET"
	ConsumeFromFirstOffset = "CONSUME_FROM_FIRST_OFFSET"
	ConsumeFromTimestamp   = "CONSUME_FROM_TIMESTAMP"
)

// SubscriptionData is a consumer's subscription to one topic.
type SubscriptionData struct {
	ClassFilterMode bool `json:"classFilterMode"`
	// CodeSet holds the client's hash codes of TagsSet. Go and Java disagree about
	// tags beyond ASCII, so a broker computes its own.
	CodeSet        CodeSet  `json:"codeSet"`
	ExpressionType string   `json:"expressionType"` // ExpressionTag when absent
	SubString      string   `json:"subString"`
	SubVersion     int64    `json:"subVersion"` // ms from Java, ns from Go
	TagsSet        []string `json:"tagsSet"`
	Topic          string   `json:"topic"`
}

// UnmarshalJSON fills in Java's defaults for what is absent.
func (d *SubscriptionData) UnmarshalJSON(text []byte) error {
	type plain SubscriptionData
	p := struct {
		plain
		SubVersion json.Number `json:"subVersion"` // the C++ client quotes it
	}{plain: plain{ExpressionType: ExpressionTag}}
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	if p.SubVersion != "" {
		var err error
		if p.plain.SubVersion, err = strconv.ParseInt(p.SubVersion.String(), 10, 64); err != nil {
			return err
		}
	}
	if p.ExpressionType == "" {
		p.ExpressionType = ExpressionTag
	}
	*d = SubscriptionData(p.plain)
	return nil
}

// MarshalJSON writes empty sets for nil ones.
func (d SubscriptionData) MarshalJSON() ([]byte, error) {
	type plain SubscriptionData
	d.CodeSet, d.TagsSet = list(d.CodeSet), list(d.TagsSet)
	return encodeBody(plain(d)), nil
}

// CodeSet is a list of tag hash codes. The Go client writes them as strings.
type CodeSet []int32

// UnmarshalJSON takes numbers with and without quotes.
func (s *CodeSet) UnmarshalJSON(text []byte) error {
	var numbers []json.Number
	if err := json.Unmarshal(text, &numbers); err != nil {
		return err
	}
	*s = make(CodeSet, 0, len(numbers))
	for _, n := range numbers {
		code, err := strconv.ParseInt(n.String(), 10, 32)
		if err != nil {
			return err
		}
		*s = append(*s, int32(code))
	}
	return nil
}

// ConsumerData is one consumer group of a heartbeat.
type ConsumerData struct {
	ConsumeFromWhere    string             `json:"consumeFromWhere"`
	ConsumeType         string             `json:"consumeType"`
	GroupName           string             `json:"groupName"`
	MessageModel        string             `json:"messageModel"`
	SubscriptionDataSet []SubscriptionData `json:"subscriptionDataSet"`
	UnitMode            bool               `json:"unitMode"`
}

// UnmarshalJSON takes enumerations by name and, as fastjson does and the C++ client writes them, by their place in Java's.
func (d *ConsumerData) UnmarshalJSON(text []byte) error {
	type plain ConsumerData
	var p struct {
		plain
		ConsumeFromWhere json.RawMessage `json:"consumeFromWhere"`
		ConsumeType      json.RawMessage `json:"consumeType"`
		MessageModel     json.RawMessage `json:"messageModel"`
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return err
	}
	for _, e := range []struct {
		into  *string
		text  json.RawMessage
		names []string
	}{
		{&p.plain.ConsumeFromWhere, p.ConsumeFromWhere, []string{"CONSUME_FROM_LAST_OFFSET", "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
			"CONSUME_FROM_MIN_OFFSET", "CONSUME_FROM_MAX_OFFSET", "CONSUME_FROM_FIRST_OFFSET", "CONSUME_FROM_TIMESTAMP"}},
		{&p.plain.ConsumeType, p.ConsumeType, []string{"CONSUME_ACTIVELY", "CONSUME_PASSIVELY"}},
		{&p.plain.MessageModel, p.MessageModel, []string{"BROADCASTING", "CLUSTERING"}},
	} {
		if len(e.text) == 0 || string(e.text) == "null" {
			continue
		}
		if n, err := strconv.Atoi(string(e.text)); err == nil && n >= 0 && n < len(e.names) {
			*e.into = e.names[n]
		} else if err := json.Unmarshal(e.text, e.into); err != nil {
			return err
		}
	}
	*d = ConsumerData(p.plain)
	return nil
}

// ProducerData is one producer group of a heartbeat.
type ProducerData struct {
	GroupName string `json:"groupName"`
}

// HeartbeatData is the body of HEART_BEAT (34).
type HeartbeatData struct {
	ClientID             string         `json:"clientID"`
	ConsumerDataSet      []ConsumerData `json:"consumerDataSet"`
	HeartbeatFingerprint int32          `json:"heartbeatFingerprint,omitzero"` // 5.x
	ProducerDataSet      []ProducerData `json:"producerDataSet"`
	WithoutSub           bool           `json:"withoutSub,omitzero"` // 5.x: subscriptions left out, unchanged
}

// Decode reads b from body.
func (b *HeartbeatData) Decode(body []byte) error {
	*b = HeartbeatData{}
	return decodeBody(body, b, "heartbeat")
}

// Encode returns the body.
func (b *HeartbeatData) Encode() []byte {
	c := *b
	c.ConsumerDataSet = append([]ConsumerData{}, c.ConsumerDataSet...)
	for i := range c.ConsumerDataSet {
		c.ConsumerDataSet[i].SubscriptionDataSet = list(c.ConsumerDataSet[i].SubscriptionDataSet)
	}
	c.ProducerDataSet = list(c.ProducerDataSet)
	return encodeBody(&c)
}

// CheckClientConfig is the body of CHECK_CLIENT_CONFIG (46).
type CheckClientConfig struct {
	ClientID         string           `json:"clientId"`
	Group            string           `json:"group"`
	Namespace        string           `json:"namespace,omitempty"`
	SubscriptionData SubscriptionData `json:"subscriptionData"`
}

// Decode reads b from body.
func (b *CheckClientConfig) Decode(body []byte) error {
	*b = CheckClientConfig{}
	return decodeBody(body, b, "client configuration")
}

// Encode returns the body.
func (b *CheckClientConfig) Encode() []byte { return encodeBody(b) }

// ConsumerList is the answer's body of GET_CONSUMER_LIST_BY_GROUP (38).
type ConsumerList struct {
	ConsumerIDList []string `json:"consumerIdList"`
}

// Decode reads b from body.
func (b *ConsumerList) Decode(body []byte) error {
	*b = ConsumerList{}
	return decodeBody(body, b, "consumer list")
}

// Encode returns the body.
func (b *ConsumerList) Encode() []byte {
	return encodeBody(&ConsumerList{ConsumerIDList: list(b.ConsumerIDList)})
}

// LockBatchRequest is the body of LOCK_BATCH_MQ (41) and UNLOCK_BATCH_MQ (42).
type LockBatchRequest struct {
	ClientID       string         `json:"clientId"`
	ConsumerGroup  string         `json:"consumerGroup"`
	MQSet          []MessageQueue `json:"mqSet"`
	OnlyThisBroker *bool          `json:"onlyThisBroker,omitempty"` // 5.x
}

// Decode reads b from body.
func (b *LockBatchRequest) Decode(body []byte) error {
	*b = LockBatchRequest{}
	return decodeBody(body, b, "lock request")
}

// Encode returns the body.
func (b *LockBatchRequest) Encode() []byte {
	c := *b
	c.MQSet = list(c.MQSet)
	return encodeBody(&c)
}

// LockBatchResponse is the answer's body of LOCK_BATCH_MQ (41): the queues that the
// client now holds.
type LockBatchResponse struct {
	LockOKMQSet []MessageQueue `json:"lockOKMQSet"`
}

// Decode reads b from body.
func (b *LockBatchResponse) Decode(body []byte) error {
	*b = LockBatchResponse{}
	return decodeBody(body, b, "lock answer")
}

// Encode returns the body.
func (b *LockBatchResponse) Encode() []byte {
	return encodeBody(&LockBatchResponse{LockOKMQSet: list(b.LockOKMQSet)})
}
