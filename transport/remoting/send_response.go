package remoting

import (
	"encoding/binary"
	"strconv"
)

// SendResponse is the whole answer to a send (RocketMQ SendMessageResponseHeader and
// the ext fields that every broker adds).
type SendResponse struct {
	Serialize SerializeType
	Opaque    int32
	Version   int32
	Language  uint8
	Code      int32
	Remark    string
	// MsgID is the offset id, 32 or 56 hex digits, or several joined by commas for a
	// batch. nil means that nothing was stored: msgId, queueId and queueOffset are
	// left out.
	MsgID       []byte
	QueueID     int32
	QueueOffset int64
	Region      []byte // MSG_REGION, left out when nil
	TraceOn     bool
	// TransactionID is what a 5.x broker adds (the message's UNIQ_KEY); nil leaves it
	// out, as 4.9 does.
	TransactionID []byte
}

// AppendSendResponse appends the whole frame of s, length included, without
// allocating. Field order is that of a Java broker: 5.x with a TransactionID, else 4.9.
func AppendSendResponse(dst []byte, s SendResponse) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	serialize := headSerialize(s.Serialize, s.Code, s.Version)
	if serialize == SerializeRocketMQ {
		dst = appendBinaryFixed(dst, s.Code, s.Language, s.Version, s.Opaque, FlagResponse, s.Remark)
		dst = s.appendBinaryExt(dst)
	} else {
		dst = append(dst, `{"code":`...)
		dst = strconv.AppendInt(dst, int64(s.Code), 10)
		dst = s.appendJSONExt(dst)
		dst = appendJSONHeaderTail(dst, FlagResponse, s.Language, s.Opaque, s.Remark, s.Version)
	}
	if headTooLong(dst, at) {
		return appendTooLong(dst[:at], s.Language, s.Version, s.Opaque, FlagResponse, 0)
	}
	finishHead(dst, at, serialize, 0)
	return dst
}

func (s *SendResponse) appendJSONExt(dst []byte) []byte {
	dst = append(dst, `,"extFields":{`...)
	if s.MsgID != nil {
		dst = append(dst, `"queueId":"`...)
		dst = strconv.AppendInt(dst, int64(s.QueueID), 10)
		dst = append(dst, `",`...)
	}
	if s.TransactionID == nil {
		dst = s.appendJSONTrace(dst)
		if s.MsgID != nil {
			dst = append(dst, `,"msgId":`...)
			dst = appendJSONString(dst, s.MsgID)
		}
	} else {
		dst = append(dst, `"transactionId":`...)
		dst = appendJSONString(dst, s.TransactionID)
		if s.MsgID != nil {
			dst = append(dst, `,"msgId":`...)
			dst = appendJSONString(dst, s.MsgID)
		}
		dst = append(dst, ',')
		dst = s.appendJSONTrace(dst)
	}
	if s.MsgID != nil {
		dst = append(dst, `,"queueOffset":"`...)
		dst = strconv.AppendInt(dst, s.QueueOffset, 10)
		dst = append(dst, '"')
	}
	return append(dst, '}')
}

func (s *SendResponse) appendJSONTrace(dst []byte) []byte {
	dst = append(dst, `"TRACE_ON":"`...)
	dst = strconv.AppendBool(dst, s.TraceOn)
	dst = append(dst, '"')
	if s.Region != nil {
		dst = append(dst, `,"MSG_REGION":`...)
		dst = appendJSONString(dst, s.Region)
	}
	return dst
}

func (s *SendResponse) appendBinaryExt(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	if s.MsgID != nil {
		dst = appendBinaryField(dst, "msgId", s.MsgID)
		dst = appendBinaryInt(dst, "queueId", int64(s.QueueID))
		dst = appendBinaryInt(dst, "queueOffset", s.QueueOffset)
	}
	if s.TransactionID != nil {
		dst = appendBinaryField(dst, "transactionId", s.TransactionID)
	}
	dst = appendBinaryBool(dst, "TRACE_ON", s.TraceOn)
	if s.Region != nil {
		dst = appendBinaryField(dst, "MSG_REGION", s.Region)
	}
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// Decode fills s from an answer, without allocating for the usual remarks; the
// slices are views of c. A stored message's numbers must parse: ErrFieldMissing or
// ErrFieldValue otherwise.
func (s *SendResponse) Decode(c *Command) error {
	*s = SendResponse{
		Serialize: c.Serialize, Opaque: c.Opaque, Version: c.Version, Language: c.Language, Code: c.Code, Remark: c.Remark,
	}
	d := fieldDecoder{}
	var hasQueue, hasOffset bool
	for i := range c.Ext {
		f := &c.Ext[i]
		switch f.Key {
		case "msgId":
			s.MsgID = f.Value
		case "queueId":
			s.QueueID, hasQueue = d.int32(f), true
		case "queueOffset":
			s.QueueOffset, hasOffset = d.int64(f), true
		case "transactionId":
			s.TransactionID = f.Value
		case "MSG_REGION":
			s.Region = f.Value
		case "TRACE_ON":
			s.TraceOn = parseBool(f.Value)
		}
	}
	switch {
	case d.bad != nil:
		return d.err()
	case s.MsgID != nil && !hasQueue:
		return missing("queueId")
	case s.MsgID != nil && !hasOffset:
		return missing("queueOffset")
	}
	return nil
}
