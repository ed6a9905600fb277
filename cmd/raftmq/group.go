package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/store"
	"raftmq/fsm"
	"raftmq/fsm/command"
	"raftmq/fsm/delay"
	"raftmq/fsm/metadata"
	"raftmq/fsm/raftnode"
	"raftmq/fsm/retention"
	"raftmq/fsm/transaction"
	"raftmq/membership/group"
	"raftmq/transport"
	"raftmq/transport/broker"
	"raftmq/transport/client"
	"raftmq/transport/raftstream"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// brokerGroup is everything that one RocketMQ brokerName needs on this node: Raft, FSM, tables, store with its
// flush and dispatch, live client groups, and the client port. A process hosts one; nothing here is
// package-level, so that it can host several.
type brokerGroup struct {
	cfg      *Config
	identity *identity
	logger   hclog.Logger
	fatal    func(error)

	store  *store.Store
	tables *metadata.Tables
	fsm    *fsm.FSM
	stream *raftstream.Layer
	trans  *raft.NetworkTransport
	raft   *raftnode.Node
	heads  raft.SnapshotStore // snapshots as they are on disk: their heads
	groups *group.Registry
	broker *broker.Broker
	server *transport.Server
	peers  *client.Cluster // connections to other nodes' client ports
	drain  drain
	delay  *delay.Deliverer

	transactions *transaction.Service
	retention    *retention.Loop
	logRanges    *logRanges
	catchUp      *fsm.CatchUp

	caught      atomic.Bool
	peersFull   atomic.Bool // so many other voters' disks are full that no majority could store a message
	started     atomic.Bool // start has returned
	alone       loneliness
	raftLog     atomic.Pointer[raftnode.Node] // as raft, for goroutines that run before it is open
	alive       func(nodeID string) bool      // by gossip, or this node
	gossipAddr  func(nodeID string) string    // client address by gossip, for nodes that the tables don't know yet
	onState     []func(raftnode.State)
	onTables    []func()
	firstLevel  func() command.Level
	clusterOnce sync.Once
}

// groupDeps is what the process gives to each of its groups.
type groupDeps struct {
	Config     *Config
	Identity   *identity
	OnFatal    func(error)
	OnState    []func(raftnode.State)
	OnTables   []func()
	OnMark     func(fsm.Mark)
	OnDiverged func(from, to int64, err error) // a log segment is not what the replicas have agreed on
	GossipAddr func(nodeID string) string
	Alive      func(nodeID string) bool   // by gossip
	PeerAddr   func(nodeID string) string // Raft address by gossip
	CanReceive func(nodeID string) error  // why a node can't be sent a snapshot, by gossip
	FirstLevel func() command.Level       // the feature level of a new cluster
	Spawn      func(func()) bool          // starts a goroutine that the process waits for; false when it is stopping
	Logger     hclog.Logger
}

