package remoting

// RequestRepairLog makes the node that is asked compare bytes of its commit log with another node's, and take those where they differ: body
// RepairLogRequest. The leader asks a node whose log differs.
const RequestRepairLog int32 = 9021

// RepairLogRequest is the body of RequestRepairLog: log bytes [From, To).
type RepairLogRequest struct {
	From   int64  `json:"from"`
	To     int64  `json:"to"`
	Reason string `json:"reason"`
}

// RequestRejoin makes the node that is asked put its data aside and join again as a newcomer, when a majority of the others is there: it has applied something else than they have. Body
// RejoinRequest. The leader asks a node that differs.
const RequestRejoin int32 = 9022

// RejoinRequest is the body of RequestRejoin.
type RejoinRequest struct {
	NodeID string `json:"nodeId"` // who is meant
	Reason string `json:"reason"`
}

// RequestScrub makes the node that is asked begin to verify all that it holds: body {}, answer ScrubAnswer. How far it is NodeStatus tells.
const RequestScrub int32 = 9023

// ScrubAnswer is the answer to RequestScrub.
type ScrubAnswer struct {
	NodeID string `json:"nodeId"`
	Bytes  int64  `json:"bytes"` // of commit log to verify
	Rate   int64  `json:"rate"`  // bytes a second
}

// ScrubStatus tells how far a node's scrub is.
type ScrubStatus struct {
	At      int64 `json:"at"`   // physical offset
	End     int64 `json:"end"`  // of the log
	Rate    int64 `json:"rate"` // bytes a second, 0 when it is switched off
	Passes  int64 `json:"passes"`
	BeganMs int64 `json:"beganMs,omitempty"` // of this pass, Unix ms
	EndedMs int64 `json:"endedMs,omitempty"` // of the last whole one
	// Segments is how many sealed segments there are, Agreed how many have a checksum that the replicas agree on.
	Segments int `json:"segments"`
	Agreed   int `json:"agreed"`
}

// RepairStatus tells what a node has found damaged since it started, and what it can't serve now.
type RepairStatus struct {
	Found         uint64         `json:"found"` // ranges
	Repaired      uint64         `json:"repaired"`
	RepairedBytes uint64         `json:"repairedBytes"`
	Units         uint64         `json:"units"` // consume queue units written again
	Damaged       []DamagedRange `json:"damaged,omitempty"`
}

// DamagedRange is a range of the commit log that a node does not serve until it is repaired.
type DamagedRange struct {
	From    int64  `json:"from"` // physical offsets
	To      int64  `json:"to"`
	File    string `json:"file"`
	Pos     int64  `json:"pos"` // of From in File
	SinceMs int64  `json:"sinceMs,omitempty"`
	Reason  string `json:"reason"`
	Tried   string `json:"tried,omitempty"` // why no other node's bytes have helped
}

// ReplicaStatus is what a leader's last comparison of the replicas said.
type ReplicaStatus struct {
	AtMs  int64  `json:"atMs,omitempty"` // Unix ms, 0 before the first
	Index uint64 `json:"index,omitempty"`
	Equal int    `json:"equal"` // nodes that hold the same as most
	// Alarm names nodes and range that differ, "" when none do.
	Alarm string `json:"alarm,omitempty"`
	// Unasked are nodes that could not be asked.
	Unasked []string `json:"unasked,omitempty"`
}
