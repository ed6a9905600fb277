package broker

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

const maxTopicQueues = 65_535

// putTopic serves UPDATE_AND_CREATE_TOPIC (RocketMQ AdminBrokerProcessor.updateAndCreateTopic). Like
// there, the field order is ignored.
func (b *Broker) putTopic(r transport.Responder, cmd *remoting.Command) {
	t, f := b.topicConfigOf(cmd)
	if f != nil {
		answerRefusal(r, f)
		return
	}
	b.apply(r, remarkNoCode, command.KindTopicPut, command.TopicPut{Topic: t, Millis: b.cfg.Now().UnixMilli()})
}

func (b *Broker) topicConfigOf(cmd *remoting.Command) (command.TopicConfig, *refusal) {
	t := command.TopicConfig{TopicName: cmd.GetString("topic"), TopicFilterType: cmd.GetString("topicFilterType")}
	if f := b.checkOwnTopic(t.TopicName); f != nil {
		return t, f
	}
	if t.TopicFilterType == "" {
		t.TopicFilterType = remoting.FilterSingleTag
	}
	if t.TopicFilterType != remoting.FilterSingleTag && t.TopicFilterType != remoting.FilterMultiTag {
		return t, refuse(remoting.ResponseSystemError, "topicFilterType = [%s] value invalid", t.TopicFilterType)
	}
	for key, to := range map[string]*int{"readQueueNums": &t.ReadQueueNums, "writeQueueNums": &t.WriteQueueNums, "perm": &t.Perm} {
		n, f := number(cmd, key, 32)
		if f != nil {
			return t, f
		}
		*to = int(n)
	}
	if cmd.Get("topicSysFlag") != nil {
		n, f := number(cmd, "topicSysFlag", 32)
		if f != nil {
			return t, f
		}
		t.TopicSysFlag = int(n)
	}
	switch {
	case t.ReadQueueNums < 0 || t.ReadQueueNums > maxTopicQueues, t.WriteQueueNums < 0 || t.WriteQueueNums > maxTopicQueues:
		return t, refuse(remoting.ResponseSystemError, "readQueueNums %d and writeQueueNums %d must be between 0 and %d", t.ReadQueueNums, t.WriteQueueNums, maxTopicQueues)
	case t.Perm < 0 || t.Perm > 15:
		return t, refuse(remoting.ResponseSystemError, "perm %d must be a sum of 1 (inherit), 2 (write), 4 (read) and 8 (priority)", t.Perm)
	}
	return t, nil
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

// tableVersion is RocketMQ's DataVersion.
type tableVersion struct {
	Counter   int64 `json:"counter"`
	Timestamp int64 `json:"timestamp"`
}

// allTopics serves GET_ALL_TOPIC_CONFIG.
func (b *Broker) allTopics(r transport.Responder, _ *remoting.Command) {
	topics, version := b.cfg.Tables.Topics()
	table := make(map[string]topicJSON, len(topics))
	for _, t := range topics {
		table[t.TopicName] = topicJSON{t.Order, t.Perm, t.ReadQueueNums, t.TopicFilterType, t.TopicName, t.TopicSysFlag, t.WriteQueueNums}
	}
	body, err := json.Marshal(struct {
		DataVersion      tableVersion         `json:"dataVersion"`
		TopicConfigTable map[string]topicJSON `json:"topicConfigTable"`
	}{tableVersion(version), table})
	if err != nil {
		r.ReplyError(remoting.ResponseSystemError, err.Error())
		return
	}
	r.Reply(&remoting.Command{Ext: []remoting.Field{}, Body: body})
}

// topicJSON is RocketMQ's TopicConfig, keys in Java's order.
type topicJSON struct {
	Order           bool   `json:"order"`
	Perm            int    `json:"perm"`
	ReadQueueNums   int    `json:"readQueueNums"`
	TopicFilterType string `json:"topicFilterType"`
	TopicName       string `json:"topicName"`
	TopicSysFlag    int    `json:"topicSysFlag"`
	WriteQueueNums  int    `json:"writeQueueNums"`
}

// topicStats serves GET_TOPIC_STATS_INFO: one entry for each write queue.
func (b *Broker) topicStats(r transport.Responder, cmd *remoting.Command) {
	name := cmd.GetString("topic")
	t, ok := b.cfg.Tables.Topic(name)
	if !ok {
		r.ReplyError(remoting.ResponseTopicNotExist, "topic["+name+"] not exist")
		return
	}
	body := []byte(`{"offsetTable":{`)
	for q := range int32(t.WriteQueueNums) {
		first, next := b.bounds(name, q)
		last := int64(0)
		if next > first {
			last = max(b.cfg.Store.StoreTimeAt(name, q, next-1), 0)
		}
		if q > 0 {
			body = append(body, ',')
		}
		body = appendMQ(body, messageQueue{b.cfg.BrokerName, q, name})
		body = appendInt(append(body, `:{"lastUpdateTimestamp":`...), last)
		body = appendInt(append(body, `,"maxOffset":`...), next)
		body = appendInt(append(body, `,"minOffset":`...), first)
		body = append(body, '}')
	}
	successBody(r, append(body, `}}`...))
}

// groupsOfTopic serves QUERY_TOPIC_CONSUME_BY_WHO: groups that subscribe now, and those with offsets.
func (b *Broker) groupsOfTopic(r transport.Responder, cmd *remoting.Command) {
	topic := cmd.GetString("topic")
	names := map[string]struct{}{}
	for _, g := range b.cfg.Groups.GroupsOfTopic(topic) {
		names[g] = struct{}{}
	}
	groups, _ := b.cfg.Tables.Groups()
	for _, g := range groups {
		if _, ok := b.cfg.Tables.GroupOffsets(g.GroupName)[topic]; ok {
			names[g.GroupName] = struct{}{}
		}
	}
	list := slices.Sorted(maps.Keys(names))
	if list == nil {
		list = []string{}
	}
	replyJSON(r, struct {
		GroupList []string `json:"groupList"`
	}{list})
}

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }

// appendQuoted appends a JSON string.
func appendQuoted(dst []byte, s string) []byte {
	b, err := json.Marshal(s)
	if err != nil { // strings always marshal
		return append(dst, `""`...)
	}
	return append(dst, b...)
}
