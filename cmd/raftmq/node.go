package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"raftmq/fsm/command"
	"raftmq/fsm/raftnode"
	"raftmq/membership"
	"raftmq/membership/route"
	"raftmq/transport/metrics"
	"raftmq/transport/namesrv"

	"github.com/hashicorp/go-hclog"
)

// node is the process: what it has once (gossip, routes, the HTTP page) and its broker group.
//
// Start order: identity (refuse the wrong folder before touching it), client port (find a port in use early), the group's
// parts bottom up, gossip (it tells others that this folder has data, so it needs Raft's stores open), Raft and the client port,
// the HTTP page, and last the loops that change the cluster (bootstrap, reconcile). Stop order is the reverse; see Shutdown.
type node struct {
	cfg     Config
	logger  hclog.Logger
	started time.Time
	id      *identity // as it was at start
	folder  folderIdentity

	group      *brokerGroup
	members    *membership.Membership
	marks      *replicaMarks
	raftHealth raftHealth
	// replicas is what comparing all nodes has said.
	replicas replicaCheck
	routes   *route.Router
	http     *metrics.Server

	left      chan struct{} // closed when this node has left its cluster for good
	leftOnce  sync.Once
	fatal     chan error
	fatalOnce sync.Once
	changed   chan struct{} // members changed
	ctx       context.Context
	cancel    context.CancelFunc
	spawning  sync.Mutex // a goroutine starts before Shutdown waits, or not at all
	wg        sync.WaitGroup
	leading   struct {
		sync.Mutex
		cancel context.CancelFunc // ends the leader-only loops
		wg     sync.WaitGroup
	}
	stopOnce sync.Once
	stopErr  error
}

// startNode builds and starts everything, or returns an error with nothing left running.
func startNode(cfg Config, logger hclog.Logger) (*node, error) {
	n := &node{cfg: cfg, logger: logger, started: time.Now(), marks: newReplicaMarks(), left: make(chan struct{}), fatal: make(chan error, 1), changed: make(chan struct{}, 1),
		raftHealth: raftHealth{wake: make(chan struct{}, 1)}}
	n.ctx, n.cancel = context.WithCancel(context.Background())
	if err := n.start(); err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = n.Shutdown(ctx)
		return nil, err
	}
	return n, nil
}

func (n *node) start() (err error) {
	cfg := &n.cfg
	if n.id, err = openIdentity(cfg); err != nil {
		return err
	}
	n.folder.open(n.id, cfg.DataDir)
	tellAside(cfg.DataDir, n.logger)
	clients, err := net.Listen("tcp", cfg.ClientAddress)
	if err != nil {
		return fmt.Errorf("--client-address %s: %w", cfg.ClientAddress, err)
	}
	n.group, err = openGroup(groupDeps{Config: cfg, Identity: n.id, OnFatal: n.die, Logger: n.logger,
		OnState: []func(raftnode.State){n.stateChanged}, OnTables: []func(){n.tablesChanged}, OnMark: n.onMark, OnDiverged: n.diverged, GossipAddr: n.gossipAddr, Alive: n.alive, PeerAddr: n.peerAddr, CanReceive: n.canReceive,
		FirstLevel: n.firstLevel, Spawn: n.spawn})
	if err != nil {
		_ = clients.Close()
		return err
	}
	if err := n.openGossip(); err != nil {
		_ = clients.Close()
		return err
	}
	n.routes = route.New(route.Config{Groups: []route.Group{n.routeGroup()}, Gossip: n.members.Members})
	namesrv.New(namesrv.Config{Routes: n.routes, KV: n.group.tables, Propose: n.group.proposeKV,
		AskLeader: n.group.askLeader, Spawn: n.spawn, Closing: n.ctx.Done(), RetryQueues: n.group.broker.RetryQueues, LeaderAddress: cfg.LeaderAddress, Properties: cfg.properties, Logger: n.logger}).Register(n.group.server)
	n.registerStatus(n.group.server)
	n.registerAdmin(n.group.server)
	n.http, err = metrics.New(metrics.Config{Listen: cfg.HTTPAddress, Metrics: append(n.metrics(), n.healingMetrics()...), Status: func() any { return n.status() },
		Live: n.live, Ready: n.ready, Leader: n.leader, Logger: n.logger.Named("http")})
	if err != nil {
		_ = clients.Close()
		return fmt.Errorf("--http-address %s: %w", cfg.HTTPAddress, err)
	}
	if err := n.group.start(); err != nil {
		_ = clients.Close()
		return err
	}
	n.spawn(func() {
		n.group.learnTarget(n.ctx)
		n.rejoined()
		n.scrubRaft()
	})
	n.spawn(func() { n.group.serve(n.ctx, clients) })
	n.spawn(n.watchDisks)
	n.http.Serve()
	if len(cfg.Join) > 0 {
		n.members.KeepJoining(cfg.Join)
	}
	if !n.group.raft.HasState() {
		n.spawn(n.bootstrap)
	}
	return nil
}

