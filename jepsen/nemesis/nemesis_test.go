package nemesis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"raftmq/jepsen/cluster"
)

// argsEnv turns the test binary into a stand-in for the server: it listens on the Raft address.
const argsEnv = "RAFTMQ_TEST_ARGS"

// TestHelperServer is not a test.
func TestHelperServer(t *testing.T) {
	args := strings.Fields(os.Getenv(argsEnv))
	if len(args) == 0 {
		t.Skip("only a helper process")
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	l, err := net.Listen("tcp", args[slices.Index(args, "--raft-address")+1])
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("listening")
	<-term
	l.Close()
}

// startHelpers starts a cluster of helpers, in namespaces if need be.
func startHelpers(t *testing.T, cut bool) *cluster.Cluster {
	t.Helper()
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	script := filepath.Join(dir, "server.sh")
	text := fmt.Sprintf("#!/bin/sh\n%s=\"$*\" exec %q -test.run='^TestHelperServer$'\n", argsEnv, bin)
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	var network cluster.Network
	if cut {
		network, err = cluster.NewNamespaces(3)
		if errors.Is(err, cluster.ErrNoPartitions) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c, err := cluster.New(cluster.Config{Dir: filepath.Join(dir, "c"), Binary: script, Network: network})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := c.StartAll(); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.Nodes() {
		for deadline := time.Now().Add(time.Minute); !strings.Contains(n.LogTail(4096), "listening"); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%s does not listen: %s", n.ID, n.LogTail(4096))
			}
		}
	}
	return c
}

func fault(t *testing.T, name string) Fault {
	t.Helper()
	f, err := Parse(name)
	if err != nil {
		t.Fatal(err)
	}
	return f[0]
}

// strikeAt injects a fault at a node and fails the test if that did not work.
func strikeAt(t *testing.T, name string, c *cluster.Cluster, n *cluster.Node, seed uint64) *wound {
	t.Helper()
	f := fault(t, name)
	if err := f.Available(c.Network()); err != nil {
		t.Skipf("%s: %v", name, err)
	}
	w, err := f.inject(t.Context(), &site{c: c, nodes: c.Nodes(), target: n, rng: rand.New(rand.NewPCG(seed, 1))})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return w
}

func healed(t *testing.T, w *wound) string {
	t.Helper()
	proof, err := w.heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return proof
}

// awaitListening waits until a helper is up after so many starts.
func awaitListening(t *testing.T, n *cluster.Node) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); strings.Count(n.LogTail(1<<20), "listening") < n.Starts(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not listening again")
		}
	}
}

func TestFaultsTakeEffectAndHeal(t *testing.T) {
	c := startHelpers(t, false)
	n := c.Node("n2")
	for _, step := range []struct {
		name, proof string
		hurt        func() bool
	}{
		{"pause", "state T", func() bool { s, _ := n.State(); return s == "T" }},
		{"kill", "signal: killed", func() bool { return !n.Running() }},
		{"kill-majority", "signal: killed", func() bool { return !n.Running() && len(c.RunningAddrs()) == 1 }},
		{"kill-all", "signal: killed", func() bool { return len(c.RunningAddrs()) == 0 }},
		{"stop", "exit status 0", func() bool { return !n.Running() }},
	} {
		pid := n.PID()
		w := strikeAt(t, step.name, c, n, 1)
		if !strings.Contains(w.proof, step.proof) || !step.hurt() || w.nodes[0] != n {
			t.Errorf("%s: %q", step.name, w.proof)
		}
		healed(t, w)
		if len(c.RunningAddrs()) != 3 {
			t.Errorf("%s healed: %d nodes run", step.name, len(c.RunningAddrs()))
		}
		if (n.PID() == pid) != (step.name == "pause") {
			t.Errorf("%s: pid %d before, %d after", step.name, pid, n.PID())
		}
		for _, n := range c.Nodes() {
			awaitListening(t, n)
		}
	}
	if err := fault(t, "isolate").Available(c.Network()); !errors.Is(err, cluster.ErrNoPartitions) {
		t.Errorf("isolate on loopback: %v", err)
	}
}

