package cluster

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// After HandOver scripts/cluster finds the process, and it alone can stop it.
func TestHandOver(t *testing.T) {
	script, err := filepath.Abs("../../scripts/cluster")
	if err != nil {
		t.Fatal(err)
	}
	n := helperNode(t)
	c := n.cluster
	if err := c.HandOver(9876); err == nil {
		t.Error("a cluster that dies with this program was handed over")
	}
	c.cfg.Detached = true
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	pid, done := n.PID(), n.Done()
	t.Cleanup(func() {
		if n.Running() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	eventually(t, "listening", func() bool { return strings.Contains(n.LogTail(4096), "listening") })
	if err := c.HandOver(9876); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if !n.Running() {
		t.Fatal("Close after HandOver ended the process")
	}
	if _, err := os.Stat(script); errors.Is(err, os.ErrNotExist) {
		t.Skip("scripts/cluster is not there")
	}
	run := func(args ...string) string {
		out, err := exec.Command(script, append([]string{"-d", c.Dir()}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("scripts/cluster %v: %v\n%s", args, err, out)
		}
		return string(out)
	}
	if got := run("addresses"); strings.TrimSpace(got) != "127.0.0.1:9876" {
		t.Errorf("addresses: %q", got)
	}
	run("down")
	<-done
	if got := n.Exit(); got != "exit status 0" {
		t.Errorf("exit after scripts/cluster down: %s", got)
	}
}
