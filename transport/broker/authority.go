package broker

import (
	"context"
	"time"

	"raftmq/fsm/raftnode"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// forwardedField marks a request that another node has passed on: it is not passed on again.
const forwardedField = "raftmqForwarded"

// retryPause is between two attempts to reach the leader.
const retryPause = 50 * time.Millisecond

// giveUp ends a request that found no leader in time.
type giveUp func(b *Broker, r transport.Responder)

// refuseUnavailable answers 14.
func refuseUnavailable(b *Broker, r transport.Responder) { answerRefusal(r, b.unavailable()) }

// closeConnection answers nothing: for requests whose every error code a client takes for an answer (wire notes
// §3.8: Java reads any error to QUERY_CONSUMER_OFFSET as "no offset yet" and skips or replays the queue).
func closeConnection(_ *Broker, r transport.Responder) { _ = r.Conn.Close() }

// leaderOnly wraps a handler that only a leader may run (Never-Guess). Elsewhere a copy of the request waits for a leader, here or in
// reach of Forward, up to authorityWait.
func (b *Broker) leaderOnly(fail giveUp, h transport.Handler) transport.Handler {
	return func(r transport.Responder, cmd *remoting.Command) {
		if b.leads() {
			h(r, cmd)
			return
		}
		b.awaitLeader(r, cmd.Clone(), fail, func(_ context.Context, cmd *remoting.Command) bool { h(r, cmd); return true })
	}
}

// reader reads what a request asks for, and returns what gives the answer.
type reader func(cmd *remoting.Command) (answer func(r transport.Responder))

// leaderReads wraps a reader whose answer must not be older than the request. A leader that was stopped after it had looked, or before,
// does not answer from what it saw: whether it still leads is asked after the reading.
func (b *Broker) leaderReads(fail giveUp, read reader) transport.Handler {
	return func(r transport.Responder, cmd *remoting.Command) {
		if b.leads() {
			if answer := read(cmd); b.authoritative() {
				answer(r)
				return
			}
		}
		b.awaitLeader(r, cmd.Clone(), fail, func(ctx context.Context, cmd *remoting.Command) bool {
			answer := read(cmd)
			if !b.authoritative() && b.cfg.Raft.Confirm(ctx) != nil {
				return false
			}
			answer(r)
			return true
		})
	}
}

// service answers an owned request on a node that leads; false if it leads no more.
type service func(ctx context.Context, cmd *remoting.Command) bool

// awaitLeader runs or forwards an owned request on a goroutine of its own.
func (b *Broker) awaitLeader(r transport.Responder, cmd *remoting.Command, fail giveUp, serve service) {
	if cmd.Get(forwardedField) != nil {
		fail = refuseUnavailable // the connection is another node's, and carries more than this request
	}
	if !b.apart(func() { b.serveElsewhere(r, cmd, fail, serve) }) {
		fail(b, r)
	}
}

// apart runs what may wait for other nodes or clients on a goroutine of its own; false when too many do, or the broker is closing.
func (b *Broker) apart(f func()) bool {
	if b.waiting.Add(1) > maxWaiting || !b.spawn(func() {
		defer b.waiting.Add(-1)
		f()
	}) {
		b.waiting.Add(-1)
		return false
	}
	return true
}

func (b *Broker) serveElsewhere(r transport.Responder, cmd *remoting.Command, fail giveUp, serve service) {
	ctx, cancel := context.WithTimeout(b.ctx, authorityWait)
	defer cancel()
	for {
		changed := b.changed()
		s := b.cfg.Raft.State()
		if s.Ready && serve(ctx, cmd) {
			return
		}
		if s.Role != raftnode.Leader && s.LeaderID != "" {
			if cmd.Get(forwardedField) != nil {
				fail(b, r) // whoever passed it on looks for the leader again
				return
			}
			if resp, ok := b.forward(ctx, cmd); ok {
				r.Reply(resp)
				return
			}
		}
		select {
		case <-changed:
		case <-time.After(retryPause):
		case <-ctx.Done():
			fail(b, r)
			return
		}
	}
}

// forward asks the leader. An answer 14 is that node's "not me": it is no answer for the client.
func (b *Broker) forward(ctx context.Context, cmd *remoting.Command) (*remoting.Command, bool) {
	if b.cfg.Forward == nil {
		return nil, false
	}
	request := *cmd
	request.Flag = 0
	request.Ext = append(append([]remoting.Field{}, cmd.Ext...), remoting.Field{Key: forwardedField, Value: []byte("true")})
	resp, err := b.cfg.Forward(ctx, &request)
	if err != nil {
		b.logger.Debug("leader was not reached", "request", remoting.RequestCodeName(cmd.Code), "error", err)
		return nil, false
	}
	return resp, resp.Code != remoting.ResponseServiceNotAvailable
}

// spawn starts a goroutine that Close waits for; false when the broker is closing.
func (b *Broker) spawn(f func()) bool {
	b.state.Lock()
	defer b.state.Unlock()
	if b.ctx.Err() != nil {
		return false
	}
	b.wg.Go(f)
	return true
}
