package commitlog

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"raftmq/commitlog/faultfile"
)

// keepDamaged is crashConfig for a node that serves what is whole.
func keepDamaged(f *faultfile.FS) Config {
	cfg := crashConfig(f)
	cfg.KeepDamaged = true
	return cfg
}

// repairAll repairs every range in quarantine.
func repairAll(l *Log, sums Sums, fetch Fetch) error {
	for _, d := range slices.Clone(l.Damaged()) {
		if err := l.Repair(d, sums, fetch); err != nil {
			return err
		}
	}
	if list := l.Damaged(); len(list) > 0 {
		return fmt.Errorf("still in quarantine: %+v", list)
	}
	return nil
}

// servesTheRest reads every byte that is not in quarantine, and nothing else.
func servesTheRest(t *testing.T, l *Log, want []byte) {
	t.Helper()
	damaged := l.Damaged()
	inside := func(off int64) (to int64) {
		for _, d := range damaged {
			if off >= d.From && off < d.To {
				return d.To
			}
		}
		return 0
	}
	for off := l.MinOffset(); off < l.MaxOffset(); {
		v, err := l.View(off, 1<<30)
		if to := inside(off); to > 0 {
			if !errors.Is(err, ErrQuarantined) {
				t.Fatalf("a view of %d, which is damaged: %v", off, err)
			}
			off = to
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		n := int64(len(v.Bytes))
		if n == 0 || !bytes.Equal(v.Bytes, want[off:off+n]) {
			t.Fatalf("bytes [%d, %d) differ", off, off+n)
		}
		v.Release()
		off += n
	}
}

// TestRepairWhileServing: a log opens with damage anywhere below its recovery point, gives out everything else and nothing of the damaged
// ranges, takes new entries, and is whole again with a peer's bytes; wrong bytes change nothing.
func TestRepairWhileServing(t *testing.T) {
	zeros := func(b []byte) []byte { return make([]byte, len(b)) }
	for name, harm := range map[string]func(k *killedLog) error{
		"a bit": func(k *killedLog) error {
			p, at := logPath(k.point.LogEnd - testSegment)
			return k.f.Corrupt(p, flip(at))
		},
		"two bits": func(k *killedLog) error {
			p, at := logPath(testSegment + 100)
			q, to := logPath(k.point.LogEnd - 1)
			return errors.Join(k.f.Corrupt(p, flip(at)), k.f.Corrupt(q, flip(to)))
		},
		"a segment of zeros": func(k *killedLog) error { p, _ := logPath(testSegment); return k.f.Corrupt(p, zeros) },
		"a segment lost":     func(k *killedLog) error { p, _ := logPath(testSegment); return k.f.Remove(p) },
		"a segment short": func(k *killedLog) error {
			p, _ := logPath(0)
			return k.f.Corrupt(p, func(b []byte) []byte { return b[:5000] })
		},
		"the newest segments lost": func(k *killedLog) error {
			last, _ := logPath(k.point.LogEnd - 1)
			for _, p := range k.f.Files("d/commitlog") {
				if p >= last {
					if err := k.f.Remove(p); err != nil {
						return err
					}
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			k := killed(t)
			if err := harm(k); err != nil {
				t.Fatal(err)
			}
			l, err := Open(keepDamaged(k.f))
			if err != nil {
				t.Fatal(err)
			}
			if len(l.Damaged()) == 0 {
				t.Fatal("nothing is in quarantine")
			}
			servesTheRest(t, l, k.ref.bytes)
			first := l.Damaged()[0]
			if _, err := l.Checksum(0, first.To); !errors.Is(err, ErrQuarantined) {
				t.Fatalf("a checksum over it: %v", err)
			}
			// Peers that do not help.
			nobody := errors.New("nobody there")
			if err := l.Repair(first, nil, func(int64, int64, io.Writer) error { return nobody }); !errors.Is(err, nobody) {
				t.Fatal(err)
			}
			for what, send := range map[string]func(int64) []byte{
				"other bytes": func(n int64) []byte { return noise(rand.New(rand.NewPCG(1, 1)), int(n)) },
				"too few":     func(n int64) []byte { return k.ref.bytes[first.From : first.From+n-1] },
				"too many":    func(n int64) []byte { return make([]byte, n+1) },
			} {
				before := k.content(t, k.f)
				err := l.Repair(first, nil, func(from, to int64, w io.Writer) error { _, err := w.Write(send(to - from)); return err })
				if !errors.Is(err, ErrBadCopy) || len(l.Damaged()) == 0 || l.Damaged()[0].From != first.From {
					t.Fatalf("%s: %v, %+v", what, err, l.Damaged())
				}
				newest, _ := logPath(l.MaxOffset())
				for file, b := range k.content(t, k.f) {
					if file < newest && !bytes.Equal(before[file], b) {
						t.Fatalf("%s changed %s", what, file)
					}
				}
			}
			// It goes on beside that.
			if err := l.Restore(k.snapshot); err != nil {
				t.Fatal(err)
			}
			h := &history{snapshots: []Position{{}}}
			if err := h.run(l, k.steps); err != nil {
				t.Fatal(err)
			}
			servesTheRest(t, l, k.ref.bytes)
			if err := repairAll(l, nil, k.peer); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(content(t, l), k.ref.bytes) || fmt.Sprint(l.Position()) != k.position {
				t.Fatal("the repaired log is another one")
			}
			if err := l.Verify(0); err != nil {
				t.Fatal(err)
			}
			// And it is durable.
			f := k.f.Crash(faultfile.LoseAll, nil)
			closeLog(t, l)
			if l, err = Open(crashConfig(f)); err != nil {
				t.Fatal(err)
			}
			if err := l.Verify(0); err != nil {
				t.Fatal(err)
			}
			closeLog(t, l)
		})
	}
}

// TestCheckFindsDamage: the scrub's steps name exactly the entries that are damaged, wherever they are, and pass over what is in quarantine.
func TestCheckFindsDamage(t *testing.T) {
	k := killed(t)
	cfg := keepDamaged(k.f)
	cfg.VerifyBytes = -1
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer closeLog(t, l)
	walk := func(step int64) (found []Damage) {
		for from := int64(0); ; {
			next, list, err := l.Check(from, step)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, list...)
			if next == from {
				if next != l.MaxOffset() {
					t.Fatalf("it ended at %d of %d", next, l.MaxOffset())
				}
				return found
			}
			from = next
		}
	}
	for _, step := range []int64{8000, 1 << 20} {
		if found := walk(step); len(found) > 0 {
			t.Fatalf("a whole log: %+v", found)
		}
	}
	at := []int64{150, testSegment + 1, 2*testSegment + 900}
	for _, off := range at {
		if err := l.log.Overwrite([]byte{k.ref.bytes[off] ^ 1}, off); err != nil {
			t.Fatal(err)
		}
	}
	found := walk(8000)
	if len(found) != len(at) {
		t.Fatalf("%d ranges: %+v", len(found), found)
	}
	for i, d := range found {
		if d.From > at[i] || d.To <= at[i] || k.ref.ends[d.To] != d.RaftIndex {
			t.Fatalf("byte %d: %+v", at[i], d)
		}
	}
	fresh, err := l.Quarantine(append(found, l.DamageAt(at[0], at[0]+1, errBytes))...)
	if err != nil || len(fresh) != len(at) {
		t.Fatalf("%v, %+v", err, fresh)
	}
	if again, err := l.Quarantine(found...); err != nil || len(again) > 0 {
		t.Fatalf("the second time: %v, %+v", err, again)
	}
	if more := walk(8000); len(more) > 0 {
		t.Fatalf("in quarantine, and found again: %+v", more)
	}
	servesTheRest(t, l, k.ref.bytes)
	// A transient fault: the bytes are whole again, and no peer is needed.
	if err := l.log.Overwrite(k.ref.bytes[at[0]:at[0]+1], at[0]); err != nil {
		t.Fatal(err)
	}
	if err := l.Repair(found[0], nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := repairAll(l, nil, k.peer); err != nil {
		t.Fatal(err)
	}
	if files := k.f.Files("d/journal/quarantine"); len(files) < len(at) {
		t.Errorf("copies in the quarantine: %v", files)
	}
}

// TestCrashWhileRepairing cuts the power at every operation of a quarantine and a repair, with pieces that are gathered in memory and in a file. The next
// start finds each damaged range again, or whole.
func TestCrashWhileRepairing(t *testing.T) {
	k := killed(t)
	victims := []int64{150, testSegment + 1, k.point.LogEnd - 1}
	for _, inMemory := range []int64{stagedInMemory, 100} {
		stride := 1
		if raceEnabled {
			stride = 5
		}
		for i, done := 0, false; !done; i += stride {
			f := k.f.Crash(faultfile.LoseNothing, nil)
			cfg := keepDamaged(f)
			cfg.VerifyBytes = 1
			l, err := Open(cfg)
			if err != nil {
				t.Fatal(err)
			}
			l.inMemory = inMemory
			for _, off := range victims {
				if err := l.log.Overwrite([]byte{k.ref.bytes[off] ^ 1}, off); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := l.Flush(0); err != nil { // it is damage of the disk
				t.Fatal(err)
			}
			start := f.Ops()
			f.CutAt(start + i)
			err = func() error {
				for from := int64(0); ; {
					next, list, err := l.Check(from, 8000)
					if err != nil {
						return err
					}
					if _, err := l.Quarantine(list...); err != nil {
						return err
					}
					if next == from {
						return repairAll(l, nil, k.peer)
					}
					from = next
				}
			}()
			if err == nil {
				done = f.Ops() <= start+i
			} else if !errors.Is(err, faultfile.ErrPowerCut) {
				t.Fatalf("operation %d: %v", i, err)
			}
			rng := rand.New(rand.NewPCG(uint64(i), 9))
			for _, loss := range []faultfile.Loss{faultfile.LoseNothing, faultfile.LoseAll, faultfile.LoseSome} {
				image := f.Crash(loss, rng)
				cfg := keepDamaged(image)
				cfg.VerifyBytes = 1
				again, err := Open(cfg)
				if err != nil {
					t.Fatalf("operation %d, loss %d: %v", i, loss, err)
				}
				for from := int64(0); ; {
					next, list, err := again.Check(from, 8000)
					if err != nil {
						t.Fatal(err)
					}
					if _, err := again.Quarantine(list...); err != nil {
						t.Fatal(err)
					}
					if next == from {
						break
					}
					from = next
				}
				servesTheRest(t, again, k.ref.bytes)
				if err := repairAll(again, nil, k.peer); err != nil {
					t.Fatalf("operation %d, loss %d: %v", i, loss, err)
				}
				if err := again.Verify(0); err != nil || !bytes.Equal(content(t, again), k.ref.bytes[:again.MaxOffset()]) {
					t.Fatalf("operation %d, loss %d: %v", i, loss, err)
				}
				closeLog(t, again)
			}
			_ = l.Close() // the power is off
		}
	}
}

// TestRepairInstalledRange: what came with an installation has one journal record. It is checked by the segments' checksums where the replicas
// have agreed on them, and by its records otherwise.
func TestRepairInstalledRange(t *testing.T) {
	k := killed(t)
	f := faultfile.New()
	l, err := Open(keepDamaged(f))
	if err != nil {
		t.Fatal(err)
	}
	l.inMemory = 1000
	end := k.snapshot.LogEnd
	if err := l.WriteRaw(k.ref.bytes[:end]); err != nil {
		t.Fatal(err)
	}
	if err := l.Restore(k.snapshot); err != nil {
		t.Fatal(err)
	}
	agreed := func(from int64) (uint32, bool) {
		return crc32.Checksum(k.ref.bytes[from:from+testSegment], castagnoli), from+testSegment <= end
	}
	for _, sums := range []Sums{agreed, nil} {
		off := int64(testSegment + 700)
		if err := l.log.Overwrite([]byte{k.ref.bytes[off] ^ 1}, off); err != nil {
			t.Fatal(err)
		}
		sum, err := l.SegmentSum(testSegment)
		if want, _ := agreed(testSegment); err != nil || sum == want {
			t.Fatalf("%v, checksum %08x of a damaged segment", err, sum)
		}
		fresh, err := l.Quarantine(l.DamageAt(off, off+1, errBytes))
		if err != nil || len(fresh) != 1 || fresh[0].From != testSegment || fresh[0].To != 2*testSegment {
			t.Fatalf("%v, %+v", err, fresh)
		}
		servesTheRest(t, l, k.ref.bytes)
		wrong := func(from, to int64, w io.Writer) error {
			b := slices.Clone(k.ref.bytes[from:to])
			b[500] ^= 1
			_, err := w.Write(b)
			return err
		}
		// A record's body has a checksum, its head has none: the journal's over all of it tells in the end.
		if err := l.Repair(fresh[0], sums, wrong); sums != nil && !errors.Is(err, ErrBadCopy) {
			t.Fatalf("a wrong copy: %v", err)
		}
		if len(l.Damaged()) > 0 {
			if err := repairAll(l, sums, k.peer); err != nil && sums != nil {
				t.Fatal(err)
			}
		}
		if sums != nil && !bytes.Equal(content(t, l), k.ref.bytes[:end]) {
			t.Fatal("the repaired log is another one")
		}
	}
	closeLog(t, l)
	for _, file := range f.Files("d/journal/quarantine") {
		if strings.HasSuffix(file, "repair.tmp") {
			t.Errorf("%s is left", file)
		}
	}
}
