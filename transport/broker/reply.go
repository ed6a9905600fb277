package broker

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"raftmq/commitlog/record"
	"raftmq/fsm/command"
	"raftmq/membership/group"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// Names of the properties of request-reply (RocketMQ MessageConst).
const (
	propertyReplyTo       = "REPLY_TO_CLIENT"
	propertyPushReplyTime = "PUSH_REPLY_TIME"
)

// askClient is how long a client may take to answer a request of the broker (RocketMQ Broker2Client.callClient).
const askClient = 10 * time.Second

// invoker is the part of a client's connection that requests to it need.
type invoker interface {
	Invoke(ctx context.Context, cmd *remoting.Command) (*remoting.Command, error)
}

// replyProposal is one reply: handed to the producer that waits for it, and then stored, as RocketMQ does with
// storeReplyMessageEnable. Storing is a record of the fact only; nobody consumes it, so only a leader does it.
type replyProposal struct {
	b       *Broker
	r       transport.Responder
	code    int32
	remark  string
	queueID int32
	record  []byte
}

// sendReply serves SEND_REPLY_MESSAGE and its v2 form (RocketMQ ReplyMessageProcessor) on any node: who waits may be connected to any.
func (b *Broker) sendReply(r transport.Responder, cmd *remoting.Command) {
	owned := cmd.Clone()
	if !b.apart(func() { b.reply(r, owned) }) {
		b.replySend(r, refuse(remoting.ResponseSystemBusy, remarkOverload))
	}
}

func (b *Broker) reply(r transport.Responder, cmd *remoting.Command) {
	var h remoting.SendHeader
	queueID, f := b.sendTarget(&h, r, cmd)
	if f == nil && len(cmd.Body) > b.cfg.MaxMessageSize {
		f = messageIllegal(b.cfg.MaxMessageSize)
	}
	if f != nil {
		b.replySend(r, f)
		return
	}
	m := record.Message{Topic: h.Topic, QueueID: queueID, Flag: h.Flag, SysFlag: h.SysFlag &^ record.SysFlagTransaction, BornTimestamp: h.BornTimestamp,
		BornHost: r.Conn.RemoteAddr(), StoreHost: b.cfg.StoreHost, ReconsumeTimes: h.ReconsumeTimes, Body: cmd.Body,
		Properties: record.AppendPropertiesWithout(nil, h.Properties)}
	p := &replyProposal{b: b, r: r, queueID: queueID}
	if remark := b.pushReply(&h, &m); remark != "" {
		p.code, p.remark = remoting.ResponseSystemError, remark
	}
	if len(m.Properties) > record.MaxPropertiesLen || !b.fits(&m, 0) {
		p.answer("0", 0)
		return
	}
	p.record = record.Append(nil, &m)
	if err := b.propose(p); err != nil {
		p.answer("0", 0)
	}
}

// pushReply hands a reply over and returns why that failed, "" if it did not.
func (b *Broker) pushReply(h *remoting.SendHeader, m *record.Message) (remark string) {
	to, ok := record.Property(m.Properties, propertyReplyTo)
	if !ok {
		return "reply message properties[" + propertyReplyTo + "] is null"
	}
	client, now := string(to), strconv.FormatInt(b.cfg.Now().UnixMilli(), 10)
	push := remoting.PushReplyHeader{ProducerGroup: string(h.ProducerGroup), Topic: string(h.Topic), DefaultTopic: string(h.DefaultTopic),
		DefaultTopicQueueNums: h.DefaultTopicQueueNums, QueueID: m.QueueID, SysFlag: h.SysFlag, BornTimestamp: h.BornTimestamp, Flag: h.Flag,
		Properties:     string(record.AppendProperty(record.AppendPropertiesWithout(nil, m.Properties, propertyPushReplyTime), propertyPushReplyTime, now)),
		ReconsumeTimes: h.ReconsumeTimes, UnitMode: h.UnitMode, BornHost: m.BornHost.String(), StoreHost: b.cfg.StoreHost.String(),
		StoreTimestamp: b.cfg.Now().UnixMilli()}
	cmd := &remoting.Command{Code: remoting.RequestPushReplyMessageToClient, Body: m.Body}
	push.Encode(cmd)
	ctx, cancel := context.WithTimeout(b.ctx, askClient)
	defer cancel()
	code := b.pushReplyHere(ctx, client, cmd)
	if code == remoting.ResponseConsumerNotOnline {
		code = b.pushReplyElsewhere(ctx, client, cmd)
	}
	switch code {
	case remoting.ResponseSuccess:
		return ""
	case remoting.ResponseConsumerNotOnline:
		return "push reply message fail, channel of <" + client + "> not found."
	}
	return "push reply message to " + client + "fail."
}

