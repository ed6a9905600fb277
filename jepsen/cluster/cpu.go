package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ErrNoCPULimit: the machine has no control groups that this program may make.
var ErrNoCPULimit = errors.New("cluster: the CPU of a process cannot be limited here")

// cpuPeriod is the kernel's default; a share of it is what a limited process gets in each.
const cpuPeriod = 100 * time.Millisecond

// LimitCPU gives the node's process so many percent of one CPU, through a control group of its own (version 1 or 2), until lift is called,
// which says in how many periods the process was held back: none means that the limit had no effect. ErrNoCPULimit where it is impossible.
func (n *Node) LimitCPU(percent int) (lift func() (throttled int64, err error), err error) {
	pid := n.PID()
	if pid == 0 {
		return nil, fmt.Errorf("%w: %s", ErrNotRunning, n.ID)
	}
	period := int64(cpuPeriod / time.Microsecond)
	quota := period * int64(percent) / 100
	name := fmt.Sprintf("raftmq-jepsen-%d-%d", os.Getpid(), pid)
	var errs error
	for _, v := range []struct{ root, probe, file, text string }{
		{"/sys/fs/cgroup", "cgroup.controllers", "cpu.max", fmt.Sprintf("%d %d", quota, period)},
		{"/sys/fs/cgroup/cpu", "cgroup.procs", "cpu.cfs_quota_us", strconv.FormatInt(quota, 10)},
	} {
		if _, err := os.Stat(filepath.Join(v.root, v.probe)); err != nil {
			errs = errors.Join(errs, err)
			continue
		}
		dir := filepath.Join(v.root, name)
		if err := limitIn(dir, v.file, v.text, pid); err != nil {
			errs = errors.Join(errs, err, liftFrom(dir, v.root, pid))
			continue
		}
		return func() (int64, error) {
			count, err := throttled(dir)
			return count, errors.Join(err, liftFrom(dir, v.root, pid))
		}, nil
	}
	return nil, fmt.Errorf("%w: %w", ErrNoCPULimit, errs)
}

func throttled(dir string) (int64, error) {
	b, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "nr_throttled "); ok {
			return strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		}
	}
	return 0, fmt.Errorf("cluster: no nr_throttled in %s/cpu.stat", dir)
}

func limitIn(dir, file, text string, pid int) error {
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
}

// liftFrom moves the process back, if it is still there, and removes the group.
func liftFrom(dir, root string, pid int) error {
	_ = os.WriteFile(filepath.Join(root, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644)
	var err error
	for range 50 { // a process that has just ended may still be counted
		if err = os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return fmt.Errorf("cluster: remove control group: %w", err)
}
