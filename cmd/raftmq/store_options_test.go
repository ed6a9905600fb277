package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"raftmq/commitlog/record"
	"raftmq/transport/remoting"
)

// TestStoreOptions runs a cluster with the transient store pool, warm-up, and replica reads. All nodes are killed with messages in their
// buffers that were acknowledged: they come back, the same on each node. Who reads what counts as cold is sent to a replica that
// serves it.
func TestStoreOptions(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs a cluster of processes")
	}
	dir := t.TempDir()
	c := startTrio(t, [3]string{filepath.Join(dir, "1"), filepath.Join(dir, "2"), filepath.Join(dir, "3")}, "--mapped-file-size-commit-log", "32MiB",
		"--transient-store-pool-enable", "--transient-store-pool-size", "2", "--commit-interval-commit-log", "1s", "--commit-commit-log-thorough-interval", "1s",
		"--commit-commit-log-least-pages", "100000", "--warm-mapped-file-enable", "--slave-read-enable", "--access-message-in-memory-max-ratio", "0",
		"--max-transfer-count-on-message-in-disk", "5")
	leader := c.healthy()
	at := c.nameServers()
	mustRun(t, "", "topic", "create", "T", "--queues", "1", at)
	mustRun(t, "", "topic", "create", "tiny", "--queues", "1", at)
	const single, tiny = 50, 100_000
	mustRun(t, strings.Repeat("message\n", single), "produce", "--topic", "T", at)
	var batch []byte
	for range tiny {
		batch = record.AppendBatchEntry(batch, record.BatchEntry{Body: []byte("tiny")})
	}
	send := &remoting.Command{Code: remoting.RequestSendBatchMessage, Body: batch}
	for _, f := range [][2]string{{"a", "pg"}, {"b", "tiny"}, {"c", "TBW102"}, {"d", "4"}, {"e", "0"}, {"f", "0"}, {"g", "1700000000000"}, {"h", "0"}, {"j", "0"}, {"k", "false"}, {"m", "true"}} {
		send.Set(f[0], f[1])
	}
	c.call(leader, send)
	for i := range c.servers {
		c.kill(i)
	}
	for i := range c.servers {
		c.start(i)
	}
	leader = c.healthy()
	s := c.await("everything to be readable", func(s [3]*nodeStatus) bool {
		for i := range s {
			if s[i].LeaderID == "" || s[i].DispatchedTo != s[i].LogMax || s[i].LogMax != s[0].LogMax || s[i].LogMax < tiny*90 {
				return false
			}
		}
		return true
	})
	sums := map[string]bool{}
	for i := range c.servers {
		ask := &remoting.Command{Code: remoting.RequestNodeStatus}
		ask.Set("checksumTo", fmt.Sprint(s[0].LogMax))
		var status nodeStatus
		if err := json.Unmarshal(c.call(i, ask).Body, &status); err != nil || status.LogChecksum == "" {
			t.Fatalf("n%d: %+v %v", i+1, status, err)
		}
		sums[status.LogChecksum] = true
	}
	if len(sums) != 1 {
		t.Errorf("checksums %v", sums)
	}
	if n, m := c.offset(remoting.RequestGetMaxOffset, "T"), c.offset(remoting.RequestGetMaxOffset, "tiny"); n != single || m != tiny {
		t.Errorf("%d and %d messages", n, m)
	}

	pull := &remoting.Command{Code: remoting.RequestPullMessage}
	for _, f := range [][2]string{{"consumerGroup", "g"}, {"topic", "T"}, {"queueId", "0"}, {"queueOffset", "0"}, {"maxMsgNums", "32"}, {"sysFlag", "4"},
		{"commitOffset", "0"}, {"suspendTimeoutMillis", "0"}, {"subscription", "*"}, {"subVersion", "0"}} {
		pull.Set(f[0], f[1])
	}
	ask := &remoting.Command{Code: remoting.RequestGetRouteInfoByTopic}
	ask.Set("topic", "T")
	route := strings.ReplaceAll(string(c.call(0, ask).Body), `"`, "")
	suggested := map[int64]bool{}
	for i := range c.servers { // all suggest the same replica, which is alive and does not lead
		var got remoting.PullResponse
		if err := got.Decode(c.call(i, pull)); err != nil || got.NextBeginOffset != 5 {
			t.Fatalf("n%d: %+v %v", i+1, got, err)
		}
		suggested[got.SuggestWhichBrokerID] = true
		if id := got.SuggestWhichBrokerID; id == 0 || !strings.Contains(route, fmt.Sprintf("%d:127.0.0.1:", id)) || strings.Contains(route, fmt.Sprintf("%d:%s", id, c.addr(leader))) {
			t.Errorf("n%d suggests broker id %d, the route is %s", i+1, id, route)
		}
	}
	if len(suggested) != 1 {
		t.Errorf("suggested %v", suggested)
	}
	if log := c.servers[leader].stderr.String(); strings.Contains(log, "[ERROR]") {
		t.Error(log)
	}
}
