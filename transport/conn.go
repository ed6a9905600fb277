package transport

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"raftmq/transport/remoting"
)

const (
	// closeTimeout bounds how long a closing connection may take to write what is queued.
	closeTimeout = time.Second
	// lingerTimeout is how long a closing connection swallows what the peer still sends.
	// Closing a socket with unread bytes resets it, and the reset may overtake the last answers.
	lingerTimeout = 250 * time.Millisecond
)

// errUnwanted ends the reader of a connection that dispatches nothing any more.
var errUnwanted = errors.New("transport: connection is closing")

// Conn is one client connection. It has two goroutines: the reader, which owns the
// connection and runs inline handlers, and the writer, which the reader joins.
type Conn struct {
	server *Server
	id     uint64
	socket net.Conn
	remote netip.AddrPort
	local  netip.AddrPort

	out     outbox
	done    chan struct{} // closed when the socket is
	flushed chan struct{} // closed when the writer has ended
	reason  error         // guarded by out.mu: why the connection ended
	timer   *time.Timer   // guarded by out.mu: ends a Close that takes too long

	active   atomic.Uint64 // grows with every read and write; the sweeper compares
	lastCode atomic.Int32  // of the newest request, 0 before the first; see Server.TurnAway
	reader   reader
	calls    calls
}

// reader is what only the reader goroutine touches.
type reader struct {
	frames     *frameBuffer
	cmd        remoting.Command
	scratch    []byte
	free       []uint32 // slots to give to requests
	dispatched uint64   // requests that were given a slot
	written    uint64   // answers written, as last seen
	requests   uint64   // not yet published to the server's counters
	batch      batch    // when the reader writes
	vectors    vectors
}

func newConn(s *Server, id uint64, socket net.Conn) *Conn {
	c := &Conn{
		server:  s,
		id:      id,
		socket:  socket,
		remote:  addrPort(socket.RemoteAddr()),
		local:   addrPort(socket.LocalAddr()),
		done:    make(chan struct{}),
		flushed: make(chan struct{}),
	}
	c.reader.frames = newFrameBuffer(s.cfg.MaxFrameBytes)
	c.out.init(s.cfg.MaxWriteBuffer, &s.backlog)
	return c
}

// addrPort gives IPv4 in its short form, also where the listener is dual-stack.
func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// ID tells connections of a process apart: random per Server in the high half, counted in the low half.
func (c *Conn) ID() uint64 { return c.id }

// RemoteAddr is the address of the peer.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.remote }

// LocalAddr is the address the client connected to.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// Done is closed when the connection is gone.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Close closes the connection after what is queued has been written, at the latest
// after a second. It does not wait, so a handler may call it; Done tells when it is gone.
func (c *Conn) Close() error {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.closeLocked()
	return nil
}

func (c *Conn) closeLocked() {
	if c.out.dead || c.out.closing {
		return
	}
	c.out.closing = true
	c.timer = time.AfterFunc(closeTimeout+lingerTimeout, func() { c.kill(ErrConnClosed) })
	c.out.wakeLocked()
	c.out.roomLocked()
}

// drain stops dispatching requests; the connection ends when all owed answers are written.
func (c *Conn) drain() {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.draining = true
	c.out.wakeLocked()
	c.out.roomLocked()
}

// kill closes the socket now. What is queued is dropped, its views are released by the writer.
// It reports whether it was this call that ended the connection.
func (c *Conn) kill(reason error) bool {
	c.out.mu.Lock()
	if c.out.dead {
		c.out.mu.Unlock()
		return false
	}
	c.out.dead = true
	c.reason = reason
	if c.timer != nil {
		c.timer.Stop()
	}
	signal(c.out.wake)
	c.out.roomLocked()
	c.out.mu.Unlock()
	_ = c.socket.Close() // the reason is known already
	close(c.done)
	return true
}

// run reads until the connection ends and joins the writer. When it returns nothing of the connection
// is left: no goroutine, no counted view, no waiting Invoke.
func (c *Conn) run() {
	go c.writeLoop()
	err := c.readLoop()
	switch {
	case errors.Is(err, ErrBadFrame):
		c.server.badFrame(c, err)
		fallthrough
	case errors.Is(err, io.EOF):
		// What is queued still goes out: a client may end its side first, and the answers to
		// the good frames before a bad one are owed.
		_ = c.Close()
		<-c.flushed
	case errors.Is(err, errUnwanted), errors.Is(err, os.ErrDeadlineExceeded):
		<-c.flushed // it was told to end, and ends when it has written what it owes
	}
	c.kill(err)
	<-c.flushed
	c.out.abandon()
}

// readLoop returns why no more requests come.
func (c *Conn) readLoop() error {
	r := &c.reader
	for {
		n, err := r.frames.fill(c.socket)
		if n > 0 {
			c.active.Add(uint64(n))
			c.server.stats.bytesRead.Add(uint64(n))
			if burstErr := c.burst(); burstErr != nil {
				return burstErr
			}
		}
		if err != nil {
			return err
		}
	}
}

// burst dispatches all whole frames that one read brought.
func (c *Conn) burst() error {
	written, ok := c.out.beginBurst()
	if !ok {
		return c.swallow()
	}
	c.reader.written = written
	err := c.dispatchAll()
	r := &c.reader
	c.server.stats.requests.Add(r.requests)
	r.requests = 0
	if c.out.endBurst(r.dispatched, &r.batch) {
		c.write(&r.batch, &r.vectors)
		c.out.wrote(&r.batch)
	}
	if errors.Is(err, errUnwanted) {
		return c.swallow()
	}
	return err
}

