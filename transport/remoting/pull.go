package remoting

import "fmt"

// PullHeader is the header of PULL_MESSAGE (11) and LITE_PULL_MESSAGE (361)
// (RocketMQ PullMessageRequestHeader). The byte slices are views.
type PullHeader struct {
	ConsumerGroup        []byte
	Topic                []byte
	QueueID              int32
	QueueOffset          int64
	MaxMsgNums           int32
	SysFlag              int32 // PullFlag… bits
	CommitOffset         int64
	SuspendTimeoutMillis int64
	Subscription         []byte
	SubVersion           int64 // ms from Java, ns from Go, 0 from Go push consumers
	ExpressionType       []byte
	BrokerName           []byte
}

// Decode fills h from a command of code 11 (also 361) without allocating. queueId,
// queueOffset, maxMsgNums and sysFlag must be there; other absent fields are zero.
// On ErrFieldMissing or ErrFieldValue every field that could be read has been.
func (h *PullHeader) Decode(c *Command) error {
	*h = PullHeader{}
	if c.Code != RequestPullMessage && c.Code != RequestLitePullMessage {
		return fmt.Errorf("%w: %d is no pull", ErrRequestCode, c.Code)
	}
	d := fieldDecoder{}
	var hasQueue, hasOffset, hasMax, hasFlag bool
	for i := range c.Ext {
		f := &c.Ext[i]
		switch f.Key {
		case "consumerGroup":
			h.ConsumerGroup = f.Value
		case "topic":
			h.Topic = f.Value
		case "queueId":
			h.QueueID, hasQueue = d.int32(f), true
		case "queueOffset":
			h.QueueOffset, hasOffset = d.int64(f), true
		case "maxMsgNums":
			h.MaxMsgNums, hasMax = d.int32(f), true
		case "sysFlag":
			h.SysFlag, hasFlag = d.int32(f), true
		case "commitOffset":
			h.CommitOffset = d.int64(f)
		case "suspendTimeoutMillis":
			h.SuspendTimeoutMillis = d.int64(f)
		case "subscription":
			h.Subscription = f.Value
		case "subVersion":
			h.SubVersion = d.int64(f)
		case "expressionType":
			h.ExpressionType = f.Value
		case "bname":
			h.BrokerName = f.Value
		}
	}
	switch {
	case d.bad != nil:
		return d.err()
	case !hasQueue:
		return missing("queueId")
	case !hasOffset:
		return missing("queueOffset")
	case !hasMax:
		return missing("maxMsgNums")
	case !hasFlag:
		return missing("sysFlag")
	}
	return nil
}
