package store

import (
	"math/rand/v2"
	"testing"
)

// TestProperty compares the store with plain slices: random topics, queues and sizes, small
// segments, opened again at random.
func TestProperty(t *testing.T) {
	for seed := range uint64(3) {
		leakCheck(t)
		cfg := testConfig(t, t.TempDir())
		if seed > 0 {
			cfg.FS = lazyFS{}
		}
		rnd := rand.New(rand.NewPCG(seed, 1))
		s := open(t, cfg)
		m := newModel()
		var index uint64
		var last int64
		history := randomEntries(seed, 300)
		for i := 0; i < len(history); i++ {
			index++
			got := apply(t, s, index, history[i]...)
			var err error
			if last, err = m.add(last, history[i], got); err != nil {
				t.Fatal(err)
			}
			if rnd.IntN(3) == 0 {
				s.Publish()
			}
			if rnd.IntN(40) > 0 {
				continue
			}
			settle(t, s)
			m.check(t, s)
			if rnd.IntN(2) == 0 {
				if err := s.FlushAll(); err != nil {
					t.Fatal(err)
				}
			}
			position := s.Position()
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = open(t, cfg)
			if r := s.Recovered(); r.RaftIndex != index || r.LogEnd != position.LogEnd {
				t.Fatalf("recovered %+v, want index %d, log end %d", r, index, position.LogEnd)
			}
			m.check(t, s)
			if rnd.IntN(2) == 0 { // from a snapshot
				if err := s.Restore(position); err != nil {
					t.Fatal(err)
				}
			} else { // replay of everything
				for k := range i + 1 {
					apply(t, s, uint64(k+1), history[k]...)
				}
				s.Publish()
			}
			m.check(t, s)
		}
		settle(t, s)
		m.check(t, s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
