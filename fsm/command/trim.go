package command

// LogTrim moves the commit log's minimum to a segment boundary on every node alike: what is below it is no longer there
// for readers, and each node removes the files in its own time. It is refused when the boundary is none, or in the
// last segment; one at or below the minimum changes nothing.
type LogTrim struct {
	MinOffset int64 `json:"minOffset"` // physical offset, bytes
}
