// Package transport is the TCP server under all request processors: it accepts,
// cuts frames, finds the processor of a request code, limits workers, coalesces
// writes, closes idle connections and drains at shutdown. It knows no broker.
package transport

import (
	"context"
	"net"
	"net/netip"
	"time"

	"raftmq/transport/remoting"

	"github.com/hashicorp/go-hclog"
)

// Config of a Server. Zero values take the defaults in parentheses.
type Config struct {
	MaxFrameBytes     int           // largest accepted frame, length field included (16 MiB)
	IdleTimeout       time.Duration // connection without read and write (120 s)
	Workers           int           // goroutines for pooled handlers (16)
	WorkerQueue       int           // requests waiting for them before SYSTEM_BUSY (10000)
	MaxPendingPerConn int           // requests of one connection not yet answered before reading stops (8192)
	MaxWriteBuffer    int           // bytes queued to a slow reader before its connection closes (64 MiB)
	Version           int32         // version in response headers (401)
	Logger            hclog.Logger
}

// Handler processes one request. cmd and all it points to are valid only until it
// returns; an inline handler runs on the connection's reader and must not block.
// Exactly one answer is owed through r, now or later, unless r.OneWay.
type Handler func(r Responder, cmd *remoting.Command)

// Responder answers one request, from any goroutine. It is a small value.
type Responder struct {
	Conn      *Conn
	Code      int32 // of the request
	Opaque    int32
	Version   int32 // of the request
	Serialize remoting.SerializeType
	OneWay    bool
}

// Reply writes resp as the answer: opaque, response flag, serialisation, language and
// version are filled in. It drops the answer of a one-way request.
func (r Responder) Reply(resp *remoting.Command) { panic("stub") }

// ReplyError answers code and remark with no body.
func (r Responder) ReplyError(code int32, remark string) { panic("stub") }

// ReplyRaw lets appendFrame append one whole frame to the connection's write buffer:
// the hot path's way to answer without a Command.
func (r Responder) ReplyRaw(appendFrame func(dst []byte) []byte) { panic("stub") }

// ReplyViews writes resp's header and then bufs as the body, without copying them, and
// calls release once the bytes are with the kernel or the connection is gone.
func (r Responder) ReplyViews(resp *remoting.Command, bufs [][]byte, release func()) { panic("stub") }

// Conn is one client connection.
type Conn struct{}

// ID is unique in the process.
func (c *Conn) ID() uint64 { panic("stub") }

// RemoteAddr is the peer, LocalAddr the address on which it came in.
func (c *Conn) RemoteAddr() netip.AddrPort { panic("stub") }

// LocalAddr is the address the client connected to.
func (c *Conn) LocalAddr() netip.AddrPort { panic("stub") }

// Done is closed when the connection is gone.
func (c *Conn) Done() <-chan struct{} { panic("stub") }

// Close closes the connection after what is queued has been written (bounded wait).
func (c *Conn) Close() error { panic("stub") }

// SendOneWay sends a request to the client that wants no answer.
func (c *Conn) SendOneWay(cmd *remoting.Command) error { panic("stub") }

// Invoke sends a request to the client and waits for its answer.
func (c *Conn) Invoke(ctx context.Context, cmd *remoting.Command) (*remoting.Command, error) {
	panic("stub")
}

// Server accepts connections and routes requests.
type Server struct{}

// NewServer returns a server that does not listen yet.
func NewServer(cfg Config) *Server { panic("stub") }

// HandleInline registers a handler that runs on the connection's reader goroutine, in
// arrival order: for handlers that never block. Handle registers one for the worker pool;
// its command is a copy that it may keep.
func (s *Server) HandleInline(code int32, h Handler) { panic("stub") }

// Handle registers a handler for the worker pool.
func (s *Server) Handle(code int32, h Handler) { panic("stub") }

// OnClose registers a callback for closed connections, before Serve.
func (s *Server) OnClose(f func(*Conn)) { panic("stub") }

// Serve accepts on l until Shutdown or Close; it returns at once with the accept loop
// running. Several listeners may be served.
func (s *Server) Serve(l net.Listener) { panic("stub") }

// CloseConns closes all client connections and keeps listening.
func (s *Server) CloseConns() { panic("stub") }

// Shutdown stops accepting and reading, waits until owed answers are written or ctx
// ends, then closes everything.
func (s *Server) Shutdown(ctx context.Context) error { panic("stub") }

// Stats are counters since start, gauges now.
type Stats struct {
	Conns, InFlight                                int64
	Accepted, Requests, Responses                  uint64
	BytesRead, BytesWritten                        uint64
	BadFrames, Unsupported, Busy, SlowConnsDropped uint64
}

// Stats returns a snapshot.
func (s *Server) Stats() Stats { panic("stub") }
