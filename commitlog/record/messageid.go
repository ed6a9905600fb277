package record

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
)

// ErrMessageID: a text that is no offset message id.
var ErrMessageID = errors.New("record: illegal message id")

const upperHex = "0123456789ABCDEF"

// AppendMessageID appends the offset message id (RocketMQ's MessageDecoder.createMessageId):
// store host and physical offset, upper-case hex: 32 digits for IPv4, 56 for IPv6.
func AppendMessageID(dst []byte, storeHost netip.AddrPort, phyOffset int64) []byte {
	var b [hostV6Size + 8]byte
	n := hostSize(storeHost)
	putHost(b[:], storeHost)
	binary.BigEndian.PutUint64(b[n:], uint64(phyOffset))
	for _, c := range b[:n+8] {
		dst = append(dst, upperHex[c>>4], upperHex[c&0xF])
	}
	return dst
}

// ParseMessageID is its inverse; lower-case digits are accepted.
func ParseMessageID(id string) (netip.AddrPort, int64, error) {
	var b [hostV6Size + 8]byte
	n := len(id) / 2
	if len(id) != 2*(hostV4Size+8) && len(id) != 2*(hostV6Size+8) {
		return netip.AddrPort{}, 0, fmt.Errorf("%w: %d digits, must be 32 or 56", ErrMessageID, len(id))
	}
	if _, err := hex.Decode(b[:n], []byte(id)); err != nil {
		return netip.AddrPort{}, 0, fmt.Errorf("%w: %w", ErrMessageID, err)
	}
	ipSize := n - 8 - 4
	if port := binary.BigEndian.Uint32(b[ipSize:]); port > 0xFFFF {
		return netip.AddrPort{}, 0, fmt.Errorf("%w: port %d", ErrMessageID, port)
	}
	return host(b[:], ipSize), int64(binary.BigEndian.Uint64(b[n-8:])), nil
}
