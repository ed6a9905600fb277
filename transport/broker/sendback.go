package broker

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"time"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// sendBackProposal is one message on its way back: a copy that waits in the schedule topic for its group's retry topic, or
// goes to the group's dead letter topic. One command, so that it is there once or not at all.
type sendBackProposal struct {
	b        *Broker
	r        transport.Responder
	cmd      *remoting.Command // owned, for another attempt
	deadline time.Time
	record   []byte
	from, of string // topic and group, for the statistics
}

// sendBack serves CONSUMER_SEND_MSG_BACK on the leader (RocketMQ SendMessageProcessor.asyncConsumerSendMsgBack). Go
// clients before 2.1.3 take any error code for success and lose the message, so an error is answered only when it is
// final: otherwise the request is tried again, here or at the next leader, and its connection closes in the end.
func (b *Broker) sendBack(r transport.Responder, cmd *remoting.Command) {
	b.sendBackUntil(time.Now().Add(authorityWait))(r, cmd)
}

func (b *Broker) sendBackUntil(deadline time.Time) transport.Handler {
	return func(r transport.Responder, cmd *remoting.Command) {
		p := &sendBackProposal{b: b, r: r, cmd: cmd.Clone(), deadline: deadline}
		f := p.prepare()
		switch {
		case f != nil && f.cause != nil:
			p.again(f.cause)
		case f != nil:
			emptyExt(r, f.code, f.remark)
		case p.record == nil:
			success(r)
		default:
			if err := b.propose(p); err != nil {
				p.again(err)
			}
		}
	}
}

// prepare builds the copy. Without one there is nothing to do.
func (p *sendBackProposal) prepare() *refusal {
	var h remoting.SendBackHeader
	if err := h.Decode(p.cmd); err != nil {
		return refuse(remoting.ResponseSystemError, "%v", err)
	}
	b := p.b
	g, ok := b.groupConfig([]byte(h.Group))
	if !ok {
		return refuse(remoting.ResponseSubscriptionGroupNotExist, "subscription group not exist, %s %s", h.Group, faqHint)
	}
	if g.RetryQueueNums <= 0 {
		return nil
	}
	retry := rwTopic(metadata.RetryPrefix+h.Group, g.RetryQueueNums)
	if h.UnitMode {
		retry.TopicSysFlag = int(remoting.TopicFlagUnitSub)
	}
	retry, f := b.groupTopic(retry)
	if f != nil {
		return f
	}
	rec, release, err := b.cfg.Store.RecordAt(h.Offset)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return refuse(remoting.ResponseSystemError, "look message by offset failed, %d", h.Offset)
	case err != nil:
		return refusalOf(err, 0)
	}
	defer release()
	var m record.Message
	if _, err := record.Decode(rec, &m); err != nil {
		b.logger.Error("message to be sent back is damaged on this node", "phy-offset", h.Offset, "error", err)
		return refusalOf(err, 0)
	}
	limit := int32(g.RetryMaxTimes)
	if p.r.Version >= remoting.VersionMinMaxReconsumeTimes && h.HasMaxReconsumeTimes {
		limit = h.MaxReconsumeTimes
	}
	p.from, p.of = string(m.Topic), h.Group
	if m.ReconsumeTimes >= limit || h.DelayLevel < 0 {
		return p.toDeadLetters(&m, h.Group)
	}
	level := h.DelayLevel
	if level == 0 {
		level = 3 + m.ReconsumeTimes
	}
	queues := max(1, min(g.RetryQueueNums, retry.WriteQueueNums))
	return p.toRetry(&m, []byte(retry.TopicName), rand.Int32N(int32(queues)), min(level, b.maxDelayLevel()))
}

// groupTopic is a group's retry or dead letter topic, created on demand.
func (b *Broker) groupTopic(t command.TopicConfig) (command.TopicConfig, *refusal) {
	if f := checkTopicName(t.TopicName); f != nil {
		return t, f
	}
	t, f := b.topics.create(t)
	if f == nil && t.Perm&metadata.PermWrite == 0 {
		f = refuse(remoting.ResponseNoPermission, "the topic[%s] sending message is forbidden", t.TopicName)
	}
	return t, f
}

