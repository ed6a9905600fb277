package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"raftmq/fsm/command"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// The leader compares what all nodes hold at one place of the log, every --replica-check-interval: the tables, the queues' next offsets, and the
// log bytes since the last comparison as they were applied. What rots later on a disk is the scrub's; here it is about nodes that were fed
// the same entries and made something else of them. A difference is an alarm; when a majority agrees, a node whose log differs is
// told to compare those bytes with its peers' and take theirs where its own are damaged. A node that still differs was not damaged but has applied something else: it is
// told to put its data aside and to be filled again by the others (rejoin.go).

const (
	compareTimeout = 30 * time.Second
	// compareMost is how much of the log's end is compared the first time, and at most.
	compareMost = 4 * gib
	// compareGrain is how closely a difference is narrowed down.
	compareGrain = 64 * kib
)

// replicaCheck is what the comparisons have said; kept over changes of leadership, but only a leader's is fresh.
type replicaCheck struct {
	mu sync.Mutex
	// guarded by mu
	last    remoting.ReplicaStatus
	differ  []string // nodes, at the last comparison
	strikes map[string]int
}

func (r *replicaCheck) status() *remoting.ReplicaStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.last.AtMs == 0 {
		return nil
	}
	last := r.last
	return &last
}

func (r *replicaCheck) differing() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.differ)
}

// note takes a comparison in. It returns how often in a row each node has differed now.
func (r *replicaCheck) note(st remoting.ReplicaStatus, differ []string) map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	strikes := map[string]int{}
	for _, id := range differ {
		strikes[id] = r.strikes[id] + 1
	}
	r.last, r.differ, r.strikes = st, differ, strikes
	return strikes
}

// held is what one node held at a mark.
type held struct {
	node   string
	voter  bool
	answer remoting.ChecksumAnswer
	sum    uint32 // of log bytes [from, end)
	err    error
}

// key is equal for equal replicas.
func (h *held) key() string {
	a := &h.answer
	return fmt.Sprintf("%d %s %s %d %08x", a.Index, a.Tables, a.Queues, a.LogEnd, h.sum)
}

// compareLoop runs while this node leads.
func (n *node) compareLoop(ctx context.Context) {
	if n.cfg.ReplicaCheckInterval <= 0 {
		return
	}
	tick := time.NewTicker(n.cfg.ReplicaCheckInterval)
	defer tick.Stop()
	compared := int64(-1) // the log is equal up to here
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		end, err := n.compareReplicas(ctx, compared)
		if err != nil {
			if ctx.Err() == nil {
				n.logger.Warn("replicas could not be compared", "error", err)
			}
			continue
		}
		compared = end
	}
}

// compareReplicas compares once, from log offset compared on (-1: only the newest part). It returns up to where the nodes that answered are equal, or
// compared when some differ.
func (n *node) compareReplicas(ctx context.Context, compared int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, compareTimeout)
	defer cancel()
	servers, err := n.group.raft.Servers()
	if err != nil {
		return compared, err
	}
	if len(servers) < 2 {
		return compared, nil
	}
	id, err := randomID(8)
	if err != nil {
		return compared, err
	}
	if err := n.group.proposeJSON(ctx, command.KindMark, command.Mark{ID: id}); err != nil {
		return compared, fmt.Errorf("put a mark into the log: %w", err)
	}
	all := make([]held, len(servers))
	ask := func(f func(h *held)) {
		var wg sync.WaitGroup
		for i := range all {
			if all[i].err == nil {
				wg.Go(func() { f(&all[i]) })
			}
		}
		wg.Wait()
	}
	voters := 0
	for i, s := range servers {
		all[i].node, all[i].voter = s.ID, s.Voter
		if s.Voter {
			voters++
		}
	}
	ask(func(h *held) { h.answer, h.err = n.checksumOf(ctx, h.node, id) })
	var low, end int64
	for i := range all {
		if all[i].err == nil {
			low, end = max(low, all[i].answer.LogMin, all[i].answer.LogApplied), max(end, all[i].answer.LogEnd)
		}
	}
	from := max(low, compared, end-compareMost)
	ask(func(h *held) { h.sum, h.err = n.logSumOf(ctx, h.node, from, min(end, h.answer.LogEnd)) })
	for i := range all {
		if h := &all[i]; h.err != nil {
			n.logger.Debug("a replica could not be asked what it holds", "node", h.node, "error", h.err)
		}
	}
	v := judge(ctx, all, voters, from, n.logSumOf)
	strikes := n.replicas.note(v.status, v.differ)
	if len(v.differ) > 0 {
		n.logger.Error("replicas differ", "index", v.status.Index, "nodes", v.differ, "difference", v.status.Alarm)
		if v.majority {
			n.repairReplicas(ctx, &v, strikes)
		}
	}
	if v.all() {
		return end, nil
	}
	return compared, nil
}

