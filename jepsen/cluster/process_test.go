package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// helperEnv turns the test binary into a little server that stands in for raftmq.
const helperEnv = "RAFTMQ_TEST_LISTEN"

func itoa(i int) string { return strconv.Itoa(i) }

func testBinary(t *testing.T) string {
	t.Helper()
	bin, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

// TestHelperListen is not a test: with helperEnv set it listens until SIGTERM.
func TestHelperListen(t *testing.T) {
	addr := os.Getenv(helperEnv)
	if addr == "" {
		t.Skip("only a helper process")
	}
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Println("listening on", l.Addr())
	<-term
	l.Close()
	fmt.Println("good-bye")
}

// helperNode is a node whose binary is this test binary: all but the protocol is real.
func helperNode(t *testing.T) *Node {
	t.Helper()
	dir := t.TempDir()
	script := filepath.Join(dir, "server.sh")
	text := "#!/bin/sh\nexec \"" + testBinary(t) + "\" -test.run='^TestHelperListen$'\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Nodes: 1, Dir: filepath.Join(dir, "c"), Binary: script, Env: []string{helperEnv + "=127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c.Nodes()[0]
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

func TestNodeLife(t *testing.T) {
	n := helperNode(t)
	if err := n.Kill(); !errors.Is(err, ErrNotRunning) {
		t.Errorf("kill before start: %v", err)
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	if err := n.Start(); !errors.Is(err, ErrRunning) {
		t.Errorf("second start: %v", err)
	}
	if err := n.Wipe(); !errors.Is(err, ErrRunning) {
		t.Errorf("wipe of a running node: %v", err)
	}
	eventually(t, "listening", func() bool { return strings.Contains(n.LogTail(4096), "listening") })
	if err := n.Pause(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "stopped state", func() bool { s, _ := n.State(); return s == "T" })
	if err := n.Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "running state", func() bool { s, _ := n.State(); return s == "S" || s == "R" })
	if rss, err := n.RSS(); err != nil || rss < 1<<20 {
		t.Errorf("resident memory %d, %v", rss, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := n.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if n.Running() || n.PID() != 0 {
		t.Errorf("runs after Stop")
	}
	if err := n.Crashed(); err != nil {
		t.Errorf("an asked-for end counts as a crash: %v", err)
	}
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	if err := n.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := n.Exit(); got != "signal: killed" {
		t.Errorf("exit %q", got)
	}
	if n.Starts() != 2 || !strings.Contains(n.LogTail(1<<20), "good-bye") {
		t.Errorf("starts %d, log %s", n.Starts(), n.LogTail(1<<20))
	}
}

func TestCrashIsSeen(t *testing.T) {
	n := helperNode(t)
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	// A signal that did not come from the cluster.
	if err := syscall.Kill(n.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-n.Done()
	if err := n.Crashed(); err == nil || !strings.Contains(err.Error(), "signal: killed") {
		t.Errorf("crash not reported: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := n.cluster.WaitServing(ctx); err == nil || !strings.Contains(err.Error(), "ended by itself") {
		t.Errorf("waiting for a crashed node: %v", err)
	}
}

func TestArguments(t *testing.T) {
	c, err := New(Config{Nodes: 3, Dir: t.TempDir(), Binary: "raftmq", Network: NewLoopbackAt(9876, 3), Flags: []string{"--log-level", "debug"}})
	if err != nil {
		t.Fatal(err)
	}
	n := c.Node("n2")
	n.Flags = []string{"--x"}
	got := strings.Join(n.Args(), " ")
	for _, want := range []string{"server --node-id n2 ", "--client-address 127.0.0.1:9886", "--join 127.0.0.1:9878,127.0.0.1:9898", "--bootstrap-expect 3", "--log-level debug --x"} {
		if !strings.Contains(got, want) {
			t.Errorf("arguments %q lack %q", got, want)
		}
	}
	if c.Node("n4") != nil {
		t.Error("a node that is not there")
	}
}
