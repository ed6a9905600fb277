package main

import (
	"strings"
	"testing"
	"time"

	"raftmq/fsm/command"
	"raftmq/fsm/metadata"
)

// TestRunningSettings: what was changed while the cluster runs counts more than the flags; what cannot be is refused with the reason.
func TestRunningSettings(t *testing.T) {
	cfg, err := parse(t, base...)
	if err != nil {
		t.Fatal(err)
	}
	g := &brokerGroup{cfg: &cfg, tables: metadata.New()}
	put := func(name, value string) {
		t.Helper()
		if err := g.tables.PutKV(command.KVPut{Namespace: metadata.SettingsNamespace, Key: name, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct{ name, value, refused string }{
		{"fileReservedTime", "73", ""}, {"fileReservedTime", "0.5", ""}, {"deleteWhen", "02;14", ""}, {"diskMaxUsedSpaceRatio", "60", ""},
		{"diskSpaceCleanForciblyRatio", "80", ""}, {"cleanFileForciblyEnable", "false", ""}, {"transactionTimeOut", "3000", ""},
		{"transactionCheckInterval", "30000", ""}, {"transactionCheckMax", "3", ""}, {"transactionCheckMax", "", ""},
		{"fileReservedTime", "abc", "invalid syntax"}, {"deleteWhen", "25", "0 to 23"}, {"diskMaxUsedSpaceRatio", "99", "10 to 95"},
		{"diskSpaceCleanForciblyRatio", "95", "contradicts"}, {"cleanFileForciblyEnable", "perhaps", "invalid syntax"}, {"transactionTimeOut", "-1", "allowed are"},
		{"transactionCheckMax", "0", "allowed are"},
		{"mappedFileSizeCommitLog", "1", "fixed when the cluster was bootstrapped"}, {"autoCreateTopicEnable", "false", "fixed when"},
		{"flushDiskType", "SYNC_FLUSH", "restart the nodes"}, {"maxMessageSize", "1", "restart the nodes"}, {"noSuchKey", "1", "has no setting noSuchKey"},
	} {
		err := g.checkSetting(tc.name, tc.value)
		if (err == nil) != (tc.refused == "") || err != nil && !strings.Contains(err.Error(), tc.refused) {
			t.Errorf("%s=%s: %v, want %q", tc.name, tc.value, err, tc.refused)
		}
		if tc.refused == "" && tc.value != "" {
			put(tc.name, tc.value)
		}
	}
	r, x := g.retentionLimits(), g.transactionLimits()
	if r.FileReservedTime != 30*time.Minute || len(r.DeleteWhen) != 2 || r.DeleteWhen[1] != 14 || r.MaxUsedRatio != 60 || r.CleanForciblyRatio != 80 || r.CleanForcibly {
		t.Errorf("%+v", r)
	}
	if x.Timeout != 3*time.Second || x.Interval != 30*time.Second || x.MaxCheck != 3 || x.MaxAge != r.FileReservedTime {
		t.Errorf("%+v", x)
	}
	// What another version wrote and this one cannot take is left out, and the rest holds.
	put("diskMaxUsedSpaceRatio", "1000")
	put("future", "1")
	put("transactionCheckMax", "x")
	if r, x := g.retentionLimits(), g.transactionLimits(); r.MaxUsedRatio != cfg.DiskMaxUsedSpaceRatio || r.CleanForciblyRatio != 80 || x.MaxCheck != cfg.TransactionCheckMax {
		t.Errorf("%+v %+v", r, x)
	}
}