// pushReplyHere hands a reply to a producer that is connected to this node: 206 if there is none with that id.
func (b *Broker) pushReplyHere(ctx context.Context, client string, cmd *remoting.Command) (code int32) {
	c, ok := b.cfg.Groups.Requester(client)
	if !ok {
		return remoting.ResponseConsumerNotOnline
	}
	resp, err := invokeClient(ctx, c, cmd)
	if err != nil {
		b.logger.Debug("reply was not handed over", "client", client, "error", err)
		return remoting.ResponseSystemError
	}
	return resp.Code
}

func invokeClient(ctx context.Context, c group.Client, cmd *remoting.Command) (*remoting.Command, error) {
	conn, ok := c.Conn.(invoker)
	if !ok {
		return nil, fmt.Errorf("broker: client %s cannot be asked: %w", c.ID, transport.ErrConnClosed)
	}
	return conn.Invoke(ctx, cmd)
}

// pushReplyElsewhere asks all other nodes at once. 206: none of them knows the client.
func (b *Broker) pushReplyElsewhere(ctx context.Context, client string, push *remoting.Command) (code int32) {
	code = remoting.ResponseConsumerNotOnline
	for _, a := range b.askPeers(ctx, func() *remoting.Command {
		relay := &remoting.Command{Code: remoting.RequestRelayReply, Ext: append([]remoting.Field{}, push.Ext...), Body: push.Body}
		relay.Set(remoting.RelayClientField, client)
		return relay
	}, succeeded) {
		switch a.resp.Code {
		case remoting.ResponseSuccess:
			return a.resp.Code
		case remoting.ResponseConsumerNotOnline:
		default:
			code = a.resp.Code
		}
	}
	return code
}

// relayReply serves RequestRelayReply: another node has a reply for a producer that may be connected to this one.
func (b *Broker) relayReply(r transport.Responder, cmd *remoting.Command) {
	client := cmd.GetString(remoting.RelayClientField)
	push := carried(cmd, remoting.RequestPushReplyMessageToClient)
	if !b.apart(func() {
		ctx, cancel := context.WithTimeout(b.ctx, askClient)
		defer cancel()
		r.ReplyError(b.pushReplyHere(ctx, client, push), "")
	}) {
		busy(r)
	}
}

// AppendCommand implements raftnode.Proposal.
func (p *replyProposal) AppendCommand(dst []byte, storeMillis int64) []byte {
	record.PatchStoreTimestamp(p.record, storeMillis)
	dst, start := command.BeginAppend(dst)
	return command.EndAppend(append(dst, p.record...), start, 1)
}

// Done implements raftnode.Proposal.
func (p *replyProposal) Done(entryResult any, i int, err error) {
	result, err := command.ResultOf(entryResult, i, err)
	if err != nil {
		p.b.counters.failedWrites.Add(1)
		p.answer("0", 0)
		return
	}
	p.answer(string(record.AppendMessageID(nil, p.b.cfg.StoreHost, result.PhyOffset)), result.QueueOffset)
}

// answer tells how handing over went. A reply that was not stored has the id 0, as in RocketMQ without storeReplyMessageEnable.
func (p *replyProposal) answer(id string, queueOffset int64) {
	resp := &remoting.Command{Code: p.code, Remark: p.remark, Ext: []remoting.Field{
		{Key: "queueId", Value: strconv.AppendInt(nil, int64(p.queueID), 10)}, {Key: "TRACE_ON", Value: []byte("true")},
		{Key: "MSG_REGION", Value: p.b.region}, {Key: "msgId", Value: []byte(id)}, {Key: "queueOffset", Value: strconv.AppendInt(nil, queueOffset, 10)},
	}}
	p.r.Reply(resp)
}
