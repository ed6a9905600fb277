package remoting

import "strconv"

// Request codes (RocketMQ RequestCode, 4.9 and 5.x). Those above 32767 do not fit a
// binary header.
const (
	RequestSendMessage                          int32 = 10
	RequestPullMessage                          int32 = 11
	RequestQueryMessage                         int32 = 12
	RequestQueryBrokerOffset                    int32 = 13
	RequestQueryConsumerOffset                  int32 = 14
	RequestUpdateConsumerOffset                 int32 = 15
	RequestUpdateAndCreateTopic                 int32 = 17
	RequestUpdateAndCreateTopicList             int32 = 18
	RequestGetAllTopicConfig                    int32 = 21
	RequestUpdateBrokerConfig                   int32 = 25
	RequestGetBrokerConfig                      int32 = 26
	RequestTriggerDeleteFiles                   int32 = 27
	RequestGetBrokerRuntimeInfo                 int32 = 28
	RequestSearchOffsetByTimestamp              int32 = 29
	RequestGetMaxOffset                         int32 = 30
	RequestGetMinOffset                         int32 = 31
	RequestGetEarliestMsgStoreTime              int32 = 32
	RequestViewMessageByID                      int32 = 33
	RequestHeartBeat                            int32 = 34
	RequestUnregisterClient                     int32 = 35
	RequestConsumerSendMsgBack                  int32 = 36
	RequestEndTransaction                       int32 = 37
	RequestGetConsumerListByGroup               int32 = 38
	RequestCheckTransactionState                int32 = 39
	RequestNotifyConsumerIDsChanged             int32 = 40
	RequestLockBatchMQ                          int32 = 41
	RequestUnlockBatchMQ                        int32 = 42
	RequestGetAllConsumerOffset                 int32 = 43
	RequestGetAllDelayOffset                    int32 = 45
	RequestCheckClientConfig                    int32 = 46
	RequestUpdateAndCreateACLConfig             int32 = 50
	RequestDeleteACLConfig                      int32 = 51
	RequestGetBrokerClusterACLInfo              int32 = 52
	RequestUpdateGlobalWhiteAddrsConfig         int32 = 53
	RequestPutKVConfig                          int32 = 100
	RequestGetKVConfig                          int32 = 101
	RequestDeleteKVConfig                       int32 = 102
	RequestRegisterBroker                       int32 = 103
	RequestUnregisterBroker                     int32 = 104
	RequestGetRouteInfoByTopic                  int32 = 105
	RequestGetBrokerClusterInfo                 int32 = 106
	RequestUpdateAndCreateSubscriptionGroup     int32 = 200
	RequestGetAllSubscriptionGroupConfig        int32 = 201
	RequestGetTopicStatsInfo                    int32 = 202
	RequestGetConsumerConnectionList            int32 = 203
	RequestGetProducerConnectionList            int32 = 204
	RequestWipeWritePermOfBroker                int32 = 205
	RequestGetAllTopicListFromNameServer        int32 = 206
	RequestDeleteSubscriptionGroup              int32 = 207
	RequestGetConsumeStats                      int32 = 208
	RequestDeleteTopicInBroker                  int32 = 215
	RequestDeleteTopicInNameServer              int32 = 216
	RequestRegisterTopicInNameServer            int32 = 217
	RequestGetKVListByNamespace                 int32 = 219
	RequestResetConsumerClientOffset            int32 = 220
	RequestGetConsumerStatusFromClient          int32 = 221
	RequestInvokeBrokerToResetOffset            int32 = 222
	RequestInvokeBrokerToGetConsumerStatus      int32 = 223
	RequestGetTopicsByCluster                   int32 = 224
	RequestUpdateAndCreateSubscriptionGroupList int32 = 225
	RequestQueryTopicConsumeByWho               int32 = 300
	RequestQueryConsumeTimeSpan                 int32 = 303
	RequestGetSystemTopicListFromNameServer     int32 = 304
	RequestGetSystemTopicListFromBroker         int32 = 305
	RequestCleanExpiredConsumeQueue             int32 = 306
	RequestGetConsumerRunningInfo               int32 = 307
	RequestQueryCorrectionOffset                int32 = 308
	RequestConsumeMessageDirectly               int32 = 309
	RequestSendMessageV2                        int32 = 310
	RequestGetUnitTopicList                     int32 = 311
	RequestGetHasUnitSubTopicList               int32 = 312
	RequestGetHasUnitSubUnunitTopicList         int32 = 313
	RequestCloneGroupOffset                     int32 = 314
	RequestViewBrokerStatsData                  int32 = 315
	RequestCleanUnusedTopic                     int32 = 316
	RequestGetBrokerConsumeStats                int32 = 317
	RequestUpdateNameServerConfig               int32 = 318
	RequestGetNameServerConfig                  int32 = 319
	RequestSendBatchMessage                     int32 = 320
	RequestQueryConsumeQueue                    int32 = 321
	RequestQueryDataVersion                     int32 = 322
	RequestResumeCheckHalfMessage               int32 = 323
	RequestSendReplyMessage                     int32 = 324
	RequestSendReplyMessageV2                   int32 = 325
	RequestPushReplyMessageToClient             int32 = 326
	RequestAddWritePermOfBroker                 int32 = 327
	RequestGetAllProducerInfo                   int32 = 328
	RequestDeleteExpiredCommitLog               int32 = 329
	RequestQueryTopicsByConsumer                int32 = 343
	RequestQuerySubscriptionByConsumer          int32 = 345
	RequestGetTopicConfig                       int32 = 351
	RequestGetSubscriptionGroupConfig           int32 = 352
	RequestLitePullMessage                      int32 = 361
	RequestRecallMessage                        int32 = 370
	RequestQueryAssignment                      int32 = 400
	RequestSetMessageRequestMode                int32 = 401
	RequestGetAllMessageRequestMode             int32 = 402
	RequestPopMessage                           int32 = 200050
	RequestAckMessage                           int32 = 200051
	RequestPeekMessage                          int32 = 200052
	RequestChangeMessageInvisibleTime           int32 = 200053
	RequestNotification                         int32 = 200054
	RequestPollingInfo                          int32 = 200055
	RequestBatchAckMessage                      int32 = 200151
)

