package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
)

// Checkpoint is the file checkpoint (RocketMQ's StoreCheckpoint): big-endian 8-byte integers at the start of a
// page. The last two are RocketMQ 5's.
type Checkpoint struct {
	Size int64 `json:"size"`

	PhysicMsgTimestamp  int64 `json:"physicMsgTimestamp"` // ms
	LogicsMsgTimestamp  int64 `json:"logicsMsgTimestamp"`
	IndexMsgTimestamp   int64 `json:"indexMsgTimestamp"`
	MasterFlushedOffset int64 `json:"masterFlushedOffset"`
	ConfirmPhyOffset    int64 `json:"confirmPhyOffset"`
	RestIsZero          bool  `json:"restIsZero"`
}

const checkpointFields = 40

func decodeCheckpoint(b []byte) Checkpoint {
	c := Checkpoint{Size: int64(len(b))}
	for i, p := range []*int64{&c.PhysicMsgTimestamp, &c.LogicsMsgTimestamp, &c.IndexMsgTimestamp, &c.MasterFlushedOffset, &c.ConfirmPhyOffset} {
		if len(b) >= 8*i+8 {
			*p = int64(binary.BigEndian.Uint64(b[8*i:]))
		}
	}
	c.RestIsZero = len(b) <= checkpointFields || allZero(b[checkpointFields:])
	return c
}

// Checkpoint reads the checkpoint; nil when there is none.
func (s *Store) Checkpoint() (*Checkpoint, error) {
	b, err := readHead(filepath.Join(s.Dir, checkpointName), 1<<20)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c := decodeCheckpoint(b)
	return &c, nil
}

// readHead is os.ReadFile for at most max bytes.
func readHead(path string, max int64) ([]byte, error) {
	src, err := openSource(path)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	b := make([]byte, min(src.size, max))
	n, err := src.ReadAt(b, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	return b[:n], nil
}
