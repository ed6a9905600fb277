// Package remoting is the RocketMQ remoting wire codec: frames, the two header
// serialisations (JSON and ROCKETMQ binary), request and response codes, and the
// header and body types that both sides exchange. It opens no sockets, keeps no state
// and decides nothing about limits: a frame's size is the transport's business, what
// a field's value means is the processors'.
//
// What a Java broker would write is written byte for byte: fastjson's key order and
// escapes, absent fields left out. What clients send is read leniently, as fastjson
// and the Go client between them need it.
//
// The functions on the path of a message do not allocate: DecodeFrame (with known ext
// keys and a reused command and scratch), SendHeader.Decode, PullHeader.Decode,
// AppendFrame, AppendFrameHead, AppendSendResponse, AppendPullResponseHead,
// AppendSendRequest and AppendPullRequest.
//
// Formats: RocketMQ 4.9.4 and 5.3.3, classes RemotingCommand, RocketMQSerializable,
// RemotingSerializable and those of package protocol.
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

	// spare keeps the array of Ext for the next decode while Ext is nil.
	spare []Field
}

// IsResponse reports whether the frame answers a request.
func (c *Command) IsResponse() bool { return c.Flag&FlagResponse != 0 }

// IsOneWay reports whether the sender wants no answer.
func (c *Command) IsOneWay() bool { return c.Flag&FlagOneWay != 0 }

// Get returns the value of an ext field as a view, nil when it is absent. Of
// repeated keys the last counts, as in a Java map.
func (c *Command) Get(key string) []byte {
	for i := len(c.Ext) - 1; i >= 0; i-- {
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
	for i := len(c.Ext) - 1; i >= 0; i-- {
		if c.Ext[i].Key == key {
			c.Ext[i].Value = []byte(value)
			return
		}
	}
	c.Ext = append(c.Ext, Field{Key: key, Value: []byte(value)})
}
