// Package group keeps what clients say in heartbeats: live producers and consumers of each
// group, their subscriptions, and queue locks. Local to the node and lost on restart.
//
// It sends nothing and knows no wire format: whoever owns the Registry hands heartbeats in,
// tells it about closed connections, and sends notifications when OnChange says that the
// members of a consumer group are others now. Every node keeps a registry of its own, as
// consumers send their heartbeats to every node of a route.
package group

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Expiry is how long a member lives without a heartbeat (RocketMQ's CHANNEL_EXPIRED_TIMEOUT).
const Expiry = 120 * time.Second

// Conn is a client's connection as the registry sees it.
type Conn interface {
	// ID tells connections of a process apart.
	ID() uint64
	RemoteAddr() netip.AddrPort
}

// Client is one member: a client id on one connection.
type Client struct {
	Conn     Conn
	ID       string // the client's own id; several connections may carry the same
	Language uint8
	Version  int32
	LastSeen time.Time
}

// Message models of a consumer group (RocketMQ MessageModel).
const (
	Broadcasting = "BROADCASTING"
	Clustering   = "CLUSTERING"
)

// Subscription of a consumer group to one topic. It is never changed once the registry has it.
type Subscription struct {
	Topic          string
	SubString      string
	ExpressionType string // "TAG" or "SQL92"; empty counts as TAG
	Tags           []string
	Codes          []int32 // Java hash codes of the tags
	ClassFilter    bool
	Version        int64 // subVersion: ms from Java, ns from Go
	// Match decides by a message's tags code; nil matches all.
	Match func(tagsCode int64) bool
	// MatchProperties decides by a message's properties text, for an SQL92 expression; nil matches all. Unreadable: the
	// expression is none.
	MatchProperties func(properties []byte) bool
	Unreadable      bool
}

// Consumer is what a heartbeat says of one consumer group.
type Consumer struct {
	Group         string
	Type          string // CONSUME_ACTIVELY, CONSUME_PASSIVELY
	Model         string // CLUSTERING, BROADCASTING
	FromWhere     string
	Subscriptions []*Subscription
}

// Heartbeat is what one client says of itself.
type Heartbeat struct {
	Client    Client // LastSeen is filled in
	Producers []string
	Consumers []Consumer
}

// consumers is one consumer group.
type consumers struct {
	kind, model, fromWhere string
	members                map[uint64]*Client // by connection
	subscriptions          map[string]*Subscription
}

// membership of one connection.
type membership struct {
	consumers, producers map[string]struct{}
	requester            string // its client id, if replies may go to it
}

// Registry is the membership table of a node. Safe for concurrent use.
type Registry struct {
	now      func() time.Time
	onChange func(group string)

	mu struct {
		sync.RWMutex
		consumers map[string]*consumers
		producers map[string]map[uint64]*Client
		conns     map[uint64]*membership
		// requesters by client id, where replies go: the newest connection of each.
		requesters map[string]*Client
	}
	locks locks
}

// NewRegistry returns an empty registry. now is the clock (time.Now when nil).
func NewRegistry(now func() time.Time) *Registry {
	if now == nil {
		now = time.Now
	}
	r := &Registry{now: now}
	r.mu.consumers = map[string]*consumers{}
	r.mu.producers = map[string]map[uint64]*Client{}
	r.mu.conns = map[uint64]*membership{}
	r.mu.requesters = map[string]*Client{}
	r.locks.groups = map[string]map[Queue]lease{}
	return r
}

// OnChange registers the callback for a consumer group whose members or subscribed topics
// changed. Before first use; it runs on the goroutine that made the change, without locks held.
func (r *Registry) OnChange(f func(group string)) { r.onChange = f }

func (r *Registry) changed(groups []string) {
	if r.onChange == nil {
		return
	}
	for _, g := range groups {
		r.onChange(g)
	}
}

// Heartbeat registers or refreshes a client in all groups that it names (RocketMQ
// ConsumerManager.registerConsumer, ProducerManager.registerProducer).
func (r *Registry) Heartbeat(h Heartbeat) { r.register(h, h.Client.ID) }

// register is Heartbeat for a client to which replies go under the id requester, unless that is empty.
func (r *Registry) register(h Heartbeat, requester string) {
	var changed []string
	h.Client.LastSeen = r.now()
	r.mu.Lock()
	m := r.memberLocked(h.Client.Conn.ID())
	if len(h.Producers) > 0 && requester != "" {
		c := h.Client
		r.requestsLocked(m, &c)
	}
	for _, g := range h.Producers {
		if r.mu.producers[g] == nil {
			r.mu.producers[g] = map[uint64]*Client{}
		}
		c := h.Client
		r.mu.producers[g][c.Conn.ID()] = &c
		m.producers[g] = struct{}{}
	}
	for i := range h.Consumers {
		if r.joinLocked(&h.Consumers[i], h.Client) {
			changed = append(changed, h.Consumers[i].Group)
		}
		m.consumers[h.Consumers[i].Group] = struct{}{}
	}
	r.tidyLocked(h.Client.Conn.ID(), m)
	r.mu.Unlock()
	r.changed(changed)
}

// joinLocked reports whether the group's members or topics are others now. A topic's entry is
// replaced by one of a newer version; topics that the newest heartbeat does not name are dropped.
func (r *Registry) joinLocked(c *Consumer, client Client) (changed bool) {
	g := r.mu.consumers[c.Group]
	if g == nil {
		g = &consumers{members: map[uint64]*Client{}, subscriptions: map[string]*Subscription{}}
		r.mu.consumers[c.Group] = g
	}
	have := g.members[client.Conn.ID()]
	changed = have == nil || have.ID != client.ID
	g.members[client.Conn.ID()] = &client
	g.kind, g.model, g.fromWhere = c.Type, c.Model, c.FromWhere
	named := make(map[string]struct{}, len(c.Subscriptions))
	for _, s := range c.Subscriptions {
		named[s.Topic] = struct{}{}
		old := g.subscriptions[s.Topic]
		if old == nil {
			changed = true
		}
		if old == nil || s.Version > old.Version {
			g.subscriptions[s.Topic] = s
		}
	}
	for topic := range g.subscriptions {
		if _, ok := named[topic]; !ok {
			delete(g.subscriptions, topic)
			changed = true
		}
	}
	return changed
}

// Unregister removes a connection from a producer and a consumer group; an empty name means none.
func (r *Registry) Unregister(conn uint64, producerGroup, consumerGroup string) {
	var changed []string
	r.mu.Lock()
	if m := r.mu.conns[conn]; m != nil {
		if producerGroup != "" {
			delete(m.producers, producerGroup)
			r.dropProducerLocked(conn, producerGroup)
		}
		if consumerGroup != "" {
			delete(m.consumers, consumerGroup)
			if r.dropConsumerLocked(conn, consumerGroup) {
				changed = append(changed, consumerGroup)
			}
		}
		if len(m.producers) == 0 {
			r.dropRequesterLocked(conn, m)
		}
		r.tidyLocked(conn, m)
	}
	r.mu.Unlock()
	r.changed(changed)
}

// CloseConn removes a closed connection from all its groups.
func (r *Registry) CloseConn(conn uint64) {
	r.mu.Lock()
	changed := r.forgetLocked(conn)
	r.mu.Unlock()
	r.changed(changed)
}

func (r *Registry) forgetLocked(conn uint64) (changed []string) {
	m := r.mu.conns[conn]
	if m == nil {
		return nil
	}
	delete(r.mu.conns, conn)
	r.dropRequesterLocked(conn, m)
	for g := range m.producers {
		r.dropProducerLocked(conn, g)
	}
	for g := range m.consumers {
		if r.dropConsumerLocked(conn, g) {
			changed = append(changed, g)
		}
	}
	slices.Sort(changed)
	return changed
}

func (r *Registry) dropProducerLocked(conn uint64, group string) {
	delete(r.mu.producers[group], conn)
	if len(r.mu.producers[group]) == 0 {
		delete(r.mu.producers, group)
	}
}

// dropConsumerLocked reports whether the connection was a member. A group without members is gone.
func (r *Registry) dropConsumerLocked(conn uint64, group string) bool {
	g := r.mu.consumers[group]
	if g == nil || g.members[conn] == nil {
		return false
	}
	delete(g.members, conn)
	if len(g.members) == 0 {
		delete(r.mu.consumers, group)
	}
	return true
}

// Expire removes members without a heartbeat for Expiry. To be called every 10 s or so.
func (r *Registry) Expire() {
	limit := r.now().Add(-Expiry)
	var changed []string
	r.mu.Lock()
	for name, members := range r.mu.producers {
		for conn, c := range members {
			if c.LastSeen.Before(limit) {
				r.dropProducerLocked(conn, name)
				r.leaveLocked(conn, name, "")
			}
		}
	}
	for _, c := range r.mu.requesters {
		if c.LastSeen.Before(limit) {
			m := r.mu.conns[c.Conn.ID()]
			r.dropRequesterLocked(c.Conn.ID(), m)
			r.tidyLocked(c.Conn.ID(), m)
		}
	}
	for name, g := range r.mu.consumers {
		left := false
		for conn, c := range g.members {
			if c.LastSeen.Before(limit) {
				left = r.dropConsumerLocked(conn, name) || left
				r.leaveLocked(conn, "", name)
			}
		}
		if left {
			changed = append(changed, name)
		}
	}
	r.mu.Unlock()
	slices.Sort(changed)
	r.changed(changed)
}

// leaveLocked keeps the index by connection in step.
func (r *Registry) leaveLocked(conn uint64, producerGroup, consumerGroup string) {
	m := r.mu.conns[conn]
	if m == nil {
		return
	}
	delete(m.producers, producerGroup)
	delete(m.consumers, consumerGroup)
	r.tidyLocked(conn, m)
}
