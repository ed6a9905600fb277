package broker

import (
	"time"

	"raftmq/transport"
	"raftmq/transport/remoting"
)

// A node that another one leads refuses writes (14). For a while it may pass them on instead: stock clients ask for routes every 30 s and
// go on sending to a node that has handed leadership over; a refusal burns all their attempts within milliseconds. Order within a
// connection holds (F95): writes are passed on in the order they came, over one connection, and what the leader gives back because it
// leads no more is held and goes before what comes later.

// relays reports whether this node passes writes on.
func (b *Broker) relays() bool { return b.cfg.Relays != nil && b.cfg.Relays() }

// relayNow passes on what has just come, unless others wait before it.
func (b *Broker) relayNow(r transport.Responder, cmd *remoting.Command) bool {
	if b.held.pending.Load() > 0 {
		return false
	}
	return b.relay(heldWrite{r, cmd.Clone(), sizeOf(cmd), time.Now().Add(b.cfg.HoldWrites)})
}

// relay passes a write on; false when that is not possible at the moment.
func (b *Broker) relay(w heldWrite) bool {
	if w.cmd.Get(forwardedField) != nil {
		b.refuseWrite(w.r) // whoever passed it on looks for the leader again
		return true
	}
	if b.relaying.Load()+int64(w.size) > int64(b.cfg.MaxHeldBytes) {
		return false
	}
	request := *w.cmd
	request.Flag = 0
	request.Ext = append(append(make([]remoting.Field, 0, len(w.cmd.Ext)+2), w.cmd.Ext...), remoting.Field{Key: forwardedField, Value: []byte("true")},
		remoting.Field{Key: remoting.BornHostField, Value: []byte(w.r.Conn.RemoteAddr().String())})
	b.relaying.Add(int64(w.size))
	if !b.cfg.Relay(&request, func(resp *remoting.Command, err error) { b.relayed(w, resp, err) }) {
		b.relaying.Add(-int64(w.size))
		return false
	}
	b.learnSender(w)
	b.counters.relayedWrites.Add(1)
	b.counters.relayedAt.Store(b.cfg.Now().UnixMilli())
	return true
}

// relayed answers a write that was passed on. 14 is that node's "not me": nothing was stored, the next leader is asked. A lost connection
// leaves the outcome open: that is for the client to know.
func (b *Broker) relayed(w heldWrite, resp *remoting.Command, err error) {
	defer b.relaying.Add(-int64(w.size))
	switch {
	case err != nil:
		b.logger.Debug("leader was lost with a write in flight", "error", err)
		b.replySend(w.r, refuse(remoting.ResponseServiceNotAvailable, "service not available now. The connection to the leader was lost, the outcome is unknown."))
	case resp.Code == remoting.ResponseServiceNotAvailable:
		if !time.Now().Before(w.deadline) || !b.held.add(w) {
			b.refuseWrite(w.r)
		}
	default:
		w.r.Reply(resp.Clone())
	}
}
