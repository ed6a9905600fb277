package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"slices"
	"testing"

	"raftmq/commitlog/faultfile"
	"raftmq/commitlog/mappedfile"
	"raftmq/commitlog/record"
)

// step is one thing that a script does.
type step struct {
	index  uint64 // of an entry; 0 for none
	topic  string
	queue  int32
	b      []byte
	n      int
	flush  bool
	point  bool // recovery point, and a snapshot after it
	delete bool // of what the snapshot before last does not need
}

// script is a history of a log, the same for a seed.
func script(seed uint64, steps int, deletes bool) []step {
	rng := rand.New(rand.NewPCG(seed, 1))
	var list []step
	index := uint64(0)
	for range steps {
		switch p := rng.IntN(100); {
		case p < 15:
			list = append(list, step{flush: true})
		case p < 20:
			list = append(list, step{point: true})
		case p < 23 && deletes:
			list = append(list, step{delete: true})
		default:
			index += uint64(1 + rng.IntN(3))
			s := step{index: index, topic: fmt.Sprint("T", rng.IntN(3)), queue: int32(rng.IntN(2)), n: rng.IntN(5)}
			size := 120 + rng.IntN(500)
			if rng.IntN(10) == 0 {
				size = 4000
			}
			flags := []int32{0, 0, 0, record.SysFlagCommit, record.SysFlagPrepared}
			s.b = records(s.topic, s.queue, s.n, size, int64(1000+rng.IntN(100)), flags[rng.IntN(len(flags))])
			list = append(list, s)
		}
	}
	return list
}

// history is what a run was told to be true.
type history struct {
	durable   int64      // end that Flush returned
	snapshots []Position // taken after a recovery point; the zero position first
	started   uint64     // last entry begun
	deleted   int64
}

