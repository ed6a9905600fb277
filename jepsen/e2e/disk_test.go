package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"raftmq/jepsen"
	"raftmq/jepsen/cluster"
	"raftmq/jepsen/history"
	"raftmq/jepsen/workload"
	"raftmq/transport/remoting"
)

// smallFlags make a node fit a disk of 96 MiB.
func smallFlags() []string {
	return []string{"--mapped-file-size-commit-log", "1MiB", "--max-message-size", "256KiB", "--mapped-file-size-consume-queue", "40000",
		"--max-hash-slot-num", "1000", "--max-index-num", "10000"}
}

// limitDisks puts a file system of 96 MiB under each node's data folder, or skips the test.
func limitDisks(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	for _, n := range c.Nodes() {
		if err := os.Mkdir(n.DataDir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mount("tmpfs", n.DataDir, "tmpfs", 0, "size=96m"); err != nil {
			t.Skipf("no file system of a limited size: %v", err)
		}
		t.Cleanup(func() {
			if err := syscall.Unmount(n.DataDir, syscall.MNT_DETACH); err != nil {
				t.Errorf("unmount: %v", err)
			}
		})
	}
}

// fillDisk writes a file beside the node's data that leaves so many bytes, and freeDisk removes it.
func fillDisk(n *cluster.Node, leave int64) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(n.DataDir, &st); err != nil {
		return err
	}
	size := int64(st.Bavail)*st.Bsize - leave
	if size < 0 {
		return fmt.Errorf("the disk of %s has only %d bytes left before it is filled", n.ID, size+leave)
	}
	f, err := os.Create(filepath.Join(n.DataDir, "ballast"))
	if err != nil {
		return err
	}
	return errors.Join(syscall.Fallocate(int(f.Fd()), 0, 0, size), f.Close())
}

func freeDisk(n *cluster.Node) error { return os.Remove(filepath.Join(n.DataDir, "ballast")) }

// F27: the disks of the majority, or of all nodes, get full under load. Producers are told so with the right code, by a leader that stays;
// consumers and their offsets go on; within 10 s of space coming back messages are taken again; nothing is lost. One full disk, the
// leader's, is cmd/raftmq's TestF27LeaderLeavesItsFullDisk.
func TestF27_DisksOfManyFull(t *testing.T) {
	long(t)
	t.Parallel()
	for _, which := range []string{"majority", "all"} {
		t.Run(which, func(t *testing.T) {
			parallel(t, 12)
			topic := topicName(t)
			run(t, jepsen.Config{
				Workload: workload.Config{Topic: topic, Client: workload.Raw, Rate: 300},
				Flags:    steadyFlags(smallFlags()...),
				Prepare:  func(c *cluster.Cluster) error { limitDisks(t, c); return nil },
				Do: func(ctx context.Context, c *cluster.Cluster, rec *history.Recorder) error {
					ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
					defer cancel()
					return f27(ctx, t, c, rec, topic, which)
				},
			})
		})
	}
}

