// Package transport is the TCP server under all request processors: it accepts,
// cuts frames, finds the processor of a request code, limits workers, coalesces
// writes, closes idle connections and drains at shutdown. It knows no broker.
//
// Every request that wants an answer gets exactly one, or its connection closes
// (fault F93): each connection keeps a record of owed answers, drops a second
// answer to one request, and a drain ends only when nothing is owed.
// Requests of one connection are dispatched in arrival order (F95).
// Views given to ReplyViews are released exactly once (Views-Are-Counted).
package transport

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"raftmq/transport/remoting"

	"github.com/hashicorp/go-hclog"
)

const (
	// joinTimeout bounds how long a forced shutdown waits for goroutines: only a handler that
	// blocks although it must not can take longer.
	joinTimeout    = time.Second
	maxAcceptPause = time.Second
)

// Server accepts connections and routes requests.
type Server struct {
	cfg      Config
	logger   hclog.Logger
	handlers handlers
	away     atomic.Pointer[func(code int32) bool]
	workers  workers
	stats    counters
	backlog  backlog
	idBase   uint64

	mu        sync.Mutex // guards what follows
	onClose   []func(*Conn)
	listeners map[net.Listener]struct{}
	conns     map[*Conn]struct{}
	lastID    uint64
	started   bool // workers and sweeper run
	stopping  bool

	stop    chan struct{}  // closed when Shutdown begins
	stopped chan struct{}  // closed when all goroutines have ended
	wg      sync.WaitGroup // accept loops, connections, sweeper

	logs struct{ badFrame, unsupported, busy, slow, panics, failed, accept, full occasional }
}

// NewServer returns a server that does not listen yet and has no goroutines.
func NewServer(cfg Config) *Server {
	cfg.ensureDefaults()
	s := &Server{
		cfg:       cfg,
		logger:    cfg.Logger.Named("transport"),
		idBase:    rand.Uint64() << 32,
		listeners: make(map[net.Listener]struct{}),
		conns:     make(map[*Conn]struct{}),
		stop:      make(chan struct{}),
		stopped:   make(chan struct{}),
		backlog:   backlog{limit: int64(cfg.MaxBacklog)},
	}
	s.handlers.table.Store(new(handlerTable))
	s.workers.init(cfg.WorkerQueue)
	return s
}

// HandleInline registers a handler that runs on the connection's reader goroutine, in
// arrival order: for handlers that never block. Its command is a view of the read buffer. Answers that it gives
// at once are written together when the requests that came with this one are done.
func (s *Server) HandleInline(code int32, h Handler) { s.handlers.set(code, handler{h, true}) }

// Handle registers a handler for the worker pool; its command is a copy that it may keep.
func (s *Server) Handle(code int32, h Handler) { s.handlers.set(code, handler{h, false}) }

// OnClose registers a callback for closed connections, before Serve. It runs once for each connection, on
// that connection's goroutine, after Done is closed; Shutdown waits for it.
func (s *Server) OnClose(f func(*Conn)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.onClose = append(s.onClose, f)
}

// TurnAway closes all connections but those whose newest request keep wants, and from now on any connection that sends another
// one: nobody is answered, so that clients look for another node. nil takes everybody in again. What is queued is written first;
// it does not wait for that. It may be called at any time.
func (s *Server) TurnAway(keep func(code int32) bool) {
	if keep == nil {
		s.away.Store(nil)
		return
	}
	s.away.Store(&keep)
	for _, c := range s.snapshot() {
		if !keep(c.lastCode.Load()) {
			_ = c.Close()
		}
	}
}

// Serve accepts on l until Shutdown, which closes l; it returns at once with the accept loop
// running. Several listeners may be served.
func (s *Server) Serve(l net.Listener) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		_ = l.Close()
		return
	}
	if !s.started {
		s.started = true
		s.workers.start(s.cfg.Workers, s.run)
		s.wg.Go(s.sweep)
	}
	s.listeners[l] = struct{}{}
	s.wg.Go(func() { s.accept(l) })
}

func (s *Server) accept(l net.Listener) {
	pause := time.Duration(0)
	for {
		socket, err := l.Accept()
		switch {
		case err == nil:
			pause = 0
			s.open(socket)
			continue
		case errors.Is(err, net.ErrClosed) || s.isStopping():
			s.mu.Lock()
			delete(s.listeners, l)
			s.mu.Unlock()
			return
		}
		// Out of file descriptors, or a connection that was gone before it was accepted.
		pause = min(max(5*time.Millisecond, 2*pause), maxAcceptPause)
		if ok, suppressed := s.logs.accept.allow(); ok {
			s.logger.Warn("accept failed", "address", l.Addr().String(), "error", err, "pause", pause, "suppressed", suppressed)
		}
		select {
		case <-time.After(pause):
		case <-s.stop:
		}
	}
}

func (s *Server) isStopping() bool {
	select {
	case <-s.stop:
		return true
	default:
		return false
	}
}

// open starts a connection. TCP_NODELAY is on, as Go sets it.
func (s *Server) open(socket net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		_ = socket.Close()
		return
	}
	if s.cfg.MaxConns > 0 && len(s.conns) >= s.cfg.MaxConns {
		_ = socket.Close()
		s.stats.full.Add(1)
		if ok, suppressed := s.logs.full.allow(); ok {
			s.logger.Warn("a connection was closed at once: there are as many as the limit of open files allows for", "peer", socket.RemoteAddr().String(),
				"connections", s.cfg.MaxConns, "suppressed", suppressed)
		}
		return
	}
	s.lastID++
	c := newConn(s, s.idBase|s.lastID&0xffffffff, socket)
	s.conns[c] = struct{}{}
	s.stats.accepted.Add(1)
	onClose := s.onClose
	s.wg.Go(func() {
		c.run()
		s.logger.Trace("connection closed", "peer", c.remote, "reason", c.ended())
		s.mu.Lock()
		delete(s.conns, c)
		s.mu.Unlock()
		for _, f := range onClose {
			f(c)
		}
	})
}

