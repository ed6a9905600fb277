package remoting

// ScrubStatus tells how far a node's scrub is.
type ScrubStatus struct {
	At      int64 `json:"at"`   // physical offset
	End     int64 `json:"end"`  // of the log
	Rate    int64 `json:"rate"` // bytes a second, 0 when it is switched off
	Passes  int64 `json:"passes"`
	BeganMs int64 `json:"beganMs,omitempty"` // of this pass, Unix ms
	EndedMs int64 `json:"endedMs,omitempty"` // of the last whole one
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
	SinceMs int64  `json:"sinceMs,omitempty"`
	Reason  string `json:"reason"`
	Tried   string `json:"tried,omitempty"` // why no other node's bytes have helped
}
