package main

import (
	"fmt"
	"slices"
	"time"

	"raftmq/fsm/command"
)

// prepare runs on a new leader before it takes writes: the first leader of a cluster fixes its settings and its first feature level.
func (g *brokerGroup) prepare(apply func([]byte) error) error {
	if _, ok := g.tables.Settings(); ok {
		return nil
	}
	id, err := randomID(8)
	if err != nil {
		return err
	}
	b, err := command.AppendJSON(nil, command.KindSettings, command.Settings{ClusterID: id, ClusterName: g.cfg.ClusterName, BrokerName: g.cfg.BrokerName,
		SegmentSize: g.cfg.MappedFileSizeCommitLog, AutoCreateTopic: g.cfg.AutoCreateTopic, AutoCreateGroup: g.cfg.AutoCreateGroup,
		DefaultTopicQueues: g.cfg.DefaultTopicQueues, MessageDelayLevel: g.cfg.MessageDelayLevel})
	if err != nil {
		return err
	}
	if level := g.firstLevel(); level > command.Oldest {
		if b, err = command.AppendJSON(b, command.KindLevel, command.Raise{Level: level}); err != nil {
			return err
		}
	}
	return apply(b)
}

// checkSettings refuses a node that is configured otherwise than its cluster (Same-Bytes).
func (g *brokerGroup) checkSettings(s command.Settings) error {
	switch {
	case s.SegmentSize != g.cfg.MappedFileSizeCommitLog:
		return fmt.Errorf("--mapped-file-size-commit-log is %d here and %d in this cluster, where it was fixed at bootstrap: start the node with %d",
			g.cfg.MappedFileSizeCommitLog, s.SegmentSize, s.SegmentSize)
	case !slices.Equal(s.DelayLevels(), g.cfg.delayLevels()):
		return fmt.Errorf("--message-delay-level is %q here and %v in this cluster, where it was fixed at bootstrap", g.cfg.MessageDelayLevel, s.DelayLevels())
	case s.ClusterName != g.cfg.ClusterName:
		return fmt.Errorf("--cluster-name is %s here and %s in this cluster", g.cfg.ClusterName, s.ClusterName)
	case s.BrokerName != g.cfg.BrokerName:
		return fmt.Errorf("--broker-name is %s here and %s in this group", g.cfg.BrokerName, s.BrokerName)
	case g.identity.ClusterID != "" && s.ClusterID != g.identity.ClusterID:
		return fmt.Errorf("--data-dir %s belongs to cluster %s, its peers to cluster %s: join the right cluster or wipe the node", g.cfg.DataDir, g.identity.ClusterID, s.ClusterID)
	}
	return nil
}

// warnIgnored names flags that the cluster settled at bootstrap and that say something else here.
func (g *brokerGroup) warnIgnored(s command.Settings) {
	for _, f := range []struct {
		flag          string
		here, cluster any
	}{
		{"auto-create-topic", g.cfg.AutoCreateTopic, s.AutoCreateTopic},
		{"auto-create-group", g.cfg.AutoCreateGroup, s.AutoCreateGroup},
		{"default-topic-queues", g.cfg.DefaultTopicQueues, s.DefaultTopicQueues},
	} {
		if f.here != f.cluster {
			g.logger.Warn("flag has no effect, the cluster's value was fixed at bootstrap", "flag", "--"+f.flag, "value", f.here, "cluster-value", f.cluster)
		}
	}
}

// delayLevels are those of MessageDelayLevel, which Validate has checked.
func (c *Config) delayLevels() []time.Duration {
	return command.Settings{MessageDelayLevel: c.MessageDelayLevel}.DelayLevels()
}
