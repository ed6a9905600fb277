package remoting

import "fmt"

// ViewMessageHeader is the header of VIEW_MESSAGE_BY_ID (33).
type ViewMessageHeader struct {
	Offset int64  // physical offset
	Topic  string // 5.x only
}

// Decode reads h from c.
func (h *ViewMessageHeader) Decode(c *Command) error {
	r := headerReader{c: c}
	*h = ViewMessageHeader{Offset: r.needInt64("offset"), Topic: r.str("topic")}
	return r.err
}

// Encode writes h to c.
func (h *ViewMessageHeader) Encode(c *Command) {
	w := newHeaderWriter()
	w.int("offset", h.Offset)
	w.optional("topic", h.Topic)
	c.Ext = w.ext
}

// uniqueKeyQuery is the ext field that QUERY_MESSAGE carries beside its header.
const uniqueKeyQuery = "_UNIQUE_KEY_QUERY"

// QueryMessageHeader is the header of QUERY_MESSAGE (12).
type QueryMessageHeader struct {
	Topic          string
	Key            string
	MaxNum         int32
	BeginTimestamp int64 // ms since the epoch, of store times
	EndTimestamp   int64
	// UniqueKey asks for the message whose UNIQ_KEY is Key.
	UniqueKey bool
}

// Decode reads h from c.
func (h *QueryMessageHeader) Decode(c *Command) error {
	r := headerReader{c: c}
	*h = QueryMessageHeader{
		Topic: r.str("topic"), Key: r.str("key"), MaxNum: r.needInt32("maxNum"),
		BeginTimestamp: r.needInt64("beginTimestamp"), EndTimestamp: r.needInt64("endTimestamp"),
		UniqueKey: r.bool(uniqueKeyQuery),
	}
	return r.err
}

// Encode writes h to c.
func (h *QueryMessageHeader) Encode(c *Command) {
	w := newHeaderWriter()
	w.str("topic", h.Topic)
	w.str("key", h.Key)
	w.int("maxNum", int64(h.MaxNum))
	w.int("beginTimestamp", h.BeginTimestamp)
	w.int("endTimestamp", h.EndTimestamp)
	w.bool(uniqueKeyQuery, h.UniqueKey)
	c.Ext = w.ext
}

// QueryMessageResponse is the answer's header for QUERY_MESSAGE (12).
type QueryMessageResponse struct {
	IndexLastUpdateTimestamp int64 // ms since the epoch
	IndexLastUpdatePhyOffset int64
}

// Decode reads h from c.
func (h *QueryMessageResponse) Decode(c *Command) error {
	r := headerReader{c: c}
	*h = QueryMessageResponse{
		IndexLastUpdateTimestamp: r.needInt64("indexLastUpdateTimestamp"),
		IndexLastUpdatePhyOffset: r.needInt64("indexLastUpdatePhyoffset"),
	}
	return r.err
}

// Encode writes h to c.
func (h *QueryMessageResponse) Encode(c *Command) {
	w := newHeaderWriter()
	w.int("indexLastUpdatePhyoffset", h.IndexLastUpdatePhyOffset)
	w.int("indexLastUpdateTimestamp", h.IndexLastUpdateTimestamp)
	c.Ext = w.ext
}

// SendBackHeader is the header of CONSUMER_SEND_MSG_BACK (36).
type SendBackHeader struct {
	Offset               int64 // physical offset of the message
	Group                string
	DelayLevel           int32 // negative: to the dead letter queue; 0: by reconsume times
	OriginMsgID          string
	OriginTopic          string
	UnitMode             bool
	MaxReconsumeTimes    int32
	HasMaxReconsumeTimes bool
	BrokerName           string
}

// Decode reads h from c.
func (h *SendBackHeader) Decode(c *Command) error {
	r := headerReader{c: c}
	*h = SendBackHeader{
		Offset: r.needInt64("offset"), Group: r.str("group"), DelayLevel: r.needInt32("delayLevel"),
		OriginMsgID: r.str("originMsgId"), OriginTopic: r.str("originTopic"), UnitMode: r.bool("unitMode"),
		BrokerName: r.str("bname"),
	}
	h.MaxReconsumeTimes, h.HasMaxReconsumeTimes = r.int32("maxReconsumeTimes")
	return r.err
}

// Encode writes h to c.
func (h *SendBackHeader) Encode(c *Command) {
	w := newHeaderWriter()
	w.int("offset", h.Offset)
	w.str("group", h.Group)
	w.int("delayLevel", int64(h.DelayLevel))
	w.optional("originMsgId", h.OriginMsgID)
	w.optional("originTopic", h.OriginTopic)
	w.bool("unitMode", h.UnitMode)
	if h.HasMaxReconsumeTimes {
		w.int("maxReconsumeTimes", int64(h.MaxReconsumeTimes))
	}
	w.optional("bname", h.BrokerName)
	c.Ext = w.ext
}

// EndTransactionHeader is the header of END_TRANSACTION (37).
type EndTransactionHeader struct {
	ProducerGroup        string
	TranStateTableOffset int64 // queue offset of the half message
	CommitLogOffset      int64 // physical offset of the half message
	CommitOrRollback     int32 // TransactionCommit, TransactionRollback or TransactionNone
	FromTransactionCheck bool
	MsgID                string // not to be trusted from Go clients after a check
	TransactionID        string
	Topic                string // 5.x only
	BrokerName           string
}

// Decode reads h from c. A CommitOrRollback that is none of the three is
// ErrFieldValue.
func (h *EndTransactionHeader) Decode(c *Command) error {
	r := headerReader{c: c}
	*h = EndTransactionHeader{
		ProducerGroup: r.str("producerGroup"), TranStateTableOffset: r.needInt64("tranStateTableOffset"),
		CommitLogOffset: r.needInt64("commitLogOffset"), CommitOrRollback: r.needInt32("commitOrRollback"),
		FromTransactionCheck: r.bool("fromTransactionCheck"), MsgID: r.str("msgId"),
		TransactionID: r.str("transactionId"), Topic: r.str("topic"), BrokerName: r.str("bname"),
	}
	switch h.CommitOrRollback {
	case TransactionNone, TransactionCommit, TransactionRollback:
	default:
		r.keep(fmt.Errorf("%w: commitOrRollback is %d", ErrFieldValue, h.CommitOrRollback))
	}
	return r.err
}

// Encode writes h to c.
func (h *EndTransactionHeader) Encode(c *Command) {
	w := newHeaderWriter()
	w.str("producerGroup", h.ProducerGroup)
	w.int("tranStateTableOffset", h.TranStateTableOffset)
	w.int("commitLogOffset", h.CommitLogOffset)
	w.int("commitOrRollback", int64(h.CommitOrRollback))
	w.bool("fromTransactionCheck", h.FromTransactionCheck)
	w.optional("msgId", h.MsgID)
	w.optional("transactionId", h.TransactionID)
	w.optional("topic", h.Topic)
	w.optional("bname", h.BrokerName)
	c.Ext = w.ext
}
