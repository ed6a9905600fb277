package broker

import (
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/transport"
	"raftmq/transport/broker/stats"
	"raftmq/transport/remoting"
)

// resetOffset serves INVOKE_BROKER_TO_RESET_OFFSET on the leader (Broker2Client.resetOffset of 4.9.4): the consumers that are
// online are told where to go on, and store it themselves.
func (b *Broker) resetOffset(r transport.Responder, cmd *remoting.Command) {
	var h remoting.ResetOffsetHeader
	if err := h.Decode(cmd); err != nil {
		badRequest(r, err)
		return
	}
	offsets, f := b.resetTargets(&h)
	if f != nil {
		answerRefusal(r, f)
		return
	}
	members := b.cfg.Groups.Members(h.Group)
	var others []consumerAt
	if b.othersMayKnow(len(members) > 0) { // whichever node the tool asked
		others, _ = b.consumersElsewhere(b.ctx, h.Group)
	}
	if len(members)+len(others) == 0 {
		r.ReplyError(remoting.ResponseConsumerNotOnline, "Consumer not online, so can not reset offset, Group: "+h.Group+" Topic: "+h.Topic+
			" Timestamp: "+strconv.FormatInt(h.Timestamp, 10))
		return
	}
	if f := anyTooOld(members, others); f != nil {
		answerRefusal(r, f)
		return
	}
	body := (&remoting.OffsetTable{OffsetTable: offsets}).Encode()
	tell := &remoting.Command{Code: remoting.RequestResetConsumerClientOffset, Body: body}
	if cmd.Language == remoting.LanguageCPP {
		tell.Body = (&remoting.ResetOffsetForC{OffsetTable: offsets}).Encode()
	}
	h.Force = false // as 4.9.4 does: the offsets are given
	h.Encode(tell)
	for _, m := range members {
		c, ok := m.Conn.(oneWaySender)
		if !ok {
			continue
		}
		if err := c.SendOneWay(tell); err != nil {
			b.logger.Warn("a consumer was not told of its new offsets", "group", h.Group, "client", m.ID, "error", err)
		}
	}
	b.tellElsewhere(h.Group, others, tell)
	r.Reply(&remoting.Command{Remark: remarkNoCode, Body: body})
}

// tellElsewhere passes a one-way request on to consumers that are connected to other nodes.
func (b *Broker) tellElsewhere(name string, others []consumerAt, tell *remoting.Command) {
	ctx, cancel := context.WithTimeout(b.ctx, authorityWait)
	defer cancel()
	for _, c := range others {
		if !b.relayToClient(ctx, c.addr, name, c.ClientID, tell) {
			b.logger.Warn("a consumer of another node was not told of its new offsets", "group", name, "client", c.ClientID, "address", c.addr)
		}
	}
}

// resetTargets are the offsets that a group goes back to.
func (b *Broker) resetTargets(h *remoting.ResetOffsetHeader) (offsets []remoting.QueueOffset, f *refusal) {
	t, ok := b.cfg.Tables.Topic(h.Topic)
	if !ok {
		return nil, refuse(remoting.ResponseSystemError, "[reset-offset] reset offset failed, no topic in this broker. topic=%s", h.Topic)
	}
	for q := range int32(t.WriteQueueNums) {
		have, ok := b.cfg.Tables.ConsumerOffset(h.Group, h.Topic, q)
		if !ok {
			return nil, refuse(remoting.ResponseSystemError, "THe consumer group <%s> not exist", h.Group)
		}
		first, to := b.bounds(h.Topic, q)
		if h.Timestamp != -1 {
			n, err := b.cfg.Store.OffsetByTime(h.Topic, q, h.Timestamp)
			if err != nil {
				return nil, refuse(remoting.ResponseSystemBusy, "[reset-offset] the offset of queue %d cannot be told now: %v", q, err)
			}
			to = max(n, first, 0)
		}
		if !h.Force {
			to = min(to, have)
		}
		offsets = append(offsets, remoting.QueueOffset{Queue: b.queue(h.Topic, q), Offset: to})
	}
	return offsets, nil
}

