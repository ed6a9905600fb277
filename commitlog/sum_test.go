package commitlog

import (
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"slices"
	"testing"

	"raftmq/commitlog/faultfile"
	"raftmq/commitlog/mappedfile"
)

// TestCombineSums against the sum of both strings at once.
func TestCombineSums(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		b := noise(rng, rng.IntN(10000))
		cut := rng.IntN(len(b) + 1)
		got := CombineSums(crc32.Checksum(b[:cut], castagnoli), crc32.Checksum(b[cut:], castagnoli), int64(len(b)-cut))
		if want := crc32.Checksum(b, castagnoli); got != want {
			t.Fatalf("%d and %d bytes: %08x, expected %08x", cut, len(b)-cut, got, want)
		}
	}
	// Lengths that no test can hold: a string of zeros in two ways.
	const huge = 5 << 40
	once := CombineSums(0xdeadbeef, 0, huge)
	if twice := CombineSums(CombineSums(0xdeadbeef, 0, huge/2+1), 0, huge-huge/2-1); once != twice {
		t.Fatalf("%08x and %08x", once, twice)
	}
}

// installed is a log that applied 60 steps and got what follows, up to step 100, from a peer; and that peer.
func installed(t *testing.T) (peer, l *Log, f *faultfile.FS, from, to int64) {
	t.Helper()
	steps := slices.DeleteFunc(script(3, 160, false), func(s step) bool { return s.index == 0 })
	logs := [2]*Log{}
	files := [2]*faultfile.FS{faultfile.New(), faultfile.New()}
	var at Position
	for i := range logs {
		var err error
		if logs[i], err = Open(crashConfig(files[i])); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeLog(t, logs[i]) })
		h := history{snapshots: []Position{{}}}
		if err := h.run(logs[i], steps[:60]); err != nil {
			t.Fatal(err)
		}
		from = logs[i].MaxOffset()
		if i == 0 {
			if err := h.run(logs[0], steps[60:100]); err != nil {
				t.Fatal(err)
			}
			at = logs[0].Position()
		} else {
			b := content(t, logs[0])[from:at.LogEnd]
			if err := logs[1].WriteRaw(b); err != nil {
				t.Fatal(err)
			}
			if err := logs[1].Restore(at); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.run(logs[i], steps[100:]); err != nil {
			t.Fatal(err)
		}
	}
	if at.LogEnd-from < 2*testSegment {
		t.Fatalf("[%d, %d) are too few bytes", from, at.LogEnd)
	}
	return logs[0], logs[1], files[1], from, at.LogEnd
}

// TestSum: equal to the sum of the bytes for any range, whatever the journal knows of it; and it is of what was applied, not of what the disk
// made of it.
func TestSum(t *testing.T) {
	peer, l, _, from, to := installed(t)
	rng := rand.New(rand.NewPCG(4, 4))
	end := l.MaxOffset()
	ranges := [][2]int64{{0, end}, {0, 0}, {end, end}, {from, to}, {from - 1, to + 1}, {from + 1, to - 1}}
	for range 300 {
		a, b := rng.Int64N(end+1), rng.Int64N(end+1)
		ranges = append(ranges, [2]int64{min(a, b), max(a, b)})
	}
	for _, r := range ranges {
		want, err := peer.Checksum(r[0], r[1])
		if err != nil {
			t.Fatal(err)
		}
		for i, log := range []*Log{peer, l} {
			if got, err := log.Sum(r[0], r[1]); err != nil || got != want {
				t.Fatalf("log %d %v: %08x, expected %08x: %v", i, r, got, want, err)
			}
		}
	}
	for _, r := range [][2]int64{{0, end + 1}, {-1, 5}, {6, 5}} {
		if _, err := l.Sum(r[0], r[1]); !errors.Is(err, mappedfile.ErrOutOfRange) {
			t.Fatalf("%v: %v", r, err)
		}
	}
	before, _ := l.Sum(0, end)
	harm(t, l, 1000)
	if after, err := l.Sum(0, end); err != nil || after != before {
		t.Fatalf("%08x, %08x before a byte was flipped: %v", after, before, err)
	}
	if sum, _ := l.Checksum(0, end); sum == before {
		t.Fatal("nothing was flipped")
	}
}

// harm flips a byte of the log.
func harm(t *testing.T, l *Log, off int64) {
	t.Helper()
	v, err := l.log.View(off, 1)
	if err != nil {
		t.Fatal(err)
	}
	b := v.Bytes[0] ^ 0x40
	v.Release()
	if err := l.log.WriteAt([]byte{b}, off); err != nil {
		t.Fatal(err)
	}
}

// TestCheckServed: a flipped byte is found by whoever is about to send it, in entries and in a long installed range alike, and does not keep
// others from being sent.
func TestCheckServed(t *testing.T) {
	for _, long := range []int64{1, 1 << 40} { // the installed range is checked by its messages, and as a whole
		_, l, _, from, to := installed(t)
		l.served.long = long
		end := l.MaxOffset()
		rng := rand.New(rand.NewPCG(9, 9))
		checkAll := func() error {
			var errs []error
			for at := int64(0); at < end; {
				n := min(1+rng.Int64N(9000), end-at)
				errs = append(errs, l.CheckServed(at, at+n))
				at += n
			}
			return errors.Join(errs...)
		}
		if err := checkAll(); err != nil {
			t.Fatal(err)
		}
		for range 40 {
			off := rng.Int64N(end)
			harm(t, l, off)
			err := l.CheckServed(off, min(off+1+rng.Int64N(5000), end))
			inLong := off >= from && off < to && long == 1
			var damage *DamageError
			switch {
			case err == nil && !inLong:
				t.Fatalf("long %d: a flipped byte at %d was not found", long, off)
			case err != nil && (!errors.Is(err, ErrCorrupt) || !errors.As(err, &damage) || damage.Damages[0].From > off || damage.Damages[0].To <= off):
				t.Fatalf("long %d: a flipped byte at %d: %v", long, off, err)
			}
			if far := (off + end/2) % end; long == 1 && (off < from || off >= to) && (far < from || far >= to) {
				if err := l.CheckServed(far, far+1); err != nil {
					t.Fatalf("a flipped byte at %d: [%d, +1) is not served: %v", off, far, err)
				}
			}
			harm(t, l, off)
			if err := checkAll(); err != nil {
				t.Fatalf("long %d: mended byte at %d: %v", long, off, err)
			}
		}
		// Bodies have a checksum of their own.
		v, err := l.View(from, 4096)
		if err != nil {
			t.Fatal(err)
		}
		v.Release()
		harm(t, l, from+100)
		if err := l.CheckServed(from+50, from+150); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("long %d: a flipped byte of a body: %v", long, err)
		}
	}
}
