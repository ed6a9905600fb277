package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"raftmq/commitlog/store"
	"raftmq/fsm/command"
	"raftmq/fsm/raftnode"
	"raftmq/membership"

	"github.com/hashicorp/go-hclog"
)

func nodeFolder(t *testing.T) (string, *identity) {
	t.Helper()
	dir := t.TempDir()
	for _, f := range []string{"raft/wal/1.wal", "store/commitlog/0", "store/journal/0"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, f)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, f), []byte(f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	id := &identity{FormatVersion: folderFormat, NodeID: "n1", Incarnation: "old", ClusterName: "c", BrokerName: "b", ClusterID: "id", SegmentSize: 1 << 20, Level: command.Newest}
	if err := id.save(dir); err != nil {
		t.Fatal(err)
	}
	return dir, id
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestPutAsideIsFinishedAfterACrash: however far it came, the next start finishes it, and nothing is deleted.
func TestPutAsideIsFinishedAfterACrash(t *testing.T) {
	for _, parts := range [][]string{{"raft"}, {"raft", "store"}} {
		for stop := range 5 {
			t.Run(fmt.Sprint(parts, " crash ", stop), func(t *testing.T) {
				dir, old := nodeFolder(t)
				now := time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)
				to, err := putAside(dir, parts, "test", now)
				if err != nil {
					t.Fatal(err)
				}
				// Back to what a crash at step stop would have left.
				marker, err := os.ReadFile(filepath.Join(to, asideMarker))
				if err != nil {
					t.Fatal(err)
				}
				undo := []func() error{
					func() error { return os.WriteFile(filepath.Join(dir, asideMarker), marker, 0o644) }, // all but the marker's end
					func() error { return old.save(dir) },
					func() error { return os.Remove(filepath.Join(to, asideMarker)) },
					func() error { return os.Remove(filepath.Join(to, identityFile)) },
					func() error { return os.Rename(filepath.Join(to, "raft"), filepath.Join(dir, "raft")) },
				}
				for _, u := range undo[:stop+1] {
					if err := u(); err != nil {
						t.Fatal(err)
					}
				}
				if err := finishAside(dir); err != nil {
					t.Fatal(err)
				}
				next, err := readIdentity(dir)
				if err != nil {
					t.Fatal(err)
				}
				want := *old
				want.Incarnation, want.Rejoined = next.Incarnation, "old"
				if *next != want || next.Incarnation == "old" || next.Incarnation == "" {
					t.Errorf("node.json is %+v", next)
				}
				for _, f := range []string{"raft/wal/1.wal", "store/commitlog/0"} {
					top, _, _ := strings.Cut(f, "/")
					in, out := dir, to
					for _, p := range parts {
						if p == top {
							in, out = to, dir
						}
					}
					if !exists(filepath.Join(in, f)) || exists(filepath.Join(out, f)) {
						t.Errorf("%s is in the wrong place", f)
					}
				}
				aside, err := readIdentity(to)
				if err != nil || *aside != *old {
					t.Errorf("the old node.json is %+v, %v", aside, err)
				}
				if exists(filepath.Join(dir, asideMarker)) {
					t.Error("the marker is still there")
				}
				if folders, at := asideFolders(dir); len(folders) != 1 || folders[0] != to || !at.Equal(now) {
					t.Errorf("folders %v, newest %v", folders, at)
				}
			})
		}
	}
}

