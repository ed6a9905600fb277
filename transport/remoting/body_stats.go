package remoting

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
)

// Tables keyed by MessageQueue are not JSON: fastjson writes the queue's object itself
// where a key should be, and its parser takes nothing else:
//
//	{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"T"}:value,…}}
//
// They are slices here, so that the order of entries is kept. The readers also take
// the queue's object as a quoted string, which is how JSON libraries write such maps.

// appendMQKey appends q as a map key.
func appendMQKey(dst []byte, q *MessageQueue) []byte {
	dst = append(dst, `{"brokerName":`...)
	dst = appendJSONString(dst, q.BrokerName)
	dst = append(dst, `,"queueId":`...)
	dst = strconv.AppendInt(dst, int64(q.QueueID), 10)
	dst = append(dst, `,"topic":`...)
	dst = appendJSONString(dst, q.Topic)
	return append(dst, '}')
}

// mqTable reads {{mq}:value,…}; entry gets each queue and the text of its value.
func (s *scanner) mqTable(entry func(q MessageQueue, value []byte) error) error {
	if s.next() != '{' {
		return s.fail("table expected")
	}
	if s.skipBlanks() == '}' {
		s.pos++
		return nil
	}
	for {
		key, kind, err := s.value()
		if err != nil {
			return err
		}
		if kind != kindNested && kind != kindString {
			return s.fail("queue expected as key")
		}
		var q MessageQueue
		if err := json.Unmarshal(key, &q); err != nil {
			return err
		}
		if s.next() != ':' {
			return s.fail("colon expected")
		}
		value, err := s.rawValue()
		if err != nil {
			return err
		}
		if err := entry(q, value); err != nil {
			return err
		}
		switch s.next() {
		case ',':
		case '}':
			return nil
		default:
			return s.fail("comma expected")
		}
	}
}

// rawValue passes over a value and returns its text.
func (s *scanner) rawValue() ([]byte, error) {
	s.skipBlanks()
	from := s.pos
	err := s.skipValue(0)
	return s.text[from:s.pos], err
}

// decodeMQBody reads an object with one member offsetTable in the dialect; member gets
// every other key and the text of its value.
func decodeMQBody(body []byte, what string, member func(key string, value []byte) error, entry func(q MessageQueue, value []byte) error) error {
	return decodeMQMember(body, "offsetTable", what, member, entry)
}

func decodeMQMember(body []byte, table, what string, member func(key string, value []byte) error, entry func(q MessageQueue, value []byte) error) error {
	s := scanner{text: body}
	err := s.object(func(key []byte) error {
		if string(key) == table && s.skipBlanks() == '{' {
			return s.mqTable(entry)
		}
		value, err := s.rawValue()
		if err != nil {
			return err
		}
		return member(string(key), value)
	})
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return fmt.Errorf("%w: %s of %d bytes: %v", ErrBody, what, len(body), err)
	}
	return nil
}

func ignoreMember(string, []byte) error { return nil }

// TopicStats is the entry of one queue in a TopicStatsTable.
type TopicStats struct {
	Queue               MessageQueue `json:"-"`
	LastUpdateTimestamp int64        `json:"lastUpdateTimestamp"` // store time of the newest message in ms, 0 if none
	MaxOffset           int64        `json:"maxOffset"`
	MinOffset           int64        `json:"minOffset"`
}

// TopicStatsTable is the answer's body of GET_TOPIC_STATS_INFO (202).
type TopicStatsTable struct {
	OffsetTable []TopicStats
}

// Decode reads b from body.
func (b *TopicStatsTable) Decode(body []byte) error {
	b.OffsetTable = nil
	return decodeMQBody(body, "topic stats", ignoreMember, func(q MessageQueue, value []byte) error {
		e := TopicStats{Queue: q}
		if err := json.Unmarshal(value, &e); err != nil {
			return err
		}
		b.OffsetTable = append(b.OffsetTable, e)
		return nil
	})
}

