package store

import "raftmq/seam"

// short makes of a snapshot's position one that ends where this log ends, for bugs (package seam) that take a log for whole.
func (s *Store) short(p Position) Position {
	_, end := s.LogRange()
	if !seam.On(seam.TruncateLog) && !seam.On(seam.SkipInstall) || p.LogEnd <= end {
		return p
	}
	s.logger.Warn("planted bug: a log that lacks bytes counts as whole", "log-end", end, "snapshot-log-end", p.LogEnd, "snapshot-index", p.RaftIndex)
	queues := make([]QueueOffset, len(p.QueueOffsets))
	for i, q := range p.QueueOffsets {
		q.Next = min(q.Next, s.MaxOffset(q.Topic, q.QueueID))
		queues[i] = q
	}
	p.LogEnd, p.MinOffset, p.QueueOffsets = end, min(p.MinOffset, end), queues
	return p
}
