// Package client is a small request/response remoting client for RaftMQ's own tools,
// nodes and tests. Applications use Apache's clients.
//
// A Client is one pipelined connection; a Cluster finds the leader of a topic with
// several of them. It knows request codes only as far as finding a leader needs them.
package client

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"raftmq/transport/remoting"
)

const (
	readBufferSize  = 64 << 10
	keptBuffer      = 1 << 20 // larger ones are let go once they are empty
	defaultVersion  = 401     // RocketMQ 4.9.4
	dialTimeout     = 3 * time.Second
	minFrameLength  = 4
	lengthFieldSize = remoting.LengthSize
)

// Errors of a Client, wrapped with the facts.
var (
	// ErrConnClosed is returned for requests that were in flight when their connection was lost or
	// closed (their outcome is unknown), and for new requests from then on.
	ErrConnClosed = errors.New("client: connection closed")
	// ErrFrame is why a connection ends whose server sends bytes that are no frame.
	ErrFrame = errors.New("client: bad frame from the server")
)

// errClosedByUs is what Close leaves in Err.
var errClosedByUs = fmt.Errorf("%w: by the caller", ErrConnClosed)

// Client is one pipelined connection; safe for concurrent use. Its reader goroutine matches
// answers by opaque, its writer goroutine writes all that has gathered with one call.
// It holds no bound on requests in flight: that is up to the caller.
type Client struct {
	socket net.Conn
	wake   chan struct{} // to the writer, capacity 1
	done   chan struct{}
	wg     sync.WaitGroup

	mu      sync.Mutex // guards what follows
	opaque  int32
	calls   map[int32]func(resp *remoting.Command, err error)
	out     []byte // gathered frames
	spare   []byte // empty, nil while the writer is on it
	awake   bool   // the writer runs or has been signalled
	err     error  // why the connection ended, nil while it lives
	request func(cmd *remoting.Command) *remoting.Command
}

// Dial connects to a node's client address, within ctx and three seconds.
func Dial(ctx context.Context, addr string) (*Client, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	socket, err := dialer.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return NewClient(socket), nil
}

// NewClient returns a client on an open connection, which it owns from here on.
func NewClient(socket net.Conn) *Client {
	c := &Client{
		socket: socket,
		wake:   make(chan struct{}, 1),
		done:   make(chan struct{}),
		calls:  make(map[int32]func(*remoting.Command, error)),
	}
	c.wg.Go(c.read)
	c.wg.Go(c.write)
	return c
}

type result struct {
	resp *remoting.Command
	err  error
}

// Invoke sends cmd and waits for the answer, which owns its bytes. cmd is not changed; opaque and, where it is 0, the
// version are filled in. An answer with any response code is no error. The error is that of ctx
// or wraps ErrConnClosed; in both cases the server may have done what cmd asks.
func (c *Client) Invoke(ctx context.Context, cmd *remoting.Command) (*remoting.Command, error) {
	answer := make(chan result, 1)
	opaque := c.send(cmd, func(resp *remoting.Command, err error) {
		if err == nil {
			resp = resp.Clone()
		}
		answer <- result{resp, err}
	})
	select {
	case r := <-answer:
		return r.resp, r.err
	case <-ctx.Done():
	}
	c.mu.Lock()
	_, waiting := c.calls[opaque]
	delete(c.calls, opaque)
	c.mu.Unlock()
	if !waiting { // the answer is on its way, it never blocks
		r := <-answer
		return r.resp, r.err
	}
	return nil, fmt.Errorf("client: request %d to %s: %w", cmd.Code, c.socket.RemoteAddr(), ctx.Err())
}

// Go sends cmd and calls done exactly once from the reader goroutine; resp is valid
// until done returns, cmd may be used again when Go returns. done must not block and may call Go. On a connection that is
// gone done is called before Go returns, with an error that wraps ErrConnClosed. Go has no timeout: a caller that gives up closes the
// connection. It does not allocate once its tables have grown.
func (c *Client) Go(cmd *remoting.Command, done func(resp *remoting.Command, err error)) {
	c.send(cmd, done)
}

func (c *Client) send(cmd *remoting.Command, done func(*remoting.Command, error)) (opaque int32) {
	c.mu.Lock()
	if c.err != nil {
		err := c.err
		c.mu.Unlock()
		done(nil, err)
		return 0
	}
	opaque = c.appendLocked(cmd, cmd.Flag&^(remoting.FlagResponse|remoting.FlagOneWay))
	c.calls[opaque] = done
	c.mu.Unlock()
	return opaque
}

// appendLocked queues cmd under the next opaque and wakes the writer.
func (c *Client) appendLocked(cmd *remoting.Command, flag int32) int32 {
	c.opaque++
	frame := *cmd
	frame.Opaque, frame.Flag = c.opaque, flag
	if frame.Version == 0 {
		frame.Version = defaultVersion
	}
	c.out = remoting.AppendFrame(c.out, &frame)
	c.wakeLocked()
	return c.opaque
}

