package e2e

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"raftmq/jepsen"
	"raftmq/jepsen/cluster"
	"raftmq/jepsen/workload"
	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// binDir is where the servers are built; TestMain makes and removes it.
var binDir string

var serverBinary = sync.OnceValues(func() (string, error) { return cluster.Build(context.Background(), binDir) })

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if text := os.Getenv(childEnv); text != "" {
		return childMain(text)
	}
	flag.Parse()
	allTurns.free = defaultTurns()
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "test.parallel" {
			allTurns.free, _ = strconv.Atoi(f.Value.String()) // Parse has checked it
		}
	})
	allTurns.most = allTurns.free
	// Go lets all of them begin, and they take turns here.
	err := flag.Set("test.parallel", "1000")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if binDir, err = os.MkdirTemp("", "raftmq-e2e-"); err == nil {
		defer os.RemoveAll(binDir)
		err = workload.StockLog(filepath.Join(binDir, "stock-client.log"))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func serverBin(t *testing.T) string {
	t.Helper()
	bin, err := serverBinary()
	if err != nil {
		t.Fatal(err)
	}
	return bin
}

func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("long")
	}
}

// bound is how long something may take that is meant to take d: that in the long form, which has a calm machine, and in CI, where tests run beside each
// other on whatever there is, enough for what is not wrong in itself.
func bound(d time.Duration) time.Duration {
	if extended() {
		return d
	}
	return 4 * d
}

// heartbeatTimeout is how long followers of steadyFlags are silent about a silent leader.
func heartbeatTimeout() time.Duration {
	if extended() {
		return 800 * time.Millisecond // the default
	}
	return 2400 * time.Millisecond
}

// steadyFlags are the flags of tests in which a leader that is well must stay. In CI Raft is three times as patient as usual, and the machine may stand still for as long.
func steadyFlags(more ...string) []string {
	d := heartbeatTimeout().String()
	return append(append(jepsen.DefaultFlags(), "--raft-heartbeat-timeout", d, "--raft-election-timeout", d), more...)
}

