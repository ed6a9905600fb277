package keyindex

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"raftmq/commitlog/faultfile"
)

// history is what happens to an index between two starts.
func history(ix *Index, log []rec) error {
	for i := range 3 {
		if err := feed(ix, log[:(i+1)*len(log)/3]); err != nil {
			return err
		}
		mark := ix.Mark()
		// What is put between mark and flush may be on disk or not.
		if err := feed(ix, log[:min((i+1)*len(log)/3+3, len(log))]); err != nil {
			return err
		}
		if err := ix.Flush(mark); err != nil {
			return err
		}
		if i == 1 {
			if _, err := ix.DeleteBefore(low); err != nil {
				return err
			}
		}
	}
	if err := ix.Flush(ix.Mark()); err != nil {
		return err
	}
	return ix.Close()
}

// low is where the log of the crash tests begins at last.
const low = 800

// TestCrash: operation i fails, or the power is cut at i, for every i; pages and names that were
// not synced come back old, new or torn. After each, the index opens, goes on from a place
// that is not behind what a Flush has vouched for, and ends up as one that never fell.
func TestCrash(t *testing.T) {
	log := testLog(0, 45)
	k := newKit(t, 7, 11)
	whole := reference(t, k, log)
	after := reference(t, k, log) // with the first files deleted
	for len(after) > 0 && decodeHeader([]byte(after[0])).EndPhyOffset < low {
		after = after[1:]
	}
	if len(after) == len(whole) || len(after) < 5 {
		t.Fatalf("%d files, %d are left", len(whole), len(after))
	}
	for _, cut := range []bool{false, true} {
		for i := 0; ; i++ {
			done := false
			for loss, seeds := range map[faultfile.Loss]uint64{faultfile.LoseNothing: 1, faultfile.LoseAll: 1, faultfile.LoseSome: 3} {
				for seed := range seeds {
					name := fmt.Sprintf("cut %v at %d, loss %d, seed %d", cut, i, loss, seed)
					done = crash(t, name, log, whole, after, cut, i, loss, rand.New(rand.NewPCG(seed, uint64(i))))
				}
			}
			if done {
				if i < 50 {
					t.Fatalf("only %d operations", i)
				}
				break
			}
		}
	}
}

func crash(t *testing.T, name string, log []rec, whole, after []string, cut bool, i int, loss faultfile.Loss, rng *rand.Rand) (done bool) {
	t.Helper()
	k := newKit(t, 7, 11)
	start := k.fs.Ops()
	if cut {
		k.fs.CutAt(start + i)
	} else {
		k.fs.FailAt(start+i, nil)
	}
	vouched := int64(0)
	ix, err := Open(k.c, 0, 0)
	if err == nil {
		err = history(ix, log)
		vouched = ix.Flushed()
		ix.Close()
	}
	if err == nil && k.fs.Ops() > start+i {
		t.Fatalf("%s: nobody told of it: %s", name, k.fs.Trace()[start+i])
	}
	done = err == nil
	k.use(k.fs.Crash(loss, rng))
	ix, err = Open(k.c, 0, log[len(log)-1].phyOffset+100)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer ix.Close()
	if ix.From() < vouched {
		t.Fatalf("%s: goes on from %d, flushed up to %d\n%s", name, ix.From(), vouched, k.log)
	}
	if k.log.Len() > 0 && !strings.Contains(k.log.String(), "recovery point") {
		t.Fatalf("%s: %s", name, k.log)
	}
	// Everything is fed, as if dispatch had gone back further.
	if err := feed2(ix, log); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	flush(t, ix)
	want := whole
	if files := ix.list(); files[0].header.BeginPhyOffset > 0 {
		want = after
	}
	checkSame(t, ix, want)
	if n := len(k.fs.Files(k.c.Dir)); n != len(want) {
		t.Fatalf("%s: %d files on disk, want %d", name, n, len(want))
	}
	return done
}

