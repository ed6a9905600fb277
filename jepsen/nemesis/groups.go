package nemesis

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

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

// tightenEvery is how long a bound has to be felt before it is made tighter.
const tightenEvery = 300 * time.Millisecond

// felt waits a little for a count to rise.
func felt(ctx context.Context, n *cluster.Node, count func() int64) bool {
	for end := time.Now().Add(tightenEvery); time.Now().Before(end); {
		if count() > 0 || !n.Running() {
			return true
		}
		if !wait(ctx, waitEvery) {
			return false
		}
	}
	return false
}

// starve leaves a node 5 to 20 % of a CPU, or as little as makes it feel that. That it wanted more is counted.
func starve(ctx context.Context, s *site) (*wound, error) {
	n := s.target
	w := &wound{nodes: []*cluster.Node{n}}
	g, err := newGroup("cpu", n.ID, n.PID())
	if err != nil {
		return w, err
	}
	throttled := func() int64 { return g.count("cpu.stat", "nr_throttled") }
	w.heal = func(context.Context) (string, error) {
		count := throttled()
		err := g.close(n.PID())
		if count == 0 {
			err = errors.Join(err, fmt.Errorf("%w: %s was never held back", ErrNoEffect, n.ID))
		}
		return fmt.Sprintf("held back %d times", count), err
	}
	for percent := 5 + s.rng.IntN(16); percent >= 1; percent /= 2 {
		if g.unified {
			err = g.set("cpu.max", fmt.Sprintf("%d 100000", percent*1000))
		} else {
			err = errors.Join(g.set("cpu.cfs_period_us", "100000"), g.set("cpu.cfs_quota_us", strconv.Itoa(percent*1000)))
		}
		w.proof = fmt.Sprintf("%d %% of a CPU", percent)
		if err != nil || felt(ctx, n, throttled) {
			return w, err
		}
	}
	return w, ctx.Err()
}

// A node may take squeezeMost besides what it has when the fault begins, half of that if this is no bound, and so on down to squeezeLeast.
const (
	squeezeMost  = 24 << 20
	squeezeLeast = 64 << 10
)

// squeeze bounds the memory that a node may take from now on, its page cache included. The kernel takes pages back, and in the end kills.
func squeeze(ctx context.Context, s *site) (*wound, error) {
	n := s.target
	w := &wound{nodes: []*cluster.Node{n}}
	g, err := newGroup("memory", n.ID, n.PID())
	if err != nil {
		return w, err
	}
	hits := func() int64 {
		if g.unified {
			return g.count("memory.events", "max")
		}
		return g.count("memory.failcnt", "")
	}
	w.heal = func(context.Context) (string, error) {
		hits := hits()
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
	for size := squeezeMost; size >= squeezeLeast; size /= 2 {
		// A group cannot be made smaller than what it holds and cannot give back: then that is its limit.
		if err := g.set(file, strconv.Itoa(size)); err != nil && !errors.Is(err, unix.EBUSY) {
			return w, err
		}
		w.proof = fmt.Sprintf("%d KiB more than it has", size>>10)
		if felt(ctx, n, hits) {
			break
		}
	}
	return w, ctx.Err()
}
