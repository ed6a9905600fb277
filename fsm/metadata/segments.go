package metadata

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"raftmq/fsm/command"
)

// Refusals of PutSegmentSum.
var (
	// ErrSegment: no segment begins there, or it is not sealed, or trimmed.
	ErrSegment = errors.New("metadata: no sealed segment of the log")
	// ErrSegmentSum: the segment has another checksum already. Bytes of a sealed segment never change.
	ErrSegmentSum = errors.New("metadata: the segment has another checksum")
)

// PutSegmentSum stores the checksum of a sealed segment of the log, which has bytes [low, end) at this entry.
func (t *Tables) PutSegmentSum(s command.SegmentSum, low, end int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.requireSettingsLocked(); err != nil {
		return err
	}
	size := t.settings.SegmentSize
	if s.From < low || s.From%size != 0 || s.From+size > end {
		return fmt.Errorf("%w: [%d, %d), the log is [%d, %d)", ErrSegment, s.From, s.From+size, low, end)
	}
	if have, ok := t.segments[s.From]; ok && have != s.Sum {
		return fmt.Errorf("%w: segment %d has %08x, not %08x", ErrSegmentSum, s.From, have, s.Sum)
	}
	t.segments[s.From] = s.Sum
	return nil
}

// TrimSegments forgets the checksums of segments below the log's minimum.
func (t *Tables) TrimSegments(low int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	maps.DeleteFunc(t.segments, func(from int64, _ uint32) bool { return from < low })
}

// SegmentSum is the checksum of the sealed segment that begins at a physical offset, as the replicas have agreed on it.
func (t *Tables) SegmentSum(from int64) (sum uint32, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	sum, ok = t.segments[from]
	return sum, ok
}

// SegmentSums is how many segments have a checksum.
func (t *Tables) SegmentSums() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.segments)
}

// exportSegments lists the checksums by segment.
func (t *Tables) exportSegments() (list []command.SegmentSum) {
	for _, from := range slices.Sorted(maps.Keys(t.segments)) {
		list = append(list, command.SegmentSum{From: from, Sum: t.segments[from]})
	}
	return list
}
