package main

import (
	"context"
	"fmt"
	"io"
	"slices"

	"raftmq/commitlog/store"
	"raftmq/transport/metrics"
	"raftmq/transport/remoting"
)

// copies are the other members of the group that may have damaged log bytes whole, the leader first. None before this node takes part.
func (g *brokerGroup) copies(context.Context) []store.Copy {
	if !g.started.Load() {
		return nil
	}
	servers, err := g.raft.Servers()
	if err != nil {
		return nil
	}
	leader := g.raft.State().LeaderID
	var out []store.Copy
	for _, s := range servers {
		addr := g.clientAddrOf(s.ID)
		if s.ID == g.cfg.NodeID || addr == "" {
			continue
		}
		c := store.Copy{Node: s.ID, Fetch: func(ctx context.Context, from, to int64, w io.Writer) error {
			peer, err := g.peers.Client(ctx, addr)
			if err != nil {
				return err
			}
			return peer.FetchLog(ctx, from, to, w)
		}}
		if s.ID == leader {
			out = slices.Insert(out, 0, c)
		} else {
			out = append(out, c)
		}
	}
	return out
}

// repairLog compares log bytes with other nodes' and takes theirs where the own ones are damaged.
func (n *node) repairLog(_ context.Context, req remoting.RepairLogRequest) (any, error) {
	return struct{}{}, n.group.store.SuspectLog(req.From, req.To, fmt.Errorf("the leader asks for a comparison: %s", req.Reason))
}

// replicaText is a leader's alarm about replicas that differ, "" without one.
func replicaText(s *nodeStatus) string {
	if s.Replicas == nil || s.Replicas.Alarm == "" {
		return ""
	}
	return fmt.Sprintf("%s: REPLICAS DIFFER: %s\n", s.NodeID, s.Replicas.Alarm)
}

// healingMetrics are the figures of scrub and repair.
func (n *node) healingMetrics() []metrics.Metric {
	st := n.group.store
	gauge := func(name, help string, f func() float64) metrics.Metric {
		return metrics.Metric{Name: name, Help: help, Kind: metrics.Gauge, Value: f}
	}
	counter := func(name, help string, f func() float64) metrics.Metric {
		return metrics.Metric{Name: name, Help: help, Kind: metrics.Counter, Value: f}
	}
	return []metrics.Metric{
		gauge("scrub_offset_bytes", "physical offset that the scrub has come to", func() float64 { return float64(st.ScrubStats().At) }),
		counter("scrub_passes_total", "whole passes of the scrub, over restarts", func() float64 { return float64(st.ScrubStats().Passes) }),
		counter("scrub_verified_bytes_total", "log bytes that the scrub has verified", func() float64 { return float64(st.ScrubStats().Verified) }),
		gauge("damaged_ranges", "ranges of the log that are damaged and not served", func() float64 { return float64(len(st.RepairStats().Damaged)) }),
		gauge("damaged_bytes", "bytes of them", func() float64 {
			var sum int64
			for _, d := range st.RepairStats().Damaged {
				sum += d.To - d.From
			}
			return float64(sum)
		}),
		counter("damage_found_total", "damaged ranges of the log that were found", func() float64 { return float64(st.RepairStats().Found) }),
		counter("damage_repaired_total", "damaged ranges of the log that were repaired", func() float64 { return float64(st.RepairStats().Repaired) }),
		counter("queue_units_repaired_total", "damaged consume queue units that were written again", func() float64 { return float64(st.ScrubStats().UnitsRepaired) }),
		gauge("replicas_differ", "nodes that held something else than most at the last comparison, as this leader found", func() float64 { return float64(n.replicas.differing()) }),
	}
}
