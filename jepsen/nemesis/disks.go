package nemesis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"raftmq/jepsen/cluster"
	"raftmq/transport/remoting"
)

// diskFull makes the file system as small as what is in it, so that it costs no memory to fill it.
func diskFull(_ context.Context, s *site) (*wound, error) {
	n := s.target
	w := &wound{nodes: []*cluster.Node{n}}
	resize := func(size int64) error {
		if err := unix.Mount("tmpfs", n.DataDir, "tmpfs", unix.MS_REMOUNT, fmt.Sprintf("size=%d", size)); err != nil {
			return fmt.Errorf("nemesis: resize %s: %w", n.DataDir, err)
		}
		return nil
	}
	w.heal = func(context.Context) (string, error) {
		if err := resize(smallDiskBytes); err != nil {
			return "", err
		}
		if n.Running() {
			return "", nil
		}
		how := n.Exit()
		return "it ended (" + how + ") and was started again", n.Start()
	}
	var free uint64
	for range 100 { // the server writes meanwhile
		var st unix.Statfs_t
		if err := unix.Statfs(n.DataDir, &st); err != nil {
			return w, fmt.Errorf("nemesis: %s: %w", n.DataDir, err)
		}
		used := int64(st.Blocks-st.Bfree) * st.Bsize
		if err := resize(used + 256<<10); err != nil {
			continue // more was written than there is room for now
		}
		if err := unix.Statfs(n.DataDir, &st); err != nil {
			return w, err
		}
		if free = st.Bavail * uint64(st.Bsize); free < 1<<20 {
			break
		}
	}
	probe := filepath.Join(n.DataDir, "nemesis-probe")
	err := os.WriteFile(probe, make([]byte, 2<<20), 0o644)
	_ = os.Remove(probe)
	if !errors.Is(err, unix.ENOSPC) {
		return w, fmt.Errorf("%w: 2 MiB could be written to %s: %w", ErrNoEffect, n.DataDir, err)
	}
	w.proof = fmt.Sprintf("%d KiB free, 2 MiB cannot be written: %v", free>>10, unix.ENOSPC)
	return w, nil
}

// empty removes what is in a folder, which may be a mount point.
func empty(dir string) (n int, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil // of a node that never ran
	}
	for _, e := range entries {
		err = errors.Join(err, os.RemoveAll(filepath.Join(dir, e.Name())))
	}
	return len(entries), err
}

// wipe kills a node and removes its data. It comes back as a newcomer.
func wipe(ctx context.Context, s *site) (*wound, error) {
	n := s.target
	w := &wound{nodes: []*cluster.Node{n}}
	w.heal = func(ctx context.Context) (string, error) {
		if err := n.Start(); err != nil {
			return "", err
		}
		return "caught up again", caughtUp(ctx, s.c, n)
	}
	if err := n.Kill(); err != nil {
		return w, err
	}
	gone, err := empty(n.DataDir)
	err = errors.Join(err, n.ForgetShadow())
	if err == nil && gone == 0 {
		err = fmt.Errorf("%w: %s was empty", ErrNoEffect, n.DataDir)
	}
	w.proof = fmt.Sprintf("%s, %d entries removed", n.Exit(), gone)
	return w, err
}

// dataFiles are a node's files that have something in them, by kind: the first two parts of their path.
func dataFiles(dir string) (byKind map[string][]string, err error) {
	byKind = map[string][]string{}
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err != nil || info.Size() == 0 {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		parts := strings.Split(filepath.ToSlash(rel), "/")
		if slices.Contains([]string{"lock", "abort"}, parts[len(parts)-1]) {
			return nil // say nothing but that they are there
		}
		kind := strings.Join(parts[:min(2, len(parts)-1)], "/")
		byKind[kind] = append(byKind[kind], path)
		return nil
	})
	return byKind, err
}

// damageFiles are files of a few kinds, one of each.
const damageKinds = 2

// damage kills the target, and others if they are a minority together, changes some files of each and starts them again.
func damage(s *site, change func(path string, rng *rand.Rand) (string, error)) (*wound, error) {
	nodes := append([]*cluster.Node{s.target}, s.others((len(s.nodes)-1)/2-1)...)
	w := &wound{nodes: nodes}
	w.heal = func(ctx context.Context) (proof string, err error) {
		for _, n := range nodes {
			p, rerr := reinstate(ctx, s.c, n)
			proof, err = strings.TrimPrefix(proof+"; "+n.ID+": "+p, "; "), errors.Join(err, rerr)
		}
		return proof, err
	}
	for _, n := range nodes {
		if err := n.Kill(); err != nil {
			return w, err
		}
		done, err := damageNode(n, s.rng, change)
		if err != nil {
			return w, err
		}
		w.proof = strings.TrimPrefix(w.proof+"; "+n.ID+": "+done, "; ")
	}
	return w, nil
}

