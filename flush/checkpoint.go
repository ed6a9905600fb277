package flush

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// Layout of the file `checkpoint` (RocketMQ's StoreCheckpoint, 4.9.4), big-endian, 4096 bytes:
//
//	0   8  physicMsgTimestamp: store time of the newest message that is durable in the log, ms
//	8   8  logicsMsgTimestamp: store time of the newest message that is durable in the consume queues, ms
//	16  8  indexMsgTimestamp: end timestamp of the newest index file that is full and durable, ms
//	24     zero (RocketMQ 5 has two more fields here, for its controller)
const (
	CheckpointSize    = 4096
	checkpointFields  = 24
	checkpointFields5 = 40 // of RocketMQ 5
	// checkpointSlack is what RocketMQ takes off a timestamp before it relies on it.
	checkpointSlack = 3000
)

// ErrCheckpoint: the bytes are no checkpoint.
var ErrCheckpoint = errors.New("flush: damaged checkpoint")

// Checkpoint is what the file says. RaftMQ writes it for RocketMQ and its tools and never recovers by it: its own recovery
// points know offsets, not times.
type Checkpoint struct {
	Physic, Logics, Index int64
}

// MinTimestamp is where RocketMQ's recovery begins: with the segment whose first record is not newer.
func (c Checkpoint) MinTimestamp() int64 { return max(0, min(c.Physic, c.Logics)-checkpointSlack) }

// MinTimestampIndex is the same where messageIndexSafe is on.
func (c Checkpoint) MinTimestampIndex() int64 { return min(c.MinTimestamp(), c.Index) }

// AppendCheckpoint appends the whole file.
func AppendCheckpoint(dst []byte, c Checkpoint) []byte {
	for _, t := range [...]int64{c.Physic, c.Logics, c.Index} {
		dst = binary.BigEndian.AppendUint64(dst, uint64(t))
	}
	return append(dst, make([]byte, CheckpointSize-checkpointFields)...)
}

// DecodeCheckpoint reads a file of RocketMQ 4 or 5 or of our own. The format has no checksum: a wrong size, negative times and
// bytes behind the fields are ErrCheckpoint, nothing else can be told.
func DecodeCheckpoint(b []byte) (Checkpoint, error) {
	if len(b) != CheckpointSize {
		return Checkpoint{}, fmt.Errorf("%w: %d bytes, expected %d", ErrCheckpoint, len(b), CheckpointSize)
	}
	t := func(at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }
	c := Checkpoint{Physic: t(0), Logics: t(8), Index: t(16)}
	if c.Physic < 0 || c.Logics < 0 || c.Index < 0 {
		return Checkpoint{}, fmt.Errorf("%w: times %d, %d, %d", ErrCheckpoint, c.Physic, c.Logics, c.Index)
	}
	for i, x := range b[checkpointFields5:] {
		if x != 0 {
			return Checkpoint{}, fmt.Errorf("%w: byte %d is %#02x, expected 0", ErrCheckpoint, checkpointFields5+i, x)
		}
	}
	return c, nil
}

// CheckpointFile is the open file. One caller at a time.
type CheckpointFile struct {
	f    *os.File
	last Checkpoint
	ok   bool // the file holds last
}

// OpenCheckpoint opens or creates the file. why tells what is wrong with it, also that it is new, else nil; the first Write
// puts it right.
func OpenCheckpoint(path string) (c *CheckpointFile, why, err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, nil, fmt.Errorf("flush: %w", err)
	}
	c = &CheckpointFile{f: f}
	b, err := io.ReadAll(io.LimitReader(f, CheckpointSize+1))
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("flush: %w", err), f.Close())
	}
	c.last, why = DecodeCheckpoint(b)
	c.ok = why == nil
	return c, why, nil
}

// Last is what the file says, zero when it says nothing.
func (c *CheckpointFile) Last() Checkpoint { return c.last }

// Write stores now. It does not wait for the disk: times that a power cut takes back only make RocketMQ's recovery
// begin earlier.
func (c *CheckpointFile) Write(now Checkpoint) error {
	if c.ok && now == c.last {
		return nil
	}
	b := AppendCheckpoint(make([]byte, 0, CheckpointSize), now)
	err := error(nil)
	if !c.ok {
		err = c.f.Truncate(CheckpointSize)
	}
	if err == nil {
		_, err = c.f.WriteAt(b, 0)
	}
	if err != nil {
		c.ok = false
		return fmt.Errorf("flush: checkpoint: %w", err)
	}
	c.last, c.ok = now, true
	return nil
}

// Close makes what was written durable and closes the file.
func (c *CheckpointFile) Close() error { return errors.Join(c.f.Sync(), c.f.Close()) }
