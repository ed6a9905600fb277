package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// mainVariable makes this test binary be raftmq: the tests here run real processes.
const mainVariable = "TEST_IS_RAFTMQ"

func TestMain(m *testing.M) {
	if os.Getenv(mainVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// processEnv is the environment of a process that is raftmq. The race detector's pause at exit,
// which waits for reports, would add a second to each of many commands.
func processEnv() []string {
	return append(os.Environ(), mainVariable+"=1", "GORACE=atexit_sleep_ms=0")
}

// givenPorts is how many ports freePorts has looked at: tests that run at once get different ports.
var givenPorts atomic.Int64

// Ports that freePorts takes: above those of jepsen/cluster, whose tests run at the same time, and below
// those that the system gives to outgoing connections.
const firstPort, lastPort = 25100, 32000

// freePorts finds a port P so that P to P+width are free.
func freePorts(t *testing.T, width int) int {
	t.Helper()
	givenPorts.CompareAndSwap(0, int64(os.Getpid()%800*8))
	for range lastPort - firstPort {
		base := firstPort + (int(givenPorts.Add(int64(width+1)))-width-1)%(lastPort-firstPort-width)
		if portsFree(base, width) {
			return base
		}
	}
	t.Fatal("no free ports")
	return 0
}

func portsFree(base, width int) bool {
	for p := base; p <= base+width; p++ {
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", p))
		if err != nil {
			return false
		}
		_ = l.Close()
	}
	return true
}

// output gathers what a process prints; safe to read while it runs.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// server is a running "raftmq server".
type server struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr output
	done           chan struct{}
	err            error // after done
}

func serverArgs(dir string, port int, more ...string) []string {
	at := func(i int) string { return fmt.Sprintf("127.0.0.1:%d", port+i) }
	return append([]string{"server", "--node-id", "n1", "--data-dir", dir, "--client-address", at(0), "--raft-address", at(1),
		"--gossip-address", at(2), "--http-address", at(3)}, more...)
}

func startServer(t *testing.T, args ...string) *server {
	t.Helper()
	s := &server{t: t, cmd: exec.Command(os.Args[0], args...), done: make(chan struct{})}
	s.cmd.Env = processEnv()
	s.cmd.Stdout, s.cmd.Stderr = &s.stdout, &s.stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.done)
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.done
	})
	return s
}

// ready waits until the node leads.
func (s *server) ready(port int) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		select {
		case <-s.done:
			s.t.Fatalf("ended: %v\n%s%s", s.err, s.stdout.String(), s.stderr.String())
		default:
		}
		n := askNode(context.Background(), fmt.Sprintf("127.0.0.1:%d", port), time.Second)
		if n.Status != nil && n.Status.Ready {
			return
		}
	}
	s.t.Fatalf("not ready\n%s%s", s.stdout.String(), s.stderr.String())
}

// exit waits for the end and returns the status.
func (s *server) exit() int {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(time.Minute):
		s.t.Fatalf("did not end\n%s%s", s.stdout.String(), s.stderr.String())
	}
	var e *exec.ExitError
	if errors.As(s.err, &e) {
		return e.ExitCode()
	}
	if s.err != nil {
		s.t.Fatal(s.err)
	}
	return 0
}

