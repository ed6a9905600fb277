package metadata

import (
	"fmt"
	"strings"

	"raftmq/commitlog/record"
	"raftmq/fsm/command"
	"raftmq/seam"
)

// PutSettings stores the settings once and creates the built-in topics and groups
// (RocketMQ's TopicConfigManager and SubscriptionGroupManager). The same settings again are accepted.
func (t *Tables) PutSettings(s command.Settings) error {
	if err := checkSettings(s); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.hasSettings {
		if t.settings == s {
			return nil
		}
		return fmt.Errorf("%w: have %+v, got %+v", ErrSettingsFixed, t.settings, s)
	}
	t.settings, t.hasSettings = s, true
	for _, c := range systemTopics(s) {
		t.topics[c.TopicName] = c
	}
	for _, g := range systemGroups {
		t.groups[g] = command.DefaultGroup(g)
	}
	return nil
}

// checkSettings refuses what Settings.DelayLevels could not read.
func checkSettings(s command.Settings) error {
	if s.MessageDelayLevel == "" {
		return nil
	}
	_, err := command.ParseDelayLevels(s.MessageDelayLevel)
	return err
}

// RaiseLevel raises the cluster's feature level. The same level again is accepted. That this raftmq can apply it is for the caller to check.
func (t *Tables) RaiseLevel(r command.Raise) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if have := t.Level(); r.Level < have {
		return fmt.Errorf("%w: it is %d, asked for was %d", ErrLevelLower, have, r.Level)
	}
	t.level.Store(int64(r.Level))
	return nil
}

// Detach makes the tables those of a new cluster with the same content: another id, no nodes yet. It is no command: only for tables that no cluster uses.
func (t *Tables) Detach(clusterID string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.requireSettingsLocked(); err != nil {
		return err
	}
	t.settings.ClusterID = clusterID
	t.nodes, t.nextNumber = map[string]Node{}, 1
	clear(t.locks.owners)
	return nil
}

// PutNode stores a node's addresses; a new node gets the next number.
func (t *Tables) PutNode(n command.NodePut) (Node, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	have, ok := t.nodes[n.ID]
	if !ok {
		have.Number = t.nextNumber
		t.nextNumber++
	}
	have.NodePut = n
	t.nodes[n.ID] = have
	return have, nil
}

// DeleteNode forgets a node. Its number is not used again.
func (t *Tables) DeleteNode(n command.NodeDelete) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.nodes, n.ID)
	return nil
}

// PutTopic creates or changes a topic.
func (t *Tables) PutTopic(p command.TopicPut) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.requireSettingsLocked(); err != nil {
		return err
	}
	if _, ok := t.topics[p.Topic.TopicName]; ok && p.OnlyIfAbsent {
		return nil
	}
	t.topics[p.Topic.TopicName] = p.Topic
	t.topicVersion = DataVersion{t.topicVersion.Counter + 1, p.Millis}
	return nil
}

// DeleteTopic removes a topic and its consumer offsets. next are its queues' next offsets
// (the FSM's): everything below is hidden from now on.
func (t *Tables) DeleteTopic(d command.TopicDelete, next map[int32]int64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.topics[d.Topic]; !ok {
		return fmt.Errorf("%w: %s", ErrNoTopic, d.Topic)
	}
	delete(t.topics, d.Topic)
	t.topicVersion = DataVersion{t.topicVersion.Counter + 1, d.Millis}
	for k := range t.offsets {
		if k.topic == d.Topic {
			delete(t.offsets, k)
		}
	}
	for q, n := range next {
		if n == 0 {
			continue
		}
		if t.floors[d.Topic] == nil {
			t.floors[d.Topic] = map[int32]int64{}
		}
		t.floors[d.Topic][q] = n
	}
	return nil
}

// PutGroup creates or changes a subscription group.
func (t *Tables) PutGroup(p command.GroupPut) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.groups[p.Group.GroupName]; ok && p.OnlyIfAbsent {
		return nil
	}
	t.groups[p.Group.GroupName] = p.Group
	t.groupVersion = DataVersion{t.groupVersion.Counter + 1, p.Millis}
	return nil
}

// DeleteGroup removes a group and, if asked, its offsets.
func (t *Tables) DeleteGroup(d command.GroupDelete) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d.RemoveOffsets {
		for k := range t.offsets {
			if k.group == d.Group {
				delete(t.offsets, k)
			}
		}
	}
	if _, ok := t.groups[d.Group]; !ok {
		return fmt.Errorf("%w: %s", ErrNoGroup, d.Group)
	}
	delete(t.groups, d.Group)
	t.groupVersion = DataVersion{t.groupVersion.Counter + 1, d.Millis}
	return nil
}

