package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"raftmq/commitlog/record"
	"raftmq/transport/remoting"
)

// runTool runs a command as from a shell, within a limit.
func runTool(t *testing.T, stdin string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	root := newRoot()
	var out, errOut bytes.Buffer
	root.SetIn(strings.NewReader(stdin))
	root.SetOut(&out)
	root.SetErr(&errOut)
	root.SetArgs(args)
	err = root.ExecuteContext(ctx)
	if ctx.Err() != nil {
		t.Fatalf("raftmq %s did not end", strings.Join(args, " "))
	}
	return out.String(), errOut.String(), err
}

func mustRun(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, errOut, err := runTool(t, stdin, args...)
	if err != nil {
		t.Fatalf("raftmq %s: %v\n%s", strings.Join(args, " "), err, errOut)
	}
	return out
}

func TestTopicCommands(t *testing.T) {
	c := startFakeCluster(t, 2)
	c.setLeader(1)
	at := "--name-servers=" + c.addrs()
	if out := mustRun(t, "", "topic", "create", "orders", "--queues", "3", "--perm", "r", "--order", at); out != "topic orders: 3 queues, r\n" {
		t.Errorf("create: %q", out)
	}
	c.mu.Lock()
	if got, want := c.topics["orders"], (topicConfigJSON{"orders", 3, 3, 4, true}); got != want {
		t.Errorf("created %+v, want %+v", got, want)
	}
	c.mu.Unlock()
	mustRun(t, "", "topic", "create", "%RETRY%g", at)
	want := "TOPIC   BROKER  WRITE QUEUES  READ QUEUES  PERM\norders  fake-a  3             3            r\n"
	if out := mustRun(t, "", "topic", "list", at); out != want {
		t.Errorf("list: %q, want %q", out, want)
	}
	if out := mustRun(t, "", "topic", "list", "--all", at); strings.Count(out, "\n") != 4 || !strings.Contains(out, "TBW102") {
		t.Errorf("list --all: %q", out)
	}
	var rows []topicRow
	if err := json.Unmarshal([]byte(mustRun(t, "", "topic", "list", "--json", at)), &rows); err != nil || len(rows) != 1 || rows[0].Topic != "orders" {
		t.Errorf("list --json: %v, %v", rows, err)
	}
	c.addTopic("orders", 3)
	mustRun(t, "a\nb\nc\nd\n", "produce", "--topic", "orders", at)
	out := mustRun(t, "", "topic", "describe", "orders", at)
	if !strings.HasPrefix(out, "orders on fake-a: 3 write and 3 read queues, rw; leader "+c.nodes[1].addr+", replicas "+c.nodes[0].addr+" (id 1)\n") {
		t.Errorf("describe: %q", out)
	}
	if got := strings.Fields(out[strings.Index(out, "QUEUE"):]); strings.Join(got, " ") != "QUEUE MIN MAX MESSAGES 0 0 2 2 1 0 1 1 2 0 1 1 all 4" {
		t.Errorf("describe: %q", got)
	}
	if out := mustRun(t, "", "topic", "delete", "orders", at); out != "topic orders deleted\n" {
		t.Errorf("delete: %q", out)
	}
	for _, args := range [][]string{{"topic", "describe", "orders", at}, {"topic", "delete", "orders", at}, {"consume", "--topic", "orders", "--group", "g", at}} {
		if _, _, err := runTool(t, "", args...); err == nil || !strings.Contains(err.Error(), "orders does not exist") {
			t.Errorf("%s: %v", args, err)
		}
	}
	if _, _, err := runTool(t, "", "topic", "create", "a!", at); err == nil || err.Error() != "create topic a!: SYSTEM_ERROR (code 1): The specified topic contains illegal characters" {
		t.Errorf("illegal name: %v", err)
	}
}

