package record

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// ErrBatch: a batch body with a broken entry.
var ErrBatch = errors.New("record: illegal batch entry")

// Layout of a batch entry (RocketMQ's MessageDecoder.encodeMessage), big-endian:
//
//	0     4  total size of the entry
//	4     4  magic, 0, ignored
//	8     4  body CRC, 0, ignored
//	12    4  flag
//	16    4  body length, body
//	      2  properties length, properties
const (
	batchFixedSize = 22
	batchFlag      = 12
	batchBody      = 20
)

// BatchEntry is one entry of a SEND_BATCH_MESSAGE body. The slices are views.
type BatchEntry struct {
	Flag             int32
	Body, Properties []byte
}

// NextBatchEntry decodes the first entry of a batch body and returns the rest. Each length
// is checked against what remains, and the entry's size against its parts.
func NextBatchEntry(b []byte) (e BatchEntry, rest []byte, err error) {
	if len(b) < batchFixedSize {
		return e, nil, fmt.Errorf("%w: %d bytes, at least %d", ErrBatch, len(b), batchFixedSize)
	}
	be := binary.BigEndian
	size := int64(int32(be.Uint32(b)))
	if size < batchFixedSize || size > int64(len(b)) {
		return e, nil, fmt.Errorf("%w: size %d in %d bytes", ErrBatch, size, len(b))
	}
	b, rest = b[:size:size], b[size:]
	e.Flag = int32(be.Uint32(b[batchFlag:]))
	room := int64(len(b) - batchFixedSize)
	bodyLen := int64(int32(be.Uint32(b[batchBody-4:])))
	if bodyLen < 0 || bodyLen > room {
		return BatchEntry{}, nil, fmt.Errorf("%w: body of %d bytes, room for %d", ErrBatch, bodyLen, room)
	}
	at := batchBody + bodyLen
	propertiesLen := int64(int16(be.Uint16(b[at:])))
	if propertiesLen < 0 || propertiesLen != room-bodyLen {
		return BatchEntry{}, nil, fmt.Errorf("%w: properties of %d bytes, room for %d", ErrBatch, propertiesLen, room-bodyLen)
	}
	e.Body = b[batchBody:at:at]
	e.Properties = b[at+2:]
	return e, rest, nil
}

// AppendBatchEntry appends e in wire form. Properties are at most MaxPropertiesLen bytes.
func AppendBatchEntry(dst []byte, e BatchEntry) []byte {
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(batchFixedSize+len(e.Body)+len(e.Properties)))
	dst = append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	dst = be.AppendUint32(dst, uint32(e.Flag))
	dst = be.AppendUint32(dst, uint32(len(e.Body)))
	dst = append(dst, e.Body...)
	dst = be.AppendUint16(dst, uint16(len(e.Properties)))
	return append(dst, e.Properties...)
}