func (s *Server) snapshot() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	conns := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

// sweep closes connections on which nothing moved for the idle time. It compares counters,
// so that the hot path sets no deadlines and reads no clock.
func (s *Server) sweep() {
	type seen struct {
		active uint64
		since  time.Time
	}
	last := make(map[*Conn]seen)
	ticker := time.NewTicker(max(s.cfg.IdleTimeout/8, time.Millisecond))
	defer ticker.Stop()
	for {
		select {
		case <-s.stop:
			return
		case <-ticker.C:
		}
		now := time.Now()
		open := s.snapshot()
		current := make(map[*Conn]seen, len(open))
		for _, c := range open {
			active := c.active.Load()
			was, known := last[c]
			if !known || was.active != active {
				was = seen{active, now}
			}
			if now.Sub(was.since) >= s.cfg.IdleTimeout {
				s.stats.idle.Add(1)
				s.logger.Debug("idle connection closed", "peer", c.remote)
				c.kill(fmt.Errorf("%w: idle for %s", ErrConnClosed, s.cfg.IdleTimeout))
				continue
			}
			current[c] = was
		}
		last = current
	}
}

// CloseConns closes all client connections and keeps listening. What is queued is written first;
// it returns when the connections are gone, after two seconds at the latest.
func (s *Server) CloseConns() {
	conns := s.snapshot()
	for _, c := range conns {
		_ = c.Close()
	}
	late := time.After(closeTimeout + lingerTimeout + joinTimeout)
	for _, c := range conns {
		select {
		case <-c.done:
		case <-late:
			return
		}
	}
}

// Shutdown stops accepting and reading, waits until owed answers are written or ctx
// ends, then closes everything and joins all goroutines. Called again it waits for the same end.
func (s *Server) Shutdown(ctx context.Context) error {
	s.beginShutdown()
	for _, c := range s.snapshot() {
		c.drain()
	}
	select {
	case <-s.stopped:
		return nil
	case <-ctx.Done():
	}
	owed := s.Stats().InFlight
	for _, c := range s.snapshot() {
		c.kill(fmt.Errorf("%w: shutdown", ErrConnClosed))
	}
	select {
	case <-s.stopped:
	case <-time.After(joinTimeout):
	}
	return fmt.Errorf("transport: shutdown with %d answers owed: %w", owed, ctx.Err())
}

// beginShutdown closes the listeners and starts the goroutine that joins all others. The pool ends after the
// connections, which submit to it and wait for its answers.
func (s *Server) beginShutdown() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping {
		return
	}
	s.stopping = true
	close(s.stop)
	for l := range s.listeners {
		_ = l.Close()
	}
	go func() {
		s.wg.Wait()
		s.workers.stop()
		close(s.stopped)
	}()
}

// run is a worker's turn.
func (s *Server) run(j job) { s.call(j.handle, j.answer, j.cmd) }

// call runs a handler; its panic becomes an answer and ends nothing else.
func (s *Server) call(handle Handler, answer Responder, cmd *remoting.Command) {
	defer func() {
		if cause := recover(); cause != nil {
			s.panicked(answer, cause)
		}
	}()
	handle(answer, cmd)
}

func (s *Server) panicked(answer Responder, cause any) {
	s.stats.panics.Add(1)
	if ok, suppressed := s.logs.panics.allow(); ok {
		s.logger.Error("handler panicked", "code", answer.Code, "panic", cause, "suppressed", suppressed, "stack", string(debug.Stack()))
	}
	answer.ReplyError(codeSystemError, fmt.Sprint(cause))
}

func (s *Server) unsupported(answer Responder) {
	s.stats.unsupported.Add(1)
	if ok, suppressed := s.logs.unsupported.allow(); ok {
		s.logger.Debug("request code not supported", "code", answer.Code, "peer", answer.Conn.remote, "suppressed", suppressed)
	}
	// The leading blank is RocketMQ's.
	answer.ReplyError(codeNotSupported, " request type "+strconv.Itoa(int(answer.Code))+" not supported")
}

func (s *Server) busy(answer Responder) {
	s.stats.busy.Add(1)
	if ok, suppressed := s.logs.busy.allow(); ok {
		s.logger.Warn("worker queue full", "code", answer.Code, "queue", s.cfg.WorkerQueue, "suppressed", suppressed)
	}
	answer.ReplyError(codeSystemBusy, remarkOverload)
}

func (s *Server) badFrame(c *Conn, err error) {
	s.stats.badFrames.Add(1)
	if ok, suppressed := s.logs.badFrame.allow(); ok {
		s.logger.Warn("connection closed for a bad frame", "peer", c.remote, "error", err, "suppressed", suppressed)
	}
}

func (s *Server) failedAnswer(r Responder, remark string) {
	s.stats.failedAnswers.Add(1)
	if ok, suppressed := s.logs.failed.allow(); ok {
		s.logger.Error("response replaced by an error", "code", r.Code, "peer", r.Conn.remote, "problem", remark, "suppressed", suppressed)
	}
}

// dropSlow ends a connection whose peer does not read.
func (s *Server) dropSlow(c *Conn) {
	if !c.kill(ErrSlowPeer) {
		return
	}
	s.stats.slow.Add(1)
	if ok, suppressed := s.logs.slow.allow(); ok {
		s.logger.Warn("slow client dropped", "peer", c.remote, "limit-bytes", s.cfg.MaxWriteBuffer, "suppressed", suppressed)
	}
}
