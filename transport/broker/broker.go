// Package broker holds the broker's request processors, one file per request family: send,
// send-back, ends of transactions, pull and its hold list, consumer offsets, queue offsets, queries by key, heartbeats and
// membership, queue locks, topic, group and status administration.
//
// It turns requests into commands for Raft and reads what has been applied; it never writes
// the store or the tables itself. What waits for its time or its outcome is stored here and moved on by
// fsm/delay and fsm/transaction.
//
// Invariants: a write is answered only by a leader that has applied its barrier, after Apply
// (Quorum-Durable); what goes into a record is stamped here or by the proposer, never by Apply
// (Deterministic-Apply); a node that cannot know answers a retryable error, waits for a leader or closes the
// connection, but never answers "not found" (Never-Guess); bodies of pulls are counted views
// (Views-Are-Counted); every request is answered once (F93), sends of one connection are
// proposed in the order they came (F95).
package broker

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"raftmq/commitlog/store"
	"raftmq/fsm/raftnode"
	"raftmq/seam"
	"raftmq/transport"
	"raftmq/transport/remoting"

	"github.com/hashicorp/go-hclog"
)

// Broker serves the broker's request codes of one group.
type Broker struct {
	cfg    Config
	logger hclog.Logger
	region []byte
	start  time.Time

	proposals sync.Pool // *sendProposal
	pulls     sync.Pool // *pull
	probes    sync.Pool // *probe

	segmentSize atomic.Int64              // from the cluster settings, 0 until they are known
	delayLevels atomic.Int32              // their number, likewise
	knewLeader  atomic.Bool               // a leader has been known since start
	readySince  atomic.Pointer[time.Time] // when this node's newest leadership began, nil for never

	topics   overlay
	groups   groupCreator
	held     holdList
	relaying atomic.Int64 // bytes of writes that were passed on and not answered yet
	polls    pollList
	gather   gatherer
	notices  notifier
	filters  filterCache
	waiting  atomic.Int64 // requests that wait for a leader
	counters counters
	counting counting
	refused  refusedPuts
	located  remembered // addresses of nodes with producers of a group
	others   remembered // ids of a group's consumers

	locks struct {
		sync.Mutex        // taken before the registry's
		term       uint64 // whose leases the registry has, 0 for none
	}

	state struct {
		sync.Mutex
		last    raftnode.State
		changed chan struct{} // closed at the next change
	}

	ctx      context.Context // ends with Close
	cancel   context.CancelFunc
	wg       sync.WaitGroup
	drained  sync.Once
	closeOne sync.Once
}

// counters since start.
type counters struct {
	pulledMessages, pulledBytes, pullFound, pullMiss atomic.Uint64
	heldWrites, refusedWrites, failedWrites          atomic.Uint64
	relayedWrites                                    atomic.Uint64
	relayedAt                                        atomic.Int64 // Unix ms of the newest, 0 for none
}

// New returns a broker whose loops run; Register makes it serve, Close ends it.
func New(cfg Config) (*Broker, error) {
	cfg.ensureDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	b := &Broker{cfg: cfg, logger: cfg.Logger.Named("broker"), region: []byte(cfg.Region), start: cfg.Now()}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	b.state.changed = make(chan struct{})
	b.proposals.New = func() any { return newSendProposal(b) }
	b.pulls.New = func() any { return newPull(b) }
	b.probes.New = func() any { return new(probe) }
	b.topics.init(b)
	b.groups.init(b)
	b.held.init(b)
	b.polls.init(b)
	b.gather.init(b)
	b.counting.init(cfg.ClusterName)
	b.notices.init(b)
	cfg.Groups.OnChange(b.notices.mark)
	cfg.Store.OnArrival(b.polls.arrived)
	if s := cfg.Raft.State(); s.LeaderID != "" {
		b.StateChanged(s)
	}
	for _, loop := range []func(){b.held.run, b.polls.run, b.gather.run, b.notices.run, b.housekeep} {
		b.wg.Go(loop)
	}
	return b, nil
}

// Register registers all handlers at s, before it serves.
func (b *Broker) Register(s *transport.Server) {
	for _, code := range []int32{remoting.RequestSendMessage, remoting.RequestSendMessageV2, remoting.RequestSendBatchMessage} {
		s.HandleInline(code, b.handleSend)
	}
	for _, code := range []int32{remoting.RequestSendReplyMessage, remoting.RequestSendReplyMessageV2} {
		s.Handle(code, b.sendReply)
	}
	s.Handle(remoting.RequestRelayReply, b.relayReply)
	s.Handle(remoting.RequestRelayClient, b.relayClient)
	for _, code := range []int32{remoting.RequestPullMessage, remoting.RequestLitePullMessage} {
		s.HandleInline(code, b.handlePull)
	}
	s.HandleInline(remoting.RequestUpdateConsumerOffset, b.leaderOnly(refuseUnavailable, b.updateConsumerOffset))
	s.HandleInline(remoting.RequestQueryConsumerOffset, b.leaderOnly(closeConnection, b.queryConsumerOffset))
	s.HandleInline(remoting.RequestGetMaxOffset, b.leaderReads(refuseUnavailable, b.maxOffset))
	s.HandleInline(remoting.RequestGetMinOffset, b.leaderReads(refuseUnavailable, b.minOffset))
	s.HandleInline(remoting.RequestGetEarliestMsgStoreTime, b.leaderReads(refuseUnavailable, b.earliestStoreTime))
	s.HandleInline(remoting.RequestGetConsumerListByGroup, b.consumerList)
	// These may read cold pages.
	s.Handle(remoting.RequestSearchOffsetByTimestamp, b.leaderReads(refuseUnavailable, b.searchOffset))
	s.Handle(remoting.RequestViewMessageByID, b.viewMessage)
	s.Handle(remoting.RequestQueryMessage, b.queryMessage)
	s.Handle(remoting.RequestConsumerSendMsgBack, b.leaderOnly(closeConnection, b.sendBack))
	s.Handle(remoting.RequestEndTransaction, b.leaderOnly(refuseUnavailable, b.endTransaction))
	s.Handle(remoting.RequestResumeCheckHalfMessage, b.leaderOnly(refuseUnavailable, b.resumeHalf))
	s.Handle(remoting.RequestHeartBeat, b.heartbeat)
	s.Handle(remoting.RequestUnregisterClient, b.unregister)
	s.Handle(remoting.RequestCheckClientConfig, b.checkClientConfig)
	s.Handle(remoting.RequestLockBatchMQ, b.leaderOnly(refuseUnavailable, b.lockQueues))
	s.Handle(remoting.RequestUnlockBatchMQ, b.leaderOnly(refuseUnavailable, b.unlockQueues))
	b.registerAdmin(s)
	s.OnClose(func(c *transport.Conn) {
		b.polls.drop(c.ID())
		b.cfg.Groups.CloseConn(c.ID())
	})
}

