package broker

import (
	"errors"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"

	"raftmq/commitlog/record"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/fsm/raftnode"
	"raftmq/seam"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// handleSend serves SEND_MESSAGE, SEND_MESSAGE_V2 and SEND_BATCH_MESSAGE (RocketMQ
// SendMessageProcessor) on the connection's reader: it never waits. The leader gate comes first.
func (b *Broker) handleSend(r transport.Responder, cmd *remoting.Command) {
	verdict := b.gate()
	if verdict == gateOpen && (b.cfg.Store.PageCacheBusy() || b.cfg.Store.TransientStorePoolDeficient()) {
		b.replySend(r, refuse(remoting.ResponseSystemBusy, remarkRejected))
		return
	}
	if verdict == gateOpen && b.held.pending.Load() == 0 {
		if b.send(r, cmd) {
			return
		}
		verdict = gateHold // leadership was lost just now; what comes next is not known here
	}
	if verdict == gateRelay && b.relayNow(r, cmd) {
		return
	}
	if verdict != gateRefuse && b.held.offer(r, cmd) {
		b.counters.heldWrites.Add(1)
		return
	}
	if verdict == gateOpen { // behind so many held writes that no more can wait
		b.replySend(r, refuse(remoting.ResponseSystemBusy, remarkRejected))
		return
	}
	b.refuseWrite(r)
}

// refuseWrite answers 14, naming the leader when it is known.
func (b *Broker) refuseWrite(r transport.Responder) {
	b.counters.refusedWrites.Add(1)
	b.warnRefused("this node does not lead, or is stopping")
	b.replySend(r, b.unavailable())
}

// replySend answers a refused send. RocketMQ's refusals carry region and trace switch too, and
// Java clients need the ext map.
func (b *Broker) replySend(r transport.Responder, f *refusal) {
	r.Reply(&remoting.Command{Code: f.code, Remark: f.remark, Ext: []remoting.Field{
		{Key: "TRACE_ON", Value: []byte("true")}, {Key: "MSG_REGION", Value: b.region},
	}})
}

// send checks and proposes one request. It returns false, with nothing answered, when this
// node turned out not to lead.
func (b *Broker) send(r transport.Responder, cmd *remoting.Command) bool {
	p := b.proposals.Get().(*sendProposal)
	p.r = r
	if f := p.prepare(cmd); f != nil {
		p.free()
		if errors.Is(f.cause, raftnode.ErrNotLeader) {
			return false // a topic could not be proposed
		}
		b.replySend(r, f)
		return true
	}
	p.count = b.counting.topic(p.msg.Topic, b.maxDelayLevel())
	err := b.propose(p)
	if err == nil {
		return true // p belongs to its completion now
	}
	p.free()
	if errors.Is(err, raftnode.ErrNotLeader) {
		return false
	}
	b.replySend(r, refusalOf(err, b.cfg.MaxMessageSize))
	return true
}

// properties of a request that decide how it is stored.
type sendProperties struct {
	delay    []byte
	level    int32 // of DELAY, also when it is above the last one
	wait     bool
	half     bool
	badDelay bool
	group    []byte // PGROUP
	replyTo  []byte // the client that waits for a reply
}

func readSendProperties(props []byte) sendProperties {
	p := sendProperties{wait: true}
	record.RangeProperties(props, func(name, value []byte) bool {
		switch string(name) {
		case record.PropertyWait:
			p.wait = isTrue(value)
		case record.PropertyTransaction:
			p.half = isTrue(value)
		case record.PropertyProducerGroup:
			p.group = value
		case propertyReplyTo:
			p.replyTo = value
		case record.PropertyDelay:
			p.delay = value
		}
		return true
	})
	if p.delay != nil {
		n, err := strconv.ParseInt(string(p.delay), 10, 32)
		p.badDelay, p.level = err != nil, int32(n)
	}
	return p
}

// prepare decodes and checks cmd and fills the message in. The order of checks is that of
// SendMessageProcessor 4.9.4 behind the leader gate.
func (p *sendProposal) prepare(cmd *remoting.Command) *refusal {
	b, h := p.b, &p.h
	queueID, f := b.sendTarget(h, p.r, cmd)
	if f != nil {
		return f
	}
	p.queueID = queueID
	if b.cfg.TraceTopicEnable {
		p.addTraceProperties()
	}
	p.msg = record.Message{
		Topic: h.Topic, QueueID: p.queueID, Flag: h.Flag, SysFlag: h.SysFlag,
		BornTimestamp: h.BornTimestamp, BornHost: bornHost(h, p.r), StoreHost: b.cfg.StoreHost, ReconsumeTimes: h.ReconsumeTimes,
		Body: cmd.Body,
	}
	if h.Batch || cmd.Code == remoting.RequestSendBatchMessage {
		return p.prepareBatch()
	}
	return p.prepareSingle(cmd)
}

// Properties by which a consumer decides whether it traces a message; a producer reads the like from the answer.
const (
	propertyRegion      = "MSG_REGION"
	propertyTraceSwitch = "TRACE_ON"
)

// addTraceProperties gives the message what 5.x brokers store with each: a consumer of 5.3.3 writes no trace record of one without a region. 4.9.4 stores
// neither, nor is it done here without --trace-topic-enable.
func (p *sendProposal) addTraceProperties() {
	p.traced = record.AppendPropertiesWithout(p.traced[:0], p.h.Properties, propertyRegion, propertyTraceSwitch)
	p.traced = record.AppendProperty(p.traced, propertyRegion, p.b.region)
	p.traced = record.AppendProperty(p.traced, propertyTraceSwitch, "true")
	p.h.Properties = p.traced
}

// bornHost is where a message came from: the connection's other end, or who that passes it on for.
func bornHost(h *remoting.SendHeader, r transport.Responder) netip.AddrPort {
	if h.BornHost != nil {
		if a, err := netip.ParseAddrPort(string(h.BornHost)); err == nil {
			return a
		}
	}
	return r.Conn.RemoteAddr()
}

// sendTarget decodes the header of a send or a reply and finds the queue that it is for.
func (b *Broker) sendTarget(h *remoting.SendHeader, r transport.Responder, cmd *remoting.Command) (queueID int32, f *refusal) {
	badHeader := h.Decode(cmd)
	if f := checkTopicName(h.Topic); f != nil {
		return 0, f
	}
	if badHeader != nil {
		return 0, refuse(remoting.ResponseSystemError, "%v", badHeader)
	}
	if metadata.SendForbidden(h.Topic) {
		return 0, refuse(remoting.ResponseNoPermission, "Sending message to topic[%s] is forbidden.", h.Topic)
	}
	topic, f := b.topicForSend(h)
	if f != nil {
		return 0, f
	}
	if int(h.QueueID) >= max(topic.WriteQueueNums, topic.ReadQueueNums) {
		return 0, refuse(remoting.ResponseSystemError, "request queueId[%d] is illegal, %s Producer: %s", h.QueueID, describeTopic(topic), r.Conn.RemoteAddr())
	}
	if h.QueueID >= 0 {
		return h.QueueID, nil
	}
	if topic.WriteQueueNums <= 0 {
		return 0, refuse(remoting.ResponseSystemError, "topic[%s] has no write queue", h.Topic)
	}
	return rand.Int32N(int32(topic.WriteQueueNums)), nil
}

func (p *sendProposal) prepareSingle(cmd *remoting.Command) *refusal {
	b, h := p.b, &p.h
	props := readSendProperties(h.Properties)
	dead, f := p.deadLetter()
	if f != nil {
		return f
	}
	if len(props.replyTo) > 0 && !hasPrefix(h.Topic, metadata.RetryPrefix) {
		b.learnRequester(p.r, cmd, props.replyTo)
	}
	half := props.half && !(h.ReconsumeTimes > 0 && props.level > 0)
	switch {
	case props.badDelay:
		return refuse(remoting.ResponseSystemError, "property DELAY is %q, a number expected", props.delay)
	case half && seam.Often(seam.HalfVisible, 20):
		p.msg.SysFlag = 0
	case half:
		return p.prepareHalf(cmd, &props)
	case record.TransactionType(h.SysFlag) == record.SysFlagPrepared, record.TransactionType(h.SysFlag) == record.SysFlagRollback:
		return refuse(remoting.ResponseMessageIllegal, "a prepared or rollback message (sysFlag %d) cannot be sent", h.SysFlag)
	case props.level > 0 && !dead:
		return p.prepareDelayed(&props)
	}
	p.props = record.AppendStoredProperties(p.props[:0], h.Properties, b.cfg.ClusterName)
	p.msg.Properties = p.props
	if len(p.props) > record.MaxPropertiesLen || len(p.msg.Body) > b.cfg.MaxMessageSize {
		return messageIllegal(b.cfg.MaxMessageSize)
	}
	p.wait = props.wait
	p.sizes = append(p.sizes[:0], int32(p.msg.Size()))
	return p.checkSize(int64(p.msg.Size()))
}

// prepareBatch checks all entries of a batch, so that encoding them cannot fail.
func (p *sendProposal) prepareBatch() *refusal {
	b, h := p.b, &p.h
	props := readSendProperties(h.Properties)
	if len(p.msg.Body) == 0 || len(p.msg.Body) > b.cfg.MaxMessageSize || record.TransactionType(h.SysFlag) != 0 || props.level > 0 {
		return messageIllegal(b.cfg.MaxMessageSize)
	}
	if props.badDelay {
		return refuse(remoting.ResponseSystemError, "property DELAY is %q, a number expected", props.delay)
	}
	p.props = record.AppendRequestProperties(p.props[:0], h.Properties, b.cfg.ClusterName)
	p.batch, p.wait, p.sizes = true, props.wait, p.sizes[:0]
	// What the whole may be when it is stored: each entry gets a record's header and the request's properties.
	limit := int64(min(batchBlowUp*b.cfg.MaxMessageSize, raftnode.MaxCommandBytes-batchRoom))
	total := int64(0)
	for rest := p.msg.Body; len(rest) > 0; {
		e, more, err := record.NextBatchEntry(rest)
		if err != nil {
			return refuse(remoting.ResponseSystemError, "%v", err)
		}
		rest = more
		p.merged = record.JoinProperties(p.merged[:0], e.Properties, p.props)
		if len(p.merged) > record.MaxPropertiesLen {
			return refuse(remoting.ResponseSystemError, "properties of a batch entry have %d bytes with those of the request, at most %d", len(p.merged), record.MaxPropertiesLen)
		}
		one := p.msg
		one.Body, one.Properties = e.Body, p.merged
		p.sizes = append(p.sizes, int32(one.Size()))
		if total += int64(one.Size()); total > limit {
			return refuse(remoting.ResponseMessageIllegal, "the batch is too large: its messages have more than %d bytes together when each is stored with its header and the request's properties; send fewer at a time", limit)
		}
	}
	return p.checkSize(total)
}

// checkSize refuses what would not fit a segment: the log could never take it, on any node.
func (p *sendProposal) checkSize(total int64) *refusal {
	limit := p.b.recordLimit()
	if limit == 0 {
		return refuse(remoting.ResponseServiceNotAvailable, "service not available now. The cluster settings are not known yet.")
	}
	if total+record.BlankMinSize > limit {
		return refuse(remoting.ResponseMessageIllegal, "the message has %d bytes when it is stored, a commit log segment %d", total, limit)
	}
	return nil
}

// deadLetter redirects a message that was consumed too often to the group's dead letter topic
// (SendMessageProcessor.handleRetryAndDLQ).
func (p *sendProposal) deadLetter() (dead bool, f *refusal) {
	h := &p.h
	if !hasPrefix(h.Topic, metadata.RetryPrefix) {
		return false, nil
	}
	b, name := p.b, h.Topic[len(metadata.RetryPrefix):]
	g, ok := b.cfg.Tables.GroupBytes(name)
	if !ok {
		if !b.mayCreateGroup(name) {
			return false, refuse(remoting.ResponseSubscriptionGroupNotExist, "subscription group not exist, %s %s", name, faqHint)
		}
		g = command.DefaultGroup(string(name))
		b.groups.ensure(g.GroupName)
	}
	limit := int32(g.RetryMaxTimes)
	if p.r.Version >= remoting.VersionMinMaxReconsumeTimes && h.HasMaxReconsumeTimes {
		limit = h.MaxReconsumeTimes
	}
	if h.ReconsumeTimes < limit {
		return false, nil
	}
	t := rwTopic(metadata.DLQPrefix+string(name), 1)
	if f := checkTopicName(t.TopicName); f != nil {
		return false, f
	}
	if f := b.topics.require(t); f != nil {
		return false, f
	}
	p.msg.Topic, p.msg.QueueID = []byte(t.TopicName), 0
	return true, nil
}

func hasPrefix(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && string(b[:len(prefix)]) == prefix
}

// isTrue follows Java's Boolean.parseBoolean.
func isTrue(value []byte) bool { return len(value) == 4 && strings.EqualFold(string(value), "true") }
