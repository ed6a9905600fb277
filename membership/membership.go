// Package membership is the gossip layer (memberlist): who exists, at which addresses, in
// which group, and who leads it. It is soft knowledge, lost on restart without harm, and never
// changes Raft membership or a route by itself: a member that gossip suspects or calls failed
// is reported so and stays listed.
//
// Nodes of another cluster, and a second node that uses a live one's id, are refused and
// reported (Config.OnRefused). A node that comes back with another address takes its name
// over as soon as gossip has found the old address dead.
package membership

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/memberlist"
)

// Errors. The last three are what OnRefused gets.
var (
	// ErrClosed: the membership was closed.
	ErrClosed = errors.New("membership: closed")
	// ErrOtherCluster: the node belongs to a cluster of another name or id.
	ErrOtherCluster = errors.New("membership: node of another cluster")
	// ErrNameConflict: two addresses claim the same node id.
	ErrNameConflict = errors.New("membership: node id in use at another address")
	// ErrBadTags: the node's tags cannot be read.
	ErrBadTags = errors.New("membership: unreadable tags")
)

// Tags are what a node tells about itself (at most 512 bytes encoded).
type Tags struct {
	NodeID, ClusterName, ClusterID string // ClusterID is "" until the node belongs to one
	Group                          string // RocketMQ brokerName
	ClientAddr, RaftAddr, HTTPAddr string
	Version                        string
	// Incarnation is random, made with the data folder: a wiped node is another Raft server than before.
	Incarnation     string
	BootstrapExpect int
	HasData         bool   // the node holds Raft state: nobody may bootstrap over it
	LeaderTerm      uint64 // >0: this node leads its group in that term
	DiskFull        bool   // the node's store takes no messages for want of space
	FetchesLog      bool   // the node fetches what a snapshot lacks: the leader need not send log bytes with it
	// Level is the highest feature level that the node's raftmq can apply, ClusterLevel its group's as the node knows it; 0 from one that
	// does not tell, and before it has a group.
	Level, ClusterLevel int
}

// State of a member as gossip sees it.
type State string

// States.
const (
	// Alive: it is there.
	Alive State = "alive"
	// Suspect: it has not answered this node's own probes for a while, and nobody has
	// declared it failed yet. For display only.
	Suspect State = "suspect"
	// Failed: gossip has declared it dead. It stays listed (Config.KeepFailed).
	Failed State = "failed"
	// Left: it said good-bye. It stays listed for a while (Config.KeepLeft).
	Left State = "left"
)

// Member is one node.
type Member struct {
	Tags
	GossipAddr string
	// Leaving: it is there and has said that it is about to leave for good (AnnounceLeave).
	Leaving bool
	State   State
	Since   time.Time // of State, by this node's clock
}

// Config of Open.
type Config struct {
	Tags          Tags
	BindAddr      string // host:port, both TCP and UDP
	AdvertiseAddr string // host:port, default the bound address
	Logger        hclog.Logger
	// OnRefused is called when a node of another cluster name or id tries to join or is joined,
	// or when a node id is in use twice. From the goroutine of OnChange; not more than once
	// in 30 s for one node and reason.
	OnRefused func(Member, error)

	// ProbeInterval is the beat of failure detection (default 1 s): each beat one member is
	// probed, and one that cannot be reached is called failed after about five beats.
	ProbeInterval time.Duration
	// KeepFailed is how long a failed member stays listed (default 72 h), KeepLeft a left one (1 h).
	KeepFailed, KeepLeft time.Duration
}

// EnsureDefaults fills in zero values.
func (c *Config) EnsureDefaults() {
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	if c.ProbeInterval <= 0 {
		c.ProbeInterval = time.Second
	}
	if c.KeepFailed <= 0 {
		c.KeepFailed = 72 * time.Hour
	}
	if c.KeepLeft <= 0 {
		c.KeepLeft = time.Hour
	}
}

// Membership is the open gossip layer.
type Membership struct {
	cfg    Config
	logger hclog.Logger
	list   *memberlist.Memberlist
	table  *table
	own    map[string]bool // addresses of our own, not worth joining
	nodeID string

	ctx    context.Context // ends with Close; cuts dials and joins
	cancel context.CancelFunc
	wg     sync.WaitGroup

	wakeSpread chan struct{} // tags changed
	wakeJoin   chan struct{} // alone, in conflict, or new addresses

	mu struct {
		sync.Mutex
		joinAddrs []string
		left      bool
		closed    bool
	}
	leaveOnce sync.Once
	leaveErr  error
	closeOnce sync.Once
	closeErr  error
}

