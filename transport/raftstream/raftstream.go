// Package raftstream is the stream layer under raft.NetworkTransport: Raft's own port, plain or
// TLS, with tracked connections whose ends know who the other one is (see Hello). It does not look at what flows
// through them then.
package raftstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// keepAlive finds a peer that is gone without a word within about half a minute, also
// on connections that Raft keeps in its pool.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 4}

// Errors of a Layer.
var (
	// ErrClosed is returned by Dial and Accept after Close.
	ErrClosed = errors.New("raftstream: closed")
	// ErrNotAdvertisable is returned by Listen for an address that peers cannot dial.
	ErrNotAdvertisable = errors.New("raftstream: address cannot be advertised")
)

// Config of Open.
type Config struct {
	Bind string // host:port to listen on
	// Advertise is the host:port under which peers dial this node; default is the bound address, which must then
	// name a host. Port 0 stands for the bound port.
	Advertise string
	// TLS, when set, is used for both directions: it needs certificates, and for Dial the server name or roots.
	TLS *tls.Config
	// DialFilter, when set, may refuse a target before it is dialled: an in-process test cuts a node off with it,
	// together with CloseConns and its twins on the peers.
	DialFilter func(target string) error
	// Self is who this node is, asked for each connection since a node learns its cluster's id late. With nil nobody greets:
	// all nodes of a cluster must do the same. Expect is the id of the node that should listen at an address, "" when
	// unknown; nil: never known.
	Self   func() Hello
	Expect func(address string) (nodeID string)
	Logger hclog.Logger
}

// Layer is a raft.StreamLayer.
type Layer struct {
	cfg       Config
	logger    hclog.Logger
	listener  net.Listener
	advertise addr

	mu     sync.Mutex // guards what follows
	conns  map[*conn]struct{}
	closed bool
}

var _ raft.StreamLayer = (*Layer)(nil)

// addr is a net.Addr that may hold a host name, which the peers resolve.
type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

// Listen opens a plain layer.
func Listen(bind, advertise string, logger hclog.Logger) (*Layer, error) {
	return Open(Config{Bind: bind, Advertise: advertise, Logger: logger})
}

// Open listens.
func Open(cfg Config) (*Layer, error) {
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
	lc := net.ListenConfig{KeepAliveConfig: keepAlive}
	listener, err := lc.Listen(context.Background(), "tcp", cfg.Bind)
	if err != nil {
		return nil, fmt.Errorf("raftstream: %w", err)
	}
	advertise, err := advertised(cfg.Advertise, listener.Addr())
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return &Layer{
		cfg:       cfg,
		logger:    cfg.Logger.Named("raftstream"),
		listener:  listener,
		advertise: advertise,
		conns:     make(map[*conn]struct{}),
	}, nil
}

// advertised completes and checks the address for the peers.
func advertised(configured string, bound net.Addr) (addr, error) {
	if configured == "" {
		configured = bound.String()
	}
	host, port, err := net.SplitHostPort(configured)
	if err != nil {
		return "", fmt.Errorf("%w: %q: %w", ErrNotAdvertisable, configured, err)
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		return "", fmt.Errorf("%w: %q names no host", ErrNotAdvertisable, configured)
	}
	if port == "0" {
		if _, port, err = net.SplitHostPort(bound.String()); err != nil {
			return "", fmt.Errorf("%w: %q: %w", ErrNotAdvertisable, bound, err)
		}
	}
	return addr(net.JoinHostPort(host, port)), nil
}

// Addr is the advertised address.
func (l *Layer) Addr() net.Addr { return l.advertise }

// BoundAddr is the address it listens on.
func (l *Layer) BoundAddr() net.Addr { return l.listener.Addr() }

// Dial connects to a peer's advertised address and makes sure who is there (ErrPeer). timeout covers the TLS handshake, and then
// once more the greeting.
func (l *Layer) Dial(address raft.ServerAddress, timeout time.Duration) (net.Conn, error) {
	target := string(address)
	if l.cfg.DialFilter != nil {
		if err := l.cfg.DialFilter(target); err != nil {
			return nil, fmt.Errorf("raftstream: dial %s: %w", target, err)
		}
	}
	dialer := net.Dialer{Timeout: timeout, KeepAliveConfig: keepAlive}
	var socket net.Conn
	var err error
	if l.cfg.TLS != nil {
		socket, err = tls.DialWithDialer(&dialer, "tcp", target, l.cfg.TLS)
	} else {
		socket, err = dialer.Dial("tcp", target)
	}
	if err != nil {
		return nil, fmt.Errorf("raftstream: %w", err)
	}
	c, err := l.track(socket)
	if err != nil {
		return nil, err
	}
	if l.cfg.Self != nil {
		if err := l.greet(socket, target, timeout); err != nil {
			_ = c.Close()
			return nil, fmt.Errorf("raftstream: dial %s: %w", target, err)
		}
	}
	return c, nil
}

// Accept waits for a peer. TLS handshake and greeting happen at the connection's first read, in Raft's own goroutine.
func (l *Layer) Accept() (net.Conn, error) {
	socket, err := l.listener.Accept()
	if err != nil {
		if errors.Is(err, net.ErrClosed) {
			return nil, ErrClosed
		}
		return nil, fmt.Errorf("raftstream: %w", err)
	}
	if l.cfg.TLS != nil {
		socket = tls.Server(socket, l.cfg.TLS)
	}
	c, err := l.track(socket)
	if err == nil && l.cfg.Self != nil {
		c.stranger = true
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (l *Layer) track(socket net.Conn) (*conn, error) {
	c := &conn{Conn: socket, layer: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = socket.Close()
		return nil, ErrClosed
	}
	l.conns[c] = struct{}{}
	return c, nil
}

// CloseConns closes all connections in both directions and keeps listening. Raft dials again.
func (l *Layer) CloseConns() {
	l.mu.Lock()
	conns := l.conns
	l.conns = make(map[*conn]struct{})
	l.mu.Unlock()
	for c := range conns {
		_ = c.Close()
	}
	l.logger.Debug("connections closed", "count", len(conns))
}

// Conns is the number of open connections.
func (l *Layer) Conns() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// Close stops listening and closes all connections, those that Raft still holds in its pool included.
func (l *Layer) Close() error {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil
	}
	l.closed = true
	l.mu.Unlock()
	err := l.listener.Close()
	l.CloseConns()
	if err != nil {
		return fmt.Errorf("raftstream: %w", err)
	}
	return nil
}