func TestServerLife(t *testing.T) {
	t.Parallel()
	dir, port := filepath.Join(t.TempDir(), "data"), freePorts(t, 3)
	s := startServer(t, serverArgs(dir, port, "--bootstrap-expect", "1")...)
	s.ready(port)
	for _, want := range []string{"raftmq " + version, "n1 of cluster DefaultCluster, broker group raftmq-a", fmt.Sprintf("127.0.0.1:%d\n", port), dir,
		"SEND_OK after a majority has fsynced the Raft log", "formed by this node alone"} {
		if !strings.Contains(s.stdout.String(), want) {
			t.Errorf("the start lines lack %q:\n%s", want, s.stdout.String())
		}
	}
	at := fmt.Sprintf("--name-servers=127.0.0.1:%d", port)
	mustRun(t, "kept\n", "produce", "--topic", "t", at)

	// A second process on the folder is refused and harms nothing.
	other := startServer(t, serverArgs(dir, freePorts(t, 3))...)
	if status := other.exit(); status != 1 || !strings.Contains(lastLine(other.stderr.String()), dir) {
		t.Errorf("second process on a folder: status %d\n%s", status, other.stderr.String())
	}
	// A port in use is named with its flag.
	other = startServer(t, serverArgs(filepath.Join(t.TempDir(), "data"), port, "--bootstrap-expect", "1")...)
	if status := other.exit(); status != 1 || !strings.Contains(lastLine(other.stderr.String()), "--client-address") || !strings.Contains(other.stderr.String(), "address already in use") {
		t.Errorf("port in use: status %d\n%s", status, other.stderr.String())
	}

	// timeout(1) signals a process and then its group: that is one wish, not two. A node alone has nobody to hand over to.
	for range 2 {
		if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
			t.Fatal(err)
		}
	}
	if status := s.exit(); status != 0 || !strings.Contains(s.stderr.String(), "stopped") || strings.Contains(s.stderr.String(), "WARN") {
		t.Errorf("SIGTERM: status %d\n%s", status, s.stderr.String())
	}

	// With data neither --bootstrap-expect nor --join is needed, and what was sent is there.
	unfinished := filepath.Join(dir, "raft", "snapshots", "1-2-3.tmp")
	if err := os.MkdirAll(unfinished, 0o755); err != nil {
		t.Fatal(err)
	}
	s = startServer(t, serverArgs(dir, port, "--log-format", "json", "--default-topic-queues", "3")...)
	s.ready(port)
	if _, err := os.Stat(unfinished); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a kill left of a snapshot is still there: %v", err)
	}
	if !strings.Contains(s.stderr.String(), `"@message":"starting"`) || s.stdout.String() != "" {
		t.Errorf("start in JSON: %q\n%s", s.stdout.String(), s.stderr.String())
	}
	if out := mustRun(t, "", "consume", "--topic", "t", "--group", "g", "--max", "1", at); out != "kept\n" {
		t.Errorf("after a restart: %q", out)
	}
	if err := s.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if status := s.exit(); status != 0 {
		t.Errorf("SIGINT: status %d\n%s", status, s.stderr.String())
	}
	if !strings.Contains(s.stderr.String(), `"flag":"--default-topic-queues"`) || strings.Contains(s.stderr.String(), "auto-create") {
		t.Errorf("a flag that is fixed at bootstrap and differs:\n%s", s.stderr.String())
	}

	// A folder belongs to one node of one cluster, and keeps its segment size.
	for flag, value := range map[string]string{"--node-id": "n2", "--cluster-name": "Other", "--broker-name": "other-a", "--mapped-file-size-commit-log": "64MiB"} {
		s = startServer(t, serverArgs(dir, port, flag, value)...)
		if status := s.exit(); status != 1 || !strings.Contains(lastLine(s.stderr.String()), flag) && !strings.Contains(lastLine(s.stderr.String()), value) {
			t.Errorf("%s %s: status %d\n%s", flag, value, status, s.stderr.String())
		}
	}
	// A member that lost its Raft log could break its earlier votes: it is refused, not started empty.
	if err := os.RemoveAll(filepath.Join(dir, "raft")); err != nil {
		t.Fatal(err)
	}
	s = startServer(t, serverArgs(dir, port)...)
	if status := s.exit(); status != 1 || !strings.Contains(lastLine(s.stderr.String()), "its Raft log in "+filepath.Join(dir, "raft")+" is gone") {
		t.Errorf("without a Raft log: status %d\n%s", status, s.stderr.String())
	}
}

func lastLine(s string) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return lines[len(lines)-1]
}

func TestServerRefusals(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		want string
	}{
		{[]string{"--log-format", "xml"}, `raftmq: --log-format "xml": allowed are text and json`},
		{nil, "raftmq: --bootstrap-expect 0: "},
		{[]string{"--data-dir", filepath.Join(dir, "file", "below"), "--bootstrap-expect", "1"}, "not a directory"},
		{[]string{"extra"}, "raftmq: "},
	} {
		s := startServer(t, serverArgs(filepath.Join(dir, "data"), freePorts(t, 3), test.args...)...)
		if status := s.exit(); status != 1 || !strings.Contains(s.stderr.String(), test.want) || strings.Count(s.stderr.String(), "\n") != 1 {
			t.Errorf("%q: status %d\n%s", test.args, status, s.stderr.String())
		}
	}
}

