package broker

import (
	"strconv"
	"strings"
	"sync"

	"raftmq/commitlog/record"
	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
	"raftmq/transport/remoting"
)

// nameBytes are the characters that topic and group names may have (RocketMQ TopicValidator).
var nameBytes = func() (t [256]bool) {
	for _, c := range "%|_-" {
		t[c] = true
	}
	for c := byte('a'); c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = true, true
	}
	for c := byte('0'); c <= '9'; c++ {
		t[c] = true
	}
	return t
}()

// checkTopicName is TopicValidator.validateTopic of 4.9.4, where all three are code 1.
func checkTopicName[T string | []byte](name T) *refusal {
	legal := true
	blank := true
	for i := 0; i < len(name); i++ {
		legal = legal && nameBytes[name[i]]
		blank = blank && (name[i] == ' ' || name[i] >= '\t' && name[i] <= '\r')
	}
	switch {
	case blank:
		return refuse(remoting.ResponseSystemError, "The specified topic is blank.")
	case !legal:
		return refuse(remoting.ResponseSystemError, "%s", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$")
	case len(name) > record.MaxTopicLen:
		return refuse(remoting.ResponseSystemError, "The specified topic is longer than topic max length.")
	}
	return nil
}

// checkGroupName keeps names out of the tables that no client library would use.
func checkGroupName(name string) *refusal {
	legal := true
	for i := 0; i < len(name); i++ {
		legal = legal && nameBytes[name[i]]
	}
	switch {
	case strings.TrimSpace(name) == "":
		return refuse(remoting.ResponseSystemError, "the specified group is blank")
	case !legal:
		return refuse(remoting.ResponseSystemError, "the specified group[%s] contains illegal characters, allowing only ^[%%|a-zA-Z0-9_-]+$", name)
	case len(name) > remoting.MaxGroupLen:
		return refuse(remoting.ResponseSystemError, "the specified group is longer than group max length %d", remoting.MaxGroupLen)
	}
	return nil
}

// describeTopic is the text of TopicConfig.toString.
func describeTopic(t command.TopicConfig) string {
	perm := []byte("---")
	for i, bit := range [3]int{metadata.PermRead, metadata.PermWrite, metadata.PermInherit} {
		if t.Perm&bit != 0 {
			perm[i] = "RWX"[i]
		}
	}
	var b strings.Builder
	b.WriteString("TopicConfig [topicName=" + t.TopicName + ", readQueueNums=" + strconv.Itoa(t.ReadQueueNums) +
		", writeQueueNums=" + strconv.Itoa(t.WriteQueueNums) + ", perm=" + string(perm) + ", topicFilterType=" + t.TopicFilterType +
		", topicSysFlag=" + strconv.Itoa(t.TopicSysFlag) + ", order=" + strconv.FormatBool(t.Order) + "]")
	return b.String()
}

func rwTopic(name string, queues int) command.TopicConfig {
	return command.TopicConfig{TopicName: name, ReadQueueNums: queues, WriteQueueNums: queues,
		Perm: metadata.PermRead | metadata.PermWrite, TopicFilterType: remoting.FilterSingleTag}
}

// topicForSend finds the topic of a send, or creates it after its default topic
// (TopicConfigManager.createTopicInSendMessageMethod), without waiting.
func (b *Broker) topicForSend(h *remoting.SendHeader) (command.TopicConfig, *refusal) {
	if t, ok := b.cfg.Tables.TopicBytes(h.Topic); ok {
		return t, nil
	}
	name := string(h.Topic)
	retry := strings.HasPrefix(name, metadata.RetryPrefix)
	like, ok := b.cfg.Tables.TopicBytes(h.DefaultTopic)
	var t command.TopicConfig
	switch {
	case ok && like.Perm&metadata.PermInherit != 0:
		t = like
		t.TopicName, t.Perm, t.Order = name, like.Perm&^metadata.PermInherit, false
		t.WriteQueueNums = max(0, min(int(h.DefaultTopicQueueNums), like.WriteQueueNums))
		t.ReadQueueNums = t.WriteQueueNums
	case retry:
		t = rwTopic(name, 1)
	default:
		if have, ok := b.topics.find(name); ok {
			return have, nil
		}
		return t, topicNotExist(name)
	}
	t.TopicSysFlag = 0
	if h.UnitMode {
		t.TopicSysFlag = int(remoting.TopicFlagUnit)
		if retry {
			t.TopicSysFlag = int(remoting.TopicFlagUnitSub)
		}
	}
	return b.topics.create(t)
}

func topicNotExist(name string) *refusal {
	return refuse(remoting.ResponseTopicNotExist, "topic[%s] not exist, apply first please!%s", name, faqHint)
}

// overlay holds topics whose creation is proposed but not yet applied. A send that is proposed
// after the creation is applied after it, so it may go on at once.
type overlay struct {
	b       *Broker
	mu      sync.Mutex
	pending map[string]pendingTopic
}

type pendingTopic struct {
	config command.TopicConfig
	term   uint64 // of the leadership that proposed it; in another one it may be lost
}

func (o *overlay) init(b *Broker) {
	o.b = b
	o.pending = map[string]pendingTopic{}
}

// find looks a topic up whose creation is under way.
func (o *overlay) find(name string) (command.TopicConfig, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.findLocked(name)
}

func (o *overlay) findLocked(name string) (command.TopicConfig, bool) {
	if t, ok := o.b.cfg.Tables.Topic(name); ok {
		return t, true
	}
	p, ok := o.pending[name]
	return p.config, ok && p.term == o.b.cfg.Raft.State().Term
}

// create returns the topic as it is or will be when a command proposed from now on is applied.
func (o *overlay) create(t command.TopicConfig) (command.TopicConfig, *refusal) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if have, ok := o.findLocked(t.TopicName); ok {
		return have, nil
	}
	// The lock is held while proposing: whoever finds the entry proposes after it.
	term := o.b.cfg.Raft.State().Term
	put := command.TopicPut{Topic: t, OnlyIfAbsent: true, Millis: o.b.cfg.Now().UnixMilli()}
	err := o.b.proposeTable(command.KindTopicPut, put, func(err error) { o.created(t.TopicName, term, err) })
	if err != nil {
		return t, refusalOf(err, o.b.cfg.MaxMessageSize)
	}
	o.pending[t.TopicName] = pendingTopic{t, term}
	return t, nil
}

