package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"net/netip"
	"slices"
)

// Size is the encoded size in bytes.
func (m *Message) Size() int {
	n := fixedSize + hostSize(m.BornHost) + hostSize(m.StoreHost) + len(m.Body) + len(m.Topic) + len(m.Properties)
	if m.Magic == MagicV2 {
		n++
	}
	return n
}

// Validate tells whether Append can represent m: the lengths fit their fields and the magic
// is a record's. Broker limits (spec of the send path) are smaller in part and checked there.
func (m *Message) Validate() error {
	maxTopic := MaxTopicLen
	switch m.Magic {
	case 0, MagicV1:
	case MagicV2:
		maxTopic = MaxTopicLenV2
	default:
		return fmt.Errorf("%w %#08x", ErrMagic, m.Magic)
	}
	switch {
	case len(m.Topic) > maxTopic:
		return fmt.Errorf("%w: topic has %d bytes, at most %d", ErrLength, len(m.Topic), maxTopic)
	case len(m.Properties) > MaxPropertiesLen:
		return fmt.Errorf("%w: properties have %d bytes, at most %d", ErrLength, len(m.Properties), MaxPropertiesLen)
	case int64(m.Size()) > maxRecordSize:
		return fmt.Errorf("%w: record has %d bytes, at most %d", ErrLength, m.Size(), maxRecordSize)
	}
	return nil
}

// Append appends the record (magic v1 unless m.Magic says v2), setting the IPv6 flags and the
// body CRC. It allocates only when dst lacks room. m must be valid (Validate): a length that
// does not fit its field is a broken invariant of the caller and panics.
func Append(dst []byte, m *Message) []byte {
	if err := m.Validate(); err != nil {
		panic(err)
	}
	size := m.Size()
	dst = slices.Grow(dst, size)
	start := len(dst)
	dst = dst[:start+size]
	b := dst[start:]

	magic, sysFlag := m.Magic, m.SysFlag&^sysFlagHosts
	if magic == 0 {
		magic = MagicV1
	}
	if isV6(m.BornHost) {
		sysFlag |= SysFlagBornHostIPv6
	}
	if isV6(m.StoreHost) {
		sysFlag |= SysFlagStoreHostIPv6
	}
	be := binary.BigEndian
	be.PutUint32(b[offTotalSize:], uint32(size))
	be.PutUint32(b[offMagic:], magic)
	be.PutUint32(b[offBodyCRC:], BodyCRC(m.Body))
	be.PutUint32(b[offQueueID:], uint32(m.QueueID))
	be.PutUint32(b[offFlag:], uint32(m.Flag))
	be.PutUint64(b[offQueueOffset:], uint64(m.QueueOffset))
	be.PutUint64(b[offPhyOffset:], uint64(m.PhyOffset))
	be.PutUint32(b[offSysFlag:], uint32(sysFlag))
	be.PutUint64(b[offBornTimestamp:], uint64(m.BornTimestamp))
	b = b[offBornHost:]
	b = putHost(b, m.BornHost)
	be.PutUint64(b, uint64(m.StoreTimestamp))
	b = putHost(b[8:], m.StoreHost)
	be.PutUint32(b, uint32(m.ReconsumeTimes))
	be.PutUint64(b[4:], uint64(m.PreparedTransactionOffset))
	be.PutUint32(b[12:], uint32(len(m.Body)))
	b = b[16+copy(b[16:], m.Body):]
	if magic == MagicV2 {
		be.PutUint16(b, uint16(len(m.Topic)))
		b = b[2:]
	} else {
		b[0] = byte(len(m.Topic))
		b = b[1:]
	}
	b = b[copy(b, m.Topic):]
	be.PutUint16(b, uint16(len(m.Properties)))
	copy(b[2:], m.Properties)
	return dst
}

// AppendBlank appends the 8-byte header of a filler that is to take size bytes; the caller
// zeroes the rest. size is at least BlankMinSize.
func AppendBlank(dst []byte, size int) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(size))
	return binary.BigEndian.AppendUint32(dst, MagicBlank)
}

// BodyCRC is the checksum as stored in field 3. A body can have the CRC 0 like any other
// value: 0 never means "not checked" (F45).
func BodyCRC(body []byte) uint32 { return crc32.ChecksumIEEE(body) & crcMask }

// PatchOffsets sets fields 6 and 7 in place. Apply's way.
func PatchOffsets(rec []byte, queueOffset, phyOffset int64) {
	binary.BigEndian.PutUint64(rec[offQueueOffset:], uint64(queueOffset))
	binary.BigEndian.PutUint64(rec[offPhyOffset:], uint64(phyOffset))
}

// PatchStoreTimestamp sets field 11.
func PatchStoreTimestamp(rec []byte, millis int64) {
	binary.BigEndian.PutUint64(rec[View(rec).storeTimestampAt():], uint64(millis))
}

// isV6 tells the 20-byte form. A v4-mapped address keeps its 16 bytes, so that decoding and
// encoding again gives the same bytes; the caller unmaps what it got from a socket. A zero
// AddrPort is stored as 0.0.0.0:0.
func isV6(h netip.AddrPort) bool { return h.Addr().BitLen() == 128 }

func hostSize(h netip.AddrPort) int {
	if isV6(h) {
		return hostV6Size
	}
	return hostV4Size
}

// putHost writes IP and 4-byte port and returns what follows.
func putHost(b []byte, h netip.AddrPort) []byte {
	n := 4
	switch {
	case isV6(h):
		ip := h.Addr().As16()
		n = copy(b, ip[:])
	case h.Addr().Is4():
		ip := h.Addr().As4()
		copy(b, ip[:])
	default:
		clear(b[:4])
	}
	binary.BigEndian.PutUint32(b[n:], uint32(h.Port()))
	return b[n+4:]
}
