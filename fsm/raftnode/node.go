package raftnode

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
)

// Node is a running Raft node.
type Node struct {
	cfg      Config
	raft     *raft.Raft
	logs     *logStore
	stable   *raftboltdb.BoltStore
	disk     *disk // times and guards both stores
	link     *link
	lease    *lease
	running  atomic.Pointer[raft.Raft] // raft, for link
	ledTerm  atomic.Uint64             // the newest term that this node has led
	proposer *proposer
	hadState bool

	state    atomic.Pointer[State]
	aside    atomic.Pointer[DiskProblem] // not nil: the disk is not well
	watchers []func(State)               // fixed at Start
	events   chan raft.Observation
	observer *raft.Observer
	kicks    chan struct{}
	taken    atomic.Uint64
	handing  atomic.Bool // leadership is being handed over: no writes
	barriers chan uint64 // terms whose barrier has been applied

	stop     chan struct{}
	wg       sync.WaitGroup
	closeOne sync.Once
	closeErr error
}

// Open opens the stores of cfg.Dir and prepares a node that takes no part yet; see Start.
func Open(cfg Config) (*Node, error) {
	cfg.ensureDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("raftnode: %w", err)
	}
	n := &Node{cfg: cfg, events: make(chan raft.Observation, 64), kicks: make(chan struct{}, 1), barriers: make(chan uint64, 1),
		disk: newDisk(time.Now), stop: make(chan struct{})}
	n.link = newLink(cfg.Transport, newBallots(n.otherVoters, cfg.ElectionTimeout, cfg.Logger), cfg.PeerAddr, time.Now)
	n.link.stop, n.link.leads, n.link.canReceive = n.stop, n.leadsTo, cfg.CanReceive
	if cfg.Receive != nil {
		n.link.intake = newIntake(cfg.ReadSnapshot, cfg.Receive, n.term, n.beyond)
	}
	n.lease = newLease(cfg.LeaseTimeout, n.voters)
	n.link.lease = n.lease
	n.state.Store(&State{Role: Follower, Since: cfg.Now()})
	var err error
	n.stable, err = openStable(filepath.Join(cfg.Dir, "stable.db"), nil)
	if err != nil {
		return nil, err
	}
	if cfg.lazyTail, err = settleUnsafe(cfg); err != nil {
		_ = n.stable.Close()
		return nil, err
	}
	n.logs, err = openLogStore(cfg)
	if err != nil {
		_ = n.stable.Close()
		return nil, err
	}
	if err := syncFolders(cfg.Dir); err != nil {
		_ = n.closeStores()
		return nil, err
	}
	if err := n.checkState(cfg.Applied); err != nil {
		_ = n.closeStores()
		return nil, err
	}
	if err := n.dropLogBehindSnapshot(); err != nil {
		_ = n.closeStores()
		return nil, err
	}
	n.hadState, err = raft.HasExistingState(n.logs, n.stable, cfg.Snapshots)
	if err != nil {
		_ = n.closeStores()
		return nil, fmt.Errorf("raftnode: read existing state: %w", err)
	}
	return n, nil
}

// syncFolders makes the names in dir, and of dir itself, durable: a file that is synced is not there after a loss of power if its name
// was not (F35). Neither store of Raft's, nor a snapshot, syncs the folder that it was made in.
func syncFolders(dir string) error {
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := syncPath(d); err != nil {
			return err
		}
	}
	return nil
}

// dropLogBehindSnapshot finishes an installed snapshot whose receiver died before Raft removed the older log: the
// next entry would leave a gap, which raft-wal refuses.
func (n *Node) dropLogBehindSnapshot() error {
	snaps, err := n.cfg.Snapshots.List()
	if err != nil {
		return fmt.Errorf("raftnode: list snapshots: %w", err)
	}
	first, err := n.logs.FirstIndex()
	if err != nil {
		return fmt.Errorf("raftnode: read log: %w", err)
	}
	last, err := n.logs.LastIndex()
	if err != nil {
		return fmt.Errorf("raftnode: read log: %w", err)
	}
	if len(snaps) == 0 || last == 0 || snaps[0].Index <= last {
		return nil
	}
	n.cfg.Logger.Info("dropping a raft log that ends before the installed snapshot", "last-index", last, "snapshot-index", snaps[0].Index)
	if err := n.logs.DeleteRange(first, last); err != nil {
		return fmt.Errorf("raftnode: drop log entries %d to %d behind snapshot %d: %w", first, last, snaps[0].Index, err)
	}
	return nil
}

