package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// HandOver leaves the running nodes to scripts/cluster and forgets them: it writes the files
// by which that script knows a cluster (DIR/cluster, DIR/flags, DIR/nN/pid), and Close does
// nothing from now on. The cluster must be Detached and on the network of NewLoopbackAt with
// basePort, which is where the script looks for the nodes.
func (c *Cluster) HandOver(basePort int) error {
	if !c.cfg.Detached {
		return errors.New("cluster: only a detached cluster can be handed over")
	}
	state := fmt.Sprintf("nodes=%d\nport=%d\n", len(c.nodes), basePort)
	if err := os.WriteFile(filepath.Join(c.cfg.Dir, "cluster"), []byte(state), 0o644); err != nil {
		return fmt.Errorf("cluster: hand over: %w", err)
	}
	var flags strings.Builder
	for _, f := range c.cfg.Flags {
		flags.WriteString(f)
		flags.WriteByte(0)
	}
	if err := os.WriteFile(filepath.Join(c.cfg.Dir, "flags"), []byte(flags.String()), 0o644); err != nil {
		return fmt.Errorf("cluster: hand over: %w", err)
	}
	for _, n := range c.nodes {
		pid := n.PID()
		if pid == 0 {
			continue
		}
		started, err := startTime(pid)
		if err != nil {
			return err
		}
		text := fmt.Sprintf("%d\n%s\n", pid, started)
		if err := os.WriteFile(filepath.Join(c.cfg.Dir, n.ID, "pid"), []byte(text), 0o644); err != nil {
			return fmt.Errorf("cluster: hand over: %w", err)
		}
	}
	c.once.Do(func() {})
	return nil
}

// startTime is what tells a process from a later one with the same pid: field 22 of its stat
// file, clock ticks since boot.
func startTime(pid int) (string, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", fmt.Errorf("cluster: start time of process %d: %w", pid, err)
	}
	// Field 2 is the name in parentheses and may hold blanks; field 3 follows the last ")".
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 20 {
		return "", fmt.Errorf("cluster: start time of process %d: unexpected text %q", pid, b)
	}
	return string(fields[19]), nil
}
