// Package nemesis hurts a cluster on purpose: processes, links, disks, memory, CPU, membership. It chooses at random, leaders
// preferred, makes sure that each fault took effect, and heals it again.
//
// Randomness comes from a seed, so that a run's plan can be repeated; the cluster's timing can't.
package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"

	"raftmq/jepsen/cluster"
	"raftmq/jepsen/faultfs"
)

// ErrNoEffect: a fault was injected and did not take effect; the run proves nothing.
var ErrNoEffect = errors.New("nemesis: fault took no effect")

// Fault is one kind of fault.
type Fault struct {
	Name, About string
	// Needs is what it needs of the machine and of the run.
	Needs Needs
	// isolates is set where the nodes that are hit can do nothing but campaign.
	isolates bool
	inject   func(ctx context.Context, s *site) (*wound, error)
}

// Needs is what a fault needs.
type Needs uint16

// What faults need. A run prepares it, or leaves the fault out and says so.
const (
	NeedsLinks      Needs = 1 << iota // a network whose links can be cut
	NeedsSlow                         // one whose links can be made slow
	NeedsSmallDisks                   // data folders on file systems of limited size
	NeedsGroups                       // control groups
	NeedsBadDisks                     // data folders on disks that fail when they are told to
	NeedsClocks                       // nodes whose clocks can be moved
	NeedsSpares                       // nodes that are no members yet
	needsFiles                        // data folders that this program may read and change
	NeedsSeam                         // servers that were built with the seam and keep a shadow
	NeedsLog                          // messages in the commit log
)

// Names are the needs in words.
func (n Needs) Names() (names []string) {
	for i, name := range []string{"root and iproute2", "root and tap devices", "root and tmpfs", "root and control groups", "root and /dev/fuse", "", "two more nodes", "", "servers with the seam"} {
		if n&(1<<i) != 0 && name != "" {
			names = append(names, name)
		}
	}
	return names
}

// site is where a fault strikes.
type site struct {
	c      *cluster.Cluster
	nodes  []*cluster.Node // those that ran when the fault began: not the spares
	disks  map[*cluster.Node]*faultfs.Disk
	target *cluster.Node
	rng    *rand.Rand
}

// others are k nodes besides the target, at random.
func (s *site) others(k int) (nodes []*cluster.Node) {
	all := s.nodes
	for _, i := range s.rng.Perm(len(all)) {
		if all[i] != s.target && len(nodes) < k {
			nodes = append(nodes, all[i])
		}
	}
	return nodes
}

// wound is an injected fault.
type wound struct {
	nodes []*cluster.Node // that were hit
	proof string          // how it is known to have worked
	// heal undoes it and returns what is to be added to the proof; the cluster may take a while to recover. nil: nothing to undo.
	heal func(ctx context.Context) (string, error)
}

// Faults are all kinds.
func Faults() []Fault {
	return []Fault{
		{Name: "kill", About: "SIGKILL of one node", inject: kill(func(int) int { return 1 })},
		{Name: "kill-minority", About: "SIGKILL of as many as the others can do without", inject: kill(func(n int) int { return (n - 1) / 2 })},
		{Name: "kill-majority", About: "SIGKILL of more than half", inject: kill(func(n int) int { return n/2 + 1 })},
		{Name: "kill-all", About: "SIGKILL of all", inject: kill(func(n int) int { return n })},
		{Name: "stop", About: "SIGTERM of one node, which ends in order", inject: stop},
		{Name: "rolling", About: "SIGTERM and start of one node after the other", inject: rolling},
		{Name: "pause", About: "SIGSTOP of one node: connections stay open, nothing is answered", inject: pause},
		{Name: "isolate", About: "one node is cut off from its peers, every other time from the clients too", Needs: NeedsLinks, isolates: true, inject: isolate},
		{Name: "halves", About: "the nodes are cut into a majority and a minority", Needs: NeedsLinks, isolates: true, inject: halves},
		{Name: "ring", About: "each node reaches its two neighbours only (of three nodes: one link is cut)", Needs: NeedsLinks, inject: ring},
		{Name: "partial", About: "one link between two nodes is cut", Needs: NeedsLinks, inject: partial},
		{Name: "one-way", About: "a node hears its peers and is not heard, or the reverse", Needs: NeedsLinks, inject: oneWay},
		{Name: "slow", About: "a node's links get 20 to 200 ms of delay", Needs: NeedsSlow, inject: slow},
		{Name: "loss", About: "a node's links lose 5 to 30 % of the packets", Needs: NeedsSlow, inject: lossy},
		{Name: "clock-step", About: "one node's clock is put forward or back by 5 s, a minute or an hour, and back again", Needs: NeedsClocks, inject: clockStep},
		{Name: "clock-drift", About: "one node's clock runs at half to twice the speed", Needs: NeedsClocks, inject: clockDrift},
		{Name: "transfer", About: "leadership is handed over", inject: transfer},
		{Name: "wipe", About: "SIGKILL of one node, which comes back without its data", Needs: needsFiles, inject: wipe},
		{Name: "shrink", About: "one node leaves the cluster for good; an empty one of its name joins", Needs: needsFiles, inject: shrink},
		{Name: "replace", About: "SIGKILL of one node, which is removed from the cluster; an empty one of its name joins", Needs: needsFiles, inject: replace},
		{Name: "grow", About: "another node joins the cluster, and leaves again", Needs: NeedsSpares | needsFiles, inject: grow},
		{Name: "flip", About: "bits of a minority's files are flipped while it is down", Needs: needsFiles, inject: flip},
		{Name: "truncate", About: "ends of a minority's files are cut off while it is down", Needs: needsFiles, inject: truncate},
		{Name: "power", About: "one node loses power: pages that it had not flushed are old, new or torn", Needs: NeedsSeam | needsFiles, inject: power(func(int) int { return 1 })},
		{Name: "power-majority", About: "more than half lose power at once", Needs: NeedsSeam | needsFiles, inject: power(func(n int) int { return n/2 + 1 })},
		{Name: "power-all", About: "all lose power at once", Needs: NeedsSeam | needsFiles, inject: power(func(n int) int { return n })},
		{Name: "rot", About: "bits of one node's commit log flip while it serves; later it is killed and started", Needs: needsFiles | NeedsLog, inject: rot},
		{Name: "raft-rot", About: "a minority misses messages; then a bit of what another node has written to its Raft log meanwhile flips while all are down, and only these start at first", Needs: needsFiles, inject: raftRot},
		{Name: "disk-full", About: "one node's file system has no room left", Needs: NeedsSmallDisks, inject: diskFull},
		{Name: "no-space", About: "writes of one node fail for want of space, in the middle of whatever it does", Needs: NeedsBadDisks, inject: badDisk(noSpace)},
		{Name: "eio", About: "one node's disk fails: all of it, its Raft log, or its syncs", Needs: NeedsBadDisks, inject: badDisk(ioErrors)},
		{Name: "stall", About: "one node's syncs hang", Needs: NeedsBadDisks, inject: badDisk(stall)},
		{Name: "slow-sync", About: "each of one node's syncs takes 50 to 500 ms more", Needs: NeedsBadDisks, inject: badDisk(slowSyncs)},
		{Name: "read-only", About: "one node's file system becomes read-only", Needs: NeedsBadDisks, inject: badDisk(readOnly)},
		{Name: "cpu", About: "one node gets 5 to 20 % of a CPU", Needs: NeedsGroups, inject: starve},
		{Name: "memory", About: "one node gets little memory more than it has", Needs: NeedsGroups, inject: squeeze},
	}
}

