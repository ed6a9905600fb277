package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"raftmq/transport/remoting"
)

// Bits of a pull's sysFlag (RocketMQ PullSysFlag), and how long one may be parked.
const (
	pullSuspend      = 2
	pullSubscription = 4
	suspendFor       = 15 * time.Second
	// errorPause is after a refused pull.
	errorPause = 100 * time.Millisecond
)

// Where a reader begins.
const (
	fromFirst = "first"
	fromLast  = "last"
)

// Where fields are in a record (RocketMQ's MessageDecoder; commitlog/record draws the layout).
const (
	recordBornTimestamp = 40
	recordLeastSize     = 91
)

// consumer reads one queue over a connection of its own.
type consumer struct {
	b      *bench
	broker string
	header remoting.PullHeader
	end    int64 // consume mode: the max offset at the start

	mu     sync.Mutex
	sock   net.Conn
	closed bool
	counts consumeCounts
}

// consumeCounts is what is measured between two resets.
type consumeCounts struct {
	messages, bytes, pulls int64
	endToEnd               *hdrhistogram.Histogram // ms from born to read, mode both
	errors                 map[int32]*codeCount
	reconnects             int64
}

func newConsumeCounts() consumeCounts {
	return consumeCounts{endToEnd: hdrhistogram.New(1, 600_000, 3), errors: map[int32]*codeCount{}}
}

func newConsumer(b *bench, broker string, r queueRange) *consumer {
	c := &consumer{b: b, broker: broker, end: r.Max, counts: newConsumeCounts()}
	c.header = remoting.PullHeader{
		ConsumerGroup: []byte(b.o.group), Topic: []byte(b.o.topic), QueueID: int32(r.Queue), QueueOffset: r.Min,
		MaxMsgNums: int32(b.o.pullBatch), SysFlag: pullSuspend | pullSubscription, SuspendTimeoutMillis: suspendFor.Milliseconds(),
		Subscription: []byte("*"), ExpressionType: []byte("TAG"), BrokerName: []byte(broker),
	}
	if b.o.from == fromLast {
		c.header.QueueOffset = r.Max
	}
	return c
}

// readAll: in consume mode what was there at the start has been read.
func (c *consumer) readAll() bool {
	return c.b.o.mode == benchConsume && c.header.QueueOffset >= c.end
}

// run reads until all is read or the bench stops.
func (c *consumer) run(ctx context.Context) {
	for first := true; ctx.Err() == nil && !c.b.stopped() && !c.readAll(); first = false {
		if !first {
			c.reconnecting()
			sleep(ctx, connectPause)
		}
		if err := c.connect(ctx); err != nil {
			continue
		}
		c.pullAll(ctx)
		_ = c.sock.Close()
	}
}

func (c *consumer) reconnecting() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.reconnects++
}

func (c *consumer) connect(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	addr, err := c.b.target.leader(ctx, c.broker, "")
	if err != nil {
		return err
	}
	var d net.Dialer
	sock, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sock = sock
	if c.closed {
		_ = sock.Close()
	}
	return nil
}

// close ends a pull that is parked.
func (c *consumer) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	if c.sock != nil {
		_ = c.sock.Close()
	}
}

// pullAll pulls until the connection ends, the broker refuses, or all is read.
func (c *consumer) pullAll(ctx context.Context) {
	r := frameReader{sock: c.sock, buf: make([]byte, benchBuffer)}
	var request []byte
	for opaque := int32(1); !c.readAll(); opaque++ {
		request = c.b.style.AppendPull(request[:0], opaque, &c.header)
		// A parked pull is answered in time; a broker that hangs is left.
		_ = c.sock.SetDeadline(time.Now().Add(suspendFor + c.b.timeout))
		if _, err := c.sock.Write(request); err != nil {
			return
		}
		answer, err := awaitAnswer(&r, opaque)
		if err != nil {
			return
		}
		if !c.take(answer) {
			sleep(ctx, errorPause)
			return
		}
	}
}

func awaitAnswer(r *frameReader, opaque int32) (*remoting.Command, error) {
	for {
		cmd, err := r.next()
		if err != nil {
			return nil, err
		}
		if cmd == nil {
			if err := r.fill(); err != nil {
				return nil, err
			}
			continue
		}
		if cmd.IsResponse() && cmd.Opaque == opaque {
			return cmd, nil
		}
	}
}

// take counts what an answer brought; false means that it was a refusal.
func (c *consumer) take(cmd *remoting.Command) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.pulls++
	switch cmd.Code {
	case remoting.ResponseSuccess, remoting.ResponsePullNotFound, remoting.ResponsePullRetryImmediately, remoting.ResponsePullOffsetMoved:
	default:
		c.failedLocked(cmd.Code, cmd.Remark)
		return false
	}
	next, err := strconv.ParseInt(cmd.GetString("nextBeginOffset"), 10, 64)
	if err == nil && cmd.Code == remoting.ResponseSuccess {
		err = c.countLocked(cmd.Body)
	}
	if err != nil {
		c.failedLocked(codeBadAnswer, err.Error())
		return false
	}
	if cmd.Code == remoting.ResponsePullOffsetMoved {
		c.failedLocked(cmd.Code, cmd.Remark)
	}
	c.header.QueueOffset = next
	return true
}

// codeBadAnswer counts answers that are not as the protocol says.
const codeBadAnswer int32 = -3

func (c *consumer) failedLocked(code int32, remark string) {
	e := c.counts.errors[code]
	if e == nil {
		e = &codeCount{remark: remark}
		c.counts.errors[code] = e
	}
	e.n++
}

// countLocked counts the records of a pull's body.
func (c *consumer) countLocked(body []byte) error {
	now := time.Now().UnixMilli()
	for len(body) > 0 {
		if len(body) < recordLeastSize {
			return fmt.Errorf("%d bytes after the last record", len(body))
		}
		size := int(binary.BigEndian.Uint32(body))
		if size < recordLeastSize || size > len(body) {
			return fmt.Errorf("a record of %d bytes in %d", size, len(body))
		}
		c.counts.messages++
		c.counts.bytes += int64(size)
		if c.b.o.mode == benchBoth {
			born := int64(binary.BigEndian.Uint64(body[recordBornTimestamp:]))
			_ = c.counts.endToEnd.RecordValue(max(now-born, 1))
		}
		body = body[size:]
	}
	return nil
}
