package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"time"

	"raftmq/fsm/command"
	"raftmq/fsm/raftnode"
	"raftmq/membership"
	"raftmq/transport"
	"raftmq/transport/metrics"
	"raftmq/transport/remoting"
)

// registerStatus answers remoting.RequestNodeStatus.
func (n *node) registerStatus(s *transport.Server) {
	s.Handle(remoting.RequestNodeStatus, func(r transport.Responder, cmd *remoting.Command) {
		status := n.status()
		if to := cmd.GetString("checksumTo"); to != "" {
			end, err := strconv.ParseInt(to, 10, 64)
			if err == nil {
				var sum uint32
				if sum, err = n.group.store.Checksum(status.LogMin, end); err == nil {
					status.ChecksumTo, status.LogChecksum = end, fmt.Sprintf("%08x", sum)
				}
			}
			if err != nil {
				r.ReplyError(remoting.ResponseSystemError, fmt.Sprintf("checksum of log bytes [%d,%s): %v", status.LogMin, to, err))
				return
			}
		}
		b, err := json.Marshal(&status)
		if err != nil {
			r.ReplyError(remoting.ResponseSystemError, err.Error())
			return
		}
		r.Reply(&remoting.Command{Code: remoting.ResponseSuccess, Body: b})
	})
}

func (n *node) status() remoting.NodeStatus {
	g := n.group
	state, idx, st := g.raft.State(), g.raft.Indexes(), g.store.Stats()
	settings, _ := g.tables.Settings()
	disk := g.store.Space().CommitLog
	s := remoting.NodeStatus{NodeID: n.cfg.NodeID, Version: version, ClusterName: n.cfg.ClusterName, ClusterID: settings.ClusterID, Group: n.cfg.BrokerName,
		UptimeSeconds: time.Since(n.started).Seconds(), ClockMillis: n.cfg.wallClock().UnixMilli(), Level: int(command.Newest), ClusterLevel: int(g.tables.Level()), Role: string(state.Role), Term: state.Term, LeaderID: state.LeaderID, Ready: state.Ready,
		AppliedIndex: g.fsm.Applied(), CommitIndex: idx.Commit, LastRaftIndex: idx.Last, SnapshotIndex: idx.Snapshot,
		LogMin: st.MinOffset, LogMax: st.MaxOffset, FlushedTo: st.FlushedTo, DispatchedTo: st.DispatchedTo, Queues: st.Queues, Segments: st.Segments,
		LogFileMin: st.FileMin, RunningFlags: g.store.Flags().String(), DiskRatio: disk.Ratio(), DiskFree: disk.Usable, DiskTotal: disk.Total,
		FlushDiskType: n.cfg.FlushDiskType, RaftLogStore: n.cfg.RaftLogStore, Mode: n.cfg.mode(), Durability: n.cfg.Durability(),
		CaughtUp: g.caughtUp(), LastContactMillis: contactMillis(state, idx.LastContact)}
	if p := g.raft.DiskProblem(); p != nil {
		s.DiskProblem = p.Reason
	}
	if g.drain.on() {
		d := n.drainStatus()
		s.Drain = &d
	}
	s.CatchUp = g.catchUpStatus()
	s.Peers = n.peers(state)
	n.storeHealth(&s)
	if state.Role == raftnode.Leader {
		s.Replicas = n.replicas.status()
	}
	s.Problem = n.problem(state, s.Peers, s.Repair)
	return s
}

// contactMillis is how long ago the leader was heard.
func contactMillis(state raftnode.State, last time.Time) int64 {
	switch {
	case state.Role == raftnode.Leader:
		return 0
	case last.IsZero():
		return -1
	}
	return time.Since(last).Milliseconds()
}