// run plays the steps above the log's position; it ends at the first error.
func (h *history) run(l *Log, steps []step) error {
	for _, s := range steps {
		switch {
		case s.flush:
			end, err := l.Flush(0)
			if err != nil {
				return err
			}
			h.durable = max(h.durable, end)
		case s.point:
			if _, err := l.SetRecoveryPoint(); err != nil {
				return err
			}
			h.durable = max(h.durable, l.FlushedTo())
			if p := l.Position(); p.RaftIndex > h.snapshots[len(h.snapshots)-1].RaftIndex && p.LogEnd <= h.durable {
				h.snapshots = append(h.snapshots, p)
			}
		case s.delete:
			if len(h.snapshots) < 2 {
				continue
			}
			// As the FSM would: never above the snapshot a restart begins with.
			if _, err := l.DeleteBefore(h.snapshots[len(h.snapshots)-2].LogEnd); err != nil {
				return err
			}
			h.deleted = l.MinOffset()
		default:
			if s.index <= l.Position().RaftIndex {
				continue
			}
			h.started = max(h.started, s.index)
			if err := play(l, s); err != nil {
				return err
			}
			if s.index%3 == 0 { // the commit thread of a pool
				if _, err := l.CommitBuffers(int(s.index % 2)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func play(l *Log, s step) error {
	if err := l.BeginEntry(s.index, 1+s.index/50); err != nil {
		return err
	}
	if s.n > 0 {
		if _, err := l.Append([]byte(s.topic), s.queue, s.b, s.n); err != nil {
			return err
		}
	}
	if err := l.EndEntry(); err != nil {
		return err
	}
	l.Publish()
	return nil
}

// reference is what a log of the script holds in the end, and where it ends after each entry.
type reference struct {
	bytes    []byte
	ends     map[int64]uint64 // every end of an entry → index
	position string
}

func crashConfig(f *faultfile.FS) Config {
	return Config{
		Dir: "d/commitlog", JournalDir: "d/journal", SegmentSize: testSegment, AllocateStep: mappedfile.PageSize,
		JournalFileSize: 2048, MaxMapped: 2, FS: f,
	}
}

// pooled is crashConfig with write buffers, too few of them.
func pooled(t testing.TB) func(f *faultfile.FS) Config {
	return func(f *faultfile.FS) Config {
		cfg := crashConfig(f)
		pool, err := mappedfile.NewPool(2, testSegment, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := pool.Close(); err != nil {
				t.Error(err)
			}
		})
		cfg.Pool = pool
		return cfg
	}
}

func makeReference(t testing.TB, steps []step) reference {
	f := faultfile.New()
	l, err := Open(crashConfig(f))
	if err != nil {
		t.Fatal(err)
	}
	r := reference{ends: map[int64]uint64{0: 0}}
	for _, s := range steps {
		if s.index == 0 {
			continue
		}
		if err := play(l, s); err != nil {
			t.Fatal(err)
		}
		if end := l.MaxOffset(); r.ends[end] == 0 && end > 0 {
			r.ends[end] = s.index
		}
	}
	r.bytes, r.position = content(t, l), fmt.Sprint(l.Position())
	closeLog(t, l)
	return r
}

// checkImage opens what a crash left, checks it, replays the rest and checks the outcome.
func checkImage(f *faultfile.FS, config func(*faultfile.FS) Config, h *history, ref *reference, steps []step, rng *rand.Rand) error {
	// A second crash while recovering from the first must not matter.
	if rng.IntN(2) == 0 {
		f.CutAt(rng.IntN(40))
		if l, err := Open(config(f)); err == nil {
			_ = l.Close() // fails or not, as the power has it
		} else if errors.Is(err, ErrCorrupt) || errors.Is(err, mappedfile.ErrLayout) {
			return fmt.Errorf("recovery that is cut off: %w", err)
		}
		f = f.Crash(faultfile.LoseSome, rng)
	}
	l, err := Open(config(f))
	if err != nil {
		return fmt.Errorf("recovery: %w", err)
	}
	index, _, end := l.Recovered()
	if rng.IntN(2) == 0 {
		// A flush makes durable what was recovered, also when only a killed process had written it.
		if l.FlushedTo() > end || l.FlushedTo() < l.RecoveryPoint().LogEnd {
			return fmt.Errorf("flushed up to %d, point %d, end %d", l.FlushedTo(), l.RecoveryPoint().LogEnd, end)
		}
		if got, err := l.Flush(0); err != nil || got != end {
			return fmt.Errorf("flush up to %d, %w; recovered up to %d", got, err, end)
		}
		f.CutAt(f.Ops())
		_ = l.Close() // cannot flush
		f = f.Crash(faultfile.LoseAll, rng)
		if l, err = Open(config(f)); err != nil {
			return fmt.Errorf("recovery of the recovered: %w", err)
		}
		if _, _, again := l.Recovered(); again != end {
			return fmt.Errorf("recovered up to %d, then up to %d", end, again)
		}
	}
	defer l.Close()
	switch wantIndex, whole := ref.ends[end]; {
	case !whole:
		return fmt.Errorf("log ends at %d, inside an entry", end)
	case index < wantIndex:
		return fmt.Errorf("log ends at %d, index %d; entry %d ends there", end, index, wantIndex)
	case end < h.durable:
		return fmt.Errorf("log ends at %d, %d was durable", end, h.durable)
	case index > h.started:
		return fmt.Errorf("entry %d recovered, %d was the last begun", index, h.started)
	}
	check := func(to int64) error {
		if _, err := l.CommitBuffers(0); err != nil {
			return err
		}
		min := l.MinOffset()
		if min > 0 && min > h.snapshots[len(h.snapshots)-1].LogEnd || l.MaxOffset() != to {
			return fmt.Errorf("log is %d to %d, want end %d", min, l.MaxOffset(), to)
		}
		var got []byte
		for off := min; off < to; {
			v, err := l.View(off, 1<<30)
			if err != nil {
				return err
			}
			got = append(got, v.Bytes...)
			off += int64(len(v.Bytes))
			v.Release()
		}
		if !bytes.Equal(got, ref.bytes[min:to]) {
			return fmt.Errorf("bytes %d to %d differ", min, to)
		}
		return l.Verify(0)
	}
	if err := check(end); err != nil {
		return fmt.Errorf("recovered: %w", err)
	}
	// Any snapshot whose entries are not deleted may be the one that Raft begins with.
	from := h.snapshots[len(h.snapshots)-1]
	if rng.IntN(2) == 0 {
		if usable := slices.DeleteFunc(slices.Clone(h.snapshots), func(p Position) bool { return p.LogEnd < l.MinOffset() }); len(usable) > 0 {
			from = usable[rng.IntN(len(usable))]
		}
	}
	if err := l.Restore(from); err != nil {
		return fmt.Errorf("restore of %d at %d: %w", from.RaftIndex, from.LogEnd, err)
	}
	again := history{snapshots: []Position{{}}}
	if err := again.run(l, slices.DeleteFunc(slices.Clone(steps), func(s step) bool { return s.delete })); err != nil {
		return fmt.Errorf("replay from %d: %w", from.RaftIndex, err)
	}
	if err := check(int64(len(ref.bytes))); err != nil {
		return fmt.Errorf("replayed: %w", err)
	}
	if got := fmt.Sprint(l.Position()); got != ref.position {
		return fmt.Errorf("position %s, want %s", got, ref.position)
	}
	return nil
}

// TestF35CrashAtEveryOperation fails, or cuts the power at, each file operation of a history, then
// starts from every kind of disk that may be found. Invariants: the log ends at a whole entry, keeps
// what was called durable, holds the same bytes, and replay brings the rest back.
func TestF35CrashAtEveryOperation(t *testing.T) {
	seeds, stride := uint64(4), 1
	if raceEnabled {
		stride = 7 // the detector makes it ten times slower
	}
	for seed := range seeds {
		steps := script(seed, 90, seed%2 == 1)
		ref := makeReference(t, steps)
		config := crashConfig
		if seed >= 2 {
			config = pooled(t)
		}
		for i, done := 0, false; !done; i += stride {
			done = true
			for _, cut := range []bool{true, false} {
				f := faultfile.New()
				if cut {
					f.CutAt(i)
				} else {
					f.FailAt(i, nil)
				}
				h := history{snapshots: []Position{{}}}
				l, err := Open(config(f))
				if err == nil {
					err = h.run(l, steps)
					if cerr := l.Close(); err == nil {
						err = cerr
					}
				}
				if err != nil {
					done = false
					if !errors.Is(err, faultfile.ErrPowerCut) && !errors.Is(err, faultfile.ErrInjected) {
						t.Fatalf("seed %d operation %d: %v", seed, i, err)
					}
				}
				if i < f.Ops() {
					done = false
				}
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				for _, loss := range []faultfile.Loss{faultfile.LoseNothing, faultfile.LoseAll, faultfile.LoseSome} {
					if err := checkImage(f.Crash(loss, rng), config, &h, &ref, steps, rng); err != nil {
						t.Fatalf("seed %d, operation %d of %d (%s), cut %v, loss %d: %v", seed, i, f.Ops(), f.Trace()[min(i, f.Ops()-1)], cut, loss, err)
					}
				}
			}
		}
	}
}

// built is a log on a faultfile disk with a recovery point in its middle.
func built(t *testing.T) (f *faultfile.FS, point Point, h *history, steps []step) {
	t.Helper()
	f = faultfile.New()
	l, err := Open(crashConfig(f))
	if err != nil {
		t.Fatal(err)
	}
	steps = script(7, 200, false)
	h = &history{snapshots: []Position{{}}}
	steps = slices.DeleteFunc(steps, func(s step) bool { return s.point || s.flush })
	if err := h.run(l, steps[:100]); err != nil {
		t.Fatal(err)
	}
	if point, err = l.SetRecoveryPoint(); err != nil {
		t.Fatal(err)
	}
	if err := h.run(l, steps[100:]); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Flush(0); err != nil {
		t.Fatal(err)
	}
	// Killed, not closed: the recovery point stays where it is.
	image := f.Crash(faultfile.LoseAll, nil)
	closeLog(t, l)
	return image, point, h, steps
}

func journalPath(pos int64) (string, int) {
	return fmt.Sprintf("d/journal/records/%020d", pos-pos%2048), int(pos % 2048)
}

func logPath(off int64) (string, int) {
	return fmt.Sprintf("d/commitlog/%020d", off-off%testSegment), int(off % testSegment)
}

func flip(at int) func([]byte) []byte {
	return func(b []byte) []byte { b[at] ^= 4; return b }
}

// TestDamage tells torn tail, corruption and loss apart.
func TestDamage(t *testing.T) {
	_, point, _, _ := built(t)
	if point.LogEnd < 2*testSegment || point.JournalEnd < 2*2048 {
		t.Fatalf("the script is too short: %+v", point)
	}
	tests := []struct {
		name    string
		corrupt func(f *faultfile.FS) error
		want    error  // nil: cut
		names   string // file in the error
		end     int64  // of the log when cut; -1: anything from the point on
	}{
		{"nothing", func(f *faultfile.FS) error { return nil }, nil, "", -1},
		{"bytes right above the point", func(f *faultfile.FS) error {
			p, at := logPath(point.LogEnd)
			return f.Corrupt(p, flip(at+50))
		}, nil, "", point.LogEnd},
		{"journal record right above the point", func(f *faultfile.FS) error {
			p, at := journalPath(point.JournalEnd)
			return f.Corrupt(p, flip(at+30))
		}, nil, "", point.LogEnd},
		{"journal record zeroed above the point", func(f *faultfile.FS) error {
			p, at := journalPath(point.JournalEnd)
			return f.Corrupt(p, func(b []byte) []byte { clear(b[at : at+64]); return b })
		}, nil, "", point.LogEnd},
		{"journal record repeated above the point", func(f *faultfile.FS) error {
			p, at := journalPath(point.JournalEnd)
			q, last := journalPath(point.JournalEnd - 64)
			if p != q {
				return errors.New("the point is at a file's start, choose another script")
			}
			return f.Corrupt(p, func(b []byte) []byte { copy(b[at:at+64], b[last:last+64]); return b })
		}, nil, "", point.LogEnd},
		{"bytes right below the point", func(f *faultfile.FS) error {
			p, at := logPath(point.LogEnd - 1)
			return f.Corrupt(p, flip(at))
		}, ErrCorrupt, "d/commitlog/", 0},
		{"bytes far below the point", func(f *faultfile.FS) error {
			p, at := logPath(100)
			return f.Corrupt(p, flip(at))
		}, ErrCorrupt, "d/commitlog/00000000000000000000 offset 0", 0},
		{"journal record below the point", func(f *faultfile.FS) error {
			p, at := journalPath(point.JournalEnd - 64)
			return f.Corrupt(p, flip(at+8))
		}, ErrCorrupt, "d/journal/records/", 0},
		{"journal record zeroed below the point", func(f *faultfile.FS) error {
			p, at := journalPath(point.JournalEnd - 64)
			return f.Corrupt(p, func(b []byte) []byte { clear(b[at : at+64]); return b })
		}, ErrCorrupt, "d/journal/records/", 0},
		{"recovery point damaged", func(f *faultfile.FS) error {
			return f.Corrupt("d/journal/recovery-point", flip(20))
		}, ErrCorrupt, "recovery-point", 0},
		{"recovery point empty", func(f *faultfile.FS) error {
			return f.Corrupt("d/journal/recovery-point", func([]byte) []byte { return nil })
		}, ErrCorrupt, "recovery-point", 0},
		{"recovery point lost", func(f *faultfile.FS) error { return f.Remove("d/journal/recovery-point") }, ErrCorrupt, "recovery-point", 0},
		// A newer program's files are refused, not cut as a torn tail would be.
		{"recovery point of a newer version", func(f *faultfile.FS) error {
			return f.Corrupt("d/journal/recovery-point", func(b []byte) []byte { b[5]++; return resum(b) })
		}, ErrVersion, "recovery-point", 0},
		{"journal record of a newer version above the point", func(f *faultfile.FS) error {
			p, at := journalPath(point.JournalEnd)
			return f.Corrupt(p, func(b []byte) []byte { b[at+4]++; resum(b[at : at+64]); return b })
		}, ErrVersion, "d/journal/records/", 0},
		{"journal lost", func(f *faultfile.FS) error {
			for _, p := range f.Files("d/journal/records") {
				if err := f.Remove(p); err != nil {
					return err
				}
			}
			return nil
		}, ErrCorrupt, "d/journal/records/", 0},
		{"segments lost", func(f *faultfile.FS) error {
			for _, p := range f.Files("d/commitlog") {
				if err := f.Remove(p); err != nil {
					return err
				}
			}
			return nil
		}, ErrCorrupt, "d/commitlog/", 0},
		{"first segment lost", func(f *faultfile.FS) error { p, _ := logPath(0); return f.Remove(p) }, nil, "", -1},
		{"middle segment lost", func(f *faultfile.FS) error { p, _ := logPath(testSegment); return f.Remove(p) }, mappedfile.ErrLayout, "d/commitlog/", 0},
		{"segment short", func(f *faultfile.FS) error {
			p, _ := logPath(0)
			return f.Corrupt(p, func(b []byte) []byte { return b[:100] })
		}, mappedfile.ErrLayout, "d/commitlog/00000000000000000000", 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, point, h, steps := built(t)
			if err := tt.corrupt(f); err != nil {
				t.Fatal(err)
			}
			l, err := Open(crashConfig(f))
			if tt.want != nil {
				if !errors.Is(err, tt.want) || !bytes.Contains([]byte(err.Error()), []byte(tt.names)) {
					t.Fatalf("got %v, want %v that names %s", err, tt.want, tt.names)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			defer closeLog(t, l)
			_, _, end := l.Recovered()
			if tt.end >= 0 && end != tt.end || end < point.LogEnd {
				t.Fatalf("log ends at %d, want %d; point %d", end, tt.end, point.LogEnd)
			}
			if l.MinOffset() > 0 {
				return // no replay from nothing
			}
			if err := h.run(l, steps); err != nil {
				t.Fatalf("replay: %v", err)
			}
			ref := makeReference(t, steps)
			if !bytes.Equal(content(t, l), ref.bytes) {
				t.Fatal("replay gives other bytes")
			}
		})
	}
}

// TestVerifyFindsRot: a scrub names the damage that Open did not look for.
func TestVerifyFindsRot(t *testing.T) {
	f, _, _, _ := built(t)
	p, _ := logPath(100)
	if err := f.Corrupt(p, flip(100)); err != nil {
		t.Fatal(err)
	}
	cfg := crashConfig(f)
	cfg.VerifyBytes = -1
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer closeLog(t, l)
	if err := l.Verify(0); !errors.Is(err, ErrCorrupt) || !bytes.Contains([]byte(err.Error()), []byte(p)) {
		t.Fatalf("got %v", err)
	}
	if err := l.Verify(testSegment); err != nil {
		t.Fatalf("verify above the damage: %v", err)
	}
}

// TestFirstOpenNeedsNothing: a crash in the very first Open is no lost journal.
func TestFirstOpenNeedsNothing(t *testing.T) {
	for i, done := 0, false; !done; i++ {
		f := faultfile.New()
		f.CutAt(i)
		l, err := Open(crashConfig(f))
		if err == nil {
			done = true
			_ = l.Close()
		} else if errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("operation %d: %v", i, err)
		}
		l, err = Open(crashConfig(f.Crash(faultfile.LoseSome, rand.New(rand.NewPCG(uint64(i), 0)))))
		if err != nil {
			t.Fatalf("operation %d: %v", i, err)
		}
		closeLog(t, l)
	}
}
