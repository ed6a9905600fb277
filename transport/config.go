package transport

import (
	"time"

	"github.com/hashicorp/go-hclog"
)

// Defaults of Config.
const (
	defaultMaxFrameBytes  = 16 << 20
	defaultIdleTimeout    = 120 * time.Second
	defaultWorkers        = 16
	defaultWorkerQueue    = 10000
	defaultMaxPending     = 8192
	defaultMaxWriteBuffer = 64 << 20
	defaultMaxBacklog     = 256 << 20
	defaultVersion        = 401
)

// Config of a Server. Zero values take the defaults in parentheses.
type Config struct {
	MaxFrameBytes     int           // largest accepted or produced frame, length field included (16 MiB)
	IdleTimeout       time.Duration // connection without read and write (120 s)
	Workers           int           // goroutines for pooled handlers (16)
	WorkerQueue       int           // requests waiting for them before SYSTEM_BUSY (10000)
	MaxPendingPerConn int           // requests of one connection whose answer is not written yet before reading stops (8192)
	MaxWriteBuffer    int           // bytes queued to a slow reader before its connection closes (64 MiB); above half of it reading stops
	MaxBacklog        int           // bytes queued on all connections above which only those that read are read from (256 MiB)
	MaxConns          int           // connections at once; further ones are closed at once, so that files and peers find a descriptor (no limit)
	Version           int32         // version in response headers (401)
	Logger            hclog.Logger  // (none)
	// OnFault is called when the kernel could not read a view that was to be sent: the device under the mapping failed, or the file
	// was cut (F37). On the connection's writer; it must return soon.
	OnFault func(error)
}

func (cfg *Config) ensureDefaults() {
	setDefault(&cfg.MaxFrameBytes, defaultMaxFrameBytes)
	setDefault(&cfg.IdleTimeout, defaultIdleTimeout)
	setDefault(&cfg.Workers, defaultWorkers)
	setDefault(&cfg.WorkerQueue, defaultWorkerQueue)
	setDefault(&cfg.MaxPendingPerConn, defaultMaxPending)
	setDefault(&cfg.MaxWriteBuffer, defaultMaxWriteBuffer)
	setDefault(&cfg.MaxBacklog, defaultMaxBacklog)
	setDefault(&cfg.Version, defaultVersion)
	if cfg.Logger == nil {
		cfg.Logger = hclog.NewNullLogger()
	}
}

func setDefault[T int | int32 | time.Duration](field *T, value T) {
	if *field <= 0 {
		*field = value
	}
}
