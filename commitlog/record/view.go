package record

import (
	"encoding/binary"
	"net/netip"
)

// View reads fields straight from one encoded record that passed Check or Decode; on other
// bytes its methods may panic. Nothing is allocated. Slices live as long as the record's bytes.
type View []byte

func (v View) u32(at int) uint32 { return binary.BigEndian.Uint32(v[at:]) }
func (v View) u64(at int) uint64 { return binary.BigEndian.Uint64(v[at:]) }

// ipSize is 16 when the flag is set and 4 otherwise.
func (v View) ipSize(flag int32) int {
	if v.SysFlag()&flag != 0 {
		return 16
	}
	return 4
}

func (v View) storeTimestampAt() int {
	return offBornHost + v.ipSize(SysFlagBornHostIPv6) + 4
}

// fixedTailAt is the position of field 13, reconsume times.
func (v View) fixedTailAt() int {
	return v.storeTimestampAt() + 8 + v.ipSize(SysFlagStoreHostIPv6) + 4
}

func (v View) bodyAt() (at, n int) {
	at = v.fixedTailAt() + 16
	return at, int(v.u32(at - 4))
}

func (v View) topicAt() (at, n int) {
	body, bodyLen := v.bodyAt()
	at = body + bodyLen
	if v.Magic() == MagicV2 {
		return at + 2, int(binary.BigEndian.Uint16(v[at:]))
	}
	return at + 1, int(v[at])
}

// Size is field 1, the record's length.
func (v View) Size() int { return int(int32(v.u32(offTotalSize))) }

// Magic is field 2.
func (v View) Magic() uint32 { return v.u32(offMagic) }

// BodyCRC is field 3 as stored.
func (v View) BodyCRC() uint32 { return v.u32(offBodyCRC) }

// QueueID is field 4.
func (v View) QueueID() int32 { return int32(v.u32(offQueueID)) }

// Flag is field 5.
func (v View) Flag() int32 { return int32(v.u32(offFlag)) }

// QueueOffset is field 6.
func (v View) QueueOffset() int64 { return int64(v.u64(offQueueOffset)) }

// PhyOffset is field 7.
func (v View) PhyOffset() int64 { return int64(v.u64(offPhyOffset)) }

// SysFlag is field 8.
func (v View) SysFlag() int32 { return int32(v.u32(offSysFlag)) }

// BornTimestamp is field 9, ms.
func (v View) BornTimestamp() int64 { return int64(v.u64(offBornTimestamp)) }

// BornHost is field 10.
func (v View) BornHost() netip.AddrPort {
	return host(v[offBornHost:], v.ipSize(SysFlagBornHostIPv6))
}

// StoreTimestamp is field 11, ms.
func (v View) StoreTimestamp() int64 { return int64(v.u64(v.storeTimestampAt())) }

// StoreHost is field 12.
func (v View) StoreHost() netip.AddrPort {
	return host(v[v.storeTimestampAt()+8:], v.ipSize(SysFlagStoreHostIPv6))
}

// ReconsumeTimes is field 13.
func (v View) ReconsumeTimes() int32 { return int32(v.u32(v.fixedTailAt())) }

// PreparedTransactionOffset is field 14.
func (v View) PreparedTransactionOffset() int64 { return int64(v.u64(v.fixedTailAt() + 4)) }

// Body is field 15.
func (v View) Body() []byte {
	at, n := v.bodyAt()
	return v[at : at+n : at+n]
}

// Topic is field 16.
func (v View) Topic() []byte {
	at, n := v.topicAt()
	return v[at : at+n : at+n]
}

// Properties is field 17.
func (v View) Properties() []byte {
	at, n := v.topicAt()
	at += n + 2
	n = int(binary.BigEndian.Uint16(v[at-2:]))
	return v[at : at+n : at+n]
}
