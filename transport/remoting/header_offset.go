package remoting

// The header types below read with Decode and write with Encode. Decode copies, so
// that they outlive the frame; its errors are ErrFieldMissing and ErrFieldValue, and
// the fields that could be read are filled in then, too. Encode replaces c.Ext and
// leaves the code to the caller. BrokerName ("bname") is sent by newer clients only.

// QueryConsumerOffsetHeader is the header of QUERY_CONSUMER_OFFSET (14).
type QueryConsumerOffsetHeader struct {
	ConsumerGroup string
	Topic         string
	QueueID       int32
	// SetZeroIfNotFound is true unless a 5.x client says otherwise: the broker may
	// answer 0 for a young queue without a stored offset.
	SetZeroIfNotFound bool
	BrokerName        string
}

// Decode reads h from c.
func (h *QueryConsumerOffsetHeader) Decode(c *Command) error {
	r := headerReader{c: c}
	*h = QueryConsumerOffsetHeader{
		ConsumerGroup: r.str("consumerGroup"), Topic: r.str("topic"), QueueID: r.needInt32("queueId"),
		SetZeroIfNotFound: c.Get("setZeroIfNotFound") == nil || r.bool("setZeroIfNotFound"),
		BrokerName:        r.str("bname"),
	}
	return r.err
}

// Encode writes h to c.
func (h *QueryConsumerOffsetHeader) Encode(c *Command) {
	w := newHeaderWriter()
	w.str("consumerGroup", h.ConsumerGroup)
	w.str("topic", h.Topic)
	w.int("queueId", int64(h.QueueID))
	if !h.SetZeroIfNotFound {
		w.bool("setZeroIfNotFound", false)
	}
	w.optional("bname", h.BrokerName)
	c.Ext = w.ext
}

// UpdateConsumerOffsetHeader is the header of UPDATE_CONSUMER_OFFSET (15).
type UpdateConsumerOffsetHeader struct {
	ConsumerGroup string
	Topic         string
	QueueID       int32
	CommitOffset  int64 // next queue offset to consume; brokers ignore negative ones
	BrokerName    string
}

// Decode reads h from c.
func (h *UpdateConsumerOffsetHeader) Decode(c *Command) error {
	r := headerReader{c: c}
	*h = UpdateConsumerOffsetHeader{
		ConsumerGroup: r.str("consumerGroup"), Topic: r.str("topic"), QueueID: r.needInt32("queueId"),
		CommitOffset: r.needInt64("commitOffset"), BrokerName: r.str("bname"),
	}
	return r.err
}

// Encode writes h to c.
func (h *UpdateConsumerOffsetHeader) Encode(c *Command) {
	w := newHeaderWriter()
	w.str("consumerGroup", h.ConsumerGroup)
	w.str("topic", h.Topic)
	w.int("queueId", int64(h.QueueID))
	w.int("commitOffset", h.CommitOffset)
	w.optional("bname", h.BrokerName)
	c.Ext = w.ext
}

// SearchOffsetHeader is the header of SEARCH_OFFSET_BY_TIMESTAMP (29).
type SearchOffsetHeader struct {
	Topic        string
	QueueID      int32
	Timestamp    int64  // ms since the epoch, compared with store times
	BoundaryType string // 5.x: "lower" or "upper"; "" means lower
	BrokerName   string
}

// Decode reads h from c.
func (h *SearchOffsetHeader) Decode(c *Command) error {
	r := headerReader{c: c}
	*h = SearchOffsetHeader{
		Topic: r.str("topic"), QueueID: r.needInt32("queueId"), Timestamp: r.needInt64("timestamp"),
		BoundaryType: r.str("boundaryType"), BrokerName: r.str("bname"),
	}
	return r.err
}

// Encode writes h to c.
func (h *SearchOffsetHeader) Encode(c *Command) {
	w := newHeaderWriter()
	w.str("topic", h.Topic)
	w.int("queueId", int64(h.QueueID))
	w.int("timestamp", h.Timestamp)
	w.optional("boundaryType", h.BoundaryType)
	w.optional("bname", h.BrokerName)
	c.Ext = w.ext
}

// QueueHeader is the header of GET_MAX_OFFSET (30), GET_MIN_OFFSET (31) and
// GET_EARLIEST_MSG_STORETIME (32).
type QueueHeader struct {
	Topic      string
	QueueID    int32
	BrokerName string
}

// Decode reads h from c.
func (h *QueueHeader) Decode(c *Command) error {
	r := headerReader{c: c}
	*h = QueueHeader{Topic: r.str("topic"), QueueID: r.needInt32("queueId"), BrokerName: r.str("bname")}
	return r.err
}

// Encode writes h to c.
func (h *QueueHeader) Encode(c *Command) {
	w := newHeaderWriter()
	w.str("topic", h.Topic)
	w.int("queueId", int64(h.QueueID))
	w.optional("bname", h.BrokerName)
	c.Ext = w.ext
}

// OffsetResponse is the answer's header for 14, 29, 30 and 31.
type OffsetResponse struct {
	Offset int64
}

// Decode reads h from c.
func (h *OffsetResponse) Decode(c *Command) error {
	r := headerReader{c: c}
	h.Offset = r.needInt64("offset")
	return r.err
}

// Encode writes h to c.
func (h *OffsetResponse) Encode(c *Command) {
	w := newHeaderWriter()
	w.int("offset", h.Offset)
	c.Ext = w.ext
}

// TimestampResponse is the answer's header for GET_EARLIEST_MSG_STORETIME (32).
type TimestampResponse struct {
	Timestamp int64 // ms since the epoch, -1 when there is no message
}

// Decode reads h from c.
func (h *TimestampResponse) Decode(c *Command) error {
	r := headerReader{c: c}
	h.Timestamp = r.needInt64("timestamp")
	return r.err
}

// Encode writes h to c.
func (h *TimestampResponse) Encode(c *Command) {
	w := newHeaderWriter()
	w.int("timestamp", h.Timestamp)
	c.Ext = w.ext
}
