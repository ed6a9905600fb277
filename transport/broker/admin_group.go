package broker

import (
	"maps"
	"slices"

	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/membership/group"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// putGroup serves UPDATE_AND_CREATE_SUBSCRIPTIONGROUP. Fields that the body leaves out have RocketMQ's defaults.
func (b *Broker) putGroup(r transport.Responder, cmd *remoting.Command) {
	var in remoting.SubscriptionGroupConfig
	if err := in.Decode(cmd.Body); err != nil {
		badRequest(r, err)
		return
	}
	g, f := groupConfigOf(&in)
	if f != nil {
		answerRefusal(r, f)
		return
	}
	b.apply(r, "", command.KindGroupPut, command.GroupPut{Group: g, Millis: b.cfg.Now().UnixMilli()})
}

func groupConfigOf(in *remoting.SubscriptionGroupConfig) (g command.GroupConfig, f *refusal) {
	if f := checkGroupName(in.GroupName); f != nil {
		return g, f
	}
	if in.RetryQueueNums > maxTopicQueues {
		return g, refuse(remoting.ResponseSystemError, "retryQueueNums %d is more than %d", in.RetryQueueNums, maxTopicQueues)
	}
	return command.GroupConfig{GroupName: in.GroupName, ConsumeEnable: in.ConsumeEnable, ConsumeFromMinEnable: in.ConsumeFromMinEnable,
		ConsumeBroadcastEnable: in.ConsumeBroadcastEnable, RetryQueueNums: int(in.RetryQueueNums), RetryMaxTimes: int(in.RetryMaxTimes),
		BrokerID: in.BrokerID, WhichBrokerWhenConsumeSlowly: in.WhichBrokerWhenConsumeSlowly, NotifyConsumerIDsChangedEnable: in.NotifyConsumerIDsChangedEnable}, nil
}

// deleteGroup serves DELETE_SUBSCRIPTIONGROUP; an unknown group is deleted already.
func (b *Broker) deleteGroup(r transport.Responder, cmd *remoting.Command) {
	d := command.GroupDelete{Group: cmd.GetString("groupName"), Millis: b.cfg.Now().UnixMilli(),
		RemoveOffsets: isTrue(cmd.Get("removeOffset")) || isTrue(cmd.Get("cleanOffset"))}
	b.apply(r, "", command.KindGroupDelete, d, metadata.ErrNoGroup)
}

// allGroups serves GET_ALL_SUBSCRIPTIONGROUP_CONFIG.
func (b *Broker) allGroups(r transport.Responder, _ *remoting.Command) {
	groups, version := b.cfg.Tables.Groups()
	body := remoting.SubscriptionGroupTable{
		DataVersion:            remoting.DataVersion{Counter: version.Counter, Timestamp: version.Timestamp},
		SubscriptionGroupTable: make(map[string]remoting.SubscriptionGroupConfig, len(groups)),
	}
	for _, g := range groups {
		body.SubscriptionGroupTable[g.GroupName] = wireGroup(g)
	}
	successBody(r, body.Encode())
}

func wireGroup(g command.GroupConfig) remoting.SubscriptionGroupConfig {
	return remoting.SubscriptionGroupConfig{BrokerID: g.BrokerID, ConsumeBroadcastEnable: g.ConsumeBroadcastEnable,
		ConsumeEnable: g.ConsumeEnable, ConsumeFromMinEnable: g.ConsumeFromMinEnable, GroupName: g.GroupName,
		NotifyConsumerIDsChangedEnable: g.NotifyConsumerIDsChangedEnable, RetryMaxTimes: int32(g.RetryMaxTimes), RetryQueueNums: int32(g.RetryQueueNums),
		WhichBrokerWhenConsumeSlowly: g.WhichBrokerWhenConsumeSlowly}
}

// consumeStats serves GET_CONSUME_STATS: for each read queue of the topics in which the group has
// offsets (or of the one named) where the queue ends and where the group is.
func (b *Broker) consumeStats(r transport.Responder, cmd *remoting.Command) {
	name := cmd.GetString("consumerGroup")
	offsets := b.cfg.Tables.GroupOffsets(name)
	topics := slices.Sorted(maps.Keys(offsets))
	if only := cmd.GetString("topic"); only != "" {
		topics = []string{only}
	}
	_, online := b.cfg.Groups.Consumer(name)
	body := remoting.ConsumeStats{PullOffsets: cmd.Version >= remoting.Version5_0_0}
	for _, topic := range topics {
		t, ok := b.cfg.Tables.Topic(topic)
		if _, subscribed := b.cfg.Groups.Subscription(name, topic); !ok || online && !subscribed {
			continue
		}
		body.ConsumeTPS += b.consumeTPS(name, topic)
		for q := range int32(t.ReadQueueNums) {
			body.OffsetTable = append(body.OffsetTable, b.queueConsumeStats(topic, q, offsets[topic][q]))
		}
	}
	successBody(r, body.Encode())
}

func (b *Broker) queueConsumeStats(topic string, id int32, consumed int64) remoting.QueueConsumeStats {
	_, next := b.bounds(topic, id)
	last := int64(0)
	if consumed > 0 {
		last = max(b.cfg.Store.StoreTimeAt(topic, id, consumed-1), 0)
	}
	return remoting.QueueConsumeStats{Queue: b.queue(topic, id), BrokerOffset: next, ConsumerOffset: consumed, LastTimestamp: last}
}

// connectionJSON is RocketMQ's Connection.
type connectionJSON struct {
	ClientAddr string `json:"clientAddr"`
	ClientID   string `json:"clientId"`
	Language   string `json:"language"`
	Version    int32  `json:"version"`
}

func connectionsOf(members []group.Client) []connectionJSON {
	out := make([]connectionJSON, len(members))
	for i, m := range members {
		out[i] = connectionJSON{m.Conn.RemoteAddr().String(), m.ID, remoting.LanguageName(m.Language), m.Version}
	}
	return out
}

type consumerConnectionsJSON struct {
	ConnectionSet     []connectionJSON                     `json:"connectionSet"`
	ConsumeFromWhere  string                               `json:"consumeFromWhere"`
	ConsumeType       string                               `json:"consumeType"`
	MessageModel      string                               `json:"messageModel"`
	SubscriptionTable map[string]remoting.SubscriptionData `json:"subscriptionTable"`
}

// consumerConnections serves GET_CONSUMER_CONNECTION_LIST.
func (b *Broker) consumerConnections(r transport.Responder, cmd *remoting.Command) {
	name := cmd.GetString("consumerGroup")
	mine := b.connectionsOfGroup(name)
	if !b.looksElsewhere(cmd, mine != nil) {
		replyConnections(r, name, mine)
		return
	}
	if !b.apart(func() {
		found, as := b.consumersElsewhere(b.ctx, name)
		if mine == nil && as != nil {
			mine, as.ConnectionSet = as, nil
		}
		for _, c := range found {
			mine.ConnectionSet = append(mine.ConnectionSet, c.connectionJSON)
		}
		replyConnections(r, name, mine)
	}) {
		busy(r)
	}
}

func replyConnections(r transport.Responder, name string, all *consumerConnectionsJSON) {
	if all == nil || len(all.ConnectionSet) == 0 {
		r.ReplyError(remoting.ResponseConsumerNotOnline, "the consumer group["+name+"] not online")
		return
	}
	replyJSON(r, all)
}

// connectionsOfGroup is what this node knows of a group, nil if that is nothing.
func (b *Broker) connectionsOfGroup(name string) *consumerConnectionsJSON {
	info, ok := b.cfg.Groups.Consumer(name)
	if !ok {
		return nil
	}
	table := make(map[string]remoting.SubscriptionData, len(info.Subscriptions))
	for _, s := range info.Subscriptions {
		table[s.Topic] = wireSubscription(s)
	}
	return &consumerConnectionsJSON{connectionsOf(info.Members), info.FromWhere, info.Type, info.Model, table}
}
