package membership

import (
	"fmt"
	"sort"
	"strings"
)

// Decision of Bootstrap.
type Decision uint8

// Decisions.
const (
	// Wait: not now; ask again when members change.
	Wait Decision = iota
	// BootstrapHere: this node bootstraps the group with BootstrapSet, now.
	BootstrapHere
	// NeverHere: this node must never bootstrap.
	NeverHere
)

// String is the decision in words.
func (d Decision) String() string {
	return [...]string{"wait", "bootstrap here", "never here"}[d]
}

// Bootstrap decides, as Consul's bootstrap-expect does, whether this node starts the group's
// first configuration: when expect members of its group are alive, all of them expect the same
// number and nobody has data, the lowest node id of the expect lowest ones does. Whoever has
// data already belongs to a cluster and never bootstraps, and nobody bootstraps while any
// known member has: nodes that were wiped wait to be added by those that still hold the data.
//
// It is a pure function. The caller asks again whenever members change. All first nodes must
// be configured with the number of them: with more nodes than that, two of which see
// different parts of the rest, no rule that looks at gossip alone could be safe.
func Bootstrap(self Tags, members []Member, expect int) (decision Decision, reason string) {
	if self.HasData || self.ClusterID != "" {
		return NeverHere, "this node holds data of a cluster and starts with that"
	}
	if expect <= 0 {
		return NeverHere, "bootstrap-expect is 0: this node waits to be added by a cluster's leader"
	}
	var alien []string
	for _, m := range members {
		if m.ClusterName != self.ClusterName || m.Group != self.Group || m.NodeID == self.NodeID {
			continue
		}
		if m.HasData || m.ClusterID != "" {
			// Whatever its state: it may be down, but what it holds must not be forgotten.
			return Wait, fmt.Sprintf("node %s (%s) holds data of a cluster: waiting to be added to that one", m.NodeID, m.State)
		}
		if m.State == Alive && m.BootstrapExpect != 0 && m.BootstrapExpect != expect {
			alien = append(alien, fmt.Sprintf("%s expects %d", m.NodeID, m.BootstrapExpect))
		}
	}
	if len(alien) > 0 {
		return Wait, fmt.Sprintf("bootstrap-expect is %d here but %s: give all first nodes the same number", expect, strings.Join(alien, ", "))
	}
	set, seen := candidates(self, members, expect)
	if seen < expect {
		return Wait, fmt.Sprintf("%d of %d expected nodes are here (%s)", seen, expect, names(set))
	}
	switch first := set[0].NodeID; {
	case first == self.NodeID:
		return BootstrapHere, fmt.Sprintf("all %d expected nodes are here and this one has the lowest id (%s)", expect, names(set))
	default:
		return Wait, fmt.Sprintf("node %s has the lowest id of %s and bootstraps", first, names(set))
	}
}

// BootstrapSet are the nodes of the first configuration, by id: what the node for which
// Bootstrap says BootstrapHere bootstraps with.
func BootstrapSet(self Tags, members []Member, expect int) []Member {
	set, _ := candidates(self, members, expect)
	return set
}

// candidates are the lowest expect ids of those who may form the first configuration, and how many there are.
func candidates(self Tags, members []Member, expect int) (set []Member, seen int) {
	for _, m := range members {
		if m.State == Alive && m.ClusterName == self.ClusterName && m.Group == self.Group && m.BootstrapExpect == expect {
			set = append(set, m)
		}
	}
	sort.Slice(set, func(i, j int) bool { return set[i].NodeID < set[j].NodeID })
	return set[:min(len(set), max(expect, 0))], len(set)
}

func names(ms []Member) string {
	out := make([]string, len(ms))
	for i, m := range ms {
		out[i] = m.NodeID
	}
	return strings.Join(out, " ")
}