// peers joins what Raft's configuration, the tables and gossip know.
func (n *node) peers(state raftnode.State) []remoting.PeerStatus {
	var out []remoting.PeerStatus
	at := map[string]int{}
	add := func(id string) *remoting.PeerStatus {
		i, ok := at[id]
		if !ok {
			i = len(out)
			at[id] = i
			out = append(out, remoting.PeerStatus{NodeID: id, Gossip: "unknown", Suffrage: "none", Leader: id == state.LeaderID})
		}
		return &out[i]
	}
	servers, err := n.group.raft.Servers()
	if err != nil {
		servers = nil // shutting down
	}
	for _, s := range servers {
		p := add(s.ID)
		p.RaftAddr, p.Suffrage = s.RaftAddr, "nonvoter"
		if s.Voter {
			p.Suffrage = "voter"
		}
	}
	if state.Role == raftnode.Leader {
		for _, c := range n.group.raft.Contacts() {
			p := add(c.ID)
			p.LastContactMillis, p.LastRaftIndex = -1, c.LastIndex
			if !c.At.IsZero() {
				p.LastContactMillis = time.Since(c.At).Milliseconds()
			}
		}
	}
	for _, m := range n.members.Members() {
		if m.Group != n.cfg.BrokerName || m.ClusterName != n.cfg.ClusterName {
			continue
		}
		p := add(m.NodeID)
		p.Gossip, p.GossipAddr, p.ClientAddr, p.HTTPAddr = string(m.State), m.GossipAddr, m.ClientAddr, m.HTTPAddr
		if p.RaftAddr == "" {
			p.RaftAddr = m.RaftAddr
		}
	}
	for i := range out {
		node, ok := n.group.tables.Node(out[i].NodeID)
		if !ok {
			continue
		}
		if !out[i].Leader {
			out[i].BrokerID = node.Number
		}
		if out[i].ClientAddr == "" {
			out[i].ClientAddr, out[i].HTTPAddr = node.ClientAddr, node.HTTPAddr
		}
	}
	return out
}

// problem says what is wrong in one sentence, with what to do.
func (n *node) problem(state raftnode.State, peers []remoting.PeerStatus, repair *remoting.RepairStatus) string {
	voters, alive := 0, 0
	var down []string
	for _, p := range peers {
		if p.Suffrage != "voter" {
			continue
		}
		voters++
		if p.Gossip == string(membership.Alive) || p.NodeID == n.cfg.NodeID {
			alive++
		} else {
			down = append(down, p.NodeID)
		}
	}
	member := slices.ContainsFunc(peers, func(p remoting.PeerStatus) bool { return p.NodeID == n.cfg.NodeID && p.Suffrage != "none" })
	switch p := n.group.raft.DiskProblem(); {
	case p != nil:
		return fmt.Sprintf("the disk is not well, so this node neither leads nor stands: %s; it comes back by itself when the disk does", p.Reason)
	case voters > 0 && !member:
		return fmt.Sprintf("not a member of the group: the leader adds it when gossip reaches it, unless it was removed by force (then: raftmq cluster add %s)", n.cfg.NodeID)
	case voters == 0:
		return fmt.Sprintf("not part of a cluster yet: it needs --join to reach one, or %d nodes with --bootstrap-expect to form one", max(n.cfg.BootstrapExpect, 1))
	case state.LeaderID == "" && alive*2 <= voters:
		return fmt.Sprintf("no quorum: %d of %d voters answer gossip; start %v", alive, voters, down)
	case state.LeaderID == "":
		return "no leader: an election is going on, or this node is cut off from the Raft ports of its peers"
	case n.raftHealth.problem() != "":
		return n.raftHealth.problem()
	case damageText(repair) != "":
		return damageText(repair)
	case len(down) > 0:
		return fmt.Sprintf("voters down: %v; start them, the cluster works while a majority is up", down)
	case !n.group.store.Flags().Writeable():
		space := n.group.store.Space().CommitLog
		return fmt.Sprintf("this node's store takes no messages (%s): %.0f %% of the disk of %s is in use, %s are usable; make room, it goes on by itself",
			n.group.store.Flags(), 100*space.Ratio(), space.Path, formatSize(space.Usable))
	case n.group.peersFull.Load():
		return "messages are refused, since the disks of other voters are full and no majority could store them; make room there, it goes on by itself"
	case !n.group.caughtUp() && n.group.catchUpStatus() == nil: // which says it better
		return "catching up with what it had applied before it stopped"
	}
	return ""
}

