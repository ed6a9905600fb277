package metadata

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"raftmq/fsm/command"
)

// Versions of the JSON form: 2 has delay and transaction progress, 3 a feature level, segments' checksums and queue locks. A newer one is refused with a clear error. Tables are
// written in the oldest version that can hold them, so that a cluster of feature level 1 has none that a raftmq of that level could not read.
const (
	oldestVersion   = 1
	progressVersion = 2
	levelVersion    = 3
	snapshotVersion = 3
)

// snapshot is the exported form: sorted, so that equal tables give equal bytes (replica checksum).
type snapshot struct {
	Version      int                          `json:"version"`
	Settings     *command.Settings            `json:"settings,omitempty"`
	NextNumber   int64                        `json:"nextNumber"`
	Nodes        []Node                       `json:"nodes"`
	Topics       []command.TopicConfig        `json:"topics"`
	TopicVersion DataVersion                  `json:"topicVersion"`
	Groups       []command.GroupConfig        `json:"groups"`
	GroupVersion DataVersion                  `json:"groupVersion"`
	Offsets      []command.ConsumerOffset     `json:"offsets"`
	Floors       []floor                      `json:"floors,omitempty"`
	KV           map[string]map[string]string `json:"kv,omitempty"` // encoding/json sorts keys
	Delay        []delayLevel                 `json:"delay,omitempty"`
	Transactions *transactions                `json:"transactions,omitempty"`
	Level        command.Level                `json:"level,omitempty"` // absent: command.Oldest
	Segments     []command.SegmentSum         `json:"segments,omitempty"`
	Locks        []command.QueueLock          `json:"locks,omitempty"`
	AllLocks     bool                         `json:"allLocks,omitempty"`
}

type floor struct {
	Topic   string `json:"topic"`
	QueueID int32  `json:"queueId"`
	Offset  int64  `json:"offset"`
}

// Export returns the tables as bytes; equal tables give equal bytes on every node.
func (t *Tables) Export() ([]byte, error) { return t.Capture()() }

// Capture copies the tables quickly (Raft's Apply waits meanwhile) and returns a function that
// encodes the copy later.
func (t *Tables) Capture() func() ([]byte, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	c := &Tables{settings: t.settings, hasSettings: t.hasSettings, nodes: maps.Clone(t.nodes), nextNumber: t.nextNumber,
		topics: maps.Clone(t.topics), topicVersion: t.topicVersion, groups: maps.Clone(t.groups), groupVersion: t.groupVersion,
		offsets: cloneNested(t.offsets), floors: cloneNested(t.floors), kv: cloneNested(t.kv),
		delay: maps.Clone(t.delay), halves: t.halves.clone(), segments: maps.Clone(t.segments), locks: queueLocks{cloneNested(t.locks.owners), t.locks.all}}
	c.level.Store(t.level.Load())
	return c.encode
}

func cloneNested[K, L comparable, V any](m map[K]map[L]V) map[K]map[L]V {
	out := make(map[K]map[L]V, len(m))
	for k, v := range m {
		out[k] = maps.Clone(v)
	}
	return out
}

// encode writes a captured copy, which nobody else sees.
func (t *Tables) encode() ([]byte, error) {
	s := snapshot{Version: oldestVersion, NextNumber: t.nextNumber, Nodes: sortedValues(t.nodes), Topics: sortedValues(t.topics),
		TopicVersion: t.topicVersion, Groups: sortedValues(t.groups), GroupVersion: t.groupVersion, KV: t.kv}
	if t.hasSettings {
		s.Settings = &t.settings
	}
	for k, queues := range t.offsets {
		for q, o := range queues {
			s.Offsets = append(s.Offsets, command.ConsumerOffset{Topic: k.topic, Group: k.group, QueueID: q, Offset: o})
		}
	}
	slices.SortFunc(s.Offsets, func(a, b command.ConsumerOffset) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Group, b.Group), cmp.Compare(a.QueueID, b.QueueID))
	})
	for topic, queues := range t.floors {
		for q, o := range queues {
			s.Floors = append(s.Floors, floor{topic, q, o})
		}
	}
	slices.SortFunc(s.Floors, func(a, b floor) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.QueueID, b.QueueID))
	})
	t.exportProgress(&s)
	if l := t.Level(); l > command.Oldest {
		s.Version, s.Level, s.Segments = max(s.Version, levelVersion), l, t.exportSegments()
		s.Locks, s.AllLocks = t.locks.list(), t.locks.all
	}
	b, err := json.Marshal(&s)
	if err != nil {
		return nil, fmt.Errorf("metadata: export: %w", err)
	}
	return b, nil
}

// Import replaces the tables by exported ones. On error they stay as they were.
func (t *Tables) Import(b []byte) error {
	var s snapshot
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("metadata: import %d bytes: %w", len(b), err)
	}
	if s.Version < oldestVersion || s.Version > snapshotVersion {
		return fmt.Errorf("metadata: import: snapshot version %d, this raftmq reads %d to %d: %w", s.Version, oldestVersion, snapshotVersion, command.ErrUnknown)
	}
	if s.Level > command.Newest {
		return fmt.Errorf("metadata: import: %w", command.TooNew(s.Level))
	}
	delay, halves, err := s.progress()
	if err != nil {
		return err
	}
	if s.Settings != nil {
		if err := checkSettings(*s.Settings); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.resetLocked()
	if s.Settings != nil {
		t.settings, t.hasSettings = *s.Settings, true
	}
	t.nextNumber = max(s.NextNumber, 1)
	for _, n := range s.Nodes {
		t.nodes[n.ID] = n
	}
	for _, c := range s.Topics {
		t.topics[c.TopicName] = c
	}
	for _, g := range s.Groups {
		t.groups[g.GroupName] = g
	}
	t.topicVersion, t.groupVersion = s.TopicVersion, s.GroupVersion
	for _, o := range s.Offsets {
		k := offsetKey{o.Topic, o.Group}
		if t.offsets[k] == nil {
			t.offsets[k] = map[int32]int64{}
		}
		t.offsets[k][o.QueueID] = o.Offset
	}
	for _, f := range s.Floors {
		if t.floors[f.Topic] == nil {
			t.floors[f.Topic] = map[int32]int64{}
		}
		t.floors[f.Topic][f.QueueID] = f.Offset
	}
	for ns, kv := range s.KV {
		t.kv[ns] = kv
	}
	t.delay, t.halves = delay, halves
	for _, sum := range s.Segments {
		t.segments[sum.From] = sum.Sum
	}
	t.locks.take(s.Locks)
	t.locks.all = s.AllLocks
	t.level.Store(int64(max(s.Level, command.Oldest)))
	return nil
}
