package inspect

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// covered lists the stretches of a store's files in which every bit means something.
func covered(t *testing.T, dir string) (list []stretch) {
	t.Helper()
	s := open(t, dir)
	_, sum := verifyStore(t, s)
	if s.Format == RaftMQ { // the journal covers each byte of the log
		for _, seg := range s.Segments {
			if n := min(seg.Size, sum.LogEnd-seg.From); n > 0 {
				list = append(list, stretch{seg.Path, 0, n})
			}
		}
		for _, r := range journalOf(t, s) {
			list = append(list, stretch{r.File, r.Offset, journalSize})
		}
		list = append(list, stretch{recoveryPointName, 0, 64})
	}
	for i := range s.Queues {
		for _, u := range units(t, s, s.Queues[i].Topic, s.Queues[i].ID) {
			list = append(list, stretch{u.File, u.Offset, 20})
		}
	}
	files, err := s.IndexFiles()
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		if f.entries() == 0 {
			continue
		}
		first := f.entryAt(1)
		if i == 0 { // its first entry may count from a file that was deleted: its seconds mean nothing
			list = append(list, stretch{f.Path, first, 12})
			first = f.entryAt(2) - 4
		}
		list = append(list, stretch{f.Path, 0, f.entryAt(0)}, stretch{f.Path, first, f.entryAt(f.entries()+1) - first})
	}
	return list
}

// stretch is a part of a file.
type stretch struct {
	file  string
	at, n int64
}

// TestEveryBit: one bit changed anywhere in the log of RaftMQ, in units or in the index is found, and where it is.
func TestEveryBit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	n := 100
	if testing.Short() {
		n = 50
	}
	for name, dir := range map[string]string{"raftmq": closedStore(t, 80), "4.9.4": unpack(t, "4.9.4-clean"), "5.3.3": unpack(t, "5.3.3-clean"), "ext": unpack(t, "4.9.4-ext")} {
		list := covered(t, dir)
		for range n {
			// Each kind of file as often as the others.
			kind := []string{"commitlog", "journal", "consumequeue", "index"}[rnd.IntN(4)]
			var some []stretch
			for _, s := range list {
				if strings.HasPrefix(s.file, kind) {
					some = append(some, s)
				}
			}
			if len(some) == 0 {
				continue
			}
			s := some[rnd.IntN(len(some))]
			at, bit := s.at+rnd.Int64N(s.n), byte(1)<<rnd.IntN(8)
			path := filepath.Join(dir, s.file)
			old := peek(t, path, at, 1)
			poke(t, path, at, []byte{old[0] ^ bit})
			found, _ := verify(t, dir)
			phy := nameOffset(filepath.Base(s.file)) + at
			if !slices.ContainsFunc(found, func(f Finding) bool {
				// An entry of the journal may begin in the segment before.
				inEntry := f.Kind == KindJournalBytes && kind == "commitlog" && f.PhyOffset <= phy && phy < f.PhyOffset+f.Length
				// A node that was killed may have left the newest index file's header behind: that is no damage.
				header := f.Kind == KindIndexHeader && name == "raftmq"
				return (!f.Notice || header) && (f.File == s.file || inEntry)
			}) {
				t.Errorf("%s: bit %#02x of %s at %d: %v", name, bit, s.file, at, found)
			}
			poke(t, path, at, old)
		}
	}
}