func (n *node) openGossip() (err error) {
	cfg := &n.cfg
	n.members, err = membership.Open(membership.Config{BindAddr: cfg.GossipAddress, AdvertiseAddr: cfg.GossipAdvertise, Logger: n.logger,
		Tags: membership.Tags{NodeID: cfg.NodeID, ClusterName: cfg.ClusterName, ClusterID: n.id.ClusterID, Group: cfg.BrokerName,
			ClientAddr: cfg.ClientAdvertise, RaftAddr: cfg.RaftAdvertise, HTTPAddr: cfg.HTTPAdvertise, Version: version,
			Incarnation: n.id.Incarnation, BootstrapExpect: cfg.BootstrapExpect, HasData: n.group.raft.HasState(),
			FetchesLog: true, Level: int(command.Newest), ClusterLevel: int(n.id.Level)}})
	if err != nil {
		return fmt.Errorf("--gossip-address %s: %w", cfg.GossipAddress, err)
	}
	n.members.OnChange(func() {
		n.checkLevels()
		select {
		case n.changed <- struct{}{}:
		default:
		}
	})
	return nil
}

// peerAddr is the Raft address of a member that is there, as gossip tells it.
func (n *node) peerAddr(nodeID string) string {
	if m, ok := n.members.Member(nodeID); ok && m.State == membership.Alive {
		return m.RaftAddr
	}
	return ""
}

// gossipAddr is a member's client address as gossip tells it.
func (n *node) gossipAddr(nodeID string) string {
	m, _ := n.members.Member(nodeID)
	return m.ClientAddr
}

// alive reports whether gossip has a member, or this node itself, for alive.
func (n *node) alive(nodeID string) bool {
	m, ok := n.members.Member(nodeID)
	return ok && m.State == membership.Alive
}

// Fatal delivers the error that this node must stop for.
func (n *node) Fatal() <-chan error { return n.fatal }

func (n *node) die(err error) {
	n.fatalOnce.Do(func() {
		n.logger.Error("fatal, this node stops", "error", err)
		n.fatal <- err
	})
}

// Shutdown stops everything: loops that change the cluster first, then the group (it hands leadership over), then what
// tells others about this node. Stopping is not leaving: the node keeps its place in the Raft configuration.
func (n *node) Shutdown(ctx context.Context) error {
	n.stopOnce.Do(func() {
		n.spawning.Lock()
		n.cancel()
		n.spawning.Unlock()
		n.stopLeading()
		n.leading.wg.Wait()
		n.wg.Wait()
		var errs []error
		if n.group != nil {
			errs = append(errs, n.group.stop(ctx))
		}
		if n.http != nil {
			errs = append(errs, n.http.Close())
		}
		if n.members != nil {
			errs = append(errs, n.members.Close())
		}
		n.stopErr = errors.Join(errs...)
	})
	return n.stopErr
}

// spawn runs f in a goroutine that Shutdown waits for; false when that has begun.
func (n *node) spawn(f func()) bool {
	n.spawning.Lock()
	defer n.spawning.Unlock()
	if n.ctx.Err() != nil {
		return false
	}
	n.wg.Go(f)
	return true
}

// Left is closed when this node has left its cluster for good: the process has nothing left to do.
func (n *node) Left() <-chan struct{} { return n.left }

// bootstrap waits until the expected nodes have met, then exactly one of them forms the cluster.
func (n *node) bootstrap() {
	var last string
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for n.group.raft.State().LeaderID == "" && n.group.raft.Indexes().Last == 0 {
		self := n.selfTags()
		decision, reason := membership.Bootstrap(self, n.members.Members(), n.cfg.BootstrapExpect)
		if reason != last {
			n.logger.Info("bootstrap: "+decision.String(), "reason", reason)
			last = reason
		}
		if decision == membership.BootstrapHere {
			var servers []raftnode.Server
			for _, m := range membership.BootstrapSet(self, n.members.Members(), n.cfg.BootstrapExpect) {
				servers = append(servers, raftnode.Server{ID: m.NodeID, Incarnation: m.Incarnation, RaftAddr: m.RaftAddr, Voter: true})
			}
			// A leader may have found this node between the decision and now: then there is nothing to form.
			if err := n.group.raft.Bootstrap(servers); err != nil && n.group.raft.Indexes().Last == 0 {
				n.die(err)
			}
			return
		}
		select {
		case <-n.ctx.Done():
			return
		case <-n.changed:
		case <-tick.C:
		}
	}
}

