package record

// Property names of messages that the broker stores elsewhere first (RocketMQ's MessageConst).
const (
	PropertyRealTopic       = "REAL_TOPIC" // where a delayed or half message is to go
	PropertyRealQueueID     = "REAL_QID"
	PropertyRetryTopic      = "RETRY_TOPIC"       // first topic of a message that was sent back
	PropertyOriginMessageID = "ORIGIN_MESSAGE_ID" // its first offset message id
	PropertyTransaction     = "TRAN_MSG"
	PropertyProducerGroup   = "PGROUP"
	PropertyCheckTimes      = "TRANSACTION_CHECK_TIMES"
	PropertyCheckImmunity   = "CHECK_IMMUNITY_TIME_IN_SECONDS"
)

// AppendPropertiesWithout appends to dst the well-formed pairs of props but those of the given
// names, in order, separators only between. An empty dst or one that ends with a separator
// gets none before the first pair.
func AppendPropertiesWithout(dst, props []byte, names ...string) []byte {
	for len(props) > 0 {
		name, value, rest, ok := nextProperty(props)
		if ok && !isOneOf(name, names) {
			dst = AppendProperty(dst, name, value)
		}
		props = rest
	}
	return dst
}

func isOneOf(name []byte, names []string) bool {
	for _, n := range names {
		if string(name) == n {
			return true
		}
	}
	return false
}

// PatchStoreTimestamps sets field 11 of contiguous records that passed Check.
func PatchStoreTimestamps(records []byte, millis int64) {
	for len(records) > 0 {
		PatchStoreTimestamp(records, millis)
		records = records[View(records).Size():]
	}
}