func damageNode(n *cluster.Node, rng *rand.Rand, change func(path string, rng *rand.Rand) (string, error)) (string, error) {
	byKind, err := dataFiles(n.DataDir)
	if err != nil {
		return "", err
	}
	kinds := slices.Sorted(maps.Keys(byKind))
	rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	var done []string
	for _, k := range kinds {
		files := byKind[k]
		path := files[rng.IntN(len(files))]
		what, err := change(path, rng)
		if err != nil {
			return "", err
		}
		if what == "" {
			continue
		}
		rel, _ := filepath.Rel(n.DataDir, path)
		if done = append(done, rel+": "+what); len(done) == damageKinds {
			break
		}
	}
	if len(done) == 0 {
		return "", fmt.Errorf("%w: no file of %s could be damaged", ErrNoEffect, n.ID)
	}
	if err := n.ForgetShadow(); err != nil {
		return "", err
	}
	return strings.Join(done, "; "), nil
}

// flip changes about two bits of each file, where something is written.
func flip(_ context.Context, s *site) (*wound, error) {
	return damage(s, func(path string, rng *rand.Rand) (string, error) {
		var at []int64
		for range 2 {
			off, err := flipOne(path, rng)
			if err != nil || off < 0 {
				return "", err
			}
			at = append(at, off)
		}
		return fmt.Sprintf("bits flipped at %d", at), nil
	})
}

// flipOne flips a bit of a byte of a file that is not zero; -1 if there is none to be found.
func flipOne(path string, rng *rand.Rand) (at int64, err error) {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return -1, err
	}
	defer f.Close()
	at, err = writtenByte(f, rng)
	if err != nil || at < 0 {
		return -1, err
	}
	return at, flipBit(f, at, rng)
}

// flipBit flips one bit of the byte at an offset.
func flipBit(f *os.File, at int64, rng *rand.Rand) error {
	var b [1]byte
	if _, err := f.ReadAt(b[:], at); err != nil {
		return fmt.Errorf("nemesis: %w", err)
	}
	b[0] ^= 1 << rng.IntN(8)
	if _, err := f.WriteAt(b[:], at); err != nil {
		return fmt.Errorf("nemesis: %w", err)
	}
	return nil
}

// writtenByte is the place of a byte that is not zero, -1 if there is none to be found: most of a file that is allocated
// ahead means nothing.
func writtenByte(f *os.File, rng *rand.Rand) (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return -1, err
	}
	const window = 4096
	buf := make([]byte, window)
	end := st.Size()
	for range 64 {
		from := rng.Int64N(end)
		n, err := f.ReadAt(buf[:min(window, end-from)], from)
		if err != nil {
			return -1, err
		}
		if i := bytes.IndexFunc(buf[:n], func(r rune) bool { return r != 0 }); i >= 0 {
			return from + int64(i), nil
		}
		end = max(1, from) // written parts are in front
	}
	return -1, nil
}

// truncate cuts the end off each file: a little mostly, and now and then all.
func truncate(_ context.Context, s *site) (*wound, error) {
	return damage(s, func(path string, rng *rand.Rand) (string, error) {
		st, err := os.Stat(path)
		if err != nil {
			return "", err
		}
		gone := min(st.Size(), int64(math.Pow(float64(st.Size()), rng.Float64())))
		if err := os.Truncate(path, st.Size()-gone); err != nil {
			return "", err
		}
		return fmt.Sprintf("%d of %d bytes cut off", gone, st.Size()), nil
	})
}

// reinstateTimeout is how long a damaged node has to repair itself.
const reinstateTimeout = 25 * time.Second

// reinstate starts a damaged node. It serves, repaired, or it steps aside and says why; then the harness does what an operator
// would: it wipes the node, which comes back as a newcomer.
func reinstate(ctx context.Context, c *cluster.Cluster, n *cluster.Node) (string, error) {
	if err := n.Start(); err != nil {
		return "", err
	}
	return untilWell(ctx, c, n)
}

// untilWell waits for a damaged node that was started; see reinstate.
func untilWell(ctx context.Context, c *cluster.Cluster, n *cluster.Node) (string, error) {
	waiting, cancel := context.WithTimeout(ctx, reinstateTimeout)
	_, err := n.WaitStatus(waiting, "serving", func(st remoting.NodeStatus) bool { return st.CaughtUp && st.LeaderID != "" })
	cancel()
	if err == nil {
		return "it serves again", caughtUp(ctx, c, n)
	}
	why := reason(n)
	if n.Running() {
		if err := n.Kill(); err != nil {
			return "", err
		}
	}
	if _, err := empty(n.DataDir); err != nil {
		return "", err
	}
	if err := n.ForgetShadow(); err != nil {
		return "", err
	}
	if err := n.Start(); err != nil {
		return "", err
	}
	return "it stepped aside (" + why + ") and was wiped", caughtUp(ctx, c, n)
}

// reason is the last error in a node's log, shortened.
func reason(n *cluster.Node) string {
	lines := strings.Split(strings.TrimSpace(n.LogTail(8192)), "\n")
	for _, line := range slices.Backward(lines) {
		if strings.Contains(line, "[ERROR]") || strings.HasPrefix(line, "raftmq: ") || strings.HasPrefix(line, "Error") {
			return line[:min(len(line), 300)]
		}
	}
	return lines[len(lines)-1][:min(300, len(lines[len(lines)-1]))]
}
