package e2e

import (
	"errors"
	"testing"
	"time"
)

// TestGap: calls that were under way, that were begun after, and that failed are told apart.
func TestGap(t *testing.T) {
	change := time.Now()
	at := func(seconds int) time.Time { return change.Add(time.Duration(seconds) * time.Second) }
	refused := errors.New("refused")
	c := calls{list: []call{
		{at(-3), at(-2), nil},
		{at(-1), at(3), errors.New("hung")}, // under way
		{at(-1), at(4), nil},
		{at(1), at(2), refused},
		{at(1), at(6), nil},
		{at(5), at(7), nil},
		{at(-9), at(-8), refused}, // long before
	}}
	want := gap{after: 6 * time.Second, longest: 6 * time.Second, hanging: 2, hung: 4 * time.Second, slowest: 5 * time.Second, failed: 2, failure: "refused"}
	if got := c.gap(change); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if o, ok := c.failure(change); !ok || o.begin != at(1) {
		t.Errorf("%v %v", o, ok)
	}
	if !c.succeeded(at(4)) || c.succeeded(at(5)) {
		t.Error("the newest success was begun after 5 s")
	}
	if got := (&calls{}).gap(change); got != (gap{after: -1}) {
		t.Errorf("of nothing: %+v", got)
	}
}
