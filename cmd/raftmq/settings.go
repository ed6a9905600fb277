package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"raftmq/fsm/metadata"
	"raftmq/fsm/retention"
	"raftmq/fsm/transaction"
)

// changeable are the settings, by RocketMQ's names, that mqadmin updateBrokerConfig changes while the cluster runs, on all
// nodes: the tables keep them, and they count more than each node's flags.
var changeable = map[string]func(c *Config, value string) error{
	"fileReservedTime": func(c *Config, v string) error { // hours
		return number(v, func(f float64) { c.FileReservedTime = time.Duration(f * float64(time.Hour)) })
	},
	"deleteWhen":                  func(c *Config, v string) error { c.DeleteWhen = v; return nil },
	"diskMaxUsedSpaceRatio":       func(c *Config, v string) error { return integer(v, &c.DiskMaxUsedSpaceRatio) },
	"diskSpaceCleanForciblyRatio": func(c *Config, v string) error { return integer(v, &c.DiskSpaceCleanForciblyRatio) },
	"cleanFileForciblyEnable":     func(c *Config, v string) (err error) { c.CleanFileForciblyEnable, err = strconv.ParseBool(v); return },
	"transactionTimeOut": func(c *Config, v string) error { // ms, as the others of its kind
		return number(v, func(f float64) { c.TransactionTimeout = time.Duration(f * float64(time.Millisecond)) })
	},
	"transactionCheckInterval": func(c *Config, v string) error {
		return number(v, func(f float64) { c.TransactionCheckInterval = time.Duration(f * float64(time.Millisecond)) })
	},
	"transactionCheckMax": func(c *Config, v string) error { return integer(v, &c.TransactionCheckMax) },
}

func number(text string, set func(float64)) error {
	f, err := strconv.ParseFloat(text, 64)
	if err == nil {
		set(f)
	}
	return err
}

func integer(text string, n *int) (err error) {
	*n, err = strconv.Atoi(text)
	return err
}

// fixedAtBootstrap decide bytes of the log, or are in its first entry.
var fixedAtBootstrap = []string{"mappedFileSizeCommitLog", "messageDelayLevel", "brokerClusterName", "brokerName", "autoCreateTopicEnable",
	"autoCreateSubscriptionGroup", "defaultTopicQueueNums"}

// checkSetting says why a setting may not have a value while the cluster runs, given what it has by now.
func (g *brokerGroup) checkSetting(name, value string) error {
	set, ok := changeable[name]
	switch {
	case slices.Contains(fixedAtBootstrap, name):
		return fmt.Errorf("%s was fixed when the cluster was bootstrapped", name)
	case !ok && g.cfg.properties()[name] != "":
		return fmt.Errorf("%s cannot be changed while a node runs: change its flag or configuration file and restart the nodes one by one", name)
	case !ok:
		return fmt.Errorf("raftmq has no setting %s that can be changed while it runs; it has %s", name, strings.Join(slices.Sorted(maps.Keys(changeable)), ", "))
	case value == "":
		return nil // back to the flag
	}
	c := g.running()
	if err := set(c, value); err != nil {
		return fmt.Errorf("%s=%s: %w", name, value, err)
	}
	if errs := append(c.checkRetention(), c.checkBroker()...); len(errs) > 0 {
		return fmt.Errorf("%s=%s: %w", name, value, errs[0])
	}
	return nil
}

// running is this node's configuration with what was changed while the cluster runs. A value that this version cannot read, or that
// does not go with this node's flags, is left out.
func (g *brokerGroup) running() *Config {
	c := *g.cfg
	changed := g.tables.KVNamespace(metadata.SettingsNamespace)
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		set, next := changeable[name], c
		if set == nil || set(&next, changed[name]) != nil || len(next.checkRetention())+len(next.checkBroker()) > 0 {
			continue
		}
		c = next
	}
	return &c
}

func (g *brokerGroup) retentionLimits() retention.Limits {
	c := g.running()
	hours, err := retention.ParseDeleteWhen(c.DeleteWhen)
	if err != nil {
		hours = nil // checked before
	}
	return retention.Limits{FileReservedTime: c.FileReservedTime, DeleteWhen: hours, MaxUsedRatio: c.DiskMaxUsedSpaceRatio,
		CleanForciblyRatio: c.DiskSpaceCleanForciblyRatio, CleanForcibly: c.CleanFileForciblyEnable}
}

func (g *brokerGroup) transactionLimits() transaction.Limits {
	c := g.running()
	return transaction.Limits{Timeout: c.TransactionTimeout, Interval: c.TransactionCheckInterval, MaxCheck: c.TransactionCheckMax, MaxAge: c.FileReservedTime}
}