// Open binds and starts gossip with nobody.
func Open(cfg Config) (*Membership, error) {
	cfg.EnsureDefaults()
	logger := cfg.Logger.Named("membership")
	if cfg.Tags.NodeID == "" || cfg.Tags.ClusterName == "" {
		return nil, fmt.Errorf("membership: node id %q and cluster name %q must both be given", cfg.Tags.NodeID, cfg.Tags.ClusterName)
	}
	if _, err := encodeTags(cfg.Tags, false); err != nil {
		return nil, err
	}
	bind, err := resolve("bind", cfg.BindAddr)
	if err != nil {
		return nil, err
	}
	if cfg.AdvertiseAddr == "" && bind.IP.To4() == nil && bind.IP.IsUnspecified() {
		return nil, fmt.Errorf("membership: bind address %s is no address that others can reach: an advertise address is needed", cfg.BindAddr)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &Membership{cfg: cfg, logger: logger, nodeID: cfg.Tags.NodeID, ctx: ctx, cancel: cancel,
		wakeSpread: make(chan struct{}, 1), wakeJoin: make(chan struct{}, 1)}
	m.table = newTable(cfg, logger, m.poke)

	ml := listConfig(cfg, logger)
	t, err := newTransport(ctx, bind, ml.Logger)
	if err != nil {
		cancel()
		return nil, err
	}
	ml.Transport = t
	ml.BindAddr, ml.BindPort = bind.IP.String(), t.GetAutoBindPort()
	ml.AdvertisePort = ml.BindPort
	if cfg.AdvertiseAddr != "" {
		adv, err := resolve("advertise", cfg.AdvertiseAddr)
		if err == nil && (adv.IP == nil || adv.IP.IsUnspecified()) {
			err = fmt.Errorf("membership: advertise address %s names no host that others can reach", cfg.AdvertiseAddr)
		}
		if err != nil {
			cancel()
			t.Shutdown()
			return nil, err
		}
		ml.AdvertiseAddr = adv.IP.String()
		if adv.Port != 0 {
			ml.AdvertisePort = adv.Port
		}
	}
	m.table.install(ml)
	list, err := memberlist.Create(ml)
	if err != nil {
		cancel()
		t.Shutdown()
		return nil, fmt.Errorf("membership: start gossip on %s: %w", cfg.BindAddr, err)
	}
	m.list = list
	self := list.LocalNode().Address()
	m.table.setSelfAddr(self)
	m.own = map[string]bool{self: true, cfg.BindAddr: true, cfg.AdvertiseAddr: true}
	m.wg.Go(m.spreadTags)
	m.wg.Go(m.rejoin)
	m.wg.Go(func() { m.table.notify(ctx) })
	logger.Info("gossip started", "address", self)
	return m, nil
}

// Members lists all known nodes, itself included, sorted by node id.
func (m *Membership) Members() []Member { return m.table.members(time.Now()) }

// Member is one member by its node id.
func (m *Membership) Member(nodeID string) (Member, bool) { return m.table.member(nodeID, time.Now()) }

// Self is this node as it tells about itself.
func (m *Membership) Self() Member { return m.table.self() }

// UpdateTags changes this node's tags, at once for its own Members, and spreads them in the
// background. Node id and cluster name stay as they are. An error leaves the tags unchanged.
func (m *Membership) UpdateTags(change func(*Tags)) error {
	if m.ctx.Err() != nil {
		return ErrClosed
	}
	changed, err := m.table.updateSelf(change)
	if err != nil || !changed {
		return err
	}
	poke(m.wakeSpread)
	return nil
}

// AnnounceLeave tells the others that this node is about to leave for good, or that it stays after all. It is alive
// meanwhile; Leave is the good-bye itself.
func (m *Membership) AnnounceLeave(leaving bool) error {
	if m.ctx.Err() != nil {
		return ErrClosed
	}
	m.table.setLeaving(leaving)
	poke(m.wakeSpread)
	return nil
}

// OnChange registers a callback for any change of Members (coalesced, own goroutine). Before Join.
func (m *Membership) OnChange(f func()) { m.table.onChange(f) }

// spreadTimeout bounds one wait for the news to have been told; telling goes on behind it.
const spreadTimeout = 2 * time.Second

// spreadTags tells the others about changed tags. One goroutine, since memberlist's UpdateNode
// waits until the news has been told often enough.
func (m *Membership) spreadTags() {
	for {
		select {
		case <-m.ctx.Done():
			return
		case <-m.wakeSpread:
			if err := m.list.UpdateNode(spreadTimeout); err != nil {
				m.logger.Debug("tags not confirmed as spread yet", "error", err)
			}
		}
	}
}

// Leave says good-bye, so that the others list this node as left and not as failed. It
// returns when that has been told or after timeout with an error; a second call returns the same.
// Gossip goes on until Close, so that the good-bye keeps spreading.
func (m *Membership) Leave(timeout time.Duration) error {
	m.leaveOnce.Do(func() {
		m.mu.Lock()
		closed := m.mu.closed
		m.mu.left = true
		m.mu.Unlock()
		if closed {
			m.leaveErr = ErrClosed
			return
		}
		// memberlist does not say whether a dead node left: the tags do, told first.
		m.table.setLeaving(true)
		if err := m.list.UpdateNode(timeout / 2); err != nil {
			m.logger.Debug("good-bye not confirmed as spread yet", "error", err)
		}
		if err := m.list.Leave(timeout / 2); err != nil {
			m.leaveErr = fmt.Errorf("membership: leave: %w", err)
			return
		}
		m.logger.Info("left the cluster's gossip")
	})
	return m.leaveErr
}

// Close stops gossip without a good-bye; after Leave it is required too. A second call is harmless.
func (m *Membership) Close() error {
	m.closeOnce.Do(func() {
		m.mu.Lock()
		m.mu.closed = true
		m.mu.Unlock()
		m.cancel() // cuts dials first: joins and syncs end at once
		m.closeErr = m.list.Shutdown()
		m.wg.Wait()
	})
	return m.closeErr
}

// poke wakes a loop without waiting; it is woken once for any number of pokes.
func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (m *Membership) poke() { poke(m.wakeJoin) }
