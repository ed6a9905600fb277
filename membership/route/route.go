// Package route puts topic routes and the cluster table together from replicated tables
// (topics, nodes), Raft leadership of local groups and gossip: the leader is broker 0, replicas keep
// stable ids. Gossip's suspicion alone never changes a route.
//
// Nothing is cached but who led last, so a new leader or a changed topic is in the next
// answer. Never-Guess: a node that has no leader, or has not caught up with it, answers ErrNoLeader and
// never that a topic does not exist.
package route

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"raftmq/fsm/metadata"
	"raftmq/membership"
)

// Broker is one broker group as clients see it.
type Broker struct {
	Name    string // brokerName
	Cluster string
	Addrs   map[int64]string // 0 = leader
}

// Queue is one topic's queues in one group.
type Queue struct {
	BrokerName                 string
	Read, Write, Perm, SysFlag int
}

// Route is a topic's route.
type Route struct {
	Brokers        []Broker
	Queues         []Queue
	OrderTopicConf string
}

// Errors.
var (
	ErrNoTopic  = errors.New("route: no such topic")
	ErrNoLeader = errors.New("route: no leader is known")
	// ErrCatchingUp is an ErrNoLeader too: there is one, but this node's tables are behind.
	ErrCatchingUp = fmt.Errorf("route: this node has not caught up with its leader yet: %w", ErrNoLeader)
)

// DefaultLastLeaderGrace is Config.LastLeaderGrace's default.
const DefaultLastLeaderGrace = 3 * time.Second

// Group is a broker group that this process takes part in.
type Group struct {
	Name        string // brokerName
	ClusterName string
	Tables      *metadata.Tables
	// Leader is who leads by this node's Raft, now; false while none is known.
	Leader func() (nodeID string, ok bool)
	// Deposed reports that this node led and lost its quorum: there is no grace then, since the last leader, itself, certainly leads no
	// more, and whoever asks must find the majority. nil: never.
	Deposed func() bool
	// Members are the node ids of the group's Raft configuration. nil: all nodes of the tables.
	Members func() []string
	// CaughtUp reports that the tables have once held all that the leader had committed
	// since this process started. nil: as soon as there has been a leader and the settings are there.
	CaughtUp func() bool
}

// Config of New.
type Config struct {
	Groups []Group
	// Gossip lists the members; nil where there is no gossip. They give addresses that the
	// tables don't know yet, and leaders of groups that this process takes no part in.
	Gossip func() []membership.Member
	// LastLeaderGrace is how long the last leader is still published when none is known (3 s): a
	// brokerName without id 0 costs producers more than a hint that is wrong for an election's time.
	LastLeaderGrace time.Duration
	// Now is the clock (time.Now).
	Now func() time.Time
}

// Router answers routes. Its methods may be called from any goroutine.
type Router struct {
	cfg Config

	mu   sync.Mutex
	last []lastLeader // guarded by mu; of cfg.Groups[i]
}

// lastLeader is what was known about a group's leader when it was last asked.
type lastLeader struct {
	nodeID string
	lostAt time.Time // zero while it leads
	ever   bool      // there has been one since start
}