// CommitOffsets stores consumer offsets. Negative ones are ignored, as RocketMQ reads them as none.
func (t *Tables) CommitOffsets(c command.OffsetsCommit) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, o := range c.Offsets {
		if o.Offset < 0 {
			continue
		}
		k := offsetKey{o.Topic, o.Group}
		if t.offsets[k] == nil {
			t.offsets[k] = map[int32]int64{}
		}
		if seam.Often(seam.OffsetBack, 40) {
			o.Offset--
		}
		t.offsets[k][o.QueueID] = o.Offset
	}
	return nil
}

// PutKV stores a key.
func (t *Tables) PutKV(p command.KVPut) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.kv[p.Namespace] == nil {
		t.kv[p.Namespace] = map[string]string{}
	}
	t.kv[p.Namespace][p.Key] = p.Value
	return nil
}

// DeleteKV removes a key.
func (t *Tables) DeleteKV(d command.KVDelete) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.kv[d.Namespace][d.Key]; !ok {
		return fmt.Errorf("%w: %s/%s", ErrNoKey, d.Namespace, d.Key)
	}
	delete(t.kv[d.Namespace], d.Key)
	return nil
}

// OrderNamespace is the KV namespace of ordered topics' queue lists (RocketMQ NamesrvUtil).
const OrderNamespace = "ORDER_TOPIC_CONFIG"

// SettingsNamespace is the KV namespace of settings that were changed while the cluster runs.
const SettingsNamespace = "RAFTMQ_BROKER_CONFIG"

// Built-in names (RocketMQ TopicValidator, MixAll).
const (
	AutoCreateTopic = "TBW102"
	ScheduleTopic   = record.ScheduleTopic
	SelfTestTopic   = "SELF_TEST_TOPIC"
	OffsetMoved     = "OFFSET_MOVED_EVENT"
	BenchmarkTopic  = "BenchmarkTest"
	HalfTopic       = "RMQ_SYS_TRANS_HALF_TOPIC"
	OpHalfTopic     = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
	CheckMaxTopic   = "TRANS_CHECK_MAX_TIME_TOPIC"
	TraceTopic      = "RMQ_SYS_TRACE_TOPIC"
	RetryPrefix     = "%RETRY%"
	DLQPrefix       = "%DLQ%"
	ReplySuffix     = "_REPLY_TOPIC"
)

// Permission bits.
const (
	PermInherit = 1
	PermWrite   = 2
	PermRead    = 4
)

func systemTopics(s command.Settings) []command.TopicConfig {
	mk := func(name string, queues, perm int) command.TopicConfig {
		return command.TopicConfig{TopicName: name, ReadQueueNums: queues, WriteQueueNums: queues, Perm: perm, TopicFilterType: "SINGLE_TAG"}
	}
	rw := PermRead | PermWrite
	out := []command.TopicConfig{
		mk(SelfTestTopic, 1, rw), mk(BenchmarkTopic, 1024, rw), mk(s.ClusterName, 16, rw|PermInherit), mk(s.BrokerName, 1, rw|PermInherit),
		mk(OffsetMoved, 1, rw), mk(ScheduleTopic, 18, rw), mk(s.ClusterName+ReplySuffix, 1, rw),
	}
	if s.AutoCreateTopic {
		out = append(out, mk(AutoCreateTopic, s.DefaultTopicQueues, rw|PermInherit))
	}
	return out
}

var systemGroups = []string{"TOOLS_CONSUMER", "FILTERSRV_CONSUMER", "SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PULL", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER"}

// IsSystemTopic reports whether a topic is one that only the broker makes (it cannot be created or
// deleted by clients).
func (t *Tables) IsSystemTopic(name string) bool {
	s, _ := t.Settings()
	switch name {
	case AutoCreateTopic, ScheduleTopic, SelfTestTopic, OffsetMoved, BenchmarkTopic, HalfTopic, OpHalfTopic, CheckMaxTopic, TraceTopic,
		s.ClusterName, s.BrokerName, s.ClusterName + ReplySuffix:
		return true
	}
	return strings.HasPrefix(name, "rmq_sys_")
}

// SendForbidden reports whether clients may not send to a topic (wire.md §4.7).
func SendForbidden(name []byte) bool {
	switch string(name) {
	case ScheduleTopic, HalfTopic, OpHalfTopic, CheckMaxTopic, SelfTestTopic, OffsetMoved:
		return true
	}
	return false
}