// HasState reports whether the folder held Raft state when it was opened: such a node never bootstraps.
func (n *Node) HasState() bool { return n.hadState }

// OnState registers a callback for changes of State, called in order from one goroutine. Before Start.
func (n *Node) OnState(f func(State)) { n.watchers = append(n.watchers, f) }

// Start restores the latest snapshot through the FSM and takes part in the cluster.
func (n *Node) Start() error {
	from := n.cfg.Transport.Consumer()
	if n.hadState {
		n.link.young = &young{inner: from, outer: make(chan raft.RPC), clock: sinceBoot, until: sinceBoot() + n.cfg.HeartbeatTimeout}
		from = n.link.young.outer
	}
	if in := n.link.intake; in != nil {
		in.wg.Add(1)
		go in.run(from)
	}
	r, err := n.newRaft()
	if err != nil {
		n.closeIntake()
		return fmt.Errorf("raftnode: start: %w", err)
	}
	n.raft = r
	if n.hadState {
		n.wg.Go(func() { n.link.young.run(n.stop) })
	}
	n.running.Store(r)
	n.proposer = newProposer(n.cfg, r)
	n.observer = raft.NewObserver(n.events, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.LeaderObservation, raft.RaftState:
			return true
		}
		return false
	})
	r.RegisterObserver(n.observer)
	n.wg.Add(3)
	go n.watch()
	go n.compact()
	go n.watchDisk()
	return nil
}

// leadsTo tells whether this node still leads in a term, and a server is in its configuration.
func (n *Node) leadsTo(term uint64, id raft.ServerID) bool {
	r := n.running.Load()
	if r == nil || r.State() != raft.Leader || r.CurrentTerm() != term {
		return false
	}
	c := r.GetConfiguration()
	if c.Error() != nil {
		return false
	}
	return slices.ContainsFunc(c.Configuration().Servers, func(s raft.Server) bool { return s.ID == id })
}

// term is Raft's current one, 0 before it runs.
func (n *Node) term() uint64 {
	if r := n.running.Load(); r != nil {
		return r.CurrentTerm()
	}
	return 0
}

// beyond tells that this node's log has an entry of this index and term, or that it was applied, and that there is more behind it.
func (n *Node) beyond(index, term uint64) bool {
	r := n.running.Load()
	if r == nil || r.LastIndex() <= index {
		return false
	}
	if r.AppliedIndex() >= index {
		return true
	}
	var l raft.Log
	return n.logs.GetLog(index, &l) == nil && l.Term == term
}

func (n *Node) closeIntake() {
	if n.link.intake != nil {
		n.link.intake.close()
	}
}

// newRaft runs raft.NewRaft on a goroutine of its own, which a failing stable store may end (see guardedStable).
func (n *Node) newRaft() (r *raft.Raft, err error) {
	done := make(chan struct{})
	fsm, early := newEarlyApply(n.cfg.FSM)
	go func() {
		defer close(done)
		r, err = raft.NewRaft(n.cfg.raftConfig(), fsm, &guardedLog{n.logs, n.disk, n, early, n.committed}, &guardedStable{n.stable, n.disk}, n.cfg.Snapshots, n.link)
	}()
	<-done
	if r == nil && err == nil {
		err = n.disk.failure()
	}
	return r, err
}

// committed is the last entry that this node knows to be committed, 0 before Raft runs.
func (n *Node) committed() uint64 {
	r := n.running.Load()
	if r == nil {
		return 0
	}
	return max(r.CommitIndex(), r.AppliedIndex())
}

