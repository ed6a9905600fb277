package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"raftmq/jepsen/cluster"
)

// group is a control group for one node's process, of either version.
type group struct {
	dir     string
	parent  string // where the process goes back to
	unified bool
}

const groupRoot = "/sys/fs/cgroup"

// newGroup makes a group of a controller ("cpu", "memory") and puts a process in it.
func newGroup(controller, name string, pid int) (*group, error) {
	g := &group{parent: filepath.Join(groupRoot, controller)}
	if _, err := os.Stat(filepath.Join(g.parent, "cgroup.procs")); err != nil {
		g.parent, g.unified = groupRoot, true
		_ = os.WriteFile(filepath.Join(groupRoot, "cgroup.subtree_control"), []byte("+"+controller), 0o644)
	}
	g.dir = filepath.Join(g.parent, fmt.Sprintf("raftmq-jepsen-%d-%s", os.Getpid(), name))
	if err := os.Mkdir(g.dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("nemesis: control group: %w", err)
	}
	if err := g.set("cgroup.procs", strconv.Itoa(pid)); err != nil {
		return nil, errors.Join(err, g.close(0))
	}
	return g, nil
}

func (g *group) set(file, value string) error {
	if err := os.WriteFile(filepath.Join(g.dir, file), []byte(value), 0o644); err != nil {
		return fmt.Errorf("nemesis: control group: %w", err)
	}
	return nil
}

// count reads a number, of a key where the file has several.
func (g *group) count(file, key string) int64 {
	b, err := os.ReadFile(filepath.Join(g.dir, file))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		fields := strings.Fields(line)
		switch {
		case key == "" && len(fields) == 1, len(fields) == 2 && fields[0] == key:
			n, _ := strconv.ParseInt(fields[len(fields)-1], 10, 64)
			return n
		}
	}
	return 0
}

// close lets the process go, if it is still there, and removes the group.
func (g *group) close(pid int) error {
	if pid != 0 {
		_ = os.WriteFile(filepath.Join(g.parent, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
	}
	if err := os.Remove(g.dir); err != nil {
		return fmt.Errorf("nemesis: control group: %w", err)
	}
	return nil
}

// groupsAvailable says why there are none, nil if there are.
func groupsAvailable() error {
	for _, controller := range []string{"cpu", "memory"} {
		if _, err := os.Stat(filepath.Join(groupRoot, controller, "cgroup.procs")); err == nil {
			continue
		}
		b, err := os.ReadFile(filepath.Join(groupRoot, "cgroup.controllers"))
		if err != nil || !strings.Contains(string(b), controller) {
			return fmt.Errorf("nemesis: no control groups for %s here", controller)
		}
	}
	if os.Geteuid() != 0 {
		return errors.New("nemesis: control groups need root")
	}
	return nil
}

// starve leaves a node 5 to 20 % of a CPU. That it wanted more is counted.
func starve(_ context.Context, s *site) (*wound, error) {
	n := s.target
	w := &wound{nodes: []*cluster.Node{n}}
	percent := 5 + s.rng.IntN(16)
	g, err := newGroup("cpu", n.ID, n.PID())
	if err != nil {
		return w, err
	}
	w.heal = func(context.Context) (string, error) {
		throttled := g.count("cpu.stat", "nr_throttled")
		err := g.close(n.PID())
		if throttled == 0 {
			err = errors.Join(err, fmt.Errorf("%w: %s was never held back", ErrNoEffect, n.ID))
		}
		return fmt.Sprintf("held back %d times", throttled), err
	}
	if g.unified {
		err = g.set("cpu.max", fmt.Sprintf("%d 100000", percent*1000))
	} else {
		err = errors.Join(g.set("cpu.cfs_period_us", "100000"), g.set("cpu.cfs_quota_us", strconv.Itoa(percent*1000)))
	}
	w.proof = fmt.Sprintf("%d %% of a CPU", percent)
	return w, err
}

// squeezeBytes is what a node may take besides what it has when the fault begins.
const squeezeBytes = 24 << 20

// squeeze bounds the memory that a node may take from now on, its page cache included. The kernel takes pages back, and in the end kills.
func squeeze(_ context.Context, s *site) (*wound, error) {
	n := s.target
	w := &wound{nodes: []*cluster.Node{n}}
	g, err := newGroup("memory", n.ID, n.PID())
	if err != nil {
		return w, err
	}
	w.heal = func(context.Context) (string, error) {
		hits := g.count("memory.failcnt", "")
		if g.unified {
			hits = g.count("memory.events", "max")
		}
		if err := g.close(n.PID()); err != nil {
			return "", err
		}
		if hits == 0 {
			return "", fmt.Errorf("%w: %s never came to its limit", ErrNoEffect, n.ID)
		}
		proof := fmt.Sprintf("at the limit %d times", hits)
		if !n.Running() {
			return proof + ", it ended (" + n.Exit() + ") and was started again", n.Start()
		}
		return proof, nil
	}
	file := "memory.limit_in_bytes"
	if g.unified {
		file = "memory.max"
	}
	w.proof = fmt.Sprintf("%d MiB more than it has", squeezeBytes>>20)
	return w, g.set(file, strconv.Itoa(squeezeBytes))
}
