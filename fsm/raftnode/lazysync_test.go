package raftnode

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/hashicorp/raft-wal/types"
)

func lazyConfig(t *testing.T, interval time.Duration) Config {
	t.Helper()
	cfg := Config{NodeID: "n", Dir: t.TempDir(), UnsafeSyncInterval: interval, WALSegmentBytes: 64 << 10}
	cfg.ensureDefaults()
	return cfg
}

func storeEntries(t *testing.T, s *logStore, from, to uint64) {
	t.Helper()
	for i := from; i <= to; i++ {
		if err := s.StoreLog(&raft.Log{Index: i, Term: 1, Data: make([]byte, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
}

func (l *lazySync) waiting() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.dirty)
}

// TestLazySync: writes are only noted, SyncLog and the timer make them durable, a new segment needs that for the one before it, and
// all is there after Close.
func TestLazySync(t *testing.T) {
	cfg := lazyConfig(t, time.Hour)
	s, err := openLogStore(cfg)
	if err != nil {
		t.Fatal(err)
	}
	storeEntries(t, s, 1, 10)
	if s.lazy.waiting() != 1 {
		t.Fatalf("%d files wait for their sync", s.lazy.waiting())
	}
	if err := (&Node{logs: s, disk: newDisk(time.Now)}).SyncLog(); err != nil || s.lazy.waiting() != 0 {
		t.Fatalf("%v, %d files wait after SyncLog", err, s.lazy.waiting())
	}
	storeEntries(t, s, 11, 300) // several segments
	if s.lazy.waiting() != 1 {
		t.Fatalf("%d files wait, of several segments only the last may", s.lazy.waiting())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = openLogStore(cfg); err != nil {
		t.Fatal(err)
	}
	if last, err := s.LastIndex(); last != 300 || err != nil {
		t.Fatalf("last entry %d, %v", last, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.UnsafeSyncInterval = time.Millisecond
	if s, err = openLogStore(cfg); err != nil {
		t.Fatal(err)
	}
	storeEntries(t, s, 301, 301)
	for deadline := time.Now().Add(5 * time.Second); s.lazy.waiting() > 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the timer does not sync")
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

type brokenFile struct {
	types.WritableFile
	err error
}

func (f *brokenFile) Sync() error  { return f.err }
func (f *brokenFile) Close() error { return nil }

// TestLazySyncFails is F33 for the weaker mode: a sync on the timer that fails poisons what comes after it.
func TestLazySyncFails(t *testing.T) {
	l := startLazySync(time.Hour)
	bad := &brokenFile{err: errors.New("EIO")}
	f := &lazyFile{WritableFile: bad, lazy: l}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := l.sync(); !errors.Is(err, bad.err) {
		t.Fatalf("the sync: %v", err)
	}
	cause := bad.err
	bad.err = nil
	for _, err := range []error{f.Sync(), l.sync(), (&lazyFile{WritableFile: bad, lazy: l}).Sync(), f.Close(), l.close()} {
		if !errors.Is(err, cause) {
			t.Fatalf("later: %v", err)
		}
	}
}

// TestUnsafeMark: the folder remembers the weaker mode until the first start in the safe one, and tells where its log ends.
func TestUnsafeMark(t *testing.T) {
	cfg := lazyConfig(t, time.Hour)
	if last, unsafe, err := UnsafeLast(cfg.Dir); last != 0 || unsafe || err != nil {
		t.Fatalf("a new folder: %d, %v, %v", last, unsafe, err)
	}
	if _, err := settleUnsafe(cfg); err != nil {
		t.Fatal(err)
	}
	s, err := openLogStore(cfg)
	if err != nil {
		t.Fatal(err)
	}
	storeEntries(t, s, 1, 7)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if last, unsafe, err := UnsafeLast(cfg.Dir); last != 7 || !unsafe || err != nil {
			t.Fatalf("%d, %v, %v", last, unsafe, err)
		}
		if _, err := settleUnsafe(cfg); err != nil {
			t.Fatal(err)
		}
	}
	cfg.UnsafeSyncInterval = 0
	if _, err := settleUnsafe(cfg); err != nil {
		t.Fatal(err)
	}
	if _, unsafe, err := UnsafeLast(cfg.Dir); unsafe || err != nil {
		t.Fatalf("after a safe start: %v, %v", unsafe, err)
	}
	if _, err := os.Stat(filepath.Join(cfg.Dir, unsafeMark)); !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	cfg.LogStore, cfg.UnsafeSyncInterval = Bolt, time.Second
	cfg.Transport, cfg.FSM, cfg.Snapshots = nil, nil, nil
	if err := cfg.validate(); err == nil {
		t.Fatal("bolt without syncs accepted")
	}
}
