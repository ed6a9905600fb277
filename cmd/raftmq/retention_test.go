package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// trio is a cluster of three processes.
type trio struct {
	t       *testing.T
	dirs    [3]string
	ports   [3]int
	more    []string
	servers [3]*server
}

func startTrio(t *testing.T, dirs [3]string, more ...string) *trio {
	t.Helper()
	c := &trio{t: t, dirs: dirs, more: more}
	for i := range c.ports {
		c.ports[i] = freePorts(t, 3)
	}
	for i := range c.servers {
		c.start(i)
	}
	return c
}

func (c *trio) start(i int) {
	c.t.Helper()
	var join []string
	for k, p := range c.ports {
		if k != i {
			join = append(join, fmt.Sprintf("127.0.0.1:%d", p+2))
		}
	}
	c.servers[i] = startServer(c.t, serverArgs(c.dirs[i], c.ports[i], append([]string{"--node-id", fmt.Sprintf("n%d", i+1), "--bootstrap-expect", "3",
		"--join", strings.Join(join, ",")}, c.more...)...)...)
}

func (c *trio) kill(i int) {
	c.t.Helper()
	if err := c.servers[i].cmd.Process.Kill(); err != nil {
		c.t.Fatal(err)
	}
	<-c.servers[i].done
}

func (c *trio) addr(i int) string { return fmt.Sprintf("127.0.0.1:%d", c.ports[i]) }

// nameServers is the flag of the tools.
func (c *trio) nameServers() string {
	return fmt.Sprintf("--name-servers=%s;%s;%s", c.addr(0), c.addr(1), c.addr(2))
}

// await polls the statuses until ok likes them.
func (c *trio) await(what string, ok func(s [3]*nodeStatus) bool) (s [3]*nodeStatus) {
	c.t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		whole := true
		for i := range s {
			s[i] = askNode(context.Background(), c.addr(i), time.Second).Status
			whole = whole && s[i] != nil
		}
		if whole && ok(s) {
			return s
		}
		if time.Now().After(deadline) {
			for i := range c.servers {
				c.t.Logf("n%d: %+v\n%s", i+1, s[i], tail(c.servers[i].stderr.String()))
			}
			c.t.Fatalf("waited for %s", what)
		}
	}
}

func tail(s string) string { return s[max(0, len(s)-4000):] }

// healthy waits for a leader that all follow, and returns its number.
func (c *trio) healthy() (leader int) {
	c.t.Helper()
	c.await("a leader", func(s [3]*nodeStatus) bool {
		for i := range s {
			if s[i].Ready {
				leader = i
			}
		}
		for i := range s {
			if s[i].LeaderID != fmt.Sprintf("n%d", leader+1) || s[i].LogMax != s[leader].LogMax || !s[leader].Ready {
				return false
			}
		}
		return true
	})
	return leader
}

// sendCommand is a SEND_MESSAGE to queue 0.
func sendCommand(topic, body string) *remoting.Command {
	cmd := &remoting.Command{Code: remoting.RequestSendMessage, Body: []byte(body)}
	for _, f := range [][2]string{{"producerGroup", "pg"}, {"topic", topic}, {"defaultTopic", "TBW102"}, {"defaultTopicQueueNums", "4"}, {"queueId", "0"},
		{"sysFlag", "0"}, {"bornTimestamp", "1700000000000"}, {"flag", "0"}, {"properties", ""}, {"reconsumeTimes", "0"}, {"unitMode", "false"}} {
		cmd.Set(f[0], f[1])
	}
	return cmd
}

// call asks a node until it does not answer 14, as clients do of one that has just started, and wants success.
func (c *trio) call(i int, cmd *remoting.Command) *remoting.Command {
	c.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		resp := c.ask(i, cmd)
		if resp.Code == remoting.ResponseServiceNotAvailable && time.Now().Before(deadline) {
			continue
		}
		if resp.Code != remoting.ResponseSuccess {
			c.t.Fatalf("%s: %d %s", remoting.RequestCodeName(cmd.Code), resp.Code, resp.Remark)
		}
		return resp
	}
}

func (c *trio) ask(i int, cmd *remoting.Command) *remoting.Command {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := client.Dial(ctx, c.addr(i))
	if err != nil {
		c.t.Fatal(err)
	}
	defer conn.Close()
	resp, err := conn.Invoke(ctx, cmd)
	if err != nil {
		c.t.Fatal(err)
	}
	return resp
}

// offset asks for a queue's minimum or maximum.
func (c *trio) offset(code int32, topic string) (n int64) {
	c.t.Helper()
	cmd := &remoting.Command{Code: code}
	cmd.Set("topic", topic)
	cmd.Set("queueId", "0")
	if _, err := fmt.Sscan(c.call(0, cmd).GetString("offset"), &n); err != nil {
		c.t.Fatal(err)
	}
	return n
}

