package nemesis

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"raftmq/jepsen/cluster"
	"raftmq/jepsen/faultfs"
	"raftmq/transport/remoting"
)

// illness is what a disk does. hook says so for one operation, and whether that was one which the illness hit.
type illness struct {
	what string
	hook func(op faultfs.Op, path string) (errno syscall.Errno, hit bool)
}

// badDisk gives the target's disk an illness. That it hit something is counted; the process stays up, or the run is not valid.
func badDisk(fall func(rng *rand.Rand, over <-chan struct{}) illness) func(context.Context, *site) (*wound, error) {
	return func(_ context.Context, s *site) (*wound, error) {
		n := s.target
		w := &wound{nodes: []*cluster.Node{n}}
		disk := s.disks[n]
		if disk == nil {
			return w, fmt.Errorf("nemesis: %s has no disk that can fail", n.ID)
		}
		var hits, asked atomic.Int64
		over := make(chan struct{})
		end := sync.OnceFunc(func() { close(over) })
		ill := fall(s.rng, over)
		w.heal = func(ctx context.Context) (string, error) {
			disk.SetHook(nil)
			end()
			if hits.Load() == 0 {
				return "", fmt.Errorf("%w: %s asked its disk %d times and was never hit", ErrNoEffect, n.ID, asked.Load())
			}
			took, err := well(ctx, s.c, n)
			return fmt.Sprintf("%d operations were hit; %s was well %v after its disk", hits.Load(), n.ID, took.Round(10*time.Millisecond)), err
		}
		disk.SetHook(func(op faultfs.Op, path string) syscall.Errno {
			asked.Add(1)
			errno, hit := ill.hook(op, path)
			if hit {
				hits.Add(1)
			}
			return errno
		})
		w.proof = ill.what
		return w, nil
	}
}

// wellTimeout is how long a node may take to trust its disk again: it probes, and waits the longer the more often that failed.
const wellTimeout = time.Minute

// well waits until a node is a member as any other: it answers, has caught up, and has nothing to say against its disk.
func well(ctx context.Context, c *cluster.Cluster, n *cluster.Node) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, wellTimeout)
	defer cancel()
	began := time.Now()
	_, err := n.WaitStatus(ctx, "being well", func(st remoting.NodeStatus) bool { return st.DiskProblem == "" })
	if err == nil {
		err = caughtUp(ctx, c, n)
	}
	return time.Since(began), err
}

func raftLog(path string) bool { return strings.HasPrefix(path, "raft/wal/") }

// changes tells whether an operation puts something on the disk.
func changes(op faultfs.Op) bool { return op != faultfs.Name }

// ioErrors: all of the disk fails, or the Raft log's part of it, or syncs.
func ioErrors(rng *rand.Rand, _ <-chan struct{}) illness {
	fail := func(what string, hits func(op faultfs.Op, path string) bool) illness {
		return illness{what: what, hook: func(op faultfs.Op, path string) (syscall.Errno, bool) {
			if hits(op, path) {
				return syscall.EIO, true
			}
			return 0, false
		}}
	}
	switch rng.IntN(3) {
	case 0:
		return fail("EIO for all that is written", func(faultfs.Op, string) bool { return true })
	case 1:
		// A disk that is bad for one kind of file is bad for a probe of it.
		return fail("EIO for the Raft log", func(op faultfs.Op, path string) bool {
			return changes(op) && (raftLog(path) || strings.Contains(path, "probe"))
		})
	default:
		return fail("EIO for every sync", func(op faultfs.Op, _ string) bool { return op == faultfs.Sync })
	}
}

// noSpace: there is no room for anything more, as of now.
func noSpace(*rand.Rand, <-chan struct{}) illness {
	return illness{what: "ENOSPC for all that is written", hook: func(op faultfs.Op, _ string) (syscall.Errno, bool) {
		if op == faultfs.Write || op == faultfs.Allocate {
			return syscall.ENOSPC, true
		}
		return 0, false
	}}
}

// readOnly: the file system was mounted again, to be read only.
func readOnly(*rand.Rand, <-chan struct{}) illness {
	return illness{what: "EROFS for all that is written", hook: func(faultfs.Op, string) (syscall.Errno, bool) { return syscall.EROFS, true }}
}

// stall: syncs hang until it is over.
func stall(_ *rand.Rand, over <-chan struct{}) illness {
	return illness{what: "syncs hang", hook: func(op faultfs.Op, _ string) (syscall.Errno, bool) {
		if op != faultfs.Sync {
			return 0, false
		}
		<-over
		return 0, true
	}}
}

// slowSyncs: each sync takes so much more.
func slowSyncs(rng *rand.Rand, over <-chan struct{}) illness {
	d := 50*time.Millisecond + time.Duration(rng.Int64N(int64(450*time.Millisecond)))
	return illness{what: fmt.Sprintf("each sync takes %v more", d.Round(time.Millisecond)), hook: func(op faultfs.Op, _ string) (syscall.Errno, bool) {
		if op != faultfs.Sync {
			return 0, false
		}
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-over:
		}
		return 0, true
	}}
}
