package e2e

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"raftmq/commitlog/record"
	"raftmq/jepsen/workload"
)

// folderSize is how many bytes the files below a folder have.
func folderSize(dir string) (total int64) {
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if fi, err := d.Info(); err == nil {
				total += fi.Size()
			}
		}
		return nil
	})
	return total
}

// TestBackupAndRestore: a backup is taken under load, cut by SIGKILL, gone on with from another node; clusters of three and of one that are restored from it
// have all that was acknowledged before it began, at the same offsets, and go on.
func TestBackupAndRestore(t *testing.T) {
	long(t)
	parallel(t, 25)
	flags := []string{"--mapped-file-size-commit-log", "1MiB", "--max-hash-slot-num", "1000", "--max-index-num", "2000"}
	s := startScript(t, serverBin(t), flags...)
	topic := topicName(t)
	const queues = 4
	s.tool("topic", "create", topic, "--queues", strconv.Itoa(queues))
	names := strings.Join(s.addrs(), ",")
	filler := s.command("produce", "--topic", topic)
	filler.Stdin = strings.NewReader(strings.Repeat(strings.Repeat("f", 1000)+"\n", 4000))
	if out, err := filler.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	s.tool("consume", "--topic", topic, "--group", "readers", "--max", "1000")
	l := startLoad(t, s.addrs(), topic, 0)

	dir := filepath.Join(t.TempDir(), "backup")
	cut := s.command("cluster", "backup", dir, "--from", "n2", "--rate", "2MiB")
	if err := cut.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, time.Minute, "a part of the backup", func() bool { return folderSize(dir) > 2<<20 })
	_ = cut.Process.Kill()
	_ = cut.Wait()
	if out, err := s.try(s.bin, "cluster", "restore", dir, "--check"); err == nil || !strings.Contains(out, "it was not finished") {
		t.Errorf("check of a backup that was cut: %v, %s", err, out)
	}
	var acked map[string]workload.Ack
	eventually(t, time.Minute, "50 acknowledged messages", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		acked = maps.Clone(l.acked)
		return len(acked) >= 50
	})
	out := s.must(s.bin, "cluster", "backup", dir, "--from", "n3", "--name-servers", names)
	if strings.Contains(out, " and 0 B kept") {
		t.Errorf("the backup began anew: %s", out)
	}
	t.Log(strings.TrimSpace(out))
	l.end()
	s.tool("cluster", "verify")
	all := pullAll(t, s.node(1), topic, queues)
	s.cluster("down")

	for _, members := range []int{3, 1} {
		r := s.restored(dir, members, flags)
		got := pullAll(t, r.node(1), topic, queues)
		checkRestored(t, fmt.Sprintf("%d nodes", members), acked, bodies(got), bodies(all))
		if n := strings.Count(r.must(r.bin, "consume", "--topic", topic, "--group", "readers", "--timeout", "3s", "--name-servers", r.addrs()[0]), "\n"); n != count(got)-1000 {
			t.Errorf("%d nodes: the group, which had had 1000 of %d messages, gets %d", members, count(got), n)
		}
		more := r.command("produce", "--topic", topic)
		more.Stdin = strings.NewReader("more\n")
		if out, err := more.CombinedOutput(); err != nil {
			t.Errorf("%d nodes: %v: %s", members, err, out)
		}
		r.must(r.bin, "cluster", "verify", "--name-servers", r.addrs()[0])
		r.cluster("down")
	}
}

// command is a tool against all nodes that is not run yet.
func (s *scriptCluster) command(args ...string) *exec.Cmd {
	return exec.Command(s.bin, append(args, "--name-servers", strings.Join(s.addrs(), ","))...)
}

// restored starts a cluster of so many nodes from a backup, on the same ports.
func (s *scriptCluster) restored(backup string, members int, flags []string) *scriptCluster {
	s.t.Helper()
	r := &scriptCluster{t: s.t, dir: filepath.Join(s.t.TempDir(), "restored"), bin: s.bin, port: s.port}
	s.t.Cleanup(func() { _, _ = r.try("scripts/cluster", "-d", r.dir, "down") })
	var list, nodes []string
	for n := 1; n <= members; n++ {
		list = append(list, fmt.Sprintf("n%d=127.0.0.1:%d", n, r.port+10*(n-1)+1))
		nodes = append(nodes, strconv.Itoa(n))
	}
	for n := 1; n <= members; n++ {
		args := append([]string{"cluster", "restore", backup, "--data-dir", filepath.Join(r.dir, "n"+strconv.Itoa(n), "data"), "--node-id", "n" + strconv.Itoa(n),
			"--raft-advertise", fmt.Sprintf("127.0.0.1:%d", r.port+10*(n-1)+1)}, flags...)
		if members > 1 {
			args = append(args, "--members", strings.Join(list, ","), "--token", "once")
		}
		r.must(r.bin, args...)
	}
	state := fmt.Sprintf("nodes=%d\nport=%d\n", members, r.port)
	for name, text := range map[string]string{"cluster": state, "flags": strings.Join(flags, "\x00") + "\x00"} {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o644); err != nil {
			s.t.Fatal(err)
		}
	}
	r.cluster(append([]string{"start"}, nodes...)...)
	return r
}

// checkRestored: each queue is a beginning of what the former cluster had, long enough for all that was acknowledged before.
func checkRestored(t *testing.T, what string, acked map[string]workload.Ack, got, all [][]string) {
	t.Helper()
	for q := range all {
		for i, body := range got[q] {
			if i >= len(all[q]) || body != all[q][i] {
				t.Fatalf("%s: queue %d has %.20q at %d, the former cluster had another message there", what, q, body, i)
			}
		}
	}
	for body, ack := range acked {
		if q := got[ack.Queue]; int64(len(q)) <= ack.Offset || q[ack.Offset] != body {
			t.Errorf("%s: %s was acknowledged at queue %d offset %d before the backup began, and is not there", what, body, ack.Queue, ack.Offset)
		}
	}
}

func bodies(queues [][]record.Message) [][]string {
	out := make([][]string, len(queues))
	for q := range queues {
		for _, m := range queues[q] {
			out[q] = append(out[q], string(m.Body))
		}
	}
	return out
}

func count(queues [][]record.Message) (n int) {
	for _, q := range queues {
		n += len(q)
	}
	return n
}
