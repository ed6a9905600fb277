package record

import (
	"encoding/binary"
	"fmt"
	"net/netip"
)

// layout is where the variable parts of one checked record are.
type layout struct {
	size                     int
	bornHost, storeHost      int
	bornSize, storeSize      int // IP bytes, 4 or 16
	body, bodyLen            int
	topic, topicLen          int
	properties, propertieLen int
}

// parse checks magic and every length of the first record of b, in this order: magic, total
// size, inner lengths. It returns the declared size as soon as it is known.
func parse(b []byte) (l layout, n int, err error) {
	if len(b) < blankHeaderSize {
		return l, 0, fmt.Errorf("%w: %d bytes, a header has %d", ErrTruncated, len(b), blankHeaderSize)
	}
	be := binary.BigEndian
	size, magic := int64(int32(be.Uint32(b))), be.Uint32(b[offMagic:])
	topicField := 1
	minSize := int64(MinSize)
	switch magic {
	case MagicV1:
	case MagicV2:
		topicField = 2
		minSize++
	case MagicBlank:
		if size < BlankMinSize {
			return l, 0, fmt.Errorf("%w: blank filler of %d bytes", ErrLength, size)
		}
		if size > int64(len(b)) {
			return l, int(size), fmt.Errorf("%w: blank filler of %d bytes in %d", ErrTruncated, size, len(b))
		}
		return l, int(size), ErrBlank
	default:
		return l, 0, fmt.Errorf("%w %#08x", ErrMagic, magic)
	}
	if size < minSize {
		return l, 0, fmt.Errorf("%w: total size %d, at least %d", ErrLength, size, minSize)
	}
	n = int(size)
	if size > int64(len(b)) {
		return l, n, fmt.Errorf("%w: total size %d in %d bytes", ErrTruncated, size, len(b))
	}
	b = b[:n]
	sysFlag := int32(be.Uint32(b[offSysFlag:]))
	l.size, l.bornSize, l.storeSize = n, 4, 4
	if sysFlag&SysFlagBornHostIPv6 != 0 {
		l.bornSize = 16
	}
	if sysFlag&SysFlagStoreHostIPv6 != 0 {
		l.storeSize = 16
	}
	l.bornHost = offBornHost
	l.storeHost = l.bornHost + l.bornSize + 4 + 8
	l.body = l.storeHost + l.storeSize + 4 + 4 + 8 + 4
	// What is left for body, topic and properties, without their length fields.
	room := n - l.body - topicField - 2
	if room < 0 {
		return l, n, fmt.Errorf("%w: total size %d is too small for its hosts", ErrLength, n)
	}
	l.bodyLen = int(int32(be.Uint32(b[l.body-4:])))
	if l.bodyLen < 0 || l.bodyLen > room {
		return l, n, fmt.Errorf("%w: body of %d bytes, room for %d", ErrLength, l.bodyLen, room)
	}
	room -= l.bodyLen
	l.topic = l.body + l.bodyLen + topicField
	if topicField == 1 {
		l.topicLen = int(int8(b[l.topic-1]))
	} else {
		l.topicLen = int(int16(be.Uint16(b[l.topic-2:])))
	}
	if l.topicLen < 0 || l.topicLen > room {
		return l, n, fmt.Errorf("%w: topic of %d bytes, room for %d", ErrLength, l.topicLen, room)
	}
	room -= l.topicLen
	l.properties = l.topic + l.topicLen + 2
	l.propertieLen = int(int16(be.Uint16(b[l.properties-2:])))
	if l.propertieLen < 0 || l.propertieLen != room {
		return l, n, fmt.Errorf("%w: properties of %d bytes, room for %d", ErrLength, l.propertieLen, room)
	}
	for _, port := range [2]int{l.bornHost + l.bornSize, l.storeHost + l.storeSize} {
		if p := be.Uint32(b[port:]); p > 0xFFFF {
			return l, n, fmt.Errorf("%w: port %d", ErrHost, p)
		}
	}
	return l, n, nil
}

func checkCRC(b []byte, l *layout) error {
	want := binary.BigEndian.Uint32(b[offBodyCRC:])
	if got := BodyCRC(b[l.body : l.body+l.bodyLen]); got != want {
		return fmt.Errorf("%w: stored %#08x, computed %#08x", ErrCRC, want, got)
	}
	return nil
}

// Check validates the first record of b as Decode does, without taking it apart; the body's
// checksum only if crc is set. It returns the record's size, from the moment on that it is
// known: with ErrBlank the filler's size, with ErrTruncated the size to wait for (0 when not
// even the 8-byte header is there). ErrMagic and most ErrLength come with size 0.
//
// A record that passes is safe for View.
func Check(b []byte, crc bool) (int, error) {
	l, n, err := parse(b)
	if err == nil && crc {
		err = checkCRC(b, &l)
	}
	return n, err
}

// Decode reads the first record of b into m and returns its size. Every length and the body's
// checksum are checked. Errors and sizes are those of Check; m is set only without one.
// Topic, Body and Properties live as long as b.
func Decode(b []byte, m *Message) (int, error) {
	l, n, err := parse(b)
	if err != nil {
		return n, err
	}
	if err := checkCRC(b, &l); err != nil {
		return n, err
	}
	be := binary.BigEndian
	after := l.storeHost + l.storeSize + 4
	*m = Message{
		Topic:                     b[l.topic : l.topic+l.topicLen : l.topic+l.topicLen],
		QueueID:                   int32(be.Uint32(b[offQueueID:])),
		Flag:                      int32(be.Uint32(b[offFlag:])),
		QueueOffset:               int64(be.Uint64(b[offQueueOffset:])),
		PhyOffset:                 int64(be.Uint64(b[offPhyOffset:])),
		SysFlag:                   int32(be.Uint32(b[offSysFlag:])),
		BornTimestamp:             int64(be.Uint64(b[offBornTimestamp:])),
		BornHost:                  host(b[l.bornHost:], l.bornSize),
		StoreTimestamp:            int64(be.Uint64(b[l.storeHost-8:])),
		StoreHost:                 host(b[l.storeHost:], l.storeSize),
		ReconsumeTimes:            int32(be.Uint32(b[after:])),
		PreparedTransactionOffset: int64(be.Uint64(b[after+4:])),
		BodyCRC:                   be.Uint32(b[offBodyCRC:]),
		Magic:                     be.Uint32(b[offMagic:]),
		Body:                      b[l.body : l.body+l.bodyLen : l.body+l.bodyLen],
		Properties:                b[l.properties : l.properties+l.propertieLen : l.properties+l.propertieLen],
	}
	return n, nil
}

// host reads IP (4 or 16 bytes) and port.
func host(b []byte, ipSize int) netip.AddrPort {
	ip, _ := netip.AddrFromSlice(b[:ipSize])
	return netip.AddrPortFrom(ip, uint16(binary.BigEndian.Uint32(b[ipSize:])))
}
