package client

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"raftmq/transport/remoting"
)

// Errors of LogRange, LogSum and FetchLog, besides those of Invoke.
var (
	// ErrLogOutside: the node's log does not have the range, or no longer; the LogRangeAnswer says what it has.
	ErrLogOutside = errors.New("client: outside of the node's commit log")
	// ErrLogDamaged: the node found its own bytes of the range damaged.
	ErrLogDamaged = errors.New("client: damaged on that node")
	// ErrLogAnswer: the answer is not what was asked for, or was damaged on its way.
	ErrLogAnswer = errors.New("client: log bytes do not match their answer")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// LogRange fetches bytes of a node's commit log, r.Length of them or, at its end and beyond remoting.MaxLogRange, fewer. They have passed
// their checksum. At the very end of the log there are none.
func (c *Client) LogRange(ctx context.Context, r remoting.LogRange) ([]byte, remoting.LogRangeAnswer, error) {
	resp, answer, err := c.askLog(ctx, remoting.RequestLogRange, r)
	if err != nil {
		return nil, answer, err
	}
	if sum := crc32.Checksum(resp.Body, castagnoli); int64(len(resp.Body)) > r.Length || answer.Offset != r.Offset || sum != answer.CRC {
		return nil, answer, fmt.Errorf("%w: asked for %d bytes at %d, got %d at %d, checksum %08x, expected %08x", ErrLogAnswer,
			r.Length, r.Offset, len(resp.Body), answer.Offset, sum, answer.CRC)
	}
	return resp.Body, answer, nil
}

// LogSum asks for the CRC-32C of bytes of a node's commit log, as they were applied there.
func (c *Client) LogSum(ctx context.Context, r remoting.LogRange) (uint32, remoting.LogRangeAnswer, error) {
	_, answer, err := c.askLog(ctx, remoting.RequestLogSum, r)
	return answer.CRC, answer, err
}

func (c *Client) askLog(ctx context.Context, code int32, r remoting.LogRange) (*remoting.Command, remoting.LogRangeAnswer, error) {
	cmd := remoting.Command{Code: code}
	r.SetExt(&cmd)
	resp, err := c.Invoke(ctx, &cmd)
	if err != nil {
		return nil, remoting.LogRangeAnswer{}, err
	}
	switch resp.Code {
	case remoting.ResponseSuccess:
		answer, err := remoting.DecodeLogRangeAnswer(resp)
		if err != nil {
			return nil, answer, fmt.Errorf("%w: %w", ErrLogAnswer, err)
		}
		return resp, answer, nil
	case remoting.ResponseLogRangeOutside:
		answer, err := remoting.DecodeLogRangeAnswer(resp)
		return nil, answer, errors.Join(fmt.Errorf("%w: %s", ErrLogOutside, resp.Remark), err)
	case remoting.ResponseLogRangeDamaged:
		return nil, remoting.LogRangeAnswer{}, fmt.Errorf("%w: %s", ErrLogDamaged, resp.Remark)
	}
	return nil, remoting.LogRangeAnswer{}, fmt.Errorf("client: %s of %d bytes at %d: answer %s: %s", remoting.RequestCodeName(code), r.Length, r.Offset,
		remoting.ResponseCodeName(resp.Code), resp.Remark)
}

// FetchLog copies bytes [from, to) of a node's commit log to w, in pieces of at most remoting.MaxLogRange. On an error w has a part of them.
func (c *Client) FetchLog(ctx context.Context, from, to int64, w io.Writer) error {
	for from < to {
		b, answer, err := c.LogRange(ctx, remoting.LogRange{Offset: from, Length: min(to-from, remoting.MaxLogRange)})
		if err != nil {
			return err
		}
		if len(b) == 0 {
			return fmt.Errorf("%w: [%d, %d), its log ends at %d", ErrLogOutside, from, to, answer.MaxOffset)
		}
		if _, err := w.Write(b); err != nil {
			return err
		}
		from += int64(len(b))
	}
	return nil
}
