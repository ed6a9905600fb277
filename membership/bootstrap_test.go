package membership

import (
	"strings"
	"testing"
)

func TestBootstrap(t *testing.T) {
	m := func(id string, change ...func(*Member)) Member {
		x := Member{Tags: tags(id), State: Alive}
		for _, c := range change {
			c(&x)
		}
		return x
	}
	state := func(s State) func(*Member) { return func(x *Member) { x.State = s } }
	data := func(x *Member) { x.HasData = true }
	id := func(x *Member) { x.ClusterID = "id" }
	expects := func(n int) func(*Member) { return func(x *Member) { x.BootstrapExpect = n } }
	otherGroup := func(x *Member) { x.Group = "h" }
	otherCluster := func(x *Member) { x.ClusterName = "D" }

	tests := []struct {
		name    string
		self    Member
		others  []Member
		expect  int
		want    Decision
		says    string
		wantSet string
	}{
		{"alone of three", m("n1"), nil, 3, Wait, "1 of 3", "n1"},
		{"two of three", m("n1"), []Member{m("n2")}, 3, Wait, "2 of 3", "n1 n2"},
		{"lowest of three", m("n1"), []Member{m("n3"), m("n2")}, 3, BootstrapHere, "lowest id", "n1 n2 n3"},
		{"not the lowest", m("n2"), []Member{m("n1"), m("n3")}, 3, Wait, "node n1", "n1 n2 n3"},
		{"one of one", m("n1", expects(1)), nil, 1, BootstrapHere, "lowest id", "n1"},
		{"more than expected, the lowest ones form it", m("n1"), []Member{m("n4"), m("n3"), m("n2")}, 3, BootstrapHere, "n1 n2 n3", "n1 n2 n3"},
		{"more than expected, this one is not among them", m("n4"), []Member{m("n1"), m("n2"), m("n3")}, 3, Wait, "n1 n2 n3", "n1 n2 n3"},
		{"expect 0", m("n1", expects(0)), []Member{m("n2"), m("n3")}, 0, NeverHere, "added", ""},
		{"own data", m("n1", data), []Member{m("n2"), m("n3")}, 3, NeverHere, "holds data", "n1 n2 n3"},
		{"own cluster id", m("n1", id), []Member{m("n2"), m("n3")}, 3, NeverHere, "holds data", "n1 n2 n3"},
		{"F57: another has data", m("n1"), []Member{m("n2"), m("n3", data)}, 3, Wait, "n3 (alive) holds data", "n1 n2 n3"},
		{"F57: another has a cluster id", m("n1"), []Member{m("n2"), m("n3", id)}, 3, Wait, "n3 (alive) holds data", "n1 n2 n3"},
		{"F57: a failed one has data", m("n1"), []Member{m("n2"), m("n3"), m("n4", data, state(Failed))}, 3, Wait, "n4 (failed) holds data", "n1 n2 n3"},
		{"F57: one that left has data", m("n1"), []Member{m("n2"), m("n3"), m("n4", data, state(Left))}, 3, Wait, "n4 (left) holds data", "n1 n2 n3"},
		{"failed ones don't count", m("n1"), []Member{m("n2"), m("n3", state(Failed))}, 3, Wait, "2 of 3", "n1 n2"},
		{"suspects don't count", m("n1"), []Member{m("n2"), m("n3", state(Suspect))}, 3, Wait, "2 of 3", "n1 n2"},
		{"left ones don't count", m("n1"), []Member{m("n2"), m("n3", state(Left))}, 3, Wait, "2 of 3", "n1 n2"},
		{"another expects another number", m("n1"), []Member{m("n2"), m("n3", expects(5))}, 3, Wait, "n3 expects 5", "n1 n2"},
		{"another number, though enough without it", m("n1"), []Member{m("n2"), m("n3"), m("n4", expects(5))}, 3, Wait, "n4 expects 5", "n1 n2 n3"},
		{"a failed one expected another number", m("n1"), []Member{m("n2"), m("n3"), m("n4", expects(5), state(Failed))}, 3, BootstrapHere, "", "n1 n2 n3"},
		{"one that waits to be added doesn't count", m("n2"), []Member{m("n1", expects(0)), m("n3")}, 3, Wait, "2 of 3", "n2 n3"},
		{"another group is not asked", m("n1"), []Member{m("n2"), m("n3", otherGroup), m("n4", otherGroup, data)}, 3, Wait, "2 of 3", "n1 n2"},
		{"another cluster is not asked", m("n1"), []Member{m("n2"), m("n3"), m("n0", otherCluster, data)}, 3, BootstrapHere, "", "n1 n2 n3"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			members := append([]Member{tt.self}, tt.others...)
			got, reason := Bootstrap(tt.self.Tags, members, tt.expect)
			if got != tt.want || !strings.Contains(reason, tt.says) {
				t.Errorf("%s: %s; want %s: …%s…", got, reason, tt.want, tt.says)
			}
			if set := names(BootstrapSet(tt.self.Tags, members, tt.expect)); set != tt.wantSet {
				t.Errorf("set %q, want %q", set, tt.wantSet)
			}
			if members[0].NodeID != tt.self.NodeID {
				t.Error("the caller's members were moved")
			}
		})
	}
}

// Whatever part of the members a node sees, only one of those that see them all bootstraps.
func TestOnlyOneBootstraps(t *testing.T) {
	all := []Member{{Tags: tags("n1"), State: Alive}, {Tags: tags("n2"), State: Alive}, {Tags: tags("n3"), State: Alive}}
	here := 0
	for seen := range 1 << 3 {
		for self := range 3 {
			if seen&(1<<self) == 0 {
				continue
			}
			var members []Member
			for i, m := range all {
				if seen&(1<<i) != 0 {
					members = append(members, m)
				}
			}
			if d, _ := Bootstrap(all[self].Tags, members, 3); d == BootstrapHere {
				here++
			}
		}
	}
	if here != 1 {
		t.Errorf("%d bootstrap", here)
	}
}