// TestF09RetentionOfACluster: one node is told to delete what is old, and all do: same range, same bytes, same minimum. A queue whose
// messages are all gone goes on where it was, also after all nodes were killed; a node that comes back empty gets what is
// left, and consumers begin there.
func TestF09RetentionOfACluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("runs a cluster of processes")
	}
	dir := t.TempDir()
	c := startTrio(t, [3]string{filepath.Join(dir, "1"), filepath.Join(dir, "2"), filepath.Join(dir, "3")},
		"--mapped-file-size-commit-log", "64KiB", "--mapped-file-size-consume-queue", "2000", "--max-message-size", "16KiB", "--file-reserved-time", "1s",
		"--raft-snapshot-bytes", "1MiB", "--raft-trailing-bytes", "0")
	c.healthy()
	at := c.nameServers()
	const queueFile = 100
	mustRun(t, "", "topic", "create", "gone", "--queues", "1", at)
	mustRun(t, "", "topic", "create", "kept", "--queues", "1", at)
	mustRun(t, strings.Repeat(strings.Repeat("x", 2000)+"\n", 250), "produce", "--topic", "gone", at)
	mustRun(t, strings.Repeat(strings.Repeat("y", 2000)+"\n", 40), "produce", "--topic", "kept", at) // the last segment is theirs
	leader := c.healthy()
	s := c.await("the log to be trimmed", func(s [3]*nodeStatus) bool {
		if s[leader].LogMin < (s[leader].LogMax-1)/65536*65536 {
			c.call((leader+1)%3, &remoting.Command{Code: remoting.RequestDeleteExpiredCommitLog}) // any node
		}
		for i := range s {
			if last := (s[i].LogMax - 1) / 65536 * 65536; s[i].LogMin != last || s[i].LogFileMin != last || last == 0 {
				return false
			}
		}
		return true
	})
	old := c.offset(remoting.RequestGetMaxOffset, "gone") // more than were sent when the producer had to send one again
	if old < 250 {
		t.Errorf("%d messages were stored", old)
	}
	end, low := s[0].LogMax, s[0].LogMin
	sums := map[string]bool{}
	for i := range c.servers {
		if segments, _ := filepath.Glob(filepath.Join(c.dirs[i], "store", "commitlog", "0*")); filepath.Base(segments[0]) != fmt.Sprintf("%020d", low) {
			t.Errorf("n%d: segments %v, minimum %d", i+1, segments, low)
		}
		files, _ := filepath.Glob(filepath.Join(c.dirs[i], "store", "consumequeue", "gone", "0", "*"))
		if len(files) != 1 || filepath.Base(files[0]) != fmt.Sprintf("%020d", old/queueFile*queueFile*20) {
			t.Errorf("n%d: queue files %v", i+1, files)
		}
		ask := &remoting.Command{Code: remoting.RequestNodeStatus}
		ask.Set("checksumTo", fmt.Sprint(end))
		var status nodeStatus
		if err := json.Unmarshal(c.call(i, ask).Body, &status); err != nil || status.LogChecksum == "" {
			t.Fatalf("n%d: %+v %v", i+1, status, err)
		}
		sums[status.LogChecksum] = true
	}
	if len(sums) != 1 {
		t.Errorf("checksums %v", sums)
	}
	if low, end := c.offset(remoting.RequestGetMinOffset, "gone"), c.offset(remoting.RequestGetMaxOffset, "gone"); low != old || end != old {
		t.Errorf("the empty queue is [%d, %d), want [%d, %d)", low, end, old, old)
	}
	kept := c.offset(remoting.RequestGetMinOffset, "kept")
	out := mustRun(t, "", "consume", "--topic", "kept", "--group", "g", "--from", "first", "--timeout", "3s", at)
	if n := strings.Count(out, "\n"); kept <= 0 || n != 40-int(kept) {
		t.Errorf("%d messages were consumed, the queue is [%d, 40)", n, kept)
	}

	// All are killed; one of them comes back empty.
	for i := range c.servers {
		c.kill(i)
	}
	if err := os.RemoveAll(c.dirs[2]); err != nil {
		t.Fatal(err)
	}
	for i := range c.servers {
		c.start(i)
	}
	c.await("the empty node to be filled", func(s [3]*nodeStatus) bool {
		for i := range s {
			if s[i].LeaderID == "" || s[i].LogMin != low || s[i].LogMax < end || s[i].LogMax != s[0].LogMax {
				return false
			}
		}
		return true
	})
	mustRun(t, "after\n", "produce", "--topic", "gone", at)
	if low, end := c.offset(remoting.RequestGetMinOffset, "gone"), c.offset(remoting.RequestGetMaxOffset, "gone"); low != old || end != old+1 {
		t.Errorf("the queue is [%d, %d), want [%d, %d)", low, end, old, old+1)
	}
	if out := mustRun(t, "", "consume", "--topic", "gone", "--group", "g", "--from", "first", "--timeout", "3s", at); !strings.Contains(out, "after") || strings.Contains(out, "x") {
		t.Errorf("consumed %q", out)
	}
}