// openGroup builds the parts bottom up: the store (it recovers), then what applies to it, then Raft over it (not started:
// a node must not take part before it can serve), then what faces clients. On error everything that was opened is closed.
func openGroup(d groupDeps) (_ *brokerGroup, err error) {
	cfg := d.Config
	g := &brokerGroup{cfg: cfg, identity: d.Identity, logger: d.Logger, fatal: d.OnFatal, tables: metadata.New(), groups: group.NewRegistry(cfg.now),
		onState: d.OnState, onTables: d.OnTables, gossipAddr: d.GossipAddr, alive: d.Alive, firstLevel: d.FirstLevel}
	var undo []func() error
	defer func() {
		if err != nil {
			for i := len(undo) - 1; i >= 0; i-- {
				err = errors.Join(err, undo[i]())
			}
		}
	}()

	mode := store.AsyncFlush
	if cfg.FlushDiskType == syncFlush {
		mode = store.SyncFlush
	}
	staging, err := store.OpenStaging(mappedfile.OS{}, filepath.Join(cfg.DataDir, "raft", "staging"))
	if err != nil {
		return nil, err
	}
	files, err := raftnode.OpenSnapshotFiles(filepath.Join(cfg.DataDir, "raft"), 2, raftnode.QuietLogger(d.Logger.Named("raft")))
	if err != nil {
		return nil, err
	}
	g.heads = files
	raftLast, err := unsafeLast(filepath.Join(cfg.DataDir, "raft"))
	if err != nil {
		return nil, err
	}
	sizes := sizesFor(store.StatDisk(cfg.DataDir).Total)
	scrubRate := cfg.ScrubRate
	if scrubRate == 0 {
		scrubRate = -1 // the store's zero is its default
	}
	storeDir := filepath.Join(cfg.DataDir, "store")
	fs, err := storeFS(storeDir)
	if err != nil {
		return nil, err
	}
	g.store, err = store.Open(store.Config{Dir: storeDir, FS: fs, SegmentSize: cfg.MappedFileSizeCommitLog,
		AllocateStep: sizes.allocateStep, ReserveBytes: sizes.reserve, MinFreeBytes: sizes.minFree, DiskWarningRatio: cfg.DiskSpaceWarningLevelRatio,
		QueueFileSize: cfg.MappedFileSizeConsumeQueue, MessageIndexEnable: cfg.MessageIndexEnable, MaxHashSlotNum: cfg.MaxHashSlotNum, MaxIndexNum: cfg.MaxIndexNum,
		TransientStorePoolSize: cfg.poolSize(), CommitInterval: cfg.CommitIntervalCommitLog, CommitThoroughInterval: cfg.CommitCommitLogThoroughInterval,
		FlushInterval: cfg.FlushIntervalCommitLog, FlushLeastPages: orNone(cfg.FlushCommitLogLeastPages), FlushThorough: cfg.FlushCommitLogThoroughInterval,
		SyncFlushTimeout: cfg.SyncFlushTimeout, PageCacheBusyTimeout: cfg.OSPageCacheBusyTimeout,
		CommitLeastPages: orNone(cfg.CommitCommitLogLeastPages), WarmMappedFile: cfg.WarmMappedFileEnable,
		HotBytes: cfg.hotBytes(), TransferInMemory: store.Transfer{Bytes: int(cfg.MaxTransferBytesOnMessageInMemory), Msgs: cfg.MaxTransferCountOnMessageInMemory},
		TransferOnDisk:    store.Transfer{Bytes: int(cfg.MaxTransferBytesOnMessageInDisk), Msgs: cfg.MaxTransferCountOnMessageInDisk},
		MaxMappedSegments: cfg.MaxMappedSegments, Snapshot: func() (store.Position, error) { return fsm.NewestPosition(files, staging) },
		RaftLast: raftLast, BeforePoint: g.syncRaftLog, Copies: g.copies, Sums: g.tables.SegmentSum, OnDiverged: d.OnDiverged, ScrubRate: scrubRate,
		MaxMessageSize: int(cfg.MaxMessageSize), FlushMode: mode, DelayLevels: cfg.delayLevels(), OnFatal: d.OnFatal, Now: cfg.now, Logger: d.Logger})
	if err != nil {
		return nil, err
	}
	undo = append(undo, g.store.Close)
	if err := removeUnfinishedSnapshots(filepath.Join(cfg.DataDir, "raft"), d.Logger); err != nil {
		return nil, err
	}

	g.catchUp = fsm.NewCatchUp(fsm.CatchUpConfig{Store: g.store, Staging: staging, Dial: g.dialLog, Rate: cfg.CatchUpRate, Logger: d.Logger.Named("catch-up")})
	undo = append(undo, g.catchUp.Close)
	g.fsm, err = fsm.New(fsm.Config{Store: g.store, Tables: g.tables, CatchUp: g.catchUp, CheckSettings: g.checkSettings, OnTables: g.tablesChanged, OnMark: d.OnMark,
		OnFatal: d.OnFatal, Logger: d.Logger.Named("fsm")})
	if err != nil {
		return nil, err
	}
	g.stream, err = raftstream.Open(raftstream.Config{Bind: cfg.RaftAddress, Advertise: cfg.RaftAdvertise, Self: g.hello,
		Expect: func(address string) string { return g.raft.NodeAt(address) }, Logger: d.Logger})
	if err != nil {
		return nil, fmt.Errorf("--raft-address %s: %w", cfg.RaftAddress, err)
	}
	g.trans = raftnode.NewTransport(g.stream, raftnode.QuietLogger(d.Logger.Named("raft")))
	undo = append(undo, g.trans.Close, g.stream.Close)

	snapshots := fsm.NewSnapshotStore(files, g.store, staging, d.Logger.Named("fsm"))
	g.raft, err = raftnode.Open(raftnode.Config{NodeID: cfg.NodeID, Incarnation: d.Identity.Incarnation, Dir: filepath.Join(cfg.DataDir, "raft"),
		LogStore: raftnode.LogStoreKind(cfg.RaftLogStore), UnsafeSyncInterval: cfg.UnsafeRaftSyncInterval, FSM: g.fsm, Snapshots: snapshots, Transport: g.trans, PeerAddr: d.PeerAddr,
		Receive: g.receive, ReadSnapshot: fsm.ReadSnapshot, CanReceive: d.CanReceive,
		EntryHead: command.AppendEntryHead, Prepare: g.prepare, Admit: func(encoded []byte) error { return command.Admit(encoded, g.tables.Level()) },
		HeartbeatTimeout: cfg.RaftHeartbeatTimeout, ElectionTimeout: cfg.RaftElectionTimeout,
		DiskStallTimeout: cfg.DiskStallTimeout, DiskBusy: g.flushing, OnFatal: d.OnFatal,
		WALSegmentBytes: int(sizes.walSegment), InFlightBytes: sizes.inFlight,
		Applied:       g.applied(),
		SnapshotBytes: min(cfg.RaftSnapshotBytes, sizes.raftLog), TrailingBytes: min(cfg.RaftTrailingBytes, sizes.raftLog), Now: cfg.now, Logger: d.Logger.Named("raft")})
	if err != nil {
		return nil, err
	}
	undo = append(undo, g.raft.Close)
	g.raftLog.Store(g.raft)
	if d.Identity.ClusterID != "" && d.Identity.Rejoined == "" && !g.raft.HasState() {
		// It has voted and acknowledged before: without its log it could vote otherwise (amnesia).
		return nil, fmt.Errorf("%w: --data-dir %s belongs to a member of cluster %s, but its Raft log in raft/ is gone", raftnode.ErrLogDamaged, cfg.DataDir, d.Identity.ClusterID)
	}

	storeHost, err := netip.ParseAddrPort(cfg.ClientAdvertise)
	if err != nil {
		return nil, fmt.Errorf("--client-advertise %q: %w", cfg.ClientAdvertise, err)
	}
	holdWrites := cfg.HoldWrites
	if holdWrites == 0 {
		holdWrites = -1 // not at all; the broker's zero is its default
	}
	g.drain.init(g.leaderAddr, cfg.NodeID, d.Spawn)
	g.peers = client.NewCluster(nil)
	undo = append(undo, g.peers.Close)
	g.broker, err = broker.New(broker.Config{Raft: g.raft, Store: g.store, Tables: g.tables, Groups: g.groups,
		ClusterName: cfg.ClusterName, BrokerName: cfg.BrokerName, StoreHost: storeHost,
		SlaveReadEnable: cfg.SlaveReadEnable, TraceTopicEnable: cfg.TraceTopicEnable, Replicas: g.replicas,
		LeaderAddr: g.leaderAddr, Forward: g.forward, Relay: g.drain.relay, Relays: func() bool { return cfg.ForwardWrites || g.drain.on() }, Peers: g.peerAddrs, Ask: g.askPeer,
		BrokerIDOf: g.brokerIDOf, CaughtUp: g.caughtUp,
		PeersFull: g.peersFull.Load, HoldWrites: holdWrites, MaxMessageSize: int(cfg.MaxMessageSize), Properties: cfg.properties(), CheckSetting: g.checkSetting,
		DeleteExpired: func() { g.retention.Arm() }, TransactionUnknown: func(half int64) { g.transactions.Unknown(half) }, Now: cfg.now, Logger: d.Logger})
	if err != nil {
		return nil, err
	}
	g.delay = delay.New(delay.Config{Store: g.store, Tables: g.tables, Levels: cfg.delayLevels(), Now: cfg.now, Logger: d.Logger,
		Propose: func(p delay.Proposal) error { return g.proposeRecords(p) }})
	g.transactions = transaction.New(transaction.Config{Store: g.store, Tables: g.tables, Checker: g.broker,
		Propose: func(p transaction.Proposal) error { return g.proposeRecords(p) }, MaxAge: cfg.FileReservedTime,
		Current: g.transactionLimits, Timeout: cfg.TransactionTimeout, Interval: cfg.TransactionCheckInterval, MaxCheck: cfg.TransactionCheckMax, Now: cfg.now, Logger: d.Logger})
	hours, err := retention.ParseDeleteWhen(cfg.DeleteWhen)
	if err != nil {
		return nil, err
	}
	g.retention = retention.New(retention.Config{Store: g.store, Propose: g.propose, FileReservedTime: cfg.FileReservedTime, Interval: cfg.CleanResourceInterval, DeleteWhen: hours,
		MaxUsedRatio: cfg.DiskMaxUsedSpaceRatio, CleanForciblyRatio: cfg.DiskSpaceCleanForciblyRatio, CleanForcibly: cfg.CleanFileForciblyEnable, Current: g.retentionLimits, Spare: g.spare, Now: cfg.now, Logger: d.Logger})
	g.server = transport.NewServer(transport.Config{Logger: d.Logger, OnFault: g.store.Fault, MaxConns: descriptors(d.Logger)})
	g.broker.Register(g.server)
	g.alone.server, g.alone.release, g.alone.deposed, g.alone.logger = g.server, g.broker.ReleaseParked, g.raft.QuorumLost, d.Logger
	g.logRanges = &logRanges{store: g.store}
	g.logRanges.register(g.server)
	return g, nil
}