// TestFailedSyncStops: after a sync has failed nothing is called durable any more (F33), and the
// next start believes only the point before.
func TestFailedSyncStops(t *testing.T) {
	log := testLog(0, 30)
	k := newKit(t, 7, 11)
	ix := k.open(0, 0)
	mustFeed(t, ix, log[:10])
	flush(t, ix)
	mustFeed(t, ix, log)
	k.fs.FailAt(k.fs.Ops(), nil)
	for range 2 {
		if err := ix.Flush(ix.Mark()); !errors.Is(err, ErrFailed) || !errors.Is(err, faultfile.ErrInjected) {
			t.Fatalf("flush: %v", err)
		}
	}
	if err := ix.Commit(9000); !errors.Is(err, ErrFailed) {
		t.Fatalf("commit: %v", err)
	}
	if err := ix.Put([]byte("T"), []byte("k"), nil, 8000, 1); !errors.Is(err, ErrFailed) {
		t.Fatalf("put: %v", err)
	}
	checkFinds(t, ix, log) // it can still be read
	ix.Close()
	k.use(k.fs.Crash(faultfile.LoseNothing, nil))
	ix = k.open(0, 3000)
	if ix.From() != 1000 {
		t.Fatalf("goes on from %d", ix.From())
	}
	mustFeed(t, ix, log)
	flush(t, ix)
	// Now the power goes: what the kernel took for clean must have been written again.
	for seed := range uint64(10) {
		again := k.fs.Crash(faultfile.LoseSome, rand.New(rand.NewPCG(seed, 0)))
		k2 := newKit(t, 7, 11)
		k2.use(again)
		checkSame(t, k2.open(0, 3000), reference(t, k2, log))
	}
}

