// Package metadata holds the replicated tables: cluster settings, nodes, topics, subscription
// groups, consumer offsets, queue locks, KV config, and the progress of delayed messages and transactions. The FSM is the only writer (one goroutine, through
// Apply methods named after their commands); everybody may read. Methods are deterministic:
// no clock, no randomness, no map order in what they store or export (Deterministic-Apply).
package metadata

import (
	"errors"
	"fmt"
	"maps"
	"sort"
	"sync"
	"sync/atomic"

	"raftmq/fsm/command"
)

// Refusals. They are answers, the same on every node, not failures.
var (
	ErrSettingsFixed = errors.New("metadata: cluster settings are fixed at bootstrap")
	ErrNoSettings    = errors.New("metadata: the cluster has no settings yet")
	ErrNoTopic       = errors.New("metadata: no such topic")
	ErrNoGroup       = errors.New("metadata: no such subscription group")
	ErrNoKey         = errors.New("metadata: no such key")
	ErrLevelLower    = errors.New("metadata: a cluster's feature level is never lowered")
)

// DataVersion is RocketMQ's table version: a counter and the leader's clock at the last change.
type DataVersion struct {
	Counter   int64 `json:"counter"`
	Timestamp int64 `json:"timestamp"`
}

// Node is a member as the tables know it.
type Node struct {
	command.NodePut
	// Number ≥ 1 is the node's stable broker id while it does not lead.
	Number int64 `json:"number"`
}

// QueueKey names a queue.
type QueueKey struct {
	Topic   string
	QueueID int32
}

type offsetKey struct{ topic, group string }

// Tables is the state. The zero value is not usable; see New.
type Tables struct {
	mu sync.RWMutex
	// guarded by mu
	settings     command.Settings
	hasSettings  bool
	nodes        map[string]Node
	nextNumber   int64
	topics       map[string]command.TopicConfig
	topicVersion DataVersion
	groups       map[string]command.GroupConfig
	groupVersion DataVersion
	offsets      map[offsetKey]map[int32]int64
	floors       map[string]map[int32]int64 // offsets below are hidden: the topic was deleted at that point
	kv           map[string]map[string]string
	delay        map[int]int64 // by level, next offset of the schedule queue
	halves       halves
	segments     map[int64]uint32 // checksums of sealed segments, by first offset
	locks        queueLocks

	level atomic.Int64 // written with mu held; read for each command that is proposed
}

// New returns empty tables.
func New() *Tables {
	t := &Tables{}
	t.resetLocked()
	return t
}

func (t *Tables) resetLocked() {
	t.settings, t.hasSettings = command.Settings{}, false
	t.nodes, t.nextNumber = map[string]Node{}, 1
	t.topics, t.topicVersion = map[string]command.TopicConfig{}, DataVersion{}
	t.groups, t.groupVersion = map[string]command.GroupConfig{}, DataVersion{}
	t.offsets = map[offsetKey]map[int32]int64{}
	t.floors = map[string]map[int32]int64{}
	t.kv = map[string]map[string]string{}
	t.delay = map[int]int64{}
	t.segments = map[int64]uint32{}
	t.locks = queueLocks{owners: map[string]map[command.QueueName]string{}}
	t.halves = halves{checks: map[int64]int{}}
	t.level.Store(int64(command.Oldest))
}

// Level is the cluster's feature level: what nobody may exceed in what he proposes or writes for others to read.
func (t *Tables) Level() command.Level { return command.Level(t.level.Load()) }

// Settings returns the cluster settings; false before bootstrap has been applied.
func (t *Tables) Settings() (command.Settings, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.settings, t.hasSettings
}

// Node returns a node by id.
func (t *Tables) Node(id string) (Node, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	n, ok := t.nodes[id]
	return n, ok
}

// Nodes lists all nodes by number.
func (t *Tables) Nodes() []Node {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := make([]Node, 0, len(t.nodes))
	for _, n := range t.nodes {
		out = append(out, n)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Number < out[j].Number })
	return out
}

// Topic returns a topic's configuration.
func (t *Tables) Topic(name string) (command.TopicConfig, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	c, ok := t.topics[name]
	return c, ok
}

// TopicBytes is Topic for a view, without allocating.
func (t *Tables) TopicBytes(name []byte) (command.TopicConfig, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	c, ok := t.topics[string(name)]
	return c, ok
}

// Topics lists all topics by name, with the table's version.
func (t *Tables) Topics() ([]command.TopicConfig, DataVersion) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return sortedValues(t.topics), t.topicVersion
}

// Group returns a subscription group's configuration.
func (t *Tables) Group(name string) (command.GroupConfig, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	c, ok := t.groups[name]
	return c, ok
}

// GroupBytes is Group for a view, without allocating.
func (t *Tables) GroupBytes(name []byte) (command.GroupConfig, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	c, ok := t.groups[string(name)]
	return c, ok
}

// Groups lists all groups by name, with the table's version.
func (t *Tables) Groups() ([]command.GroupConfig, DataVersion) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return sortedValues(t.groups), t.groupVersion
}

// ConsumerOffset returns the committed offset of a group in a queue.
func (t *Tables) ConsumerOffset(group, topic string, queueID int32) (int64, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	o, ok := t.offsets[offsetKey{topic, group}][queueID]
	return o, ok
}

// GroupOffsets returns all committed offsets of a group: topic → queue → offset.
func (t *Tables) GroupOffsets(group string) map[string]map[int32]int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := map[string]map[int32]int64{}
	for k, queues := range t.offsets {
		if k.group != group {
			continue
		}
		out[k.topic] = maps.Clone(queues)
	}
	return out
}

// AllOffsets returns all committed offsets: group → topic → queue → offset.
func (t *Tables) AllOffsets() map[string]map[string]map[int32]int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := map[string]map[string]map[int32]int64{}
	for k, queues := range t.offsets {
		if out[k.group] == nil {
			out[k.group] = map[string]map[int32]int64{}
		}
		out[k.group][k.topic] = maps.Clone(queues)
	}
	return out
}

// TopicOffsets returns all committed offsets in a topic: group → queue → offset.
func (t *Tables) TopicOffsets(topic string) map[string]map[int32]int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := map[string]map[int32]int64{}
	for k, queues := range t.offsets {
		if k.topic == topic {
			out[k.group] = maps.Clone(queues)
		}
	}
	return out
}

// QueueFloor is the offset below which a queue's messages are hidden because its topic was
// deleted and created again; 0 for all others.
func (t *Tables) QueueFloor(topic []byte, queueID int32) int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if len(t.floors) == 0 {
		return 0
	}
	return t.floors[string(topic)][queueID]
}

// KV returns one value; KVNamespace a copy of all keys of a namespace, nil when it has none.
func (t *Tables) KV(namespace, key string) (string, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	v, ok := t.kv[namespace][key]
	return v, ok
}

// KVNamespace returns a copy of all keys of a namespace, nil when it has none.
func (t *Tables) KVNamespace(namespace string) map[string]string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if len(t.kv[namespace]) == 0 {
		return nil
	}
	out := make(map[string]string, len(t.kv[namespace]))
	for k, v := range t.kv[namespace] {
		out[k] = v
	}
	return out
}

func sortedValues[V any](m map[string]V) []V {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	out := make([]V, len(keys))
	for i, k := range keys {
		out[i] = m[k]
	}
	return out
}

// requireSettingsLocked refuses table changes before the settings exist: system topics would be wrong.
func (t *Tables) requireSettingsLocked() error {
	if !t.hasSettings {
		return fmt.Errorf("%w", ErrNoSettings)
	}
	return nil
}
