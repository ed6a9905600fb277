package broker

import (
	"context"
	"sync"
	"time"

	"raftmq/transport"
	"raftmq/transport/remoting"
)

// Who is connected where is known to each node for itself. Clients send heartbeats to what their last route named, consumers to all of it
// and producers to broker id 0 only, and ask for routes every 30 s; so a node that has just started or become the leader does not
// know clients that others still do. What needs a client asks the other nodes then.

const (
	// learnTime is how long after its start a node may not know all members yet: clients send heartbeats every 30 s.
	learnTime = 35 * time.Second
	// followTime is the same for a new leader and clients that send heartbeats to the leader only: they ask for routes every 30 s too.
	followTime = 65 * time.Second
	// askWhere is how long other nodes may take to tell which clients they have.
	askWhere = 500 * time.Millisecond
)

// learning reports whether this node may not know all clients that are connected to the cluster.
func (b *Broker) learning() bool {
	now := b.cfg.Now()
	if now.Sub(b.start) < learnTime {
		return true
	}
	at := b.readySince.Load()
	return at != nil && now.Sub(*at) < followTime
}

// looksElsewhere reports whether a request about clients is answered with what other nodes know too. known: this node knows some
// that it is about.
func (b *Broker) looksElsewhere(cmd *remoting.Command, known bool) bool {
	return cmd.Get(forwardedField) == nil && b.othersMayKnow(known)
}

// othersMayKnow reports whether other nodes may know clients that this one does not. known: it knows some.
func (b *Broker) othersMayKnow(known bool) bool {
	return b.cfg.Peers != nil && (!known || b.learning())
}

// peerAnswer is what another node answered.
type peerAnswer struct {
	addr string
	resp *remoting.Command
}

func succeeded(resp *remoting.Command) bool { return resp.Code == remoting.ResponseSuccess }

// askPeers sends a request to all other nodes at once and returns the answers that came, after the first that is enough or after
// all. Nodes that could not be reached are left out.
func (b *Broker) askPeers(ctx context.Context, request func() *remoting.Command, enough func(*remoting.Command) bool) (answers []peerAnswer) {
	if b.cfg.Peers == nil {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	for _, addr := range b.cfg.Peers() {
		wg.Go(func() {
			resp, err := b.cfg.Ask(ctx, addr, request())
			if err != nil {
				b.logger.Debug("node was not reached", "address", addr, "error", err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			answers = append(answers, peerAnswer{addr, resp})
			if enough != nil && enough(resp) {
				cancel() // the others' answers are of no interest
			}
		})
	}
	wg.Wait()
	return answers
}

// relayRequest is a request to another node to pass one on to a client of a group, any one if the id is "".
func relayRequest(name, id string, cmd *remoting.Command) *remoting.Command {
	relay := &remoting.Command{Code: remoting.RequestRelayClient, Ext: append([]remoting.Field{}, cmd.Ext...), Body: cmd.Body}
	relay.Set(remoting.RelayCodeField, itoa(cmd.Code))
	relay.Set(remoting.RelayGroupField, name)
	relay.Set(remoting.RelayClientField, id)
	return relay
}

// relayToClient has another node pass a one-way request on, and reports whether it did.
func (b *Broker) relayToClient(ctx context.Context, addr, name, id string, cmd *remoting.Command) bool {
	resp, err := b.cfg.Ask(ctx, addr, relayRequest(name, id, cmd))
	if err != nil {
		b.logger.Debug("node was not reached", "address", addr, "error", err)
		return false
	}
	return succeeded(resp)
}

// relayClient serves RequestRelayClient.
func (b *Broker) relayClient(r transport.Responder, cmd *remoting.Command) {
	name, id, text := cmd.GetString(remoting.RelayGroupField), cmd.GetString(remoting.RelayClientField), cmd.GetString(remoting.RelayCodeField)
	done := false
	switch text {
	case itoa(remoting.RequestCheckTransactionState):
		done = tellOne(b.cfg.Groups.Producers(name), id, carried(cmd, remoting.RequestCheckTransactionState))
	case itoa(remoting.RequestResetConsumerClientOffset):
		done = tellOne(b.cfg.Groups.Members(name), id, carried(cmd, remoting.RequestResetConsumerClientOffset))
	case itoa(remoting.RequestGetConsumerStatusFromClient):
		b.relayStatus(r, name, id, carried(cmd, remoting.RequestGetConsumerStatusFromClient))
		return
	default:
		r.ReplyError(remoting.ResponseRequestCodeNotSupported, "request "+text+" is not passed on to clients")
		return
	}
	if !done {
		notHere(r, name, id)
		return
	}
	success(r)
}

func notHere(r transport.Responder, name, id string) {
	r.ReplyError(remoting.ResponseConsumerNotOnline, "no client "+id+" of group "+name+" is connected to this node")
}

// relayStatus asks a consumer where it is, and passes its answer back.
func (b *Broker) relayStatus(r transport.Responder, name, id string, ask *remoting.Command) {
	m, ok := b.member(name, id)
	if !ok {
		notHere(r, name, id)
		return
	}
	if !b.apart(func() {
		ctx, cancel := context.WithTimeout(b.ctx, askStatus)
		defer cancel()
		resp, err := invokeClient(ctx, m, ask)
		answerCall(r, name, id, resp, err)
	}) {
		busy(r)
	}
}

// carried is the request to a client that a relay request carries, owned.
func carried(cmd *remoting.Command, code int32) *remoting.Command {
	owned := cmd.Clone()
	out := &remoting.Command{Code: code, Body: owned.Body}
	for _, f := range owned.Ext {
		switch f.Key {
		case remoting.RelayClientField, remoting.RelayGroupField, remoting.RelayCodeField:
		default:
			out.Ext = append(out.Ext, f)
		}
	}
	return out
}
