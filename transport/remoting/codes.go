package remoting

// Request codes that this package reads itself.
const (
	RequestSendMessage        int32 = 10
	RequestPullMessage        int32 = 11
	RequestSendMessageV2      int32 = 310
	RequestSendBatchMessage   int32 = 320
	RequestSendReplyMessage   int32 = 324
	RequestSendReplyMessageV2 int32 = 325
	RequestLitePullMessage    int32 = 361
)
