package raftnode

import (
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// quietLogger takes raft's own lines into ours: what raft calls information is debug here (leadership and snapshots are
// told by this package, one line an event), and a warning or error that repeats, as while a peer is down, is told once in repeatAfter.
type quietLogger struct {
	hclog.Logger
	seen *seenLines
	now  func() time.Time
}

const repeatAfter = 30 * time.Second

type seenLines struct {
	sync.Mutex
	last map[string]time.Time
}

// expected are raft's warnings about what is part of normal life: a new leader finds out what followers have.
var expected = map[string]bool{
	"appendEntries rejected, sending older logs":   true,
	"failed to get previous log":                   true,
	"heartbeat timeout reached, starting election": true,
}

// QuietLogger wraps a logger for raft's own parts, which call things information or error that an operator must not be
// shown on every beat.
func QuietLogger(l hclog.Logger) hclog.Logger { return quietLoggerAt(l, time.Now) }

func quietLoggerAt(l hclog.Logger, now func() time.Time) hclog.Logger {
	return &quietLogger{Logger: l, seen: &seenLines{last: map[string]time.Time{}}, now: now}
}

func (l *quietLogger) Info(msg string, args ...any) { l.Logger.Debug(msg, args...) }

func (l *quietLogger) Warn(msg string, args ...any) {
	switch {
	case expected[msg]:
		l.Logger.Debug(msg, args...)
	case l.first(msg, args):
		l.Logger.Warn(msg, args...)
	}
}

func (l *quietLogger) Error(msg string, args ...any) {
	if l.first(msg, args) {
		l.Logger.Error(msg, args...)
	}
}

// Log is how some libraries call; levels are treated alike.
func (l *quietLogger) Log(level hclog.Level, msg string, args ...any) {
	switch level {
	case hclog.Info:
		l.Info(msg, args...)
	case hclog.Warn:
		l.Warn(msg, args...)
	case hclog.Error:
		l.Error(msg, args...)
	default:
		l.Logger.Log(level, msg, args...)
	}
}

func (l *quietLogger) Named(name string) hclog.Logger {
	return &quietLogger{l.Logger.Named(name), l.seen, l.now}
}

func (l *quietLogger) With(args ...any) hclog.Logger {
	return &quietLogger{l.Logger.With(args...), l.seen, l.now}
}

// first reports whether this line, about this peer, has not been told lately.
func (l *quietLogger) first(msg string, args []any) bool {
	key := msg
	for i := 0; i+1 < len(args); i += 2 {
		if args[i] == "peer" || args[i] == "server-id" {
			if s, ok := args[i+1].(interface{ String() string }); ok {
				key += s.String()
			} else if s, ok := args[i+1].(string); ok {
				key += s
			}
		}
	}
	l.seen.Lock()
	defer l.seen.Unlock()
	now := l.now()
	if last, ok := l.seen.last[key]; ok && now.Sub(last) < repeatAfter {
		return false
	}
	if len(l.seen.last) > 1000 { // peers come and go
		clear(l.seen.last)
	}
	l.seen.last[key] = now
	return true
}
