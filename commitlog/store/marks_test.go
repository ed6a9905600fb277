package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"raftmq/flush"
)

// TestLockIsRocketMQs: the lock file holds "lock", and the record lock that RocketMQ tries to take is refused, also after somebody
// in this process has read the file.
func TestLockIsRocketMQs(t *testing.T) {
	leakCheck(t)
	cfg := testConfig(t, t.TempDir())
	s := open(t, cfg)
	path := filepath.Join(cfg.Dir, lockName)
	record := func() error {
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 0, Len: 1})
	}
	for range 2 {
		if b, err := os.ReadFile(path); err != nil || string(b) != "lock" {
			t.Fatalf("%q, %v", b, err)
		}
		if err := record(); !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			t.Fatalf("RocketMQ's lock: %v", err)
		}
		if _, err := Open(cfg); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
			t.Fatalf("a second store: %v", err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := record(); err != nil {
		t.Fatalf("after Close: %v", err)
	}
}

// TestAbortAndCheckpoint: abort is there while the store runs and after a kill, and gone after a clean stop; checkpoint has
// the store times of what is durable.
func TestAbortAndCheckpoint(t *testing.T) {
	leakCheck(t)
	cfg := quiet(t, t.TempDir())
	s := open(t, cfg)
	abort := func(dir string) string {
		b, err := os.ReadFile(filepath.Join(dir, abortName))
		if err != nil {
			return ""
		}
		return string(b)
	}
	checkpoint := func(dir string) flush.Checkpoint {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, checkpointName))
		if err != nil {
			t.Fatal(err)
		}
		c, err := flush.DecodeCheckpoint(b)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	if got := abort(cfg.Dir); got != fmt.Sprint(os.Getpid()) {
		t.Fatalf("abort while it runs: %q", got)
	}
	if c := checkpoint(cfg.Dir); c != (flush.Checkpoint{}) {
		t.Fatalf("checkpoint of an empty store: %+v", c)
	}
	var last int64
	history := randomEntries(31, 150)
	for i, commands := range history {
		apply(t, s, uint64(i+1), commands...)
		for _, c := range commands {
			last = max(last, c.stored)
		}
		if i == 100 {
			settle(t, s)
			waitIndexed(t, s)
			if err := s.FlushAll(); err != nil {
				t.Fatal(err)
			}
			if c := checkpoint(cfg.Dir); c.Physic != last || c.Logics != last {
				t.Fatalf("checkpoint %+v, newest message %d", c, last)
			}
		}
	}
	settle(t, s)
	waitIndexed(t, s)
	// Killed: what is behind the points is not in the checkpoint.
	dir := t.TempDir()
	copyDir(t, cfg.Dir, dir)
	if c := checkpoint(dir); c.Physic >= last || abort(dir) == "" {
		t.Fatalf("after a kill: %+v, abort %q", c, abort(dir))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	c := checkpoint(cfg.Dir)
	if c.Physic != last || c.Logics != last || c.Index <= 0 || c.Index > last || abort(cfg.Dir) != "" {
		t.Fatalf("after a clean stop: %+v, newest message %d, abort %q", c, last, abort(cfg.Dir))
	}
	// An entry that is not applied whole does not count, a failure leaves abort behind.
	cfg.OnFatal = func(error) {}
	s = open(t, cfg)
	s.fatal(errors.New("test"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if abort(cfg.Dir) == "" {
		t.Fatal("a failed store has stopped in order")
	}
}
