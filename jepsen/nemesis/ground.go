package nemesis

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"raftmq/jepsen/cluster"
	"raftmq/jepsen/faultfs"
)

// Ground is what faults need to have under a cluster before its nodes start.
type Ground struct {
	disks   map[*cluster.Node]*faultfs.Disk
	mounted []string
}

// smallDiskBytes is the size of the file systems that NeedsSmallDisks calls for.
const smallDiskBytes = 1 << 30

// diskStall is what nodes on disks that can hang take for a stall: less than faults are held.
const diskStall = "1s"

// errClash: faults that need different file systems under the same folders, or files where this program must not touch any.
var errClash = errors.New("nemesis: faults in the disk cannot be together with a full disk and with faults that change files")

// Compatible says why faults cannot be in one run, nil if they can.
func Compatible(needs Needs) error {
	if needs&NeedsBadDisks != 0 && needs&(NeedsSmallDisks|needsFiles) != 0 {
		return errClash
	}
	return nil
}

// Prepare puts the ground under a cluster whose nodes do not run yet. Close it when they have ended.
func Prepare(c *cluster.Cluster, needs Needs) (*Ground, error) {
	g := &Ground{disks: map[*cluster.Node]*faultfs.Disk{}}
	if err := Compatible(needs); err != nil {
		return g, err
	}
	for _, n := range c.Nodes() {
		if err := g.prepare(n, needs); err != nil {
			return g, errors.Join(err, g.Close())
		}
	}
	return g, nil
}

func (g *Ground) prepare(n *cluster.Node, needs Needs) error {
	if needs&NeedsClocks != 0 {
		if err := setClock(n, 0); err != nil {
			return err
		}
		n.Flags = append(n.Flags, "--test-clock-offset-file", clockFile(n))
	}
	if needs&(NeedsSmallDisks|NeedsBadDisks) == 0 {
		return nil
	}
	if err := os.MkdirAll(n.DataDir, 0o755); err != nil {
		return fmt.Errorf("nemesis: %w", err)
	}
	if needs&NeedsBadDisks != 0 {
		// Key index files of the usual size are 20 MB of slots that are touched at random: after the caches were dropped each is a round trip
		// to this program, in which the server's thread stands still.
		n.Flags = append(n.Flags, "--disk-stall-timeout", diskStall, "--max-hash-slot-num", "20000", "--max-index-num", "80000")
		d, err := faultfs.Mount(n.DataDir, filepath.Join(filepath.Dir(n.DataDir), "disk"))
		if err != nil {
			return err
		}
		g.disks[n] = d
		return nil
	}
	if err := unix.Mount("tmpfs", n.DataDir, "tmpfs", 0, fmt.Sprintf("size=%d", smallDiskBytes)); err != nil {
		return fmt.Errorf("nemesis: mount tmpfs on %s: %w", n.DataDir, err)
	}
	g.mounted = append(g.mounted, n.DataDir)
	return nil
}

// Close takes away what Prepare made. The processes have ended.
func (g *Ground) Close() error {
	var err error
	for _, dir := range g.mounted {
		// A reader of our own may be in there for a moment still.
		err = errors.Join(err, unix.Unmount(dir, unix.MNT_DETACH))
	}
	for n, d := range g.disks {
		// What the nodes wrote is of no use any more, and as large as all of the run.
		err = errors.Join(err, d.Close(), os.RemoveAll(filepath.Join(filepath.Dir(n.DataDir), "disk")))
	}
	g.mounted, g.disks = nil, nil
	return err
}

// waitEvery is between two looks at what is waited for.
const waitEvery = 20 * time.Millisecond
