package broker

import (
	"bytes"
	"errors"
	"strconv"

	"raftmq/commitlog/record"
	"raftmq/commitlog/store"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/seam"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// endProposal is the end of a transaction on its way: the real message of a commit, the op record and the mark that the
// half message has ended, in one command.
type endProposal struct {
	b   *Broker
	r   transport.Responder
	end command.TransactionEnd
}

// endTransaction serves END_TRANSACTION on the leader (RocketMQ EndTransactionProcessor). A half message ends once: a
// second end is answered as the first and changes nothing, where RocketMQ would store a second message.
func (b *Broker) endTransaction(r transport.Responder, cmd *remoting.Command) {
	var h remoting.EndTransactionHeader
	if err := h.Decode(cmd); err != nil {
		r.ReplyError(remoting.ResponseSystemError, err.Error())
		return
	}
	if h.CommitOrRollback == remoting.TransactionNone {
		// Not known yet: it will be asked again. RocketMQ does not answer, but every request has an answer here (F93).
		if unknown := b.cfg.TransactionUnknown; unknown != nil && h.FromTransactionCheck {
			unknown(h.TranStateTableOffset)
		}
		success(r)
		return
	}
	if seam.On(seam.DropEnd) && h.TranStateTableOffset%20 == 0 {
		success(r)
		return
	}
	p := &endProposal{b: b, r: r, end: command.TransactionEnd{Outcome: command.RolledBack, Half: h.TranStateTableOffset}}
	if h.CommitOrRollback == remoting.TransactionCommit {
		p.end.Outcome = command.Committed
	}
	f := p.prepare(&h)
	switch {
	case f != nil:
		answerRefusal(r, f)
	case b.cfg.Tables.HalfEnded(p.end.Half):
		p.answer()
	default:
		if err := b.propose(p); err != nil {
			answerRefusal(r, endRefusalOf(err, b.cfg.MaxMessageSize))
		}
	}
}

// prepare checks the half message and builds the records.
func (p *endProposal) prepare(h *remoting.EndTransactionHeader) *refusal {
	b := p.b
	rec, release, err := b.cfg.Store.RecordAt(h.CommitLogOffset)
	switch {
	case errors.Is(err, store.ErrNotFound):
		return refuse(remoting.ResponseSystemError, "Find prepared transaction message failed")
	case err != nil:
		return refusalOf(err, 0)
	}
	defer release()
	var m record.Message
	if _, err := record.Decode(rec, &m); err != nil {
		b.logger.Error("half message is damaged on this node", "phy-offset", h.CommitLogOffset, "error", err)
		return refusalOf(err, 0)
	}
	group, _ := record.Property(m.Properties, record.PropertyProducerGroup)
	topic, _ := record.Property(m.Properties, record.PropertyRealTopic)
	id, _ := record.Property(m.Properties, record.PropertyRealQueueID)
	queueID, err := strconv.ParseInt(string(id), 10, 32)
	switch {
	case string(m.Topic) != metadata.HalfTopic || err != nil || len(topic) == 0:
		return refuse(remoting.ResponseSystemError, "Find prepared transaction message failed")
	case string(group) != h.ProducerGroup:
		return refuse(remoting.ResponseSystemError, "The producer group wrong")
	case m.QueueOffset != h.TranStateTableOffset:
		return refuse(remoting.ResponseSystemError, "The transaction state table offset wrong")
	}
	if p.end.Outcome == command.Committed {
		m.Topic, m.QueueID = topic, int32(queueID)
		m.SysFlag = m.SysFlag&^record.SysFlagTransaction | record.SysFlagCommit
		m.PreparedTransactionOffset = m.PhyOffset
		p.add(&m)
	}
	p.add(&record.Message{Topic: []byte(metadata.OpHalfTopic), Body: strconv.AppendInt(nil, p.end.Half, 10), Properties: []byte("TAGS\x01d\x02WAIT\x01true"),
		BornTimestamp: b.cfg.Now().UnixMilli(), BornHost: b.cfg.StoreHost, StoreHost: b.cfg.StoreHost})
	return nil
}

func (p *endProposal) add(m *record.Message) {
	p.end.Records = record.Append(p.end.Records, m)
	p.end.Count++
}

// AppendCommand implements raftnode.Proposal.
func (p *endProposal) AppendCommand(dst []byte, storeMillis int64) []byte {
	record.PatchStoreTimestamps(p.end.Records, storeMillis)
	return command.AppendTransactionEnd(dst, &p.end)
}

// Done implements raftnode.Proposal.
func (p *endProposal) Done(entryResult any, i int, err error) {
	_, err = command.ResultOf(entryResult, i, err)
	if err != nil && !errors.Is(err, metadata.ErrTransactionEnded) {
		p.b.counters.failedWrites.Add(1)
		answerRefusal(p.r, endRefusalOf(err, p.b.cfg.MaxMessageSize))
		return
	}
	p.answer()
}

func (p *endProposal) answer() {
	if p.end.Outcome == command.RolledBack {
		p.r.Reply(&remoting.Command{Remark: remarkNoCode}) // as 4.9.4 does
		return
	}
	success(p.r)
}

// CheckTransaction asks one live producer of a half message's group for the state of its transaction
// (AbstractTransactionalMessageCheckListener.sendCheckMessage), whichever node that is connected to. It reports whether somebody was asked:
// false too when another node took the request and did not say in time what became of it. It implements transaction.Checker.
func (b *Broker) CheckTransaction(half record.View, times int) bool {
	var m record.Message
	if _, err := record.Decode(half, &m); err != nil {
		b.logger.Error("half message is damaged on this node", "queue-offset", half.QueueOffset(), "error", err)
		return false
	}
	group, _ := record.Property(m.Properties, record.PropertyProducerGroup)
	topic, _ := record.Property(m.Properties, record.PropertyRealTopic)
	id, _ := record.Property(m.Properties, record.PropertyRealQueueID)
	unique, _ := record.Property(m.Properties, record.PropertyUniqKey)
	queueID, err := strconv.ParseInt(string(id), 10, 32)
	if err != nil || len(topic) == 0 {
		return false
	}
	m.Topic, m.QueueID = topic, int32(queueID)
	m.Properties = withCheckTimes(m.Properties, times)
	cmd := remoting.Command{Code: remoting.RequestCheckTransactionState, Body: record.Append(nil, &m)}
	msgID := record.AppendMessageID(nil, m.StoreHost, m.PhyOffset)
	(&remoting.CheckTransactionHeader{TranStateTableOffset: m.QueueOffset, CommitLogOffset: m.PhyOffset, MsgID: string(unique),
		TransactionID: string(unique), OffsetMsgID: string(msgID)}).Encode(&cmd)
	return tellOne(b.cfg.Groups.Producers(string(group)), "", &cmd) || b.tellProducerElsewhere(string(group), &cmd)
}

// withCheckTimes sets TRANSACTION_CHECK_TIMES, unless there is no room for it.
func withCheckTimes(props []byte, times int) []byte {
	out := record.AppendPropertiesWithout(nil, props, record.PropertyCheckTimes)
	out = record.AppendProperty(out, record.PropertyCheckTimes, strconv.Itoa(times))
	if len(out) > record.MaxPropertiesLen {
		return bytes.Clone(props)
	}
	return out
}