// applied is the last entry whose effect the store holds, which the Raft log or a snapshot must reach. A node that joins again has kept its store, and
// nothing of Raft.
func (g *brokerGroup) applied() uint64 {
	if g.identity.Rejoined != "" {
		return 0
	}
	return g.store.Recovered().RaftIndex
}

// flushing is the commit log's flush that is under way. In ASYNC_FLUSH nobody waits for it and it writes much at once, so it has six times
// the time.
func (g *brokerGroup) flushing() (what string, since time.Time) {
	since = g.store.FlushingSince()
	if since.IsZero() {
		return "", since
	}
	if g.cfg.FlushDiskType != syncFlush {
		since = since.Add(5 * g.cfg.DiskStallTimeout)
	}
	return "flush of the commit log", since
}

// unsafeLast is where the store must not be ahead of the Raft log, nil when that has all that was ever applied.
func unsafeLast(dir string) (func() (uint64, error), error) {
	last, unsafe, err := raftnode.UnsafeLast(dir)
	if err != nil || !unsafe {
		return nil, err
	}
	return func() (uint64, error) { return last, nil }, nil
}

// syncRaftLog is called by the store before it calls applied entries durable. Before Raft is open nothing is applied.
func (g *brokerGroup) syncRaftLog() error {
	if n := g.raftLog.Load(); n != nil {
		return n.SyncLog()
	}
	return nil
}

