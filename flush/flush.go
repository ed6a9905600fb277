// Package flush holds the two flush services of the commit log: group commit for
// SYNC_FLUSH and the timed loop for ASYNC_FLUSH, and their waiters. It sees only a Target.
//
// It does not decide who waits (the broker does, by flushDiskType and the WAIT property), and knows
// neither files nor records. Rules:
//
//   - a waiter is called exactly once, and with nil only when its bytes are durable;
//   - a flush that failed is never tried again as if nothing had happened (F33): OnError is called once,
//     and every waiter from then on gets that error;
//   - a flush that hangs does not keep a waiter beyond its deadline.
//
// RocketMQ's services of the same purpose are GroupCommitService, FlushDiskWatcher and
// FlushRealTimeService (CommitLog, 4.9.4).
package flush

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Target is what is flushed. Flush makes bytes durable when at least leastPages pages wait
// (0: any) and returns the durable end offset; it blocks.
type Target interface {
	Flush(leastPages int) (flushedTo int64, err error)
}

// Sentinel errors that waiters get.
var (
	// ErrTimeout: not durable before the deadline. It may become so later: RocketMQ's FLUSH_DISK_TIMEOUT.
	ErrTimeout = errors.New("flush: not confirmed in time")
	// ErrClosed: the service was closed first.
	ErrClosed = errors.New("flush: closed")
	// ErrFailed wraps the error of the first flush that failed.
	ErrFailed = errors.New("flush: failed")
)

// slowFlush is how long a flush may take before it is worth a warning.
const slowFlush = 500 * time.Millisecond

// Stats of a service.
type Stats struct {
	Count uint64        // flushes that succeeded
	Last  time.Duration // how long the last one took
	Max   time.Duration // how long the longest one took
	Since time.Time     // when the present one began; zero while none is under way
}

// flusher calls the target, from one goroutine, until it fails for the first time.
type flusher struct {
	target  Target
	onError func(error)
	logger  hclog.Logger

	err   error // of the first failure
	count atomic.Uint64
	last  atomic.Int64
	max   atomic.Int64
	since atomic.Pointer[time.Time]
}

func newFlusher(target Target, onError func(error), logger hclog.Logger) flusher {
	if onError == nil {
		onError = func(error) {}
	}
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	return flusher{target: target, onError: onError, logger: logger.Named("flush")}
}

// flush flushes unless a flush failed before.
func (f *flusher) flush(leastPages int) (int64, error) {
	if f.err != nil {
		return 0, f.err
	}
	start := time.Now()
	f.since.Store(&start)
	flushedTo, err := f.target.Flush(leastPages)
	f.since.Store(nil)
	took := time.Since(start)
	if err != nil {
		f.err = fmt.Errorf("%w: %w", ErrFailed, err)
		f.onError(f.err)
		return 0, f.err
	}
	f.count.Add(1)
	f.last.Store(int64(took))
	if int64(took) > f.max.Load() {
		f.max.Store(int64(took))
	}
	if took > slowFlush {
		f.logger.Warn("slow flush", "took", took, "flushed-to", flushedTo)
	}
	return flushedTo, nil
}

func (f *flusher) stats() Stats {
	st := Stats{Count: f.count.Load(), Last: time.Duration(f.last.Load()), Max: time.Duration(f.max.Load())}
	if since := f.since.Load(); since != nil {
		st.Since = *since
	}
	return st
}
