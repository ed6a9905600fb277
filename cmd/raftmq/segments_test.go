package main

import (
	"errors"
	"testing"
)

// TestSegmentSumIsTheMajoritysOfAllVoters: those that could not be asked count against every checksum.
func TestSegmentSumIsTheMajoritysOfAllVoters(t *testing.T) {
	for _, tt := range []struct {
		sums   []uint32
		voters int
		want   uint32
		ok     bool
	}{
		{[]uint32{7}, 1, 7, true},
		{[]uint32{7, 7, 7}, 3, 7, true},
		{[]uint32{8, 7, 7}, 3, 7, true},
		{[]uint32{7, 7}, 3, 7, true},
		{[]uint32{7}, 3, 0, false},
		{[]uint32{7, 8}, 3, 0, false},
		{[]uint32{7, 7}, 4, 0, false},
		{[]uint32{7, 8, 7, 8}, 4, 0, false},
		{[]uint32{0, 8, 0, 8, 0}, 5, 0, true},
		{nil, 3, 0, false},
	} {
		got, err := agreed(tt.sums, tt.voters)
		if got != tt.want || (err == nil) != tt.ok || err != nil && !errors.Is(err, errNoAgreement) {
			t.Errorf("%v of %d voters: %d, %v", tt.sums, tt.voters, got, err)
		}
	}
}

// TestDisagreementIsToldOnceWhileItLasts: one that has ended and comes back is news again.
func TestDisagreementIsToldOnceWhileItLasts(t *testing.T) {
	d := disagreements{}
	for i, step := range []struct {
		segment int64
		err     error
		news    bool
	}{
		{0, errNoAgreement, true}, {0, errNoAgreement, false}, {100, errNoAgreement, true}, {100, nil, false}, {0, errNoAgreement, false}, {100, errNoAgreement, true},
		{0, nil, false}, {0, nil, false}, {0, errNoAgreement, true},
	} {
		if got := d.news(step.segment, step.err); got != step.news {
			t.Errorf("step %d: %t", i, got)
		}
	}
	if d.below(100); d[0] || !d[100] {
		t.Errorf("below 100: %v", d)
	}
}
