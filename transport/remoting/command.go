// Package remoting is the RocketMQ remoting wire codec: frames, the two header
// serialisations (JSON and ROCKETMQ binary), request and response codes, and the
// header and body types that both sides exchange. It opens no sockets.
package remoting

// SerializeType tells how a frame's header is written.
type SerializeType uint8

// The two header serialisations (RocketMQ SerializeType).
const (
	SerializeJSON     SerializeType = 0
	SerializeRocketMQ SerializeType = 1
)

// Bits of Command.Flag.
const (
	FlagResponse int32 = 1
	FlagOneWay   int32 = 2
)

// Field is one entry of a header's ext map. Value is a view: of the frame or of
// the decoder's scratch space after a decode, of the caller's bytes otherwise.
type Field struct {
	Key   string
	Value []byte
}

// Command is one frame: header and body.
type Command struct {
	Code      int32
	Language  uint8
	Version   int32
	Opaque    int32
	Flag      int32
	Remark    string
	Serialize SerializeType
	// Ext holds the extFields in the order in which they came. nil means that the
	// header has none; an empty non-nil slice is written as an empty map.
	Ext  []Field
	Body []byte
}

// IsResponse reports whether the frame answers a request.
func (c *Command) IsResponse() bool { return c.Flag&FlagResponse != 0 }

// IsOneWay reports whether the sender wants no answer.
func (c *Command) IsOneWay() bool { return c.Flag&FlagOneWay != 0 }

// Get returns the value of an ext field as a view, nil when it is absent.
func (c *Command) Get(key string) []byte {
	for i := range c.Ext {
		if c.Ext[i].Key == key {
			return c.Ext[i].Value
		}
	}
	return nil
}

// GetString returns a copy of an ext field, "" when it is absent.
func (c *Command) GetString(key string) string { return string(c.Get(key)) }

// Set appends or replaces an ext field.
func (c *Command) Set(key, value string) {
	for i := range c.Ext {
		if c.Ext[i].Key == key {
			c.Ext[i].Value = []byte(value)
			return
		}
	}
	c.Ext = append(c.Ext, Field{Key: key, Value: []byte(value)})
}

// DecodeFrame decodes one frame without its 4-byte length into c, reusing c.Ext.
// Values point into frame, or into scratch where they had to be unescaped; they
// are valid as long as both are left alone. Unknown header keys are ignored.
func DecodeFrame(frame []byte, c *Command, scratch *[]byte) error { panic("stub") }

// AppendFrame appends the whole frame, length included.
func AppendFrame(dst []byte, c *Command) []byte { panic("stub") }

// AppendFrameHead appends length, header length and header of a frame whose body of
// bodyLen bytes the caller writes itself, from mapped views. c.Body is ignored.
func AppendFrameHead(dst []byte, c *Command, bodyLen int) []byte { panic("stub") }

// Clone returns a deep copy that owns all its bytes.
func (c *Command) Clone() *Command { panic("stub") }

// SendHeader is the header of SEND_MESSAGE (10), SEND_MESSAGE_V2 (310) and
// SEND_BATCH_MESSAGE (320) in one form. The byte slices are views of the command.
type SendHeader struct {
	ProducerGroup         []byte
	Topic                 []byte
	DefaultTopic          []byte
	DefaultTopicQueueNums int32
	QueueID               int32
	SysFlag               int32
	BornTimestamp         int64
	Flag                  int32
	Properties            []byte
	ReconsumeTimes        int32
	UnitMode              bool
	Batch                 bool
	MaxReconsumeTimes     int32
	HasMaxReconsumeTimes  bool
	BrokerName            []byte
}

// Decode fills h from a command of code 10, 310, 320 (also 324, 325) without allocating.
func (h *SendHeader) Decode(c *Command) error { panic("stub") }

// PullHeader is the header of PULL_MESSAGE (11). The byte slices are views.
type PullHeader struct {
	ConsumerGroup        []byte
	Topic                []byte
	QueueID              int32
	QueueOffset          int64
	MaxMsgNums           int32
	SysFlag              int32
	CommitOffset         int64
	SuspendTimeoutMillis int64
	Subscription         []byte
	SubVersion           int64
	ExpressionType       []byte
	BrokerName           []byte
}

// Decode fills h from a command of code 11 without allocating.
func (h *PullHeader) Decode(c *Command) error { panic("stub") }