func TestProduceConsume(t *testing.T) {
	c := startFakeCluster(t, 1)
	at := "--name-servers=" + c.addrs()
	// The topic does not exist: the first send makes it, with at most four queues.
	out, errOut, err := runTool(t, "one\ntwo\r\n\nfour", "produce", "--topic", "lines", "--tag", "en", "--key", "k1 k2", "--property", "color=red", "-v", at)
	if err != nil || errOut != "4 messages sent to lines\n" {
		t.Fatalf("produce: %v, %q", err, errOut)
	}
	if lines := strings.Split(out, "\n"); len(lines) != 5 || !strings.HasPrefix(lines[1], "fake-a/1 offset 0 id 7F00") {
		t.Errorf("produce --verbose: %q", out)
	}
	for k, n := range c.keys {
		if n != 1 {
			t.Errorf("UNIQ_KEY %s was used %d times", k, n)
		}
	}
	if len(c.keys) != 4 {
		t.Errorf("%d different UNIQ_KEYs of 4", len(c.keys))
	}
	mustRun(t, "trois\n", "produce", "--topic", "lines", "--tag", "fr", at)

	consume := func(args ...string) []string {
		out := mustRun(t, "", append([]string{"consume", "--topic", "lines", "--timeout", "400ms", at}, args...)...)
		return strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	}
	sorted := func(lines []string) string { return strings.Join(lines, ",") }
	if got := consume("--group", "g1", "--tag", "fr"); sorted(got) != "trois" {
		t.Errorf("tag fr: %q", got)
	}
	if got := consume("--group", "g2", "--tag", "fr || de || en"); len(got) != 5 {
		t.Errorf("tags: %q", got)
	}
	// Three of the five, then the other two: what was not printed was not committed.
	first := consume("--group", "g3", "--max", "3")
	rest := consume("--group", "g3")
	seen := map[string]int{}
	for _, line := range append(first, rest...) {
		seen[line]++
	}
	if len(first) != 3 || len(rest) != 2 || seen["one"] != 1 || seen["two"] != 1 || seen[""] != 1 || seen["four"] != 1 || seen["trois"] != 1 {
		t.Errorf("in two parts: %q, %q", first, rest)
	}
	if got := consume("--group", "g3"); sorted(got) != "" {
		t.Errorf("again: %q", got)
	}
	if got := consume("--group", "g4", "--from", "last"); sorted(got) != "" {
		t.Errorf("from the last: %q", got)
	}
	consume("--group", "g5", "--no-commit")
	if got := consume("--group", "g5"); len(got) != 5 {
		t.Errorf("after a run without commits: %q", got)
	}
	if got := consume("--group", "g6", "--max", "1", "--verbose"); len(got) != 1 || !strings.Contains(got[0], " keys=k1 k2 tags=en: ") {
		t.Errorf("verbose: %q", got)
	}
	var m message
	if err := json.Unmarshal([]byte(consume("--group", "g7", "--max", "1", "--json")[0]), &m); err != nil || m.Properties["color"] != "red" || m.Tag != "en" || m.Topic != "lines" {
		t.Errorf("json: %+v, %v", m, err)
	}
}

func TestProduceFollowsTheLeader(t *testing.T) {
	c := startFakeCluster(t, 3)
	c.addTopic("t", 1)
	c.setLeader(-1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		time.Sleep(300 * time.Millisecond) // an election, meanwhile the tool tries again
		c.setLeader(2)
	}()
	mustRun(t, "x\n", "produce", "--topic", "t", "--name-servers="+c.addrs())
	<-done
	if n := c.nodes[2].stored.Load(); n != 1 {
		t.Errorf("%d messages at the leader", n)
	}
}