// TestDamage: whatever happened to the files, the index is built again from the log, as far as
// need be, and says so once (F43).
func TestDamage(t *testing.T) {
	log := testLog(0, 60)
	want := reference(t, newKit(t, 7, 11), log)
	noise := func(b []byte) []byte {
		rnd := rand.New(rand.NewPCG(1, 1))
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		return b
	}
	last := len(want) - 1
	type harm func(k *kit, files []string) error
	corrupt := func(n int, change func(b []byte) []byte) harm {
		return func(k *kit, files []string) error { return k.fs.Corrupt(files[n], change) }
	}
	remove := func(n int) harm { return func(k *kit, files []string) error { return k.fs.Remove(files[n]) } }
	points := func(change func(b []byte) []byte) harm {
		return func(k *kit, _ []string) error {
			return errors.Join(k.fs.Corrupt(k.c.Point+".0", change), k.fs.Corrupt(k.c.Point+".1", change))
		}
	}
	cases := map[string]struct {
		harm harm
		kept int  // files
		ok   bool // no damage at all
	}{
		"nothing":            {func(*kit, []string) error { return nil }, last + 1, true},
		"last gone":          {remove(last), last, false},
		"last empty":         {corrupt(last, func(b []byte) []byte { return nil }), last, false},
		"last noise":         {corrupt(last, noise), last, false},
		"last zero":          {corrupt(last, func(b []byte) []byte { return make([]byte, len(b)) }), last, false},
		"last longer":        {corrupt(last, func(b []byte) []byte { return append(b, 0) }), last, false},
		"second gone":        {remove(1), 1, false},
		"second empty":       {corrupt(1, func(b []byte) []byte { return nil }), 1, false},
		"second noise":       {corrupt(1, noise), 1, false},
		"first gone":         {remove(0), 0, false},
		"first's header":     {corrupt(0, func(b []byte) []byte { b[7]++; return b }), 0, false},
		"first's last entry": {corrupt(0, func(b []byte) []byte { b[len(b)-10]++; return b }), 0, false},
		"last's slots": {corrupt(last, func(b []byte) []byte {
			noise(b[headerSize : headerSize+7*slotSize])
			return b
		}), last + 1, true},
		"last's header": {corrupt(last, func(b []byte) []byte { noise(b[:headerSize]); return b }), last + 1, true},
		"last's unused": {corrupt(last, func(b []byte) []byte { noise(b[len(b)-entrySize:]); return b }), last + 1, true},
		"points gone": {func(k *kit, _ []string) error {
			return errors.Join(k.fs.Remove(k.c.Point+".0"), k.fs.Remove(k.c.Point+".1"))
		}, 0, false},
		"points empty":    {points(func([]byte) []byte { return nil }), 0, false},
		"points noise":    {points(noise), 0, false},
		"points short":    {points(func(b []byte) []byte { return b[:len(b)-1] }), 0, false},
		"points swapped":  {func(k *kit, _ []string) error { return swap(k, k.c.Point+".0", k.c.Point+".1") }, 0, false},
		"all gone":        {func(k *kit, files []string) error { return removeAll(k, files) }, 0, false},
		"everything gone": {func(k *kit, files []string) error { return removeAll(k, append(files, k.c.Point+".0", k.c.Point+".1")) }, 0, true},
		"a file of tomorrow": {func(k *kit, _ []string) error {
			return k.fs.WriteFile(k.c.Dir+"/20991231235959999", noise(make([]byte, 300)))
		}, last + 1, true},
		"a file of once":       {func(k *kit, _ []string) error { return k.fs.WriteFile(k.c.Dir+"/19700101000000000", nil) }, last + 1, true},
		"last's entries noise": {corrupt(last, func(b []byte) []byte { noise(b[headerSize+7*slotSize:]); return b }), last, false},
	}
	for i := range FileSize(7, 11) {
		cases[fmt.Sprintf("last cut at %d", i)] = struct {
			harm harm
			kept int
			ok   bool
		}{corrupt(last, func(b []byte) []byte { return b[:i] }), last, false}
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			k := newKit(t, 7, 11)
			ix := k.open(0, 0)
			mustFeed(t, ix, log[:50])
			flush(t, ix)
			mustFeed(t, ix, log)
			flush(t, ix)
			if err := ix.Close(); err != nil {
				t.Fatal(err)
			}
			if err := c.harm(k, k.fs.Files(k.c.Dir)); err != nil {
				t.Fatal(err)
			}
			ix = k.open(0, 6000)
			if n := len(ix.list()); n != c.kept {
				t.Fatalf("kept %d files, want %d\n%s", n, c.kept, k.log)
			}
			if told := strings.Count(k.log.String(), "building key index again"); (told == 1) == c.ok || told > 1 {
				t.Fatalf("told %d times\n%s", told, k.log)
			}
			mustFeed(t, ix, log)
			checkSame(t, ix, want)
			checkFinds(t, ix, log)
			flush(t, ix)
			if err := ix.Close(); err != nil {
				t.Fatal(err)
			}
			ix = k.open(0, 6000) // and again, now without damage
			if ix.From() != 6000 || k.log.Len() > 0 {
				t.Fatalf("goes on from %d\n%s", ix.From(), k.log)
			}
			checkSame(t, ix, want)
			if n := len(k.fs.Files(k.c.Dir)); n != len(want) {
				t.Fatalf("%d files on disk, want %d", n, len(want))
			}
		})
	}
}

func removeAll(k *kit, files []string) (err error) {
	for _, f := range files {
		err = errors.Join(err, k.fs.Remove(f))
	}
	return err
}

func swap(k *kit, a, b string) error {
	x, err := k.fs.ReadFile(a)
	if err != nil {
		return err
	}
	y, err := k.fs.ReadFile(b)
	if err != nil {
		return err
	}
	return errors.Join(k.fs.WriteFile(a, y), k.fs.WriteFile(b, x))
}