// Encode returns the body.
func (b *TopicStatsTable) Encode() []byte {
	dst := append(make([]byte, 0, 32+128*len(b.OffsetTable)), `{"offsetTable":{`...)
	for i := range b.OffsetTable {
		e := &b.OffsetTable[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendMQKey(dst, &e.Queue)
		dst = append(dst, `:{"lastUpdateTimestamp":`...)
		dst = strconv.AppendInt(dst, e.LastUpdateTimestamp, 10)
		dst = append(dst, `,"maxOffset":`...)
		dst = strconv.AppendInt(dst, e.MaxOffset, 10)
		dst = append(dst, `,"minOffset":`...)
		dst = strconv.AppendInt(dst, e.MinOffset, 10)
		dst = append(dst, '}')
	}
	return append(dst, `}}`...)
}

// QueueConsumeStats is the entry of one queue in ConsumeStats.
type QueueConsumeStats struct {
	Queue          MessageQueue `json:"-"`
	BrokerOffset   int64        `json:"brokerOffset"` // the queue's max offset
	ConsumerOffset int64        `json:"consumerOffset"`
	LastTimestamp  int64        `json:"lastTimestamp"` // store time of the last consumed message in ms, 0 if gone
}

// ConsumeStats is the answer's body of GET_CONSUME_STATS (208).
type ConsumeStats struct {
	ConsumeTPS  float64
	OffsetTable []QueueConsumeStats
	// PullOffsets adds 5.x's pullOffset, equal to the consumer's offset: 5.x tools print the difference as messages in flight.
	PullOffsets bool
}

// Decode reads b from body.
func (b *ConsumeStats) Decode(body []byte) error {
	*b = ConsumeStats{}
	member := func(key string, value []byte) error {
		if key != "consumeTps" {
			return nil
		}
		return json.Unmarshal(value, &b.ConsumeTPS)
	}
	return decodeMQBody(body, "consume stats", member, func(q MessageQueue, value []byte) error {
		e := QueueConsumeStats{Queue: q}
		if err := json.Unmarshal(value, &e); err != nil {
			return err
		}
		b.OffsetTable = append(b.OffsetTable, e)
		return nil
	})
}

// Encode returns the body.
func (b *ConsumeStats) Encode() []byte {
	dst := append(make([]byte, 0, 64+128*len(b.OffsetTable)), `{"consumeTps":`...)
	dst = appendDouble(dst, b.ConsumeTPS)
	dst = append(dst, `,"offsetTable":{`...)
	for i := range b.OffsetTable {
		e := &b.OffsetTable[i]
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendMQKey(dst, &e.Queue)
		dst = append(dst, `:{"brokerOffset":`...)
		dst = strconv.AppendInt(dst, e.BrokerOffset, 10)
		dst = append(dst, `,"consumerOffset":`...)
		dst = strconv.AppendInt(dst, e.ConsumerOffset, 10)
		dst = append(dst, `,"lastTimestamp":`...)
		dst = strconv.AppendInt(dst, e.LastTimestamp, 10)
		if b.PullOffsets {
			dst = append(dst, `,"pullOffset":`...)
			dst = strconv.AppendInt(dst, e.ConsumerOffset, 10)
		}
		dst = append(dst, '}')
	}
	return append(dst, `}}`...)
}

// appendDouble appends f as Java does, always with a fraction; what JSON cannot say
// becomes zero.
func appendDouble(dst []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		f = 0
	}
	from := len(dst)
	dst = strconv.AppendFloat(dst, f, 'g', -1, 64)
	if !bytes.ContainsAny(dst[from:], ".e") {
		dst = append(dst, '.', '0')
	}
	return dst
}

// QueueOffset is the entry of one queue in an OffsetTable.
type QueueOffset struct {
	Queue  MessageQueue
	Offset int64
}

// OffsetTable is the body of RESET_CONSUMER_CLIENT_OFFSET (220) and the answer's of
// INVOKE_BROKER_TO_RESET_OFFSET (222).
type OffsetTable struct {
	OffsetTable []QueueOffset
}

// Decode reads b from body.
func (b *OffsetTable) Decode(body []byte) error {
	var err error
	b.OffsetTable, err = decodeOffsets(body, "offsetTable", "offset table")
	return err
}

func decodeOffsets(body []byte, table, what string) (offsets []QueueOffset, err error) {
	err = decodeMQMember(body, table, what, ignoreMember, func(q MessageQueue, value []byte) error {
		n, ok := parseInt(value)
		if !ok {
			return fmt.Errorf("offset %.32q of queue %d", value, q.QueueID)
		}
		offsets = append(offsets, QueueOffset{Queue: q, Offset: n})
		return nil
	})
	return offsets, err
}

// Encode returns the body.
func (b *OffsetTable) Encode() []byte {
	dst := append(make([]byte, 0, 32+96*len(b.OffsetTable)), `{"offsetTable":`...)
	return append(appendOffsets(dst, b.OffsetTable), '}')
}

func appendOffsets(dst []byte, offsets []QueueOffset) []byte {
	dst = append(dst, '{')
	for i := range offsets {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendMQKey(dst, &offsets[i].Queue)
		dst = append(dst, ':')
		dst = strconv.AppendInt(dst, offsets[i].Offset, 10)
	}
	return append(dst, '}')
}
