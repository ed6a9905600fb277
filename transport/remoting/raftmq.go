package remoting

// RequestNodeStatus is RaftMQ's own request: what a node is and how it is doing. Ext
// "checksumTo" (optional): also checksum log bytes [logMin, checksumTo). The answer's body is
// a NodeStatus as JSON. Any node answers, leader or not.
const RequestNodeStatus int32 = 9001

// OwnToolField is an ext field of route queries of RaftMQ's own tools: they want to know at once that a node knows no leader, since they look at others
// by themselves.
const OwnToolField = "raftmqTool"

// IsOwn reports whether a request code is RaftMQ's own: for operators, and answered by a node whatever state it is in.
func IsOwn(code int32) bool { return code > 9000 && code < 10000 }

// NodeStatus is the body of a RequestNodeStatus answer and of GET /v1/status.
type NodeStatus struct {
	NodeID        string  `json:"nodeId"`
	Version       string  `json:"version"`
	ClusterName   string  `json:"clusterName"`
	ClusterID     string  `json:"clusterId"`
	Group         string  `json:"group"` // RocketMQ brokerName
	UptimeSeconds float64 `json:"uptimeSeconds"`
	// ClockMillis is the node's wall clock when it answered, Unix milliseconds.
	ClockMillis int64 `json:"clockMillis,omitempty"`
	// Level is the highest feature level that the node's raftmq can apply, ClusterLevel the cluster's (raftmq cluster upgrade raises it).
	Level        int `json:"level,omitempty"`
	ClusterLevel int `json:"clusterLevel,omitempty"`

	Role     string `json:"role"` // leader, follower, candidate, stopped
	Term     uint64 `json:"term"`
	LeaderID string `json:"leaderId"` // "" while none is known
	Ready    bool   `json:"ready"`    // leads and takes writes
	CaughtUp bool   `json:"caughtUp"` // has once held all that its leader had applied when they met
	// LastContactMillis is how long ago the leader was last heard, 0 on the leader, -1 for never.
	LastContactMillis int64 `json:"lastContactMillis"`

	AppliedIndex  uint64 `json:"appliedIndex"` // last Raft entry with commands that the FSM has applied
	CommitIndex   uint64 `json:"commitIndex"`
	LastRaftIndex uint64 `json:"lastRaftIndex"`
	SnapshotIndex uint64 `json:"snapshotIndex"`

	LogMin       int64 `json:"logMin"` // commit log, physical offsets
	LogMax       int64 `json:"logMax"`
	FlushedTo    int64 `json:"flushedTo"`
	DispatchedTo int64 `json:"dispatchedTo"`
	// LogFileMin is the first offset that a file holds: below LogMin while trimmed segments wait for their removal.
	LogFileMin int64 `json:"logFileMin"`
	// RunningFlags names what the store cannot do now (disk-full and so on), "" when it can all. DiskRatio is how much of the
	// commit log's disk is in use, 0 to 1, -1 when not known.
	RunningFlags string  `json:"runningFlags,omitempty"`
	DiskRatio    float64 `json:"diskRatio"`
	// DiskFree and DiskTotal are bytes of the data folder's file system; DiskProblem says why the node stands aside, "" when its
	// disk is well.
	DiskFree    int64  `json:"diskFree,omitempty"`
	DiskTotal   int64  `json:"diskTotal,omitempty"`
	DiskProblem string `json:"diskProblem,omitempty"`
	// LogChecksum is CRC-32C over [LogMin, ChecksumTo) when it was asked for.
	ChecksumTo  int64  `json:"checksumTo,omitempty"`
	LogChecksum string `json:"logChecksum,omitempty"` // 8 hex digits

	// CatchUp is how far the node is with fetching log bytes that the Raft log no longer has, nil when it is not.
	CatchUp *CatchUpStatus `json:"catchUp,omitempty"`

	FlushDiskType string `json:"flushDiskType"`
	RaftLogStore  string `json:"raftLogStore"`
	// Mode is durable, or unsafe when acknowledged messages can be lost; Durability says in words what SEND_OK promises.
	Mode       string         `json:"mode,omitempty"`
	Durability string         `json:"durability"`
	Queues     int            `json:"queues"`
	Segments   int            `json:"segments"`
	Scrub      *ScrubStatus   `json:"scrub,omitempty"`
	Repair     *RepairStatus  `json:"repair,omitempty"`
	Replicas   *ReplicaStatus `json:"replicas,omitempty"` // of the leader
	// Problem is what is wrong in one sentence with what to do, "" when all is well.
	Problem string `json:"problem,omitempty"`

	// Drain is set while the node is being drained.
	Drain *DrainStatus `json:"drain,omitempty"`

	Peers []PeerStatus `json:"peers"`
}

