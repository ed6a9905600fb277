package broker

import (
	"raftmq/fsm/metadata"
	"raftmq/membership/group"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// Go clients' first heartbeat may come half a minute after their first message, so connections become known by what they send too.

// learnRequester makes the connection of a request known as the one to which its reply goes. Retried messages and those that
// another node passed on come from elsewhere.
func (b *Broker) learnRequester(r transport.Responder, cmd *remoting.Command, client []byte) {
	if cmd.Get(forwardedField) != nil {
		return
	}
	if b.cfg.Groups.LearnRequester(client, group.Client{Conn: r.Conn, Language: cmd.Language, Version: r.Version}) {
		b.dropIfClosed(r.Conn)
	}
}

// learnProducer makes the connection of a half message known as one that can be asked about the group's transactions.
func (b *Broker) learnProducer(r transport.Responder, cmd *remoting.Command, name []byte) {
	if len(name) == 0 || cmd.Get(forwardedField) != nil {
		return
	}
	c := group.Client{Conn: r.Conn, ID: r.Conn.RemoteAddr().String(), Language: cmd.Language, Version: r.Version}
	if b.cfg.Groups.LearnProducer(name, c) {
		b.dropIfClosed(r.Conn)
	}
}

// learnSender does both for a write that is passed on: only this node sees the client's connection.
func (b *Broker) learnSender(w heldWrite) {
	var h remoting.SendHeader
	if h.Decode(w.cmd) != nil {
		return // the leader will say what is wrong
	}
	props := readSendProperties(h.Properties)
	if len(props.replyTo) > 0 && !hasPrefix(h.Topic, metadata.RetryPrefix) {
		b.learnRequester(w.r, w.cmd, props.replyTo)
	}
	if props.half {
		b.learnProducer(w.r, w.cmd, props.group)
	}
}