// dispatchAll cuts and dispatches until more bytes are needed.
func (c *Conn) dispatchAll() error {
	r := &c.reader
	for {
		frame, err := r.frames.next()
		if err != nil || frame == nil {
			return err
		}
		r.scratch = r.scratch[:0]
		if err := remoting.DecodeFrame(frame, &r.cmd, &r.scratch); err != nil {
			return fmt.Errorf("%w: %w", ErrBadFrame, err)
		}
		if r.cmd.IsResponse() {
			c.calls.answer(&r.cmd)
			continue
		}
		if err := c.dispatch(&r.cmd); err != nil {
			return err
		}
	}
}

// dispatch gives one request to its handler. Its only error is errUnwanted.
func (c *Conn) dispatch(cmd *remoting.Command) error {
	r := &c.reader
	s := c.server
	if c.lastCode.Load() != cmd.Code { // a load is cheaper than a store, and most requests are like the one before
		c.lastCode.Store(cmd.Code)
	}
	if keep := s.away.Load(); keep != nil && !(*keep)(cmd.Code) {
		_ = c.Close()
		return errUnwanted
	}
	answer := Responder{
		Conn:      c,
		Code:      cmd.Code,
		Opaque:    cmd.Opaque,
		Version:   cmd.Version,
		Serialize: cmd.Serialize,
		OneWay:    cmd.IsOneWay(),
	}
	if !answer.OneWay {
		if err := c.waitRoom(); err != nil {
			return err
		}
		c.giveSlot(&answer)
		r.dispatched++
	}
	r.requests++
	h := s.handlers.find(cmd.Code)
	switch {
	case h.handle == nil:
		s.unsupported(answer)
	case h.inline:
		s.call(h.handle, answer, cmd)
	case !s.workers.submit(job{handle: h.handle, answer: answer, cmd: cmd.Clone()}):
		s.busy(answer)
	}
	return nil
}

// waitRoom holds the reader back while too many answers or bytes are outstanding. The count of
// written answers as last seen is enough as long as it is below the limit.
func (c *Conn) waitRoom() error {
	r := &c.reader
	limit := c.server.cfg.MaxPendingPerConn
	if r.dispatched-r.written < uint64(limit) && !c.out.crowded.Load() {
		return nil
	}
	written, ok := c.out.waitRoom(r.dispatched, limit)
	if !ok {
		return errUnwanted
	}
	r.written = written
	return nil
}

// giveSlot marks the request as owed one answer.
func (c *Conn) giveSlot(answer *Responder) {
	r := &c.reader
	if len(r.free) == 0 {
		c.out.mu.Lock()
		r.free = c.out.slotsLocked(r.free)
		c.out.mu.Unlock()
	}
	answer.slot = r.free[len(r.free)-1]
	answer.gen = c.out.gens[answer.slot]
	r.free = r.free[:len(r.free)-1]
}

// swallow reads and forgets until the peer ends its side or the linger time is over.
func (c *Conn) swallow() error {
	for {
		_, err := c.socket.Read(c.reader.frames.buf)
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, os.ErrDeadlineExceeded):
			return errUnwanted
		case err != nil:
			return err
		}
	}
}

// writeLoop writes what gathers, one call for all of it, until the connection ends.
func (c *Conn) writeLoop() {
	defer close(c.flushed)
	var b batch
	var v vectors
	for {
		ok, graceful := c.out.take(&b)
		if !ok {
			if graceful {
				c.endStream()
			}
			return
		}
		c.write(&b, &v)
	}
}

// vectors is the memory of a writev call. Each writing goroutine has its own.
type vectors struct {
	all  net.Buffers
	rest net.Buffers // what WriteTo has not consumed
}

// write writes a batch with one call and gives its views back. An error ends the connection.
func (c *Conn) write(b *batch, v *vectors) {
	var n int64
	var err error
	if len(b.views) == 0 {
		var written int
		written, err = c.socket.Write(b.buf)
		n = int64(written)
	} else {
		v.all = b.vectors(v.all[:0])
		v.rest = v.all
		n, err = v.rest.WriteTo(c.socket)
		clear(v.all)
		if cap(v.all) > 2*maxViews {
			v.all = nil
		}
	}
	b.releaseViews()
	c.active.Add(uint64(n))
	c.server.stats.bytesWritten.Add(uint64(n))
	if err != nil {
		if fault := c.server.cfg.OnFault; fault != nil && errors.Is(err, syscall.EFAULT) {
			fault(err)
		}
		c.kill(err)
		return
	}
	c.server.stats.responses.Add(b.answers)
}

// endStream tells the peer that no more comes and lets the reader swallow the rest for a moment.
func (c *Conn) endStream() {
	half, ok := c.socket.(interface{ CloseWrite() error })
	if !ok || half.CloseWrite() != nil {
		c.kill(ErrConnClosed)
		return
	}
	if err := c.socket.SetReadDeadline(time.Now().Add(lingerTimeout)); err != nil {
		c.kill(err)
	}
}

// ended returns why the connection ended, after Done.
func (c *Conn) ended() error {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.reason
}
