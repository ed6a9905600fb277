package broker

import (
	"strings"

	"raftmq/commitlog/record"
	"raftmq/fsm/metadata"
	"raftmq/membership/group"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// subscription compiles what a heartbeat says. The tag set counts when it is there, else the
// expression; the hash codes are computed here, as Go clients hash UTF-8 bytes.
func (b *Broker) subscription(s *remoting.SubscriptionData) *group.Subscription {
	out := &group.Subscription{Topic: s.Topic, SubString: s.SubString, ExpressionType: s.ExpressionType,
		Tags: s.TagsSet, ClassFilter: s.ClassFilterMode, Version: s.SubVersion}
	if isSQL(s.ExpressionType) {
		f, err := b.filters.sql([]byte(s.SubString))
		out.MatchProperties, out.Unreadable = f, err != nil
		return out
	}
	if s.ClassFilterMode || !isTag(s.ExpressionType) || s.SubString == "" || s.SubString == "*" {
		return out
	}
	tags := s.TagsSet
	if len(tags) == 0 {
		for tag := range strings.SplitSeq(s.SubString, "||") {
			if tag = strings.TrimSpace(tag); tag != "" {
				tags = append(tags, tag)
			}
		}
	}
	for _, tag := range tags {
		out.Codes = append(out.Codes, record.JavaHash(tag))
	}
	if len(out.Codes) > 0 {
		out.Match = record.NewTagFilter(out.Codes).Match
	}
	return out
}

// heartbeat serves HEART_BEAT (RocketMQ ClientManageProcessor). The leader creates the subscription group
// and its retry topic by command, without waiting for it.
func (b *Broker) heartbeat(r transport.Responder, cmd *remoting.Command) {
	var in remoting.HeartbeatData
	if err := in.Decode(cmd.Body); err != nil {
		badRequest(r, err)
		return
	}
	h := group.Heartbeat{Client: group.Client{Conn: r.Conn, ID: in.ClientID, Language: cmd.Language, Version: cmd.Version}}
	for _, p := range in.ProducerDataSet {
		h.Producers = append(h.Producers, p.GroupName)
	}
	for i := range in.ConsumerDataSet {
		c := &in.ConsumerDataSet[i]
		b.prepareConsumerGroup(c)
		consumer := group.Consumer{Group: c.GroupName, Type: c.ConsumeType, Model: c.MessageModel, FromWhere: c.ConsumeFromWhere}
		for j := range c.SubscriptionDataSet {
			consumer.Subscriptions = append(consumer.Subscriptions, b.subscription(&c.SubscriptionDataSet[j]))
		}
		h.Consumers = append(h.Consumers, consumer)
	}
	b.cfg.Groups.Heartbeat(h)
	b.dropIfClosed(r.Conn)
	success(r)
}

// dropIfClosed removes a connection that closed while it was being registered: OnClose has found nothing to remove.
func (b *Broker) dropIfClosed(c *transport.Conn) {
	select {
	case <-c.Done():
		b.cfg.Groups.CloseConn(c.ID())
	default:
	}
}

// prepareConsumerGroup has the group and its retry topic created if they are missing.
func (b *Broker) prepareConsumerGroup(c *remoting.ConsumerData) {
	g, ok := b.groupConfig([]byte(c.GroupName))
	if !ok || !b.leads() {
		return
	}
	name := metadata.RetryPrefix + c.GroupName
	if _, ok := b.cfg.Tables.Topic(name); ok || g.RetryQueueNums <= 0 || checkTopicName(name) != nil {
		return
	}
	t := rwTopic(name, g.RetryQueueNums)
	if c.UnitMode {
		t.TopicSysFlag = int(remoting.TopicFlagUnitSub)
	}
	if f := b.topics.require(t); f != nil {
		b.logger.Warn("retry topic was not proposed, the next heartbeat tries again", "topic", name, "reason", f.remark)
	}
}

// unregister serves UNREGISTER_CLIENT.
func (b *Broker) unregister(r transport.Responder, cmd *remoting.Command) {
	var h remoting.UnregisterClientHeader
	if err := h.Decode(cmd); err != nil {
		badRequest(r, err)
		return
	}
	b.cfg.Groups.Unregister(r.Conn.ID(), h.ProducerGroup, h.ConsumerGroup)
	emptyExt(r, remoting.ResponseSuccess, "")
}

// checkClientConfig serves CHECK_CLIENT_CONFIG: may a consumer subscribe with this expression?
func (b *Broker) checkClientConfig(r transport.Responder, cmd *remoting.Command) {
	var in remoting.CheckClientConfig
	if err := in.Decode(cmd.Body); err != nil {
		badRequest(r, err)
		return
	}
	switch expression := &in.SubscriptionData; {
	case isSQL(expression.ExpressionType):
		if _, err := b.filters.sql([]byte(expression.SubString)); err != nil {
			answerRefusal(r, refuse(remoting.ResponseSubscriptionParseFailed, "%v", err))
			return
		}
	case !isTag(expression.ExpressionType):
		answerRefusal(r, noFilter(expression.ExpressionType))
		return
	}
	success(r)
}
