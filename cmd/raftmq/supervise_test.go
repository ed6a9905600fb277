package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"raftmq/commitlog/mappedfile"
	"raftmq/fsm/raftnode"

	"github.com/hashicorp/go-hclog"
)

func TestIsDiskError(t *testing.T) {
	for _, test := range []struct {
		err  error
		disk bool
		full bool
	}{
		{fmt.Errorf("write: %w", syscall.EIO), true, false},
		{&os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, true, true},
		{fmt.Errorf("a: %w", raftnode.ErrDisk), true, false},
		{fmt.Errorf("a: %w", mappedfile.ErrNoSpace), true, true},
		{mappedfile.ErrFault, true, false},
		{syscall.EADDRINUSE, false, false},
		{errors.New("command: unknown kind"), false, false},
		{nil, false, false},
	} {
		if isDiskError(test.err) != test.disk || isFull(test.err) != test.full {
			t.Errorf("%v: disk %v, full %v", test.err, isDiskError(test.err), isFull(test.err))
		}
	}
}

// A parked node pauses longer each time, but not when the disk was full or the node had run well.
func TestParkingPauses(t *testing.T) {
	dir := t.TempDir()
	for _, sub := range []string{"raft", "store"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := parking{cfg: &Config{NodeID: "n1", DataDir: dir, RaftLogStore: raftLogWAL, HTTPAddress: "127.0.0.1:0"}, logger: hclog.NewNullLogger()}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for i, step := range []struct {
		why  error
		ran  time.Duration
		want time.Duration
	}{
		{syscall.EIO, time.Second, time.Second}, {syscall.EIO, time.Second, 2 * time.Second}, {syscall.EIO, time.Second, 4 * time.Second},
		{syscall.ENOSPC, time.Second, 2 * time.Second}, {syscall.EIO, time.Hour, time.Second},
	} {
		if err := p.wait(ended, step.why, step.ran); !errors.Is(err, context.Canceled) || p.pause != step.want {
			t.Errorf("step %d: pause %v, want %v; %v", i, p.pause, step.want, err)
		}
	}
	if err := p.probe(t.Context()); err != nil {
		t.Errorf("probe of a disk that is well: %v", err)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "*", "*")); err != nil || len(files) != 0 {
		t.Errorf("the probe left %v, %v", files, err)
	}
	p.cfg.DataDir = filepath.Join(dir, "gone")
	if err := p.probe(t.Context()); err == nil {
		t.Error("the probe of a folder that is not there succeeds")
	}
}

// F27, one node: a full disk refuses sends, or takes the node down; within 10 s of space coming back it takes them again, and
// everything that was acknowledged is there.
func TestF27FullDiskComesBack(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("fills a disk")
	}
	disk := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(disk, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=112m"); err != nil {
		t.Skipf("no file system of a limited size: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	port := freePorts(t, 3)
	s := startServer(t, serverArgs(filepath.Join(disk, "data"), port, "--bootstrap-expect", "1", "--mapped-file-size-commit-log", "1MiB", "--max-message-size", "512KiB",
		"--max-hash-slot-num", "1000", "--max-index-num", "10000")...)
	s.ready(port)
	at := fmt.Sprintf("--name-servers=127.0.0.1:%d", port)
	mustRun(t, "", "topic", "create", "t", "--queues", "1", at)

	var acked []string
	send := func(text string) bool {
		_, _, err := runTool(t, text+strings.Repeat("x", 200*kib)+"\n", "produce", "--topic", "t", "--timeout", "2s", at)
		if err == nil {
			acked = append(acked, text)
		}
		return err == nil
	}
	if !send("before") {
		t.Fatal("not writable at first")
	}
	fill(t, filepath.Join(disk, "ballast"), 4*mib)
	for i := 0; send(fmt.Sprint("filling-", i)); i++ {
		if i > 100 {
			t.Fatal("the disk does not get full")
		}
	}
	select {
	case <-s.done:
		t.Fatalf("the process ended: %v\n%s", s.err, s.stderr.String())
	case <-time.After(2 * time.Second): // it stays down, or refuses, for a while
	}
	if err := os.Remove(filepath.Join(disk, "ballast")); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for !send("after") {
		if time.Since(began) > 10*time.Second {
			t.Fatalf("not writable 10 s after space came back\n%s", s.stderr.String())
		}
	}
	t.Logf("writable again after %v, %d messages acknowledged", time.Since(began).Round(time.Millisecond), len(acked))
	out := mustRun(t, "", "consume", "--topic", "t", "--group", "g", "--timeout", "2s", at)
	for _, text := range acked {
		if !strings.Contains(out, text+"x") {
			t.Errorf("%q was acknowledged and is lost", text)
		}
	}
}

// fill writes a file that leaves about so much room.
func fill(t *testing.T, path string, leave int64) {
	t.Helper()
	var st syscall.Statfs_t
	if err := syscall.Statfs(filepath.Dir(path), &st); err != nil {
		t.Fatal(err)
	}
	n := int64(st.Bavail)*st.Bsize - leave
	if n < 0 {
		t.Fatalf("only %d bytes are left before the disk is filled", n+leave)
	}
	if err := os.WriteFile(path, bytes.Repeat([]byte{1}, int(n)), 0o600); err != nil {
		t.Fatal(err)
	}
}