func TestProduceErrors(t *testing.T) {
	c := startFakeCluster(t, 1)
	c.addTopic("t", 1)
	c.nodes[0].failing.Store(&answerError{remoting.ResponseMessageIllegal, "the message body size over max value\nmore"})
	_, errOut, err := runTool(t, "a\nb\n", "produce", "--topic", "t", "--name-servers="+c.addrs())
	if want := "line 1: send to t: MESSAGE_ILLEGAL (code 13): the message body size over max value"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if errOut != "0 messages sent to t\n" {
		t.Errorf("%q", errOut)
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"produce"}, `--topic "": is required`},
		{[]string{"produce", "--topic", "t", "--property", "x"}, `--property "x": allowed is name=value`},
		{[]string{"produce", "--topic", "t", "--tag", "a\x01b"}, "separators"},
		{[]string{"produce", "--topic", "t", "--name-servers", "localhost"}, `--name-servers "localhost": allowed is host:port`},
		{[]string{"produce", "--topic", "t", "--name-servers", ";"}, `--name-servers ";"`},
		{[]string{"consume", "--topic", "t"}, `--group "": is required`},
		{[]string{"consume", "--topic", "t", "--group", "a b"}, `--group "a b": allowed are letters, digits and % | _ -`},
		{[]string{"consume", "--topic", "t", "--group", strings.Repeat("g", 256)}, "allowed are 255 characters, it has 256"},
		{[]string{"consume", "--topic", "a/b", "--group", "g"}, `--topic "a/b": allowed are letters, digits and % | _ -`},
		{[]string{"consume", "--topic", "t", "--group", "g", "--from", "middle"}, `--from "middle": allowed are first and last`},
		{[]string{"consume", "--topic", "t", "--group", "g", "-v", "--json"}, "--verbose contradicts --json"},
		{[]string{"topic", "create", "t", "--queues", "0"}, "--queues 0: allowed are 1 to 1024"},
		{[]string{"topic", "create", "t", "--perm", "x"}, `--perm "x": allowed are rw, r and w`},
		{[]string{"topic", "create"}, "accepts 1 arg(s)"},
		{[]string{"cluster", "status", "extra"}, "unknown command"},
	} {
		if _, _, err := runTool(t, "", test.args...); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q: %v, want %q", test.args, err, test.want)
		}
	}
}

func TestNameServersFromTheEnvironment(t *testing.T) {
	c := startFakeCluster(t, 1)
	t.Setenv("NAMESRV_ADDR", c.addrs())
	mustRun(t, "", "topic", "list")
	t.Setenv("RAFTMQ_NAME_SERVERS", "127.0.0.1:1")
	t.Setenv("RAFTMQ_TIMEOUT", "200ms")
	if _, _, err := runTool(t, "", "topic", "list"); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("RAFTMQ_NAME_SERVERS does not come first: %v", err)
	}
}

func TestClusterCommands(t *testing.T) {
	c := startFakeCluster(t, 3)
	c.setLeader(1)
	one := "--name-servers=" + c.nodes[0].addr
	out := mustRun(t, "", "cluster", "status", one)
	lines := strings.Split(out, "\n")
	for i, want := range map[int]string{0: "NODE ROLE TERM APPLIED BEHIND CONTACT MODE VERSION UP CLIENT", 2: "n2 leader 3 7 0 - durable 1 1m1s " + c.nodes[1].addr,
		5: "NODE LOG SIZE NOT FLUSHED QUEUES DISK SCRUB REPAIR CATCH-UP", 7: "n2 0-100 100 B 10 B 4 - - - -", 11: "durability: none at all", 12: "nothing is known to be wrong"} {
		if len(lines) != 14 || strings.Join(strings.Fields(lines[i]), " ") != want {
			t.Fatalf("status, line %d, want %q:\n%s", i, want, out)
		}
	}
	var nodes []nodeAnswer
	if err := json.Unmarshal([]byte(mustRun(t, "", "cluster", "status", "--json", one)), &nodes); err != nil || len(nodes) != 3 || nodes[2].Status.NodeID != "n3" {
		t.Errorf("status --json: %+v, %v", nodes, err)
	}
	if out := mustRun(t, "", "cluster", "leader", one); out != "n2\t"+c.nodes[1].addr+"\n" {
		t.Errorf("leader: %q", out)
	}
	mustRun(t, "", "cluster", "leader", "--all", "--name-servers="+c.addrs())
	if out := mustRun(t, "", "cluster", "peers", one); strings.Count(out, "voter") != 3 || !strings.Contains(out, "voter, leader") {
		t.Errorf("peers: %q", out)
	}

	c.setLeader(-1)
	out, _, err := runTool(t, "", "cluster", "status", one)
	if !errors.Is(err, errReported) || !strings.Contains(out, "no leader takes writes") {
		t.Errorf("status without a leader: %v, %q", err, out)
	}
	mustRun(t, "", "cluster", "status", "--only", one)
	if _, _, err := runTool(t, "", "cluster", "leader", one); err == nil || !strings.Contains(err.Error(), "no leader") {
		t.Errorf("leader without one: %v", err)
	}

	c.setLeader(0)
	c.nodes[2].server.CloseConns()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_ = c.nodes[2].server.Shutdown(ctx)
	out, _, err = runTool(t, "", "cluster", "status", one)
	if !errors.Is(err, errReported) || !strings.Contains(out, "n3    no answer") || !strings.Contains(out, "refused") || !strings.Contains(out, "raftmq cluster remove n3") {
		t.Errorf("status with a node down: %v, %q", err, out)
	}
	if out := mustRun(t, "", "cluster", "leader", one); !strings.HasPrefix(out, "n1\t") {
		t.Errorf("leader with a node down: %q", out)
	}
	if _, _, err := runTool(t, "", "cluster", "leader", "--all", "--name-servers="+c.addrs()); err == nil || !strings.Contains(err.Error(), "does not answer") {
		t.Errorf("leader --all with a node down: %v", err)
	}
}

