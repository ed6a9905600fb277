package raftstream

import (
	"net"
	"sync/atomic"
	"time"
)

const (
	// writePiece is what is written between two looks at the deadline.
	writePiece = 64 << 10
	// slowestLink is what a link carries at least, in bytes a second: what the kernel has taken may need that long to arrive.
	slowestLink = 1 << 20
)

// conn leaves the layer's list when it is closed. Its deadlines are for silence: Raft sets one for a whole call, of whatever size, and a large
// entry on a slow link would never get through. Each piece that is taken moves it.
type conn struct {
	net.Conn
	layer    *Layer
	stranger bool // accepted and not greeted yet; only its reader looks at it

	patience atomic.Int64 // of the call under way, 0: no deadline
	written  atomic.Int64 // in this call
}

// Read implements net.Conn. Raft has one reader for each accepted connection.
func (c *conn) Read(b []byte) (int, error) {
	if c.stranger {
		if err := c.layer.welcome(c.Conn); err != nil {
			return 0, err
		}
		c.stranger = false
	}
	return c.Conn.Read(b)
}

// SetDeadline implements net.Conn: how long a call may stand still.
func (c *conn) SetDeadline(t time.Time) error {
	patience := time.Duration(0)
	if !t.IsZero() {
		patience = max(time.Until(t), 1)
	}
	c.patience.Store(int64(patience))
	c.written.Store(0)
	return c.Conn.SetDeadline(t)
}

// Write implements net.Conn.
func (c *conn) Write(b []byte) (n int, err error) {
	patience := time.Duration(c.patience.Load())
	if patience == 0 {
		return c.Conn.Write(b)
	}
	for {
		k, err := c.Conn.Write(b[n:min(n+writePiece, len(b))])
		n += k
		if err != nil {
			return n, err
		}
		queued := time.Duration(c.written.Add(int64(k))) * time.Second / slowestLink
		if err := c.Conn.SetDeadline(time.Now().Add(patience + queued)); err != nil || n == len(b) {
			return n, err
		}
	}
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.layer.mu.Lock()
	delete(c.layer.conns, c)
	c.layer.mu.Unlock()
	return c.Conn.Close()
}
