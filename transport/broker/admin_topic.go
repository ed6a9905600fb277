package broker

import (
	"maps"
	"slices"

	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

const maxTopicQueues = 65_535

// putTopic serves UPDATE_AND_CREATE_TOPIC (RocketMQ AdminBrokerProcessor.updateAndCreateTopic). Like
// there, the field order is ignored: a topic is ordered if it has an
// entry in metadata.OrderNamespace, which a RocketMQ broker learns from its name server.
func (b *Broker) putTopic(r transport.Responder, cmd *remoting.Command) {
	t, f := b.topicConfigOf(cmd)
	if f != nil {
		answerRefusal(r, f)
		return
	}
	b.apply(r, remarkNoCode, command.KindTopicPut, command.TopicPut{Topic: t, Millis: b.cfg.Now().UnixMilli()})
}

func (b *Broker) topicConfigOf(cmd *remoting.Command) (command.TopicConfig, *refusal) {
	var h remoting.CreateTopicHeader
	badHeader := h.Decode(cmd)
	t := command.TopicConfig{TopicName: h.Topic, ReadQueueNums: int(h.ReadQueueNums), WriteQueueNums: int(h.WriteQueueNums), Perm: int(h.Perm),
		TopicFilterType: h.TopicFilterType, TopicSysFlag: int(h.TopicSysFlag)}
	if f := b.checkOwnTopic(t.TopicName); f != nil {
		return t, f
	}
	if badHeader != nil {
		return t, refuse(remoting.ResponseSystemError, "%v", badHeader)
	}
	return t, b.checkTopicConfig(&t)
}

// checkTopicConfig refuses what no topic may be.
func (b *Broker) checkTopicConfig(t *command.TopicConfig) *refusal {
	if f := b.checkOwnTopic(t.TopicName); f != nil {
		return f
	}
	switch {
	case t.ReadQueueNums < 0 || t.ReadQueueNums > maxTopicQueues, t.WriteQueueNums < 0 || t.WriteQueueNums > maxTopicQueues:
		return refuse(remoting.ResponseSystemError, "readQueueNums %d and writeQueueNums %d must be between 0 and %d", t.ReadQueueNums, t.WriteQueueNums, maxTopicQueues)
	case t.Perm < 0 || t.Perm > 15:
		return refuse(remoting.ResponseSystemError, "perm %d must be a sum of 1 (inherit), 2 (write), 4 (read) and 8 (priority)", t.Perm)
	case t.TopicFilterType != remoting.FilterSingleTag && t.TopicFilterType != remoting.FilterMultiTag:
		return refuse(remoting.ResponseSystemError, "topicFilterType = [%s] value invalid", t.TopicFilterType)
	}
	return nil
}

// checkOwnTopic refuses illegal names and those that only the broker makes (TopicValidator.isSystemTopic).
func (b *Broker) checkOwnTopic(name string) *refusal {
	if f := checkTopicName(name); f != nil {
		return f
	}
	if b.cfg.Tables.IsSystemTopic(name) {
		return refuse(remoting.ResponseSystemError, "The topic[%s] is conflict with system topic.", name)
	}
	return nil
}

// deleteTopic serves DELETE_TOPIC_IN_BROKER; an unknown topic is deleted already.
func (b *Broker) deleteTopic(r transport.Responder, cmd *remoting.Command) {
	name := cmd.GetString("topic")
	if f := b.checkOwnTopic(name); f != nil {
		answerRefusal(r, f)
		return
	}
	b.apply(r, "", command.KindTopicDelete, command.TopicDelete{Topic: name, Millis: b.cfg.Now().UnixMilli()}, metadata.ErrNoTopic)
}

// allTopics serves GET_ALL_TOPIC_CONFIG.
func (b *Broker) allTopics(r transport.Responder, _ *remoting.Command) {
	topics, version := b.cfg.Tables.Topics()
	body := remoting.TopicConfigSerializeWrapper{
		DataVersion:      remoting.DataVersion{Counter: version.Counter, Timestamp: version.Timestamp},
		TopicConfigTable: make(map[string]remoting.TopicConfig, len(topics)),
	}
	ordered := b.cfg.Tables.KVNamespace(metadata.OrderNamespace)
	for _, t := range topics {
		_, t.Order = ordered[t.TopicName]
		body.TopicConfigTable[t.TopicName] = wireTopic(t)
	}
	r.Reply(&remoting.Command{Ext: []remoting.Field{}, Body: body.Encode()})
}

func wireTopic(t command.TopicConfig) remoting.TopicConfig {
	return remoting.TopicConfig{Order: t.Order, Perm: int32(t.Perm), ReadQueueNums: int32(t.ReadQueueNums),
		TopicFilterType: t.TopicFilterType, TopicName: t.TopicName, TopicSysFlag: int32(t.TopicSysFlag), WriteQueueNums: int32(t.WriteQueueNums)}
}

// topicConfig serves GET_TOPIC_CONFIG, which the 5.x tools ask before topicStatus and consumerProgress.
func (b *Broker) topicConfig(cmd *remoting.Command) func(transport.Responder) {
	name := cmd.GetString("topic")
	t, ok := b.cfg.Tables.Topic(name)
	if !ok {
		return func(r transport.Responder) {
			r.ReplyError(remoting.ResponseTopicNotExist, "topic["+name+"] not exist")
		}
	}
	_, t.Order = b.cfg.Tables.KV(metadata.OrderNamespace, name)
	body := wireTopic(t)
	return func(r transport.Responder) { successBody(r, body.Encode()) }
}

// topicStats serves GET_TOPIC_STATS_INFO: one entry for each write queue.
func (b *Broker) topicStats(r transport.Responder, cmd *remoting.Command) {
	name := cmd.GetString("topic")
	t, ok := b.cfg.Tables.Topic(name)
	if !ok {
		r.ReplyError(remoting.ResponseTopicNotExist, "topic["+name+"] not exist")
		return
	}
	var body remoting.TopicStatsTable
	for q := range int32(t.WriteQueueNums) {
		first, next := b.bounds(name, q)
		last := int64(0)
		if next > first {
			last = max(b.cfg.Store.StoreTimeAt(name, q, next-1), 0)
		}
		body.OffsetTable = append(body.OffsetTable, remoting.TopicStats{Queue: b.queue(name, q), LastUpdateTimestamp: last, MaxOffset: next, MinOffset: first})
	}
	successBody(r, body.Encode())
}

// queue names a queue of this broker.
func (b *Broker) queue(topic string, id int32) remoting.MessageQueue {
	return remoting.MessageQueue{BrokerName: b.cfg.BrokerName, QueueID: id, Topic: topic}
}

// groupsOfTopic serves QUERY_TOPIC_CONSUME_BY_WHO: groups that subscribe now, and those with offsets.
func (b *Broker) groupsOfTopic(r transport.Responder, cmd *remoting.Command) {
	topic := cmd.GetString("topic")
	names := map[string]struct{}{}
	for _, g := range b.cfg.Groups.GroupsOfTopic(topic) {
		names[g] = struct{}{}
	}
	for g := range b.cfg.Tables.TopicOffsets(topic) {
		names[g] = struct{}{}
	}
	list := slices.Sorted(maps.Keys(names))
	if list == nil {
		list = []string{}
	}
	replyJSON(r, map[string][]string{"groupList": list})
}
