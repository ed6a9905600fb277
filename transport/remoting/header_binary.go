package remoting

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// The ROCKETMQ header (RocketMQ RocketMQSerializable), all numbers big-endian:
//
//	i16 code | u8 language | i16 version | i32 opaque | i32 flag |
//	i32 remarkLen | remark | i32 extLen | ext
//
// where ext is a sequence of
//
//	i16 keyLen | key | i32 valueLen | value
//
// and an empty remark or ext map means that there is none.
const binaryFixedLen = 2 + 1 + 2 + 4 + 4 + 4 + 4

// byteReader takes lengths and pieces off a buffer and remembers a shortage.
type byteReader struct {
	rest []byte
	bad  bool
}

func (r *byteReader) take(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.bad = true
		r.rest = nil
		return nil
	}
	v := r.rest[:n:n]
	r.rest = r.rest[n:]
	return v
}

func (r *byteReader) int16() int16 {
	if b := r.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (r *byteReader) int32() int32 {
	if b := r.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

// decodeBinaryHeader reads a ROCKETMQ header into c, whose fields are at their
// defaults.
func decodeBinaryHeader(header []byte, c *Command) error {
	if len(header) < binaryFixedLen {
		return fmt.Errorf("%w: binary header of %d bytes, at least %d expected", ErrHeader, len(header), binaryFixedLen)
	}
	r := byteReader{rest: header}
	c.Code = int32(r.int16())
	c.Language = r.take(1)[0]
	c.Version = int32(r.int16())
	c.Opaque = r.int32()
	c.Flag = r.int32()
	c.Remark = internRemark(r.take(int(r.int32())))
	ext := r.take(int(r.int32()))
	if r.bad || len(r.rest) != 0 {
		return fmt.Errorf("%w: remark and ext lengths do not fill the binary header of %d bytes", ErrHeader, len(header))
	}
	if len(ext) == 0 {
		return nil
	}
	return c.decodeBinaryExt(ext)
}

func (c *Command) decodeBinaryExt(ext []byte) error {
	c.startExt()
	for r := (byteReader{rest: ext}); len(r.rest) > 0; {
		key := r.take(int(r.int16()))
		value := r.take(int(r.int32()))
		if r.bad {
			return fmt.Errorf("%w: ext field %d reaches past the map of %d bytes", ErrHeader, len(c.Ext), len(ext))
		}
		if len(c.Ext) == maxExtFields {
			return fmt.Errorf("%w: more than %d ext fields", ErrHeader, maxExtFields)
		}
		c.Ext = append(c.Ext, Field{Key: internKey(key), Value: value})
	}
	return nil
}

// headSerialize tells how a header is written that should be written as want: the
// binary one has 16 bits for codes and versions, too few for the POP codes.
func headSerialize(want SerializeType, code, version int32) SerializeType {
	if want != SerializeRocketMQ || code != int32(int16(code)) || version != int32(int16(version)) {
		return SerializeJSON
	}
	return SerializeRocketMQ
}

// keysFitBinary reports whether the lengths of all keys fit 16 bits.
func keysFitBinary(ext []Field) bool {
	for i := range ext {
		if len(ext[i].Key) > math.MaxInt16 {
			return false
		}
	}
	return true
}

// appendBinaryHeader appends c's header in the ROCKETMQ serialisation.
func appendBinaryHeader(dst []byte, c *Command) []byte {
	dst = appendBinaryFixed(dst, c.Code, c.Language, c.Version, c.Opaque, c.Flag, c.Remark)
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	for i := range c.Ext {
		dst = appendBinaryField(dst, c.Ext[i].Key, c.Ext[i].Value)
	}
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

// appendBinaryFixed appends all that precedes the ext length.
func appendBinaryFixed(dst []byte, code int32, language uint8, version, opaque, flag int32, remark string) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(code))
	dst = append(dst, language)
	dst = binary.BigEndian.AppendUint16(dst, uint16(version))
	dst = binary.BigEndian.AppendUint32(dst, uint32(opaque))
	dst = binary.BigEndian.AppendUint32(dst, uint32(flag))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(remark)))
	return append(dst, remark...)
}

func appendBinaryField(dst []byte, key string, value []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(key)))
	dst = append(dst, key...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(value)))
	return append(dst, value...)
}

func appendBinaryInt(dst []byte, key string, n int64) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(key)))
	dst = append(dst, key...)
	at := len(dst)
	dst = append(dst, 0, 0, 0, 0)
	dst = strconv.AppendInt(dst, n, 10)
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}

func appendBinaryBool(dst []byte, key string, v bool) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(key)))
	dst = append(dst, key...)
	if v {
		return append(dst, 0, 0, 0, 4, 't', 'r', 'u', 'e')
	}
	return append(dst, 0, 0, 0, 5, 'f', 'a', 'l', 's', 'e')
}
