package remoting

import (
	"encoding/binary"
	"strconv"
)

// PullResponse is the head of an answer to a pull (RocketMQ
// PullMessageResponseHeader); the records follow as the body. Clients need all four
// numbers with the codes 0, 19, 20 and 21. Other errors carry an empty map: answer
// those with a Command.
type PullResponse struct {
	Serialize SerializeType
	Opaque    int32
	Version   int32
	Language  uint8
	Code      int32
	Remark    string

	SuggestWhichBrokerID int64
	NextBeginOffset      int64
	MinOffset            int64
	MaxOffset            int64
}

// AppendPullResponseHead appends length, header length and header of p, whose body
// of bodyLen bytes the caller writes itself. It does not allocate.
func AppendPullResponseHead(dst []byte, p PullResponse, bodyLen int) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	serialize := headSerialize(p.Serialize, p.Code, p.Version)
	if serialize == SerializeRocketMQ {
		dst = appendBinaryFixed(dst, p.Code, p.Language, p.Version, p.Opaque, FlagResponse, p.Remark)
		ext := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		dst = appendBinaryInt(dst, "suggestWhichBrokerId", p.SuggestWhichBrokerID)
		dst = appendBinaryInt(dst, "nextBeginOffset", p.NextBeginOffset)
		dst = appendBinaryInt(dst, "minOffset", p.MinOffset)
		dst = appendBinaryInt(dst, "maxOffset", p.MaxOffset)
		binary.BigEndian.PutUint32(dst[ext:], uint32(len(dst)-ext-4))
	} else {
		dst = append(dst, `{"code":`...)
		dst = strconv.AppendInt(dst, int64(p.Code), 10)
		dst = append(dst, `,"extFields":{"suggestWhichBrokerId":"`...)
		dst = strconv.AppendInt(dst, p.SuggestWhichBrokerID, 10)
		dst = append(dst, `","nextBeginOffset":"`...)
		dst = strconv.AppendInt(dst, p.NextBeginOffset, 10)
		dst = append(dst, `","maxOffset":"`...)
		dst = strconv.AppendInt(dst, p.MaxOffset, 10)
		dst = append(dst, `","minOffset":"`...)
		dst = strconv.AppendInt(dst, p.MinOffset, 10)
		dst = append(dst, `"}`...)
		dst = appendJSONHeaderTail(dst, FlagResponse, p.Language, p.Opaque, p.Remark, p.Version)
	}
	if headTooLong(dst, at) {
		return appendTooLong(dst[:at], p.Language, p.Version, p.Opaque, FlagResponse, bodyLen)
	}
	finishHead(dst, at, serialize, bodyLen)
	return dst
}

// Decode fills p from an answer. With the codes 0, 19, 20 and 21 all four numbers
// must be there: ErrFieldMissing, or ErrFieldValue for what is no number.
func (p *PullResponse) Decode(c *Command) error {
	*p = PullResponse{
		Serialize: c.Serialize, Opaque: c.Opaque, Version: c.Version, Language: c.Language, Code: c.Code, Remark: c.Remark,
	}
	d := fieldDecoder{}
	var hasSuggest, hasNext, hasMin, hasMax bool
	for i := range c.Ext {
		f := &c.Ext[i]
		switch f.Key {
		case "suggestWhichBrokerId":
			p.SuggestWhichBrokerID, hasSuggest = d.int64(f), true
		case "nextBeginOffset":
			p.NextBeginOffset, hasNext = d.int64(f), true
		case "minOffset":
			p.MinOffset, hasMin = d.int64(f), true
		case "maxOffset":
			p.MaxOffset, hasMax = d.int64(f), true
		}
	}
	if d.bad != nil {
		return d.err()
	}
	switch c.Code {
	case ResponseSuccess, ResponsePullNotFound, ResponsePullRetryImmediately, ResponsePullOffsetMoved:
	default:
		return nil
	}
	switch {
	case !hasSuggest:
		return missing("suggestWhichBrokerId")
	case !hasNext:
		return missing("nextBeginOffset")
	case !hasMin:
		return missing("minOffset")
	case !hasMax:
		return missing("maxOffset")
	}
	return nil
}
