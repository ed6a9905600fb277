package store

import (
	"os"
	"testing"
)

// TestScrubRebuildsADamagedKeyIndex: a flipped bit in a full index file that no query has met is found by the scrub; the file is built again from the log, byte for byte.
func TestScrubRebuildsADamagedKeyIndex(t *testing.T) {
	leakCheck(t)
	cfg := quiet(t, t.TempDir())
	cfg.Logger = nil
	cfg.ScrubRate = 1 << 40
	s := open(t, cfg)
	m := fill(t, s, 7, 300)
	waitIndexed(t, s)
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	want := contents(t, cfg.Dir)
	files := indexFiles(t, cfg.Dir)
	if len(files) < 2 {
		t.Fatalf("%d index files", len(files))
	}
	f, err := os.OpenFile(files[0], os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := int64(40 + 4*testSlots + 20*5 + 2) // in the hash of an entry
	b := make([]byte, 1)
	if _, err := f.ReadAt(b, at); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 1
	if _, err := f.WriteAt(b, at); err != nil {
		t.Fatal(err)
	}
	s.ScrubNow()
	eventually(t, "the scrub finds it", func() bool { return s.ScrubStats().IndexRepairs == 1 })
	eventually(t, "the index is built again", func() bool { return len(indexFiles(t, cfg.Dir)) == len(files) })
	waitIndexed(t, s)
	if err := s.FlushAll(); err != nil {
		t.Fatal(err)
	}
	sameContents(t, contents(t, cfg.Dir), want)
	m.checkKeys(t, s)
	passes := s.ScrubStats().Passes
	s.ScrubNow()
	eventually(t, "another pass", func() bool { return s.ScrubStats().Passes > passes })
	if n := s.ScrubStats().IndexRepairs; n != 1 {
		t.Errorf("%d repairs of one flipped bit", n)
	}
}
