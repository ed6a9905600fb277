package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"raftmq/commitlog/faultfile"
)

// TestInstall brings a log to a follower: to an empty one, to one that is behind, and after a crash
// at every operation. A half-received one is never seen.
func TestInstall(t *testing.T) {
	steps := script(3, 120, false)
	steps = slices.DeleteFunc(steps, func(s step) bool { return s.index == 0 })
	leader, err := Open(crashConfig(faultfile.New()))
	if err != nil {
		t.Fatal(err)
	}
	defer closeLog(t, leader)
	lh := history{snapshots: []Position{{}}}
	if err := lh.run(leader, steps[:60]); err != nil {
		t.Fatal(err)
	}
	p60 := leader.Position()
	if err := lh.run(leader, steps[60:80]); err != nil {
		t.Fatal(err)
	}
	p80 := leader.Position()
	if err := lh.run(leader, steps[80:]); err != nil {
		t.Fatal(err)
	}
	all := content(t, leader)
	base := int64(testSegment)

	install := func(l *Log, from int64, p Position) error {
		if from != l.MaxOffset() {
			if err := l.ResetTo(from); err != nil {
				return err
			}
		}
		for b := all[from:p.LogEnd]; len(b) > 0; {
			n := min(len(b), 5000)
			if err := l.WriteRaw(b[:n]); err != nil {
				return err
			}
			b = b[n:]
		}
		return l.Restore(p)
	}
	check := func(l *Log, from int64) error {
		if l.MinOffset() != from || l.MaxOffset() != int64(len(all)) || !bytes.Equal(content(t, l), all[from:]) {
			return fmt.Errorf("log is %d to %d", l.MinOffset(), l.MaxOffset())
		}
		return l.Verify(0)
	}

	t.Run("extend", func(t *testing.T) {
		f := faultfile.New()
		l, err := Open(crashConfig(f))
		if err != nil {
			t.Fatal(err)
		}
		h := history{snapshots: []Position{{}}}
		if err := h.run(l, steps[:60]); err != nil {
			t.Fatal(err)
		}
		if err := l.Restore(p80); !errors.Is(err, ErrBehind) {
			t.Fatalf("snapshot ahead: %v", err)
		}
		if err := l.WriteRaw(all[p60.LogEnd : p60.LogEnd+1000]); err != nil {
			t.Fatal(err)
		}
		if l.MaxOffset() != p60.LogEnd {
			t.Fatal("raw bytes are visible")
		}
		if err := l.BeginEntry(1000, 9); !errors.Is(err, ErrIndex) {
			t.Fatalf("entry inside an installation: %v", err)
		}
		if err := l.Restore(p80); !errors.Is(err, ErrDiverged) {
			t.Fatalf("restore before all bytes came: %v", err)
		}
		if err := l.DiscardRaw(); err != nil {
			t.Fatal(err)
		}
		if err := install(l, p60.LogEnd, p80); err != nil {
			t.Fatal(err)
		}
		if l.FlushedTo() != p80.LogEnd || l.RecoveryPoint().LogEnd != p80.LogEnd {
			t.Fatalf("flushed to %d, point %+v", l.FlushedTo(), l.RecoveryPoint())
		}
		if err := errors.Join(h.run(l, steps[80:]), check(l, 0)); err != nil {
			t.Fatal(err)
		}
		closeLog(t, l)
		if l, err = Open(crashConfig(f)); err != nil {
			t.Fatal(err)
		}
		defer closeLog(t, l)
		if err := errors.Join(l.Restore(p80), h.run(l, steps[80:]), check(l, 0)); err != nil {
			t.Fatal(err)
		}
	})

	t.Run("replace, crash anywhere", func(t *testing.T) {
		// In the middle of a segment, as a leader's first readable byte may be after its own installation.
		for _, from := range []int64{base, base + 5000, 0} {
			for i, done := 0, false; !done; i++ {
				f := faultfile.New()
				l, err := Open(crashConfig(f))
				if err != nil {
					t.Fatal(err)
				}
				h := history{snapshots: []Position{{}}}
				if err := h.run(l, steps[:20]); err != nil {
					t.Fatal(err)
				}
				before := content(t, l)
				if from == 0 {
					if err := l.ResetTo(0); err != nil {
						t.Fatal(err)
					}
					before = nil
				}
				f.CutAt(f.Ops() + i)
				err = install(l, from, p80)
				installed := err == nil
				done = installed
				_ = l.Close()
				rng := rand.New(rand.NewPCG(uint64(i), 5))
				for _, loss := range []faultfile.Loss{faultfile.LoseNothing, faultfile.LoseAll, faultfile.LoseSome} {
					l, err := Open(crashConfig(f.Crash(loss, rng)))
					if err != nil {
						t.Fatalf("operation %d, loss %d: %v", i, loss, err)
					}
					index, _, end := l.Recovered()
					whole := index == p80.RaftIndex && end == p80.LogEnd
					switch {
					case installed && !whole:
						t.Fatalf("operation %d, loss %d: installed, recovered %d at %d", i, loss, index, end)
					case whole:
						// A node starts at an empty snapshot, and then restores the one it has.
						err = errors.Join(l.Restore(Position{}), l.Restore(p80), h.run(l, steps[80:]), check(l, from))
					case index == 0:
						if l.MinOffset() != end {
							err = fmt.Errorf("empty log is %d to %d", l.MinOffset(), end)
						}
					default: // some prefix of the old one
						if got := content(t, l); !bytes.Equal(got, before[:len(got)]) {
							err = errors.New("other bytes")
						}
					}
					if err != nil {
						t.Fatalf("operation %d, loss %d, index %d: %v", i, loss, index, err)
					}
					_ = l.Close()
				}
			}
		}
	})
}
