package transport

import (
	"context"
	"fmt"
	"sync"

	"raftmq/transport/remoting"
)

// SendOneWay sends a request to the client that wants no answer. Opaque, flag and, where it is
// 0, the version are filled in; cmd is not changed and not kept.
func (c *Conn) SendOneWay(cmd *remoting.Command) error {
	request := *cmd
	request.Opaque = c.calls.nextOpaque()
	request.Flag = request.Flag&^remoting.FlagResponse | remoting.FlagOneWay
	return c.sendRequest(&request)
}

// Invoke sends a request to the client and waits for its answer, which owns its bytes. The
// error is that of ctx, or wraps ErrConnClosed. Not to be called by an inline
// handler: the answer comes through the goroutine it would block.
func (c *Conn) Invoke(ctx context.Context, cmd *remoting.Command) (*remoting.Command, error) {
	request := *cmd
	request.Flag &^= remoting.FlagResponse | remoting.FlagOneWay
	opaque, answer := c.calls.open()
	defer c.calls.forget(opaque)
	request.Opaque = opaque
	if err := c.sendRequest(&request); err != nil {
		return nil, err
	}
	select {
	case resp := <-answer:
		return resp, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("transport: no answer from %s to request %d: %w", c.remote, cmd.Code, ctx.Err())
	case <-c.done:
		return nil, fmt.Errorf("transport: no answer from %s to request %d: %w", c.remote, cmd.Code, ErrConnClosed)
	}
}

func (c *Conn) sendRequest(request *remoting.Command) error {
	if request.Version == 0 {
		request.Version = c.server.cfg.Version
	}
	c.out.mu.Lock()
	if c.out.stoppedLocked() || c.out.closing {
		c.out.mu.Unlock()
		return ErrConnClosed
	}
	before := len(c.out.next.buf)
	c.out.next.buf = remoting.AppendFrame(c.out.next.buf, request)
	slow := c.out.gatheredLocked(len(c.out.next.buf) - before)
	c.out.mu.Unlock()
	if slow {
		c.server.dropSlow(c)
		return ErrSlowPeer
	}
	return nil
}

// calls matches answers of the client to Invoke, by opaque. Numbers are the server's own:
// the direction tells them from the client's.
type calls struct {
	mu      sync.Mutex
	last    int32
	waiting map[int32]chan *remoting.Command
}

func (c *calls) nextOpaque() int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	return c.last
}

func (c *calls) open() (int32, <-chan *remoting.Command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	answer := make(chan *remoting.Command, 1)
	if c.waiting == nil {
		c.waiting = make(map[int32]chan *remoting.Command)
	}
	c.waiting[c.last] = answer
	return c.last, answer
}

func (c *calls) forget(opaque int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, opaque)
}

// answer hands a response over. One that nobody waits for is ignored: its Invoke timed out.
func (c *calls) answer(cmd *remoting.Command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if waiting, ok := c.waiting[cmd.Opaque]; ok {
		delete(c.waiting, cmd.Opaque)
		waiting <- cmd.Clone()
	}
}
