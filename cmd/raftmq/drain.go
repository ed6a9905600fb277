package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"raftmq/fsm/raftnode"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// Drain of a node that is about to be stopped. It hands leadership over; but stock clients ask for routes every 30 s only and send to it
// until then. While it drains it passes their writes to the new leader (broker.Config.Relay), so that they notice nothing. When they have
// all heard of the new leader, nobody needs this node any more (raftmq node drain waits for that).

// drain is a group's: whether it drains, and the one connection over which writes go to the leader. One, so that their order is kept.
type drain struct {
	leader func() (nodeID, addr string)
	self   string
	spawn  func(func()) bool

	since atomic.Int64 // Unix ms of the beginning, 0: not draining
	led   atomic.Int64 // Unix ms at which this node last led, 0: never
	leads atomic.Bool

	mu struct {
		sync.Mutex
		conn    *client.Client
		addr    string
		dialing bool
		movedAt time.Time // the leader is another one since then, and conn still owes answers
	}
	inFlight atomic.Int64 // on conn; grows under mu
}

// movedPatience is how long answers of a former leader are waited for before what comes later goes to the next one.
const movedPatience = time.Second

func (d *drain) init(leader func() (nodeID, addr string), self string, spawn func(func()) bool) {
	d.leader, d.self, d.spawn = leader, self, spawn
}

// on reports whether this node drains.
func (d *drain) on() bool { return d.since.Load() != 0 }

func (d *drain) stateChanged(s raftnode.State) {
	leads := s.Role == raftnode.Leader
	if d.leads.Swap(leads) || leads {
		d.led.Store(time.Now().UnixMilli())
	}
}

// relay is broker.Config.Relay.
func (d *drain) relay(cmd *remoting.Command, done func(*remoting.Command, error)) bool {
	id, addr := d.leader()
	if addr == "" || id == d.self {
		return false
	}
	conn := d.connTo(addr)
	if conn == nil {
		return false
	}
	conn.Go(cmd, func(resp *remoting.Command, err error) {
		done(resp, err) // first: what is held because of this answer goes before what is sent to another leader
		d.inFlight.Add(-1)
	})
	return true
}

// connTo returns the connection with one request more in flight, or nil while there is none.
func (d *drain) connTo(addr string) *client.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	if c := d.mu.conn; c != nil && (d.mu.addr != addr || c.Err() != nil) {
		if d.inFlight.Load() > 0 {
			if d.mu.movedAt.IsZero() {
				d.mu.movedAt = time.Now()
			} else if time.Since(d.mu.movedAt) > movedPatience {
				_ = c.Close()
			}
			return nil
		}
		_ = c.Close()
		d.mu.conn, d.mu.movedAt = nil, time.Time{}
	}
	if d.mu.conn == nil {
		if !d.mu.dialing {
			d.mu.dialing = d.spawn(func() { d.dial(addr) })
		}
		return nil
	}
	d.inFlight.Add(1)
	return d.mu.conn
}

func (d *drain) dial(addr string) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c, err := client.Dial(ctx, addr)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.dialing = false; err == nil {
		d.mu.conn, d.mu.addr = c, addr
	}
}

// close ends the connection. Nothing is relayed any more.
func (d *drain) close() error {
	d.mu.Lock()
	c := d.mu.conn
	d.mu.conn = nil
	d.mu.Unlock()
	if c == nil {
		return nil
	}
	err := c.Close()
	c.Wait()
	return err
}

func millisSince(unixMillis int64) int64 {
	if unixMillis == 0 {
		return -1
	}
	return max(time.Now().UnixMilli()-unixMillis, 0)
}

func (n *node) drainStatus() remoting.DrainStatus {
	d, stats := &n.group.drain, n.group.broker.Stats()
	s := remoting.DrainStatus{NodeID: n.cfg.NodeID, Leading: d.leads.Load(), DrainingMillis: millisSince(d.since.Load()), LedMillis: millisSince(d.led.Load()),
		RelayedWrites: stats.RelayedWrites, RelayedMillis: -1}
	if s.Leading {
		s.LedMillis = 0
	}
	if !stats.RelayedAt.IsZero() {
		s.RelayedMillis = millisSince(stats.RelayedAt.UnixMilli())
	}
	return s
}

// drain begins or ends draining. Asked again, it hands leadership over again if it has come back.
func (n *node) drain(ctx context.Context, req remoting.DrainRequest) (any, error) {
	d := &n.group.drain
	if req.Cancel {
		d.since.Store(0)
		return n.drainStatus(), nil
	}
	d.since.CompareAndSwap(0, time.Now().UnixMilli())
	if n.group.raft.State().Role == raftnode.Leader {
		if !n.group.hasPeers() {
			d.since.Store(0)
			return nil, fmt.Errorf("%w: %s is the only member: nobody could take over", errRefused, n.cfg.NodeID)
		}
		if _, err := n.transfer(ctx, remoting.TransferRequest{}); err != nil && !errors.Is(err, raftnode.ErrNotLeader) {
			d.since.Store(0)
			return nil, fmt.Errorf("hand leadership over: %w", err)
		}
		n.logger.Info("draining, this node has handed leadership over and passes writes on")
	}
	return n.drainStatus(), nil
}