// StateChanged takes a change of leadership, in order, from one goroutine (raftnode.Node.OnState).
func (b *Broker) StateChanged(s raftnode.State) {
	b.state.Lock()
	last := b.state.last
	b.state.last = s
	close(b.state.changed)
	b.state.changed = make(chan struct{})
	b.state.Unlock()

	if s.LeaderID != "" {
		b.knewLeader.Store(true)
	}
	if s.Ready && (!last.Ready || last.Term != s.Term) {
		now := b.cfg.Now()
		b.readySince.Store(&now)
	}
	b.beginLocks()
	if last.Ready && (!s.Ready || last.Term != s.Term) {
		b.gather.lose()
	}
	b.held.kick()
	b.polls.leaderChanged(last, s)
}

// changed returns a channel that is closed at the next change of leadership.
func (b *Broker) changed() <-chan struct{} {
	b.state.Lock()
	defer b.state.Unlock()
	return b.state.changed
}

// leads reports whether this node takes writes, as far as it has noticed: what it proposes is not done if another one leads.
func (b *Broker) leads() bool { return b.cfg.Raft.State().Ready || b.guesses() }

// authoritative reports whether this node may say what is and what is not: what was read before the call is what all have agreed on
// (raftnode's Lease-Before-Answer).
func (b *Broker) authoritative() bool { return b.cfg.Raft.Certain() || b.guesses() }

// guesses is a planted bug, for jepsen's proof of itself.
func (b *Broker) guesses() bool { return seam.On(seam.StaleReads) && b.cfg.Raft.State().LeaderID == "" }

// recovering reports whether this node has not caught up with a leader since start: nothing that it holds can be trusted to
// be recent (Never-Guess).
func (b *Broker) recovering() bool {
	if b.cfg.CaughtUp != nil {
		return !b.cfg.CaughtUp()
	}
	if b.knewLeader.Load() {
		return false
	}
	if b.cfg.Raft.State().LeaderID == "" {
		return true
	}
	b.knewLeader.Store(true)
	return false
}

// recordLimit is the largest total of one command's records: they share a commit log segment (Same-Bytes).
func (b *Broker) recordLimit() int64 {
	size := b.segmentSize.Load()
	if size == 0 {
		s, ok := b.cfg.Tables.Settings()
		if !ok {
			return 0
		}
		size = s.SegmentSize
		b.segmentSize.Store(size)
	}
	return size
}

// Drain answers everything that waits: parked pulls, held writes. New ones are answered at once. Call it
// before the server shuts down, so that clients hear before their connections close.
func (b *Broker) Drain() {
	b.drained.Do(func() {
		b.state.Lock()
		b.cancel() // under the lock: spawn starts nothing from here on
		b.state.Unlock()
		b.held.close()
		b.polls.close()
		b.gather.close()
	})
}

// Close drains and joins all goroutines.
func (b *Broker) Close() {
	b.Drain()
	b.closeOne.Do(b.wg.Wait)
}

// Stats are counters since start and gauges now.
type Stats struct {
	PulledMessages, PulledBytes             uint64
	PullFound, PullMiss                     uint64
	HeldWrites, RefusedWrites, FailedWrites uint64
	RelayedWrites                           uint64    // passed on to the leader
	RelayedAt                               time.Time // the newest of them, zero for none
	WaitingWrites, ParkedPulls              int64
}

// Stats returns a snapshot.
func (b *Broker) Stats() Stats {
	c := &b.counters
	var relayed time.Time
	if ms := c.relayedAt.Load(); ms > 0 {
		relayed = time.UnixMilli(ms)
	}
	return Stats{
		RelayedWrites: c.relayedWrites.Load(), RelayedAt: relayed,
		PulledMessages: c.pulledMessages.Load(), PulledBytes: c.pulledBytes.Load(), PullFound: c.pullFound.Load(), PullMiss: c.pullMiss.Load(),
		HeldWrites: c.heldWrites.Load(), RefusedWrites: c.refusedWrites.Load(), FailedWrites: c.failedWrites.Load(),
		WaitingWrites: b.held.pending.Load(), ParkedPulls: b.polls.parked.Load(),
	}
}

// syncFlush reports whether answers wait for the local flush.
func (b *Broker) syncFlush() bool { return b.cfg.Store.Mode() == store.SyncFlush }