// A node's CPU and memory are bounded, and a fault that nobody feels is an error.
func TestGroups(t *testing.T) {
	c := startHelpers(t, false)
	n := c.Node("n1")
	for _, name := range []string{"cpu", "memory"} {
		w := strikeAt(t, name, c, n, 1)
		if _, err := w.heal(t.Context()); !errors.Is(err, ErrNoEffect) {
			t.Errorf("%s of a process that does nothing: %v", name, err)
		}
		left, err := filepath.Glob(fmt.Sprintf("%s/*/raftmq-jepsen-%d-*", groupRoot, os.Getpid()))
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	}
}

// The file system is full when the fault says so, and has room again when it is healed.
func TestDiskFull(t *testing.T) {
	c := startHelpers(t, false)
	if err := fault(t, "disk-full").Available(c.Network()); err != nil {
		t.Skip(err)
	}
	ground, err := Prepare(c, NeedsSmallDisks)
	if err != nil {
		t.Skipf("no tmpfs: %v", err)
	}
	defer func() {
		if err := ground.Close(); err != nil {
			t.Error(err)
		}
	}()
	n := c.Node("n3")
	if err := os.WriteFile(filepath.Join(n.DataDir, "x"), make([]byte, 5<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	w := strikeAt(t, "disk-full", c, n, 1)
	if !strings.Contains(w.proof, "no space left") {
		t.Errorf("%q", w.proof)
	}
	healed(t, w)
	if err := os.WriteFile(filepath.Join(n.DataDir, "y"), make([]byte, 5<<20), 0o644); err != nil {
		t.Error(err)
	}
}

// Bits are flipped where something is written, ends are cut off, and everything else stays as it is.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	sound := make([]byte, 1<<20)
	copy(sound[100:], "what is written")
	for seed := range uint64(20) {
		if err := os.WriteFile(path, sound, 0o644); err != nil {
			t.Fatal(err)
		}
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		at, err := writtenByte(f, rand.New(rand.NewPCG(seed, 0)))
		f.Close()
		if err != nil || at >= 0 && (at < 100 || at >= 115) {
			t.Fatalf("seed %d: byte %d, %v", seed, at, err)
		}
		if at < 0 && seed == 0 {
			t.Log("nothing found with seed 0")
		}
	}
	for _, rel := range []string{"store/commitlog/0", "store/consumequeue/T/0/0", "raft/wal/1", "store/lock"} {
		p := filepath.Join(dir, "data", rel)
		if err := errors.Join(os.MkdirAll(filepath.Dir(p), 0o755), os.WriteFile(p, []byte("x"), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	byKind, err := dataFiles(filepath.Join(dir, "data"))
	if err != nil || len(byKind) != 3 || len(byKind["store/consumequeue"]) != 1 || byKind["raft/wal"] == nil {
		t.Errorf("%v, %v", byKind, err)
	}
}

// leaky is a network whose cuts do nothing.
type leaky struct{ cluster.Network }

func (leaky) Cut(int, int) error  { return nil }
func (leaky) Mend(int, int) error { return nil }

// A fault that does not take effect is an error, not a quiet run.
func TestNoEffectIsNoticed(t *testing.T) {
	bare, err := cluster.NewLoopback(2)
	if err != nil {
		t.Fatal(err)
	}
	c, err := cluster.New(cluster.Config{Nodes: 2, Dir: t.TempDir(), Binary: "none", Network: leaky{bare}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", c.Node("n2").Addrs.Raft)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	at := &site{c: c, nodes: c.Nodes(), target: c.Node("n1"), rng: rand.New(rand.NewPCG(1, 1))}
	if _, err := isolate(t.Context(), at); !errors.Is(err, ErrNoEffect) {
		t.Errorf("isolate without effect: %v", err)
	}
	if _, err := fault(t, "kill").inject(t.Context(), at); !errors.Is(err, cluster.ErrNotRunning) {
		t.Errorf("kill of nothing: %v", err)
	}
}

func TestIsolate(t *testing.T) {
	c := startHelpers(t, true)
	n := c.Node("n1")
	seen := map[bool]bool{}
	for seed := uint64(0); len(seen) < 2 && seed < 20; seed++ {
		w := strikeAt(t, "isolate", c, n, seed)
		if !strings.Contains(w.proof, "of 4 links one way 4 connected before") {
			t.Fatalf("isolate: %q", w.proof)
		}
		patience := 10 * time.Second
		if strings.Contains(w.proof, "peers and clients") {
			patience = silence
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		fromClients := c.Network().Probe(ctx, cluster.Host, n.Addrs.Raft) != nil
		cancel()
		if fromClients != strings.Contains(w.proof, "peers and clients") {
			t.Errorf("%q, but clients cut off: %v", w.proof, fromClients)
		}
		seen[fromClients] = true
		healed(t, w)
		allOpen(t, c)
	}
	if len(seen) < 2 {
		t.Error("20 seeds gave only one way of isolating")
	}
}

// allOpen makes sure that every node connects to every other one.
func allOpen(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, a := range c.Nodes() {
		for _, b := range c.Nodes() {
			if a != b && probe(t.Context(), c, link{a, b}, 10*time.Second) != nil {
				t.Fatalf("%s does not reach %s after healing", a.ID, b.ID)
			}
		}
	}
}

// What other faults cut is what they say, and all of it heals.
func TestPartitions(t *testing.T) {
	c := startHelpers(t, true)
	n := c.Node("n2")
	for name, proof := range map[string]string{"halves": "n2 against the others: of 4 links", "ring": "of 2 links", "partial": "between n2 and n", "one-way": "its peers: of 2 links",
		"partial+pause": "pause: process state T"} {
		w := strikeAt(t, name, c, n, 3)
		if !strings.Contains(w.proof, proof) {
			t.Errorf("%s: %q", name, w.proof)
		}
		healed(t, w)
		allOpen(t, c)
	}
}

// Slow links are slow, lossy ones lose, and both are as before when they are healed.
func TestShapedLinks(t *testing.T) {
	c := startHelpers(t, true)
	n := c.Node("n1")
	slow := strikeAt(t, "slow", c, n, 1)
	t.Log(slow.proof)
	t.Log(healed(t, slow))
	allOpen(t, c)
	lossy := strikeAt(t, "loss", c, n, 1)
	shaper := c.Network().(cluster.Shaper)
	for deadline := time.Now().Add(30 * time.Second); shaper.Shaped().Dropped == 0; {
		if time.Now().After(deadline) {
			t.Fatal("nothing is dropped")
		}
		_ = probe(t.Context(), c, link{n, c.Node("n2")}, silence)
	}
	t.Log(lossy.proof, healed(t, lossy))
	allOpen(t, c)
}

func TestParse(t *testing.T) {
	got, err := Parse("kill, pause,isolate,stop")
	if err != nil || len(got) != 4 || got[2].Name != "isolate" {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "kill,", "earthquake", "kill+earthquake"} {
		if _, err := Parse(bad); err == nil || !strings.Contains(err.Error(), "known are kill, kill-minority") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// A run may be called void only if nothing but the fault failed.
func TestWorse(t *testing.T) {
	plain, none := errors.New("plain"), fmt.Errorf("a %w", ErrNoEffect)
	for _, c := range []struct {
		a, b error
		void bool
	}{{nil, none, true}, {none, nil, true}, {none, none, true}, {none, plain, false}, {plain, none, false}, {plain, plain, false}} {
		if got := worse(c.a, c.b); got == nil || errors.Is(got, ErrNoEffect) != c.void {
			t.Errorf("%v and %v: %v", c.a, c.b, got)
		}
	}
	if err := worse(nil, nil); err != nil {
		t.Error(err)
	}
}
