// Package command is the payload of Raft entries: an entry is an envelope of commands,
// each with a kind and a version of its own, and one Result per command after Apply.
// Pure codec; it knows neither Raft nor the store.
//
// Entry layout (big-endian):
//
//	u8 magic 0xE1 | u8 envelope version 1 | command*
//	command: u8 kind | u8 version | u32 payload length | payload
//
// An unknown envelope version, kind or command version stops the node that meets it
// (ErrUnknown names what is needed): skipping it would make replicas differ.
package command

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
)

// Kind says what a command does.
type Kind uint8

// Kinds. Numbers are part of the format.
const (
	// KindAppend stores records: u32 count | contiguous records of one topic and queue in
	// final form, queue and physical offsets zero (record package layout).
	KindAppend Kind = 1
	// The rest carry a JSON payload of the named type.
	KindSettings      Kind = 2  // Settings: once, at bootstrap
	KindNodePut       Kind = 3  // NodePut
	KindNodeDelete    Kind = 4  // NodeDelete
	KindTopicPut      Kind = 5  // TopicPut
	KindTopicDelete   Kind = 6  // TopicDelete
	KindGroupPut      Kind = 7  // GroupPut
	KindGroupDelete   Kind = 8  // GroupDelete
	KindOffsetsCommit Kind = 9  // OffsetsCommit
	KindKVPut         Kind = 10 // KVPut
	KindKVDelete      Kind = 11 // KVDelete
	// KindDelayDeliver and KindTransactionEnd store records and change a table at once; layouts in relocate.go.
	KindDelayDeliver     Kind = 12 // DelayDeliver
	KindTransactionEnd   Kind = 13 // TransactionEnd
	KindTransactionCheck Kind = 14 // TransactionCheck, JSON
	KindLogTrim          Kind = 15 // LogTrim, JSON
	KindMark             Kind = 16 // Mark, JSON
	KindSegmentSum       Kind = 17 // SegmentSum, JSON
	KindLevel            Kind = 20 // Raise, JSON
	KindQueueLock        Kind = 23 // QueueLock, JSON
	KindQueueUnlock      Kind = 24 // QueueUnlock, JSON
	KindQueueLocksAdopt  Kind = 25 // QueueLocksAdopt, JSON
)

const (
	entryMagic      = 0xE1
	envelopeVersion = 1
	headSize        = 2
	commandHead     = 6
)

// Errors of decoding.
var (
	// ErrUnknown: the entry needs a newer raftmq.
	ErrUnknown = errors.New("command: unknown kind or version")
	// ErrMalformed: the bytes are no entry of ours.
	ErrMalformed = errors.New("command: malformed entry")
)

// AppendEntryHead starts an entry.
func AppendEntryHead(dst []byte) []byte { return append(dst, entryMagic, envelopeVersion) }

// BeginAppend starts a KindAppend command; the caller then appends its records and calls
// EndAppend with the value that BeginAppend returned as start.
func BeginAppend(dst []byte) (out []byte, start int) {
	start = len(dst)
	return append(dst, byte(KindAppend), 1, 0, 0, 0, 0, 0, 0, 0, 0), start
}

// EndAppend fills in length and record count of the command begun at start.
func EndAppend(dst []byte, start, records int) []byte {
	binary.BigEndian.PutUint32(dst[start+2:], uint32(len(dst)-start-commandHead))
	binary.BigEndian.PutUint32(dst[start+commandHead:], uint32(records))
	return dst
}

// AppendJSON appends a table command.
func AppendJSON(dst []byte, kind Kind, payload any) ([]byte, error) {
	b, err := json.Marshal(payload)
	if err != nil {
		return dst, fmt.Errorf("command: kind %d: %w", kind, err)
	}
	dst = append(dst, byte(kind), 1)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(b)))
	return append(dst, b...), nil
}

// Command is one decoded command; Payload is a view of the entry.
type Command struct {
	Kind    Kind
	Version uint8
	Payload []byte
}

// Records splits the payload of a KindAppend command.
func (c Command) Records() (records []byte, n int, err error) {
	if len(c.Payload) < 4 {
		return nil, 0, fmt.Errorf("%w: append payload of %d bytes", ErrMalformed, len(c.Payload))
	}
	n = int(binary.BigEndian.Uint32(c.Payload))
	if n <= 0 || n > len(c.Payload) {
		return nil, 0, fmt.Errorf("%w: append of %d records in %d bytes", ErrMalformed, n, len(c.Payload))
	}
	return c.Payload[4:], n, nil
}

// Reader walks an entry's commands.
type Reader struct{ rest []byte }

// NewReader checks the envelope.
func NewReader(entry []byte) (Reader, error) {
	if len(entry) < headSize || entry[0] != entryMagic {
		return Reader{}, fmt.Errorf("%w: %d bytes without the entry magic", ErrMalformed, len(entry))
	}
	if entry[1] != envelopeVersion {
		return Reader{}, fmt.Errorf("%w: envelope version %d, this raftmq reads %d", ErrUnknown, entry[1], envelopeVersion)
	}
	return Reader{rest: entry[headSize:]}, nil
}

// Next returns the next command; ok is false at the end.
func (r *Reader) Next() (c Command, ok bool, err error) {
	if len(r.rest) == 0 {
		return Command{}, false, nil
	}
	if len(r.rest) < commandHead {
		return Command{}, false, fmt.Errorf("%w: %d bytes left where a command head needs %d", ErrMalformed, len(r.rest), commandHead)
	}
	n := uint64(binary.BigEndian.Uint32(r.rest[2:]))
	if n > uint64(len(r.rest)-commandHead) {
		return Command{}, false, fmt.Errorf("%w: command of %d bytes, %d left", ErrMalformed, n, len(r.rest)-commandHead)
	}
	c = Command{Kind: Kind(r.rest[0]), Version: r.rest[1], Payload: r.rest[commandHead : commandHead+int(n)]}
	if need := c.Kind.level(c.Version); need == 0 || need > Newest {
		return Command{}, false, fmt.Errorf("%w: kind %d version %d; upgrade this node to the raftmq version of its leader", ErrUnknown, c.Kind, c.Version)
	}
	r.rest = r.rest[commandHead+int(n):]
	return c, true, nil
}

// Count returns the number of commands of an entry without checking their content.
func Count(entry []byte) int {
	n := 0
	for off := headSize; off+commandHead <= len(entry); n++ {
		off += commandHead + int(binary.BigEndian.Uint32(entry[off+2:]))
	}
	return n
}

// Result of one command after Apply.
type Result struct {
	// Err is a refusal by the tables (a deterministic answer, the same on all nodes), not
	// a failure of the node.
	Err error
	// QueueOffset and PhyOffset are those of an append's first record; StoreTimestamp is
	// its final store time.
	QueueOffset, PhyOffset int64
}

// Results is what Apply returns for an entry: one Result per command, in order.
type Results []Result

// ErrNoResult: what came back for an entry is no Results, or has too few.
var ErrNoResult = errors.New("command: the state machine gave no result for the command")

// ResultOf picks the result of an entry's i-th command, as the arguments of raftnode.Proposal.Done name it. Its Err is
// returned as the error.
func ResultOf(entryResult any, i int, err error) (Result, error) {
	if err != nil {
		return Result{}, err
	}
	results, ok := entryResult.(Results)
	if !ok || i >= len(results) {
		return Result{}, ErrNoResult
	}
	return results[i], results[i].Err
}
