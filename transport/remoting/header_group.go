package remoting

// UnregisterClientHeader is the header of UNREGISTER_CLIENT (35). Either group may be
// empty.
type UnregisterClientHeader struct {
	ClientID      string
	ProducerGroup string
	ConsumerGroup string
}

// Decode reads h from c.
func (h *UnregisterClientHeader) Decode(c *Command) error {
	r := headerReader{c: c}
	*h = UnregisterClientHeader{
		ClientID: r.str("clientID"), ProducerGroup: r.str("producerGroup"), ConsumerGroup: r.str("consumerGroup"),
	}
	return r.err
}

// Encode writes h to c.
func (h *UnregisterClientHeader) Encode(c *Command) {
	w := newHeaderWriter()
	w.str("clientID", h.ClientID)
	w.optional("producerGroup", h.ProducerGroup)
	w.optional("consumerGroup", h.ConsumerGroup)
	c.Ext = w.ext
}

// ConsumerGroupHeader is the header of GET_CONSUMER_LIST_BY_GROUP (38) and
// NOTIFY_CONSUMER_IDS_CHANGED (40).
type ConsumerGroupHeader struct {
	ConsumerGroup string
}

// Decode reads h from c.
func (h *ConsumerGroupHeader) Decode(c *Command) error {
	h.ConsumerGroup = c.GetString("consumerGroup")
	return nil
}

// Encode writes h to c.
func (h *ConsumerGroupHeader) Encode(c *Command) {
	w := newHeaderWriter()
	w.str("consumerGroup", h.ConsumerGroup)
	c.Ext = w.ext
}
