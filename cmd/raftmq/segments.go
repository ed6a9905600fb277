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
	told := disagreements{}
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
			if err := n.agreeOn(ctx, from); ctx.Err() == nil && told.news(from, err) {
				n.logger.Warn("the replicas have not agreed on a segment's checksum yet, trying on", "segment", from, "error", err)
			}
		}
		told.below(low)
	}
}

// disagreements are the segments whose disagreement was told.
type disagreements map[int64]bool

// news notes how asking about a segment has ended, and reports whether a disagreement has begun.
func (d disagreements) news(segment int64, err error) bool {
	if err == nil {
		delete(d, segment)
		return false
	}
	had := d[segment]
	d[segment] = true
	return !had
}

// below forgets segments that are gone.
func (d disagreements) below(low int64) {
	for segment := range d {
		if segment < low {
			delete(d, segment)
		}
	}
}

var errNoAgreement = errors.New("too few voters have applied the same bytes, or could be asked")

// agreeOn asks all voters for the checksum of a segment as they have applied it, and proposes what the majority says.
func (n *node) agreeOn(ctx context.Context, from int64) error {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	servers, err := n.group.raft.Servers()
	if err != nil {
		return err
	}
	var sums []uint32
	voters := 0
	for _, s := range servers {
		if !s.Voter {
			continue
		}
		voters++
		sum, err := n.segmentSumOf(ctx, s.ID, from)
		if err != nil {
			n.logger.Debug("no checksum of a segment", "node", s.ID, "segment", from, "error", err)
			continue
		}
		sums = append(sums, sum)
	}
	sum, err := agreed(sums, voters)
	if err != nil {
		return err
	}
	err = n.group.proposeJSON(ctx, command.KindSegmentSum, command.SegmentSum{From: from, Sum: sum})
	if errors.Is(err, metadata.ErrSegment) {
		return nil // trimmed meanwhile
	}
	return err
}

// agreed is the checksum that more than half of all voters have, of those that answered.
func agreed(sums []uint32, voters int) (uint32, error) {
	votes := map[uint32]int{}
	for _, sum := range sums {
		if votes[sum]++; votes[sum] > voters/2 {
			return sum, nil
		}
	}
	return 0, fmt.Errorf("%w: %d voters, %d answered with %d different checksums", errNoAgreement, voters, len(sums), len(votes))
}
