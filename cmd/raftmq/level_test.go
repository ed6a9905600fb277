package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"raftmq/fsm/command"
	"raftmq/membership"
)

// TestF83_FolderOfANewerCluster: the folder says the cluster's level, so that an older raftmq refuses before it touches anything, with its own words
// if it knows of no levels.
func TestF83_FolderOfANewerCluster(t *testing.T) {
	cfg := Config{DataDir: t.TempDir(), NodeID: "n1", ClusterName: "C", BrokerName: "B", MappedFileSizeCommitLog: 1 << 20}
	id, err := openIdentity(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	if id.FormatVersion != plainFormat || id.Level != 0 {
		t.Fatalf("a new folder: %+v", id)
	}
	var folder folderIdentity
	folder.open(id, cfg.DataDir)
	raise := func(l command.Level) {
		t.Helper()
		if err := folder.change(func(id *identity) { id.raise(l) }); err != nil {
			t.Fatal(err)
		}
	}
	read := func() string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(cfg.DataDir, identityFile))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	before := read()
	if raise(command.Oldest); read() != before {
		t.Errorf("level 1 changed the folder:\n%s", read())
	}
	raise(2)
	raise(1)
	if text := read(); !strings.Contains(text, `"formatVersion": 2`) || !strings.Contains(text, `"level": 2`) || folder.behind(2) || !folder.behind(3) {
		t.Errorf("after level 2:\n%s", text)
	}
	if err := folder.change(func(id *identity) { id.ClusterID = "c" }); err != nil || !strings.Contains(read(), `"level": 2`) {
		t.Errorf("another change lost the level: %v\n%s", err, read())
	}
	if _, err := openIdentity(&cfg); command.Newest >= 2 && err != nil {
		t.Errorf("this raftmq: %v", err)
	}
	raise(command.Newest + 1)
	if _, err := openIdentity(&cfg); !errors.Is(err, command.ErrUnknown) || !strings.Contains(err.Error(), "start a newer raftmq here") {
		t.Errorf("a level too high: %v", err)
	}
}

func TestCommonLevel(t *testing.T) {
	for _, tt := range []struct {
		levels  []command.Level
		want    command.Level
		missing int
	}{
		{[]command.Level{command.Newest, command.Newest}, command.Newest, 0},
		{[]command.Level{command.Newest, 1, command.Newest + 1}, 1, 0},
		{[]command.Level{command.Newest + 1}, command.Newest, 0}, // a newer follower: this leader goes no further than it can itself
		{[]command.Level{1, 0, 0}, 1, 2},
	} {
		var members []memberLevel
		for _, l := range tt.levels {
			members = append(members, memberLevel{nodeID: "n", level: l})
		}
		if got, missing := commonLevel(members); got != tt.want || len(missing) != tt.missing {
			t.Errorf("%v: %d, missing %v", tt.levels, got, missing)
		}
	}
	if l := levelOf(membership.Member{}); l != command.Oldest {
		t.Errorf("a node that tells no level has %d", l)
	}
}
