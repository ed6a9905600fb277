package store

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"raftmq/commitlog/mappedfile"
)

var errDisk = errors.New("disk broke")

// failingFS fails the operations that fail names, once it is armed.
type failingFS struct {
	lazyFS
	armed atomic.Bool
	fail  func(op, path string) error
}

func (f *failingFS) check(op, path string) error {
	if !f.armed.Load() {
		return nil
	}
	return f.fail(op, path)
}

func (f *failingFS) Create(path string, size int64) (mappedfile.Handle, error) {
	if err := f.check("create", path); err != nil {
		return nil, err
	}
	h, err := f.lazyFS.Create(path, size)
	return &failingHandle{h, f, path}, err
}

func (f *failingFS) Open(path string, readOnly bool) (mappedfile.Handle, error) {
	h, err := f.lazyFS.Open(path, readOnly)
	return &failingHandle{h, f, path}, err
}

type failingHandle struct {
	mappedfile.Handle
	f    *failingFS
	path string
}

func (h *failingHandle) SyncRange(off, n int64) error {
	if err := h.f.check("sync", h.path); err != nil {
		return err
	}
	return h.Handle.SyncRange(off, n)
}

// TestFatalOnce: whatever breaks first is told once, everybody who waits is answered, nothing
// is taken any more, and after a restart everything that was flushed is there.
func TestFatalOnce(t *testing.T) {
	in := func(op, dir string, err error) func(string, string) error {
		return func(o, path string) error {
			if o == op && strings.Contains(path, string(filepath.Separator)+dir+string(filepath.Separator)) {
				return err
			}
			return nil
		}
	}
	for _, c := range []struct {
		name string
		mode FlushMode
		fail func(op, path string) error
	}{
		{"log sync, group commit", SyncFlush, in("sync", commitLogDir, errDisk)},
		{"log sync, timed", AsyncFlush, in("sync", commitLogDir, errDisk)},
		{"journal sync", SyncFlush, in("sync", journalDir, errDisk)},
		{"queue sync", AsyncFlush, in("sync", queueDir, errDisk)},
		{"new queue", AsyncFlush, in("create", queueDir, errDisk)},
		// Space that comes back does not bring back what a failed sync has lost.
		{"queue sync, no space", AsyncFlush, in("sync", queueDir, fmt.Errorf("%w: %w", errDisk, unix.ENOSPC))},
		{"log sync, no space", AsyncFlush, in("sync", commitLogDir, fmt.Errorf("%w: %w", errDisk, unix.ENOSPC))},
	} {
		t.Run(c.name, func(t *testing.T) {
			leakCheck(t)
			fs := &failingFS{fail: c.fail}
			fatal := make(chan error, 10)
			cfg := testConfig(t, t.TempDir())
			cfg.FS, cfg.FlushMode, cfg.FlushInterval, cfg.PointInterval = fs, c.mode, time.Millisecond, 2*time.Millisecond
			cfg.OnFatal = func(err error) { fatal <- err }
			s := open(t, cfg)
			m := fill(t, s, 19, 30)
			if err := s.FlushAll(); err != nil {
				t.Fatal(err)
			}
			_, before := s.LogRange()
			fs.armed.Store(true)
			apply(t, s, 31, command{topic: "T1", queueID: 1, bodies: [][]byte{body(20_000)}}, command{topic: "New", bodies: [][]byte{body(10)}})
			s.Publish()
			_, end := s.LogRange()
			flushed, dispatched := make(chan error, 1), make(chan struct{})
			s.WaitFlushed(end, func(err error) { flushed <- err })
			s.WaitDispatched(end, func() { close(dispatched) })
			var first error
			select {
			case first = <-fatal:
			case <-time.After(10 * time.Second):
				t.Fatal("not told")
			}
			if !errors.Is(first, errDisk) {
				t.Fatalf("told %v", first)
			}
			for name, wait := range map[string]func() bool{
				"flush":    func() bool { <-flushed; return true },
				"dispatch": func() bool { <-dispatched; return true },
			} {
				answered := make(chan struct{})
				go func() { wait(); close(answered) }()
				select {
				case <-answered:
				case <-time.After(10 * time.Second):
					t.Fatalf("%s: not answered", name)
				}
			}
			if err := s.BeginEntry(32, 1); !errors.Is(err, ErrStopped) {
				t.Errorf("took an entry: %v", err)
			}
			if err := s.FlushAll(); !errors.Is(err, ErrStopped) {
				t.Errorf("flushed: %v", err)
			}
			if err := s.Restore(Position{}); !errors.Is(err, ErrStopped) {
				t.Errorf("restored: %v", err)
			}
			if _, err := s.Install(0, 10); !errors.Is(err, ErrStopped) {
				t.Errorf("installs: %v", err)
			}
			s.Close()
			if len(fatal) > 0 {
				t.Errorf("told again: %v", <-fatal)
			}
			fs.armed.Store(false)
			s = open(t, cfg)
			if _, end := s.LogRange(); end < before {
				t.Fatalf("log ends at %d, was flushed to %d", end, before)
			}
			if s.Recovered().RaftIndex == 30 { // else the last entry is there too
				m.check(t, s)
			}
		})
	}
}

// TestFailedAppend: a full disk when the log needs a segment is the caller's to stop for;
// nothing of the entry shows.
func TestFailedAppend(t *testing.T) {
	leakCheck(t)
	fs := &failingFS{fail: func(op, path string) error {
		if op == "create" && strings.Contains(path, commitLogDir) {
			return mappedfile.ErrNoSpace
		}
		return nil
	}}
	cfg := quiet(t, t.TempDir())
	cfg.FS = fs
	s := open(t, cfg)
	m := fill(t, s, 20, 20)
	fs.armed.Store(true)
	index := uint64(20)
	var err error
	for err == nil {
		index++
		if err = s.BeginEntry(index, 1); err != nil {
			break
		}
		c := command{topic: "T1", queueID: 1, bodies: [][]byte{body(30_000)}}
		if _, err = s.Append([]byte("T1"), 1, c.records(), 1); err == nil {
			err = s.EndEntry()
		}
	}
	if !errors.Is(err, mappedfile.ErrNoSpace) {
		t.Fatal(err)
	}
	m.check(t, s)
	s.Close()
	fs.armed.Store(false)
	s = open(t, cfg)
	if r := s.Recovered(); r.RaftIndex < 20 || r.RaftIndex >= index {
		t.Fatalf("recovered %+v, failed at %d", r, index)
	}
}