// toRetry makes the copy wait for its next delivery.
func (p *sendBackProposal) toRetry(m *record.Message, topic []byte, queueID int32, level int32) *refusal {
	props := p.properties(m, level, record.PropertyRealTopic, record.PropertyRealQueueID)
	m.Properties = appendReal(props, topic, queueID)
	m.Topic, m.QueueID = scheduleTopic, level-1
	return p.encode(m, len(topic))
}

// toDeadLetters makes the copy a dead letter. REAL_TOPIC and REAL_QID of its last retry stay in its text.
func (p *sendBackProposal) toDeadLetters(m *record.Message, group string) *refusal {
	t, f := p.b.groupTopic(rwTopic(metadata.DLQPrefix+group, 1))
	if f != nil {
		return f
	}
	m.Properties = p.properties(m, 0)
	m.Topic, m.QueueID = []byte(t.TopicName), 0
	return p.encode(m, 0)
}

// properties is the copy's text: it remembers where the message was first.
func (p *sendBackProposal) properties(m *record.Message, level int32, without ...string) []byte {
	out := record.AppendPropertiesWithout(nil, m.Properties, append(without, record.PropertyWait, record.PropertyDelay)...)
	out = record.AppendProperty(out, record.PropertyWait, "false")
	out = record.AppendProperty(out, record.PropertyDelay, strconv.Itoa(int(level)))
	if _, ok := record.Property(m.Properties, record.PropertyRetryTopic); !ok {
		out = record.AppendProperty(out, record.PropertyRetryTopic, m.Topic)
	}
	if _, ok := record.Property(m.Properties, record.PropertyOriginMessageID); !ok {
		out = record.AppendProperty(out, record.PropertyOriginMessageID, record.AppendMessageID(nil, m.StoreHost, m.PhyOffset))
	}
	return out
}

// encode takes the bytes of the copy, since m is a view of the log. realTopic is how long its topic's name will be.
func (p *sendBackProposal) encode(m *record.Message, realTopic int) *refusal {
	m.ReconsumeTimes++
	m.StoreHost, m.PreparedTransactionOffset = p.b.cfg.StoreHost, 0
	if len(m.Properties) > record.MaxPropertiesLen || !p.b.fits(m, realTopic) {
		return refuse(remoting.ResponseSystemError, "MESSAGE_ILLEGAL")
	}
	p.record = record.Append(nil, m)
	return nil
}

// AppendCommand implements raftnode.Proposal.
func (p *sendBackProposal) AppendCommand(dst []byte, storeMillis int64) []byte {
	record.PatchStoreTimestamp(p.record, storeMillis)
	dst, start := command.BeginAppend(dst)
	return command.EndAppend(append(dst, p.record...), start, 1)
}

// Done implements raftnode.Proposal.
func (p *sendBackProposal) Done(entryResult any, i int, err error) {
	if _, err = command.ResultOf(entryResult, i, err); err != nil {
		p.b.counters.failedWrites.Add(1)
		p.again(err)
		return
	}
	p.b.counting.sentBack(p.from, p.of)
	success(p.r)
}

// again tries once more, here or where the leader is then, until the deadline. If the outcome of the last attempt is
// not known the message may come back twice; it does not get lost.
func (p *sendBackProposal) again(err error) {
	b := p.b
	var fail giveUp = closeConnection
	if p.cmd.Get(forwardedField) != nil {
		fail = refuseUnavailable // whoever passed it on tries again
	}
	if b.waiting.Add(1) <= maxWaiting && time.Now().Before(p.deadline) && b.spawn(func() {
		defer b.waiting.Add(-1)
		select {
		case <-time.After(retryPause):
		case <-b.ctx.Done():
		}
		b.leaderOnly(fail, b.sendBackUntil(p.deadline))(p.r, p.cmd)
	}) {
		return
	}
	b.waiting.Add(-1)
	b.logger.Debug("a message could not be sent back", "client", p.r.Conn.RemoteAddr(), "error", err)
	fail(b, p.r)
}
