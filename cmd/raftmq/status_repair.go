package main

import (
	"fmt"

	"raftmq/transport/remoting"
)

// storeHealth fills in what the status says about scrub and repair.
func (n *node) storeHealth(s *remoting.NodeStatus) {
	scrub, repair := n.group.store.ScrubStats(), n.group.store.RepairStats()
	size := n.cfg.MappedFileSizeCommitLog
	s.Scrub = &remoting.ScrubStatus{At: scrub.At, End: scrub.End, Rate: scrub.Rate, Passes: scrub.Passes,
		Segments: int(max(s.LogMax/size-(s.LogMin+size-1)/size, 0)), Agreed: n.group.tables.SegmentSums()}
	if !scrub.Began.IsZero() {
		s.Scrub.BeganMs = scrub.Began.UnixMilli()
	}
	if !scrub.Ended.IsZero() {
		s.Scrub.EndedMs = scrub.Ended.UnixMilli()
	}
	s.Repair = &remoting.RepairStatus{Found: repair.Found, Repaired: repair.Repaired, RepairedBytes: repair.RepairedBytes, Units: scrub.UnitsRepaired}
	for _, d := range repair.Damaged {
		r := remoting.DamagedRange{From: d.From, To: d.To, File: d.File, Pos: d.Pos, Reason: d.Reason, Tried: d.Tried}
		if !d.Since.IsZero() {
			r.SinceMs = d.Since.UnixMilli()
		}
		s.Repair.Damaged = append(s.Repair.Damaged, r)
	}
}

// scrubText is how far the present pass is, and how many there were.
func scrubText(s *nodeStatus) string {
	switch sc := s.Scrub; {
	case sc == nil:
		return "-"
	case sc.Rate <= 0:
		return "off"
	case sc.End <= s.LogMin:
		return "100%"
	default:
		part := min(max(float64(sc.At-s.LogMin)/float64(sc.End-s.LogMin), 0), 1)
		return fmt.Sprintf("%.0f%%, %d done", 100*part, sc.Passes)
	}
}

// repairText is what was found damaged.
func repairText(s *nodeStatus) string {
	switch r := s.Repair; {
	case r == nil:
		return "-"
	case len(r.Damaged) > 0:
		return fmt.Sprintf("%d DAMAGED", len(r.Damaged))
	case r.Repaired+r.Units > 0:
		return fmt.Sprintf("%d repaired", r.Repaired+r.Units)
	}
	return "ok"
}

// catchUpText is how much of what it lacks a node has fetched, or how much of the log it has if Raft's log fills it.
func catchUpText(n *nodeAnswer) string {
	s := n.Status
	if c := s.CatchUp; c != nil && c.To > c.From {
		return fmt.Sprintf("fetched %.0f%%", 100*float64(c.At-c.From)/float64(c.To-c.From))
	}
	if n.Behind == nil || s.CaughtUp && s.suffrage(s.NodeID) != "nonvoter" || s.Role == "leader" {
		return "-"
	}
	have := s.LogMax - s.LogMin
	if have+n.Behind.Bytes <= 0 {
		return "100%"
	}
	return fmt.Sprintf("%.0f%%", 100*float64(have)/float64(have+n.Behind.Bytes))
}

// damageText says in one sentence what of a node's log is damaged, and what to do; "" when nothing is.
func damageText(r *remoting.RepairStatus) string {
	if r == nil || len(r.Damaged) == 0 {
		return ""
	}
	d := r.Damaged[0]
	text := fmt.Sprintf("log bytes %d to %d are damaged (%s, offset %d)", d.From, d.To, d.File, d.Pos)
	if more := len(r.Damaged) - 1; more > 0 {
		text += fmt.Sprintf(", and %d other ranges", more)
	}
	if d.Tried == "" {
		return text + ": they are being fetched from another node, everything else is served"
	}
	return text + ", and no other node could help (" + d.Tried + "): start the other nodes, or restore one that has them whole; everything else is served"
}
