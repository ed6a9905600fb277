package remoting

// BrokerData is one broker name of a route: its replicas' client addresses by broker
// id, 0 for the leader.
type BrokerData struct {
	BrokerAddrs map[int64]string `json:"brokerAddrs"`
	BrokerName  string           `json:"brokerName"`
	Cluster     string           `json:"cluster"`
	// EnableActingMaster and ZoneName come from 5.x name servers.
	EnableActingMaster *bool  `json:"enableActingMaster,omitempty"`
	ZoneName           string `json:"zoneName,omitempty"`
}

// normal returns b with an address map that is not null: Go clients panic on that.
func (b BrokerData) normal() BrokerData {
	if b.BrokerAddrs == nil {
		b.BrokerAddrs = map[int64]string{}
	}
	return b
}

// QueueData tells how many queues of the topic a broker name has.
type QueueData struct {
	BrokerName     string `json:"brokerName"`
	Perm           int32  `json:"perm"` // Perm… bits
	ReadQueueNums  int32  `json:"readQueueNums"`
	TopicSysFlag   int32  `json:"topicSysFlag"`
	WriteQueueNums int32  `json:"writeQueueNums"`
}

// TopicRouteData is the answer's body of GET_ROUTEINFO_BY_TOPIC (105).
type TopicRouteData struct {
	BrokerDatas       []BrokerData        `json:"brokerDatas"`
	FilterServerTable map[string][]string `json:"filterServerTable"`
	// OrderTopicConf is "brokerName:queues;…" for topics listed in the KV namespace
	// ORDER_TOPIC_CONFIG, else empty and left out.
	OrderTopicConf string      `json:"orderTopicConf,omitempty"`
	QueueDatas     []QueueData `json:"queueDatas"`
}

// Decode reads b from body, with or without quotes around the broker ids.
func (b *TopicRouteData) Decode(body []byte) error {
	*b = TopicRouteData{}
	return decodeBody(body, b, "topic route")
}

// Encode returns the body: one line, ids in quotes and no blanks, which the Go
// client needs as it takes brokerAddrs apart by hand.
func (b *TopicRouteData) Encode() []byte {
	c := *b
	c.BrokerDatas = make([]BrokerData, len(b.BrokerDatas))
	for i, d := range b.BrokerDatas {
		c.BrokerDatas[i] = d.normal()
	}
	c.QueueDatas = list(c.QueueDatas)
	if c.FilterServerTable == nil {
		c.FilterServerTable = map[string][]string{}
	}
	return encodeBody(&c)
}

// ClusterInfo is the answer's body of GET_BROKER_CLUSTER_INFO (106).
type ClusterInfo struct {
	BrokerAddrTable  map[string]BrokerData `json:"brokerAddrTable"`  // by broker name
	ClusterAddrTable map[string][]string   `json:"clusterAddrTable"` // cluster → broker names
}

// Decode reads b from body, with or without quotes around the broker ids.
func (b *ClusterInfo) Decode(body []byte) error {
	*b = ClusterInfo{}
	return decodeBody(body, b, "cluster info")
}

// Encode returns the body, ids in quotes.
func (b *ClusterInfo) Encode() []byte {
	c := ClusterInfo{
		BrokerAddrTable:  make(map[string]BrokerData, len(b.BrokerAddrTable)),
		ClusterAddrTable: make(map[string][]string, len(b.ClusterAddrTable)),
	}
	for name, d := range b.BrokerAddrTable {
		c.BrokerAddrTable[name] = d.normal()
	}
	for cluster, names := range b.ClusterAddrTable {
		c.ClusterAddrTable[cluster] = list(names)
	}
	return encodeBody(&c)
}
