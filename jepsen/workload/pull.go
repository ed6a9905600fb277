package workload

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"time"

	"github.com/apache/rocketmq-client-go/v2/primitive"

	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// Bits of a pull request's sysFlag.
const (
	pullSuspend      = 2
	pullSubscription = 4
)

// pulled is the answer to one pull.
type pulled struct {
	code           int32
	next, min, max int64
	messages       []Delivery
}

// pull makes one PULL_MESSAGE (11) for everything in a queue from offset on. Records are decoded by
// Apache's client, not by our own code, and their checksums are verified. With hold set the
// node may keep the request until something arrives.
func pull(ctx context.Context, c *client.Client, group, topic string, queue int32, offset int64, hold bool) (pulled, error) {
	ctx, cancel := context.WithTimeout(ctx, rawPullTimeout)
	defer cancel()
	flags, suspend := pullSubscription, int64(0)
	if hold {
		flags |= pullSuspend
		suspend = rawPullSuspend.Milliseconds()
	}
	cmd := &remoting.Command{Code: remoting.RequestPullMessage}
	for _, kv := range [][2]string{
		{"consumerGroup", group}, {"topic", topic}, {"queueId", strconv.Itoa(int(queue))},
		{"queueOffset", strconv.FormatInt(offset, 10)}, {"maxMsgNums", "32"}, {"sysFlag", strconv.Itoa(flags)},
		{"commitOffset", "0"}, {"suspendTimeoutMillis", strconv.FormatInt(suspend, 10)},
		{"subscription", "*"}, {"subVersion", "0"}, {"expressionType", "TAG"},
	} {
		cmd.Set(kv[0], kv[1])
	}
	resp, err := c.Invoke(ctx, cmd)
	if err != nil {
		return pulled{}, err
	}
	switch resp.Code {
	case remoting.ResponseSuccess, remoting.ResponsePullNotFound, remoting.ResponsePullRetryImmediately, remoting.ResponsePullOffsetMoved:
	default:
		return pulled{}, fmt.Errorf("workload: pull answered %d: %s", resp.Code, resp.Remark)
	}
	p := pulled{code: resp.Code}
	var errs [3]error
	p.next, errs[0] = strconv.ParseInt(resp.GetString("nextBeginOffset"), 10, 64)
	p.min, errs[1] = strconv.ParseInt(resp.GetString("minOffset"), 10, 64)
	p.max, errs[2] = strconv.ParseInt(resp.GetString("maxOffset"), 10, 64)
	if err := errors.Join(errs[:]...); err != nil {
		return pulled{}, fmt.Errorf("workload: pull answer %d: %w", resp.Code, err)
	}
	if resp.Code != remoting.ResponseSuccess {
		return p, nil
	}
	p.messages, err = decode(resp.Body, topic, queue)
	return p, err
}

// decode checks what can be checked about each record.
func decode(body []byte, topic string, queue int32) ([]Delivery, error) {
	var out []Delivery
	for _, m := range primitive.DecodeMessage(body) {
		if m.Topic != topic || m.Queue.QueueId != int(queue) {
			return nil, fmt.Errorf("workload: record of %s[%d] in %s[%d] at %d", m.Topic, m.Queue.QueueId, topic, queue, m.QueueOffset)
		}
		// Stock clients compress large bodies. The library unpacks them, which verifies the pack's own checksum, and the stored one is
		// that of the pack.
		packed := m.SysFlag&primitive.FlagCompressed != 0
		if crc := int32(crc32.ChecksumIEEE(m.Body) & 0x7FFFFFFF); crc != m.BodyCRC && !packed {
			return nil, fmt.Errorf("workload: record of %s[%d] at %d: body checksum %08x, stored %08x", topic, queue, m.QueueOffset, crc, m.BodyCRC)
		}
		if n := len(out); n > 0 && m.QueueOffset <= out[n-1].Offset {
			return nil, fmt.Errorf("workload: %s[%d]: offset %d after %d in one answer", topic, queue, m.QueueOffset, out[n-1].Offset)
		}
		out = append(out, Delivery{
			Value:   ValueOf(m.Body),
			UniqKey: m.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex),
			Topic:   topic,
			Queue:   queue,
			Offset:  m.QueueOffset,
			Size:    len(m.Body),
			Sum:     crc32.ChecksumIEEE(m.Body),
			Stored:  m.StoreTimestamp,
			Tries:   int(m.ReconsumeTimes),
		})
	}
	return out, nil
}

// readQueueStall is how long a node may answer "ask again" without any progress. A node that has just come back
// answers so while its dispatch catches up with its log.
const readQueueStall = 10 * time.Second

// ReadQueue reads a queue of one node from its first offset to its end.
func ReadQueue(ctx context.Context, c *client.Client, group, topic string, queue int32, deliver func(Delivery)) (n int, err error) {
	n, _, err = readQueue(ctx, c, group, topic, queue, deliver)
	return n, err
}

// readQueue tells the first offset too: of what lay before it some may have expired while it was read.
func readQueue(ctx context.Context, c *client.Client, group, topic string, queue int32, deliver func(Delivery)) (n int, first int64, err error) {
	offset := int64(0)
	for stalled := time.Now(); ; {
		p, err := pull(ctx, c, group, topic, queue, offset, false)
		if err != nil {
			return n, first, err
		}
		for _, d := range p.messages {
			if d.Offset < offset {
				return n, first, fmt.Errorf("workload: %s[%d]: offset %d read from %d on", topic, queue, d.Offset, offset)
			}
			deliver(d)
			n++
		}
		if p.code == remoting.ResponsePullOffsetMoved && p.next == p.min && p.next > offset {
			first = p.next
		}
		if p.code == remoting.ResponsePullRetryImmediately && p.next == offset && p.min > offset {
			// What was there has expired. Only a leader says so outright; others say where the queue begins and send the reader to it.
			first, p.next = p.min, p.min
		}
		switch {
		case p.code == remoting.ResponsePullNotFound && p.next >= p.max:
			return n, first, nil
		case p.next > offset:
			offset, stalled = p.next, time.Now()
		case p.code == remoting.ResponsePullRetryImmediately && time.Since(stalled) < readQueueStall:
			if !sleep(ctx, 20*time.Millisecond) {
				return n, first, ctx.Err()
			}
		default:
			return n, first, fmt.Errorf("workload: %s[%d]: no progress at %d: code %d, next %d, queue [%d,%d)", topic, queue, offset, p.code, p.next, p.min, p.max)
		}
	}
}
