package store

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"raftmq/commitlog"
	"raftmq/commitlog/mappedfile"
)

// TestDiskRatio is the format notes' §9.2: whole percents, rounded up, of what is not kept for root.
func TestDiskRatio(t *testing.T) {
	for _, c := range []struct {
		d    Disk
		want float64
	}{
		{Disk{Total: 100, Free: 100, Usable: 100}, 0},
		{Disk{Total: 1000, Free: 99, Usable: 99}, 0.91},
		{Disk{Total: 1000, Free: 100, Usable: 100}, 0.90},
		{Disk{Total: 1000, Free: 150, Usable: 100}, 0.90}, // 850 of 950
		{Disk{Total: 1000}, 1},
		{Disk{}, -1},
	} {
		if got := c.d.Ratio(); got != c.want {
			t.Errorf("%+v: %v, want %v", c.d, got, c.want)
		}
	}
	dir := t.TempDir()
	if d := StatDisk(dir); d.Total <= 0 || d.Free < d.Usable || d.Ratio() < 0 || d.Ratio() > 1 || d.Path != dir {
		t.Errorf("%+v", d)
	}
	if d := StatDisk(filepath.Join(dir, "none")); d.Ratio() != -1 {
		t.Errorf("a path that is not there: %+v", d)
	}
}

// TestRunningFlags: which of them stop what (§9.4).
func TestRunningFlags(t *testing.T) {
	for _, c := range []struct {
		f               RunningFlags
		read, write     bool
		text            string
		statusIfNotFull PutStatus
	}{
		{0, true, true, "", PutOK},
		{FlagNotReadable, false, true, "not-readable", PutOK},
		{FlagNotWriteable, true, false, "not-writeable", CreateMappedFileFailed},
		{FlagQueueError, true, false, "queue-error", ServiceNotAvailable},
		{FlagIndexError, true, false, "index-error", ServiceNotAvailable},
		{FlagDiskFull, true, false, "disk-full", ServiceNotAvailable},
		{FlagDiskFull | FlagNotWriteable, true, false, "not-writeable disk-full", ServiceNotAvailable},
	} {
		s := &Store{cfg: Config{}, log: &commitlog.Log{}}
		s.cfg.fillIn()
		s.running.set(c.f, true)
		if f := s.Flags(); f != c.f || f.Readable() != c.read || f.Writeable() != c.write || f.String() != c.text || s.PutStatus() != c.statusIfNotFull {
			t.Errorf("%d: readable %v, writeable %v, %q, status %d", c.f, f.Readable(), f.Writeable(), f, s.PutStatus())
		}
		if c.f != 0 && (s.running.set(c.f, true) || !s.running.set(c.f, false) || s.running.set(c.f, false)) {
			t.Errorf("%d: set does not tell what changed", c.f)
		}
	}
	if FlagNotReadable != 1 || FlagNotWriteable != 2 || FlagQueueError != 4 || FlagIndexError != 8 || FlagDiskFull != 16 {
		t.Error("bits are not RocketMQ's")
	}
}

// TestPageCacheBusy: the test's limits, and its guard; what stands for the lock is the Apply batch (§3.5).
func TestPageCacheBusy(t *testing.T) {
	var now atomic.Int64
	now.Store(1_700_000_000_000)
	cfg := quiet(t, t.TempDir())
	cfg.FS = lazyFS{}
	cfg.Now = func() time.Time { return time.UnixMilli(now.Load()) }
	s := open(t, cfg)
	if s.LockTime() != 0 || s.PageCacheBusy() || s.PutStatus() != PutOK {
		t.Error("busy between batches")
	}
	begun := now.Load()
	apply(t, s, 1, command{topic: "A", bodies: [][]byte{body(1)}})
	for _, c := range []struct {
		after int64
		busy  bool
	}{{0, false}, {1000, false}, {1001, true}, {9_999_999, true}, {10_000_000, false}, {20_000_000, false}, {-5, false}} {
		now.Store(begun + c.after)
		if s.PageCacheBusy() != c.busy || (s.PutStatus() == OSPageCacheBusy) != c.busy || s.LockTime() != time.Duration(max(c.after, 0))*time.Millisecond {
			t.Errorf("after %d ms: busy %v, lock time %v", c.after, s.PageCacheBusy(), s.LockTime())
		}
	}
	now.Store(begun + 2000)
	apply(t, s, 2, command{topic: "A", bodies: [][]byte{body(1)}}) // the same batch
	if s.LockTime() != 2*time.Second {
		t.Errorf("lock time %v in the second entry of a batch", s.LockTime())
	}
	s.Publish()
	if s.LockTime() != 0 || s.PageCacheBusy() {
		t.Error("busy after the batch")
	}
}

