package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"raftmq/jepsen/cluster"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// A leader that was stopped, and goes on when another one has taken writes, has questions waiting that it reads before Raft has told it
// anything. It answers none of them from what it knew.
func TestStoppedLeaderAnswersNothingStale(t *testing.T) {
	long(t)
	parallel(t, 11)
	const rounds, conns, each = 3, 6, 20
	c := startCluster(t, cluster.Config{})
	topic := topicName(t)
	createTopic(t, c, topic, 1)
	ctx := withTimeout(t, 2*time.Minute)
	query := func() *remoting.Command {
		return request(remoting.RequestQueryConsumerOffset, nil, "consumerGroup", "g", "topic", topic, "queueId", "0", "setZeroIfNotFound", "false")
	}
	commit := func(n *cluster.Node, offset int) {
		t.Helper()
		resp := invoke(t, dial(t, n.Addrs.Client), request(remoting.RequestUpdateConsumerOffset, nil, "consumerGroup", "g", "topic", topic, "queueId", "0", "commitOffset", strconv.Itoa(offset)))
		if resp.Code != 0 {
			t.Fatalf("commit: code %d %s", resp.Code, resp.Remark)
		}
	}
	old := leaderOf(t, c)
	commit(old, 1)
	for round := range rounds {
		newest := 10 + round
		var open []*client.Client
		for range conns {
			conn, err := old.Dial(ctx)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if resp := invoke(t, conn, query()); resp.Code != 0 {
				t.Fatalf("query: code %d %s", resp.Code, resp.Remark)
			}
			open = append(open, conn)
		}
		if err := old.Pause(); err != nil {
			t.Fatal(err)
		}
		// A thread that still runs may take a question and answer from what is true then; the answer leaves when the process goes on, and may.
		eventually(t, 30*time.Second, "all threads of "+old.ID+" stand", func() bool { return standsStill(t, old.PID()) })
		var wg sync.WaitGroup
		answers := make(chan int64, conns*each)
		for _, conn := range open {
			for range each {
				wg.Go(func() {
					ictx, cancel := context.WithTimeout(ctx, 30*time.Second)
					defer cancel()
					resp, err := conn.Invoke(ictx, query())
					if err == nil && resp.Code == 0 {
						answers <- number(t, resp, "offset")
					}
				})
			}
		}
		next := old
		eventually(t, 30*time.Second, "another leader", func() bool {
			for i, r := range c.Statuses(ctx, 500*time.Millisecond) {
				if r.Err == nil && r.Status.Ready && c.Nodes()[i] != old {
					next = c.Nodes()[i]
					return true
				}
			}
			return false
		})
		commit(next, newest)
		if err := old.Resume(); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		close(answers)
		stale, fresh := 0, 0
		for got := range answers {
			if got == int64(newest) {
				fresh++
				continue
			}
			stale++
		}
		t.Logf("round %d: %d of %d questions had the new answer, %d an old one", round, fresh, conns*each, stale)
		if stale > 0 {
			t.Errorf("round %d: %s answered %d times what was true before it was stopped", round, old.ID, stale)
		}
		old = serving(t, c)
	}
}

// standsStill reports whether all threads of a process are stopped.
func standsStill(t *testing.T, pid int) bool {
	t.Helper()
	stats, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range stats {
		b, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // it has ended since
		}
		if err != nil {
			t.Fatal(err)
		}
		// The name in parentheses may hold anything; the state follows the last one.
		if i := bytes.LastIndexByte(b, ')'); i < 0 || !bytes.HasPrefix(b[i+1:], []byte(" T")) {
			return false
		}
	}
	return len(stats) > 0
}
