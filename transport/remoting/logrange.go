package remoting

import (
	"fmt"
	"strconv"
)

// Requests between nodes, for whoever fills or mends a commit log. Any node answers what it holds.
const (
	// RequestLogRange asks for bytes of the commit log as they are; ext of a LogRange, answer: ext of a LogRangeAnswer, the bytes as body.
	RequestLogRange int32 = 9009
	// RequestLogSum asks for a checksum over any length of the commit log, as it was applied; ext of a LogRange, answer: ext of a
	// LogRangeAnswer, no body.
	RequestLogSum int32 = 9010
)

// Answers to RequestLogRange and RequestLogSum besides success and SYSTEM_ERROR; the remark says which bytes are meant.
const (
	// ResponseLogRangeOutside: the log of the node that was asked does not have the range, or no longer. MinOffset and MaxOffset are set.
	ResponseLogRangeOutside int32 = 9101
	// ResponseLogRangeDamaged: the node that was asked found bytes of the range damaged: ask another one.
	ResponseLogRangeDamaged int32 = 9102
)

// MaxLogRange is the most that one RequestLogRange brings; longer ones are answered in part.
const MaxLogRange = 1 << 20

// LogRange is the ext of RequestLogRange and RequestLogSum: bytes [Offset, Offset+Length) of the commit log.
type LogRange struct {
	Offset, Length int64
	// Peer keeps the segments from Offset on where they are until this peer's next request, two minutes at most; "" keeps nothing.
	// Done: this was the peer's last request.
	Peer string
	Done bool
	// Slow, of RequestLogSum: the range is a sealed segment, and what the node would have to read for its sum it reads at its scrub's pace; an error until then.
	Slow bool
}

// SetExt puts it into a request.
func (l *LogRange) SetExt(cmd *Command) {
	cmd.Set("offset", strconv.FormatInt(l.Offset, 10))
	cmd.Set("length", strconv.FormatInt(l.Length, 10))
	if l.Peer != "" {
		cmd.Set("peer", l.Peer)
	}
	if l.Done {
		cmd.Set("done", "true")
	}
	if l.Slow {
		cmd.Set("slow", "true")
	}
}

// DecodeLogRange reads it from a request. Lengths must not be negative, and the range not overflow.
func DecodeLogRange(cmd *Command) (l LogRange, err error) {
	if l.Offset, err = extInt(cmd, "offset"); err != nil {
		return l, err
	}
	if l.Length, err = extInt(cmd, "length"); err != nil {
		return l, err
	}
	if l.Offset < 0 || l.Length < 0 || l.Offset+l.Length < 0 {
		return l, fmt.Errorf("%w: log range from %d, %d bytes", ErrFieldValue, l.Offset, l.Length)
	}
	l.Peer, l.Done, l.Slow = cmd.GetString("peer"), cmd.GetString("done") == "true", cmd.GetString("slow") == "true"
	return l, nil
}

// LogRangeAnswer is the ext of an answer to them.
type LogRangeAnswer struct {
	Offset    int64  // of the first byte
	CRC       uint32 // CRC-32C of the body, or of what was asked for
	MinOffset int64  // first offset that this node can serve
	MaxOffset int64  // end of its log
}

// SetExt puts it into an answer.
func (a *LogRangeAnswer) SetExt(cmd *Command) {
	cmd.Set("offset", strconv.FormatInt(a.Offset, 10))
	cmd.Set("crc32c", fmt.Sprintf("%08x", a.CRC))
	cmd.Set("minOffset", strconv.FormatInt(a.MinOffset, 10))
	cmd.Set("maxOffset", strconv.FormatInt(a.MaxOffset, 10))
}

// DecodeLogRangeAnswer reads it from an answer.
func DecodeLogRangeAnswer(cmd *Command) (a LogRangeAnswer, err error) {
	for _, f := range []struct {
		key string
		to  *int64
	}{{"offset", &a.Offset}, {"minOffset", &a.MinOffset}, {"maxOffset", &a.MaxOffset}} {
		if *f.to, err = extInt(cmd, f.key); err != nil {
			return a, err
		}
	}
	crc, err := strconv.ParseUint(cmd.GetString("crc32c"), 16, 32)
	if err != nil {
		return a, fmt.Errorf("%w: crc32c %q", ErrFieldValue, cmd.GetString("crc32c"))
	}
	a.CRC = uint32(crc)
	return a, nil
}

func extInt(cmd *Command, key string) (int64, error) {
	n, err := strconv.ParseInt(cmd.GetString(key), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %s %q", ErrFieldValue, key, cmd.GetString(key))
	}
	return n, nil
}
