package remoting

// RequestNodeStatus is RaftMQ's own request: what a node is and how it is doing. Ext
// "checksumTo" (optional): also checksum log bytes [logMin, checksumTo). The answer's body is
// a NodeStatus as JSON. Any node answers, leader or not.
const RequestNodeStatus int32 = 9001

// NodeStatus is the body of a RequestNodeStatus answer and of GET /v1/status.
type NodeStatus struct {
	NodeID        string  `json:"nodeId"`
	Version       string  `json:"version"`
	ClusterName   string  `json:"clusterName"`
	ClusterID     string  `json:"clusterId"`
	Group         string  `json:"group"` // RocketMQ brokerName
	UptimeSeconds float64 `json:"uptimeSeconds"`

	Role     string `json:"role"` // leader, follower, candidate, stopped
	Term     uint64 `json:"term"`
	LeaderID string `json:"leaderId"` // "" while none is known
	Ready    bool   `json:"ready"`    // leads and takes writes

	AppliedIndex  uint64 `json:"appliedIndex"` // last Raft entry with commands that the FSM has applied
	CommitIndex   uint64 `json:"commitIndex"`
	LastRaftIndex uint64 `json:"lastRaftIndex"`
	SnapshotIndex uint64 `json:"snapshotIndex"`

	LogMin       int64 `json:"logMin"` // commit log, physical offsets
	LogMax       int64 `json:"logMax"`
	FlushedTo    int64 `json:"flushedTo"`
	DispatchedTo int64 `json:"dispatchedTo"`
	// LogChecksum is CRC-32C over [LogMin, ChecksumTo) when it was asked for.
	ChecksumTo  int64  `json:"checksumTo,omitempty"`
	LogChecksum string `json:"logChecksum,omitempty"` // 8 hex digits

	FlushDiskType string `json:"flushDiskType"`
	RaftLogStore  string `json:"raftLogStore"`
	// Durability says in words what SEND_OK promises in this mode.
	Durability string `json:"durability"`
	Queues     int    `json:"queues"`
	Segments   int    `json:"segments"`
	// Problem is what is wrong in one sentence with what to do, "" when all is well.
	Problem string `json:"problem,omitempty"`

	Peers []PeerStatus `json:"peers"`
}

// PeerStatus is one member as the answering node sees it, itself included.
type PeerStatus struct {
	NodeID     string `json:"nodeId"`
	BrokerID   int64  `json:"brokerId"` // 0 for the leader, else the stable replica id
	ClientAddr string `json:"clientAddr"`
	RaftAddr   string `json:"raftAddr"`
	GossipAddr string `json:"gossipAddr,omitempty"`
	HTTPAddr   string `json:"httpAddr,omitempty"`
	Gossip     string `json:"gossip"`   // alive, suspect, failed, left, unknown
	Suffrage   string `json:"suffrage"` // voter, nonvoter, none
	Leader     bool   `json:"leader"`
}