func TestAsideMarkerOfAnotherVersionIsRefused(t *testing.T) {
	dir, _ := nodeFolder(t)
	for _, b := range []string{`{"formatVersion":2,"folder":"x"}`, `{"formatVersion":1,"folder":"../x"}`, `{"formatVersion":1,"folder":"x","parts":["../y"]}`, `{`} {
		if err := os.WriteFile(filepath.Join(dir, asideMarker), []byte(b), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := finishAside(dir); err == nil {
			t.Errorf("%s: carried out", b)
		}
	}
	if !exists(filepath.Join(dir, "raft")) {
		t.Error("raft/ was moved")
	}
}

// TestNothingIsPutAsideWithoutAMajorityOfTheOthers: it might be the last copy (Never-Clean-Up).
func TestNothingIsPutAsideWithoutAMajorityOfTheOthers(t *testing.T) {
	dir, id := nodeFolder(t)
	asked := 0
	r := rejoining{cfg: &Config{DataDir: dir}, logger: hclog.NewNullLogger(), wait: 50 * time.Millisecond, now: time.Now,
		proof: func(context.Context) error { asked++; return errors.New("no leader could be asked") }}
	why := &rejoinError{reason: fmt.Errorf("%w: test", raftnode.ErrLogDamaged)}
	err := r.run(t.Context(), why)
	if !errors.Is(err, errCannotRejoin) || !errors.Is(err, raftnode.ErrLogDamaged) || asked == 0 {
		t.Fatalf("asked %d times: %v", asked, err)
	}
	for _, want := range []string{"Nothing was changed", "Start the other nodes", "no leader could be asked"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	if now, err := readIdentity(dir); err != nil || *now != *id || !exists(filepath.Join(dir, "raft")) || exists(filepath.Join(dir, asideDir)) {
		t.Errorf("the folder was changed: %+v, %v", now, err)
	}

	// With it, yes; and a second time so soon after, no: a bad machine must not go round in circles.
	r.proof = func(context.Context) error { return nil }
	if err := r.run(t.Context(), why); err != nil {
		t.Fatal(err)
	}
	if !exists(filepath.Join(dir, "store")) || exists(filepath.Join(dir, "raft")) {
		t.Error("the wrong parts are aside")
	}
	if err := r.run(t.Context(), why); !errors.Is(err, errCannotRejoin) || !strings.Contains(err.Error(), "Check its disk and memory") {
		t.Errorf("a second time: %v", err)
	}
	r.now = func() time.Time { return time.Now().Add(2 * rejoinRest) }
	if err := r.run(t.Context(), &rejoinError{reason: store.ErrDiverged, log: true}); err != nil {
		t.Fatal(err)
	}
	if exists(filepath.Join(dir, "store")) {
		t.Error("a diverged log is still there")
	}
}

func TestWhatEndsInARejoin(t *testing.T) {
	for _, tt := range []struct {
		err      error
		yes, log bool
	}{
		{nil, false, false},
		{errors.New("other"), false, false},
		{fmt.Errorf("node n1 stopped: %w", store.ErrDiverged), true, true},
		{fmt.Errorf("node n1 did not start: %w", raftnode.ErrLogDamaged), true, false},
		{fmt.Errorf("node n1 stopped: %w", &rejoinError{reason: errors.New("x"), log: true}), true, true},
		{fmt.Errorf("node n1 stopped: %w", raftnode.ErrDisk), false, false},
	} {
		r := asRejoin(tt.err)
		if (r != nil) != tt.yes || r != nil && r.log != tt.log {
			t.Errorf("%v: %+v", tt.err, r)
		}
	}
}

// TestOnlyTheOwnClustersLiveMembersCount.
func TestOnlyTheOwnClustersLiveMembersCount(t *testing.T) {
	id := &identity{NodeID: "n1", ClusterName: "c", BrokerName: "b"}
	at := "127.0.0.1:1" // nobody listens there
	members := func() []membership.Member {
		m := func(id, cluster, group string, state membership.State) membership.Member {
			return membership.Member{Tags: membership.Tags{NodeID: id, ClusterName: cluster, Group: group, ClientAddr: at}, State: state}
		}
		return []membership.Member{m("n1", "c", "b", membership.Alive), m("n2", "other", "b", membership.Alive), m("n3", "c", "other", membership.Alive), m("n4", "c", "b", membership.Failed)}
	}
	if err := othersCommit(t.Context(), id, members); err == nil || !strings.Contains(err.Error(), "no other member") {
		t.Errorf("asked somebody: %v", err)
	}
}
