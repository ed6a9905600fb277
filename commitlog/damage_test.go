package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"raftmq/commitlog/faultfile"
)

// killedLog is a log that was killed: a snapshot was taken, then the recovery point moved on, then more came.
type killedLog struct {
	f        *faultfile.FS
	snapshot Position
	point    Point
	steps    []step
	ref      reference
	position string // after all steps
}

func killed(t *testing.T) *killedLog {
	t.Helper()
	k := &killedLog{f: faultfile.New(), steps: slices.DeleteFunc(script(7, 200, false), func(s step) bool { return s.point || s.flush })}
	l, err := Open(crashConfig(k.f))
	if err != nil {
		t.Fatal(err)
	}
	h := &history{snapshots: []Position{{}}}
	for i, s := range k.steps {
		if i == 60 || i == 110 {
			if k.point, err = l.SetRecoveryPoint(); err != nil {
				t.Fatal(err)
			}
		}
		if i == 60 {
			k.snapshot = l.Position()
		}
		if err := h.run(l, []step{s}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Flush(0); err != nil {
		t.Fatal(err)
	}
	k.position = fmt.Sprint(l.Position())
	image := k.f.Crash(faultfile.LoseAll, nil)
	closeLog(t, l)
	k.f = image
	k.ref = makeReference(t, k.steps)
	if k.snapshot.LogEnd < 2*testSegment || k.point.LogEnd <= k.snapshot.LogEnd+testSegment || k.ref.bytes == nil || int64(len(k.ref.bytes)) <= k.point.LogEnd {
		t.Fatalf("the script is too short: %+v %+v", k.snapshot, k.point)
	}
	return k
}

// peer serves the reference's bytes.
func (k *killedLog) peer(from, to int64, w io.Writer) error {
	for from < to {
		n := min(to-from, 1000)
		if _, err := w.Write(k.ref.bytes[from : from+n]); err != nil {
			return err
		}
		from += n
	}
	return nil
}

// recovers opens the log with snapshot and peer, replays from the snapshot, and compares with the reference; then again with
// neither.
func (k *killedLog) recovers(t *testing.T, f *faultfile.FS) {
	t.Helper()
	cfg := crashConfig(f)
	cfg.Snapshot = func() (Position, error) { return k.snapshot, nil }
	cfg.Fetch = k.peer
	for round := range 2 {
		l, err := Open(cfg)
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if _, _, end := l.Recovered(); end < k.snapshot.LogEnd {
			t.Fatalf("recovered up to %d, the snapshot is at %d", end, k.snapshot.LogEnd)
		}
		if err := l.Restore(k.snapshot); err != nil {
			t.Fatal(err)
		}
		h := &history{snapshots: []Position{{}}}
		if err := h.run(l, k.steps); err != nil {
			t.Fatalf("replay: %v", err)
		}
		if !bytes.Equal(content(t, l), k.ref.bytes[l.MinOffset():]) || fmt.Sprint(l.Position()) != k.position {
			t.Fatal("replay gives other bytes")
		}
		if err := l.Verify(0); err != nil {
			t.Fatal(err)
		}
		closeLog(t, l)
		cfg = crashConfig(f)
	}
}

func noise(rng *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// TestSideFiles: the recovery point and each file of the journal can be deleted, emptied, cut at any byte, filled with noise, or
// have one bit flipped: the node starts, and nothing is missing (line 12).
func TestSideFiles(t *testing.T) {
	k := killed(t)
	again := func() *faultfile.FS { return k.f.Crash(faultfile.LoseNothing, nil) }
	files := append(k.f.Files("d/journal/records"), "d/journal/recovery-point")
	if len(files) < 4 {
		t.Fatalf("only %v", files)
	}
	stride := 61
	if testing.Short() || raceEnabled {
		stride = 977
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for _, file := range files {
		size := 0
		if err := again().Corrupt(file, func(b []byte) []byte { size = len(b); return b }); err != nil {
			t.Fatal(err)
		}
		check := func(name string, harm func(f *faultfile.FS) error) {
			t.Run(path.Base(file)+" "+name, func(t *testing.T) {
				f := again()
				if err := harm(f); err != nil {
					t.Fatal(err)
				}
				k.recovers(t, f)
			})
		}
		check("deleted", func(f *faultfile.FS) error { return f.Remove(file) })
		check("noise", func(f *faultfile.FS) error {
			return f.Corrupt(file, func(b []byte) []byte { return noise(rng, len(b)) })
		})
		check("zeros", func(f *faultfile.FS) error {
			return f.Corrupt(file, func(b []byte) []byte { return make([]byte, len(b)) })
		})
		check("longer", func(f *faultfile.FS) error {
			return f.Corrupt(file, func(b []byte) []byte { return append(b, noise(rng, 100)...) })
		})
		for n := 0; n < size; n += min(stride, size/3+1) {
			check(fmt.Sprint("cut at ", n), func(f *faultfile.FS) error {
				return f.Corrupt(file, func(b []byte) []byte { return b[:n] })
			})
			check(fmt.Sprint("flipped at ", n), func(f *faultfile.FS) error {
				return f.Corrupt(file, func(b []byte) []byte { b[n] ^= 0x10; return b })
			})
		}
	}
	t.Run("whole journal folder lost", func(t *testing.T) {
		f := again()
		for _, file := range files {
			if err := f.Remove(file); err != nil {
				t.Fatal(err)
			}
		}
		k.recovers(t, f)
	})
}

// TestJournalRebuildKeepsWhatItGivesUp: bytes behind the snapshot and the journal's files are in the quarantine.
func TestJournalRebuildKeepsWhatItGivesUp(t *testing.T) {
	k := killed(t)
	for _, file := range k.f.Files("d/journal/records") {
		if err := k.f.Corrupt(file, func(b []byte) []byte { b[8] ^= 1; return b }); err != nil {
			t.Fatal(err)
		}
	}
	cfg := crashConfig(k.f)
	cfg.Snapshot = func() (Position, error) { return k.snapshot, nil }
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer closeLog(t, l)
	if index, _, end := l.Recovered(); end != k.snapshot.LogEnd || index != k.snapshot.RaftIndex {
		t.Fatalf("recovered index %d, end %d; the snapshot has %d, %d", index, end, k.snapshot.RaftIndex, k.snapshot.LogEnd)
	}
	var kept []byte
	journals := 0
	for _, file := range k.f.Files("d/journal/quarantine") {
		if strings.HasPrefix(path.Base(file), "journal-") {
			journals++
			continue
		}
		b, err := k.f.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, b...)
	}
	if journals < 3 || !bytes.Equal(kept, k.ref.bytes[k.snapshot.LogEnd:]) {
		t.Fatalf("%d journal files and %d bytes kept, want %d", journals, len(kept), len(k.ref.bytes)-int(k.snapshot.LogEnd))
	}
}

// TestJournalRebuildBelievesNoDamage: without a journal the records must be whole up to the snapshot, or nothing is touched.
func TestJournalRebuildBelievesNoDamage(t *testing.T) {
	k := killed(t)
	if err := k.f.Remove("d/journal/recovery-point"); err != nil {
		t.Fatal(err)
	}
	for _, file := range k.f.Files("d/journal/records") {
		if err := k.f.Corrupt(file, func(b []byte) []byte { b[8] ^= 1; return b }); err != nil {
			t.Fatal(err)
		}
	}
	p, at := logPath(testSegment + 100)
	if err := k.f.Corrupt(p, flip(at)); err != nil {
		t.Fatal(err)
	}
	before := k.f.Files("d")
	cfg := crashConfig(k.f)
	cfg.Snapshot = func() (Position, error) { return k.snapshot, nil }
	_, err := Open(cfg)
	var damage *DamageError
	if !errors.As(err, &damage) || !strings.Contains(err.Error(), p) {
		t.Fatalf("got %v", err)
	}
	if after := k.f.Files("d"); !slices.Equal(before, after) {
		t.Fatalf("files changed: %v, then %v", before, after)
	}
}

// TestHeal: damage below the recovery point is named, copied, and healed from a peer; without a peer nothing changes.
func TestHeal(t *testing.T) {
	for name, harm := range map[string]func(k *killedLog) error{
		"one bit": func(k *killedLog) error { p, at := logPath(100); return k.f.Corrupt(p, flip(at)) },
		"many bits": func(k *killedLog) error {
			for off := int64(100); off < k.point.LogEnd; off += 3000 {
				p, at := logPath(off)
				if err := k.f.Corrupt(p, flip(at)); err != nil {
					return err
				}
			}
			return nil
		},
		"a segment of zeros": func(k *killedLog) error {
			p, _ := logPath(testSegment)
			return k.f.Corrupt(p, func(b []byte) []byte { return make([]byte, len(b)) })
		},
		"a segment lost": func(k *killedLog) error { p, _ := logPath(testSegment); return k.f.Remove(p) },
		"a segment short": func(k *killedLog) error {
			p, _ := logPath(0)
			return k.f.Corrupt(p, func(b []byte) []byte { return b[:5000] })
		},
		"a segment long": func(k *killedLog) error {
			p, _ := logPath(testSegment)
			return k.f.Corrupt(p, func(b []byte) []byte { return append(b, 1) })
		},
		"the newest segments lost": func(k *killedLog) error {
			for _, p := range k.f.Files("d/commitlog") {
				if p >= k.lastFile() {
					if err := k.f.Remove(p); err != nil {
						return err
					}
				}
			}
			return nil
		},
		"the last byte below the point": func(k *killedLog) error { p, at := logPath(k.point.LogEnd - 1); return k.f.Corrupt(p, flip(at)) },
	} {
		t.Run(name, func(t *testing.T) {
			k := killed(t)
			if err := harm(k); err != nil {
				t.Fatal(err)
			}
			before := k.content(t, k.f)
			_, err := Open(crashConfig(k.f))
			var damage *DamageError
			if !errors.As(err, &damage) || !errors.Is(err, ErrCorrupt) || damage.Damages[0].From >= damage.Damages[0].To {
				t.Fatalf("without a peer: %v", err)
			}
			after := k.content(t, k.f)
			for file, b := range before {
				// One that was being made when the log was killed is made whole: nothing was ever in it.
				fresh := len(bytes.Trim(b, "\x00")) == 0 && file > k.lastFile() && bytes.Equal(after[file], make([]byte, testSegment))
				if !bytes.Equal(after[file], b) && !fresh {
					t.Fatalf("%s was changed", file)
				}
			}
			// A peer that does not answer, and one that has other bytes.
			cfg := crashConfig(k.f.Crash(faultfile.LoseNothing, nil))
			refused := errors.New("nobody there")
			cfg.Fetch = func(int64, int64, io.Writer) error { return refused }
			if _, err := Open(cfg); !errors.Is(err, refused) || !errors.Is(err, ErrCorrupt) {
				t.Fatalf("with a deaf peer: %v", err)
			}
			cfg.Fetch = func(from, to int64, w io.Writer) error { _, err := w.Write(make([]byte, to-from)); return err }
			if _, err := Open(cfg); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("with a wrong peer: %v", err)
			}
			// And then a good one, on the very files that the wrong one has written to.
			k.recovers(t, cfg.FS.(*faultfile.FS))
		})
	}
}

// lastFile is the one that has the last byte below the recovery point.
func (k *killedLog) lastFile() string {
	p, _ := logPath(k.point.LogEnd - 1)
	return p
}

func (k *killedLog) content(t *testing.T, f *faultfile.FS) map[string][]byte {
	t.Helper()
	m := map[string][]byte{}
	for _, p := range f.Files("d/commitlog") {
		b, err := f.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		m[p] = b
	}
	return m
}

// TestSuspects: damage that a scrub finds far below what Open looks at is healed at the next start.
func TestSuspects(t *testing.T) {
	k := killed(t)
	p, at := logPath(100)
	if err := k.f.Corrupt(p, flip(at)); err != nil {
		t.Fatal(err)
	}
	cfg := crashConfig(k.f)
	cfg.VerifyBytes = 1
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	var damage *DamageError
	if err := l.Verify(0); !errors.As(err, &damage) || damage.Damages[0].File != p || damage.Damages[0].From > 100 || damage.Damages[0].To <= 100 {
		t.Fatalf("scrub: %v", err)
	}
	closeLog(t, l)
	if _, err := Open(cfg); !errors.Is(err, ErrCorrupt) {
		t.Fatalf("the next start: %v", err)
	}
	cfg.Fetch = k.peer
	if l, err = Open(cfg); err != nil {
		t.Fatal(err)
	}
	if err := l.Verify(0); err != nil {
		t.Fatal(err)
	}
	closeLog(t, l)
	cfg.Fetch = nil
	l, err = Open(cfg)
	if err != nil {
		t.Fatalf("healed, and then: %v", err)
	}
	closeLog(t, l)
}

// TestCrashWhileHealing cuts the power at every operation of a rebuild and of a healing; the next start finishes it.
func TestCrashWhileHealing(t *testing.T) {
	for name, harm := range map[string]func(k *killedLog) error{
		"journal":        func(k *killedLog) error { return k.f.Corrupt("d/journal/records/"+fmt.Sprintf("%020d", 0), flip(8)) },
		"recovery point": func(k *killedLog) error { return k.f.Remove("d/journal/recovery-point") },
		"both": func(k *killedLog) error {
			for _, p := range append(k.f.Files("d/journal/records"), "d/journal/recovery-point") {
				if err := k.f.Remove(p); err != nil {
					return err
				}
			}
			return nil
		},
		"segment": func(k *killedLog) error { p, _ := logPath(testSegment); return k.f.Remove(p) },
	} {
		t.Run(name, func(t *testing.T) {
			k := killed(t)
			if err := harm(k); err != nil {
				t.Fatal(err)
			}
			stride := 1
			if raceEnabled {
				stride = 5
			}
			for i, done := 0, false; !done; i += stride {
				f := k.f.Crash(faultfile.LoseNothing, nil)
				f.CutAt(i)
				cfg := crashConfig(f)
				cfg.Snapshot = func() (Position, error) { return k.snapshot, nil }
				cfg.Fetch = k.peer
				l, err := Open(cfg)
				if err == nil {
					done = i >= f.Ops()
					_ = l.Close()
				} else if !errors.Is(err, faultfile.ErrPowerCut) {
					t.Fatalf("operation %d: %v", i, err)
				}
				rng := rand.New(rand.NewPCG(uint64(i), 4))
				for _, loss := range []faultfile.Loss{faultfile.LoseNothing, faultfile.LoseAll, faultfile.LoseSome} {
					t.Run(fmt.Sprintf("%d/%d", i, loss), func(t *testing.T) { k.recovers(t, f.Crash(loss, rng)) })
				}
			}
		})
	}
}

// TestF39ShortBehindThePoint: a file that is short, holed or too long behind what was ever durable is no damage (F39).
func TestF39ShortBehindThePoint(t *testing.T) {
	k := killed(t)
	last := k.f.Files("d/commitlog")
	end := last[len(last)-1]
	point, _ := logPath(k.point.LogEnd)
	if point == end {
		t.Fatal("the script must roll behind the point")
	}
	for name, harm := range map[string]func(f *faultfile.FS) error{
		"last segment empty": func(f *faultfile.FS) error { return f.Corrupt(end, func([]byte) []byte { return nil }) },
		"last segment short": func(f *faultfile.FS) error { return f.Corrupt(end, func(b []byte) []byte { return b[:77] }) },
		"last segment long":  func(f *faultfile.FS) error { return f.Corrupt(end, func(b []byte) []byte { return append(b, 7) }) },
		"last segment noise": func(f *faultfile.FS) error {
			return f.Corrupt(end, func(b []byte) []byte { return noise(rand.New(rand.NewPCG(3, 3)), len(b)) })
		},
		"cut behind the point": func(f *faultfile.FS) error {
			return f.Corrupt(point, func(b []byte) []byte { return b[:k.point.LogEnd%testSegment+10] })
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := k.f.Crash(faultfile.LoseNothing, nil)
			if err := harm(f); err != nil {
				t.Fatal(err)
			}
			cfg := crashConfig(f)
			l, err := Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			closeLog(t, l)
			k.recovers(t, f)
		})
	}
}
