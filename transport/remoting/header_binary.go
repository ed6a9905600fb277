package remoting

import (
	"encoding/binary"
	"fmt"
	"math"
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

// fitsBinary reports whether the binary header can hold c: codes and versions have
// 16 bits there (the POP codes do not fit), and so have key lengths.
func fitsBinary(c *Command) bool {
	if c.Code != int32(int16(c.Code)) || c.Version != int32(int16(c.Version)) {
		return false
	}
	for i := range c.Ext {
		if len(c.Ext[i].Key) > math.MaxInt16 {
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
