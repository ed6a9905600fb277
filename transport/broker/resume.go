package broker

import (
	"errors"

	"raftmq/commitlog/record"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/fsm/raftnode"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// remarkNotResumed is AdminBrokerProcessor's.
const remarkNotResumed = "Put message back to RMQ_SYS_TRANS_HALF_TOPIC failed."

var errNotGivenUp = errors.New("broker: the message is no half message that was given up")

// resumeProposal puts a half message that was given up back as a new one.
type resumeProposal struct {
	r      transport.Responder
	record []byte
}

// resumeHalf serves RESUME_CHECK_HALF_MESSAGE on the leader (AdminBrokerProcessor.resumeCheckHalfMessage): a message of TRANS_CHECK_MAX_TIME_TOPIC is a half message
// again, of which its producers are asked anew. Any other message is refused, where 4.9.4 would put it there as it is.
func (b *Broker) resumeHalf(r transport.Responder, cmd *remoting.Command) {
	encoded, err := b.resumed(cmd.GetString("msgId"))
	if err != nil {
		b.logger.Debug("half message was not put back", "message-id", cmd.GetString("msgId"), "error", err)
		r.ReplyError(remoting.ResponseSystemError, remarkNotResumed)
		return
	}
	if f := b.topics.require(rwTopic(metadata.HalfTopic, 1)); f != nil {
		answerRefusal(r, f)
		return
	}
	if err := b.propose(&resumeProposal{r, encoded}); err != nil {
		answerRefusal(r, refusalOf(err, b.cfg.MaxMessageSize))
	}
}

// resumed is the record of the new half message.
func (b *Broker) resumed(id string) ([]byte, error) {
	_, offset, err := record.ParseMessageID(id)
	if err != nil {
		return nil, err
	}
	rec, release, err := b.cfg.Store.RecordAt(offset)
	if err != nil {
		return nil, err
	}
	defer release()
	var m record.Message
	if _, err := record.Decode(rec, &m); err != nil {
		return nil, err
	}
	topic, _ := record.Property(m.Properties, record.PropertyRealTopic)
	if _, ok := record.Property(m.Properties, record.PropertyRealQueueID); !ok || len(topic) == 0 || string(m.Topic) != metadata.CheckMaxTopic {
		return nil, errNotGivenUp
	}
	m.Topic, m.QueueID, m.StoreHost = halfTopic, 0, b.cfg.StoreHost
	m.Properties = withCheckTimes(m.Properties, 0)
	if !b.fits(&m, len(topic)) {
		return nil, raftnode.ErrTooLarge
	}
	return record.Append(nil, &m), nil
}

// AppendCommand implements raftnode.Proposal.
func (p *resumeProposal) AppendCommand(dst []byte, storeMillis int64) []byte {
	record.PatchStoreTimestamps(p.record, storeMillis)
	dst, start := command.BeginAppend(dst)
	return command.EndAppend(append(dst, p.record...), start, 1)
}

// Done implements raftnode.Proposal.
func (p *resumeProposal) Done(entryResult any, i int, err error) {
	if _, err := command.ResultOf(entryResult, i, err); err != nil {
		answerRefusal(p.r, refusalOf(err, 0))
		return
	}
	success(p.r)
}
