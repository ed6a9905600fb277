// Package metrics is the node's HTTP page: Prometheus metrics, health, status and pprof, on
// a port of its own. It also sets up the go-metrics sink that raft and memberlist write to.
//
// It knows no other part of the module: values, status and health come in as plain functions.
// It decides nothing; whoever reads the page does.
package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
)

// Config of New. The functions are called for each request, from several goroutines, and
// must not block.
type Config struct {
	// Listen is host:port of the HTTP page. Port 0 takes a free one (see Addr).
	Listen string
	// Namespace is put before the names of Metrics and of go-metrics (default "raftmq").
	Namespace string
	// Metrics are the parts' own figures, read at each scrape.
	Metrics []Metric
	// Status is what GET /v1/status answers as JSON. nil: 404.
	Status func() any
	// Live, Ready and Leader are the health checks: nil error is 200, an error 503 with its
	// text as the reason. A nil function is always well.
	Live, Ready, Leader func() error
	// NoPprof leaves /debug/pprof out.
	NoPprof bool
	Logger  hclog.Logger
}

// EnsureDefaults fills in zero values.
func (c *Config) EnsureDefaults() {
	if c.Namespace == "" {
		c.Namespace = "raftmq"
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
}

// Kind of a Metric.
type Kind uint8

// Kinds: a Gauge goes up and down, a Counter only up (names end in _total).
const (
	Gauge Kind = iota
	Counter
)

// Metric is one figure as data. Value is called at each scrape.
type Metric struct {
	// Name without the namespace, with its unit: "commitlog_max_offset_bytes".
	Name   string
	Help   string
	Kind   Kind
	Labels map[string]string
	Value  func() float64
}

// drainTimeout is how long Close lets running requests finish. A scrape takes milliseconds; a
// pprof profile is cut.
const drainTimeout = time.Second

// Server is the HTTP page. New opens it, Close ends it.
type Server struct {
	cfg      Config
	registry *prometheus.Registry
	listener net.Listener
	http     *http.Server
	sink     *sink
	wg       sync.WaitGroup

	closeOnce sync.Once
	closeErr  error
}

// New binds the address and sets up the registry and the process-wide go-metrics sink: what
// Raft and gossip wrote before is lost. Nothing is answered until Serve.
func New(cfg Config) (*Server, error) {
	cfg.EnsureDefaults()
	registry, err := newRegistry(cfg.Namespace, cfg.Metrics)
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("metrics: listen on %s: %w", cfg.Listen, err)
	}
	sink, err := installSink(cfg.Namespace, registry)
	if err != nil {
		l.Close()
		return nil, err
	}
	s := &Server{cfg: cfg, registry: registry, listener: l, sink: sink}
	s.http = &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          cfg.Logger.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	return s, nil
}

// Addr is the address it listens on.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Serve answers requests until Close; it returns at once.
func (s *Server) Serve() {
	s.wg.Go(func() {
		if err := s.http.Serve(s.listener); err != nil && !errors.Is(err, http.ErrServerClosed) {
			s.cfg.Logger.Error("http page stopped", "address", s.listener.Addr().String(), "error", err)
		}
	})
}

// Close stops the page and takes the go-metrics sink away. A second call is harmless.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
		defer cancel()
		if err := s.http.Shutdown(ctx); err != nil {
			// Only requests that outlasted the drain (a profile) are left: cut them.
			s.closeErr = s.http.Close()
		}
		s.listener.Close() // if Serve was never called; a second close is harmless
		s.wg.Wait()
		s.sink.uninstall()
	})
	return s.closeErr
}
