package seam

import (
	"slices"
	"testing"
)

// A server without the tag has no seam, whatever its environment says. (Package e2e looks into the executables.)
func TestOffWithoutTag(t *testing.T) {
	if Built {
		t.Skip("built with the tag " + Tag)
	}
	t.Setenv(BugEnv, string(DoubleSend))
	t.Setenv(ShadowEnv, t.TempDir())
	for _, b := range Bugs() {
		if On(b) || Often(b, 1) {
			t.Errorf("%s is planted", b)
		}
	}
	if Shadow() != "" {
		t.Error("there is a shadow")
	}
	if n := testing.AllocsPerRun(100, func() {
		if On(DoubleSend) || Often(ReuseOffset, 100) {
			t.Error("planted")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestBugsAreDistinct(t *testing.T) {
	all := Bugs()
	slices.Sort(all)
	if len(slices.Compact(all)) != len(Bugs()) || len(all) < 12 {
		t.Errorf("%d bugs, %d different", len(Bugs()), len(all))
	}
}
