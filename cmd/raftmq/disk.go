package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"raftmq/commitlog/store"
	"raftmq/fsm/raftnode"
	"raftmq/membership"
)

// diskSizes are the bytes that this node takes ahead or puts by on its disk. On a disk of 2.5 GB and more they are the
// defaults of the packages that use them; on a smaller one each is a part of it, so that a node fits a disk of 64 MiB too.
type diskSizes struct {
	walSegment   int64 // of the Raft log, taken as a whole
	allocateStep int64 // of the commit log, taken ahead
	reserve      int64 // put by for what is in flight when the disk gets full, and for the Raft log's next segment
	minFree      int64 // below it the disk counts as full
	inFlight     int64 // commands that wait for Raft: with one more of the largest, and a segment of the Raft log, what the reserve must hold
	raftLog      int64 // the most of --raft-snapshot-bytes and --raft-trailing-bytes
}

// sizesFor fits them to a disk of total bytes, 0 when that is not known.
func sizesFor(total int64) diskSizes {
	const largest = 64 * gib
	if total <= 0 {
		total = largest
	}
	part := max(total/16/mib, 1) * mib
	return diskSizes{walSegment: min(64*mib, part), allocateStep: min(64*mib, part), reserve: min(144*mib, part), minFree: min(128*mib, 2*part),
		inFlight: min(56*mib, max(part/2, mib)), raftLog: max(2*part, mib)}
}

var errNotWriteable = errors.New("this node's store takes no messages now")

// proposeRecords is raft.Propose for what stores messages: nothing goes on its way that Apply might have no room for.
func (g *brokerGroup) proposeRecords(p raftnode.Proposal) error {
	if g.peersFull.Load() {
		return fmt.Errorf("%w: the disks of a majority are full", errNotWriteable)
	}
	if g.store.PutStatus() != store.PutOK {
		return fmt.Errorf("%w (%s)", errNotWriteable, g.store.Flags())
	}
	return g.raft.Propose(p)
}

// How often watchDisks looks, and how recently a voter must have answered the leader to count as one that can store.
const (
	watchDisksEvery = 250 * time.Millisecond
	answersWithin   = 2 * time.Second
)

// watchDisks tells the others by gossip when this node's disk is full, and, while this node leads, notes when theirs are: a leader with room
// whose followers have none would go on until their Raft logs have no space and they stop, and with them reads, offsets and the quorum.
// Refusing messages before that keeps everything else going (F27).
func (n *node) watchDisks() {
	tick := time.NewTicker(watchDisksEvery)
	defer tick.Stop()
	told := false
	for {
		select {
		case <-tick.C:
		case <-n.ctx.Done():
			return
		}
		if full := !n.group.store.Flags().Writeable(); full != told {
			if err := n.members.UpdateTags(func(t *membership.Tags) { t.DiskFull = full }); err != nil {
				n.logger.Warn("could not spread by gossip that the disk is full", "full", full, "error", err)
			} else {
				told = full
			}
		}
		short := n.group.raft.State().Ready && n.majorityFull()
		switch was := n.group.peersFull.Swap(short); {
		case short && !was:
			n.logger.Warn("the disks of so many voters are full that no majority could store a message, so messages are refused")
		case was && !short:
			n.logger.Info("messages are taken again, as far as other voters' disks are concerned")
		}
	}
}

// majorityFull reports that voters with full disks are what a majority lacks. What a node says of its own disk counts as long as it
// answers this leader's Raft; one that does not is no matter of disks.
func (n *node) majorityFull() bool {
	servers, err := n.group.raft.Servers()
	if err != nil {
		return false
	}
	heard := map[string]time.Time{}
	for _, c := range n.group.raft.Contacts() {
		heard[c.ID] = c.At
	}
	voters, able, full := 0, 0, 0
	for _, s := range servers {
		if !s.Voter {
			continue
		}
		voters++
		m, _ := n.members.Member(s.ID)
		switch {
		case s.ID == n.cfg.NodeID:
			if n.group.store.Flags().Writeable() {
				able++
			} else {
				full++
			}
		case time.Since(heard[s.ID]) > answersWithin:
		case m.DiskFull && m.Incarnation == s.Incarnation:
			full++
		default:
			able++
		}
	}
	return able <= voters/2 && able+full > voters/2
}

// Pace of leaveFullDisk.
const (
	leaveAfter = 2 * time.Second
	leaveAgain = 10 * time.Second
)

// leaveFullDisk hands leadership over when this node's store takes no messages and another voter's does (F27). Leader only.
func (g *brokerGroup) leaveFullDisk(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	next := time.Time{} // of an attempt; zero while the store is well
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		switch {
		case g.store.Flags().Writeable():
			next = time.Time{}
			continue
		case next.IsZero():
			next = time.Now().Add(leaveAfter)
		}
		if time.Now().Before(next) {
			continue
		}
		next = time.Now().Add(leaveAgain)
		to, ok := g.writeablePeer(ctx)
		if !ok {
			continue
		}
		g.logger.Warn("handing leadership to a node whose disk takes messages", "to", to, "flags", g.store.Flags())
		if err := g.raft.TransferLeadershipTo(to); err != nil && ctx.Err() == nil {
			g.logger.Warn("could not hand leadership over", "to", to, "error", err)
		}
	}
}

// writeablePeer is another voter whose store takes messages.
func (g *brokerGroup) writeablePeer(ctx context.Context) (nodeID string, ok bool) {
	return g.peer(ctx, func(s *nodeStatus) bool { return s.RunningFlags == "" })
}

// spare reports whether another voter's disk is not so full that messages would have to go before their time.
func (g *brokerGroup) spare(ctx context.Context) bool {
	_, ok := g.peer(ctx, func(s *nodeStatus) bool {
		return s.RunningFlags == "" && s.DiskRatio >= 0 && s.DiskRatio <= float64(g.cfg.DiskSpaceCleanForciblyRatio)/100
	})
	return ok
}

// peer asks the other voters until one is as wanted and follows this node.
func (g *brokerGroup) peer(ctx context.Context, wanted func(*nodeStatus) bool) (nodeID string, ok bool) {
	servers, err := g.raft.Servers()
	if err != nil {
		return "", false
	}
	for _, s := range servers {
		addr := g.clientAddrOf(s.ID)
		if s.ID == g.cfg.NodeID || !s.Voter || addr == "" {
			continue
		}
		asking, cancel := context.WithTimeout(ctx, time.Second)
		status, err := fetchStatus(asking, addr)
		cancel()
		if err == nil && status.LeaderID == g.cfg.NodeID && wanted(status) {
			return s.ID, true
		}
	}
	return "", false
}
