package store

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"raftmq/commitlog"
	"raftmq/commitlog/mappedfile"
)

// ext4 is a real file system on a loop device, mounted for one test; it can be made to fail as a disk does.
type ext4 struct{ device, dir string }

// newExt4 needs root, a loop device and mkfs; without them the test is skipped.
func newExt4(t *testing.T) ext4 {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	base := t.TempDir()
	image, dir := filepath.Join(base, "image"), filepath.Join(base, "mnt")
	if err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 64<<20), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop,errors=remount-ro", image, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%v: %v: %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err) // somebody still holds a file
			_ = unix.Unmount(dir, unix.MNT_DETACH)
		}
	})
	mounts, err := os.ReadFile("/proc/mounts")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 1 && f[1] == dir {
			return ext4{filepath.Base(f[0]), dir}
		}
	}
	t.Fatal("not mounted")
	return ext4{}
}

// readOnly remounts it read-only under whoever has it open, as the kernel does when it meets an error.
func (e ext4) readOnly(t *testing.T) {
	t.Helper()
	if err := os.WriteFile("/sys/fs/ext4/"+e.device+"/trigger_fs_error", []byte("1"), 0); err != nil {
		t.Skip(err)
	}
}

// broken makes every read and write of the device fail with EIO from now on.
func (e ext4) broken(t *testing.T) {
	t.Helper()
	const ioctlShutdown, noLogFlush = 0x8004587D, 2 // EXT4_IOC_SHUTDOWN
	d, err := os.Open(e.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := unix.IoctlSetPointerInt(int(d.Fd()), ioctlShutdown, noLogFlush); err != nil {
		t.Skip(err)
	}
}

// appendUntilError applies entries until the store refuses one.
func appendUntilError(s *Store, from, most int) error {
	for i := range most {
		c := command{topic: "T0", bodies: [][]byte{make([]byte, 3000)}, stored: int64(from + i)}
		err := s.BeginEntry(uint64(from+i), 1)
		if err == nil {
			_, err = s.Append([]byte(c.topic), 0, c.records(), 1)
		}
		if err == nil {
			err = s.EndEntry()
		}
		if err != nil {
			return err
		}
		s.Publish()
	}
	return nil
}

// TestF37 lets a real device fail under a running store: the file system becomes read-only, the device gives EIO, a segment is
// cut by somebody. That is an error and an orderly stop, never a signal; nothing wrong is given out; Close ends, and
// leaves no mapping behind.
func TestF37(t *testing.T) {
	type world struct {
		cfg   Config
		s     *Store
		m     *model
		fatal chan error
	}
	start := func(t *testing.T, dir string) *world {
		t.Helper()
		leakCheck(t)
		w := &world{cfg: testConfig(t, dir), fatal: make(chan error, 10)}
		w.cfg.FlushInterval, w.cfg.PointInterval = 20*time.Millisecond, 20*time.Millisecond
		w.cfg.OnFatal = func(err error) { w.fatal <- err }
		w.s = open(t, w.cfg)
		w.m = fill(t, w.s, 51, 100)
		if err := w.s.FlushAll(); err != nil {
			t.Fatal(err)
		}
		return w
	}
	stopped := func(t *testing.T, w *world, want ...error) {
		t.Helper()
		var err error
		select {
		case err = <-w.fatal:
		case <-time.After(20 * time.Second):
			t.Fatal("the node goes on")
		}
		for _, is := range want {
			if errors.Is(err, is) {
				return
			}
		}
		t.Errorf("stopped by %v, want one of %v", err, want)
	}
	// What was in memory can be read on, or the reader is told to come again.
	read := func(t *testing.T, w *world) {
		t.Helper()
		var res GetResult
		defer res.Release()
		for k, want := range w.m.queues {
			topic, id, _ := strings.Cut(k, "/")
			for n := range want {
				w.s.Get(&GetRequest{Topic: []byte(topic), QueueID: int32(id[0] - '0'), Offset: int64(n), MaxMsgs: 1}, &res)
				if res.Status == Found {
					if got := split(t, &res)[0]; got.PhyOffset() != want[n].phy {
						t.Fatalf("%s at %d: a foreign record", k, n)
					}
				}
			}
		}
	}
	t.Run("read-only", func(t *testing.T) {
		e := newExt4(t)
		w := start(t, filepath.Join(e.dir, "store"))
		e.readOnly(t)
		err := appendUntilError(w.s, 101, 1000)
		if err == nil {
			t.Fatal("a read-only file system takes messages")
		}
		t.Log(err)
		stopped(t, w, mappedfile.ErrFault, mappedfile.ErrPoisoned, syscall.EROFS, syscall.EIO)
		read(t, w)
		w.s.Close()
	})
	t.Run("EIO", func(t *testing.T) {
		e := newExt4(t)
		w := start(t, filepath.Join(e.dir, "store"))
		e.broken(t)
		err := appendUntilError(w.s, 101, 1000)
		if err == nil {
			t.Fatal("a broken device takes messages")
		}
		t.Log(err)
		stopped(t, w, mappedfile.ErrFault, mappedfile.ErrPoisoned, syscall.EIO, syscall.EROFS)
		read(t, w)
		w.s.Close()
	})
	t.Run("EIO for readers", func(t *testing.T) {
		e := newExt4(t)
		w := start(t, filepath.Join(e.dir, "store"))
		if err := w.s.Close(); err != nil {
			t.Fatal(err)
		}
		w.cfg.MaxMappedSegments = 1
		w.s = open(t, w.cfg)
		// Nothing of the segments that are not mapped is in memory.
		segments, err := filepath.Glob(filepath.Join(w.cfg.Dir, commitLogDir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range segments {
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close()); err != nil {
				t.Fatal(err)
			}
		}
		e.broken(t)
		read(t, w)
		stopped(t, w, mappedfile.ErrFault, mappedfile.ErrPoisoned, syscall.EIO)
		w.s.Close()
	})
	t.Run("cut under the writer", func(t *testing.T) {
		w := start(t, t.TempDir())
		_, end := w.s.LogRange()
		path := filepath.Join(w.cfg.Dir, commitLogDir, fmt.Sprintf("%020d", end-end%testSegment))
		if err := os.Truncate(path, 4096); err != nil {
			t.Fatal(err)
		}
		// The writer meets it, and the FSM stops the node, or the next flush does.
		if err := appendUntilError(w.s, 101, 3); err == nil {
			stopped(t, w, mappedfile.ErrFault, commitlog.ErrFailed)
		} else if !errors.Is(err, mappedfile.ErrFault) {
			t.Errorf("append: %v", err)
		}
		read(t, w)
		w.s.Close()
	})
	t.Run("cut under readers", func(t *testing.T) {
		w := start(t, t.TempDir())
		if err := os.Truncate(filepath.Join(w.cfg.Dir, commitLogDir, fmt.Sprintf("%020d", 0)), 8192); err != nil {
			t.Fatal(err)
		}
		read(t, w)
		stopped(t, w, mappedfile.ErrFault)
		phy := w.m.queues["T1/1"][0].phy
		for _, q := range w.m.queues {
			for _, r := range q {
				if r.phy > 8192 && r.phy < testSegment-5000 {
					phy = r.phy
				}
			}
		}
		if _, _, err := w.s.RecordAt(phy); !errors.Is(err, mappedfile.ErrFault) {
			t.Errorf("by offset %d: %v", phy, err)
		}
		if _, _, err := w.s.ReadLog(phy, 1000); !errors.Is(err, mappedfile.ErrFault) {
			t.Errorf("raw bytes: %v", err)
		}
		if _, err := w.s.Checksum(0, testSegment); !errors.Is(err, mappedfile.ErrFault) {
			t.Errorf("checksum: %v", err)
		}
		w.s.Close()
		if maps, err := os.ReadFile("/proc/self/maps"); err == nil && strings.Contains(string(maps), w.cfg.Dir+"/") {
			t.Error("mappings are left, so a view was not given back")
		}
		// And it is damage at the next start, which a peer heals.
		var damage *commitlog.DamageError
		if _, err := Open(w.cfg); !errors.As(err, &damage) {
			t.Fatalf("the next start: %v", err)
		}
	})
}
