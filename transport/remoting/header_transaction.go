package remoting

// CheckTransactionHeader is the header of CHECK_TRANSACTION_STATE (39), which a broker sends
// to a producer (RocketMQ CheckTransactionStateRequestHeader). The body is one record.
type CheckTransactionHeader struct {
	TranStateTableOffset int64 // queue offset of the half message
	CommitLogOffset      int64 // physical offset of the half message
	MsgID                string
	TransactionID        string
	OffsetMsgID          string
	Topic                string // 5.x only
	BrokerName           string // 5.x only
}

// Decode reads h from c.
func (h *CheckTransactionHeader) Decode(c *Command) error {
	r := headerReader{c: c}
	*h = CheckTransactionHeader{
		TranStateTableOffset: r.needInt64("tranStateTableOffset"), CommitLogOffset: r.needInt64("commitLogOffset"),
		MsgID: r.str("msgId"), TransactionID: r.str("transactionId"), OffsetMsgID: r.str("offsetMsgId"),
		Topic: r.str("topic"), BrokerName: r.str("bname"),
	}
	return r.err
}

// Encode writes h to c.
func (h *CheckTransactionHeader) Encode(c *Command) {
	w := newHeaderWriter()
	w.int("commitLogOffset", h.CommitLogOffset)
	w.optional("msgId", h.MsgID)
	w.int("tranStateTableOffset", h.TranStateTableOffset)
	w.optional("offsetMsgId", h.OffsetMsgID)
	w.optional("transactionId", h.TransactionID)
	w.optional("topic", h.Topic)
	w.optional("bname", h.BrokerName)
	c.Ext = w.ext
}
