package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestClusterAdd: a node that reaches nobody is met, one that was removed by force comes back, and for all others there is a reason why not.
func TestClusterAdd(t *testing.T) {
	t.Parallel()
	base := t.TempDir()
	port := freePorts(t, 7)
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", port+i) }
	first := startServer(t, serverArgs(filepath.Join(base, "n1"), port, "--bootstrap-expect", "1", "--mapped-file-size-commit-log", "1MiB")...)
	first.ready(port)
	// Nobody is at the address that it shall join.
	args := serverArgs(filepath.Join(base, "n2"), port+4, "--join", fmt.Sprintf("127.0.0.1:%d", freePorts(t, 0)), "--mapped-file-size-commit-log", "1MiB")
	args[2] = "n2"
	second := startServer(t, args...)
	name := "--name-servers=" + at(0)
	if out, _, err := runTool(t, "", "node", "drain", name); err == nil || !strings.Contains(err.Error(), "n1 is the only member: nobody could take over") {
		t.Errorf("drain of a node alone: %s%v", out, err)
	}
	refused := func(want string, args ...string) {
		t.Helper()
		out, _, err := runTool(t, "", append([]string{"cluster", "add", name}, args...)...)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v: %s%v, want %q", args, out, err, want)
		}
	}
	refused("name the node by its id")
	refused("allowed is host:port", "--gossip", "nowhere")
	refused("gossip does not know n2; start it with --join", "n2")
	refused("connection refused", "--gossip", fmt.Sprintf("127.0.0.1:%d", freePorts(t, 0)))
	// It may still be about to open its port.
	var out string
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		var err error
		if out, _, err = runTool(t, "", "cluster", "add", name, "--gossip", at(6)); err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if !strings.HasSuffix(out, "n2 is a voter\n") {
		t.Errorf("add --gossip says %s", out)
	}
	if out := mustRun(t, "", "cluster", "add", name, "n2", "--promote"); out != "n2 is a voter\n" {
		t.Errorf("add of a voter says %s", out)
	}
	mustRun(t, "", "cluster", "wait", name)
	// A drain is seen in the status, and can be taken back.
	if out := mustRun(t, "", "node", "drain", "--clients-ask-every", "0s", "--name-servers="+at(4)); !strings.Contains(out, "n2 is drained") {
		t.Errorf("drain says %s", out)
	}
	if out := mustRun(t, "", "cluster", "status", name); !strings.Contains(out, "follower, draining") || !strings.Contains(out, "node drain --cancel --name-servers "+at(4)) {
		t.Errorf("status of a node that is drained:\n%s", out)
	}
	mustRun(t, "", "node", "drain", "--cancel", "--name-servers="+at(4))
	if out := mustRun(t, "", "cluster", "status", name); strings.Contains(out, "drain") {
		t.Errorf("status after the drain was taken back:\n%s", out)
	}
	// n1 leads: of two voters it stays a majority of what is left.
	mustRun(t, "", "cluster", "transfer", "--to", "n1", name)
	mustRun(t, "", "cluster", "remove", "n2", "--force", name)
	if out := mustRun(t, "", "cluster", "add", name, "n2"); !strings.HasPrefix(out, "n2 may join again\n") || !strings.HasSuffix(out, "n2 is a voter\n") {
		t.Errorf("add after remove --force says %s", out)
	}
	mustRun(t, "", "cluster", "wait", name)
	mustRun(t, "", "node", "leave", "--name-servers="+at(4))
	if status := second.exit(); status != 0 {
		t.Errorf("n2 left with status %d", status)
	}
	refused("n2 has left; wipe its data folder", "n2")
	_ = first.cmd.Process.Signal(syscall.SIGTERM)
	first.exit()
}