// metrics are this node's own figures; raft and memberlist write theirs through go-metrics.
func (n *node) metrics() []metrics.Metric {
	g := n.group
	gauge := func(name, help string, f func() float64) metrics.Metric {
		return metrics.Metric{Name: name, Help: help, Kind: metrics.Gauge, Value: f}
	}
	counter := func(name, help string, f func() float64) metrics.Metric {
		return metrics.Metric{Name: name, Help: help, Kind: metrics.Counter, Value: f}
	}
	return []metrics.Metric{
		gauge("leader", "1 while this node leads and takes writes", func() float64 {
			if g.raft.State().Ready {
				return 1
			}
			return 0
		}),
		gauge("feature_level", "feature level that the cluster uses", func() float64 { return float64(g.tables.Level()) }),
		gauge("draining", "1 while this node is being drained", func() float64 {
			if g.drain.on() {
				return 1
			}
			return 0
		}),
		counter("relayed_writes_total", "writes that this node passed on to the leader while it was drained", func() float64 { return float64(g.broker.Stats().RelayedWrites) }),
		gauge("raft_term", "current Raft term", func() float64 { return float64(g.raft.State().Term) }),
		gauge("raft_applied_index", "last applied Raft entry", func() float64 { return float64(g.raft.Indexes().Applied) }),
		gauge("raft_log_bytes", "bytes of the entries in the Raft log, about", func() float64 { return float64(g.raft.Indexes().HeldBytes) }),
		counter("raft_snapshots_total", "snapshots that this node has taken, each with a compaction of its Raft log", func() float64 { return float64(g.raft.Stats().Snapshots) }),
		counter("raft_proposed_entries_total", "Raft entries proposed by this node", func() float64 { return float64(g.raft.Stats().Entries) }),
		counter("raft_proposed_commands_total", "commands in them", func() float64 { return float64(g.raft.Stats().Commands) }),
		counter("raft_busy_refusals_total", "commands refused because too many bytes were in flight", func() float64 { return float64(g.raft.Stats().BusyRefusals) }),
		gauge("raft_in_flight_bytes", "command bytes waiting or in flight", func() float64 { return float64(g.raft.Stats().InFlightBytes) }),
		gauge("commitlog_min_offset_bytes", "first readable physical offset", func() float64 { return float64(g.store.Stats().MinOffset) }),
		gauge("commitlog_max_offset_bytes", "physical offset after the last applied record", func() float64 { return float64(g.store.Stats().MaxOffset) }),
		gauge("commitlog_flushed_offset_bytes", "durable end of the commit log on this node", func() float64 { return float64(g.store.Stats().FlushedTo) }),
		gauge("commitlog_file_min_offset_bytes", "first physical offset that a file holds; below the minimum while trimmed segments wait for their removal", func() float64 { return float64(g.store.Stats().FileMin) }),
		gauge("commitlog_hanged_segments", "removed segments that somebody still reads", func() float64 { return float64(g.store.Stats().HangedSegments) }),
		gauge("store_running_flags", "1 not readable, 2 not writeable, 4 consume queues wait for space, 8 key index waits for space, 16 disk full", func() float64 { return float64(g.store.Flags()) }),
		gauge("disk_used_ratio", "part of the commit log's disk that is in use", func() float64 { return g.store.Space().CommitLog.Ratio() }),
		gauge("disk_usable_bytes", "space on the commit log's disk that this process can use", func() float64 { return float64(g.store.Space().CommitLog.Usable) }),
		gauge("apply_batch_seconds", "how long the present Apply batch has taken", func() float64 { return g.store.LockTime().Seconds() }),
		gauge("dispatch_lag_bytes", "log bytes not yet in the consume queues", func() float64 { s := g.store.Stats(); return float64(s.MaxOffset - s.DispatchedTo) }),
		gauge("key_index_lag_bytes", "log bytes whose keys are not in the key index yet", func() float64 {
			if s := g.store.Stats(); g.cfg.MessageIndexEnable {
				return float64(s.MaxOffset - s.IndexedTo)
			}
			return 0
		}),
		gauge("key_index_entries", "keys in the key index", func() float64 { return float64(g.store.Stats().IndexEntries) }),
		gauge("key_index_files", "files of the key index", func() float64 { return float64(g.store.Stats().IndexFiles) }),
		counter("commitlog_put_messages_total", "messages appended on this node", func() float64 { return float64(g.store.Stats().PutMessages) }),
		counter("commitlog_put_bytes_total", "bytes of them", func() float64 { return float64(g.store.Stats().PutBytes) }),
		counter("cold_read_messages_total", "messages pulled that no longer counted as in memory", func() float64 { return float64(g.store.Stats().ColdMessages) }),
		counter("cold_read_bytes_total", "bytes of them", func() float64 { return float64(g.store.Stats().ColdBytes) }),
		counter("cold_reads_total", "pulls that returned such messages", func() float64 { return float64(g.store.Stats().ColdReads) }),
		gauge("store_pool_uncommitted_bytes", "log bytes that wait in buffers of the transient store pool", func() float64 { return float64(g.store.Stats().Uncommitted) }),
		gauge("store_pool_free_buffers", "free buffers of the transient store pool, -1 without one", func() float64 { return float64(g.store.Stats().FreeBuffers) }),
		counter("delay_delivered_messages_total", "delayed messages delivered by this node as leader", func() float64 { return float64(g.delay.Stats().Delivered) }),
		counter("delay_discarded_messages_total", "delayed messages passed over because they had nowhere to go", func() float64 { return float64(g.delay.Stats().Discarded) }),
		gauge("delay_pending_messages", "delayed messages that wait", func() float64 { return float64(g.delay.Stats().Pending) }),
		counter("transaction_checks_total", "producers asked about a half message by this node as leader", func() float64 { return float64(g.transactions.Stats().Checks) }),
		counter("transaction_given_up_total", "half messages given up by this node as leader", func() float64 { return float64(g.transactions.Stats().GivenUp) }),
		gauge("transaction_open", "half messages that were neither committed nor rolled back", func() float64 { return float64(g.transactions.Stats().Open) }),
		counter("flush_total", "commit log flushes", func() float64 { return float64(g.store.Stats().FlushCount) }),
		gauge("flush_last_seconds", "duration of the last flush", func() float64 { return g.store.Stats().LastFlush.Seconds() }),
		counter("catch_up_fetched_bytes_total", "log bytes fetched from leaders by this node because it was far behind", func() float64 { return float64(g.catchUp.Status().Total) }),
		gauge("catch_up_remaining_bytes", "log bytes that it still has to fetch", func() float64 { s := g.catchUp.Status(); return float64(max(s.To-max(s.At, s.From), 0)) }),
		counter("catch_up_served_bytes_total", "log bytes that this node gave to peers", func() float64 { return float64(g.logRanges.served.Load()) }),
		gauge("client_connections", "open client connections", func() float64 { return float64(g.server.Stats().Conns) }),
		gauge("client_backlog_bytes", "answers that wait to be written to clients, with what they take in memory", func() float64 { return float64(g.server.Stats().Backlog) }),
		counter("client_requests_total", "requests from clients", func() float64 { return float64(g.server.Stats().Requests) }),
		counter("client_bad_frames_total", "connections closed for a malformed frame", func() float64 { return float64(g.server.Stats().BadFrames) }),
	}
}