// A node that is reached under two addresses is one node, and one that is no RaftMQ says so.
func TestStatusOddities(t *testing.T) {
	s := &nodeStatus{}
	s.NodeID, s.ClusterID = "n1", "c"
	if got := sortNodes([]nodeAnswer{{Address: "b", Status: s}, {Address: "x", Error: "e"}, {Address: "a", Status: s}}); len(got) != 2 || got[0].Address != "b" || got[1].Address != "x" {
		t.Errorf("%+v", got)
	}
	var b bytes.Buffer
	for _, test := range []struct{ got, want string }{
		{diskText(&nodeStatus{NodeStatus: remoting.NodeStatus{DiskFree: 256 << 20, DiskTotal: 1 << 30, DiskRatio: 0.76}}), "76% of 1.0 GiB"},
		{diskText(&nodeStatus{NodeStatus: remoting.NodeStatus{DiskTotal: 1 << 30, DiskRatio: -1}}), "-"},
		{diskText(&nodeStatus{NodeStatus: remoting.NodeStatus{DiskTotal: 1, DiskProblem: "x"}}), "SICK"},
		{contactText(&nodeStatus{NodeStatus: remoting.NodeStatus{LastContactMillis: 1234}}), "1.23s"},
		{contactText(&nodeStatus{NodeStatus: remoting.NodeStatus{LastContactMillis: -1}}), "never"},
		{formatBytes(1536), "1.5 KiB"}, {formatBytes(3 << 40), "3.0 TiB"},
	} {
		if test.got != test.want {
			t.Errorf("%q, want %q", test.got, test.want)
		}
	}
	s.Role, s.Problem = "leader", "the disk is slow"
	if err := writeStatus(&b, []nodeAnswer{{Address: "a", Status: s}}); err != nil || !strings.Contains(b.String(), "leader, not ready") || !strings.Contains(b.String(), "n1: the disk is slow\n") {
		t.Errorf("%q, %v", b.String(), err)
	}
}

func TestTagMatches(t *testing.T) {
	for _, test := range []struct {
		expression, tag string
		want            bool
	}{{"*", "", true}, {"", "a", true}, {" * ", "a", true}, {"a", "a", true}, {"a", "b", false}, {"a || b", "b", true}, {"a||b", "", false}, {"a", "aa", false}} {
		if got := tagMatches(test.expression, test.tag); got != test.want {
			t.Errorf("%q matches %q: %t", test.expression, test.tag, got)
		}
	}
}

func TestPlainBody(t *testing.T) {
	// zlib of "hello".
	compressed := []byte{0x78, 0x9c, 0xca, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x04, 0x00, 0x00, 0xff, 0xff, 0x06, 0x2c, 0x02, 0x15}
	for _, sysFlag := range []int32{1, 0x301} {
		if got, err := plainBody(&record.Message{SysFlag: sysFlag, Body: compressed}); got != "hello" || err != nil {
			t.Errorf("sysFlag %#x: %q, %v", sysFlag, got, err)
		}
	}
	if _, err := plainBody(&record.Message{SysFlag: 0x101, Body: compressed}); err == nil {
		t.Error("LZ4 was taken for zlib")
	}
	if _, err := plainBody(&record.Message{SysFlag: 1, Body: compressed[:8]}); err == nil {
		t.Error("a cut body was taken")
	}
}
