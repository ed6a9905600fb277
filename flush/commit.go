package flush

import (
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// CommitTarget is a log with write buffers. CommitBuffers carries them to the files when at least leastPages pages wait (0: any)
// and returns how far the log is readable; it does not sync.
type CommitTarget interface {
	CommitBuffers(leastPages int) (readable int64, err error)
}

// CommitConfig of a Commit. Zero values take the defaults in parentheses, which are RocketMQ's.
type CommitConfig struct {
	Target           CommitTarget
	Interval         time.Duration // commitIntervalCommitLog (200 ms)
	LeastPages       int           // commitCommitLogLeastPages (4; negative: 0)
	ThoroughInterval time.Duration // commitCommitLogThoroughInterval (200 ms): after so long without a commit any page counts
	Committed        func(readable int64)
	OnError          func(error)
	Logger           hclog.Logger
}

// Commit is the commit thread of a log with write buffers (RocketMQ's CommitRealTimeService). What it has not committed is seen by
// nobody, and is lost with the process.
type Commit struct {
	c    CommitConfig
	f    flusher
	wake chan struct{} // capacity 1
	stop chan struct{}
	done chan struct{}
	once sync.Once
	err  error
}

// commitAsTarget lets the flusher count, time and poison commits as it does flushes.
type commitAsTarget struct{ CommitTarget }

func (c commitAsTarget) Flush(leastPages int) (int64, error) { return c.CommitBuffers(leastPages) }

// NewCommit starts the service; Close ends it.
func NewCommit(c CommitConfig) *Commit {
	if c.Interval <= 0 {
		c.Interval = 200 * time.Millisecond
	}
	if c.LeastPages == 0 {
		c.LeastPages = 4
	}
	c.LeastPages = max(c.LeastPages, 0)
	if c.ThoroughInterval <= 0 {
		c.ThoroughInterval = 200 * time.Millisecond
	}
	if c.Committed == nil {
		c.Committed = func(int64) {}
	}
	s := &Commit{c: c, f: newFlusher(commitAsTarget{c.Target}, c.OnError, c.Logger),
		wake: make(chan struct{}, 1), stop: make(chan struct{}), done: make(chan struct{})}
	go s.run()
	return s
}

// Wake tells that more was written. It never blocks.
func (s *Commit) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Stats of the commits.
func (s *Commit) Stats() Stats { return s.f.stats() }

// Close commits all that is there and joins the service.
func (s *Commit) Close() error {
	s.once.Do(func() {
		close(s.stop)
		<-s.done
	})
	return s.err
}

func (s *Commit) run() {
	defer close(s.done)
	tick := time.NewTicker(s.c.Interval)
	defer tick.Stop()
	last, committed := time.Now(), int64(-1)
	commit := func(pages int) {
		end, err := s.f.flush(pages)
		if err == nil && end != committed {
			last, committed = time.Now(), end
			s.c.Committed(end)
		}
	}
	for {
		pages := s.c.LeastPages
		if time.Since(last) >= s.c.ThoroughInterval {
			pages = 0
		}
		commit(pages)
		select {
		case <-tick.C:
		case <-s.wake:
		case <-s.stop:
			commit(0)
			s.err = s.f.err
			return
		}
	}
}
