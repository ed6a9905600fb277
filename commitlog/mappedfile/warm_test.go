package mappedfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// lockedKiB is how much memory this process has locked.
func lockedKiB(t *testing.T) (n int) {
	t.Helper()
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Skip(err)
	}
	for line := range strings.Lines(string(b)) {
		if _, err := fmt.Sscanf(line, "VmLck: %d kB", &n); err == nil {
			return n
		}
	}
	t.Skip("no VmLck")
	return 0
}

// TestWarm: files made ahead are brought into memory and locked, in steps, once; nothing is written for it; a while after the writer
// has left one it is unlocked.
func TestWarm(t *testing.T) {
	const size = 32 << 20
	dir := t.TempDir()
	q := open(t, Options{Dir: dir, FileSize: size, AllocateStep: 1 << 20, Staged: true, Ahead: 2})
	if err := q.Prepare(); err != nil {
		t.Fatal(err)
	}
	before, steps := lockedKiB(t), 0
	warm := func() error {
		return q.Warm(func(file string, done, total int64) bool {
			if filepath.Dir(file) != dir || total != size || done >= total {
				t.Errorf("progress of %s: %d of %d", file, done, total)
			}
			steps++
			return true
		})
	}
	if err := warm(); errors.Is(err, ErrLockLimit) {
		t.Skip(err)
	} else if err != nil {
		t.Fatal(err)
	}
	if steps != 4 || lockedKiB(t)-before != 2*size/1024 {
		t.Fatalf("%d steps, %d KiB locked", steps, lockedKiB(t)-before)
	}
	for _, f := range q.ahead() {
		var st unix.Stat_t
		if err := unix.Stat(f.path, &st); err != nil || st.Blocks*512 > 2<<20 {
			t.Fatalf("%s has %d bytes on disk: it was written to", f.path, st.Blocks*512)
		}
		if n := resident(t, f.data); n != size/PageSize {
			t.Fatalf("%d of %d pages in memory", n, size/PageSize)
		}
	}
	if err := warm(); err != nil || steps != 4 {
		t.Fatalf("%v, %d steps the second time", err, steps)
	}
	for range 2 {
		if _, err := q.Append(size); err != nil {
			t.Fatal(err)
		}
		if err := q.WriteOut(); err != nil {
			t.Fatal(err)
		}
		q.Commit(size)
	}
	q.UnlockBehind(time.Hour)
	if lockedKiB(t)-before != 2*size/1024 {
		t.Fatal("unlocked before its time")
	}
	q.UnlockBehind(0) // the first: the writer is in the second
	if lockedKiB(t)-before != size/1024 {
		t.Fatalf("%d KiB locked when the writer is in the second file", lockedKiB(t)-before)
	}
	if err := q.Prepare(); err != nil {
		t.Fatal(err)
	}
	// It can be ended.
	n := 0
	if err := q.Warm(func(string, int64, int64) bool { n++; return false }); err != nil || n == 0 || q.ahead()[0].locked.Load() {
		t.Fatalf("%v, %d steps after it was told to end", err, n)
	}
}

// resident counts the pages of b that are in memory.
func resident(t *testing.T, b []byte) (n int) {
	t.Helper()
	pages := make([]byte, (len(b)+PageSize-1)/PageSize)
	if err := unix.Madvise(b, unix.MADV_NORMAL); err != nil {
		t.Fatal(err)
	}
	_, _, errno := unix.Syscall(unix.SYS_MINCORE, addressOf(b), uintptr(len(b)), addressOf(pages))
	if errno != 0 {
		t.Fatal(errno)
	}
	for _, p := range pages {
		n += int(p & 1)
	}
	return n
}

// TestLockLimit: where the system forbids locking that much, the error says so, with the limit and what to do; a pool works all the
// same.
func TestLockLimit(t *testing.T) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Capabilities belong to the thread; it ends with this goroutine.
		runtime.LockOSThread()
		var old unix.Rlimit
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		if err := errors.Join(unix.Getrlimit(unix.RLIMIT_MEMLOCK, &old), unix.Capget(&header, &caps[0])); err != nil {
			t.Error(err)
			return
		}
		caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK
		if err := errors.Join(unix.Capset(&header, &caps[0]), unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 8192, Max: old.Max})); err != nil {
			t.Error(err)
			return
		}
		defer func() {
			if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &old); err != nil {
				t.Error(err)
			}
		}()
		b, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ, unix.MAP_ANON|unix.MAP_PRIVATE)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = unix.Munmap(b) }()
		if err := Lock(b); !errors.Is(err, ErrLockLimit) || !strings.Contains(err.Error(), "8192 bytes") || !strings.Contains(err.Error(), "LimitMEMLOCK") {
			t.Errorf("got %v", err)
		}
		p, err := NewPool(2, 1<<20, true, nil)
		if err != nil || p.Available() != 2 {
			t.Errorf("pool: %v", err)
			return
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}()
	<-done
}

func addressOf(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
