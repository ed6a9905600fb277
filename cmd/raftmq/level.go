package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"raftmq/fsm/command"
	"raftmq/fsm/raftnode"
	"raftmq/membership"
	"raftmq/transport/remoting"
)

// The feature gate (F83). Each node tells by gossip which feature level its raftmq can apply. The cluster's own level is in the replicated
// tables: raftnode refuses to propose what is above it (command.Admit), and whatever is written for other nodes or for an older raftmq to read goes by it. A new cluster starts
// with the highest level that all of its first nodes can apply. Later an operator raises it (raftmq cluster upgrade), when all nodes run
// the new raftmq and he is content with it: until then each can be rolled back, afterwards an older raftmq refuses to start.

// folderIdentity is node.json while the node runs: it has two reasons to change, on two goroutines.
type folderIdentity struct {
	mu  sync.Mutex
	dir string
	now identity
}

func (f *folderIdentity) open(id *identity, dir string) { f.now, f.dir = *id, dir }

// change saves the identity if f changes it.
func (f *folderIdentity) change(apply func(*identity)) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := f.now
	if apply(&next); next == f.now {
		return nil
	}
	if err := next.save(f.dir); err != nil {
		return err
	}
	f.now = next
	return nil
}

// behind reports whether the folder does not say yet that the cluster has this level.
func (f *folderIdentity) behind(level command.Level) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return level > max(f.now.Level, command.Oldest)
}

// levelRaised notes the cluster's level in the folder and tells it to the others.
func (n *node) levelRaised() {
	level := n.group.tables.Level()
	if err := n.folder.change(func(id *identity) { id.raise(level) }); err != nil {
		n.die(fmt.Errorf("--data-dir %s: remember the cluster's feature level: %w", n.cfg.DataDir, err))
		return
	}
	n.logger.Info("the cluster has a new feature level, an older raftmq cannot start with this folder any more", "level", int(level))
	if n.ctx.Err() == nil {
		if err := n.members.UpdateTags(func(t *membership.Tags) { t.ClusterLevel = int(level) }); err != nil {
			n.logger.Warn("could not spread the feature level by gossip", "error", err)
		}
	}
}

// levelOf is what a member's raftmq can apply.
func levelOf(m membership.Member) command.Level {
	return max(command.Level(m.Level), command.Oldest)
}

// checkLevels ends a node that is too old for the group that it belongs to or would join.
func (n *node) checkLevels() {
	for _, m := range n.members.Members() {
		if m.ClusterName == n.cfg.ClusterName && m.Group == n.cfg.BrokerName && command.Level(m.ClusterLevel) > command.Newest {
			n.die(fmt.Errorf("node %s says: %w", m.NodeID, command.TooNew(command.Level(m.ClusterLevel))))
			return
		}
	}
}

// memberLevel is what one member of the Raft configuration can apply, as gossip tells it.
type memberLevel struct {
	nodeID, version string
	level           command.Level // 0: not known, because the node is not there
}

// memberLevels lists the members of the Raft configuration.
func (n *node) memberLevels() ([]memberLevel, error) {
	servers, err := n.group.raft.Servers()
	if err != nil {
		return nil, err
	}
	out := make([]memberLevel, len(servers))
	for i, s := range servers {
		out[i] = memberLevel{nodeID: s.ID}
		for _, m := range n.members.Members() {
			if m.NodeID == s.ID && m.Incarnation == s.Incarnation && (m.State == membership.Alive || m.State == membership.Suspect) {
				out[i].version, out[i].level = m.Version, levelOf(m)
			}
		}
	}
	return out, nil
}

// askedLevels is memberLevels, but each member is asked itself: gossip goes on for seconds about a node that has just been stopped, perhaps to
// be rolled back.
func (n *node) askedLevels(ctx context.Context) ([]memberLevel, error) {
	members, err := n.memberLevels()
	if err != nil {
		return nil, err
	}
	var wg sync.WaitGroup
	for i := range members {
		m := &members[i]
		if m.nodeID == n.cfg.NodeID || m.level == 0 {
			continue
		}
		wg.Go(func() {
			asking, cancel := context.WithTimeout(ctx, levelTimeout)
			defer cancel()
			s, err := fetchStatus(asking, n.group.clientAddrOf(m.nodeID))
			if m.level = 0; err == nil && s.NodeID == m.nodeID {
				m.version, m.level = s.Version, max(command.Level(s.Level), command.Oldest)
			}
		})
	}
	wg.Wait()
	return members, nil
}

// levelTimeout is how long a node may take to say what it can apply, and then to apply it.
const levelTimeout = 2 * time.Second

// commonLevel is what all of them can apply; missing are those that do not say.
func commonLevel(members []memberLevel) (level command.Level, missing []string) {
	level = command.Newest
	for _, m := range members {
		if m.level == 0 {
			missing = append(missing, m.nodeID)
			continue
		}
		level = min(level, m.level)
	}
	return level, missing
}

// firstLevel is the level of a new cluster: what all its first nodes can apply. If one cannot be asked, an operator raises it later.
func (n *node) firstLevel() command.Level {
	members, err := n.memberLevels()
	if err != nil {
		return command.Oldest
	}
	level, missing := commonLevel(members)
	if len(missing) > 0 {
		return command.Oldest
	}
	return level
}

// upgrade raises the cluster's feature level to what all members can apply. Leader.
func (n *node) upgrade(ctx context.Context, req remoting.UpgradeRequest) (any, error) {
	members, err := n.askedLevels(ctx)
	if err != nil {
		return nil, err
	}
	level, missing := commonLevel(members)
	have := n.group.tables.Level()
	answer := remoting.UpgradeAnswer{From: int(have), To: int(max(level, have))}
	for _, m := range members {
		answer.Nodes = append(answer.Nodes, remoting.NodeLevel{NodeID: m.nodeID, Version: m.version, Level: int(m.level)})
	}
	sort.Slice(answer.Nodes, func(i, j int) bool { return answer.Nodes[i].NodeID < answer.Nodes[j].NodeID })
	switch {
	case len(missing) > 0:
		return nil, fmt.Errorf("%w: %s cannot be asked what it can apply, and would not start any more if that is too little; start it, or remove it (raftmq cluster remove)",
			errRefused, strings.Join(missing, " and "))
	case req.Check || level <= have:
		return answer, nil
	}
	if err := n.group.proposeJSON(ctx, command.KindLevel, command.Raise{Level: level}); err != nil {
		if errors.Is(err, raftnode.ErrNotLeader) {
			return nil, fmt.Errorf("leadership has just moved, try again: %w", err)
		}
		return nil, err
	}
	n.awaitLevel(ctx, members, level)
	return answer, nil
}

// awaitLevel gives the others a moment to apply the new level: their folders say it then, also if they are stopped next.
func (n *node) awaitLevel(ctx context.Context, members []memberLevel, level command.Level) {
	ctx, cancel := context.WithTimeout(ctx, levelTimeout)
	defer cancel()
	var wg sync.WaitGroup
	for _, m := range members {
		wg.Go(func() {
			for ctx.Err() == nil {
				if s, err := fetchStatus(ctx, n.group.clientAddrOf(m.nodeID)); err == nil && command.Level(s.ClusterLevel) >= level {
					return
				}
				select {
				case <-ctx.Done():
				case <-time.After(20 * time.Millisecond):
				}
			}
		})
	}
	wg.Wait()
}
