package command

import (
	"encoding/binary"
	"fmt"
)

// The two commands here store records and change a table with one stroke, or do nothing (F15, F17). Their records
// are whole, in final form, offsets zero, each of a topic and queue of its own. Layouts, big-endian:
//
//	KindDelayDeliver    u32 level | u64 expected progress | u64 next progress | u32 count | records
//	KindTransactionEnd  u8 outcome | u64 queue offset of the half message | u32 count | records
const (
	delayHead       = 24
	transactionHead = 13
)

// DelayDeliver stores the real messages of delayed ones that are due, and moves the level's progress. It is
// refused when the progress is not the expected one: another leader has delivered them.
type DelayDeliver struct {
	Level          int   // 1, 2, …
	Expected, Next int64 // offsets in the level's schedule queue
	Count          int
	Records        []byte
}

// Outcome of a transaction. Numbers are part of the format.
type Outcome uint8

// Outcomes.
const (
	Committed  Outcome = 1 // records: the real message, then the op record
	RolledBack Outcome = 2 // the op record
	GivenUp    Outcome = 3 // the copy in TRANS_CHECK_MAX_TIME_TOPIC
)

// TransactionEnd ends a half message. It is refused when that has an end already.
type TransactionEnd struct {
	Outcome Outcome
	Half    int64 // queue offset of the half message
	Count   int
	Records []byte
}

// AppendDelayDeliver appends the command.
func AppendDelayDeliver(dst []byte, d *DelayDeliver) []byte {
	dst = appendHead(dst, KindDelayDeliver, delayHead+len(d.Records))
	dst = binary.BigEndian.AppendUint32(dst, uint32(d.Level))
	dst = binary.BigEndian.AppendUint64(dst, uint64(d.Expected))
	dst = binary.BigEndian.AppendUint64(dst, uint64(d.Next))
	dst = binary.BigEndian.AppendUint32(dst, uint32(d.Count))
	return append(dst, d.Records...)
}

// AppendTransactionEnd appends the command.
func AppendTransactionEnd(dst []byte, e *TransactionEnd) []byte {
	dst = appendHead(dst, KindTransactionEnd, transactionHead+len(e.Records))
	dst = append(dst, byte(e.Outcome))
	dst = binary.BigEndian.AppendUint64(dst, uint64(e.Half))
	dst = binary.BigEndian.AppendUint32(dst, uint32(e.Count))
	return append(dst, e.Records...)
}

func appendHead(dst []byte, kind Kind, payload int) []byte {
	return binary.BigEndian.AppendUint32(append(dst, byte(kind), 1), uint32(payload))
}

// DelayDeliver decodes the payload of a KindDelayDeliver command. Records is a view of it.
func (c Command) DelayDeliver() (d DelayDeliver, err error) {
	p := c.Payload
	if len(p) < delayHead {
		return d, fmt.Errorf("%w: delivery of delayed messages in %d bytes", ErrMalformed, len(p))
	}
	d.Level = int(binary.BigEndian.Uint32(p))
	d.Expected, d.Next = int64(binary.BigEndian.Uint64(p[4:])), int64(binary.BigEndian.Uint64(p[12:]))
	d.Count, d.Records = int(binary.BigEndian.Uint32(p[20:])), p[delayHead:]
	if d.Level < 1 || d.Expected < 0 || d.Next <= d.Expected {
		return d, fmt.Errorf("%w: delay level %d from %d to %d", ErrMalformed, d.Level, d.Expected, d.Next)
	}
	return d, checkCount(d.Count, d.Records)
}

// TransactionEnd decodes the payload of a KindTransactionEnd command. Records is a view of it.
func (c Command) TransactionEnd() (e TransactionEnd, err error) {
	p := c.Payload
	if len(p) < transactionHead {
		return e, fmt.Errorf("%w: end of a transaction in %d bytes", ErrMalformed, len(p))
	}
	e.Outcome, e.Half = Outcome(p[0]), int64(binary.BigEndian.Uint64(p[1:]))
	e.Count, e.Records = int(binary.BigEndian.Uint32(p[9:])), p[transactionHead:]
	if e.Outcome < Committed || e.Outcome > GivenUp || e.Half < 0 {
		return e, fmt.Errorf("%w: end %d of half message %d", ErrMalformed, e.Outcome, e.Half)
	}
	return e, checkCount(e.Count, e.Records)
}

func checkCount(n int, records []byte) error {
	if n < 0 || n > len(records) || (n == 0) != (len(records) == 0) {
		return fmt.Errorf("%w: %d records in %d bytes", ErrMalformed, n, len(records))
	}
	return nil
}
