package store

import (
	"errors"
	"fmt"

	"raftmq/commitlog/record"
)

// chain checks a stream of log bytes, cut anywhere, on its way to sink: whole records with
// valid lengths and bodies, each naming the offset it is at, none across segments, and a
// filler exactly at each segment's end. What it has not checked sink does not see.
type chain struct {
	sink    func([]byte) error
	segment int64 // segment size
	at, to  int64 // offset of the next unchecked byte; end of the stream

	carry []byte // the begin of a record whose end has not come yet
	need  int    // bytes that carry must have before it is worth another look
	blank int64  // what is left of a filler, which is passed on as it comes
}

func (c *chain) write(p []byte) error {
	if c.at+int64(len(c.carry))+int64(len(p)) > c.to {
		return fmt.Errorf("%w: more bytes than up to %d", ErrInstall, c.to)
	}
	// The carried record first, and only its own bytes: what follows is not copied.
	for len(p) > 0 && len(c.carry) > 0 {
		n := min(len(p), max(c.need-len(c.carry), 1))
		c.carry, p = append(c.carry, p[:n]...), p[n:]
		if len(c.carry) < c.need {
			return nil
		}
		rest, err := c.pass(c.carry)
		if err != nil {
			return err
		}
		c.carry = c.carry[:copy(c.carry, rest)]
	}
	rest, err := c.pass(p)
	if err == nil {
		c.carry = append(c.carry, rest...)
	}
	return err
}

// pass gives whole records and filler bytes to sink and returns what is left.
func (c *chain) pass(p []byte) (rest []byte, err error) {
	for len(p) > 0 {
		n, err := c.next(p)
		if err != nil || n == 0 {
			return p, err
		}
		if err := c.sink(p[:n]); err != nil {
			return nil, err
		}
		c.at += int64(n)
		p = p[n:]
	}
	return nil, nil
}

// next tells how much of p is checked; 0 when it must be more first.
func (c *chain) next(p []byte) (int, error) {
	if c.blank > 0 {
		n := min(c.blank, int64(len(p)))
		c.blank -= n
		return int(n), nil
	}
	room := c.segment - c.at%c.segment
	n, err := record.Check(p, true)
	c.need = max(n, record.BlankMinSize)
	switch {
	case isBlank(p) && n > 0:
		if int64(n) != room {
			return 0, fmt.Errorf("%w: filler of %d bytes at %d, %d remain of the segment", ErrInstall, n, c.at, room)
		}
		c.blank = int64(n) - record.BlankMinSize
		return record.BlankMinSize, nil
	case int64(n)+record.BlankMinSize > room:
		return 0, fmt.Errorf("%w: record of %d bytes at %d, %d remain of the segment", ErrInstall, n, c.at, room)
	case errors.Is(err, record.ErrTruncated):
		return 0, nil
	case err != nil:
		return 0, fmt.Errorf("%w: at %d: %w", ErrInstall, c.at, err)
	}
	if got := record.View(p).PhyOffset(); got != c.at {
		return 0, fmt.Errorf("%w: record at %d says it is at %d", ErrInstall, c.at, got)
	}
	return n, nil
}

func isBlank(p []byte) bool {
	return len(p) >= record.BlankMinSize && record.View(p).Magic() == record.MagicBlank
}

// end checks that the stream is complete.
func (c *chain) end() error {
	if c.at != c.to || len(c.carry) > 0 || c.blank > 0 {
		return fmt.Errorf("%w: whole up to %d only, expected up to %d", ErrInstall, c.at, c.to)
	}
	return nil
}