// timeSpan serves QUERY_CONSUME_TIME_SPAN.
func (b *Broker) timeSpan(r transport.Responder, cmd *remoting.Command) {
	topic, group := cmd.GetString("topic"), cmd.GetString("group")
	t, ok := b.cfg.Tables.Topic(topic)
	if !ok {
		r.ReplyError(remoting.ResponseTopicNotExist, "topic["+topic+"] not exist")
		return
	}
	var body remoting.TimeSpans
	for q := range int32(t.WriteQueueNums) {
		first, next := b.bounds(topic, q)
		at := func(offset int64) int64 {
			if offset < first || offset >= next {
				return -1
			}
			return b.cfg.Store.StoreTimeAt(topic, q, offset)
		}
		span := remoting.QueueTimeSpan{MessageQueue: b.queue(topic, q), MinTimeStamp: at(first), MaxTimeStamp: at(next - 1)}
		consumed, ok := b.cfg.Tables.ConsumerOffset(group, topic, q)
		if !ok {
			consumed = -1
		}
		span.ConsumeTimeStamp = span.MinTimeStamp
		if consumed > 0 {
			span.ConsumeTimeStamp = at(consumed - 1)
		}
		if consumed < next {
			span.DelayTime = b.cfg.Now().UnixMilli() - at(consumed)
		}
		span.MinTimeStampStr, span.MaxTimeStampStr, span.ConsumeTimeStampStr = spanTime(span.MinTimeStamp), spanTime(span.MaxTimeStamp), spanTime(span.ConsumeTimeStamp)
		body.Queues = append(body.Queues, span)
	}
	successBody(r, body.Encode())
}

// spanTime prints a time as UtilAll.formatDate does there, in local time.
func spanTime(millis int64) string {
	t := time.UnixMilli(millis)
	ms := strconv.Itoa(1000 + t.Nanosecond()/int(time.Millisecond))[1:]
	return t.Format("2006-01-02#15:04:05:") + ms
}

// correctionOffsets serves QUERY_CORRECTION_OFFSET: the least offset of all groups in each queue, unless the group that it is
// compared with is behind that; then the largest number there is.
func (b *Broker) correctionOffsets(r transport.Responder, cmd *remoting.Command) {
	topic := cmd.GetString("topic")
	without := strings.Split(cmd.GetString("filterGroups"), ",")
	all := b.cfg.Tables.TopicOffsets(topic)
	least := map[int32]int64{}
	for group, queues := range all {
		if slices.Contains(without, group) {
			continue
		}
		for q, offset := range queues {
			if first, _ := b.bounds(topic, q); offset < first {
				continue
			}
			if have, ok := least[q]; !ok || offset < have {
				least[q] = offset
			}
		}
	}
	for q, offset := range all[cmd.GetString("compareGroup")] {
		if have, ok := least[q]; ok && have > offset {
			least[q] = math.MaxInt64
		}
	}
	replyJSON(r, map[string]map[int32]int64{"correctionOffsets": least})
}

// cloneOffsets serves CLONE_GROUP_OFFSET: a group takes the offsets of another one over.
func (b *Broker) cloneOffsets(r transport.Responder, cmd *remoting.Command) {
	from, to, only := cmd.GetString("srcGroup"), cmd.GetString("destGroup"), cmd.GetString("topic")
	if f := checkGroupName(to); f != nil {
		answerRefusal(r, f)
		return
	}
	_, online := b.cfg.Groups.Consumer(from)
	var c command.OffsetsCommit
	offsets := b.cfg.Tables.GroupOffsets(from)
	for _, topic := range slices.Sorted(maps.Keys(offsets)) {
		_, exists := b.cfg.Tables.Topic(topic)
		_, subscribed := b.cfg.Groups.Subscription(from, topic)
		if only != "" && topic != only || !exists || online && !subscribed && !isTrue(cmd.Get("offline")) {
			continue
		}
		for _, q := range slices.Sorted(maps.Keys(offsets[topic])) {
			c.Offsets = append(c.Offsets, command.ConsumerOffset{Topic: topic, Group: to, QueueID: q, Offset: offsets[topic][q]})
		}
	}
	if len(c.Offsets) == 0 {
		success(r)
		return
	}
	b.apply(r, "", command.KindOffsetsCommit, c)
}

// brokerConsumeStats serves GET_BROKER_CONSUME_STATS: every group in every topic in which it has offsets.
func (b *Broker) brokerConsumeStats(r transport.Responder, cmd *remoting.Command) {
	ordered := isTrue(cmd.Get("isOrder"))
	body := remoting.BrokerConsumeStats{BrokerAddr: b.cfg.StoreHost.String()}
	groups, _ := b.cfg.Tables.Groups()
	byGroup := b.cfg.Tables.AllOffsets()
	for _, g := range groups {
		one := remoting.GroupConsumeStats{Group: g.GroupName}
		_, online := b.cfg.Groups.Consumer(g.GroupName)
		offsets := byGroup[g.GroupName]
		for _, topic := range slices.Sorted(maps.Keys(offsets)) {
			t, ok := b.cfg.Tables.Topic(topic)
			_, subscribed := b.cfg.Groups.Subscription(g.GroupName, topic)
			if !ok || ordered && !t.Order || online && !subscribed {
				continue
			}
			cs := remoting.ConsumeStats{ConsumeTPS: b.consumeTPS(g.GroupName, topic)}
			for q := range int32(t.WriteQueueNums) {
				s := b.queueConsumeStats(topic, q, offsets[topic][q])
				cs.OffsetTable = append(cs.OffsetTable, s)
				body.TotalDiff += s.BrokerOffset - s.ConsumerOffset
			}
			one.Topics = append(one.Topics, cs)
		}
		body.Groups = append(body.Groups, one)
	}
	successBody(r, body.Encode())
}

