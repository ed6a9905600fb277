package remoting

import (
	"encoding/binary"
	"strconv"
)

// ClientVersion is the version that our own requests carry: RocketMQ 4.9.4's, the
// first whose name server answers routes in standard JSON.
const ClientVersion = Version4_9_4

// RequestStyle says how the requests of a fast client are written. The zero value
// writes JSON headers of requests that want an answer.
type RequestStyle struct {
	Serialize SerializeType
	OneWay    bool
}

// AppendSendRequest appends the whole frame of a send with a JSON header: code 310,
// or 320 when h.Batch is set. It does not allocate.
func AppendSendRequest(dst []byte, opaque int32, h *SendHeader, body []byte) []byte {
	return RequestStyle{}.AppendSend(dst, opaque, h, body)
}

// AppendPullRequest appends the whole frame of a pull (code 11) with a JSON header.
// It does not allocate.
func AppendPullRequest(dst []byte, opaque int32, h *PullHeader) []byte {
	return RequestStyle{}.AppendPull(dst, opaque, h)
}

func (r RequestStyle) flag() int32 {
	if r.OneWay {
		return FlagOneWay
	}
	return 0
}

// AppendSend appends the whole frame of a send: code 310, or 320 when h.Batch is set.
// Properties and BrokerName are left out when nil.
func (r RequestStyle) AppendSend(dst []byte, opaque int32, h *SendHeader, body []byte) []byte {
	code := RequestSendMessageV2
	if h.Batch {
		code = RequestSendBatchMessage
	}
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	serialize := headSerialize(r.Serialize, code, ClientVersion)
	if serialize == SerializeRocketMQ {
		dst = appendBinaryFixed(dst, code, LanguageGo, ClientVersion, opaque, r.flag(), "")
		dst = h.appendBinaryLetters(dst)
	} else {
		dst = append(dst, `{"code":`...)
		dst = strconv.AppendInt(dst, int64(code), 10)
		dst = h.appendJSONLetters(dst)
		dst = appendJSONHeaderTail(dst, r.flag(), LanguageGo, opaque, "", ClientVersion)
	}
	if headTooLong(dst, at) {
		return appendTooLong(dst[:at], LanguageGo, ClientVersion, opaque, r.flag(), 0)
	}
	finishHead(dst, at, serialize, len(body))
	return append(dst, body...)
}

func (h *SendHeader) appendJSONLetters(dst []byte) []byte {
	dst = append(dst, `,"extFields":{"a":`...)
	dst = appendJSONString(dst, h.ProducerGroup)
	dst = append(dst, `,"b":`...)
	dst = appendJSONString(dst, h.Topic)
	dst = append(dst, `,"c":`...)
	dst = appendJSONString(dst, h.DefaultTopic)
	dst = appendJSONInt(dst, `,"d":"`, int64(h.DefaultTopicQueueNums))
	dst = appendJSONInt(dst, `,"e":"`, int64(h.QueueID))
	dst = appendJSONInt(dst, `,"f":"`, int64(h.SysFlag))
	dst = appendJSONInt(dst, `,"g":"`, h.BornTimestamp)
	dst = appendJSONInt(dst, `,"h":"`, int64(h.Flag))
	if h.Properties != nil {
		dst = append(dst, `,"i":`...)
		dst = appendJSONString(dst, h.Properties)
	}
	dst = appendJSONInt(dst, `,"j":"`, int64(h.ReconsumeTimes))
	dst = append(dst, `,"k":"`...)
	dst = strconv.AppendBool(dst, h.UnitMode)
	dst = append(dst, '"')
	if h.HasMaxReconsumeTimes {
		dst = appendJSONInt(dst, `,"l":"`, int64(h.MaxReconsumeTimes))
	}
	dst = append(dst, `,"m":"`...)
	dst = strconv.AppendBool(dst, h.Batch)
	dst = append(dst, '"')
	if h.BrokerName != nil {
		dst = append(dst, `,"n":`...)
		dst = appendJSONString(dst, h.BrokerName)
	}
	return append(dst, '}')
}