// TestClusterScript goes through scripts/cluster as a person would.
func TestClusterScript(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("starts and stops a cluster several times")
	}
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	dir := filepath.Join(t.TempDir(), "c")
	port := freePorts(t, 23)
	run := func(args ...string) (stdout, stderr string, ok bool) {
		t.Helper()
		cmd := exec.Command("bash", append([]string{"../../scripts/cluster", "-d", dir}, args...)...)
		cmd.Env = append(processEnv(), "RAFTMQ_BIN="+os.Args[0])
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		err := cmd.Run()
		return strings.TrimSpace(out.String()), errOut.String(), err == nil
	}
	must := func(args ...string) string {
		t.Helper()
		out, errOut, ok := run(args...)
		if !ok {
			t.Fatalf("%s failed: %s%s", args, out, errOut)
		}
		return out
	}
	refused := func(want string, args ...string) {
		t.Helper()
		out, errOut, ok := run(args...)
		if ok || !strings.Contains(errOut, want) {
			t.Errorf("%s: %q %q, want a refusal with %q", args, out, errOut, want)
		}
	}
	t.Cleanup(func() { run("down") })

	refused("no cluster in", "status")
	refused("allowed are 1 to 9", "up", "-n", "10")
	refused("allowed are text and json", "up", "-n", "1", "-p", fmt.Sprint(port), "--", "--log-format", "xml")
	busy, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+13))
	if err != nil {
		t.Fatal(err)
	}
	refused(fmt.Sprintf("port %d (n2's HTTP port) is in use", port+13), "up", "-p", fmt.Sprint(port))
	_ = busy.Close()

	must("up", "-p", fmt.Sprint(port), "--", "--mapped-file-size-commit-log", "1MiB")
	at := func(n int) string { return fmt.Sprintf("127.0.0.1:%d", port+10*(n-1)) }
	if got, want := must("addresses"), at(1)+";"+at(2)+";"+at(3); got != want {
		t.Errorf("addresses %q, want %q", got, want)
	}
	leader := must("leader")
	if len(leader) != 1 || leader < "1" || leader > "3" {
		t.Fatalf("leader %q", leader)
	}
	follower := "1"
	if leader == "1" {
		follower = "2"
	}
	mustRun(t, "hello\n", "produce", "--topic", "t", "--name-servers="+must("addresses"))
	refused("runs already", "up")
	refused("runs already", "start", follower)
	refused("stop it first", "wipe", follower)
	refused("no node 4", "kill", "4")
	refused("a cluster of 3", "up", "-n", "1")

	must("kill", leader)
	refused("does not run", "kill", leader)
	must("start", leader)
	must("stop", follower)
	if out, _, ok := run("status"); ok || !strings.Contains(out, "stopped") {
		t.Errorf("status with a node down: %s", out)
	}
	must("wipe", follower)
	if _, err := os.Stat(filepath.Join(dir, "n"+follower, "data")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("wiped folder: %v", err)
	}
	must("start", follower)
	mustRun(t, "", "cluster", "wait", "--nodes", "n"+follower, "--timeout", "1s", "--name-servers="+must("addresses")) // start has waited for it
	must("pause", follower)
	if out, _, _ := run("status"); !strings.Contains(out, "paused") {
		t.Errorf("status with a node paused: %s", out)
	}
	must("resume", follower)
	if out := must("status"); strings.Count(out, "running") != 3 {
		t.Errorf("status: %s", out)
	}
	if out := must("logs", "1", "-n", "1"); out == "" {
		t.Error("no log")
	}
	must("down")
	refused("a majority is needed", "start", "1")
	must("start", "2", "3")
	if out := mustRun(t, "", "consume", "--topic", "t", "--group", "g", "--max", "1", "--name-servers="+must("addresses")); out != "hello\n" {
		t.Errorf("after all: %q", out)
	}
	must("pause", "2")
	must("down") // also what is paused
	if out, _, _ := run("status"); strings.Count(out, "stopped") != 3 {
		t.Errorf("status after down: %s", out)
	}

	// A pid that has gone to another process is not ours.
	other := exec.Command("sleep", "60")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = other.Process.Kill()
		_ = other.Wait()
	}()
	if err := os.WriteFile(filepath.Join(dir, "n1", "pid"), fmt.Appendf(nil, "%d\n1\n", other.Process.Pid), 0o600); err != nil {
		t.Fatal(err)
	}
	refused("does not run", "kill", "1")
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("a process that is not ours was signalled: %v", err)
	}
}
