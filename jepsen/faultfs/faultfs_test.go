package faultfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func newDisk(t *testing.T) *Disk {
	t.Helper()
	base := t.TempDir()
	dir := filepath.Join(base, "mnt")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := Mount(dir, base)
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// powerLoss is a whole one.
func (d *Disk) powerLoss(t *testing.T, loss Loss, seed uint64) {
	t.Helper()
	d.Freeze()
	if err := d.Restore(loss, rand.New(rand.NewPCG(seed, 1))); err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, path string, p []byte, off int64, sync bool) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(p, off); err != nil {
		t.Fatal(err)
	}
	if sync {
		if err := f.Sync(); err != nil {
			t.Fatal(err)
		}
	}
}

func syncDir(t *testing.T, dir string) {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		return "error: " + errors.Unwrap(err).Error()
	}
	return string(b)
}

const gone = "error: no such file or directory"

// It is a file system as any other until something fails.
func TestFiles(t *testing.T) {
	d := newDisk(t)
	rng := rand.New(rand.NewPCG(1, 2))
	want := make([]byte, 0, 1<<20)
	path := filepath.Join(d.Dir, "f")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	grow := func(n int) {
		for len(want) < n {
			want = append(want, 0)
		}
	}
	for range 400 {
		switch off := rng.IntN(200_000); rng.IntN(10) {
		case 0:
			grow(off)
			want = want[:off]
			err = f.Truncate(int64(off))
		case 1:
			err = f.Sync()
		case 2:
			n := 1 + rng.IntN(50_000)
			grow(off + n)
			err = unix.Fallocate(int(f.Fd()), 0, int64(off), int64(n))
		case 3:
			n := 1 + rng.IntN(50_000)
			if end := min(off+n, len(want)); off < end {
				clear(want[off:end])
			}
			err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(n))
		default:
			p := bytes.Repeat([]byte{byte(1 + rng.IntN(255))}, 1+rng.IntN(20_000))
			grow(off + len(p))
			copy(want[off:], p)
			_, err = f.WriteAt(p, int64(off))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, len(want)+1)
	if n, err := f.ReadAt(got, 0); n != len(want) || err != io.EOF || !bytes.Equal(got[:n], want) {
		t.Fatalf("read %d bytes of %d, %v; equal: %v", n, len(want), err, bytes.Equal(got[:n], want))
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	syncDir(t, d.Dir)
	d.powerLoss(t, All, 1)
	if content(t, path) != string(want) {
		t.Error("what was synced is not there after a loss of power")
	}
}

// Table of what is there after a loss of everything that was not synced.
func TestPowerLoss(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(t *testing.T, at func(string) string)
		want map[string]string
	}{
		{"name not synced", func(t *testing.T, at func(string) string) { put(t, at("new"), []byte("x"), 0, true) }, map[string]string{"new": gone, "old": "old"}},
		{"bytes not synced", func(t *testing.T, at func(string) string) {
			put(t, at("new"), []byte("x"), 0, false)
			syncDir(t, at(""))
		}, map[string]string{"new": ""}},
		{"both synced", func(t *testing.T, at func(string) string) {
			put(t, at("new"), []byte("x"), 0, true)
			syncDir(t, at(""))
		}, map[string]string{"new": "x"}},
		{"overwritten", func(t *testing.T, at func(string) string) { put(t, at("old"), []byte("OL"), 0, false) }, map[string]string{"old": "old"}},
		{"overwritten and synced", func(t *testing.T, at func(string) string) { put(t, at("old"), []byte("OL"), 0, true) }, map[string]string{"old": "OLd"}},
		{"truncated", func(t *testing.T, at func(string) string) { must(t, os.Truncate(at("old"), 1)) }, map[string]string{"old": "old"}},
		{"removed", func(t *testing.T, at func(string) string) { must(t, os.Remove(at("old"))) }, map[string]string{"old": "old"}},
		{"removed and synced", func(t *testing.T, at func(string) string) {
			must(t, os.Remove(at("old")))
			syncDir(t, at(""))
		}, map[string]string{"old": gone}},
		{"replaced", func(t *testing.T, at func(string) string) {
			put(t, at("tmp"), []byte("new"), 0, true)
			must(t, os.Rename(at("tmp"), at("old")))
		}, map[string]string{"old": "old", "tmp": gone}},
		{"replaced and synced", func(t *testing.T, at func(string) string) {
			put(t, at("tmp"), []byte("new"), 0, true)
			must(t, os.Rename(at("tmp"), at("old")))
			syncDir(t, at(""))
		}, map[string]string{"old": "new", "tmp": gone}},
		{"replaced twice, once synced", func(t *testing.T, at func(string) string) {
			put(t, at("tmp"), []byte("one"), 0, true)
			must(t, os.Rename(at("tmp"), at("old")))
			syncDir(t, at(""))
			put(t, at("tmp"), []byte("two"), 0, true)
			must(t, os.Rename(at("tmp"), at("old")))
		}, map[string]string{"old": "one"}},
		{"folder not synced", func(t *testing.T, at func(string) string) {
			must(t, os.Mkdir(at("dir"), 0o755))
			put(t, at("dir/f"), []byte("x"), 0, true)
			syncDir(t, at("dir"))
		}, map[string]string{"dir/f": gone}},
		{"folder synced", func(t *testing.T, at func(string) string) {
			must(t, os.Mkdir(at("dir"), 0o755))
			put(t, at("dir/f"), []byte("x"), 0, true)
			syncDir(t, at("dir"))
			syncDir(t, at(""))
		}, map[string]string{"dir/f": "x"}},
		{"folder removed", func(t *testing.T, at func(string) string) {
			must(t, os.Mkdir(at("dir"), 0o755))
			put(t, at("dir/f"), []byte("x"), 0, true)
			syncDir(t, at("dir"))
			syncDir(t, at(""))
			must(t, os.RemoveAll(at("dir")))
		}, map[string]string{"dir/f": "x"}},
		{"folder removed and synced", func(t *testing.T, at func(string) string) {
			must(t, os.Mkdir(at("dir"), 0o755))
			put(t, at("dir/f"), []byte("x"), 0, true)
			must(t, os.RemoveAll(at("dir")))
			syncDir(t, at(""))
		}, map[string]string{"dir/f": gone, "dir": gone}},
		{"synced, then more", func(t *testing.T, at func(string) string) {
			put(t, at("old"), bytes.Repeat([]byte("a"), 10_000), 0, true)
			put(t, at("old"), bytes.Repeat([]byte("b"), 10_000), 5_000, false)
		}, map[string]string{"old": string(bytes.Repeat([]byte("a"), 10_000))}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := newDisk(t)
			at := func(name string) string { return filepath.Join(d.Dir, name) }
			put(t, at("old"), []byte("old"), 0, true)
			syncDir(t, d.Dir)
			tt.do(t, at)
			d.powerLoss(t, All, 1)
			for name, want := range tt.want {
				if got := content(t, at(name)); got != want {
					t.Errorf("%s holds %.40q, want %.40q", name, got, want)
				}
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// With some of it lost, each page is old, new or new up to a sector, all of these happen, and one seed gives one image.
func TestPowerLossOfSome(t *testing.T) {
	const pages = 200
	image := func(seed uint64) string {
		d := newDisk(t)
		path := filepath.Join(d.Dir, "f")
		put(t, path, bytes.Repeat([]byte("o"), pages*pageSize), 0, true)
		syncDir(t, d.Dir)
		put(t, path, bytes.Repeat([]byte("n"), pages*pageSize), 0, false)
		d.powerLoss(t, Some, seed)
		return content(t, path)
	}
	got := image(7)
	if got != image(7) {
		t.Error("one seed, two images")
	}
	var kinds [3]int
	for n := range pages {
		page := got[n*pageSize:][:pageSize]
		fresh := bytes.Count([]byte(page), []byte("n"))
		switch {
		case fresh == 0:
			kinds[0]++
		case fresh == pageSize:
			kinds[1]++
		case fresh%sectorSize == 0 && page[:fresh] == string(bytes.Repeat([]byte("n"), fresh)):
			kinds[2]++
		default:
			t.Fatalf("page %d has %d new bytes", n, fresh)
		}
	}
	if kinds[0] < pages/5 || kinds[1] < pages/5 || kinds[2] < 3 {
		t.Errorf("old, new and torn pages: %v", kinds)
	}
}

const mappedEnv = "RAFTMQ_TEST_FAULTFS_MAPPED"

// TestHelperMapped is not a test: it changes a file through a mapping, syncs the first page, and waits for its end.
func TestHelperMapped(t *testing.T) {
	path := os.Getenv(mappedEnv)
	if path == "" {
		t.Skip("only a helper process")
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	m, err := unix.Mmap(int(f.Fd()), 0, 4*pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	must(t, err)
	for i := range m {
		m[i] = 'n'
	}
	must(t, unix.Msync(m[:pageSize], unix.MS_SYNC))
	m[0] = 'N'
	fmt.Println("mapped")
	select {}
}

// Pages that a process changed through a mapping and did not sync are lost with the power.
func TestPowerLossOfMappedPages(t *testing.T) {
	d := newDisk(t)
	path := filepath.Join(d.Dir, "f")
	put(t, path, bytes.Repeat([]byte("o"), 4*pageSize), 0, true)
	syncDir(t, d.Dir)
	helper := exec.Command(os.Args[0], "-test.run=^TestHelperMapped$")
	helper.Env = append(os.Environ(), mappedEnv+"="+path)
	out, err := helper.StdoutPipe()
	must(t, err)
	must(t, helper.Start())
	line := make([]byte, 6)
	if _, err := io.ReadFull(out, line); err != nil || string(line) != "mapped" {
		t.Fatalf("%q, %v", line, err)
	}
	d.Freeze()
	must(t, helper.Process.Kill())
	_ = helper.Wait()
	must(t, d.Restore(All, nil))
	got := content(t, path)
	// msync of one page may write more of them back, and then all of the file is synced as with fsync; the byte after it is lost.
	if len(got) != 4*pageSize || got[0] != 'n' || got[pageSize-1] != 'n' {
		t.Errorf("%d bytes, first page %q…%q", len(got), got[:1], got[pageSize-1:pageSize])
	}
}

// Hooks fail, and hold up, what they are asked about; a sync that fails has lost the bytes.
func TestHooks(t *testing.T) {
	d := newDisk(t)
	path := filepath.Join(d.Dir, "f")
	put(t, path, []byte("old"), 0, true)
	syncDir(t, d.Dir)
	fail := func(op Op) {
		d.SetHook(func(o Op, p string) syscall.Errno {
			return map[bool]syscall.Errno{true: syscall.EIO}[o == op && p == "f"]
		})
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer f.Close()
	fail(Write)
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, syscall.EIO) {
		t.Errorf("write: %v", err)
	}
	fail(Allocate)
	if err := f.Truncate(1); !errors.Is(err, syscall.EIO) {
		t.Errorf("truncate: %v", err)
	}
	fail(Name)
	if err := os.Remove(path); !errors.Is(err, syscall.EIO) {
		t.Errorf("remove: %v", err)
	}
	d.SetHook(nil)
	if _, err := f.WriteAt([]byte("new"), 0); err != nil {
		t.Error(err)
	}
	fail(Sync)
	if err := f.Sync(); !errors.Is(err, syscall.EIO) {
		t.Errorf("sync: %v", err)
	}
	d.SetHook(nil)
	if err := f.Sync(); err != nil {
		t.Errorf("the next sync: %v", err)
	}
	release := make(chan struct{})
	d.SetHook(func(o Op, _ string) syscall.Errno {
		if o == Sync {
			<-release
		}
		return 0
	})
	done := make(chan error, 1)
	go func() { done <- f.Sync() }()
	select {
	case err := <-done:
		t.Errorf("a sync that hangs has ended: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	close(release)
	must(t, <-done)
	must(t, f.Close())
	d.powerLoss(t, All, 1)
	if got := content(t, path); got != "old" {
		t.Errorf("after a failed and a good sync the disk holds %q", got)
	}
}

// No child process inherits the connection: it would outlive this program, and who uses the mount would hang.
func TestChildrenInheritNothing(t *testing.T) {
	newDisk(t)
	out, err := exec.Command("ls", "-l", "/proc/self/fd").CombinedOutput()
	must(t, err)
	if bytes.Contains(out, []byte("/dev/fuse")) {
		t.Errorf("a child has\n%s", out)
	}
}

// A process of somebody else's that has a copy of all mounts does not keep a disk from being closed.
func TestCopiedMountIsCut(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "mnt")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d, err := Mount(dir, base)
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	other := exec.Command("sleep", "300")
	other.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := other.Start(); err != nil {
		_ = d.Close()
		t.Skipf("no mount namespaces: %v", err)
	}
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	closed := make(chan error, 1)
	go func() { closed <- d.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("not closed within a minute")
	}
}
