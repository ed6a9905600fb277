package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
)

// Pace of segmentLoop: how often it looks for sealed segments, and how many without a checksum it does at a look. An old log without any is
// through after a while; a new segment is found soon after it is full.
const (
	segmentInterval = 2 * time.Second
	segmentsAtOnce  = 8
)

// segmentLoop makes the checksums of sealed segments part of the tables, when a majority of the voters has applied the same bytes. While this node
// leads.
func (n *node) segmentLoop(ctx context.Context) {
	tick := time.NewTicker(segmentInterval)
	defer tick.Stop()
	told := map[int64]bool{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if !command.KindSegmentSum.AllowedAt(n.group.tables.Level()) {
			continue // some node may be of an older raftmq
		}
		size := n.cfg.MappedFileSizeCommitLog
		low, end := n.group.store.LogRange()
		todo := segmentsAtOnce
		for from := (low + size - 1) / size * size; from+size <= end && todo > 0 && ctx.Err() == nil; from += size {
			if _, ok := n.group.tables.SegmentSum(from); ok {
				continue
			}
			todo--
			if err := n.agreeOn(ctx, from, from+size); err != nil && ctx.Err() == nil && !told[from] {
				told[from] = true
				n.logger.Warn("the replicas have not agreed on a segment's checksum yet, trying on", "segment", from, "error", err)
			}
		}
	}
}

var errNoAgreement = errors.New("too few voters have applied the same bytes, or could be asked")

// agreeOn asks all voters for the checksum of a segment as they have applied it, and proposes what the majority says.
func (n *node) agreeOn(ctx context.Context, from, to int64) error {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	servers, err := n.group.raft.Servers()
	if err != nil {
		return err
	}
	votes, voters := map[uint32]int{}, 0
	for _, s := range servers {
		if !s.Voter {
			continue
		}
		voters++
		sum, err := n.logSumOf(ctx, s.ID, from, to)
		if err != nil {
			n.logger.Debug("no checksum of a segment", "node", s.ID, "segment", from, "error", err)
			continue
		}
		votes[sum]++
	}
	for sum, count := range votes {
		if count <= voters/2 {
			continue
		}
		err := n.group.proposeJSON(ctx, command.KindSegmentSum, command.SegmentSum{From: from, Sum: sum})
		if errors.Is(err, metadata.ErrSegment) {
			return nil // trimmed meanwhile
		}
		return err
	}
	return fmt.Errorf("%w: %d voters, %d checksums", errNoAgreement, voters, len(votes))
}