// TestSlowApplyIsTold: a batch of more than half a second is warned of, once in ten seconds.
func TestSlowApplyIsTold(t *testing.T) {
	var now atomic.Int64
	now.Store(1_700_000_000_000)
	var lines bytes.Buffer // of this goroutine: Publish warns
	cfg := quiet(t, t.TempDir())
	cfg.FS = lazyFS{}
	cfg.Now = func() time.Time { return time.UnixMilli(now.Load()) }
	s := open(t, cfg)
	s.logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Warn, Output: &lines})
	index := uint64(0)
	batch := func(ms int64) {
		index++
		apply(t, s, index, command{topic: "A", bodies: [][]byte{body(1)}})
		now.Add(ms)
		s.Publish()
	}
	for _, c := range []struct {
		ms    int64
		lines int
	}{{0, 0}, {500, 0}, {501, 1}, {900, 1}, {10_000, 2}} {
		batch(c.ms)
		if got := strings.Count(lines.String(), "applying a batch took long"); got != c.lines {
			t.Errorf("after %d ms: %d lines\n%s", c.ms, got, lines.String())
		}
	}
	if !strings.Contains(lines.String(), "unsaid=1") {
		t.Errorf("lines\n%s", lines.String())
	}
}

// TestThrottle: once in ten seconds, and how many were not said.
func TestThrottle(t *testing.T) {
	var th Throttle
	at := func(ms int64) time.Time { return time.UnixMilli(1_700_000_000_000 + ms) }
	for _, c := range []struct {
		ms     int64
		ok     bool
		unsaid int64
	}{{0, true, 0}, {1, false, 0}, {9_999, false, 0}, {10_000, true, 2}, {10_001, false, 0}, {30_000, true, 1}} {
		if ok, unsaid := th.Allow(at(c.ms)); ok != c.ok || unsaid != c.unsaid {
			t.Errorf("at %d: %v, %d unsaid", c.ms, ok, unsaid)
		}
	}
}

// fakeDisk is a disk with a figure for how much of it is used.
type fakeDisk struct {
	mu   sync.Mutex
	used int64 // of 1000 MiB
}

func (d *fakeDisk) set(used int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.used = used
}

func (d *fakeDisk) stat(path string) Disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	free := (1000 - d.used) << 20
	return Disk{Path: path, Total: 1000 << 20, Free: free, Usable: free}
}