// TestDamageFoundByQuery: what Open doesn't look at, a query does; Repair drops it, and the rest
// is fed again.
func TestDamageFoundByQuery(t *testing.T) {
	log := testLog(0, 60)
	want := reference(t, newKit(t, 7, 11), log)
	broken := 0
	for at := int64(headerSize); at < FileSize(7, 10); at++ {
		k := newKit(t, 7, 11)
		ix := k.open(0, 0)
		mustFeed(t, ix, log)
		flush(t, ix)
		if err := ix.Close(); err != nil {
			t.Fatal(err)
		}
		if err := k.fs.Corrupt(k.fs.Files(k.c.Dir)[1], func(b []byte) []byte { b[at] ^= 0x5A; return b }); err != nil {
			t.Fatal(err)
		}
		ix = k.open(0, 6000)
		var damage error
		for _, r := range log {
			for _, key := range strings.Fields(r.keys + " " + r.uniq) {
				err := ix.Find(t.Context(), r.topic, key, 0, 1<<60, func(int64) bool { return true })
				if err != nil && !errors.Is(err, ErrDamaged) {
					t.Fatal(err)
				}
				damage = errors.Join(damage, err)
			}
		}
		if damage == nil {
			continue // a time, or a hash or offset that fits as well
		}
		broken++
		if err := ix.Repair(0); err != nil {
			t.Fatal(err)
		}
		if n := len(ix.list()); n != 1 {
			t.Fatalf("position %d: kept %d files", at, n)
		}
		mustFeed(t, ix, log)
		checkSame(t, ix, want)
		checkFinds(t, ix, log)
		if err := ix.Repair(0); err != nil || len(ix.list()) != len(want) {
			t.Fatalf("a second repair: %v, %d files", err, len(ix.list()))
		}
	}
	if broken < 100 {
		t.Errorf("only %d damages were found", broken)
	}
}

// TestOtherSizes: slots and entries may be set anew; the index is built again with them.
func TestOtherSizes(t *testing.T) {
	log := testLog(0, 40)
	k := newKit(t, 7, 11)
	ix := k.open(0, 0)
	mustFeed(t, ix, log)
	flush(t, ix)
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
	k.c.Slots, k.c.Entries = 13, 20
	ix = k.open(0, 4000)
	if ix.From() != 0 || len(ix.list()) != 0 || !strings.Contains(k.log.String(), "7 slots and 11 entries") {
		t.Fatalf("goes on from %d with %d files\n%s", ix.From(), len(ix.list()), k.log)
	}
	mustFeed(t, ix, log)
	checkSame(t, ix, reference(t, k, log))
}

// TestShorterLog: a log that ends before the point is not the one that was indexed.
func TestShorterLog(t *testing.T) {
	log := testLog(0, 40)
	k := newKit(t, 7, 11)
	ix := k.open(0, 0)
	mustFeed(t, ix, log)
	flush(t, ix)
	if err := ix.Close(); err != nil {
		t.Fatal(err)
	}
	ix = k.open(0, 3999)
	if ix.From() != 0 || !strings.Contains(k.log.String(), "the log ends at 3999") {
		t.Fatalf("goes on from %d\n%s", ix.From(), k.log)
	}
	// Other records follow, at offsets that had others before (RocketMQ skips them).
	other := append(slices.Clone(log[:20]), testLog(2050, 20)...)
	mustFeed(t, ix, other)
	checkFinds(t, ix, other)
	ix.Close()
	// A log that begins later leaves nothing of what was before to be fed.
	k.open(0, 0)
	ix = k.open(700, 9000)
	if ix.From() != 700 {
		t.Fatalf("goes on from %d", ix.From())
	}
}

// TestForeignFiles are left alone.
func TestForeignFiles(t *testing.T) {
	k := newKit(t, 7, 11)
	if err := errors.Join(k.fs.MkdirAll(k.c.Dir+"/folder"), k.fs.WriteFile(k.c.Dir+"/notes.txt", []byte("x")),
		k.fs.WriteFile(k.c.Dir+"/2026113012000000x", nil)); err != nil {
		t.Fatal(err)
	}
	ix := k.open(0, 0)
	mustFeed(t, ix, testLog(0, 10))
	if n := bytes.Count(k.log.Bytes(), []byte("ignoring what is no index file")); n != 3 {
		t.Errorf("told %d times\n%s", n, k.log)
	}
	if n := len(k.fs.Files(k.c.Dir)); n != 2+len(ix.list()) {
		t.Errorf("%d files", n)
	}
}
