// Package record is the message record: RocketMQ's 17-field layout, one form for disk,
// Raft entries and pull answers; batches, properties, message ids, tag codes, checksum.
//
// It holds pure functions over bytes: no files, no clock, no state. It does not decide
// offsets (Deterministic-Apply: the commit log patches them), and it never compresses or
// inflates a body.
//
// Layout of one record (RocketMQ 4.9.4, CommitLog and MessageDecoder), big-endian, b and s
// being 8 for an IPv4 host and 20 for an IPv6 host:
//
//	0       4  total size, this field included
//	4       4  magic, MagicV1 or MagicV2
//	8       4  CRC-32 (IEEE) of the body & 0x7FFFFFFF, 0 for an empty body
//	12      4  queue id
//	16      4  flag, opaque to the broker
//	20      8  queue offset (0 for prepared and rollback types)
//	28      8  physical offset of byte 0 of this record
//	36      4  sysFlag; 0x10 born host is IPv6, 0x20 store host is IPv6
//	40      8  born timestamp, ms
//	48      b  born host: IP, then the port as 4-byte int
//	48+b    8  store timestamp, ms
//	56+b    s  store host
//	56+b+s  4  reconsume times
//	60+b+s  8  prepared transaction offset
//	68+b+s  4  body length, body
//	        1  topic length (2 in v2), topic
//	        2  properties length, properties
//
// A blank record fills the end of a segment: 4-byte size (all that remains), 4-byte
// MagicBlank; the bytes after these are unspecified.
package record

import (
	"errors"
	"net/netip"
)

// Format constants of RocketMQ's MessageDecoder and CommitLog.
const (
	MagicV1    uint32 = 0xDAA320A7
	MagicV2    uint32 = 0xDAA320AB // topic length is a 2-byte field (RocketMQ 5)
	MagicBlank uint32 = 0xCBD43194
	// BlankMinSize is the room a segment keeps for its end-of-file filler.
	BlankMinSize = 8
	// MinSize is the smallest record: IPv4 hosts, everything else empty.
	MinSize = fixedSize + 2*hostV4Size
)

// Limits of the length fields (all are signed in the format).
const (
	MaxTopicLen      = 127
	MaxTopicLenV2    = 32767
	MaxPropertiesLen = 32767
)

// Bits of SysFlag (RocketMQ's MessageSysFlag).
const (
	SysFlagCompressed    int32 = 0x1
	SysFlagMultiTags     int32 = 0x2
	SysFlagTransaction   int32 = 0xC // mask
	SysFlagPrepared      int32 = 0x4
	SysFlagCommit        int32 = 0x8
	SysFlagRollback      int32 = 0xC
	SysFlagBornHostIPv6  int32 = 0x10
	SysFlagStoreHostIPv6 int32 = 0x20
	sysFlagHosts               = SysFlagBornHostIPv6 | SysFlagStoreHostIPv6
)

// Sizes and positions of the layout above.
const (
	fixedSize  = 75 // all fields but hosts, body, topic, properties; v1
	hostV4Size = 8
	hostV6Size = 20

	offTotalSize     = 0
	offMagic         = 4
	offBodyCRC       = 8
	offQueueID       = 12
	offFlag          = 16
	offQueueOffset   = 20
	offPhyOffset     = 28
	offSysFlag       = 36
	offBornTimestamp = 40
	offBornHost      = 48

	crcMask               = 0x7FFFFFFF
	blankHeaderSize       = 8
	maxRecordSize   int64 = 1<<31 - 1
)

// Errors of the decoders. A sentence each; they come wrapped with the facts.
var (
	// ErrBlank: the bytes start with a segment's end-of-file filler. Not damage.
	ErrBlank = errors.New("record: blank filler")
	// ErrTruncated: the record goes on behind the given bytes.
	ErrTruncated = errors.New("record: truncated")
	// ErrMagic: the magic is neither a record's nor the filler's.
	ErrMagic = errors.New("record: illegal magic")
	// ErrLength: a length field contradicts another one or its limits.
	ErrLength = errors.New("record: illegal length")
	// ErrCRC: the body does not match its checksum.
	ErrCRC = errors.New("record: body checksum mismatch")
	// ErrHost: a host's port is above 65535.
	ErrHost = errors.New("record: illegal host")
)

// Message is a record's fields. After Decode Topic, Properties and Body are views of the record.
type Message struct {
	Topic                     []byte
	QueueID                   int32
	Flag                      int32
	QueueOffset               int64
	PhyOffset                 int64
	SysFlag                   int32 // Append overrides the IPv6 bits by the hosts
	BornTimestamp             int64 // ms
	BornHost                  netip.AddrPort
	StoreTimestamp            int64 // ms
	StoreHost                 netip.AddrPort
	ReconsumeTimes            int32
	PreparedTransactionOffset int64
	BodyCRC                   uint32 // filled in by Decode; Append computes it
	Magic                     uint32 // filled in by Decode; Append takes 0 as MagicV1
	Body                      []byte
	Properties                []byte
}

// TransactionType is the transaction part of a sysFlag: 0, SysFlagPrepared, SysFlagCommit or SysFlagRollback.
func TransactionType(sysFlag int32) int32 { return sysFlag & SysFlagTransaction }

// AssignsQueueOffset tells whether a record of this sysFlag takes a place in its consume
// queue. Prepared and rollback records do not: their field 6 is 0.
func AssignsQueueOffset(sysFlag int32) bool {
	t := TransactionType(sysFlag)
	return t != SysFlagPrepared && t != SysFlagRollback
}
