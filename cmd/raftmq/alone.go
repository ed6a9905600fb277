package main

import (
	"sync"
	"time"

	"raftmq/membership/route"
	"raftmq/transport"
	"raftmq/transport/remoting"

	"github.com/hashicorp/go-hclog"
)

// How long a node that knows no leader keeps its clients: as long as it publishes the last one, since a stock client takes an answer
// without a route for final. One that led and lost its majority publishes nobody, and has answered parked pulls by then.
const (
	aloneGrace   = route.DefaultLastLeaderGrace
	deposedGrace = time.Second
)

// loneliness sends clients away from a node that knows no leader: it is cut off from the majority, which may well go on without it, and
// a stock client stays with a name server and a broker as long as it is connected and answered. Operators' requests are
// answered all the time.
type loneliness struct {
	server  *transport.Server
	release func()      // answers parked pulls
	deposed func() bool // this node led and lost its majority
	logger  hclog.Logger

	mu    sync.Mutex
	timer *time.Timer // runs, or has run out, while no leader is known
	away  bool
	ended bool
}

// leader tells whether a leader is known now.
func (l *loneliness) leader(known bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.ended:
	case !known && l.timer == nil:
		grace := aloneGrace
		if l.deposed() {
			grace = deposedGrace
		}
		var mine *time.Timer
		mine = time.AfterFunc(grace, func() { l.sendAway(&mine) })
		l.timer = mine
	case known && l.timer != nil:
		l.timer.Stop()
		l.timer = nil
		if l.away {
			l.away = false
			l.server.TurnAway(nil)
			l.logger.Info("a leader is known again, clients are served")
		}
	}
}

// sendAway runs on timer's goroutine; it is for nothing when that timer has been stopped in the last moment.
func (l *loneliness) sendAway(timer **time.Timer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended || l.timer != *timer {
		return
	}
	l.away = true
	l.logger.Warn("no leader is known, so clients are sent to other nodes until one is")
	l.release()
	l.server.TurnAway(remoting.IsOwn)
}

// stop ends it; clients are let go by the server's own shutdown.
func (l *loneliness) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	if l.timer != nil {
		l.timer.Stop()
	}
	if l.away {
		l.server.TurnAway(nil)
	}
}
