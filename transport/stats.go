package transport

import (
	"sync/atomic"
	"time"
)

// Stats are counters since start, gauges now.
type Stats struct {
	Conns    int64 // open connections
	InFlight int64 // requests whose answer is not yet written
	Backlog  int64 // bytes queued to be written, with what they cost in memory

	Accepted  uint64 // connections
	Requests  uint64 // dispatched, one-way included
	Responses uint64 // answers written

	BytesRead, BytesWritten uint64

	BadFrames        uint64 // connections closed for bytes that are no frame
	Unsupported      uint64 // requests with a code that has no handler
	Busy             uint64 // requests refused because the worker queue was full
	SlowConnsDropped uint64 // connections closed because the peer did not read
	IdleConnsClosed  uint64
	ConnsRefused     uint64 // closed at once: MaxConns
	Panics           uint64 // of handlers
	DoubleAnswers    uint64 // second answers to one request, dropped
	FailedAnswers    uint64 // answers replaced by an error: too large or malformed
}

type counters struct {
	accepted, requests, responses                  atomic.Uint64
	bytesRead, bytesWritten                        atomic.Uint64
	badFrames, unsupported, busy, slow, idle, full atomic.Uint64
	panics, doubleAnswers, failedAnswers           atomic.Uint64
}

// Stats returns a snapshot. A connection's reader publishes its counts once per burst.
func (s *Server) Stats() Stats {
	st := Stats{
		Backlog:          s.backlog.bytes.Load(),
		Accepted:         s.stats.accepted.Load(),
		Requests:         s.stats.requests.Load(),
		Responses:        s.stats.responses.Load(),
		BytesRead:        s.stats.bytesRead.Load(),
		BytesWritten:     s.stats.bytesWritten.Load(),
		BadFrames:        s.stats.badFrames.Load(),
		Unsupported:      s.stats.unsupported.Load(),
		Busy:             s.stats.busy.Load(),
		SlowConnsDropped: s.stats.slow.Load(),
		IdleConnsClosed:  s.stats.idle.Load(),
		ConnsRefused:     s.stats.full.Load(),
		Panics:           s.stats.panics.Load(),
		DoubleAnswers:    s.stats.doubleAnswers.Load(),
		FailedAnswers:    s.stats.failedAnswers.Load(),
	}
	for _, c := range s.snapshot() {
		st.Conns++
		st.InFlight += c.out.pending()
	}
	return st
}

// occasional lets one event a second be logged and counts the others.
type occasional struct {
	last       atomic.Int64 // unix nanoseconds of the last one that was let through
	suppressed atomic.Int64
}

func (o *occasional) allow() (ok bool, suppressed int64) {
	now := time.Now().UnixNano()
	last := o.last.Load()
	since := now - last // negative after a step of the clock
	if since >= 0 && since < int64(time.Second) || !o.last.CompareAndSwap(last, now) {
		o.suppressed.Add(1)
		return false, 0
	}
	return true, o.suppressed.Swap(0)
}
