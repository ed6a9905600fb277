package nemesis

import (
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"raftmq/jepsen/cluster"
	"raftmq/jepsen/faultfs"
)

func testCluster(t *testing.T) *cluster.Cluster {
	t.Helper()
	c, err := cluster.New(cluster.Config{Dir: t.TempDir(), Binary: "none"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Each illness hits what it says and nothing else.
func TestIllnesses(t *testing.T) {
	type outcome struct {
		errno syscall.Errno
		hit   bool
	}
	probes := []struct {
		op   faultfs.Op
		path string
	}{{faultfs.Write, "raft/wal/1"}, {faultfs.Sync, "raft/wal/1"}, {faultfs.Write, "store/commitlog/0"}, {faultfs.Sync, "store/commitlog/0"},
		{faultfs.Allocate, "store/commitlog/1"}, {faultfs.Name, "store/commitlog/1"}, {faultfs.Write, "raft/probe/1"}}
	no, all := outcome{}, outcome{syscall.EIO, true}
	for _, c := range []struct {
		what string
		fall func(*rand.Rand, <-chan struct{}) illness
		want []outcome
	}{
		{"EIO for all", ioErrors, []outcome{all, all, all, all, all, all, all}},
		{"EIO for the Raft log", ioErrors, []outcome{all, all, no, no, no, no, all}},
		{"EIO for every sync", ioErrors, []outcome{no, all, no, all, no, no, no}},
		{"ENOSPC", noSpace, []outcome{{syscall.ENOSPC, true}, no, {syscall.ENOSPC, true}, no, {syscall.ENOSPC, true}, no, {syscall.ENOSPC, true}}},
		{"EROFS", readOnly, slices.Repeat([]outcome{{syscall.EROFS, true}}, len(probes))},
		{"each sync takes", slowSyncs, []outcome{no, {0, true}, no, {0, true}, no, no, no}},
	} {
		t.Run(c.what, func(t *testing.T) {
			var ill illness
			for seed := uint64(0); !strings.HasPrefix(ill.what, c.what); seed++ { // which one is drawn
				ill = c.fall(rand.New(rand.NewPCG(seed, 0)), nil)
				if seed == 100 {
					t.Fatalf("never drawn, last %q", ill.what)
				}
			}
			for i, p := range probes {
				began := time.Now()
				got := outcome{hit: ill.hits(p.op, p.path)}
				if got.hit {
					got.errno = ill.hurt()
				}
				if got != c.want[i] {
					t.Errorf("%s %s: %+v, want %+v", p.op, p.path, got, c.want[i])
				}
				if slow := c.want[i] == (outcome{0, true}); slow && time.Since(began) < 50*time.Millisecond {
					t.Errorf("%s %s took %v", p.op, p.path, time.Since(began))
				}
			}
		})
	}
}

// A sync that hangs ends when the illness does.
func TestStall(t *testing.T) {
	over, done := make(chan struct{}), make(chan struct{})
	ill := stall(nil, over)
	if ill.hits(faultfs.Write, "x") || !ill.hits(faultfs.Sync, "x") {
		t.Error("not the syncs")
	}
	go func() {
		defer close(done)
		if errno := ill.hurt(); errno != 0 {
			t.Errorf("a sync: %v", errno)
		}
	}()
	select {
	case <-done:
		t.Error("it did not hang")
	case <-time.After(20 * time.Millisecond):
	}
	close(over)
	<-done
}

// A disk that was never asked for anything is no proof.
func TestBadDiskWithoutEffect(t *testing.T) {
	c := testCluster(t)
	n := c.Node("n1")
	f := badDisk(readOnly)
	s := &site{c: c, nodes: c.Nodes(), target: n, rng: rand.New(rand.NewPCG(1, 1))}
	if _, err := f(t.Context(), s); err == nil {
		t.Error("a disk that there is not fails")
	}
	g, err := Prepare(c, NeedsBadDisks)
	if errors.Is(err, faultfs.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}()
	s.disks = g.disks
	w, err := f(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.heal(t.Context()); !errors.Is(err, ErrNoEffect) {
		t.Errorf("healed: %v", err)
	}
}

func TestPrepare(t *testing.T) {
	c := testCluster(t)
	for _, needs := range []Needs{NeedsBadDisks | NeedsSmallDisks, NeedsBadDisks | needsFiles} {
		if _, err := Prepare(c, needs); !errors.Is(err, errClash) {
			t.Errorf("needs %b: %v", needs, err)
		}
	}
	g, err := Prepare(c, NeedsClocks|NeedsLinks)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes() {
		if b, err := os.ReadFile(clockFile(n)); err != nil || string(b) != "raftmq-test-clock 0s" || !slices.Contains(n.Flags, clockFile(n)) {
			t.Errorf("%s: clock %q, flags %v, %v", n.ID, b, n.Flags, err)
		}
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
}

// Where all nodes are members none can join.
func TestGrowNeedsASpare(t *testing.T) {
	c := testCluster(t)
	if _, err := grow(t.Context(), &site{c: c, nodes: c.Nodes()}); !errors.Is(err, errNoSpare) {
		t.Errorf("%v", err)
	}
	for _, f := range Faults() {
		if (f.Needs&NeedsSpares != 0) != (f.Name == "grow") {
			t.Errorf("%s needs spares: %b", f.Name, f.Needs)
		}
	}
}