// CatchUpStatus is how far a node is with fetching what it lacks. Offsets are physical ones of the commit log.
type CatchUpStatus struct {
	State  string `json:"state"` // comparing, fetching, waiting (after a failure), fetched (to be installed), installing
	Leader string `json:"leader"`
	// From to To is what it lacks, At how far it is.
	From int64 `json:"from"`
	At   int64 `json:"at"`
	To   int64 `json:"to"`
	// Replaces: the whole log is taken anew.
	Replaces bool `json:"replaces,omitempty"`
	// FetchedBytes came in this run, without what was there from an earlier one.
	FetchedBytes   int64   `json:"fetchedBytes"`
	BytesPerSecond int64   `json:"bytesPerSecond"`
	Seconds        float64 `json:"seconds"`
	Problem        string  `json:"problem,omitempty"` // why it waits
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
	// Of other members as the leader knows them: how long ago one last answered it (-1 for not in its term), and the end of the Raft
	// log that it is known to hold.
	LastContactMillis int64  `json:"lastContactMillis,omitempty"`
	LastRaftIndex     uint64 `json:"lastRaftIndex,omitempty"`
}

// RaftMQ's requests for operators. Bodies are JSON. A node that is asked for what only the leader can do passes it on to the leader.
const (
	// RequestTransferLeadership hands leadership over; body TransferRequest, answer TransferAnswer. Leader.
	RequestTransferLeadership int32 = 9002
	// RequestRemoveNode takes a node out of the Raft configuration; body RemoveRequest. Leader.
	RequestRemoveNode int32 = 9003
	// RequestReadmitNode helps a node to become a member that does not by itself; body ReadmitRequest, answer ReadmitAnswer. Asked again, it
	// says how far that is. Leader.
	RequestReadmitNode int32 = 9004
	// RequestSnapshot takes a Raft snapshot on the node that is asked; answer SnapshotAnswer.
	RequestSnapshot int32 = 9005
	// RequestMark puts a mark into the log, at which replicas can be compared; body and answer MarkRequest. Leader.
	RequestMark int32 = 9006
	// RequestChecksum waits until the node that is asked has applied a mark, and tells what it holds there; body
	// ChecksumRequest, answer ChecksumAnswer.
	RequestChecksum int32 = 9007
	// RequestRelayReply has a node hand a reply to the requester that it is connected to: ext and body are those of
	// PUSH_REPLY_MESSAGE_TO_CLIENT, and RelayClientField names the client. Answered 206 by a node that does not know it.
	RequestRelayReply int32 = 9040
	// RequestRelayClient has a node pass a request on to a client that is connected to it: ext and body are the request's, RelayCodeField its
	// code, RelayGroupField the group and RelayClientField the client in it ("": any). CHECK_TRANSACTION_STATE to producers and
	// RESET_CONSUMER_CLIENT_OFFSET to consumers are answered when they are sent, GET_CONSUMER_STATUS_FROM_CLIENT as the consumer answers; no
	// others are passed on. Answered 206 by a node without such a client.
	RequestRelayClient int32 = 9041
	// RequestLeave makes the node that is asked leave its cluster for good and end; the answer comes when it is out.
	RequestLeave int32 = 9008
	// RequestUpgrade raises the cluster's feature level to what all members can apply; body UpgradeRequest, answer UpgradeAnswer. Leader.
	RequestUpgrade int32 = 9030
	// RequestDrain makes the node that is asked ready to be stopped: it hands leadership over and passes the writes of clients that have not
	// heard of it yet to the leader; body DrainRequest, answer DrainStatus.
	RequestDrain int32 = 9031
	// RequestBackupStart takes a snapshot on the node that is asked, from which a backup can be copied; answer BackupStart.
	RequestBackupStart int32 = 9032
	// RequestBackupState brings the tables of such a snapshot; body BackupState, the answer's body is the bytes.
	RequestBackupState int32 = 9033
)

// Ext fields of RequestRelayReply and RequestRelayClient: the client's id, its group, and the code of the request to it.
const (
	RelayClientField = "raftmqClient"
	RelayGroupField  = "raftmqGroup"
	RelayCodeField   = "raftmqCode"
)

// TransferRequest is the body of RequestTransferLeadership.
type TransferRequest struct {
	To string `json:"to,omitempty"` // node id; "": the most caught-up voter
}

// TransferAnswer says who leads now.
type TransferAnswer struct {
	From   string `json:"from"`
	Leader string `json:"leader"`
}

// RemoveRequest is the body of RequestRemoveNode.
type RemoveRequest struct {
	NodeID string `json:"nodeId"`
	// Force removes it although it is alive. It is not added again until RequestReadmitNode, or until it comes without its data.
	Force bool `json:"force,omitempty"`
	// Leaving: the node itself asks, and is about to end.
	Leaving bool `json:"leaving,omitempty"`
}

// ReadmitRequest is the body of RequestReadmitNode. NodeID may be left out when Gossip is given.
type ReadmitRequest struct {
	NodeID string `json:"nodeId,omitempty"`
	// Gossip is contacted first: for a node that was not told whom to join.
	Gossip string `json:"gossip,omitempty"`
	// Promote makes a non-voter a voter at once, although it has not caught up.
	Promote bool `json:"promote,omitempty"`
}

