package remoting

import "fmt"

// CreateTopicHeader is the header of UPDATE_AND_CREATE_TOPIC (17).
type CreateTopicHeader struct {
	Topic           string
	DefaultTopic    string
	ReadQueueNums   int32
	WriteQueueNums  int32
	Perm            int32  // Perm… bits
	TopicFilterType string // FilterSingleTag or FilterMultiTag; "" is read as single
	TopicSysFlag    int32
	Order           bool
	Attributes      string // 5.x: comma list of +key=value and -key
}

// Decode reads h from c. A TopicFilterType that RocketMQ does not know is
// ErrFieldValue.
func (h *CreateTopicHeader) Decode(c *Command) error {
	r := headerReader{c: c}
	*h = CreateTopicHeader{
		Topic: r.str("topic"), DefaultTopic: r.str("defaultTopic"),
		ReadQueueNums: r.needInt32("readQueueNums"), WriteQueueNums: r.needInt32("writeQueueNums"), Perm: r.needInt32("perm"),
		TopicFilterType: r.str("topicFilterType"), Order: r.bool("order"), Attributes: r.str("attributes"),
	}
	h.TopicSysFlag, _ = r.int32("topicSysFlag")
	switch h.TopicFilterType {
	case "":
		h.TopicFilterType = FilterSingleTag
	case FilterSingleTag, FilterMultiTag:
	default:
		r.keep(fmt.Errorf("%w: topicFilterType = [%.64s] value invalid", ErrFieldValue, h.TopicFilterType))
	}
	return r.err
}

// Encode writes h to c.
func (h *CreateTopicHeader) Encode(c *Command) {
	w := newHeaderWriter()
	w.str("topic", h.Topic)
	w.str("defaultTopic", h.DefaultTopic)
	w.int("readQueueNums", int64(h.ReadQueueNums))
	w.int("writeQueueNums", int64(h.WriteQueueNums))
	w.int("perm", int64(h.Perm))
	w.str("topicFilterType", h.TopicFilterType)
	w.int("topicSysFlag", int64(h.TopicSysFlag))
	w.bool("order", h.Order)
	w.optional("attributes", h.Attributes)
	c.Ext = w.ext
}

// DeleteTopicHeader is the header of DELETE_TOPIC_IN_BROKER (215) and
// DELETE_TOPIC_IN_NAMESRV (216).
type DeleteTopicHeader struct {
	Topic       string
	ClusterName string // 216 only, mostly empty
}

// Decode reads h from c.
func (h *DeleteTopicHeader) Decode(c *Command) error {
	*h = DeleteTopicHeader{Topic: c.GetString("topic"), ClusterName: c.GetString("clusterName")}
	return nil
}

// Encode writes h to c.
func (h *DeleteTopicHeader) Encode(c *Command) {
	w := newHeaderWriter()
	w.str("topic", h.Topic)
	w.optional("clusterName", h.ClusterName)
	c.Ext = w.ext
}

// RouteHeader is the header of GET_ROUTEINFO_BY_TOPIC (105).
type RouteHeader struct {
	Topic                  string
	AcceptStandardJSONOnly bool
}

// Decode reads h from c.
func (h *RouteHeader) Decode(c *Command) error {
	r := headerReader{c: c}
	*h = RouteHeader{Topic: r.str("topic"), AcceptStandardJSONOnly: r.bool("acceptStandardJsonOnly")}
	return r.err
}

// Encode writes h to c.
func (h *RouteHeader) Encode(c *Command) {
	w := newHeaderWriter()
	w.str("topic", h.Topic)
	if h.AcceptStandardJSONOnly {
		w.bool("acceptStandardJsonOnly", true)
	}
	c.Ext = w.ext
}