// Bootstrap makes this node the first of a new cluster of the given voters. Only for a node without state.
func (n *Node) Bootstrap(servers []Server) error {
	if n.hadState {
		return errors.New("raftnode: a node with data never bootstraps")
	}
	var c raft.Configuration
	for _, s := range servers {
		c.Servers = append(c.Servers, raft.Server{ID: serverID(s.ID, s.Incarnation), Address: raft.ServerAddress(s.RaftAddr), Suffrage: raft.Voter})
	}
	if err := n.raft.BootstrapCluster(c).Error(); err != nil {
		return fmt.Errorf("raftnode: bootstrap: %w", err)
	}
	return nil
}

// Propose puts p into the entry being built and returns; see Proposal.
func (n *Node) Propose(p Proposal) error { return n.proposer.propose(p) }

// ProposeWait proposes one encoded command and waits for its result.
func (n *Node) ProposeWait(ctx context.Context, command []byte) (entryResult any, i int, err error) {
	w := &waiter{command: command, done: make(chan struct{})}
	if err := n.proposer.propose(w); err != nil {
		return nil, 0, err
	}
	select {
	case <-w.done:
		return w.result, w.i, w.err
	case <-ctx.Done():
		return nil, 0, fmt.Errorf("raftnode: command proposed, outcome unknown: %w", ctx.Err())
	}
}

type waiter struct {
	command []byte
	done    chan struct{}
	result  any
	i       int
	err     error
}

func (w *waiter) AppendCommand(dst []byte, _ int64) []byte { return append(dst, w.command...) }

func (w *waiter) Done(result any, i int, err error) {
	w.result, w.i, w.err = result, i, err
	close(w.done)
}

// Indexes says where this node's log stands.
type Indexes struct {
	Applied, Commit, Last, Snapshot uint64
	LastContact                     time.Time // with the leader; zero on the leader
	LogBytes                        int64     // since the last snapshot
	HeldBytes                       int64     // about, of all entries in the Raft log
}

// Indexes returns the current indexes.
func (n *Node) Indexes() Indexes {
	stats := n.raft.Stats()
	snap, _ := strconv.ParseUint(stats["last_snapshot_index"], 10, 64)
	first, _ := n.logs.FirstIndex()
	return Indexes{HeldBytes: n.logs.bytesSince(max(first, 1) - 1), Applied: n.raft.AppliedIndex(), Commit: n.raft.CommitIndex(), Last: n.raft.LastIndex(),
		Snapshot: snap, LastContact: n.raft.LastContact(), LogBytes: n.logs.bytesSince(snap)}
}

// Stats are counters, for metrics.
func (n *Node) Stats() Stats {
	s := n.proposer.stats()
	s.Snapshots = n.taken.Load()
	return s
}

// TransferLeadership hands leadership to the most caught-up voter and waits until it is gone.
func (n *Node) TransferLeadership() error {
	if n.State().Role != Leader || n.aside.Load() != nil {
		return nil
	}
	if err := n.handOver(n.raft.LeadershipTransfer); err != nil {
		return fmt.Errorf("raftnode: transfer leadership: %w", err)
	}
	return nil
}

// Close stops taking part and closes the stores. Hand leadership over first.
func (n *Node) Close() error {
	n.closeOne.Do(func() {
		close(n.stop)
		if n.raft != nil {
			n.proposer.stopAccepting(ErrClosed)
			err := n.shutRaft()
			n.closeIntake()
			if err != nil {
				n.closeErr = err // its goroutines still use the stores
				return
			}
			n.proposer.close()
			n.raft.DeregisterObserver(n.observer)
			n.wg.Wait()
		}
		n.closeErr = errors.Join(n.closeErr, n.closeStores())
	})
	return n.closeErr
}

// shutRaft ends Raft, unless it hangs in a write that never returns.
func (n *Node) shutRaft() error {
	done := make(chan error, 1)
	go func() { done <- n.raft.Shutdown().Error() }()
	limit := n.cfg.DiskStallTimeout
	if limit <= 0 {
		limit = 24 * time.Hour
	}
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			if what, since := n.disk.oldest(); what != "" && time.Since(since) > limit {
				return fmt.Errorf("%w: a %s has taken %v", ErrHangs, what, time.Since(since).Round(time.Second))
			}
		}
	}
}

func (n *Node) closeStores() error { return errors.Join(n.logs.Close(), n.stable.Close()) }
