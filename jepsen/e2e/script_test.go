package e2e

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"raftmq/jepsen/cluster"
)

// scriptCluster is a cluster that is run by scripts/cluster, as an operator tries one out.
type scriptCluster struct {
	t    *testing.T
	dir  string
	bin  string // raftmq for what runs next
	port int
}

// startScript starts three nodes.
func startScript(t *testing.T, bin string, flags ...string) *scriptCluster {
	t.Helper()
	if _, err := exec.LookPath("bash"); err != nil {
		t.Skip(err)
	}
	_, port, err := net.SplitHostPort(freePorts(t, 6).Addresses(1).Client) // 24 ports: the script leaves gaps
	if err != nil {
		t.Fatal(err)
	}
	s := &scriptCluster{t: t, dir: filepath.Join(t.TempDir(), "cluster"), bin: bin}
	if s.port, err = strconv.Atoi(port); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = s.try("scripts/cluster", "-d", s.dir, "down")
		if t.Failed() {
			for n := 1; n <= 3; n++ {
				b, _ := os.ReadFile(filepath.Join(s.dir, "n"+strconv.Itoa(n), "log"))
				t.Logf("the end of n%d's log:\n%s", n, b[max(len(b)-4096, 0):])
			}
		}
	})
	s.cluster(append([]string{"up", "-p", port, "--"}, flags...)...)
	return s
}

// try runs a script or binary and returns all that it prints.
func (s *scriptCluster) try(name string, args ...string) (string, error) {
	if strings.HasPrefix(name, "scripts/") {
		args = append([]string{filepath.Join("..", "..", name)}, args...)
		name = "bash"
	}
	cmd := exec.Command(name, args...)
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "RAFTMQ_") }), "RAFTMQ_BIN="+s.bin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (s *scriptCluster) must(name string, args ...string) string {
	s.t.Helper()
	out, err := s.try(name, args...)
	if err != nil {
		s.t.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return out
}

// cluster runs scripts/cluster.
func (s *scriptCluster) cluster(args ...string) string {
	s.t.Helper()
	return s.must("scripts/cluster", append([]string{"-d", s.dir}, args...)...)
}

// tool runs raftmq against all nodes.
func (s *scriptCluster) tool(args ...string) string {
	s.t.Helper()
	return s.must(s.bin, append(args, "--name-servers", strings.Join(s.addrs(), ","))...)
}

func (s *scriptCluster) addrs() []string {
	var out []string
	for i := range 3 {
		out = append(out, net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port+10*i)))
	}
	return out
}

// node is node n as its clients see it.
func (s *scriptCluster) node(n int) *cluster.Node {
	return &cluster.Node{ID: "n" + strconv.Itoa(n), Index: n, Addrs: cluster.Addresses{Client: s.addrs()[n-1]}}
}