// Parse reads a list of faults separated by commas. Faults that are joined by + strike at the same time, each where it likes.
func Parse(list string) ([]Fault, error) {
	var out []Fault
	for name := range strings.SplitSeq(list, ",") {
		f, err := parse(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

func parse(name string) (Fault, error) {
	var parts []Fault
	for part := range strings.SplitSeq(name, "+") {
		f, ok := named(part)
		if !ok {
			var names []string
			for _, f := range Faults() {
				names = append(names, f.Name)
			}
			return Fault{}, fmt.Errorf("nemesis: unknown fault %q, known are %s", part, strings.Join(names, ", "))
		}
		parts = append(parts, f)
	}
	if len(parts) == 1 {
		return parts[0], nil
	}
	return together(name, parts), nil
}

func named(name string) (Fault, bool) {
	for _, f := range Faults() {
		if f.Name == name {
			return f, true
		}
	}
	return Fault{}, false
}

// together is all of some faults at the same time. Each strikes nodes that no other has hit yet, as long as there are some.
func together(name string, parts []Fault) Fault {
	all := Fault{Name: name, About: "all at the same time"}
	for _, f := range parts {
		all.Needs |= f.Needs
	}
	all.inject = func(ctx context.Context, s *site) (*wound, error) {
		w := &wound{}
		var heals []func(context.Context) (string, error)
		w.heal = func(ctx context.Context) (proof string, err error) {
			for i := len(heals) - 1; i >= 0; i-- {
				p, herr := heals[i](ctx)
				err = errors.Join(err, herr)
				if p != "" {
					proof += "; " + p
				}
			}
			return strings.TrimPrefix(proof, "; "), err
		}
		at := *s
		for i, f := range parts {
			if i > 0 {
				at.target = s.fresh(w.nodes)
			}
			one, err := f.inject(ctx, &at)
			if one != nil {
				w.nodes = append(w.nodes, one.nodes...)
				w.proof = strings.TrimPrefix(w.proof+"; "+f.Name+": "+one.proof, "; ")
				if one.heal != nil {
					heals = append(heals, one.heal)
				}
			}
			if err != nil {
				return w, err
			}
		}
		return w, nil
	}
	return all
}

// fresh is a node that is not among those that were hit, or any if all were.
func (s *site) fresh(hit []*cluster.Node) *cluster.Node {
	all := s.nodes
	order := s.rng.Perm(len(all))
next:
	for _, i := range order {
		for _, h := range hit {
			if h == all[i] {
				continue next
			}
		}
		return all[i]
	}
	return all[order[0]]
}

// Available says why a fault can't be had on this machine, nil if it can.
func (f Fault) Available(net cluster.Network) error {
	if f.Needs&(NeedsLinks|NeedsSlow) != 0 {
		if err := net.Cut(1, 2); err != nil {
			return err
		}
		if err := net.Mend(1, 2); err != nil {
			return err
		}
	}
	if f.Needs&NeedsSlow != 0 {
		if _, ok := net.(cluster.Shaper); !ok {
			return errors.New("nemesis: this network has no slow links")
		}
	}
	if f.Needs&NeedsSmallDisks != 0 && os.Geteuid() != 0 {
		return errors.New("nemesis: mounting a file system needs root")
	}
	if f.Needs&NeedsBadDisks != 0 {
		if err := faultfs.Available(); err != nil {
			return err
		}
	}
	if f.Needs&NeedsGroups != 0 {
		return groupsAvailable()
	}
	return nil
}