func (c *Client) wakeLocked() {
	if !c.awake {
		c.awake = true
		signal(c.wake)
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// SendOneWay sends cmd with the one-way flag. That it was written does not mean that it arrived.
func (c *Client) SendOneWay(cmd *remoting.Command) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	c.appendLocked(cmd, cmd.Flag&^remoting.FlagResponse|remoting.FlagOneWay)
	return nil
}

// OnRequest sets the handler of requests that the server sends; nil answer for none. Before use.
// It runs on the reader goroutine; cmd is its own.
func (c *Client) OnRequest(h func(cmd *remoting.Command) *remoting.Command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.request = h
}

// Done is closed when the connection is gone; Err says why.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns the reason after Done, nil before. It wraps ErrConnClosed.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close closes the connection; what is in flight fails. It does not wait for callbacks, so that
// a callback may call it.
func (c *Client) Close() error {
	c.fail(errClosedByUs)
	return nil
}

// Wait returns when the client's goroutines have ended, which is soon after Done and
// the last callback.
func (c *Client) Wait() { c.wg.Wait() }

// fail ends the connection once. The reader tells the calls.
func (c *Client) fail(err error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = err
	signal(c.wake)
	c.mu.Unlock()
	_ = c.socket.Close()
	close(c.done)
}

// lost wraps what ended the connection.
func (c *Client) lost(err error) error {
	return fmt.Errorf("%w: %s: %w", ErrConnClosed, c.socket.RemoteAddr(), err)
}

func (c *Client) read() {
	c.fail(c.lost(c.readFrames()))
	// No call is added after err is set.
	c.mu.Lock()
	calls, err := c.calls, c.err
	c.calls = nil
	c.mu.Unlock()
	for _, done := range calls {
		done(nil, err)
	}
}

// readFrames handles frames where the buffered reader has them; only a frame larger than
// its buffer is copied.
func (c *Client) readFrames() error {
	var (
		br      = bufio.NewReaderSize(c.socket, readBufferSize)
		cmd     remoting.Command
		scratch []byte
		large   []byte
	)
	for {
		head, err := br.Peek(lengthFieldSize)
		if err != nil {
			return err
		}
		length := int(binary.BigEndian.Uint32(head))
		if length < minFrameLength || length > remoting.MaxFrameSize-lengthFieldSize {
			return fmt.Errorf("%w: length %d", ErrFrame, length)
		}
		var frame []byte
		if total := lengthFieldSize + length; total <= readBufferSize {
			if frame, err = br.Peek(total); err != nil {
				return err
			}
			frame = frame[lengthFieldSize:]
		} else {
			if cap(large) < total {
				large = make([]byte, total)
			}
			frame = large[lengthFieldSize:total]
			if _, err := io.ReadFull(br, large[:total]); err != nil {
				return err
			}
		}
		scratch = scratch[:0]
		if err := remoting.DecodeFrame(frame, &cmd, &scratch); err != nil {
			return fmt.Errorf("%w: %w", ErrFrame, err)
		}
		c.handle(&cmd)
		if lengthFieldSize+length <= readBufferSize {
			if _, err := br.Discard(lengthFieldSize + length); err != nil {
				return err
			}
		} else if cap(large) > keptBuffer {
			large = nil
		}
	}
}

func (c *Client) handle(cmd *remoting.Command) {
	if !cmd.IsResponse() {
		c.serve(cmd)
		return
	}
	c.mu.Lock()
	done, ok := c.calls[cmd.Opaque]
	delete(c.calls, cmd.Opaque)
	c.mu.Unlock()
	if ok { // otherwise its Invoke has timed out
		done(cmd, nil)
	}
}

// serve answers a request of the server.
func (c *Client) serve(cmd *remoting.Command) {
	c.mu.Lock()
	handle := c.request
	c.mu.Unlock()
	if handle == nil {
		return
	}
	own := cmd.Clone()
	resp := handle(own)
	if resp == nil || cmd.IsOneWay() {
		return
	}
	answer := *resp
	answer.Opaque = cmd.Opaque
	answer.Flag = remoting.FlagResponse
	answer.Serialize = cmd.Serialize
	if answer.Version == 0 {
		answer.Version = defaultVersion
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.out = remoting.AppendFrame(c.out, &answer)
		c.wakeLocked()
	}
}

// write writes all that has gathered with one call, until the connection ends.
func (c *Client) write() {
	var b []byte
	for {
		c.mu.Lock()
		for len(c.out) == 0 && c.err == nil {
			c.awake = false
			c.mu.Unlock()
			<-c.wake
			c.mu.Lock()
		}
		if c.err != nil {
			c.mu.Unlock()
			return
		}
		b, c.out, c.spare = c.out, c.spare[:0], nil
		c.mu.Unlock()
		_, err := c.socket.Write(b)
		if err != nil {
			c.fail(c.lost(err))
			return
		}
		if cap(b) > keptBuffer {
			b = nil
		}
		c.mu.Lock()
		c.spare = b
		c.mu.Unlock()
	}
}
