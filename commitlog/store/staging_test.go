package store

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"raftmq/commitlog/faultfile"
	"raftmq/commitlog/mappedfile"
)

// stagedBytes are the log bytes of these tests, from offset 5000 on.
func stagedBytes(n int) []byte {
	rng := rand.New(rand.NewPCG(8, 8))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

const stagedFrom = 5000

func openStaging(t testing.TB, f mappedfile.FS, piece int64) *Staging {
	t.Helper()
	s, err := OpenStaging(f, "staging")
	if err != nil {
		t.Fatal(err)
	}
	s.piece = piece
	return s
}

// stagedIs tells what differs between what is staged and a begin of want.
func stagedIs(s *Staging, want []byte) error {
	from, to, _ := s.Range()
	if from == to {
		return nil
	}
	if from != stagedFrom || to > stagedFrom+int64(len(want)) {
		return fmt.Errorf("staged is [%d, %d)", from, to)
	}
	var got bytes.Buffer
	if err := s.CopyTo(from, to, &got); err != nil {
		return err
	}
	want = want[:to-from]
	if !bytes.Equal(got.Bytes(), want) {
		return errors.New("other bytes are staged")
	}
	if sum, _ := checksumOf([][]byte{want}); sum != s.Sum() {
		return fmt.Errorf("sum %08x, of the bytes %08x", s.Sum(), sum)
	}
	return nil
}

// TestStagingSurvivesCrashes: the power goes off, or a step fails, at every operation of a transfer that is resumed and sealed twice. What is found
// afterwards is a begin of what was staged, and if it is sealed all of what the seal promises is there.
func TestStagingSurvivesCrashes(t *testing.T) {
	all := stagedBytes(60_000)
	run := func(f *faultfile.FS, sealed *int64) error {
		s, err := OpenStaging(f, "staging")
		if err != nil {
			return err
		}
		s.piece = 16 << 10
		defer s.Close()
		if err := s.Resume(); err != nil {
			return err
		}
		if _, to, _ := s.Range(); to == 0 {
			if err := s.Begin(stagedFrom, false); err != nil {
				return err
			}
		}
		for _, until := range []int{25_000, 60_000} {
			if _, to, _ := s.Range(); to >= int64(stagedFrom+until) {
				continue
			}
			if err := s.Unseal(); err != nil {
				return err
			}
			for {
				_, to, _ := s.Range()
				at := int(to - stagedFrom)
				if at >= until {
					break
				}
				if err := s.Append(all[at:min(at+3000, until)]); err != nil {
					return err
				}
			}
			if err := s.Seal(uint64(until), int64(stagedFrom+until)); err != nil {
				return err
			}
			*sealed = int64(until)
		}
		return nil
	}
	clean := faultfile.New()
	var sealed int64
	if err := run(clean, &sealed); err != nil || sealed != 60_000 {
		t.Fatal(sealed, err)
	}
	ops := clean.Ops()
	rng := rand.New(rand.NewPCG(3, 1))
	for i := range ops {
		for _, cut := range []bool{true, false} {
			for mode, loss := range map[string]faultfile.Loss{"all": faultfile.LoseAll, "some": faultfile.LoseSome} {
				f := faultfile.New()
				if cut {
					f.CutAt(i)
				} else {
					f.FailAt(i, nil)
				}
				sealed = 0
				if err := run(f, &sealed); err == nil {
					t.Fatalf("operation %d failed and nobody was told", i)
				}
				image := f.Crash(loss, rng)
				s := openStaging(t, image, 16<<10)
				seal, isSealed := s.Sealed()
				if err := s.Resume(); err != nil {
					t.Fatalf("operation %d (cut %v), %s lost: %v", i, cut, mode, err)
				}
				if err := stagedIs(s, all); err != nil {
					t.Fatalf("operation %d (cut %v), %s lost: %v", i, cut, mode, err)
				}
				_, to, _ := s.Range()
				if isSealed && (to < seal.To || seal.To != stagedFrom+int64(seal.RaftIndex)) {
					t.Fatalf("operation %d (cut %v), %s lost: sealed %+v, staged up to %d", i, cut, mode, seal, to)
				}
				if sealed == 60_000 && !isSealed {
					t.Fatalf("operation %d (cut %v), %s lost: the seal is gone", i, cut, mode)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				sealed := int64(0)
				if err := run(image, &sealed); err != nil {
					t.Fatalf("operation %d (cut %v), %s lost: going on: %v", i, cut, mode, err)
				}
				again := openStaging(t, image, 16<<10)
				if err := again.Resume(); err != nil {
					t.Fatal(err)
				}
				if _, to, _ := again.Range(); to != stagedFrom+60_000 || stagedIs(again, all) != nil {
					t.Fatalf("operation %d (cut %v), %s lost: going on brought it to %d: %v", i, cut, mode, to, stagedIs(again, all))
				}
				if err := again.Clear(); err != nil {
					t.Fatal(err)
				}
				if left, err := image.ReadDir("staging"); err != nil || len(left) != 0 {
					t.Fatalf("left after Clear: %v %v", left, err)
				}
			}
		}
	}
	t.Logf("%d operations", ops)
}

// TestStagingDamage: a flipped bit anywhere cuts what is staged there, or takes the seal away; nothing else comes out.
func TestStagingDamage(t *testing.T) {
	all := stagedBytes(30_000)
	f := faultfile.New()
	s := openStaging(t, f, 12<<10)
	if err := s.Begin(stagedFrom, true); err != nil {
		t.Fatal(err)
	}
	for at := 0; at < len(all); at += 2500 {
		if err := s.Append(all[at : at+2500]); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Seal(9, stagedFrom+30_000); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	names, err := f.ReadDir("staging")
	if err != nil || len(names) < 4 {
		t.Fatal(names, err)
	}
	whole := map[string][]byte{}
	for _, e := range names {
		if whole[e.Name], err = f.ReadFile(filepath.Join("staging", e.Name)); err != nil {
			t.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(5, 5))
	for range 300 {
		image := faultfile.New()
		if err := image.MkdirAll("staging"); err != nil {
			t.Fatal(err)
		}
		for _, e := range names {
			if err := image.WriteFile(filepath.Join("staging", e.Name), whole[e.Name]); err != nil {
				t.Fatal(err)
			}
		}
		e := names[rng.IntN(len(names))]
		at := rng.Int64N(e.Size)
		path := filepath.Join("staging", e.Name)
		b, err := image.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[at] ^= 1 << rng.IntN(8)
		if err := image.WriteFile(path, b); err != nil {
			t.Fatal(err)
		}
		s, err := OpenStaging(image, "staging")
		if err != nil {
			t.Fatalf("%s at %d: %v", path, at, err)
		}
		_, had := s.Sealed()
		if err := s.Resume(); errors.Is(err, errSealVersion) {
			continue // the checksum's own bits make no version; a flag's would
		} else if err != nil {
			t.Fatalf("%s at %d: %v", path, at, err)
		}
		if err := stagedIs(s, all); err != nil {
			t.Fatalf("%s at %d: %v", path, at, err)
		}
		_, to, replaces := s.Range()
		_, sealed := s.Sealed()
		if sealed && (to != stagedFrom+30_000 || !replaces) {
			t.Fatalf("%s at %d: sealed, staged up to %d", path, at, to)
		}
		if e.Name == sealName && had {
			t.Fatalf("a flipped bit of the seal at %d was believed", at)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestStagingFullDisk: no space is an error that a later try gets over.
func TestStagingFullDisk(t *testing.T) {
	all := stagedBytes(9000)
	full := &failingFS{fail: func(op, path string) error {
		if op == "create" {
			return mappedfile.ErrNoSpace
		}
		return nil
	}}
	dir := t.TempDir()
	s, err := OpenStaging(full, dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.piece = 4000
	if err := s.Begin(stagedFrom, false); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(all[:3000]); err != nil {
		t.Fatal(err)
	}
	full.armed.Store(true)
	if err := s.Append(all[3000:6000]); !errors.Is(err, mappedfile.ErrNoSpace) {
		t.Fatal(err)
	}
	full.armed.Store(false)
	for at := 3000; at < 9000; at += 3000 {
		if err := s.Append(all[at : at+3000]); err != nil {
			t.Fatal(err)
		}
	}
	if err := stagedIs(s, all); err != nil {
		t.Fatal(err)
	}
}

var updateStaging = flag.Bool("update-staging", false, "rewrite the golden bytes of staging")

// TestStagingGolden: the format does not change unnoticed.
func TestStagingGolden(t *testing.T) {
	f := faultfile.New()
	s := openStaging(t, f, 100)
	if err := s.Begin(258, true); err != nil {
		t.Fatal(err)
	}
	for _, p := range []string{"first", "and second", "third, which needs a piece of its own because it is so long"} {
		if err := s.Append([]byte(p)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Seal(7, 258+20); err != nil {
		t.Fatal(err)
	}
	entries, err := f.ReadDir("staging")
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	for _, e := range entries {
		b, err := f.ReadFile(filepath.Join("staging", e.Name))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&got, "%s\n%s", e.Name, hex.Dump(b))
	}
	golden := filepath.Join("testdata", "staging.golden")
	if *updateStaging {
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Fatalf("%v\n%s", err, got.Bytes())
	}
}

// FuzzStaging: neither a piece nor a seal of any content panics, and a piece's frames are what they say.
func FuzzStaging(f *testing.F) {
	fs := faultfile.New()
	s := openStaging(f, fs, 200)
	if err := errors.Join(s.Begin(5, true), s.Append([]byte("some bytes")), s.Append([]byte("more")), s.Seal(3, 19)); err != nil {
		f.Fatal(err)
	}
	for _, name := range []string{pieceName(5), sealName} {
		b, err := fs.ReadFile(filepath.Join("staging", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := scanPiece(b); err == nil && (r.end > int64(len(b)) || r.bytes > r.end || r.first < r.from) {
			t.Fatalf("%+v of %d bytes", r, len(b))
		}
		if seal, err := decodeSeal(b); err == nil && !bytes.Equal(appendSeal(nil, seal), b) {
			t.Fatalf("%+v encodes otherwise", seal)
		}
	})
}
