package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"raftmq/transport/remoting"
)

// An operator has a pass begin, whose progress the status shows; a node that is not there, or whose scrub is off, is said to be that.
func TestClusterScrub(t *testing.T) {
	t.Parallel()
	dir, port := filepath.Join(t.TempDir(), "data"), freePorts(t, 3)
	s := startServer(t, serverArgs(dir, port, "--bootstrap-expect", "1")...)
	s.ready(port)
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	at := "--name-servers=" + addr
	mustRun(t, "kept\n", "produce", "--topic", "t", at)
	passes := func(least int64) int64 {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
			n := askNode(context.Background(), addr, time.Second)
			if n.Status != nil && n.Status.Scrub != nil && n.Status.Scrub.Passes >= least {
				return n.Status.Scrub.Passes
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d passes have not ended: %+v", least, n)
			}
		}
	}
	before := passes(1) // the one that begins with the node; the next would begin in ten minutes
	if out := mustRun(t, "", "cluster", "scrub", at); !strings.HasPrefix(out, "n1 verifies 0.0 MiB of commit log at 16MiB a second, in 0s or so") {
		t.Errorf("printed %q", out)
	}
	before = passes(before + 1)
	mustRun(t, "", "cluster", "scrub", "--node", "n1", at)
	passes(before + 1)
	if _, errOut, err := runTool(t, "", "cluster", "scrub", "--node", "n2", at); err == nil || !strings.Contains(errOut+err.Error(), "no node n2 answers") {
		t.Errorf("a node that is not there: %v %s", err, errOut)
	}
	if err := scrubNodes(t.Context(), t.Output(), []nodeAnswer{{Address: "somewhere", Error: "refused"}}, ""); err == nil || err.Error() != "somewhere: refused" {
		t.Errorf("a node that does not answer: %v", err)
	}
	off := node{cfg: Config{NodeID: "n1"}}
	if _, err := off.scrub(t.Context(), struct{}{}); !errors.Is(err, errRefused) || !strings.Contains(err.Error(), "--scrub-rate 0") {
		t.Errorf("a scrub that is off: %v", err)
	}
	if name := remoting.RequestCodeName(remoting.RequestScrub); name != "SCRUB" {
		t.Errorf("request %d is called %s", remoting.RequestScrub, name)
	}
}