// require is create for a caller that needs no answer but a refusal.
func (o *overlay) require(t command.TopicConfig) *refusal {
	_, f := o.create(t)
	return f
}

func (o *overlay) created(name string, term uint64, err error) {
	if err != nil {
		o.b.logger.Warn("topic was not created", "topic", name, "error", err)
	} else {
		o.b.logger.Info("topic created on first use", "topic", name)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pending[name].term == term {
		delete(o.pending, name)
	}
}

// groupCreator creates subscription groups and their retry topics on first use, once each.
type groupCreator struct {
	b       *Broker
	mu      sync.Mutex
	pending map[string]struct{}
}

func (g *groupCreator) init(b *Broker) {
	g.b = b
	g.pending = map[string]struct{}{}
}

// mayCreateGroup reports whether an unknown group counts as one with default settings.
func (b *Broker) mayCreateGroup(name []byte) bool {
	s, ok := b.cfg.Tables.Settings()
	return (ok && s.AutoCreateGroup || hasPrefix(name, "CID_RMQ_SYS_")) && checkGroupName(string(name)) == nil
}

// RetryQueues is how many queues the retry topic of a group has or will have: the group's first heartbeat makes it. false
// when no heartbeat would.
func (b *Broker) RetryQueues(name string) (queues int, ok bool) {
	g, ok := b.cfg.Tables.Group(name)
	if !ok {
		g, ok = command.DefaultGroup(name), b.mayCreateGroup([]byte(name))
	}
	return g.RetryQueueNums, ok && g.RetryQueueNums > 0 && checkTopicName(metadata.RetryPrefix+name) == nil
}

// groupConfig finds a group; an unknown one that may be created is returned with default settings, and
// created if this node leads.
func (b *Broker) groupConfig(name []byte) (command.GroupConfig, bool) {
	if g, ok := b.cfg.Tables.GroupBytes(name); ok {
		return g, true
	}
	if !b.mayCreateGroup(name) {
		return command.GroupConfig{}, false
	}
	g := command.DefaultGroup(string(name))
	b.groups.ensure(g.GroupName)
	return g, true
}

// ensure proposes the creation of a group, on the leader, without waiting.
func (g *groupCreator) ensure(name string) {
	if !g.b.leads() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.pending[name]; ok {
		return
	}
	put := command.GroupPut{Group: command.DefaultGroup(name), OnlyIfAbsent: true, Millis: g.b.cfg.Now().UnixMilli()}
	err := g.b.proposeTable(command.KindGroupPut, put, func(err error) { g.created(name, err) })
	if err != nil {
		return // the next heartbeat or pull tries again
	}
	g.pending[name] = struct{}{}
}

func (g *groupCreator) created(name string, err error) {
	if err != nil {
		g.b.logger.Warn("subscription group was not created", "group", name, "error", err)
	} else {
		g.b.logger.Info("subscription group created on first use", "group", name)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.pending, name)
}