// TestDiskFullFlag: set above the ratio or below the least space, cleared by itself; the reserve is made when there is
// room for it beside that, and given up when the disk is full to the brim.
func TestDiskFullFlag(t *testing.T) {
	leakCheck(t)
	disk := &fakeDisk{}
	cfg := testConfig(t, t.TempDir())
	cfg.FS, cfg.Disk, cfg.SpaceInterval = lazyFS{}, disk.stat, time.Millisecond
	cfg.MinFreeBytes, cfg.ReserveBytes = 64<<20, 1<<20
	s := open(t, cfg)
	reserve := filepath.Join(cfg.Dir, reserveName)
	has := func() bool { st, err := os.Stat(reserve); return err == nil && st.Size() == 1<<20 }
	if s.Flags() != 0 || !has() {
		t.Fatalf("flags %v, reserve %v", s.Flags(), has())
	}
	for _, c := range []struct {
		used    int64
		full    bool
		reserve bool
	}{
		{899, false, true}, {900, false, true}, {901, true, true}, {935, true, true}, {936, true, true}, {937, true, true},
		{968, true, true}, {969, true, false}, {1000, true, false}, {937, true, false}, {901, true, false},
		{900, true, false}, // with the reserve it would be above the ratio again
		{899, false, true}, {100, false, true},
	} {
		disk.set(c.used)
		await(t, fmt.Sprintf("%d MiB: full %v", c.used, c.full), func() bool { return s.Flags() == FlagDiskFull == c.full })
		await(t, fmt.Sprintf("%d MiB: reserve %v", c.used, c.reserve), func() bool { return has() == c.reserve })
		if want := map[bool]PutStatus{true: ServiceNotAvailable, false: PutOK}[c.full]; s.PutStatus() != want {
			t.Errorf("%d MiB: status %d", c.used, s.PutStatus())
		}
	}
	// What Apply needs and the disk does not have: the reserve goes, once, and nothing is taken until it is back.
	disk.set(950)
	if !s.noSpace() || s.noSpace() || has() || s.Flags() != FlagDiskFull {
		t.Errorf("reserve %v, flags %v", has(), s.Flags())
	}
	disk.set(0)
	await(t, "the reserve", func() bool { return s.Flags() == 0 && has() })
	// A pre-allocation that fails says so at once, whatever the ratio is, and takes it back.
	s.prepared(fmt.Errorf("making a segment: %w", mappedfile.ErrNoSpace))
	if s.Flags() != FlagDiskFull {
		t.Errorf("flags %v", s.Flags())
	}
	s.prepared(nil)
	await(t, "the flag to go", func() bool { return s.Flags() == 0 })
	s.prepared(errDisk)
	if s.Flags() != FlagNotWriteable || s.PutStatus() != CreateMappedFileFailed {
		t.Errorf("flags %v", s.Flags())
	}
	s.prepared(nil)
	if s.Flags() != 0 {
		t.Errorf("flags %v", s.Flags())
	}
	// The next process takes the reserve over; one of another size is made again.
	s.Close()
	disk.set(950)
	s = open(t, cfg)
	if s.reserve.missing() != 0 {
		t.Error("the reserve that is there was not taken over")
	}
	s.Close()
	cfg.ReserveBytes = 2 << 20
	disk.set(0)
	s = open(t, cfg)
	if st, err := os.Stat(reserve); err != nil || st.Size() != 2<<20 {
		t.Errorf("%v %v", st, err)
	}
}

// TestSpaceInterval: a disk of which little is left is looked at more often.
func TestSpaceInterval(t *testing.T) {
	disk := &fakeDisk{}
	cfg := testConfig(t, t.TempDir())
	cfg.FS, cfg.Disk, cfg.SpaceInterval, cfg.MinFreeBytes = lazyFS{}, disk.stat, time.Hour, 64<<20
	s := open(t, cfg)
	for _, c := range []struct {
		used int64
		want time.Duration
	}{{400, time.Hour}, {600, tightInterval}, {480, time.Hour}} { // eight times 64 MiB are 512
		disk.set(c.used)
		s.checkSpace()
		if got := s.spaceInterval(); got != c.want {
			t.Errorf("%d MiB used: looks each %v", c.used, got)
		}
	}
}

// TestF27DispatchWaitsForSpace: consume queues that find no space wait, the store lives, messages are refused meanwhile, and all is
// there when space returns; a restart in between does no harm.
func TestF27DispatchWaitsForSpace(t *testing.T) {
	for _, restart := range []bool{false, true} {
		leakCheck(t)
		f := &failingFS{fail: func(op, path string) error {
			if op == "create" && strings.Contains(path, queueDir) {
				return fmt.Errorf("injected: %w", unix.ENOSPC)
			}
			return nil
		}}
		cfg := testConfig(t, t.TempDir())
		cfg.FS = f
		s := open(t, cfg)
		m := newModel()
		entries := randomEntries(41, 60)
		fillWith(t, s, m, entries)
		f.armed.Store(true)
		more := command{topic: "New", bodies: [][]byte{body(10), body(20)}}
		if _, err := m.add(0, []command{more}, apply(t, s, 61, more)); err != nil {
			t.Fatal(err)
		}
		s.Publish()
		await(t, "the flag", func() bool { return s.Flags() == FlagQueueError })
		if s.PutStatus() != ServiceNotAvailable || s.MaxOffset("New", 0) != 2 || s.ReadableOffset("New", 0) != 0 {
			t.Errorf("status %d, [%d, %d)", s.PutStatus(), s.ReadableOffset("New", 0), s.MaxOffset("New", 0))
		}
		if restart {
			if err := s.Close(); err != nil {
				t.Fatalf("close on a full disk: %v", err)
			}
			f.armed.Store(false)
			s = open(t, cfg)
		}
		f.armed.Store(false)
		waitDispatched(t, s)
		await(t, "the flag to go", func() bool { return s.Flags() == 0 })
		if low, end := s.MinOffset("New", 0), s.ReadableOffset("New", 0); low != 0 || end != 2 {
			t.Errorf("restart %v: [%d, %d)", restart, low, end)
		}
	}
}