// RequestCodeName returns RocketMQ's name of a request code, the number for one
// without a name.
func RequestCodeName(code int32) string {
	switch code {
	case RequestSendMessage:
		return "SEND_MESSAGE"
	case RequestPullMessage:
		return "PULL_MESSAGE"
	case RequestQueryMessage:
		return "QUERY_MESSAGE"
	case RequestQueryBrokerOffset:
		return "QUERY_BROKER_OFFSET"
	case RequestQueryConsumerOffset:
		return "QUERY_CONSUMER_OFFSET"
	case RequestUpdateConsumerOffset:
		return "UPDATE_CONSUMER_OFFSET"
	case RequestUpdateAndCreateTopic:
		return "UPDATE_AND_CREATE_TOPIC"
	case RequestUpdateAndCreateTopicList:
		return "UPDATE_AND_CREATE_TOPIC_LIST"
	case RequestGetAllTopicConfig:
		return "GET_ALL_TOPIC_CONFIG"
	case RequestUpdateBrokerConfig:
		return "UPDATE_BROKER_CONFIG"
	case RequestGetBrokerConfig:
		return "GET_BROKER_CONFIG"
	case RequestTriggerDeleteFiles:
		return "TRIGGER_DELETE_FILES"
	case RequestGetBrokerRuntimeInfo:
		return "GET_BROKER_RUNTIME_INFO"
	case RequestSearchOffsetByTimestamp:
		return "SEARCH_OFFSET_BY_TIMESTAMP"
	case RequestGetMaxOffset:
		return "GET_MAX_OFFSET"
	case RequestGetMinOffset:
		return "GET_MIN_OFFSET"
	case RequestGetEarliestMsgStoreTime:
		return "GET_EARLIEST_MSG_STORETIME"
	case RequestViewMessageByID:
		return "VIEW_MESSAGE_BY_ID"
	case RequestHeartBeat:
		return "HEART_BEAT"
	case RequestUnregisterClient:
		return "UNREGISTER_CLIENT"
	case RequestConsumerSendMsgBack:
		return "CONSUMER_SEND_MSG_BACK"
	case RequestEndTransaction:
		return "END_TRANSACTION"
	case RequestGetConsumerListByGroup:
		return "GET_CONSUMER_LIST_BY_GROUP"
	case RequestCheckTransactionState:
		return "CHECK_TRANSACTION_STATE"
	case RequestNotifyConsumerIDsChanged:
		return "NOTIFY_CONSUMER_IDS_CHANGED"
	case RequestLockBatchMQ:
		return "LOCK_BATCH_MQ"
	case RequestUnlockBatchMQ:
		return "UNLOCK_BATCH_MQ"
	case RequestGetAllConsumerOffset:
		return "GET_ALL_CONSUMER_OFFSET"
	case RequestGetAllDelayOffset:
		return "GET_ALL_DELAY_OFFSET"
	case RequestCheckClientConfig:
		return "CHECK_CLIENT_CONFIG"
	case RequestUpdateAndCreateACLConfig:
		return "UPDATE_AND_CREATE_ACL_CONFIG"
	case RequestDeleteACLConfig:
		return "DELETE_ACL_CONFIG"
	case RequestGetBrokerClusterACLInfo:
		return "GET_BROKER_CLUSTER_ACL_INFO"
	case RequestUpdateGlobalWhiteAddrsConfig:
		return "UPDATE_GLOBAL_WHITE_ADDRS_CONFIG"
	case RequestPutKVConfig:
		return "PUT_KV_CONFIG"
	case RequestGetKVConfig:
		return "GET_KV_CONFIG"
	case RequestDeleteKVConfig:
		return "DELETE_KV_CONFIG"
	case RequestRegisterBroker:
		return "REGISTER_BROKER"
	case RequestUnregisterBroker:
		return "UNREGISTER_BROKER"
	case RequestGetRouteInfoByTopic:
		return "GET_ROUTEINFO_BY_TOPIC"
	case RequestGetBrokerClusterInfo:
		return "GET_BROKER_CLUSTER_INFO"
	case RequestUpdateAndCreateSubscriptionGroup:
		return "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP"
	case RequestGetAllSubscriptionGroupConfig:
		return "GET_ALL_SUBSCRIPTIONGROUP_CONFIG"
	case RequestGetTopicStatsInfo:
		return "GET_TOPIC_STATS_INFO"
	case RequestGetConsumerConnectionList:
		return "GET_CONSUMER_CONNECTION_LIST"
	case RequestGetProducerConnectionList:
		return "GET_PRODUCER_CONNECTION_LIST"
	case RequestWipeWritePermOfBroker:
		return "WIPE_WRITE_PERM_OF_BROKER"
	case RequestGetAllTopicListFromNameServer:
		return "GET_ALL_TOPIC_LIST_FROM_NAMESERVER"
	case RequestDeleteSubscriptionGroup:
		return "DELETE_SUBSCRIPTIONGROUP"
	case RequestGetConsumeStats:
		return "GET_CONSUME_STATS"
	case RequestDeleteTopicInBroker:
		return "DELETE_TOPIC_IN_BROKER"
	case RequestDeleteTopicInNameServer:
		return "DELETE_TOPIC_IN_NAMESRV"
	case RequestRegisterTopicInNameServer:
		return "REGISTER_TOPIC_IN_NAMESRV"
	case RequestGetKVListByNamespace:
		return "GET_KVLIST_BY_NAMESPACE"
	case RequestResetConsumerClientOffset:
		return "RESET_CONSUMER_CLIENT_OFFSET"
	case RequestGetConsumerStatusFromClient:
		return "GET_CONSUMER_STATUS_FROM_CLIENT"
	case RequestInvokeBrokerToResetOffset:
		return "INVOKE_BROKER_TO_RESET_OFFSET"
	case RequestInvokeBrokerToGetConsumerStatus:
		return "INVOKE_BROKER_TO_GET_CONSUMER_STATUS"
	case RequestGetTopicsByCluster:
		return "GET_TOPICS_BY_CLUSTER"
	case RequestUpdateAndCreateSubscriptionGroupList:
		return "UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST"
	case RequestQueryTopicConsumeByWho:
		return "QUERY_TOPIC_CONSUME_BY_WHO"
	case RequestQueryConsumeTimeSpan:
		return "QUERY_CONSUME_TIME_SPAN"
	case RequestGetSystemTopicListFromNameServer:
		return "GET_SYSTEM_TOPIC_LIST_FROM_NS"
	case RequestGetSystemTopicListFromBroker:
		return "GET_SYSTEM_TOPIC_LIST_FROM_BROKER"
	case RequestCleanExpiredConsumeQueue:
		return "CLEAN_EXPIRED_CONSUMEQUEUE"
	case RequestGetConsumerRunningInfo:
		return "GET_CONSUMER_RUNNING_INFO"
	case RequestQueryCorrectionOffset:
		return "QUERY_CORRECTION_OFFSET"
	case RequestConsumeMessageDirectly:
		return "CONSUME_MESSAGE_DIRECTLY"
	case RequestSendMessageV2:
		return "SEND_MESSAGE_V2"
	case RequestGetUnitTopicList:
		return "GET_UNIT_TOPIC_LIST"
	case RequestGetHasUnitSubTopicList:
		return "GET_HAS_UNIT_SUB_TOPIC_LIST"
	case RequestGetHasUnitSubUnunitTopicList:
		return "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST"
	case RequestCloneGroupOffset:
		return "CLONE_GROUP_OFFSET"
	case RequestViewBrokerStatsData:
		return "VIEW_BROKER_STATS_DATA"
	case RequestCleanUnusedTopic:
		return "CLEAN_UNUSED_TOPIC"
	case RequestGetBrokerConsumeStats:
		return "GET_BROKER_CONSUME_STATS"
	case RequestUpdateNameServerConfig:
		return "UPDATE_NAMESRV_CONFIG"
	case RequestGetNameServerConfig:
		return "GET_NAMESRV_CONFIG"
	case RequestSendBatchMessage:
		return "SEND_BATCH_MESSAGE"
	case RequestQueryConsumeQueue:
		return "QUERY_CONSUME_QUEUE"
	case RequestQueryDataVersion:
		return "QUERY_DATA_VERSION"
	case RequestResumeCheckHalfMessage:
		return "RESUME_CHECK_HALF_MESSAGE"
	case RequestSendReplyMessage:
		return "SEND_REPLY_MESSAGE"
	case RequestSendReplyMessageV2:
		return "SEND_REPLY_MESSAGE_V2"
	case RequestPushReplyMessageToClient:
		return "PUSH_REPLY_MESSAGE_TO_CLIENT"
	case RequestAddWritePermOfBroker:
		return "ADD_WRITE_PERM_OF_BROKER"
	case RequestGetAllProducerInfo:
		return "GET_ALL_PRODUCER_INFO"
	case RequestDeleteExpiredCommitLog:
		return "DELETE_EXPIRED_COMMITLOG"
	case RequestQueryTopicsByConsumer:
		return "QUERY_TOPICS_BY_CONSUMER"
	case RequestQuerySubscriptionByConsumer:
		return "QUERY_SUBSCRIPTION_BY_CONSUMER"
	case RequestGetTopicConfig:
		return "GET_TOPIC_CONFIG"
	case RequestGetSubscriptionGroupConfig:
		return "GET_SUBSCRIPTIONGROUP_CONFIG"
	case RequestLitePullMessage:
		return "LITE_PULL_MESSAGE"
	case RequestRecallMessage:
		return "RECALL_MESSAGE"
	case RequestQueryAssignment:
		return "QUERY_ASSIGNMENT"
	case RequestSetMessageRequestMode:
		return "SET_MESSAGE_REQUEST_MODE"
	case RequestGetAllMessageRequestMode:
		return "GET_ALL_MESSAGE_REQUEST_MODE"
	case RequestNodeStatus:
		return "NODE_STATUS"
	case RequestTransferLeadership:
		return "TRANSFER_LEADERSHIP"
	case RequestRemoveNode:
		return "REMOVE_NODE"
	case RequestReadmitNode:
		return "READMIT_NODE"
	case RequestSnapshot:
		return "SNAPSHOT"
	case RequestMark:
		return "MARK"
	case RequestChecksum:
		return "CHECKSUM"
	case RequestRelayReply:
		return "RELAY_REPLY"
	case RequestRelayClient:
		return "RELAY_CLIENT"
	case RequestLeave:
		return "LEAVE"
	case RequestUpgrade:
		return "UPGRADE"
	case RequestLogRange:
		return "LOG_RANGE"
	case RequestLogSum:
		return "LOG_SUM"
	case RequestRepairLog:
		return "REPAIR_LOG"
	case RequestRejoin:
		return "REJOIN"
	case RequestScrub:
		return "SCRUB"
	case RequestDrain:
		return "DRAIN"
	case RequestBackupStart:
		return "BACKUP_START"
	case RequestBackupState:
		return "BACKUP_STATE"
	case RequestPopMessage:
		return "POP_MESSAGE"
	case RequestAckMessage:
		return "ACK_MESSAGE"
	case RequestPeekMessage:
		return "PEEK_MESSAGE"
	case RequestChangeMessageInvisibleTime:
		return "CHANGE_MESSAGE_INVISIBLETIME"
	case RequestNotification:
		return "NOTIFICATION"
	case RequestPollingInfo:
		return "POLLING_INFO"
	case RequestBatchAckMessage:
		return "BATCH_ACK_MESSAGE"
	}
	return strconv.Itoa(int(code))
}
