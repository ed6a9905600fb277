package remoting

// Bits of a topic's perm (RocketMQ PermName).
const (
	PermInherit  int32 = 1 // topics may be created after this one, as after TBW102
	PermWrite    int32 = 2
	PermRead     int32 = 4
	PermPriority int32 = 8
)

// Bits of a topic's topicSysFlag (RocketMQ TopicSysFlag).
const (
	TopicFlagUnit    int32 = 1
	TopicFlagUnitSub int32 = 2
)

// Values of topicFilterType.
const (
	FilterSingleTag = "SINGLE_TAG"
	FilterMultiTag  = "MULTI_TAG"
)

// Bits of a message's sysFlag (RocketMQ MessageSysFlag).
const (
	SysFlagCompressed   int32 = 0x1
	SysFlagMultiTags    int32 = 0x2
	SysFlagBornHostV6   int32 = 0x10 // set by the broker when it stores
	SysFlagStoreHostV6  int32 = 0x20 // set by the broker when it stores
	SysFlagNeedUnwrap   int32 = 0x40 // 5.x
	SysFlagInnerBatch   int32 = 0x80 // 5.x
	SysFlagCompressMask int32 = 0x700
	SysFlagCompressLZ4  int32 = 0x100
	SysFlagCompressZstd int32 = 0x200
	SysFlagCompressZlib int32 = 0x300 // none of these bits means zlib as well

	TransactionTypeMask int32 = 0xC
	TransactionNone     int32 = 0x0
	TransactionPrepared int32 = 0x4
	TransactionCommit   int32 = 0x8
	TransactionRollback int32 = 0xC
)

// Limits of names and properties, in bytes.
const (
	MaxPropertiesLen = 32767 // stored with a signed 16-bit length
	MaxTopicLen      = 127
	MaxGroupLen      = 255
)

// Bits of a pull's sysFlag (RocketMQ PullSysFlag).
const (
	PullFlagCommitOffset int32 = 1  // commitOffset is valid
	PullFlagSuspend      int32 = 2  // the broker may hold the request
	PullFlagSubscription int32 = 4  // the request carries its expression
	PullFlagClassFilter  int32 = 8  // obsolete
	PullFlagLitePull     int32 = 16 // from a lite pull consumer
)

// Values of expressionType.
const (
	ExpressionTag   = "TAG"
	ExpressionSQL92 = "SQL92"
)

// Prefixes of derived topics.
const (
	RetryTopicPrefix = "%RETRY%"
	DLQTopicPrefix   = "%DLQ%"
)
