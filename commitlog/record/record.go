// Package record is the message record: RocketMQ's 17-field layout, one form for disk,
// Raft entries and pull answers; batches, properties, message ids, tag codes, checksum.
// Pure functions over bytes; no files.
package record

import "net/netip"

// Format constants of RocketMQ's MessageDecoder and CommitLog.
const (
	MagicV1    uint32 = 0xDAA320A7
	MagicV2    uint32 = 0xDAA320AB
	MagicBlank uint32 = 0xCBD43194
	// BlankMinSize is the room a segment keeps for its end-of-file filler.
	BlankMinSize = 8
)

// Message is a record's fields. After Decode Topic, Properties and Body are views of the record.
type Message struct {
	Topic                     []byte
	QueueID                   int32
	Flag                      int32
	QueueOffset               int64
	PhyOffset                 int64
	SysFlag                   int32
	BornTimestamp             int64
	BornHost                  netip.AddrPort
	StoreTimestamp            int64
	StoreHost                 netip.AddrPort
	ReconsumeTimes            int32
	PreparedTransactionOffset int64
	BodyCRC                   uint32 // filled in by Decode; Append computes it
	Body                      []byte
	Properties                []byte
}

// Size is the encoded size in bytes.
func (m *Message) Size() int { panic("stub") }

// Append appends the record (magic v1), setting the IPv6 flags and the body CRC. No allocation.
func Append(dst []byte, m *Message) []byte { panic("stub") }

// Decode reads the first record of b and returns its size. Every length is checked.
func Decode(b []byte, m *Message) (int, error) { panic("stub") }

// View reads fields straight from one encoded, checked record.
type View []byte

// Size is field 1, the record's length.
func (v View) Size() int { panic("stub") }

// Topic and the following return single fields; slices are views.
func (v View) Topic() []byte         { panic("stub") }
func (v View) QueueID() int32        { panic("stub") }
func (v View) QueueOffset() int64    { panic("stub") }
func (v View) PhyOffset() int64      { panic("stub") }
func (v View) SysFlag() int32        { panic("stub") }
func (v View) StoreTimestamp() int64 { panic("stub") }
func (v View) BornTimestamp() int64  { panic("stub") }
func (v View) Body() []byte          { panic("stub") }
func (v View) Properties() []byte    { panic("stub") }

// PatchOffsets and PatchStoreTimestamp change fields 6, 7 and 11 in place. Apply's way.
func PatchOffsets(rec []byte, queueOffset, phyOffset int64) { panic("stub") }

// PatchStoreTimestamp sets field 11.
func PatchStoreTimestamp(rec []byte, millis int64) { panic("stub") }

// Property returns a property's value as a view; later duplicates win.
func Property(props []byte, name string) ([]byte, bool) { panic("stub") }

// TagsCode is the Java hash of TAGS sign-extended, 0 when absent (not the delay exception).
func TagsCode(props []byte) int64 { panic("stub") }

// JavaHash is String.hashCode over UTF-16 units of UTF-8 text.
func JavaHash(s []byte) int32 { panic("stub") }

// AppendMessageID appends the offset message id, upper-case hex: 32 digits for IPv4, 56 for IPv6.
func AppendMessageID(dst []byte, storeHost netip.AddrPort, phyOffset int64) []byte { panic("stub") }

// ParseMessageID is its inverse.
func ParseMessageID(id string) (netip.AddrPort, int64, error) { panic("stub") }

// BatchEntry is one entry of a SEND_BATCH_MESSAGE body.
type BatchEntry struct {
	Flag             int32
	Body, Properties []byte
}

// NextBatchEntry decodes the first entry of a batch body and returns the rest.
func NextBatchEntry(b []byte) (e BatchEntry, rest []byte, err error) { panic("stub") }