// start lets the group take part in Raft; it restores the latest snapshot before it returns.
func (g *brokerGroup) start() error {
	g.raft.OnState(g.stateChanged)
	g.alone.leader(false)
	if err := g.raft.Start(); err != nil {
		return err
	}
	g.started.Store(true)
	return nil
}

// serveHold is how long a node that has just started lets clients wait for it to catch up; less than
// the 3 s that Java clients give a route query.
const serveHold = 2500 * time.Millisecond

// serve answers clients from the moment on that this node has caught up. Until then connections wait in the listener's
// queue, because a stock client takes any answer of a name server for final, an error too, and fails to start. Without a
// majority there is nothing to catch up with, so after serveHold it serves in any case and says so in its answers.
func (g *brokerGroup) serve(ctx context.Context, l net.Listener) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(serveHold); !g.caught.Load() && time.Now().Before(deadline); {
		select {
		case <-ctx.Done():
			_ = l.Close()
			return
		case <-tick.C:
		}
	}
	g.server.Serve(l)
}

// stop hands leadership over first, then lets go of clients (parked pulls are answered before connections close), then of peers, and
// closes the store last, when nothing can write to it any more.
func (g *brokerGroup) stop(ctx context.Context) error {
	if err := g.raft.TransferLeadership(); err != nil && g.hasPeers() {
		g.logger.Warn("could not hand leadership over, followers will elect", "error", err)
	}
	g.alone.stop()
	g.broker.Close()
	return errors.Join(g.server.Shutdown(ctx), g.catchUp.Close(), g.raft.Close(), g.trans.Close(), g.stream.Close(), g.peers.Close(), g.drain.close(), g.store.Close())
}

func (g *brokerGroup) stateChanged(s raftnode.State) {
	g.alone.leader(s.LeaderID != "")
	g.drain.stateChanged(s)
	g.broker.StateChanged(s)
	for _, f := range g.onState {
		f(s)
	}
}

func (g *brokerGroup) tablesChanged() {
	for _, f := range g.onTables {
		f()
	}
}

// caughtUp: this node has once held all that its leader had applied when they met. Before that it cannot know what
// exists (Never-Guess).
func (g *brokerGroup) caughtUp() bool { return g.caught.Load() }

// learnTarget finds out, once after start, how far the leader is, and waits until this node is there too.
func (g *brokerGroup) learnTarget(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var target uint64
	known := false
	for !g.caught.Load() {
		s := g.raft.State()
		switch {
		case s.Ready:
			g.caught.Store(true) // it leads and has applied its barrier
		case known && g.fsm.Applied() >= target:
			g.caught.Store(true)
		case !known && s.LeaderID != "" && s.Role != raftnode.Leader:
			if addr := g.clientAddrOf(s.LeaderID); addr != "" {
				asking, cancel := context.WithTimeout(ctx, time.Second)
				if leader, err := fetchStatus(asking, addr); err == nil && leader.Ready {
					target, known = leader.AppliedIndex, true
				}
				cancel()
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	g.logger.Info("caught up with the cluster", "applied-index", g.fsm.Applied())
}

// lead runs what only a leader does, until ctx ends with the leadership.
func (g *brokerGroup) lead(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() { g.delay.Run(ctx) })
	wg.Go(func() { g.transactions.Run(ctx) })
	wg.Go(func() { g.retention.Run(ctx) })
	wg.Go(func() { g.leaveFullDisk(ctx) })
	wg.Wait()
}
