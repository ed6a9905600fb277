package remoting

import "fmt"

// SendHeader is the header of SEND_MESSAGE (10), SEND_MESSAGE_V2 (310),
// SEND_BATCH_MESSAGE (320), SEND_REPLY_MESSAGE (324) and SEND_REPLY_MESSAGE_V2 (325)
// in one form (RocketMQ SendMessageRequestHeader and …V2). The byte slices are views
// of the command.
type SendHeader struct {
	ProducerGroup         []byte
	Topic                 []byte
	DefaultTopic          []byte
	DefaultTopicQueueNums int32
	QueueID               int32
	SysFlag               int32
	BornTimestamp         int64 // ms since the epoch, of the client's clock
	Flag                  int32
	Properties            []byte
	ReconsumeTimes        int32
	UnitMode              bool
	Batch                 bool
	MaxReconsumeTimes     int32
	HasMaxReconsumeTimes  bool
	BrokerName            []byte
	// BornHost is the client's ip:port when another node has passed its request on (BornHostField), else nil.
	BornHost []byte
}

// BornHostField is RaftMQ's ext field for SendHeader.BornHost.
const BornHostField = "raftmqBornHost"

// Decode fills h from a command of code 10, 310, 320 (also 324, 325) without
// allocating. Absent fields are zero, except that queueId must be there: without it
// a RocketMQ broker fails too. On ErrFieldMissing or ErrFieldValue every field that
// could be read has been, so that a broker can still name the topic.
func (h *SendHeader) Decode(c *Command) error {
	*h = SendHeader{}
	d := fieldDecoder{}
	hasQueue := false
	switch c.Code {
	case RequestSendMessage, RequestSendReplyMessage:
		hasQueue = h.decodeNames(&d, c.Ext)
	case RequestSendMessageV2, RequestSendBatchMessage, RequestSendReplyMessageV2:
		hasQueue = h.decodeLetters(&d, c.Ext)
	default:
		return fmt.Errorf("%w: %d is no send", ErrRequestCode, c.Code)
	}
	if !hasQueue && d.bad == nil {
		return missing("queueId")
	}
	return d.err()
}

func (h *SendHeader) decodeNames(d *fieldDecoder, ext []Field) (hasQueue bool) {
	for i := range ext {
		f := &ext[i]
		switch f.Key {
		case "producerGroup":
			h.ProducerGroup = f.Value
		case "topic":
			h.Topic = f.Value
		case "defaultTopic":
			h.DefaultTopic = f.Value
		case "defaultTopicQueueNums":
			h.DefaultTopicQueueNums = d.int32(f)
		case "queueId":
			h.QueueID = d.int32(f)
			hasQueue = true
		case "sysFlag":
			h.SysFlag = d.int32(f)
		case "bornTimestamp":
			h.BornTimestamp = d.int64(f)
		case "flag":
			h.Flag = d.int32(f)
		case "properties":
			h.Properties = f.Value
		case "reconsumeTimes":
			h.ReconsumeTimes = d.int32(f)
		case "unitMode":
			h.UnitMode = parseBool(f.Value)
		case "batch":
			h.Batch = parseBool(f.Value)
		case "maxReconsumeTimes":
			h.MaxReconsumeTimes, h.HasMaxReconsumeTimes = d.int32(f), true
		case "bname":
			h.BrokerName = f.Value
		case BornHostField:
			h.BornHost = f.Value
		}
	}
	return hasQueue
}

func (h *SendHeader) decodeLetters(d *fieldDecoder, ext []Field) (hasQueue bool) {
	for i := range ext {
		f := &ext[i]
		if len(f.Key) != 1 {
			if f.Key == BornHostField {
				h.BornHost = f.Value
			}
			continue
		}
		switch f.Key[0] {
		case 'a':
			h.ProducerGroup = f.Value
		case 'b':
			h.Topic = f.Value
		case 'c':
			h.DefaultTopic = f.Value
		case 'd':
			h.DefaultTopicQueueNums = d.int32(f)
		case 'e':
			h.QueueID = d.int32(f)
			hasQueue = true
		case 'f':
			h.SysFlag = d.int32(f)
		case 'g':
			h.BornTimestamp = d.int64(f)
		case 'h':
			h.Flag = d.int32(f)
		case 'i':
			h.Properties = f.Value
		case 'j':
			h.ReconsumeTimes = d.int32(f)
		case 'k':
			h.UnitMode = parseBool(f.Value)
		case 'l':
			h.MaxReconsumeTimes, h.HasMaxReconsumeTimes = d.int32(f), true
		case 'm':
			h.Batch = parseBool(f.Value)
		case 'n':
			h.BrokerName = f.Value
		}
	}
	return hasQueue
}
