package broker

import (
	"encoding/json"
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
	g := command.DefaultGroup("")
	if err := json.Unmarshal(cmd.Body, &g); err != nil {
		r.ReplyError(remoting.ResponseSystemError, "the subscription group cannot be read: "+err.Error())
		return
	}
	if f := checkGroupName(g.GroupName); f != nil {
		answerRefusal(r, f)
		return
	}
	if g.RetryQueueNums > maxTopicQueues {
		answerRefusal(r, refuse(remoting.ResponseSystemError, "retryQueueNums %d is more than %d", g.RetryQueueNums, maxTopicQueues))
		return
	}
	b.apply(r, "", command.KindGroupPut, command.GroupPut{Group: g, Millis: b.cfg.Now().UnixMilli()})
}

// deleteGroup serves DELETE_SUBSCRIPTIONGROUP; an unknown group is deleted already.
func (b *Broker) deleteGroup(r transport.Responder, cmd *remoting.Command) {
	d := command.GroupDelete{Group: cmd.GetString("groupName"), Millis: b.cfg.Now().UnixMilli(),
		RemoveOffsets: isTrue(cmd.Get("removeOffset")) || isTrue(cmd.Get("cleanOffset"))}
	b.apply(r, "", command.KindGroupDelete, d, metadata.ErrNoGroup)
}

// groupJSON is RocketMQ's SubscriptionGroupConfig, keys in Java's order.
type groupJSON struct {
	BrokerID                       int64  `json:"brokerId"`
	ConsumeBroadcastEnable         bool   `json:"consumeBroadcastEnable"`
	ConsumeEnable                  bool   `json:"consumeEnable"`
	ConsumeFromMinEnable           bool   `json:"consumeFromMinEnable"`
	GroupName                      string `json:"groupName"`
	NotifyConsumerIDsChangedEnable bool   `json:"notifyConsumerIdsChangedEnable"`
	RetryMaxTimes                  int    `json:"retryMaxTimes"`
	RetryQueueNums                 int    `json:"retryQueueNums"`
	WhichBrokerWhenConsumeSlowly   int64  `json:"whichBrokerWhenConsumeSlowly"`
}

// allGroups serves GET_ALL_SUBSCRIPTIONGROUP_CONFIG.
func (b *Broker) allGroups(r transport.Responder, _ *remoting.Command) {
	groups, version := b.cfg.Tables.Groups()
	table := make(map[string]groupJSON, len(groups))
	for _, g := range groups {
		table[g.GroupName] = groupJSON{g.BrokerID, g.ConsumeBroadcastEnable, g.ConsumeEnable, g.ConsumeFromMinEnable, g.GroupName,
			g.NotifyConsumerIDsChangedEnable, g.RetryMaxTimes, g.RetryQueueNums, g.WhichBrokerWhenConsumeSlowly}
	}
	replyJSON(r, struct {
		DataVersion            tableVersion         `json:"dataVersion"`
		SubscriptionGroupTable map[string]groupJSON `json:"subscriptionGroupTable"`
	}{tableVersion(version), table})
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
	body := []byte(`{"consumeTps":0.0,"offsetTable":{`)
	first := true
	for _, topic := range topics {
		t, ok := b.cfg.Tables.Topic(topic)
		if _, subscribed := b.cfg.Groups.Subscription(name, topic); !ok || online && !subscribed {
			continue
		}
		for q := range int32(t.ReadQueueNums) {
			if !first {
				body = append(body, ',')
			}
			first = false
			body = b.appendConsumeStats(body, messageQueue{b.cfg.BrokerName, q, topic}, offsets[topic][q])
		}
	}
	successBody(r, append(body, `}}`...))
}

func (b *Broker) appendConsumeStats(body []byte, q messageQueue, consumed int64) []byte {
	_, next := b.bounds(q.Topic, q.QueueID)
	last := int64(0)
	if consumed > 0 {
		last = max(b.cfg.Store.StoreTimeAt(q.Topic, q.QueueID, consumed-1), 0)
	}
	body = appendMQ(body, q)
	body = appendInt(append(body, `:{"brokerOffset":`...), next)
	body = appendInt(append(body, `,"consumerOffset":`...), consumed)
	body = appendInt(append(body, `,"lastTimestamp":`...), last)
	return append(body, '}')
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

// consumerConnections serves GET_CONSUMER_CONNECTION_LIST.
func (b *Broker) consumerConnections(r transport.Responder, cmd *remoting.Command) {
	name := cmd.GetString("consumerGroup")
	info, ok := b.cfg.Groups.Consumer(name)
	if !ok {
		r.ReplyError(remoting.ResponseConsumerNotOnline, "the consumer group["+name+"] not online")
		return
	}
	table := make(map[string]subscriptionData, len(info.Subscriptions))
	for _, s := range info.Subscriptions {
		table[s.Topic] = subscriptionData{ClassFilterMode: s.ClassFilter, CodeSet: orEmpty(s.Codes), ExpressionType: s.ExpressionType,
			SubString: s.SubString, SubVersion: s.Version, TagsSet: orEmpty(s.Tags), Topic: s.Topic}
	}
	replyJSON(r, struct {
		ConnectionSet     []connectionJSON            `json:"connectionSet"`
		ConsumeFromWhere  string                      `json:"consumeFromWhere"`
		ConsumeType       string                      `json:"consumeType"`
		MessageModel      string                      `json:"messageModel"`
		SubscriptionTable map[string]subscriptionData `json:"subscriptionTable"`
	}{connectionsOf(info.Members), info.FromWhere, info.Type, info.Model, table})
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// producerConnections serves GET_PRODUCER_CONNECTION_LIST.
func (b *Broker) producerConnections(r transport.Responder, cmd *remoting.Command) {
	name := cmd.GetString("producerGroup")
	members := b.cfg.Groups.Producers(name)
	if len(members) == 0 {
		r.ReplyError(remoting.ResponseSystemError, "the producer group["+name+"] not exist")
		return
	}
	replyJSON(r, struct {
		ConnectionSet []connectionJSON `json:"connectionSet"`
	}{connectionsOf(members)})
}
