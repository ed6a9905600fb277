package store

import "time"

// Stats for status and metrics.
type Stats struct {
	MinOffset, MaxOffset, FlushedTo, DispatchedTo int64
	FileMin                                       int64 // below MinOffset while trimmed segments wait for their removal
	Queues, Segments, HangedSegments              int   // hanged: removed, and still read by somebody
	PutMessages, PutBytes                         uint64
	// ColdReads, ColdMessages and ColdBytes are what Get returned of messages that no longer count as in memory.
	ColdReads, ColdMessages, ColdBytes uint64
	// Uncommitted is what waits in write buffers, bytes; FreeBuffers how many of those are free, -1 without a pool.
	Uncommitted int64
	FreeBuffers int
	// Of the key index; 0 without one.
	IndexedTo    int64 // physical offset up to which keys can be found
	IndexFiles   int
	IndexEntries int64

	FlushCount uint64
	LastFlush  time.Duration
}

// Stats returns a snapshot.
func (s *Store) Stats() Stats {
	low, end := s.LogRange()
	st := Stats{
		MinOffset: low, MaxOffset: end, FileMin: s.log.FileMin(), HangedSegments: s.log.Hanged(),
		FlushedTo: s.log.FlushedTo(), DispatchedTo: s.DispatchedTo(),
		Queues:      s.queues.Len(),
		PutMessages: s.putMessages.Load(), PutBytes: s.putBytes.Load(),
	}
	st.Segments = s.log.Segments()
	st.ColdReads, st.ColdMessages, st.ColdBytes = s.cold.reads.Load(), s.cold.messages.Load(), s.cold.bytes.Load()
	st.FreeBuffers = -1
	if s.pool != nil {
		st.Uncommitted, st.FreeBuffers = s.log.Uncommitted(), s.pool.Available()
	}
	if x := s.index; x != nil {
		ix := x.ix.Stats()
		st.IndexedTo, st.IndexFiles, st.IndexEntries = x.ix.Mark().PhyOffset(), ix.Files, ix.Entries
	}
	flushed := s.flush.stats()
	st.FlushCount, st.LastFlush = flushed.Count, flushed.Last
	return st
}
