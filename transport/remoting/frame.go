package remoting

import (
	"encoding/binary"
	"fmt"
)

// A frame (RocketMQ NettyEncoder, NettyDecoder), numbers big-endian:
//
//	u32 length of what follows | u8 serialise type | u24 header length | header | body
const (
	// MaxFrameSize is the largest frame, its length field included, that Java
	// clients and brokers accept, in bytes.
	MaxFrameSize = 16 << 20
	// LengthSize is the size of the length field in front of each frame.
	LengthSize = 4

	headerLenSize = 4
	maxHeaderLen  = 1<<24 - 1
)

// DecodeFrame decodes one frame without its 4-byte length into c, reusing c.Ext.
// Unknown header keys are ignored; of repeated ext keys the last counts (see Get).
//
// Ext values and Body are views of frame, or of *scratch where a value had to be
// unescaped. scratch is an arena: values are appended to it, and when it is full a
// new array takes its place, so that earlier views stay valid. A caller that is done
// with them all sets *scratch = (*scratch)[:0]. A nil scratch allocates.
//
// The errors are ErrFrameTooShort, ErrHeaderLength, ErrSerializeType and ErrHeader;
// c is then in an unspecified state and may be decoded into again.
func DecodeFrame(frame []byte, c *Command, scratch *[]byte) error {
	c.reset()
	if len(frame) < headerLenSize {
		return fmt.Errorf("%w: %d bytes", ErrFrameTooShort, len(frame))
	}
	word := binary.BigEndian.Uint32(frame)
	end := headerLenSize + int(word&maxHeaderLen)
	if end > len(frame) {
		return fmt.Errorf("%w: header of %d bytes, frame of %d", ErrHeaderLength, end-headerLenSize, len(frame))
	}
	c.Serialize = SerializeType(word >> 24)
	header := frame[headerLenSize:end]
	if end < len(frame) {
		c.Body = frame[end:len(frame):len(frame)]
	}
	switch c.Serialize {
	case SerializeJSON:
		return decodeJSONHeader(header, c, scratch)
	case SerializeRocketMQ:
		return decodeBinaryHeader(header, c)
	}
	return fmt.Errorf("%w: %d", ErrSerializeType, c.Serialize)
}

// reset clears c but keeps the array of its ext fields.
func (c *Command) reset() {
	spare := c.spare
	if c.Ext != nil {
		spare = c.Ext
	}
	*c = Command{spare: spare}
}

// startExt makes c.Ext an empty map, on the array of an earlier decode if there is one.
func (c *Command) startExt() {
	c.Ext = c.spare[:0]
	c.spare = nil
	if c.Ext == nil {
		c.Ext = []Field{}
	}
}

// AppendFrame appends the whole frame, length included.
func AppendFrame(dst []byte, c *Command) []byte {
	dst = AppendFrameHead(dst, c, len(c.Body))
	return append(dst, c.Body...)
}

// AppendFrameHead appends length, header length and header of a frame whose body of
// bodyLen bytes the caller writes itself, from mapped views. c.Body is ignored.
//
// A command that the binary header cannot hold (a code or version beyond 16 bits) is
// written with a JSON header, as Java clients do. A header beyond 2^24-1 bytes, which
// only a peer's own oversized field can cause, becomes SYSTEM_ERROR without fields.
// Keeping the frame below MaxFrameSize is up to the caller.
func AppendFrameHead(dst []byte, c *Command, bodyLen int) []byte {
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	serialize := headSerialize(c.Serialize, c.Code, c.Version)
	if serialize == SerializeRocketMQ && keysFitBinary(c.Ext) {
		dst = appendBinaryHeader(dst, c)
	} else {
		serialize = SerializeJSON
		dst = appendJSONHeader(dst, c)
	}
	if headTooLong(dst, at) {
		return appendTooLong(dst[:at], c.Language, c.Version, c.Opaque, c.Flag, bodyLen)
	}
	finishHead(dst, at, serialize, bodyLen)
	return dst
}

// headTooLong reports whether the header between offset at and the end of dst
// exceeds its 24-bit length.
func headTooLong(dst []byte, at int) bool {
	return len(dst)-at-LengthSize-headerLenSize > maxHeaderLen
}

// appendTooLong appends the head that stands in for one whose header was too long.
func appendTooLong(dst []byte, language uint8, version, opaque, flag int32, bodyLen int) []byte {
	return AppendFrameHead(dst, &Command{
		Code: ResponseSystemError, Language: language, Version: version, Opaque: opaque, Flag: flag,
		Remark: "header too long",
	}, bodyLen)
}

// finishHead fills in the two length words at offset at, behind which dst ends with
// the header.
func finishHead(dst []byte, at int, serialize SerializeType, bodyLen int) {
	headerLen := len(dst) - at - LengthSize - headerLenSize
	binary.BigEndian.PutUint32(dst[at:], uint32(headerLenSize+headerLen+bodyLen))
	binary.BigEndian.PutUint32(dst[at+LengthSize:], uint32(serialize)<<24|uint32(headerLen))
}

// Clone returns a deep copy that owns all its bytes.
func (c *Command) Clone() *Command {
	d := *c
	d.spare = nil
	size := len(c.Body)
	for i := range c.Ext {
		size += len(c.Ext[i].Value)
	}
	buf := make([]byte, 0, size)
	own := func(v []byte) []byte {
		if v == nil {
			return nil
		}
		from := len(buf)
		buf = append(buf, v...)
		return buf[from:len(buf):len(buf)]
	}
	if c.Ext != nil {
		d.Ext = make([]Field, len(c.Ext))
		for i, f := range c.Ext {
			d.Ext[i] = Field{Key: f.Key, Value: own(f.Value)}
		}
	}
	d.Body = own(c.Body)
	return &d
}
