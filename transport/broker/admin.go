package broker

import (
	"context"
	"errors"
	"time"

	"raftmq/fsm/command"
	"raftmq/fsm/raftnode"
	"raftmq/transport"
	"raftmq/transport/remoting"
)

// changeTimeout bounds how long an administration change may take; admin clients wait 5 s and more.
const changeTimeout = 4 * time.Second

// registerAdmin registers the administration codes. Changes and answers that must be the truth are the
// leader's; other nodes pass them on.
func (b *Broker) registerAdmin(s *transport.Server) {
	leader := func(h transport.Handler) transport.Handler { return b.leaderOnly(refuseUnavailable, h) }
	s.Handle(remoting.RequestUpdateAndCreateTopic, leader(b.putTopic))
	s.Handle(remoting.RequestDeleteTopicInBroker, leader(b.deleteTopic))
	s.Handle(remoting.RequestUpdateAndCreateSubscriptionGroup, leader(b.putGroup))
	s.Handle(remoting.RequestDeleteSubscriptionGroup, leader(b.deleteGroup))
	s.Handle(remoting.RequestGetTopicStatsInfo, leader(b.topicStats))
	s.Handle(remoting.RequestGetConsumeStats, leader(b.consumeStats))
	s.Handle(remoting.RequestGetAllTopicConfig, b.allTopics)
	s.Handle(remoting.RequestGetTopicConfig, b.leaderReads(refuseUnavailable, b.topicConfig))
	s.Handle(remoting.RequestGetAllSubscriptionGroupConfig, b.allGroups)
	s.Handle(remoting.RequestGetConsumerConnectionList, b.consumerConnections)
	s.Handle(remoting.RequestGetProducerConnectionList, b.producerConnections)
	s.Handle(remoting.RequestGetAllProducerInfo, b.allProducers)
	s.Handle(remoting.RequestInvokeBrokerToGetConsumerStatus, b.consumerStatus)
	s.Handle(remoting.RequestGetConsumerRunningInfo, b.runningInfo)
	s.Handle(remoting.RequestConsumeMessageDirectly, b.consumeDirectly)
	s.Handle(remoting.RequestInvokeBrokerToResetOffset, leader(b.resetOffset))
	s.Handle(remoting.RequestQueryConsumeTimeSpan, leader(b.timeSpan))
	s.Handle(remoting.RequestQueryCorrectionOffset, leader(b.correctionOffsets))
	s.Handle(remoting.RequestCloneGroupOffset, leader(b.cloneOffsets))
	s.Handle(remoting.RequestGetBrokerConsumeStats, leader(b.brokerConsumeStats))
	s.Handle(remoting.RequestQueryConsumeQueue, leader(b.consumeQueue))
	s.Handle(remoting.RequestGetSystemTopicListFromBroker, b.systemTopics)
	s.Handle(remoting.RequestUpdateAndCreateTopicList, leader(b.putTopics))
	s.Handle(remoting.RequestUpdateAndCreateSubscriptionGroupList, leader(b.putGroups))
	s.Handle(remoting.RequestGetSubscriptionGroupConfig, leader(b.oneGroup))
	s.Handle(remoting.RequestQueryTopicsByConsumer, leader(b.topicsOfGroup))
	s.Handle(remoting.RequestQuerySubscriptionByConsumer, b.subscriptionOf)
	s.Handle(remoting.RequestQueryTopicConsumeByWho, b.groupsOfTopic)
	s.Handle(remoting.RequestGetBrokerRuntimeInfo, b.runtimeInfo)
	s.Handle(remoting.RequestGetBrokerConfig, b.brokerConfig)
	s.Handle(remoting.RequestUpdateBrokerConfig, leader(b.updateConfig))
	s.Handle(remoting.RequestViewBrokerStatsData, b.brokerStats)
	for _, code := range []int32{remoting.RequestDeleteExpiredCommitLog, remoting.RequestTriggerDeleteFiles} {
		s.Handle(code, leader(b.deleteExpired))
	}
	for _, code := range []int32{remoting.RequestCleanExpiredConsumeQueue, remoting.RequestCleanUnusedTopic} {
		s.Handle(code, b.nothingToClean)
	}
	for _, code := range []int32{remoting.RequestPopMessage, remoting.RequestAckMessage, remoting.RequestPeekMessage, remoting.RequestChangeMessageInvisibleTime,
		remoting.RequestNotification, remoting.RequestPollingInfo, remoting.RequestBatchAckMessage, remoting.RequestQueryAssignment,
		remoting.RequestSetMessageRequestMode, remoting.RequestGetAllMessageRequestMode} {
		s.Handle(code, b.noPop)
	}
}

// deleteExpired serves DELETE_EXPIRED_COMMITLOG and TRIGGER_DELETE_FILES: what is old enough goes now, whatever the hour
// (AdminBrokerProcessor.deleteExpiredCommitLog). It goes on all nodes, so any node may be asked.
func (b *Broker) deleteExpired(r transport.Responder, _ *remoting.Command) {
	if b.cfg.DeleteExpired != nil {
		b.cfg.DeleteExpired()
	}
	success(r)
}

// apply changes a table and answers. Refusals that mean "it is so already" count as done.
func (b *Broker) apply(r transport.Responder, remark string, kind command.Kind, payload any, done ...error) {
	ctx, cancel := context.WithTimeout(b.ctx, changeTimeout)
	defer cancel()
	err := b.change(ctx, kind, payload)
	for _, accepted := range done {
		if errors.Is(err, accepted) {
			err = nil
		}
	}
	switch {
	case err == nil:
		r.Reply(&remoting.Command{Code: remoting.ResponseSuccess, Remark: remark})
	case isUnavailable(err):
		answerRefusal(r, refusalOf(err, b.cfg.MaxMessageSize))
	default:
		r.ReplyError(remoting.ResponseSystemError, err.Error())
	}
}

// applyAll changes a table several times, in order, up to the first failure.
func (b *Broker) applyAll(r transport.Responder, kind command.Kind, payloads []any) {
	ctx, cancel := context.WithTimeout(b.ctx, changeTimeout)
	defer cancel()
	for i, payload := range payloads {
		if err := b.change(ctx, kind, payload); err != nil {
			f := refusalOf(err, b.cfg.MaxMessageSize)
			if !isUnavailable(err) {
				f.code, f.remark = remoting.ResponseSystemError, err.Error()
			}
			answerRefusal(r, refuse(f.code, "%d of %d were changed: %s", i, len(payloads), f.remark))
			return
		}
	}
	success(r)
}

// isUnavailable reports whether another attempt, perhaps at another node, may succeed.
func isUnavailable(err error) bool {
	for _, e := range []error{raftnode.ErrNotLeader, raftnode.ErrLeadershipLost, raftnode.ErrClosed, raftnode.ErrBusy, raftnode.ErrTooLarge} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