func (n *node) selfTags() membership.Tags {
	for _, m := range n.members.Members() {
		if m.NodeID == n.cfg.NodeID {
			return m.Tags
		}
	}
	return membership.Tags{NodeID: n.cfg.NodeID, ClusterName: n.cfg.ClusterName, Group: n.cfg.BrokerName, BootstrapExpect: n.cfg.BootstrapExpect}
}

// stateChanged publishes who leads at once and runs the leader-only loops while this node is a ready leader.
func (n *node) stateChanged(s raftnode.State) {
	n.routes.LeaderChanged()
	var term uint64
	if s.Role == raftnode.Leader {
		term = s.Term
	}
	if n.members != nil && n.ctx.Err() == nil {
		if err := n.members.UpdateTags(func(t *membership.Tags) { t.LeaderTerm, t.HasData = term, t.HasData || s.LeaderID != "" }); err != nil {
			n.logger.Warn("could not spread leadership by gossip", "error", err)
		}
	}
	if s.Ready {
		n.startLeading()
	} else {
		n.stopLeading()
	}
}

func (n *node) startLeading() {
	n.leading.Lock()
	defer n.leading.Unlock()
	if n.leading.cancel != nil || n.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(n.ctx)
	n.leading.cancel = cancel
	r := membership.Reconciler{Self: n.selfTags(), Members: n.members.Members, Voters: voters{n.group}, Changed: n.changed,
		Update: n.group.updateNode, Forget: n.group.forgetNode, Barred: n.barred, DeadTimeout: n.cfg.DeadServerTimeout,
		Logger: n.logger.Named("reconcile")}
	n.leading.wg.Go(func() { r.Run(ctx) })
	n.leading.wg.Go(func() { n.group.lead(ctx) })
	n.leading.wg.Go(func() { n.segmentLoop(ctx) })
	n.leading.wg.Go(func() { n.compareLoop(ctx) })
}

func (n *node) stopLeading() {
	n.leading.Lock()
	defer n.leading.Unlock()
	if n.leading.cancel != nil {
		n.leading.cancel()
		n.leading.cancel = nil
	}
}

// tablesChanged runs on the FSM goroutine.
func (n *node) tablesChanged() {
	s, ok := n.group.tables.Settings()
	if !ok {
		return
	}
	n.group.clusterOnce.Do(func() { n.spawn(func() { n.joinedCluster(s) }) })
	if n.folder.behind(n.group.tables.Level()) {
		n.spawn(n.levelRaised)
	}
}

// joinedCluster remembers the cluster's id in the folder and tells it to the others.
func (n *node) joinedCluster(s command.Settings) {
	n.group.warnIgnored(s)
	if err := n.folder.change(func(id *identity) { id.ClusterID = s.ClusterID }); err != nil {
		n.die(fmt.Errorf("--data-dir %s: remember the cluster's id: %w", n.cfg.DataDir, err))
		return
	}
	if n.ctx.Err() == nil {
		if err := n.members.UpdateTags(func(t *membership.Tags) { t.ClusterID, t.HasData = s.ClusterID, true }); err != nil {
			n.logger.Warn("could not spread the cluster id by gossip", "error", err)
		}
	}
}

// barred reports whether an operator has removed this node while it was alive, or its raftmq is too old for this cluster.
func (n *node) barred(m membership.Member) bool {
	if levelOf(m) < n.group.tables.Level() {
		return true
	}
	_, ok := n.group.tables.KV(removedNamespace, barKey(m.NodeID, m.Incarnation))
	return ok
}

// routeGroup is this process's group as routes need it.
func (n *node) routeGroup() route.Group {
	g := n.group
	return route.Group{Name: n.cfg.BrokerName, ClusterName: n.cfg.ClusterName, Tables: g.tables,
		Leader: func() (string, bool) {
			id := g.raft.State().LeaderID
			return id, id != ""
		},
		CaughtUp: g.caughtUp,
		Deposed:  g.raft.QuorumLost,
		Members: func() []string {
			servers, err := g.raft.Servers()
			if err != nil {
				return nil
			}
			ids := make([]string, len(servers))
			for i, s := range servers {
				ids[i] = s.ID
			}
			return ids
		}}
}

func (n *node) live() error {
	select {
	case <-n.ctx.Done():
		return errors.New("stopping")
	default:
		return nil
	}
}

func (n *node) ready() error {
	if !n.group.caughtUp() {
		return errors.New("this node has not caught up, or knows no leader yet")
	}
	if n.group.raft.State().LeaderID == "" {
		return errors.New("no leader is known")
	}
	return nil
}

func (n *node) leader() error {
	if s := n.group.raft.State(); !s.Ready {
		return fmt.Errorf("this node is %s; leader: %q", s.Role, s.LeaderID)
	}
	return nil
}
