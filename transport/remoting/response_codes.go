package remoting

import "strconv"

// Response codes (RocketMQ ResponseCode, 4.9 and 5.x, and RemotingSysResponseCode for
// 0 to 4). 209 to 211 mean something else in 4.9, where only ACL updates answer them.
const (
	ResponseSuccess                    int32 = 0
	ResponseSystemError                int32 = 1
	ResponseSystemBusy                 int32 = 2
	ResponseRequestCodeNotSupported    int32 = 3
	ResponseTransactionFailed          int32 = 4
	ResponseFlushDiskTimeout           int32 = 10
	ResponseSlaveNotAvailable          int32 = 11
	ResponseFlushSlaveTimeout          int32 = 12
	ResponseMessageIllegal             int32 = 13
	ResponseServiceNotAvailable        int32 = 14
	ResponseVersionNotSupported        int32 = 15
	ResponseNoPermission               int32 = 16
	ResponseTopicNotExist              int32 = 17
	ResponseTopicExistAlready          int32 = 18
	ResponsePullNotFound               int32 = 19
	ResponsePullRetryImmediately       int32 = 20
	ResponsePullOffsetMoved            int32 = 21
	ResponseQueryNotFound              int32 = 22
	ResponseSubscriptionParseFailed    int32 = 23
	ResponseSubscriptionNotExist       int32 = 24
	ResponseSubscriptionNotLatest      int32 = 25
	ResponseSubscriptionGroupNotExist  int32 = 26
	ResponseFilterDataNotExist         int32 = 27
	ResponseFilterDataNotLatest        int32 = 28
	ResponseInvalidParameter           int32 = 29
	ResponseTransactionShouldCommit    int32 = 200
	ResponseTransactionShouldRollback  int32 = 201
	ResponseTransactionStateUnknown    int32 = 202
	ResponseTransactionStateGroupWrong int32 = 203
	ResponseNoBuyerID                  int32 = 204
	ResponseNotInCurrentUnit           int32 = 205
	ResponseConsumerNotOnline          int32 = 206
	ResponseConsumeMsgTimeout          int32 = 207
	ResponseNoMessage                  int32 = 208
	ResponsePollingFull                int32 = 209
	ResponsePollingTimeout             int32 = 210
	ResponseBrokerNotExist             int32 = 211
	ResponseBrokerDispatchNotComplete  int32 = 212
	ResponseBroadcastConsumption       int32 = 213
	ResponseFlowControl                int32 = 215
	ResponseNotLeaderForQueue          int32 = 501
	ResponseIllegalOperation           int32 = 604
	ResponseGoAway                     int32 = 1500
	ResponseUserNotExist               int32 = 3001
	ResponsePolicyNotExist             int32 = 3002
)

// ResponseCodeName returns RocketMQ's name of a response code, the number for one
// without a name.
func ResponseCodeName(code int32) string {
	switch code {
	case ResponseSuccess:
		return "SUCCESS"
	case ResponseSystemError:
		return "SYSTEM_ERROR"
	case ResponseSystemBusy:
		return "SYSTEM_BUSY"
	case ResponseRequestCodeNotSupported:
		return "REQUEST_CODE_NOT_SUPPORTED"
	case ResponseTransactionFailed:
		return "TRANSACTION_FAILED"
	case ResponseFlushDiskTimeout:
		return "FLUSH_DISK_TIMEOUT"
	case ResponseSlaveNotAvailable:
		return "SLAVE_NOT_AVAILABLE"
	case ResponseFlushSlaveTimeout:
		return "FLUSH_SLAVE_TIMEOUT"
	case ResponseMessageIllegal:
		return "MESSAGE_ILLEGAL"
	case ResponseServiceNotAvailable:
		return "SERVICE_NOT_AVAILABLE"
	case ResponseVersionNotSupported:
		return "VERSION_NOT_SUPPORTED"
	case ResponseNoPermission:
		return "NO_PERMISSION"
	case ResponseTopicNotExist:
		return "TOPIC_NOT_EXIST"
	case ResponseTopicExistAlready:
		return "TOPIC_EXIST_ALREADY"
	case ResponsePullNotFound:
		return "PULL_NOT_FOUND"
	case ResponsePullRetryImmediately:
		return "PULL_RETRY_IMMEDIATELY"
	case ResponsePullOffsetMoved:
		return "PULL_OFFSET_MOVED"
	case ResponseQueryNotFound:
		return "QUERY_NOT_FOUND"
	case ResponseSubscriptionParseFailed:
		return "SUBSCRIPTION_PARSE_FAILED"
	case ResponseSubscriptionNotExist:
		return "SUBSCRIPTION_NOT_EXIST"
	case ResponseSubscriptionNotLatest:
		return "SUBSCRIPTION_NOT_LATEST"
	case ResponseSubscriptionGroupNotExist:
		return "SUBSCRIPTION_GROUP_NOT_EXIST"
	case ResponseFilterDataNotExist:
		return "FILTER_DATA_NOT_EXIST"
	case ResponseFilterDataNotLatest:
		return "FILTER_DATA_NOT_LATEST"
	case ResponseInvalidParameter:
		return "INVALID_PARAMETER"
	case ResponseTransactionShouldCommit:
		return "TRANSACTION_SHOULD_COMMIT"
	case ResponseTransactionShouldRollback:
		return "TRANSACTION_SHOULD_ROLLBACK"
	case ResponseTransactionStateUnknown:
		return "TRANSACTION_STATE_UNKNOW"
	case ResponseTransactionStateGroupWrong:
		return "TRANSACTION_STATE_GROUP_WRONG"
	case ResponseNoBuyerID:
		return "NO_BUYER_ID"
	case ResponseNotInCurrentUnit:
		return "NOT_IN_CURRENT_UNIT"
	case ResponseConsumerNotOnline:
		return "CONSUMER_NOT_ONLINE"
	case ResponseConsumeMsgTimeout:
		return "CONSUME_MSG_TIMEOUT"
	case ResponseNoMessage:
		return "NO_MESSAGE"
	case ResponsePollingFull:
		return "POLLING_FULL"
	case ResponsePollingTimeout:
		return "POLLING_TIMEOUT"
	case ResponseBrokerNotExist:
		return "BROKER_NOT_EXIST"
	case ResponseBrokerDispatchNotComplete:
		return "BROKER_DISPATCH_NOT_COMPLETE"
	case ResponseBroadcastConsumption:
		return "BROADCAST_CONSUMPTION"
	case ResponseFlowControl:
		return "FLOW_CONTROL"
	case ResponseNotLeaderForQueue:
		return "NOT_LEADER_FOR_QUEUE"
	case ResponseIllegalOperation:
		return "ILLEGAL_OPERATION"
	case ResponseGoAway:
		return "GO_AWAY"
	case ResponseUserNotExist:
		return "USER_NOT_EXIST"
	case ResponsePolicyNotExist:
		return "POLICY_NOT_EXIST"
	case ResponseLogRangeOutside:
		return "LOG_RANGE_OUTSIDE"
	case ResponseLogRangeDamaged:
		return "LOG_RANGE_DAMAGED"
	}
	return strconv.Itoa(int(code))
}