func withTimeout(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

// startCluster starts three nodes; when the test is over none has crashed, and none has
// written of a data race.
func startCluster(t *testing.T, cfg cluster.Config) *cluster.Cluster {
	t.Helper()
	return startPrepared(t, cfg, nil)
}

// startPrepared is startCluster with something done to the cluster before its first node starts; what prepare has cleaned up is
// cleaned up when all nodes have ended.
func startPrepared(t *testing.T, cfg cluster.Config, prepare func(c *cluster.Cluster)) *cluster.Cluster {
	t.Helper()
	cfg.Dir = filepath.Join(t.TempDir(), "cluster")
	if cfg.Binary == "" {
		cfg.Binary = serverBin(t)
	}
	if cfg.Flags == nil {
		cfg.Flags = jepsen.DefaultFlags()
	}
	c, err := cluster.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if prepare != nil {
		prepare(c)
	}
	t.Cleanup(func() {
		for _, n := range c.Nodes() {
			if err := n.Crashed(); err != nil {
				t.Error(err)
			}
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, n := range c.Nodes() {
			checkLog(t, n)
		}
	})
	if err := c.StartAll(); err != nil {
		t.Fatal(err)
	}
	if _, err := c.WaitServing(withTimeout(t, time.Minute)); err != nil {
		t.Fatal(err)
	}
	return c
}

// checkLog looks for what a server must never write.
func checkLog(t *testing.T, n *cluster.Node) {
	t.Helper()
	text := n.LogTail(64 << 20)
	for _, bad := range []string{"DATA RACE", "panic:", "fatal error:", "goroutine 1 ["} {
		if i := strings.Index(text, bad); i >= 0 {
			t.Errorf("%s wrote %q:\n%.3000s", n.ID, bad, text[i:])
		}
	}
	if t.Failed() {
		t.Logf("the end of %s's log:\n%s", n.ID, n.LogTail(4096))
	}
}

// namespaces returns a network whose links can be cut, or skips the test.
func namespaces(t *testing.T) cluster.Network {
	t.Helper()
	n, err := cluster.NewNamespaces(3)
	if err != nil {
		t.Skipf("links can't be cut here: %v", err)
	}
	return n
}

// freePorts are four ports for each of some nodes, this test's until it ends.
func freePorts(t *testing.T, nodes int) cluster.Network {
	t.Helper()
	n, err := cluster.NewLoopback(nodes)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

func leaderOf(t *testing.T, c *cluster.Cluster) *cluster.Node {
	t.Helper()
	n, err := c.Leader(withTimeout(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func followerOf(t *testing.T, c *cluster.Cluster) *cluster.Node {
	t.Helper()
	leader := leaderOf(t, c)
	for _, n := range c.Nodes() {
		if n != leader && n.Running() {
			return n
		}
	}
	t.Fatal("no follower")
	return nil
}

func serving(t *testing.T, c *cluster.Cluster) *cluster.Node {
	t.Helper()
	n, err := c.WaitServing(withTimeout(t, time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func createTopic(t *testing.T, c *cluster.Cluster, topic string, queues int) {
	t.Helper()
	if err := workload.CreateTopic(withTimeout(t, time.Minute), c.ClientAddrs(), topic, queues); err != nil {
		t.Fatal(err)
	}
}

func dial(t *testing.T, addr string) *client.Client {
	t.Helper()
	c, err := client.Dial(withTimeout(t, 30*time.Second), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// request builds a command from key, value pairs.
func request(code int32, body []byte, kv ...string) *remoting.Command {
	cmd := &remoting.Command{Code: code, Body: body}
	for i := 0; i < len(kv); i += 2 {
		cmd.Set(kv[i], kv[i+1])
	}
	return cmd
}

// sendRequest is a SEND_MESSAGE (10).
func sendRequest(topic string, queue int, body string, properties string) *remoting.Command {
	return request(remoting.RequestSendMessage, []byte(body),
		"producerGroup", "e2e", "topic", topic, "defaultTopic", "TBW102", "defaultTopicQueueNums", "4",
		"queueId", strconv.Itoa(queue), "sysFlag", "0", "bornTimestamp", strconv.FormatInt(time.Now().UnixMilli(), 10),
		"flag", "0", "properties", properties, "reconsumeTimes", "0", "unitMode", "false", "batch", "false")
}

func invoke(t *testing.T, c *client.Client, cmd *remoting.Command) *remoting.Command {
	t.Helper()
	resp, err := c.Invoke(withTimeout(t, 30*time.Second), cmd)
	if err != nil {
		t.Fatalf("request %d: %v", cmd.Code, err)
	}
	return resp
}

func number(t *testing.T, cmd *remoting.Command, key string) int64 {
	t.Helper()
	n, err := strconv.ParseInt(cmd.GetString(key), 10, 64)
	if err != nil {
		t.Fatalf("answer %d %q: %s: %v", cmd.Code, cmd.Remark, key, err)
	}
	return n
}

// eventually waits until ok, with a deadline: d, and twice that in CI.
func eventually(t *testing.T, d time.Duration, what string, ok func() bool) {
	t.Helper()
	if !extended() {
		d *= 2
	}
	for deadline := time.Now().Add(d); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not happen within %v", what, d)
		}
	}
}

// run makes a jepsen run and fails the test if it is not valid.
func run(t *testing.T, cfg jepsen.Config) *jepsen.Report {
	t.Helper()
	cfg.Binary = serverBin(t)
	cfg.Dir = filepath.Join(t.TempDir(), "run")
	if cfg.Flags == nil {
		cfg.Flags = jepsen.DefaultFlags()
	}
	if cfg.Workload.Topic == "" {
		cfg.Workload.Topic = topicName(t)
	}
	cfg.Keep = true
	cfg.Logf = t.Logf
	report, err := jepsen.Run(t.Context(), cfg)
	if report != nil {
		var text strings.Builder
		if perr := report.Print(&text); perr != nil {
			t.Error(perr)
		}
		t.Log(text.String())
	}
	if err != nil {
		t.Error(err)
		for i := 1; i <= 3; i++ {
			b, _ := os.ReadFile(filepath.Join(cfg.Dir, fmt.Sprintf("n%d", i), "log"))
			t.Logf("the end of n%d's log:\n%s", i, b[max(0, len(b)-6000):])
		}
		t.FailNow()
	}
	return report
}

// topicName turns a test's name into a topic's.
func topicName(t *testing.T) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, t.Name())
}

// pullRequest is a PULL_MESSAGE (11) that brings its subscription along.
func pullRequest(topic string, queue int, offset int64, hold time.Duration) *remoting.Command {
	flag := 4
	if hold > 0 {
		flag |= 2
	}
	return request(remoting.RequestPullMessage, nil,
		"consumerGroup", "e2e-raw", "topic", topic, "queueId", strconv.Itoa(queue), "queueOffset", strconv.FormatInt(offset, 10),
		"maxMsgNums", "32", "sysFlag", strconv.Itoa(flag), "commitOffset", "0",
		"suspendTimeoutMillis", strconv.FormatInt(hold.Milliseconds(), 10), "subscription", "*", "subVersion", "0", "expressionType", "TAG")
}

func maxOffset(t *testing.T, c *client.Client, topic string, queue int) int64 {
	t.Helper()
	resp := invoke(t, c, request(remoting.RequestGetMaxOffset, nil, "topic", topic, "queueId", strconv.Itoa(queue)))
	if resp.Code != 0 {
		t.Fatalf("max offset: code %d %s", resp.Code, resp.Remark)
	}
	return number(t, resp, "offset")
}
