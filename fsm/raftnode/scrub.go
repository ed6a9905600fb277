package raftnode

import (
	"context"
	"errors"
	"fmt"

	"github.com/hashicorp/raft"
)

// CheckLog reads the whole Raft log from the disk and compares each entry with its checksum: ErrLogDamaged names the first one that is not what was stored. pace is called with the
// bytes that were read since, and waits; its error ends the check. The log may grow and be compacted meanwhile. Before Close.
func (n *Node) CheckLog(ctx context.Context, pace func(ctx context.Context, bytes int64) error) error {
	first, last := n.logs.bounds()
	for i := first; i <= last && last > 0; i++ {
		var l raft.Log
		err := n.logs.read(i, &l)
		if err != nil {
			if now, end := n.logs.bounds(); i < now || i > end {
				continue // compacted, or cut, meanwhile
			}
			if errors.Is(err, ErrLogDamaged) {
				return err
			}
			return fmt.Errorf("raftnode: read log entry %d: %w", i, err)
		}
		if err := pace(ctx, entrySize(&l)); err != nil {
			return err
		}
	}
	return nil
}
