package remoting

// PushReplyHeader is the header of PUSH_REPLY_MESSAGE_TO_CLIENT (326), with which a broker hands a reply to the
// producer that waits for it (RocketMQ ReplyMessageRequestHeader). The body is the reply's.
type PushReplyHeader struct {
	ProducerGroup         string
	Topic                 string
	DefaultTopic          string
	DefaultTopicQueueNums int32
	QueueID               int32
	SysFlag               int32
	BornTimestamp         int64 // ms since the epoch, of the replier's clock
	Flag                  int32
	Properties            string
	ReconsumeTimes        int32
	UnitMode              bool
	BornHost              string // ip:port
	StoreHost             string
	StoreTimestamp        int64
}

// Decode reads h from c.
func (h *PushReplyHeader) Decode(c *Command) error {
	r := headerReader{c: c}
	*h = PushReplyHeader{
		ProducerGroup: r.str("producerGroup"), Topic: r.str("topic"), DefaultTopic: r.str("defaultTopic"),
		DefaultTopicQueueNums: r.needInt32("defaultTopicQueueNums"), QueueID: r.needInt32("queueId"), SysFlag: r.needInt32("sysFlag"),
		BornTimestamp: r.needInt64("bornTimestamp"), Flag: r.needInt32("flag"), Properties: r.str("properties"),
		UnitMode: r.bool("unitMode"), BornHost: r.str("bornHost"), StoreHost: r.str("storeHost"), StoreTimestamp: r.needInt64("storeTimestamp"),
	}
	h.ReconsumeTimes, _ = r.int32("reconsumeTimes")
	return r.err
}

// Encode writes h to c.
func (h *PushReplyHeader) Encode(c *Command) {
	w := headerWriter{ext: make([]Field, 0, 16)}
	w.str("producerGroup", h.ProducerGroup)
	w.str("topic", h.Topic)
	w.str("defaultTopic", h.DefaultTopic)
	w.int("defaultTopicQueueNums", int64(h.DefaultTopicQueueNums))
	w.int("queueId", int64(h.QueueID))
	w.int("sysFlag", int64(h.SysFlag))
	w.int("bornTimestamp", h.BornTimestamp)
	w.int("flag", int64(h.Flag))
	w.optional("properties", h.Properties)
	w.int("reconsumeTimes", int64(h.ReconsumeTimes))
	w.bool("unitMode", h.UnitMode)
	w.str("bornHost", h.BornHost)
	w.str("storeHost", h.StoreHost)
	w.int("storeTimestamp", h.StoreTimestamp)
	c.Ext = w.ext
}
