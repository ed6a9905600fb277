package namesrv

import (
	"errors"
	"sync"
	"time"

	"raftmq/membership/route"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// A stock client that starts takes any answer to its first route query for final: Start fails, or the topic has no queues for half a minute. A closed connection sends it to
// the next name server. So while no leader is known, which is a second or so at a change, routes are not answered but held; then the connection is closed.
const (
	// holdRoute outlasts an election, and ends before clients give the query up (3 s).
	holdRoute = 1500 * time.Millisecond
	holdPoll  = 20 * time.Millisecond
	// maxHeldRoutes bounds what is held at once; beyond it connections are closed at once.
	maxHeldRoutes = 8192
)

// heldRoutes are the queries that wait for a leader. One goroutine looks after all of them while there are any.
type heldRoutes struct {
	mu      sync.Mutex
	list    []heldRoute
	running bool
}

type heldRoute struct {
	r        transport.Responder
	cmd      *remoting.Command // owned
	deadline time.Time
}

// hold takes a query that cannot be answered now.
func (p *Processor) hold(r transport.Responder, cmd *remoting.Command) {
	h := &p.held
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.list) >= maxHeldRoutes || !h.running && !p.cfg.Spawn(p.serveHeld) {
		_ = r.Conn.Close()
		return
	}
	h.running = true
	h.list = append(h.list, heldRoute{r, cmd.Clone(), time.Now().Add(holdRoute)})
}

// serveHeld answers what can be answered and lets clients go whose time is up, until nothing is held.
func (p *Processor) serveHeld() {
	tick := time.NewTicker(holdPoll)
	defer tick.Stop()
	for closing := false; ; {
		select {
		case <-tick.C:
		case <-p.cfg.Closing:
			closing = true
		}
		if !p.passHeld(closing) {
			return
		}
	}
}

// passHeld looks once at all that is held, and reports whether anything still is.
func (p *Processor) passHeld(closing bool) bool {
	h := &p.held
	h.mu.Lock()
	list := h.list
	h.list = nil
	h.mu.Unlock()
	now := time.Now()
	var left []heldRoute
	for _, w := range list {
		resp, err := p.topicRoute(w.cmd)
		switch {
		case !errors.Is(err, route.ErrNoLeader):
			p.confirm(w.r, w.cmd, resp)
		case closing || !now.Before(w.deadline):
			_ = w.r.Conn.Close()
		default:
			left = append(left, w)
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(left, h.list...)
	h.running = len(h.list) > 0
	return h.running
}