// verdict is what a comparison has found.
type verdict struct {
	status   remoting.ReplicaStatus
	differ   []string            // nodes, sorted
	ranges   map[string][2]int64 // where in the log each of them differs, if it does there
	believed []*held             // the largest group
	majority bool                // more than half of the voters are in it
}

// all reports that every node was asked and none differs.
func (v *verdict) all() bool { return len(v.differ) == 0 && len(v.status.Unasked) == 0 }

// sumOf asks a node for the checksum of log bytes [from, to) as they were applied.
type sumOf func(ctx context.Context, nodeID string, from, to int64) (uint32, error)

// judge finds out who differs, from what all nodes have answered. from is where the compared log bytes begin.
func judge(ctx context.Context, all []held, voters int, from int64, sum sumOf) verdict {
	v := verdict{status: remoting.ReplicaStatus{AtMs: time.Now().UnixMilli()}, ranges: map[string][2]int64{}}
	st := &v.status
	groups := map[string][]*held{}
	for i := range all {
		h := &all[i]
		if h.err != nil {
			st.Unasked = append(st.Unasked, h.node)
			continue
		}
		groups[h.key()] = append(groups[h.key()], h)
	}
	v.believed, v.majority = largest(groups, voters)
	for _, h := range v.believed {
		st.Equal++
		st.Index = h.answer.Index
	}
	if len(groups) <= 1 {
		return v
	}
	var others []*held
	for _, g := range groups {
		if !slices.Contains(g, v.believed[0]) {
			others = append(others, g...)
		}
	}
	sort.Slice(others, func(i, j int) bool { return others[i].node < others[j].node })
	var words []string
	for _, h := range others {
		v.differ = append(v.differ, h.node)
		text, at := difference(ctx, v.believed[0], h, from, sum)
		words = append(words, text)
		if at[1] > at[0] {
			v.ranges[h.node] = at
		}
	}
	st.Alarm = strings.Join(words, "; ")
	if v.majority {
		st.Alarm += fmt.Sprintf("; %s agree and are believed, the other is filled from them again", nodeNames(v.believed))
	} else {
		st.Alarm += "; no majority agrees: stop the cluster's writers, compare the folders (raftmq store compare) and wipe the wrong node"
	}
	return v
}