func (h *SendHeader) appendBinaryLetters(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = appendBinaryField(dst, "a", h.ProducerGroup)
	dst = appendBinaryField(dst, "b", h.Topic)
	dst = appendBinaryField(dst, "c", h.DefaultTopic)
	dst = appendBinaryInt(dst, "d", int64(h.DefaultTopicQueueNums))
	dst = appendBinaryInt(dst, "e", int64(h.QueueID))
	dst = appendBinaryInt(dst, "f", int64(h.SysFlag))
	dst = appendBinaryInt(dst, "g", h.BornTimestamp)
	dst = appendBinaryInt(dst, "h", int64(h.Flag))
	if h.Properties != nil {
		dst = appendBinaryField(dst, "i", h.Properties)
	}
	dst = appendBinaryInt(dst, "j", int64(h.ReconsumeTimes))
	dst = appendBinaryBool(dst, "k", h.UnitMode)
	if h.HasMaxReconsumeTimes {
		dst = appendBinaryInt(dst, "l", int64(h.MaxReconsumeTimes))
	}
	dst = appendBinaryBool(dst, "m", h.Batch)
	if h.BrokerName != nil {
		dst = appendBinaryField(dst, "n", h.BrokerName)
	}
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// AppendPull appends the whole frame of a pull. Subscription, ExpressionType and
// BrokerName are left out when nil.
func (r RequestStyle) AppendPull(dst []byte, opaque int32, h *PullHeader) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	serialize := headSerialize(r.Serialize, RequestPullMessage, ClientVersion)
	if serialize == SerializeRocketMQ {
		dst = appendBinaryFixed(dst, RequestPullMessage, LanguageGo, ClientVersion, opaque, r.flag(), "")
		dst = h.appendBinaryExt(dst)
	} else {
		dst = append(dst, `{"code":`...)
		dst = strconv.AppendInt(dst, int64(RequestPullMessage), 10)
		dst = h.appendJSONExt(dst)
		dst = appendJSONHeaderTail(dst, r.flag(), LanguageGo, opaque, "", ClientVersion)
	}
	if headTooLong(dst, at) {
		return appendTooLong(dst[:at], LanguageGo, ClientVersion, opaque, r.flag(), 0)
	}
	finishHead(dst, at, serialize, 0)
	return dst
}

func (h *PullHeader) appendJSONExt(dst []byte) []byte {
	dst = append(dst, `,"extFields":{"consumerGroup":`...)
	dst = appendJSONString(dst, h.ConsumerGroup)
	dst = append(dst, `,"topic":`...)
	dst = appendJSONString(dst, h.Topic)
	dst = appendJSONInt(dst, `,"queueId":"`, int64(h.QueueID))
	dst = appendJSONInt(dst, `,"queueOffset":"`, h.QueueOffset)
	dst = appendJSONInt(dst, `,"maxMsgNums":"`, int64(h.MaxMsgNums))
	dst = appendJSONInt(dst, `,"sysFlag":"`, int64(h.SysFlag))
	dst = appendJSONInt(dst, `,"commitOffset":"`, h.CommitOffset)
	dst = appendJSONInt(dst, `,"suspendTimeoutMillis":"`, h.SuspendTimeoutMillis)
	if h.Subscription != nil {
		dst = append(dst, `,"subscription":`...)
		dst = appendJSONString(dst, h.Subscription)
	}
	dst = appendJSONInt(dst, `,"subVersion":"`, h.SubVersion)
	if h.ExpressionType != nil {
		dst = append(dst, `,"expressionType":`...)
		dst = appendJSONString(dst, h.ExpressionType)
	}
	if h.BrokerName != nil {
		dst = append(dst, `,"bname":`...)
		dst = appendJSONString(dst, h.BrokerName)
	}
	return append(dst, '}')
}

func (h *PullHeader) appendBinaryExt(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = appendBinaryField(dst, "consumerGroup", h.ConsumerGroup)
	dst = appendBinaryField(dst, "topic", h.Topic)
	dst = appendBinaryInt(dst, "queueId", int64(h.QueueID))
	dst = appendBinaryInt(dst, "queueOffset", h.QueueOffset)
	dst = appendBinaryInt(dst, "maxMsgNums", int64(h.MaxMsgNums))
	dst = appendBinaryInt(dst, "sysFlag", int64(h.SysFlag))
	dst = appendBinaryInt(dst, "commitOffset", h.CommitOffset)
	dst = appendBinaryInt(dst, "suspendTimeoutMillis", h.SuspendTimeoutMillis)
	if h.Subscription != nil {
		dst = appendBinaryField(dst, "subscription", h.Subscription)
	}
	dst = appendBinaryInt(dst, "subVersion", h.SubVersion)
	if h.ExpressionType != nil {
		dst = appendBinaryField(dst, "expressionType", h.ExpressionType)
	}
	if h.BrokerName != nil {
		dst = appendBinaryField(dst, "bname", h.BrokerName)
	}
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}
