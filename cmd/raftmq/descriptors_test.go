package main

import (
	"strings"
	"testing"

	"raftmq/commitlog/consumequeue"

	"github.com/hashicorp/go-hclog"
)

func TestConnectionLimit(t *testing.T) {
	for _, c := range []struct {
		files  uint64
		queues int
		want   int
	}{{20_000, 8_000, 11_488}, {65_536, 16_384, 48_640}, {1_048_576, 16_384, 1_031_680}, {1024, 409, 103}, {256, 102, 64}, {1 << 63, 16_384, 1<<30 - 16_384 - 512}} {
		if got := connectionLimit(c.files, c.queues); got != c.want {
			t.Errorf("%d files, %d for queues: %d connections, want %d", c.files, c.queues, got, c.want)
		}
	}
	var text strings.Builder
	conns := descriptors(hclog.New(&hclog.LoggerOptions{Output: &text}))
	if low := conns < manyConns; low != strings.Contains(text.String(), "raise it to 65536") {
		t.Errorf("%d connections, %d queue files: log %q", conns, consumequeue.DefaultOpenFiles(), text.String())
	}
}
