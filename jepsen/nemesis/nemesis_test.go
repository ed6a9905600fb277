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
		for deadline := time.Now().Add(10 * time.Second); !strings.Contains(n.LogTail(4096), "listening"); time.Sleep(5 * time.Millisecond) {
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

func TestFaultsTakeEffectAndHeal(t *testing.T) {
	c := startHelpers(t, false)
	n := c.Node("n2")
	rng := rand.New(rand.NewPCG(1, 1))
	for _, step := range []struct {
		name, proof string
		hurt        func() bool
	}{
		{"pause", "state T", func() bool { s, _ := n.State(); return s == "T" }},
		{"kill", "signal: killed", func() bool { return !n.Running() }},
		{"stop", "exit status 0", func() bool { return !n.Running() }},
	} {
		f := fault(t, step.name)
		if err := f.Available(c.Network()); err != nil {
			t.Fatal(err)
		}
		pid := n.PID()
		proof, err := f.inject(t.Context(), c, n, rng)
		if err != nil || !strings.Contains(proof, step.proof) || !step.hurt() {
			t.Errorf("%s: %q, %v", step.name, proof, err)
		}
		if err := f.heal(c, n); err != nil || !n.Running() {
			t.Errorf("%s healed: running %v, %v", step.name, n.Running(), err)
		}
		if (n.PID() == pid) != (step.name == "pause") {
			t.Errorf("%s: pid %d before, %d after", step.name, pid, n.PID())
		}
		if step.name != "pause" {
			for deadline := time.Now().Add(10 * time.Second); strings.Count(n.LogTail(1<<20), "listening") < n.Starts(); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatal("not listening again")
				}
			}
		}
	}
	if err := fault(t, "isolate").Available(c.Network()); !errors.Is(err, cluster.ErrNoPartitions) {
		t.Errorf("isolate on loopback: %v", err)
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
	if _, err := isolate(t.Context(), c, c.Node("n1"), rand.New(rand.NewPCG(1, 1))); !errors.Is(err, ErrNoEffect) {
		t.Errorf("isolate without effect: %v", err)
	}
	if _, err := kill(t.Context(), c, c.Node("n1"), nil); !errors.Is(err, cluster.ErrNotRunning) {
		t.Errorf("kill of nothing: %v", err)
	}
}

func TestIsolate(t *testing.T) {
	c := startHelpers(t, true)
	n := c.Node("n1")
	f := fault(t, "isolate")
	if err := f.Available(c.Network()); err != nil {
		t.Fatal(err)
	}
	seen := map[bool]bool{}
	for seed := uint64(0); len(seen) < 2 && seed < 20; seed++ {
		proof, err := f.inject(t.Context(), c, n, rand.New(rand.NewPCG(seed, 0)))
		if err != nil || !strings.Contains(proof, "2 peers before") {
			t.Fatalf("isolate: %q, %v", proof, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		fromClients := c.Network().Probe(ctx, cluster.Host, n.Addrs.Raft) != nil
		cancel()
		if fromClients != strings.Contains(proof, "peers and clients") {
			t.Errorf("%q, but clients cut off: %v", proof, fromClients)
		}
		seen[fromClients] = true
		if err := f.heal(c, n); err != nil {
			t.Fatal(err)
		}
		if len(reachable(t.Context(), c, n)) != 2 {
			t.Fatal("still cut off after healing")
		}
	}
	if len(seen) < 2 {
		t.Error("20 seeds gave only one way of isolating")
	}
}

func TestParse(t *testing.T) {
	got, err := Parse("kill, pause,isolate,stop")
	if err != nil || len(got) != 4 || got[2].Name != "isolate" {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []string{"", "kill,", "earthquake"} {
		if _, err := Parse(bad); err == nil || !strings.Contains(err.Error(), "known are kill, stop, pause, isolate") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
