package broker

import (
	"encoding/json"
	"strings"

	"raftmq/commitlog/record"
	"raftmq/fsm/metadata"
	"raftmq/membership/group"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// heartbeatData is the body of HEART_BEAT (RocketMQ HeartbeatData), as far as it is used. codeSet is left
// out: Go clients send strings and hash UTF-8 bytes, so hash codes are computed here.
type heartbeatData struct {
	ClientID        string           `json:"clientID"`
	ProducerDataSet []producerData   `json:"producerDataSet"`
	ConsumerDataSet []consumerRecord `json:"consumerDataSet"`
}

type producerData struct {
	GroupName string `json:"groupName"`
}

type consumerRecord struct {
	GroupName           string             `json:"groupName"`
	ConsumeType         string             `json:"consumeType"`
	MessageModel        string             `json:"messageModel"`
	ConsumeFromWhere    string             `json:"consumeFromWhere"`
	UnitMode            bool               `json:"unitMode"`
	SubscriptionDataSet []subscriptionData `json:"subscriptionDataSet"`
}

// subscriptionData is RocketMQ's SubscriptionData, in the order in which Java writes it.
type subscriptionData struct {
	ClassFilterMode bool     `json:"classFilterMode"`
	CodeSet         []int32  `json:"codeSet"`
	ExpressionType  string   `json:"expressionType"`
	SubString       string   `json:"subString"`
	SubVersion      int64    `json:"subVersion"`
	TagsSet         []string `json:"tagsSet"`
	Topic           string   `json:"topic"`
}

// UnmarshalJSON reads a subscription without its codeSet.
func (s *subscriptionData) UnmarshalJSON(b []byte) error {
	var in struct {
		ClassFilterMode bool     `json:"classFilterMode"`
		ExpressionType  string   `json:"expressionType"`
		SubString       string   `json:"subString"`
		SubVersion      int64    `json:"subVersion"`
		TagsSet         []string `json:"tagsSet"`
		Topic           string   `json:"topic"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	*s = subscriptionData{ClassFilterMode: in.ClassFilterMode, ExpressionType: in.ExpressionType, SubString: in.SubString,
		SubVersion: in.SubVersion, TagsSet: in.TagsSet, Topic: in.Topic}
	return nil
}

// subscription compiles what a heartbeat says. The tag set counts when it is there, else the expression.
func (s *subscriptionData) subscription() *group.Subscription {
	out := &group.Subscription{Topic: s.Topic, SubString: s.SubString, ExpressionType: s.ExpressionType,
		Tags: s.TagsSet, ClassFilter: s.ClassFilterMode, Version: s.SubVersion}
	if out.ExpressionType == "" {
		out.ExpressionType = remoting.ExpressionTag
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
	var in heartbeatData
	if err := json.Unmarshal(cmd.Body, &in); err != nil {
		r.ReplyError(remoting.ResponseSystemError, "the heartbeat cannot be read: "+err.Error())
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
			consumer.Subscriptions = append(consumer.Subscriptions, c.SubscriptionDataSet[j].subscription())
		}
		h.Consumers = append(h.Consumers, consumer)
	}
	b.cfg.Groups.Heartbeat(h)
	select {
	case <-r.Conn.Done():
		b.cfg.Groups.CloseConn(r.Conn.ID()) // it closed meanwhile: OnClose has found nothing to remove
	default:
	}
	success(r)
}

// prepareConsumerGroup has the group and its retry topic created if they are missing.
func (b *Broker) prepareConsumerGroup(c *consumerRecord) {
	g, ok := b.groupConfig([]byte(c.GroupName))
	if !ok || !b.authoritative() {
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
	b.cfg.Groups.Unregister(r.Conn.ID(), cmd.GetString("producerGroup"), cmd.GetString("consumerGroup"))
	emptyExt(r, remoting.ResponseSuccess, "")
}

// checkClientConfig serves CHECK_CLIENT_CONFIG: may a consumer subscribe with this expression?
func (b *Broker) checkClientConfig(r transport.Responder, cmd *remoting.Command) {
	var in struct {
		SubscriptionData *subscriptionData `json:"subscriptionData"`
	}
	if err := json.Unmarshal(cmd.Body, &in); err != nil {
		r.ReplyError(remoting.ResponseSystemError, "the client configuration cannot be read: "+err.Error())
		return
	}
	if in.SubscriptionData != nil && !isTag(in.SubscriptionData.ExpressionType) {
		answerRefusal(r, noFilter(in.SubscriptionData.ExpressionType))
		return
	}
	success(r)
}
