package flush

import (
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// TimedConfig configures a Timed. Zero values take the defaults in parentheses.
type TimedConfig struct {
	Target     Target
	Interval   time.Duration // flushIntervalCommitLog (500 ms)
	LeastPages int           // flushCommitLogLeastPages: less than that waits for Thorough (4; negative: 0)
	Thorough   time.Duration // flushCommitLogThoroughInterval: anything is flushed so often (10 s)
	// OnError is called once, by the flush goroutine, with the first error of the target. The node should stop.
	OnError func(error)
	Logger  hclog.Logger
}

// Timed is ASYNC_FLUSH: one goroutine that flushes at intervals. Nobody waits for it.
type Timed struct {
	flusher
	cfg      TimedConfig
	stop     chan struct{}
	once     sync.Once
	joined   sync.WaitGroup
	closeErr error
}

// NewTimed starts the service. Close ends it.
func NewTimed(cfg TimedConfig) *Timed {
	if cfg.Interval == 0 {
		cfg.Interval = 500 * time.Millisecond
	}
	if cfg.LeastPages == 0 {
		cfg.LeastPages = 4
	}
	cfg.LeastPages = max(cfg.LeastPages, 0)
	if cfg.Thorough == 0 {
		cfg.Thorough = 10 * time.Second
	}
	t := &Timed{flusher: newFlusher(cfg.Target, cfg.OnError, cfg.Logger), cfg: cfg, stop: make(chan struct{})}
	t.joined.Go(t.loop)
	return t
}

// Stats returns a snapshot.
func (t *Timed) Stats() Stats { return t.stats() }

// Close flushes once more and ends the goroutine. It returns the first error of the target.
func (t *Timed) Close() error {
	t.once.Do(func() { close(t.stop) })
	t.joined.Wait()
	return t.closeErr
}

func (t *Timed) loop() {
	ticker := time.NewTicker(t.cfg.Interval)
	defer ticker.Stop()
	lastThorough := time.Now()
	for {
		select {
		case <-t.stop:
			_, t.closeErr = t.flush(0)
			return
		case now := <-ticker.C:
			pages := t.cfg.LeastPages
			if now.Sub(lastThorough) >= t.cfg.Thorough {
				lastThorough, pages = now, 0
			}
			// After a failure this only returns the first error; OnError has told the owner.
			_, _ = t.flush(pages)
		}
	}
}
