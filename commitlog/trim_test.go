package commitlog

import (
	"errors"
	"sync/atomic"
	"testing"

	"raftmq/commitlog/faultfile"
	"raftmq/commitlog/mappedfile"
)

// TestTrim: the range is hidden at once and the files stay, what is refused changes nothing, and the minimum goes with
// the position.
func TestTrim(t *testing.T) {
	cfg := testConfig(t.TempDir())
	l := openLog(t, cfg)
	for i := range uint64(100) {
		apply(t, l, i+1, "T", 0, records("T", 0, 1, 1000, int64(i), 0), 1)
	}
	last := lastSegment(l.MaxOffset(), testSegment)
	for _, off := range []int64{-testSegment, 1, testSegment + 1, last + testSegment, l.MaxOffset()} {
		if err := l.Trim(off); !errors.Is(err, ErrTrim) || l.MinOffset() != 0 {
			t.Errorf("trim to %d: %v, minimum %d", off, err, l.MinOffset())
		}
	}
	if err := l.Trim(2 * testSegment); err != nil || l.MinOffset() != 2*testSegment || l.FileMin() != 0 {
		t.Fatalf("trim: %v, minimum %d, files from %d", err, l.MinOffset(), l.FileMin())
	}
	if err := l.Trim(testSegment); err != nil || l.MinOffset() != 2*testSegment {
		t.Errorf("trim below the minimum: %v, minimum %d", err, l.MinOffset())
	}
	if _, err := l.View(2*testSegment-1, 1); !errors.Is(err, mappedfile.ErrOutOfRange) {
		t.Errorf("view below the minimum: %v", err)
	}
	if v, err := l.ViewKept(2*testSegment-1, 1); err != nil {
		t.Errorf("kept view below the minimum: %v", err)
	} else {
		v.Release()
	}
	if err := l.Trim(last); err != nil {
		t.Errorf("trim to the last segment: %v", err)
	}
	p := l.Position()
	if p.MinOffset != last {
		t.Errorf("position has minimum %d, want %d", p.MinOffset, last)
	}
	if err := l.Verify(0); err != nil {
		t.Error(err)
	}

	// A restart before any file went: the snapshot brings the minimum back.
	closeLog(t, l)
	l = openLog(t, cfg)
	if l.MinOffset() != 0 {
		t.Errorf("opened with minimum %d", l.MinOffset())
	}
	if err := l.Restore(p); err != nil || l.MinOffset() != last {
		t.Fatalf("restore: %v, minimum %d", err, l.MinOffset())
	}
	bad := p
	bad.MinOffset = p.LogEnd + 1
	if err := l.Restore(bad); !errors.Is(err, ErrDiverged) {
		t.Errorf("a minimum behind the end: %v", err)
	}
	// After the files went an older snapshot's minimum does not matter.
	if n, err := l.DeleteBefore(last); err != nil || int64(n) != last/testSegment {
		t.Fatalf("%d segments went: %v", n, err)
	}
	p.MinOffset = 0
	if err := l.Restore(p); err != nil || l.MinOffset() != last || l.Position().MinOffset != 0 {
		t.Errorf("restore: %v, minimum %d, replicated %d", err, l.MinOffset(), l.Position().MinOffset)
	}
}