// largest is the group with most voters; majority: more than half of all.
func largest(groups map[string][]*held, voters int) (most []*held, majority bool) {
	best := -1
	for _, key := range sortedKeys(groups) {
		votes := 0
		for _, h := range groups[key] {
			if h.voter {
				votes++
			}
		}
		if votes > best {
			best, most = votes, groups[key]
		}
	}
	return most, best > voters/2
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func nodeNames(list []*held) string {
	var names []string
	for _, h := range list {
		names = append(names, h.node)
	}
	sort.Strings(names)
	return strings.Join(names, " and ")
}

// difference says what h holds otherwise than good, and where in the log, as closely as the two can be asked.
func difference(ctx context.Context, good, h *held, from int64, sum sumOf) (text string, at [2]int64) {
	a, b := &good.answer, &h.answer
	var parts []string
	if a.Tables != b.Tables {
		parts = append(parts, "the tables")
	}
	if a.Queues != b.Queues {
		parts = append(parts, "the queues' next offsets")
	}
	if a.LogEnd != b.LogEnd {
		parts = append(parts, fmt.Sprintf("the log's end (%d, not %d)", b.LogEnd, a.LogEnd))
	}
	end := min(a.LogEnd, b.LogEnd)
	if low, high, err := narrow(ctx, good.node, h.node, from, end, sum); err != nil {
		parts = append(parts, fmt.Sprintf("perhaps log bytes in %d to %d (%v)", from, end, err))
	} else if low < high {
		parts = append(parts, fmt.Sprintf("log bytes in %d to %d", low, high))
		at = [2]int64{low, high}
	}
	return fmt.Sprintf("%s differs from %s in %s", h.node, good.node, strings.Join(parts, ", ")), at
}

// narrow finds the first stretch of [from, to) in which the logs of two nodes differ; low == high when they do not.
func narrow(ctx context.Context, a, b string, from, to int64, sum sumOf) (low, high int64, err error) {
	same := func(from, to int64) (bool, error) {
		x, err := sum(ctx, a, from, to)
		if err != nil {
			return false, err
		}
		y, err := sum(ctx, b, from, to)
		return x == y, err
	}
	equal, err := same(from, to)
	if err != nil || equal {
		return from, from, err
	}
	for to-from > compareGrain {
		mid := from + (to-from)/2
		equal, err := same(from, mid)
		if err != nil {
			return from, to, nil //nolint:nilerr // so close it is known
		}
		if equal {
			from = mid
		} else {
			to = mid
		}
	}
	return from, to, nil
}

// repairReplicas acts on nodes that a majority contradicts. Where the log differs, a node first compares those bytes with its peers' (they may have rotted under its journal's
// eyes); one that differs still, or elsewhere, has applied something else, and is filled again from the others. A leader that is wrong lets another one lead first, which will find the same.
func (n *node) repairReplicas(ctx context.Context, v *verdict, strikes map[string]int) {
	if strikes[n.cfg.NodeID] > 0 {
		for _, h := range v.believed {
			if !h.voter {
				continue
			}
			n.logger.Error("this leader differs from the majority, handing leadership over", "to", h.node)
			if err := n.group.raft.TransferLeadershipTo(h.node); err == nil || ctx.Err() != nil {
				return
			}
		}
		return
	}
	for _, id := range v.differ {
		var err error
		if at, inLog := v.ranges[id]; inLog && strikes[id] == 1 {
			err = n.askNode(ctx, id, remoting.RequestRepairLog, remoting.RepairLogRequest{From: at[0], To: at[1], Reason: v.status.Alarm}, nil)
		} else {
			err = n.askNode(ctx, id, remoting.RequestRejoin, remoting.RejoinRequest{NodeID: id, Reason: v.status.Alarm}, nil)
		}
		if err != nil {
			n.logger.Error("a node that differs could not be told to repair itself", "node", id, "error", err)
		}
	}
}

// checksumOf asks a node, perhaps this one, what it held at a mark.
func (n *node) checksumOf(ctx context.Context, nodeID, mark string) (a remoting.ChecksumAnswer, err error) {
	req := remoting.ChecksumRequest{ID: mark, WaitMillis: (compareTimeout / 3).Milliseconds()}
	if nodeID == n.cfg.NodeID {
		answer, err := n.checksum(ctx, req)
		if err != nil {
			return a, err
		}
		return answer.(remoting.ChecksumAnswer), nil
	}
	err = n.askNode(ctx, nodeID, remoting.RequestChecksum, req, &a)
	return a, err
}

// logSumOf asks a node, perhaps this one, for the checksum of log bytes as they were applied.
func (n *node) logSumOf(ctx context.Context, nodeID string, from, to int64) (uint32, error) {
	if from >= to {
		return 0, nil
	}
	if nodeID == n.cfg.NodeID {
		return n.group.store.LogSum(from, to)
	}
	c, err := n.peer(ctx, nodeID)
	if err != nil {
		return 0, err
	}
	sum, _, err := c.LogSum(ctx, remoting.LogRange{Offset: from, Length: to - from})
	return sum, err
}

// segmentSumOf asks a node, perhaps this one, for the checksum of a sealed segment, which it reads, if it must, at its scrub's pace.
func (n *node) segmentSumOf(ctx context.Context, nodeID string, from int64) (uint32, error) {
	if nodeID == n.cfg.NodeID {
		return n.group.store.SegmentSum(from)
	}
	c, err := n.peer(ctx, nodeID)
	if err != nil {
		return 0, err
	}
	sum, _, err := c.LogSum(ctx, remoting.LogRange{Offset: from, Length: n.cfg.MappedFileSizeCommitLog, Slow: true})
	return sum, err
}

func (n *node) peer(ctx context.Context, nodeID string) (*client.Client, error) {
	addr := n.group.clientAddrOf(nodeID)
	if addr == "" {
		return nil, fmt.Errorf("nobody knows the client address of %s", nodeID)
	}
	return n.group.peers.Client(ctx, addr)
}

// askNode sends an operator's request to another node.
func (n *node) askNode(ctx context.Context, nodeID string, code int32, request, answer any) error {
	c, err := n.peer(ctx, nodeID)
	if err != nil {
		return err
	}
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	resp, err := c.Invoke(ctx, &remoting.Command{Code: code, Body: body})
	switch {
	case err != nil:
		return err
	case resp.Code != remoting.ResponseSuccess:
		return errors.New(resp.Remark)
	case answer == nil:
		return nil
	}
	return json.Unmarshal(resp.Body, answer)
}
