package broker

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"raftmq/fsm/command"
	"raftmq/membership/group"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// putTopics serves UPDATE_AND_CREATE_TOPIC_LIST of 5.x: all are checked before the first is changed.
func (b *Broker) putTopics(r transport.Responder, cmd *remoting.Command) {
	var in struct {
		Topics []remoting.TopicConfig `json:"topicConfigList"`
	}
	if err := json.Unmarshal(cmd.Body, &in); err != nil {
		badRequest(r, fmt.Errorf("%w: topic list: %w", remoting.ErrBody, err))
		return
	}
	puts := make([]any, len(in.Topics))
	for i, t := range in.Topics {
		c := command.TopicConfig{TopicName: t.TopicName, ReadQueueNums: int(t.ReadQueueNums), WriteQueueNums: int(t.WriteQueueNums), Perm: int(t.Perm),
			TopicFilterType: t.TopicFilterType, TopicSysFlag: int(t.TopicSysFlag)}
		if f := b.checkTopicConfig(&c); f != nil {
			answerRefusal(r, f)
			return
		}
		puts[i] = command.TopicPut{Topic: c, Millis: b.cfg.Now().UnixMilli()}
	}
	b.applyAll(r, command.KindTopicPut, puts)
}

// putGroups serves UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST of 5.x likewise.
func (b *Broker) putGroups(r transport.Responder, cmd *remoting.Command) {
	var in struct {
		Groups []remoting.SubscriptionGroupConfig `json:"groupConfigList"`
	}
	if err := json.Unmarshal(cmd.Body, &in); err != nil {
		badRequest(r, fmt.Errorf("%w: group list: %w", remoting.ErrBody, err))
		return
	}
	puts := make([]any, len(in.Groups))
	for i := range in.Groups {
		g, f := groupConfigOf(&in.Groups[i])
		if f != nil {
			answerRefusal(r, f)
			return
		}
		puts[i] = command.GroupPut{Group: g, Millis: b.cfg.Now().UnixMilli()}
	}
	b.applyAll(r, command.KindGroupPut, puts)
}

// oneGroup serves GET_SUBSCRIPTIONGROUP_CONFIG of 5.x.
func (b *Broker) oneGroup(r transport.Responder, cmd *remoting.Command) {
	name := cmd.GetString("group")
	g, ok := b.cfg.Tables.Group(name)
	if !ok {
		r.ReplyError(remoting.ResponseSubscriptionGroupNotExist, "the consumer group["+name+"] not exist")
		return
	}
	replyJSON(r, wireGroup(g))
}

// topicsOfGroup serves QUERY_TOPICS_BY_CONSUMER of 5.x: those in which the group has offsets.
func (b *Broker) topicsOfGroup(r transport.Responder, cmd *remoting.Command) {
	body := remoting.TopicList{TopicList: slices.Sorted(maps.Keys(b.cfg.Tables.GroupOffsets(cmd.GetString("group"))))}
	successBody(r, body.Encode())
}

// subscriptionOf serves QUERY_SUBSCRIPTION_BY_CONSUMER of 5.x; a group that does not subscribe to the topic now has none.
func (b *Broker) subscriptionOf(r transport.Responder, cmd *remoting.Command) {
	name, topic := cmd.GetString("group"), cmd.GetString("topic")
	out := struct {
		Group        string                     `json:"group"`
		Subscription *remoting.SubscriptionData `json:"subscriptionData,omitempty"`
		Topic        string                     `json:"topic"`
	}{Group: name, Topic: topic}
	if sub, ok := b.cfg.Groups.Subscription(name, topic); ok {
		data := wireSubscription(sub)
		out.Subscription = &data
	}
	if out.Subscription != nil || !b.looksElsewhere(cmd, false) {
		replyJSON(r, out)
		return
	}
	if !b.apart(func() {
		if _, as := b.consumersElsewhere(b.ctx, name); as != nil {
			if data, ok := as.SubscriptionTable[topic]; ok {
				out.Subscription = &data
			}
		}
		replyJSON(r, out)
	}) {
		busy(r)
	}
}

func wireSubscription(s *group.Subscription) remoting.SubscriptionData {
	return remoting.SubscriptionData{ClassFilterMode: s.ClassFilter, CodeSet: s.Codes, ExpressionType: s.ExpressionType,
		SubString: s.SubString, SubVersion: s.Version, TagsSet: s.Tags, Topic: s.Topic}
}

// noPop refuses what only consumers in POP mode ask: they need a mode of the server that it does not have.
func (b *Broker) noPop(r transport.Responder, cmd *remoting.Command) {
	r.ReplyError(remoting.ResponseRequestCodeNotSupported, "raftmq does not serve POP consumption ("+remoting.RequestCodeName(cmd.Code)+
		"): use push consumers with client-side rebalance, the default, or pull consumers")
}

// nothingToClean serves CLEAN_EXPIRED_CONSUMEQUEUE and CLEAN_UNUSED_TOPIC: what they clean goes by itself here, and queues of deleted topics
// keep their offsets for good.
func (b *Broker) nothingToClean(r transport.Responder, _ *remoting.Command) { success(r) }
