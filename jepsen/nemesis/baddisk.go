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

// illness is what a disk does to the operations that it hits.
type illness struct {
	what string
	hits func(op faultfs.Op, path string) bool
	hurt func() syscall.Errno // may block until it is over
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
			if !ill.hits(op, path) {
				return 0
			}
			hits.Add(1)
			return ill.hurt()
		})
		w.proof = ill.what
		return w, nil
	}
}

// wellTimeout is how long a node may take to trust its disk again: it probes, and waits the longer the more often that failed.
const wellTimeout = 2 * time.Minute

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

// fails is an illness that fails what it hits.
func fails(what string, errno syscall.Errno, hits func(op faultfs.Op, path string) bool) illness {
	return illness{what: what, hits: hits, hurt: func() syscall.Errno { return errno }}
}

func all(faultfs.Op, string) bool { return true }

func isSync(op faultfs.Op, _ string) bool { return op == faultfs.Sync }

// ioErrors: all of the disk fails, or the Raft log's part of it, or syncs.
func ioErrors(rng *rand.Rand, _ <-chan struct{}) illness {
	switch rng.IntN(3) {
	case 0:
		return fails("EIO for all that is written", syscall.EIO, all)
	case 1:
		// A disk that is bad for one kind of file is bad for a probe of it.
		return fails("EIO for the Raft log", syscall.EIO, func(op faultfs.Op, path string) bool {
			return changes(op) && (raftLog(path) || strings.Contains(path, "probe"))
		})
	default:
		return fails("EIO for every sync", syscall.EIO, isSync)
	}
}

// noSpace: there is no room for anything more, as of now.
func noSpace(*rand.Rand, <-chan struct{}) illness {
	return fails("ENOSPC for all that is written", syscall.ENOSPC, func(op faultfs.Op, _ string) bool {
		return op == faultfs.Write || op == faultfs.Allocate
	})
}

// readOnly: the file system was mounted again, to be read only.
func readOnly(*rand.Rand, <-chan struct{}) illness {
	return fails("EROFS for all that is written", syscall.EROFS, all)
}

// stall: syncs hang until it is over.
func stall(_ *rand.Rand, over <-chan struct{}) illness {
	return illness{what: "syncs hang", hits: isSync, hurt: func() syscall.Errno {
		<-over
		return 0
	}}
}

// slowSyncs: each sync takes so much more.
func slowSyncs(rng *rand.Rand, over <-chan struct{}) illness {
	d := 50*time.Millisecond + time.Duration(rng.Int64N(int64(450*time.Millisecond)))
	return illness{what: fmt.Sprintf("each sync takes %v more", d.Round(time.Millisecond)), hits: isSync, hurt: func() syscall.Errno {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
		case <-over:
		}
		return 0
	}}
}