// TestNewestBefore: the age of a segment, in the cases that entries and segments make.
func TestNewestBefore(t *testing.T) {
	// Sixteen records of 1000 bytes fill a segment: fillers come with the seventeenth.
	for name, tc := range map[string]struct {
		write func(t *testing.T, l *Log)
		want  int64
	}{
		"the last record before a pause": {func(t *testing.T, l *Log) {
			for i := range uint64(16) {
				apply(t, l, i+1, "T", 0, records("T", 0, 1, 1000, int64(1000+i), 0), 1)
			}
			apply(t, l, 17, "T", 0, records("T", 0, 1, 1000, 900_000, 0), 1)
		}, 1015},
		"an entry that crosses": {func(t *testing.T, l *Log) {
			for i := range uint64(10) {
				apply(t, l, i+1, "T", 0, records("T", 0, 1, 1000, int64(1000+i), 0), 1)
			}
			if err := l.BeginEntry(11, 1); err != nil {
				t.Fatal(err)
			}
			for range 10 {
				if _, err := l.Append([]byte("T"), 0, records("T", 0, 1, 1000, 2000, 0), 1); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.EndEntry(); err != nil {
				t.Fatal(err)
			}
			l.Publish()
		}, 2000},
		"one entry for all": {func(t *testing.T, l *Log) {
			if err := l.BeginEntry(1, 1); err != nil {
				t.Fatal(err)
			}
			for i := range 20 {
				if _, err := l.Append([]byte("T"), 0, records("T", 0, 1, 1000, int64(1000+i), 0), 1); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.EndEntry(); err != nil {
				t.Fatal(err)
			}
			l.Publish()
		}, 1016},
	} {
		t.Run(name, func(t *testing.T) {
			l := openLog(t, testConfig(t.TempDir()))
			tc.write(t, l)
			if l.MaxOffset() <= testSegment {
				t.Fatalf("the log has %d bytes", l.MaxOffset())
			}
			if got, err := l.NewestBefore(testSegment); err != nil || got != tc.want {
				t.Errorf("%d %v, want %d", got, err, tc.want)
			}
		})
	}
	l := openLog(t, testConfig(t.TempDir()))
	apply(t, l, 1, "T", 0, records("T", 0, 1, 1000, 1, 0), 1)
	if _, err := l.NewestBefore(testSegment); !errors.Is(err, mappedfile.ErrOutOfRange) {
		t.Errorf("behind the end: %v", err)
	}
}

// fullDisk has no blocks to give while full.
type fullDisk struct {
	mappedfile.FS
	full atomic.Bool
}

type fullHandle struct {
	mappedfile.Handle
	disk *fullDisk
}

func (d *fullDisk) Create(path string, size int64) (mappedfile.Handle, error) {
	h, err := d.FS.Create(path, size)
	if err != nil {
		return nil, err
	}
	return &fullHandle{h, d}, nil
}

func (h *fullHandle) Allocate(off, n int64) error {
	if h.disk.full.Load() {
		return mappedfile.ErrNoSpace
	}
	return h.Handle.Allocate(off, n)
}

// TestNoSpaceHook: a write that finds the disk full is tried again after the owner has made room, once; with
// nothing left it fails for good.
func TestNoSpaceHook(t *testing.T) {
	disk := &fullDisk{FS: faultfile.New()}
	cfg := crashConfig(nil)
	cfg.FS, cfg.AllocateStep = disk, testSegment
	asked, grant := 0, true
	cfg.NoSpace = func() bool {
		asked++
		disk.full.Store(!grant)
		return grant
	}
	l := openLog(t, cfg)
	index := uint64(0)
	for asked < 3 {
		disk.full.Store(true)
		for had := asked; asked == had; { // until what was made ahead is used up
			index++
			apply(t, l, index, "T", 0, records("T", 0, 1, 500, 1, 0), 1)
		}
	}
	if err := l.Verify(0); err != nil {
		t.Error(err)
	}
	grant = false
	disk.full.Store(true)
	var err error
	for err == nil {
		index++
		if err = l.BeginEntry(index, 1); err == nil {
			_, err = l.Append([]byte("T"), 0, records("T", 0, 1, 500, 1, 0), 1)
		}
		if err == nil {
			err = l.EndEntry()
		}
		l.Publish()
	}
	if !errors.Is(err, mappedfile.ErrNoSpace) {
		t.Errorf("with nothing left: %v", err)
	}
	if err := l.BeginEntry(index+1, 1); !errors.Is(err, ErrFailed) {
		t.Errorf("after that: %v", err)
	}
}
