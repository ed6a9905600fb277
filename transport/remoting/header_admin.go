package remoting

// ResetOffsetHeader is the header of INVOKE_BROKER_TO_RESET_OFFSET (222) and RESET_CONSUMER_CLIENT_OFFSET (220).
type ResetOffsetHeader struct {
	Topic     string
	Group     string
	Timestamp int64 // ms since the epoch; -1: the end of each queue
	Force     bool  // also forward
}

// Decode reads h from c.
func (h *ResetOffsetHeader) Decode(c *Command) error {
	r := headerReader{c: c}
	*h = ResetOffsetHeader{Topic: r.str("topic"), Group: r.str("group"), Timestamp: r.needInt64("timestamp"), Force: r.bool("isForce")}
	return r.err
}

// Encode writes h to c.
func (h *ResetOffsetHeader) Encode(c *Command) {
	w := newHeaderWriter()
	w.str("topic", h.Topic)
	w.str("group", h.Group)
	w.int("timestamp", h.Timestamp)
	w.bool("isForce", h.Force)
	c.Ext = w.ext
}

// ConsumeQueueHeader is the header of QUERY_CONSUME_QUEUE (321).
type ConsumeQueueHeader struct {
	Topic         string
	QueueID       int32
	Index         int64
	Count         int32
	ConsumerGroup string
}

// Decode reads h from c.
func (h *ConsumeQueueHeader) Decode(c *Command) error {
	r := headerReader{c: c}
	*h = ConsumeQueueHeader{Topic: r.str("topic"), QueueID: r.needInt32("queueId"), Index: r.needInt64("index"), Count: r.needInt32("count"),
		ConsumerGroup: r.str("consumerGroup")}
	return r.err
}

// Encode writes h to c.
func (h *ConsumeQueueHeader) Encode(c *Command) {
	w := newHeaderWriter()
	w.str("topic", h.Topic)
	w.int("queueId", int64(h.QueueID))
	w.int("index", h.Index)
	w.int("count", int64(h.Count))
	w.optional("consumerGroup", h.ConsumerGroup)
	c.Ext = w.ext
}