// consumeTPS is how many messages a second this node gave to a group in the last minute.
func (b *Broker) consumeTPS(group, topic string) float64 {
	item := b.counting.items.Find(stats.GroupGetNums, topic+"@"+group)
	if item == nil {
		return 0
	}
	minute, _, _ := item.Windows()
	return minute.TPS
}

// maxQueueUnits bounds one answer of QUERY_CONSUME_QUEUE.
const maxQueueUnits = 4096

// consumeQueue serves QUERY_CONSUME_QUEUE: what the queue's index says of each message.
func (b *Broker) consumeQueue(r transport.Responder, cmd *remoting.Command) {
	var h remoting.ConsumeQueueHeader
	if err := h.Decode(cmd); err != nil {
		badRequest(r, err)
		return
	}
	var body remoting.ConsumeQueueRange
	body.MinQueueIndex, body.MaxQueueIndex = b.bounds(h.Topic, h.QueueID)
	if h.ConsumerGroup != "" {
		if sub, ok := b.cfg.Groups.Subscription(h.ConsumerGroup, h.Topic); ok {
			data := wireSubscription(sub)
			body.Subscription, body.FilterData = &data, "null"
		} else {
			body.FilterData = h.ConsumerGroup + "@" + h.Topic + " is not online!"
		}
	}
	if h.Index < body.MinQueueIndex || h.Index >= body.MaxQueueIndex {
		r.ReplyError(remoting.ResponseSuccess, "Index "+strconv.FormatInt(h.Index, 10)+" of "+strconv.Itoa(int(h.QueueID))+"@"+h.Topic+" is not exist!")
		return
	}
	body.QueueData = b.queueUnits(h.Topic, h.QueueID, h.Index, int(min(max(h.Count, 0), maxQueueUnits)))
	r.Reply(&remoting.Command{Remark: remarkNoCode, Body: body.Encode()})
}

// queueUnits reads up to n units of a queue from an offset on; messages that are gone meanwhile are left out.
func (b *Broker) queueUnits(topic string, id int32, from int64, n int) (units []remoting.ConsumeQueueUnit) {
	var res store.GetResult
	defer res.Release()
	for len(units) < n {
		codes := map[int64]int64{}
		next := from
		req := store.GetRequest{Topic: []byte(topic), QueueID: id, Offset: from, MaxMsgs: n - len(units), MinFloor: b.cfg.Tables.QueueFloor([]byte(topic), id),
			Match: func(code int64) bool {
				codes[next] = code
				next++
				return true
			}}
		b.cfg.Store.Get(&req, &res)
		if res.Status != store.Found && res.NextBeginOffset <= from {
			return units
		}
		for _, buf := range res.Buffers {
			for len(buf) > 0 {
				v := record.View(buf)
				units = append(units, remoting.ConsumeQueueUnit{PhysicalOffset: v.PhyOffset(), PhysicalSize: int32(v.Size()), TagsCode: codes[v.QueueOffset()]})
				buf = buf[v.Size():]
			}
		}
		from = res.NextBeginOffset
	}
	return units
}

// systemTopics serves GET_SYSTEM_TOPIC_LIST_FROM_BROKER.
func (b *Broker) systemTopics(r transport.Responder, _ *remoting.Command) {
	body := remoting.TopicList{TopicList: []string{metadata.AutoCreateTopic, metadata.ScheduleTopic, metadata.SelfTestTopic, metadata.OffsetMoved,
		metadata.BenchmarkTopic, metadata.HalfTopic, metadata.OpHalfTopic, metadata.CheckMaxTopic, metadata.TraceTopic,
		b.cfg.ClusterName, b.cfg.BrokerName, b.cfg.ClusterName + metadata.ReplySuffix}}
	slices.Sort(body.TopicList)
	successBody(r, body.Encode())
}
