package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"raftmq/jepsen"
	"raftmq/jepsen/cluster"
	"raftmq/jepsen/faultfs"
	"raftmq/jepsen/history"
	"raftmq/jepsen/workload"
	"raftmq/transport/remoting"
)

// diskStall is what the nodes of these tests take for a stall: their disks are this process.
func diskStall() time.Duration {
	if extended() {
		return time.Second
	}
	return 3 * time.Second
}

// The disk of a leader, or of a follower, fails under a running process. The node stays as a process, gives leadership up within 2 s of
// noticing, neither leads nor disturbs the others while its disk is bad, and is a node as any other again by itself when it is well; nothing is lost.
// The same faults inside one package: fsm/raftnode's TestF29…, TestF31…, TestF33…, commitlog/store's TestF37.
func TestDiskFaults(t *testing.T) {
	long(t)
	t.Parallel()
	raftLog := func(op faultfs.Op, path string) bool {
		return strings.HasPrefix(path, "raft/wal/") && (op == faultfs.Write || op == faultfs.Sync)
	}
	for _, tt := range []struct {
		name   string
		leader bool
		// fault says what becomes of an operation; hang is closed when it is over.
		fault func(hang <-chan struct{}) faultfs.Hook
		once  bool // it is over by itself
	}{
		{"F29_EIO", true, func(<-chan struct{}) faultfs.Hook {
			return func(op faultfs.Op, path string) syscall.Errno {
				if raftLog(op, path) || op != faultfs.Name && strings.Contains(path, "probe") {
					return syscall.EIO
				}
				return 0
			}
		}, false},
		{"F31_Stall", true, func(hang <-chan struct{}) faultfs.Hook {
			return func(op faultfs.Op, path string) syscall.Errno {
				if op == faultfs.Sync {
					<-hang
				}
				return 0
			}
		}, false},
		{"F33_OneSync", false, func(<-chan struct{}) faultfs.Hook {
			var once sync.Once
			return func(op faultfs.Op, path string) (errno syscall.Errno) {
				if op == faultfs.Sync && raftLog(op, path) {
					once.Do(func() { errno = syscall.EIO })
				}
				return errno
			}
		}, true},
		{"F37_ReadOnly", true, func(<-chan struct{}) faultfs.Hook {
			return func(faultfs.Op, string) syscall.Errno { return syscall.EROFS }
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			parallelHeavy(t, 25, diskWeight)
			var disks map[*cluster.Node]*faultfs.Disk
			hang := make(chan struct{})
			over := sync.OnceFunc(func() { close(hang) })
			run(t, jepsen.Config{
				Workload: workload.Config{Client: workload.Raw, Rate: 400},
				Flags:    steadyFlags("--disk-stall-timeout", diskStall().String()),
				Prepare:  func(c *cluster.Cluster) error { disks = mountDisks(t, c); return nil },
				Do: func(ctx context.Context, c *cluster.Cluster, rec *history.Recorder) error {
					defer over() // a process that hangs in its disk can't be killed
					ctx, cancel := context.WithTimeout(ctx, 4*time.Minute)
					defer cancel()
					leader, err := c.Leader(ctx)
					if err != nil {
						return err
					}
					if err := sleep(ctx, time.Second); err != nil { // of load
						return err
					}
					bad := leader
					if !tt.leader {
						bad = c.Nodes()[leader.Index%3]
					}
					disk := disks[bad]
					if err := step(rec, tt.name, bad.ID, func() error {
						disk.SetHook(tt.fault(hang))
						if tt.once {
							return reopened(ctx, bad)
						}
						return standsAside(ctx, t, c, bad)
					}); err != nil {
						return err
					}
					disk.SetHook(nil)
					over()
					began := time.Now()
					if _, err := c.WaitServing(ctx); err != nil {
						return err
					}
					if err := caughtUp(ctx, c, bad); err != nil {
						return err
					}
					if _, err := bad.WaitStatus(ctx, "being well", func(s remoting.NodeStatus) bool { return s.DiskProblem == "" }); err != nil {
						return err
					}
					t.Logf("%s is well %v after its disk", bad.ID, time.Since(began).Round(10*time.Millisecond))
					return sleep(ctx, time.Second)
				},
			})
		})
	}
}

// standsAside waits until another node leads, and holds the fault for some election timeouts: the bad node does not lead, and the others'
// term stays.
func standsAside(ctx context.Context, t *testing.T, c *cluster.Cluster, bad *cluster.Node) error {
	began := time.Now()
	// Noticing takes the stall timeout at most, giving up 2 s, an election about as long.
	lctx, cancel := context.WithTimeout(ctx, bound(diskStall()+2*time.Second+5*time.Second))
	defer cancel()
	var leader *cluster.Node
	for leader == nil || leader == bad {
		var err error
		if leader, err = c.Leader(lctx); err != nil {
			return fmt.Errorf("nobody leads in place of %s: %w", bad.ID, err)
		}
		if leader == bad {
			if err := sleep(lctx, 20*time.Millisecond); err != nil {
				return fmt.Errorf("%s goes on leading with a bad disk: %w", bad.ID, err)
			}
		}
	}
	t.Logf("%s leads %v after the disk of %s failed", leader.ID, time.Since(began).Round(10*time.Millisecond), bad.ID)
	before, err := leader.Status(ctx)
	if err != nil {
		return err
	}
	for end := time.Now().Add(4 * heartbeatTimeout()); time.Now().Before(end); {
		if !bad.Running() {
			return fmt.Errorf("%s ended", bad.ID)
		}
		// While it is down it holds no client port.
		sctx, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		st, err := bad.Status(sctx)
		cancel()
		if err == nil && (st.Ready || st.Role == "leader") {
			return fmt.Errorf("%s leads with a bad disk: %+v", bad.ID, st)
		}
		if err := unchanged(ctx, leader, before); err != nil {
			return fmt.Errorf("%s disturbs: %w", bad.ID, err)
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// reopened waits until the node has been down for its disk and is back: the first failed sync is the last one that it trusts.
func reopened(ctx context.Context, bad *cluster.Node) error {
	for {
		if strings.Contains(bad.LogTail(1<<20), "the disk takes writes, opening the node again") {
			return nil
		}
		if !bad.Running() {
			return errors.New(bad.ID + " ended")
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("%s trusts its disk after a failed sync: %w", bad.ID, err)
		}
	}
}
