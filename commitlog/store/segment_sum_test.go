package store

import (
	"errors"
	"testing"
)

// TestSegmentSumOfAnInstalledSegmentIsTheScrubs: its bytes are read at the scrub's pace, or, without a scrub, at once; of what was applied the journal tells at once.
func TestSegmentSumOfAnInstalledSegmentIsTheScrubs(t *testing.T) {
	leakCheck(t)
	history := randomEntries(15, 200)
	peer := open(t, quiet(t, t.TempDir()))
	for i, commands := range history {
		apply(t, peer, uint64(i+1), commands...)
	}
	settle(t, peer)
	at := peer.Position()
	if at.LogEnd < 3*testSegment {
		t.Fatalf("a log of %d bytes", at.LogEnd)
	}
	if from, err := peer.AppliedFrom(); from != 0 || err != nil {
		t.Errorf("a log without an installation is applied from %d, %v", from, err)
	}
	cfg := quiet(t, t.TempDir())
	cfg.ScrubRate = 1 // nothing is read in this test's time, but for what is asked
	s := open(t, cfg)
	eventually(t, "the scrub has found nothing yet, and rests", func() bool { return s.ScrubStats().Passes > 0 })
	install(t, s, peer, 0, at, 1<<20)
	if from, err := s.AppliedFrom(); from != at.LogEnd || err != nil {
		t.Errorf("an installed log up to %d is applied from %d, %v", at.LogEnd, from, err)
	}
	want, err := peer.SegmentSum(testSegment)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.SegmentSum(testSegment); !errors.Is(err, ErrUnsummed) {
		t.Errorf("before the scrub: %v", err)
	}
	if got, err := s.LogSum(testSegment, 2*testSegment); got != want || err != nil {
		t.Errorf("read at once: %08x, %v; want %08x", got, err, want)
	}
	s.noteSum(testSegment, want)
	if got, err := s.SegmentSum(testSegment); got != want || err != nil {
		t.Errorf("behind the scrub: %08x, %v; want %08x", got, err, want)
	}
	s.scrubber.forgetSums(testSegment+5, testSegment+6, testSegment)
	if _, err := s.SegmentSum(testSegment); !errors.Is(err, ErrUnsummed) {
		t.Errorf("after a repair: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	cfg.ScrubRate = 1 << 40
	s = open(t, cfg)
	s.ScrubNow()
	eventually(t, "the scrub has read it", func() bool { got, err := s.SegmentSum(testSegment); return err == nil && got == want })
	if from, err := s.AppliedFrom(); from != at.LogEnd || err != nil {
		t.Errorf("after a restart it is applied from %d, %v", from, err)
	}
}
