package cluster

import (
	"bufio"
	"context"
	"errors"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestLoopbackPorts(t *testing.T) {
	n, err := NewLoopback(3)
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	seen := map[string]bool{}
	for i := 1; i <= 3; i++ {
		for _, addr := range n.Addresses(i).All() {
			if seen[addr] {
				t.Errorf("address %s given twice", addr)
			}
			seen[addr] = true
			l, err := net.Listen("tcp", addr)
			if err != nil {
				t.Errorf("given address is not free: %v", err)
				continue
			}
			defer l.Close()
		}
	}
	if err := n.Cut(1, 2); !errors.Is(err, ErrNoPartitions) {
		t.Errorf("Cut on loopback: %v, want ErrNoPartitions", err)
	}
}

// Ports stay a cluster's while its nodes are down: what is free now is not enough.
func TestLoopbackPortsAreNotGivenTwice(t *testing.T) {
	taken := map[string]int{}
	for k := range 40 {
		n, err := NewLoopback(3)
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		for i := 1; i <= 3; i++ {
			for _, addr := range n.Addresses(i).All() {
				if other, ok := taken[addr]; ok {
					t.Fatalf("%s is of networks %d and %d", addr, other, k)
				}
				taken[addr] = k
			}
		}
	}
	if _, err := NewLoopback(16); err == nil {
		t.Error("ports for 16 nodes")
	}
}

func TestLoopbackAtUsesTheScriptsPorts(t *testing.T) {
	n := NewLoopbackAt(9876, 3)
	want := Addresses{Client: "127.0.0.1:9896", Raft: "127.0.0.1:9897", Gossip: "127.0.0.1:9898", HTTP: "127.0.0.1:9899"}
	if got := n.Addresses(3); got != want {
		t.Errorf("node 3: %+v, want %+v", got, want)
	}
}

// listenIn starts a listener inside a node's namespace by running this test binary there.
func namespacesForTest(t *testing.T, nodes int) Network {
	t.Helper()
	n, err := NewNamespaces(nodes)
	if errors.Is(err, ErrNoPartitions) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
		if err := n.Close(); err != nil {
			t.Errorf("second close: %v", err)
		}
	})
	return n
}

// startEcho listens on the node's client address from inside its namespace.
func startEcho(t *testing.T, n Network, node int) string {
	t.Helper()
	addr := n.Addresses(node).Client
	argv := n.Wrap(node, []string{testBinary(t), "-test.run=^TestHelperListen$", "-test.v"})
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = append(cmd.Environ(), helperEnv+"="+addr)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "listening") {
			return addr
		}
	}
	t.Fatalf("listener in the namespace ended: %v", lines.Err())
	return ""
}

func TestNamespacesCutOneDirection(t *testing.T) {
	n := namespacesForTest(t, 3)
	addr := startEcho(t, n, 1)
	reach := func(from int, patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return n.Probe(ctx, from, addr)
	}
	want := func(when string, reachable map[int]bool) {
		t.Helper()
		for from, ok := range reachable {
			patience := 400 * time.Millisecond
			if ok {
				patience = 10 * time.Second
			}
			if err := reach(from, patience); (err == nil) != ok {
				t.Errorf("%s: from %d: %v, want reachable=%v", when, from, err, ok)
			}
		}
	}
	want("at first", map[int]bool{Host: true, 2: true, 3: true})
	if err := n.Cut(2, 1); err != nil {
		t.Fatal(err)
	}
	want("2 to 1 cut", map[int]bool{Host: true, 2: false, 3: true})
	// The way back alone is enough to stop a connection from 3.
	if err := n.Cut(1, 3); err != nil {
		t.Fatal(err)
	}
	want("1 to 3 cut", map[int]bool{Host: true, 2: false, 3: false})
	if err := Heal(n, 3); err != nil {
		t.Fatal(err)
	}
	want("healed", map[int]bool{Host: true, 2: true, 3: true})
	if err := Isolate(n, 1, 3, false); err != nil {
		t.Fatal(err)
	}
	want("isolated from peers", map[int]bool{Host: true, 2: false, 3: false})
	if err := Isolate(n, 1, 3, true); err != nil {
		t.Fatal(err)
	}
	want("isolated from all", map[int]bool{Host: false, 2: false, 3: false})
	if err := Heal(n, 3); err != nil {
		t.Fatal(err)
	}
	if err := Partition(n, []int{1}, []int{2}); err != nil {
		t.Fatal(err)
	}
	want("1 and 2 apart", map[int]bool{Host: true, 2: false, 3: true})
}

// A network whose owner died is removed by the next one; a living owner's is not.
func TestNamespacesStale(t *testing.T) {
	a, ok := namespacesForTest(t, 1).(*namespaces)
	if !ok {
		t.Fatal("not a namespaces network")
	}
	b := namespacesForTest(t, 1).(*namespaces)
	if a.slot == b.slot {
		t.Fatalf("two networks in slot %d", a.slot)
	}
	dead := exec.Command("true")
	if err := dead.Run(); err != nil {
		t.Fatal(err)
	}
	if err := ip("link", "set", a.bridge(), "alias", aliasPrefix+itoa(dead.Process.Pid)); err != nil {
		t.Fatal(err)
	}
	c := namespacesForTest(t, 1).(*namespaces)
	if c.slot != a.slot {
		t.Errorf("slot %d of a dead owner was not taken over; got %d", a.slot, c.slot)
	}
	if err := ip("link", "show", b.bridge()); err != nil {
		t.Errorf("the living owner's bridge is gone: %v", err)
	}
}