// New returns a Router.
func New(cfg Config) *Router {
	if cfg.LastLeaderGrace <= 0 {
		cfg.LastLeaderGrace = DefaultLastLeaderGrace
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Router{cfg: cfg, last: make([]lastLeader, len(cfg.Groups))}
}

// LeaderChanged notes a changed leadership. Call it when Raft tells of one: the grace of the
// last leader then begins when it was lost, and not when somebody next asks.
func (r *Router) LeaderChanged() {
	for i := range r.cfg.Groups {
		r.leader(i)
	}
}

// Topic returns a topic's route: all groups that have the topic and a leader.
// ErrNoTopic only when the node can know that.
func (r *Router) Topic(name string) (Route, error) {
	var out Route
	missing := error(nil) // why a group that may have the topic isn't in out
	for i := range r.cfg.Groups {
		g := &r.cfg.Groups[i]
		l := r.leader(i)
		if err := l.usable(g); err != nil {
			missing = err
			continue
		}
		t, ok := g.Tables.Topic(name)
		if !ok {
			if !l.now {
				missing = ErrNoLeader // the next leader may have it
			}
			continue
		}
		b, ok := r.broker(g, l.nodeID)
		if !ok {
			missing = ErrNoLeader
			continue
		}
		out.Brokers = append(out.Brokers, b)
		out.Queues = append(out.Queues, Queue{BrokerName: g.Name, Read: t.ReadQueueNums, Write: t.WriteQueueNums, Perm: t.Perm, SysFlag: t.TopicSysFlag})
		if out.OrderTopicConf == "" {
			if v, ok := g.Tables.KV(metadata.OrderNamespace, name); ok {
				out.OrderTopicConf = cleanOrderConf(v)
			}
		}
	}
	switch {
	case len(out.Brokers) > 0:
		return out, nil
	case missing != nil:
		return Route{}, missing
	case len(r.cfg.Groups) == 0:
		return Route{}, ErrNoLeader
	}
	return Route{}, ErrNoTopic
}

// Clusters lists all broker groups with a leader, local ones first; ErrNoLeader when no local
// group has one: what gossip says alone is not enough.
func (r *Router) Clusters() ([]Broker, error) {
	var out []Broker
	missing := ErrNoLeader
	local := make(map[string]bool, len(r.cfg.Groups))
	for i := range r.cfg.Groups {
		g := &r.cfg.Groups[i]
		local[g.Name] = true
		l := r.leader(i)
		if err := l.usable(g); err != nil {
			missing = err
			continue
		}
		if b, ok := r.broker(g, l.nodeID); ok {
			out = append(out, b)
		}
	}
	if len(out) == 0 {
		return nil, missing
	}
	return append(out, r.remote(local)...), nil
}

// Topics lists the names of the topics of a cluster, or of all when cluster is "", that keep
// accepts by their system flag (nil: all). Each group's are sorted; no name comes twice.
func (r *Router) Topics(cluster string, keep func(sysFlag int) bool) ([]string, error) {
	out := []string{}
	seen := map[string]bool{}
	missing, usable := error(ErrNoLeader), 0
	for i := range r.cfg.Groups {
		g := &r.cfg.Groups[i]
		if err := r.leader(i).usable(g); err != nil {
			missing = err
			continue
		}
		usable++
		if cluster != "" && cluster != g.ClusterName {
			continue
		}
		topics, _ := g.Tables.Topics()
		if len(out) == 0 {
			out = make([]string, 0, len(topics))
		}
		for _, t := range topics {
			if keep != nil && !keep(t.TopicSysFlag) {
				continue
			}
			if len(r.cfg.Groups) > 1 {
				if seen[t.TopicName] {
					continue
				}
				seen[t.TopicName] = true
			}
			out = append(out, t.TopicName)
		}
	}
	if usable == 0 {
		return nil, missing
	}
	return out, nil
}

// leadership is a group's leader for one answer.
type leadership struct {
	nodeID string // the leader, or the last one within its grace; "" for none
	now    bool   // it leads now
	ever   bool
}

// leader asks who leads group i and keeps what is needed for the grace.
func (r *Router) leader(i int) leadership {
	g := &r.cfg.Groups[i]
	id, ok := g.Leader()
	deposed := !ok && g.Deposed != nil && g.Deposed()
	now := r.cfg.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	last := &r.last[i]
	if ok && id != "" {
		*last = lastLeader{nodeID: id, ever: true}
		return leadership{nodeID: id, now: true, ever: true}
	}
	if last.ever && last.lostAt.IsZero() {
		last.lostAt = now
	}
	if last.ever && now.Sub(last.lostAt) <= r.cfg.LastLeaderGrace && !deposed {
		return leadership{nodeID: last.nodeID, ever: true}
	}
	return leadership{ever: last.ever}
}

// usable says why g's tables may not be answered from.
func (l leadership) usable(g *Group) error {
	if l.nodeID == "" {
		return ErrNoLeader
	}
	if g.CaughtUp != nil && !g.CaughtUp() {
		return ErrCatchingUp
	}
	if _, ok := g.Tables.Settings(); !ok {
		return ErrCatchingUp
	}
	return nil
}

// broker is a group as clients see it: the leader as 0, every other member under its number.
// A replica without a number or an address is left out. false without an address of the leader.
func (r *Router) broker(g *Group, leaderID string) (Broker, bool) {
	addrs := addresses{tables: g.Tables, gossip: r.cfg.Gossip, group: g.Name, cluster: g.ClusterName}
	leader := addrs.of(leaderID)
	if leader == "" {
		return Broker{}, false
	}
	b := Broker{Name: g.Name, Cluster: g.ClusterName, Addrs: map[int64]string{0: leader}}
	put := func(n metadata.Node) {
		if n.ID == leaderID || n.Number < 1 {
			return
		}
		if a := addrs.of(n.ID); a != "" {
			b.Addrs[n.Number] = a
		}
	}
	if g.Members == nil {
		for _, n := range g.Tables.Nodes() {
			put(n)
		}
		return b, true
	}
	for _, id := range g.Members() {
		if n, ok := g.Tables.Node(id); ok {
			put(n)
		}
	}
	return b, true
}

// addresses finds client addresses: the tables' first, gossip's when they have none.
type addresses struct {
	tables         *metadata.Tables
	gossip         func() []membership.Member
	group, cluster string
	members        []membership.Member
	asked          bool
}

func (a *addresses) of(id string) string {
	if n, ok := a.tables.Node(id); ok && clientAddr(n.ClientAddr) {
		return n.ClientAddr
	}
	if a.gossip == nil {
		return ""
	}
	if !a.asked {
		a.members, a.asked = a.gossip(), true
	}
	for _, m := range a.members {
		if m.NodeID == id && m.Group == a.group && m.ClusterName == a.cluster && clientAddr(m.ClientAddr) {
			return m.ClientAddr
		}
	}
	return ""
}

// clientAddr reports whether an address may stand in a route: the Go client cuts the text at
// commas and at the first colon after a quote is removed, and trims nothing (wire.md §4.1).
func clientAddr(a string) bool { return a != "" && !strings.ContainsAny(a, ", \"{}") }

// remote are the groups that this process takes no part in, as their leaders tell by gossip: the
// highest term of a group wins. Their replicas' numbers are not known here.
func (r *Router) remote(local map[string]bool) []Broker {
	if r.cfg.Gossip == nil {
		return nil
	}
	term := map[string]uint64{}
	at := map[string]int{}
	var out []Broker
	for _, m := range r.cfg.Gossip() { // by node id: the order is stable
		if m.LeaderTerm == 0 || local[m.Group] || m.Group == "" || !clientAddr(m.ClientAddr) || m.State == membership.Left {
			continue
		}
		b := Broker{Name: m.Group, Cluster: m.ClusterName, Addrs: map[int64]string{0: m.ClientAddr}}
		i, known := at[m.Group]
		switch {
		case !known:
			at[m.Group] = len(out)
			out = append(out, b)
		case m.LeaderTerm > term[m.Group]:
			out[i] = b
		default:
			continue
		}
		term[m.Group] = m.LeaderTerm
	}
	return out
}

// cleanOrderConf keeps the items "brokerName:queues" of an ordered topic's list. Go clients
// panic on anything else in it, a trailing semicolon included (wire.md §4.1).
func cleanOrderConf(v string) string {
	items := strings.Split(v, ";")
	kept := items[:0]
	for _, it := range items {
		name, n, ok := strings.Cut(it, ":")
		if ok && name != "" {
			if _, err := strconv.ParseUint(n, 10, 31); err == nil {
				kept = append(kept, it)
			}
		}
	}
	return strings.Join(kept, ";")
}