// ReadmitAnswer says how far a node is with becoming a member.
type ReadmitAnswer struct {
	NodeID string `json:"nodeId"`
	// Suffrage is voter, nonvoter, or none as long as the leader has not added it yet, which it does by itself.
	Suffrage string `json:"suffrage"`
	// Readmitted: it had been removed while it was alive, and may join again now.
	Readmitted bool `json:"readmitted,omitempty"`
	// ClientAddr is where it can be asked how far it is.
	ClientAddr string `json:"clientAddr,omitempty"`
}

// SnapshotAnswer is the newest snapshot's place.
type SnapshotAnswer struct {
	NodeID string `json:"nodeId"`
	Index  uint64 `json:"index"`
}

// MarkRequest names a mark. In an answer the id is the one that was given to it.
type MarkRequest struct {
	ID string `json:"id,omitempty"`
}

// ChecksumRequest asks for what a node held at a mark.
type ChecksumRequest struct {
	ID string `json:"id"`
	// Log also asks for the checksum of log bytes [From, LogEnd).
	Log  bool  `json:"log,omitempty"`
	From int64 `json:"from,omitempty"`
	// WaitMillis is how long to wait for the mark.
	WaitMillis int64 `json:"waitMillis,omitempty"`
}

// ChecksumAnswer is what a node held at a mark.
type ChecksumAnswer struct {
	NodeID string `json:"nodeId"`
	Index  uint64 `json:"index"`  // Raft index of the mark
	LogMin int64  `json:"logMin"` // of what the node holds now
	LogEnd int64  `json:"logEnd"` // at the mark
	// LogApplied is where the bytes begin that the node has applied itself; those before came with a snapshot. 0 from a node that does not tell.
	LogApplied int64 `json:"logApplied,omitempty"`
	// Tables and Queues are CRC-32C, 8 hex digits: of the replicated tables, and of the queues' next offsets.
	Tables string `json:"tables"`
	Queues string `json:"queues"`
	// Log is CRC-32C of the bytes [LogFrom, LogEnd) when it was asked for.
	LogFrom int64  `json:"logFrom,omitempty"`
	Log     string `json:"log,omitempty"`
}

// UpgradeRequest is the body of RequestUpgrade.
type UpgradeRequest struct {
	Check bool `json:"check,omitempty"` // only say what it would do
}

// UpgradeAnswer says what RequestUpgrade did or would do: nothing when To is From.
type UpgradeAnswer struct {
	From  int         `json:"from"`
	To    int         `json:"to"`
	Nodes []NodeLevel `json:"nodes"`
}

// NodeLevel is what one node's raftmq can apply.
type NodeLevel struct {
	NodeID  string `json:"nodeId"`
	Version string `json:"version"`
	Level   int    `json:"level"`
}

// DrainRequest is the body of RequestDrain.
type DrainRequest struct {
	Cancel bool `json:"cancel,omitempty"` // the node is not going to be stopped after all
}

// DrainStatus is how far a node is with being drained.
type DrainStatus struct {
	NodeID  string `json:"nodeId"`
	Leading bool   `json:"leading"`
	// DrainingMillis is how long the node has been draining, -1 when it is not.
	DrainingMillis int64 `json:"drainingMillis"`
	// LedMillis is how long ago the node last led, 0 while it does, -1 for never since its start. Clients may send to it for as long as
	// they keep a route after that.
	LedMillis int64 `json:"ledMillis"`
	// RelayedWrites were passed to the leader since the node's start, the newest RelayedMillis ago (-1 for never).
	RelayedWrites uint64 `json:"relayedWrites"`
	RelayedMillis int64  `json:"relayedMillis"`
}

// BackupStart is the answer to RequestBackupStart: a point at which the node has everything on its disk, for whoever copies it.
type BackupStart struct {
	NodeID      string `json:"nodeId"`
	Version     string `json:"version"`
	ClusterID   string `json:"clusterId"`
	ClusterName string `json:"clusterName"`
	BrokerName  string `json:"brokerName"`
	SegmentSize int64  `json:"segmentSize"`
	Level       int    `json:"level"`
	// Snapshot is what RequestBackupState asks for: StateBytes of tables, at this place of the Raft log.
	Snapshot   string `json:"snapshot"`
	Index      uint64 `json:"index"`
	Term       uint64 `json:"term"`
	StateBytes int64  `json:"stateBytes"`
	StateCRC   string `json:"stateCrc32c"` // 8 hex digits
	// The log bytes that belong to it. Any node of the cluster has the same ones (RequestLogRange).
	LogMin int64 `json:"logMin"`
	LogEnd int64 `json:"logEnd"`
}

// BackupState is the body of RequestBackupState: a part of the tables from Offset on, as much as an answer may have.
type BackupState struct {
	Snapshot string `json:"snapshot"`
	Offset   int64  `json:"offset"`
}
