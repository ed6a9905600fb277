package broker

import (
	"strconv"

	"raftmq/commitlog/record"
	"raftmq/fsm/metadata"
	"raftmq/fsm/raftnode"
	"raftmq/transport/remoting"
)

// Where messages wait for their time or their outcome.
var (
	scheduleTopic = []byte(metadata.ScheduleTopic)
	halfTopic     = []byte(metadata.HalfTopic)
)

// relocationRoom is what the command that stores a message again adds to the one that stored it first: its head, a
// longer topic, an op record, a count of checks.
const relocationRoom = 2 << 10

// maxDelayLevel is the number of the cluster's delay levels.
func (b *Broker) maxDelayLevel() int32 {
	if n := b.delayLevels.Load(); n > 0 {
		return n
	}
	s, ok := b.cfg.Tables.Settings()
	n := int32(len(s.DelayLevels()))
	if ok {
		b.delayLevels.Store(n)
	}
	return n
}

// prepareDelayed makes the message wait in the schedule queue of its level (RocketMQ CommitLog.asyncPutMessage). A
// level above the last one counts as that.
func (p *sendProposal) prepareDelayed(props *sendProperties) *refusal {
	level := min(props.level, p.b.maxDelayLevel())
	p.props = appendHidden(p.props[:0], p.h.Properties, p.b.cfg.ClusterName, level, p.msg.Topic, p.msg.QueueID)
	return p.hide(scheduleTopic, level-1, props.wait)
}

// prepareHalf makes the message wait for the end of its transaction (RocketMQ TransactionalMessageBridge.
// parseHalfMessageInner). It is of no transaction type there, so that it has a place in the half topic's queue. The
// connection becomes known as one that can be asked about the group's transactions.
func (p *sendProposal) prepareHalf(cmd *remoting.Command, props *sendProperties) *refusal {
	b := p.b
	if f := b.topics.require(rwTopic(metadata.HalfTopic, 1)); f != nil {
		return f
	}
	b.learnProducer(p.r, cmd, props.group)
	p.msg.SysFlag &^= record.SysFlagTransaction
	p.props = appendHidden(p.props[:0], p.h.Properties, b.cfg.ClusterName, 0, p.msg.Topic, p.msg.QueueID)
	return p.hide(halfTopic, 0, props.wait)
}

// hide sets where the message waits. p.props is its properties text there.
func (p *sendProposal) hide(topic []byte, queueID int32, wait bool) *refusal {
	real := len(p.msg.Topic)
	p.msg.Topic, p.msg.QueueID, p.msg.Properties = topic, queueID, p.props
	if len(p.props) > record.MaxPropertiesLen || len(p.msg.Body) > p.b.cfg.MaxMessageSize || !p.b.fits(&p.msg, real) {
		return messageIllegal(p.b.cfg.MaxMessageSize)
	}
	p.wait = wait
	p.sizes = append(p.sizes[:0], int32(p.msg.Size()))
	return nil
}

// fits reports whether a message that waits can be stored now and, under a topic of realTopic bytes, once more: in a
// segment and in one command. What could never leave its queue must not enter it.
func (b *Broker) fits(m *record.Message, realTopic int) bool {
	size := m.Size() + max(0, realTopic-len(m.Topic)) + len(record.PropertyCheckTimes) + len("=1000;")
	return int64(size+record.BlankMinSize) <= b.recordLimit() && size+relocationRoom <= raftnode.MaxCommandBytes
}

// appendHidden appends the properties text of a message that waits elsewhere for topic and queueID. WAIT stays in it,
// as in RocketMQ. Level 0 is none.
func appendHidden(dst, props []byte, cluster string, level int32, topic []byte, queueID int32) []byte {
	dst = record.AppendPropertiesWithout(dst, props, record.PropertyCluster, record.PropertyDelay, record.PropertyRealTopic, record.PropertyRealQueueID)
	dst = record.AppendProperty(dst, record.PropertyCluster, cluster)
	if level > 0 {
		dst = record.AppendProperty(dst, record.PropertyDelay, strconv.Itoa(int(level)))
	}
	return appendReal(dst, topic, queueID)
}

func appendReal(dst []byte, topic []byte, queueID int32) []byte {
	dst = record.AppendProperty(dst, record.PropertyRealTopic, topic)
	return record.AppendProperty(dst, record.PropertyRealQueueID, strconv.Itoa(int(queueID)))
}
