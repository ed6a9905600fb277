package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"raftmq/jepsen"
	"raftmq/jepsen/cluster"
	"raftmq/jepsen/faultfs"
	"raftmq/jepsen/history"
	"raftmq/jepsen/workload"
)

// mountDisks puts a disk that can fail under each node's data folder, or skips the test.
func mountDisks(t *testing.T, c *cluster.Cluster) map[*cluster.Node]*faultfs.Disk {
	t.Helper()
	disks := map[*cluster.Node]*faultfs.Disk{}
	for _, n := range c.Nodes() {
		if err := os.Mkdir(n.DataDir, 0o755); err != nil {
			t.Fatal(err)
		}
		d, err := faultfs.Mount(n.DataDir, filepath.Join(filepath.Dir(n.DataDir), "disk"))
		if errors.Is(err, faultfs.ErrUnavailable) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		disks[n] = d
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	return disks
}

// powerLoss cuts the power of all nodes at once, and gives it back to their disks; they are not started.
func powerLoss(c *cluster.Cluster, disks map[*cluster.Node]*faultfs.Disk, loss faultfs.Loss, rng *rand.Rand) error {
	if loss == faultfs.Some {
		// Pages that were changed through mappings get to the disk, unsynced, so that each may be among what is kept.
		for _, n := range c.Nodes() {
			if out, err := exec.Command("sync", "-f", n.DataDir).CombinedOutput(); err != nil {
				return fmt.Errorf("sync -f %s: %w: %s", n.DataDir, err, out)
			}
		}
	}
	for _, d := range disks {
		d.Freeze()
	}
	for _, n := range c.Nodes() {
		if err := n.Kill(); err != nil && !errors.Is(err, cluster.ErrNotRunning) {
			return err
		}
	}
	for _, n := range c.Nodes() { // in order: a seed is a run
		if err := disks[n].Restore(loss, rng); err != nil {
			return err
		}
	}
	return nil
}

// allHaveSnapshots waits, under load, until each node's Raft log begins at a snapshot.
func allHaveSnapshots(ctx context.Context, c *cluster.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for _, n := range c.Nodes() {
		for {
			found, err := filepath.Glob(filepath.Join(n.DataDir, "raft", "snapshots", "*", "meta.json"))
			if err != nil {
				return err
			}
			if slices.ContainsFunc(found, func(path string) bool { return !strings.Contains(path, ".tmp") }) {
				break
			}
			if err := sleep(ctx, 50*time.Millisecond); err != nil {
				return fmt.Errorf("%s has taken no snapshot: %w", n.ID, err)
			}
		}
	}
	return nil
}

// quorumUp waits until two nodes have read their folders. Behind a FUSE mount each page of a mapping is a question to this process, so on a busy machine that
// takes long.
func quorumUp(ctx context.Context, c *cluster.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		up := 0
		for _, n := range c.Nodes() {
			log := n.LogTail(1 << 20)
			if _, last, ok := strings.Cut(log, fmt.Sprintf("--- start %d of %s\n", n.Starts(), n.ID)); ok && strings.Contains(last, "gossip started") {
				up++
			}
		}
		if up >= 2 {
			return nil
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return fmt.Errorf("no quorum has come up: %w", err)
		}
	}
}

// F01, F35: all nodes lose power at once under load, again and again. What is left on a disk is what was synced, or that and some of the rest,
// down to single sectors; files and folders whose names were not synced are gone. Nothing that was acknowledged is lost, and there is a leader within 10 s.
func TestF01_F35_PowerLossOfAllNodes(t *testing.T) {
	long(t)
	t.Parallel()
	for _, mode := range []string{"ASYNC_FLUSH", "SYNC_FLUSH"} {
		t.Run(mode, func(t *testing.T) {
			parallelHeavy(t, 40, diskWeight)
			rounds, load, elected := 3, 2*time.Second, time.Minute // a busy machine's disks are slow
			if extended() {
				rounds, load, elected = 10, time.Minute, 10*time.Second
			}
			var disks map[*cluster.Node]*faultfs.Disk
			seed := uint64(time.Now().UnixNano())
			rng := rand.New(rand.NewPCG(seed, 0))
			t.Logf("seed %d", seed)
			run(t, jepsen.Config{
				Workload: workload.Config{Client: workload.Raw, Rate: 800},
				// Snapshots are taken and what is behind them is given up all the time: what a node starts from is a new one.
				Flags:   append(jepsen.DefaultFlags(), "--flush-disk-type", mode, "--raft-snapshot-bytes", "1MiB", "--raft-trailing-bytes", "0"),
				Prepare: func(c *cluster.Cluster) error { disks = mountDisks(t, c); return nil },
				Do: func(ctx context.Context, c *cluster.Cluster, rec *history.Recorder) error {
					ctx, cancel := context.WithTimeout(ctx, time.Minute+time.Duration(rounds)*(load+3*time.Minute))
					defer cancel()
					for round := range rounds {
						if err := sleep(ctx, load); err != nil {
							return err
						}
						if err := allHaveSnapshots(ctx, c); err != nil {
							return err
						}
						loss := faultfs.Some
						if round == 0 {
							loss = faultfs.All
						}
						if err := step(rec, "power loss", "all", func() error { return powerLoss(c, disks, loss, rng) }); err != nil {
							return err
						}
						if err := c.StartAll(); err != nil {
							return err
						}
						began := time.Now()
						if err := quorumUp(ctx, c); err != nil {
							return err
						}
						up := time.Since(began)
						lctx, stop := context.WithTimeout(ctx, elected)
						leader, err := c.Leader(lctx)
						stop()
						if err != nil {
							return fmt.Errorf("no leader within %v of a quorum after a loss of power: %w", elected, err)
						}
						t.Logf("round %d: %s leads %v after a quorum was up, which took %v", round, leader.ID, (time.Since(began) - up).Round(10*time.Millisecond), up.Round(10*time.Millisecond))
						if _, err := c.WaitServing(ctx); err != nil {
							return err
						}
					}
					return sleep(ctx, load)
				},
			})
		})
	}
}

// F61 after losses of power of all nodes: they start in all orders, every other time with one of them missing.
func TestF61_StartOrdersAfterPowerLoss(t *testing.T) {
	long(t)
	parallelHeavy(t, 20, diskWeight)
	var disks map[*cluster.Node]*faultfs.Disk
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	s := stormOver(t, startPrepared(t, cluster.Config{}, func(c *cluster.Cluster) { disks = mountDisks(t, c) }))
	for round, order := range orders {
		if err := powerLoss(s.c, disks, faultfs.Loss(round%2), rng); err != nil {
			t.Fatal(err)
		}
		if round%3 == 1 {
			order = order[:2]
		}
		s.start(order)
		s.send()
	}
	s.end()
}
