package raftnode

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

func TestQuietLogger(t *testing.T) {
	var out bytes.Buffer
	clock := time.Unix(0, 0)
	l := quietLoggerAt(hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: &out}), func() time.Time { return clock }).Named("x").With("k", "v")
	l.Info("entering follower state")
	for range 100 {
		l.Error("failed to heartbeat to", "peer", "a:1", "backoff time", time.Second)
		l.Error("failed to heartbeat to", "peer", "b:1")
		l.Warn("appendEntries rejected, sending older logs", "peer", "a:1")
	}
	if n := strings.Count(out.String(), "\n"); n != 2 {
		t.Fatalf("%d lines, want one for each peer:\n%s", n, out.String())
	}
	clock = clock.Add(repeatAfter)
	l.Error("failed to heartbeat to", "peer", "a:1")
	if n := strings.Count(out.String(), "\n"); n != 3 {
		t.Fatalf("not told again after %v:\n%s", repeatAfter, out.String())
	}
}