// TestF27PointsWaitForSpace: recovery points that cannot be written are no reason to stop.
func TestF27PointsWaitForSpace(t *testing.T) {
	leakCheck(t)
	f := &noRoomFS{}
	cfg := testConfig(t, t.TempDir())
	cfg.FS, cfg.PointInterval = f, time.Millisecond
	s := open(t, cfg)
	f.full.Store(true)
	m := fill(t, s, 42, 80)
	await(t, "an attempt", func() bool { return f.refused.Load() > 2 })
	if err := s.FlushAll(); !errors.Is(err, mappedfile.ErrNoSpace) {
		t.Errorf("flushed: %v", err)
	}
	f.full.Store(false)
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = open(t, cfg)
	m.check(t, s)
}

// noRoomFS has no room for small files while full.
type noRoomFS struct {
	lazyFS
	full    atomic.Bool
	refused atomic.Int64
}

func (f *noRoomFS) WriteFile(path string, b []byte) error {
	if f.full.Load() {
		f.refused.Add(1)
		return fmt.Errorf("%w: %s", mappedfile.ErrNoSpace, path)
	}
	return f.lazyFS.WriteFile(path, b)
}

// mountTmpfs mounts a file system of so many MiB, or skips the test.
func mountTmpfs(t *testing.T, mib int) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a small file system can be mounted by root only")
	}
	dir := t.TempDir()
	if err := unix.Mount("raftmq-test", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		t.Skipf("mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillUp takes all space but keep bytes; the function that it returns gives it back.
func fillUp(t *testing.T, dir string, keep int64) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	for want := int64(math.MaxInt64); ; {
		// The store takes space meanwhile; what it gives up of its reserve then is its own.
		want = min(want, StatDisk(dir).Usable-keep)
		err := allocateFile(path, want)
		if err == nil {
			break
		}
		if !isNoSpace(err) {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestF27FullDisk fills a real file system under the store: what was accepted until then, up to the reserve, is applied; the store
// lives, flushes, and is writeable again within ten seconds of space.
func TestF27FullDisk(t *testing.T) {
	leakCheck(t)
	disk := mountTmpfs(t, 64)
	cfg := testConfig(t, filepath.Join(disk, "store"))
	cfg.SegmentSize, cfg.QueueFileSize = 1<<20, 300_000
	cfg.ReserveBytes, cfg.MinFreeBytes, cfg.SpaceInterval = 8<<20, 4<<20, 20*time.Millisecond
	cfg.MaxHashSlotNum, cfg.MaxIndexNum = 1000, 20_000
	s := open(t, cfg)
	m := newModel()
	applyAll(t, s, m, nil)
	index := uint64(0)
	put := func(n int) {
		t.Helper()
		for range n {
			index++
			c := command{topic: "T1", queueID: 1, bodies: [][]byte{body(10_000)}}
			if _, err := m.add(0, []command{c}, apply(t, s, index, c)); err != nil {
				t.Fatal(err)
			}
			s.Publish()
		}
	}
	put(200)
	free := fillUp(t, disk, 0)
	put(500) // 5 MB were in flight
	await(t, "the flag", func() bool { return s.Flags()&FlagDiskFull != 0 })
	if s.PutStatus() != ServiceNotAvailable {
		t.Errorf("status %d", s.PutStatus())
	}
	waitDispatched(t, s)
	if err := s.FlushAll(); err != nil && !isNoSpace(err) {
		t.Fatal(err)
	}
	free()
	freed := time.Now()
	await(t, "space", func() bool { return s.PutStatus() == PutOK })
	if d := time.Since(freed); d > 10*time.Second {
		t.Errorf("writeable after %v", d)
	}
	put(200)
	settle(t, s)
	m.check(t, s)
	s.Close()
	s = open(t, cfg)
	m.check(t, s)
}
