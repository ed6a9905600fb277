package command

// SegmentSum is the payload of KindSegmentSum: the checksum of a sealed segment of the commit log, which a majority of the replicas has found to hold.
// It is part of the manifest in snapshots, so that each node can tell which of its own segments are whole.
type SegmentSum struct {
	From int64 `json:"from"` // physical offset; a multiple of the segment size
	// Sum is the CRC-32C (Castagnoli) of all bytes of the segment.
	Sum uint32 `json:"sum"`
}