func f27(ctx context.Context, t *testing.T, c *cluster.Cluster, rec *history.Recorder, topic, which string) error {
	leader, err := c.Leader(ctx)
	if err != nil {
		return err
	}
	if err := sleep(ctx, 2*time.Second); err != nil { // of load
		return err
	}
	var full []*cluster.Node
	for _, n := range c.Nodes() {
		if which == "all" || n != leader {
			full = append(full, n)
		}
	}
	ask, err := leader.Dial(ctx)
	if err != nil {
		return err
	}
	defer ask.Close()
	send := func(body string) (*remoting.Command, error) {
		return ask.Invoke(ctx, sendRequest(topic, 0, body+"|", "UNIQ_KEY\x01"+body))
	}
	if err := step(rec, "fill disks", which, func() error {
		for _, n := range full {
			if err := fillDisk(n, 2<<20); err != nil {
				return err
			}
		}
		began := time.Now()
		for i := 0; ; i++ {
			body := fmt.Sprintf("probe-%d", i)
			op := rec.Begin(history.Op{Kind: history.Send, Process: "probe", Value: body, Topic: topic, Queue: -1, Offset: -1, Attempts: 1})
			resp, err := send(body)
			if err == nil && resp.Code == 0 {
				op.Outcome, op.UniqKey = history.OK, body
				op.Queue, op.Offset = 0, number(t, resp, "queueOffset")
			}
			rec.End(op)
			switch {
			case err != nil:
				return fmt.Errorf("a send on full disks: %w", err)
			case resp.Code == 0 && time.Since(began) > bound(15*time.Second):
				return fmt.Errorf("messages are taken %v after the disks were filled", time.Since(began))
			case resp.Code == 0:
				time.Sleep(20 * time.Millisecond)
				continue
			case resp.Code != remoting.ResponseServiceNotAvailable || !strings.Contains(resp.Remark, "full"):
				return fmt.Errorf("a send on full disks is answered %d %q", resp.Code, resp.Remark)
			}
			t.Logf("messages are refused %v after the disks were filled: %q", time.Since(began).Round(time.Millisecond), resp.Remark)
			break
		}
		return f27While(ctx, t, c, leader, topic)
	}); err != nil {
		return err
	}
	began := time.Now()
	for _, n := range full {
		if err := freeDisk(n); err != nil {
			return err
		}
	}
	for {
		resp, err := send("after")
		if err == nil && resp.Code == 0 {
			rec.Add(history.Op{Kind: history.Send, Process: "probe-after", Value: "after", UniqKey: "after", Topic: topic, Queue: 0,
				Offset: number(t, resp, "queueOffset"), Attempts: 1, Outcome: history.OK})
			break
		}
		if took := time.Since(began); took > bound(10*time.Second) {
			return fmt.Errorf("not writable %v after space came back: %v, %v", took, resp, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("writable again %v after space came back", time.Since(began).Round(time.Millisecond))
	if _, err := c.WaitServing(ctx); err != nil {
		return err
	}
	for _, n := range c.Nodes() {
		if strings.Contains(n.LogTail(1<<20), "the node is down until its disk is well") {
			t.Errorf("%s went down for its full disk", n.ID)
		}
	}
	return sleep(ctx, time.Second) // of load
}

// f27While holds the full disks for some seconds: reads and offsets go on, the leader stays.
func f27While(ctx context.Context, t *testing.T, c *cluster.Cluster, leader *cluster.Node, topic string) error {
	before, err := leader.Status(ctx)
	if err != nil {
		return err
	}
	conn, err := leader.Dial(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for i := range 10 {
		n, err := workload.ReadQueue(ctx, conn, "while-full", topic, 0, func(workload.Delivery) {})
		if err != nil || n == 0 {
			return fmt.Errorf("reading on full disks: %d messages, %w", n, err)
		}
		commit := request(remoting.RequestUpdateConsumerOffset, nil, "consumerGroup", "while-full", "topic", topic, "queueId", "0", "commitOffset", fmt.Sprint(i+1))
		if resp, err := conn.Invoke(ctx, commit); err != nil || resp.Code != 0 {
			return fmt.Errorf("committing an offset on full disks: %v, %w", resp, err)
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
	for i, r := range c.Statuses(ctx, time.Second) {
		if r.Err != nil {
			return fmt.Errorf("n%d with a full disk does not answer: %w", i+1, r.Err)
		}
	}
	st, err := leader.Status(ctx)
	if err != nil {
		return err
	}
	if !strings.Contains(st.Problem, "disk") {
		t.Errorf("the leader says %q is wrong", st.Problem)
	}
	if got := consumerOffset(t, conn, "while-full", topic, 0); got < 5 {
		t.Errorf("the committed offset is %d", got)
	}
	return unchanged(ctx, leader, before)
}