// TestF27LeaderLeavesItsFullDisk: the leader whose disk fills up hands leadership to a node that has space; sends go on, and nothing is
// lost. With space it is a node as any other again.
func TestF27LeaderLeavesItsFullDisk(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("fills a disk under a cluster of processes")
	}
	dir := t.TempDir()
	var dirs [3]string
	for i := range dirs {
		disk := filepath.Join(dir, fmt.Sprint(i))
		if err := os.Mkdir(disk, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=96m"); err != nil {
			t.Skipf("no file system of a limited size: %v", err)
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(disk, syscall.MNT_DETACH); err != nil {
				t.Errorf("unmount: %v", err)
			}
		})
		dirs[i] = filepath.Join(disk, "data")
	}
	c := startTrio(t, dirs, "--mapped-file-size-commit-log", "1MiB", "--max-message-size", "256KiB", "--max-hash-slot-num", "1000", "--max-index-num", "10000")
	leader := c.healthy()
	at := c.nameServers()
	mustRun(t, "", "topic", "create", "t", "--queues", "1", at)
	const each = 20
	mustRun(t, strings.Repeat(strings.Repeat("x", 1000)+"\n", each), "produce", "--topic", "t", at)
	ballast := filepath.Join(filepath.Dir(c.dirs[leader]), "ballast")
	fill(t, ballast, 2*mib)
	began := time.Now()
	// It goes on leading for two seconds, and says what is the matter.
	said := false
	for time.Since(began) < 30*time.Second && !said {
		s := askNode(context.Background(), c.addr(leader), time.Second).Status
		if s != nil && !s.Ready {
			break
		}
		if s == nil || s.RunningFlags == "" {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		resp := c.ask(leader, sendCommand("t", "refused"))
		said = resp.Code == remoting.ResponseServiceNotAvailable && strings.Contains(resp.Remark, "the broker's disk is full [CL:  ")
		if !said && !strings.Contains(resp.Remark, "does not lead") {
			t.Fatalf("a send on a full disk: %d %q", resp.Code, resp.Remark)
		}
	}
	if !said {
		t.Error("no send was refused for the full disk")
	}
	c.await("another leader", func(s [3]*nodeStatus) bool {
		if s[leader].RunningFlags != "" && !strings.Contains(s[leader].Problem, "disk") {
			t.Errorf("problem %q with %q", s[leader].Problem, s[leader].RunningFlags)
		}
		return !s[leader].Ready && (s[(leader+1)%3].Ready || s[(leader+2)%3].Ready)
	})
	t.Logf("leadership moved after %v", time.Since(began).Round(10*time.Millisecond))
	mustRun(t, strings.Repeat(strings.Repeat("y", 1000)+"\n", each), "produce", "--topic", "t", at)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	began = time.Now()
	c.await("the full node to be well", func(s [3]*nodeStatus) bool {
		return s[leader].RunningFlags == "" && s[leader].LogMax == s[(leader+1)%3].LogMax && s[leader].LogMax == s[(leader+2)%3].LogMax
	})
	t.Logf("well again after %v", time.Since(began).Round(10*time.Millisecond))
	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("not well for %v", d)
	}
	out := mustRun(t, "", "consume", "--topic", "t", "--group", "g", "--from", "first", "--timeout", "3s", at)
	if x, y := strings.Count(out, strings.Repeat("x", 1000)), strings.Count(out, strings.Repeat("y", 1000)); x < each || y < each {
		t.Errorf("%d and %d messages of %d each", x, y, each)
	}
	for i, s := range c.servers {
		select {
		case <-s.done:
			t.Errorf("n%d ended: %v", i+1, s.err)
		default:
		}
	}
}

// TestDiskSizes: what is taken ahead fits small disks, and at most so much on large ones.
func TestDiskSizes(t *testing.T) {
	for total, want := range map[int64]diskSizes{
		0:          {64 * mib, 64 * mib, 144 * mib, 128 * mib, 56 * mib, 8 * gib},
		1000 * gib: {64 * mib, 64 * mib, 144 * mib, 128 * mib, 56 * mib, 125 * gib},
		64 * mib:   {4 * mib, 4 * mib, 4 * mib, 8 * mib, 2 * mib, 8 * mib},
		5 * mib:    {mib, mib, mib, 2 * mib, mib, 2 * mib},
	} {
		if got := sizesFor(total); got != want {
			t.Errorf("%d: %+v, want %+v", total, got, want)
		}
	}
}
