package group

import (
	"cmp"
	"maps"
	"slices"
)

// Consumers lists the client ids of a consumer group, sorted, each once: the list that every
// member divides the queues by.
func (r *Registry) Consumers(group string) []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	g := r.mu.consumers[group]
	if g == nil {
		return nil
	}
	ids := make([]string, 0, len(g.members))
	for _, c := range g.members {
		ids = append(ids, c.ID)
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// Lookup is what a pull needs to know of its group, without allocating: whether it has
// members, whether it broadcasts, and its subscription to the topic (nil when it has none).
func (r *Registry) Lookup(group, topic []byte) (s *Subscription, online, broadcasting bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	g := r.mu.consumers[string(group)]
	if g == nil {
		return nil, false, false
	}
	return g.subscriptions[string(topic)], true, g.model == Broadcasting
}

// Subscription returns a group's subscription to a topic.
func (r *Registry) Subscription(group, topic string) (*Subscription, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	g := r.mu.consumers[group]
	if g == nil {
		return nil, false
	}
	s := g.subscriptions[topic]
	return s, s != nil
}

// Info describes an online consumer group.
type Info struct {
	Type, Model, FromWhere string
	Members                []Client        // by client id, then connection
	Subscriptions          []*Subscription // by topic
}

// Consumer returns a consumer group's state; false when nobody is online.
func (r *Registry) Consumer(group string) (Info, bool) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	g := r.mu.consumers[group]
	if g == nil {
		return Info{}, false
	}
	info := Info{Type: g.kind, Model: g.model, FromWhere: g.fromWhere, Members: clients(g.members)}
	info.Subscriptions = slices.SortedFunc(maps.Values(g.subscriptions), func(a, b *Subscription) int { return cmp.Compare(a.Topic, b.Topic) })
	return info, true
}

// Members lists the connections of a consumer group.
func (r *Registry) Members(group string) []Client {
	r.mu.RLock()
	defer r.mu.RUnlock()
	g := r.mu.consumers[group]
	if g == nil {
		return nil
	}
	return clients(g.members)
}

// Producers lists the connections of a producer group; nil when nobody is online.
func (r *Registry) Producers(group string) []Client {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return clients(r.mu.producers[group])
}

// AllProducers lists the connections of all producer groups.
func (r *Registry) AllProducers() map[string][]Client {
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := make(map[string][]Client, len(r.mu.producers))
	for name, members := range r.mu.producers {
		out[name] = clients(members)
	}
	return out
}

// GroupsOfTopic lists the online consumer groups that subscribe to a topic, sorted.
func (r *Registry) GroupsOfTopic(topic string) []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var out []string
	for name, g := range r.mu.consumers {
		if g.subscriptions[topic] != nil {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// Stats are gauges.
type Stats struct {
	ConsumerGroups, Consumers, ProducerGroups, Producers, Locks int
}

// Stats returns a snapshot.
func (r *Registry) Stats() Stats {
	r.mu.RLock()
	defer r.mu.RUnlock()
	s := Stats{ConsumerGroups: len(r.mu.consumers), ProducerGroups: len(r.mu.producers), Locks: r.locks.count()}
	for _, g := range r.mu.consumers {
		s.Consumers += len(g.members)
	}
	for _, p := range r.mu.producers {
		s.Producers += len(p)
	}
	return s
}

func clients(members map[uint64]*Client) []Client {
	if len(members) == 0 {
		return nil
	}
	out := make([]Client, 0, len(members))
	for _, c := range members {
		out = append(out, *c)
	}
	slices.SortFunc(out, func(a, b Client) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Conn.ID(), b.Conn.ID()))
	})
	return out
}
