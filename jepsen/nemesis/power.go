package nemesis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"raftmq/jepsen/cluster"
	"raftmq/seam/shadow"
)

// power takes power from count nodes, the target among them: they are stopped at one moment, killed, and what they had not flushed becomes
// old, new or torn.
func power(count func(nodes int) int) func(context.Context, *site) (*wound, error) {
	return func(ctx context.Context, s *site) (*wound, error) {
		nodes := append([]*cluster.Node{s.target}, s.others(count(len(s.nodes))-1)...)
		w := &wound{nodes: nodes, heal: restart(s, nodes)}
		for _, n := range nodes {
			if err := n.Pause(); err != nil {
				return w, err
			}
		}
		for _, n := range nodes {
			if err := n.Kill(); err != nil {
				return w, err
			}
		}
		for i, n := range nodes {
			lost, err := cutPower(n, s)
			if err != nil {
				return w, err
			}
			if i > 0 {
				w.proof += "; "
			}
			w.proof += n.ID + ": " + lost.String()
		}
		return w, nil
	}
}

// cutPower makes of a node's folder what a loss of power may have left.
func cutPower(n *cluster.Node, s *site) (all shadow.Loss, err error) {
	for _, part := range shadow.Parts() {
		dir := filepath.Join(n.ShadowDir, part.Name)
		if _, err := os.Stat(dir); n.ShadowDir == "" || err != nil {
			return all, fmt.Errorf("%w: %s does not tell what it has flushed: %w", ErrNoEffect, n.ID, err)
		}
		lost, err := shadow.Crash(filepath.Join(n.DataDir, filepath.FromSlash(part.Path)), dir, s.rng)
		if err != nil {
			return all, fmt.Errorf("nemesis: loss of power of %s: %w", n.ID, err)
		}
		all.Add(lost)
	}
	return all, nil
}

// rotBits is how many bits flip.
const rotBits = 6

// rot flips bits of a running node's commit log, as a disk that forgets does to pages that are read again. Then the node is killed and started,
// which has it look at what it holds.
func rot(_ context.Context, s *site) (*wound, error) {
	n := s.target
	w := &wound{nodes: []*cluster.Node{n}}
	w.heal = func(ctx context.Context) (string, error) {
		if err := n.Kill(); err != nil {
			return "", err
		}
		if err := n.ForgetShadow(); err != nil {
			return "", err
		}
		return reinstate(ctx, s.c, n)
	}
	files, err := filepath.Glob(filepath.Join(n.DataDir, "store", "commitlog", "*"))
	if err != nil {
		return w, err
	}
	slices.Sort(files)
	var flipped []string
	for len(flipped) < rotBits && len(files) > 0 {
		i := s.rng.IntN(len(files))
		at, err := rotOne(files[i], s.rng)
		if err != nil {
			return w, err
		}
		if at < 0 { // a file of what comes next is empty yet
			files = slices.Delete(files, i, i+1)
			continue
		}
		flipped = append(flipped, fmt.Sprintf("%s: a bit of byte %d", filepath.Base(files[i]), at))
	}
	w.proof = strings.Join(flipped, ", ")
	if w.proof == "" {
		return w, fmt.Errorf("%w: nothing is written to the commit log of %s", ErrNoEffect, n.ID)
	}
	return w, nil
}

// rotOne flips a bit of a byte of a file in front of the last one that is not zero: most of a segment is written to later. -1 if there is none.
func rotOne(path string, rng *rand.Rand) (at int64, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return -1, fmt.Errorf("nemesis: %w", err)
	}
	end := len(bytes.TrimRight(b, "\x00"))
	if end == 0 {
		return -1, nil
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return -1, fmt.Errorf("nemesis: %w", err)
	}
	at = rng.Int64N(int64(end))
	return at, errors.Join(flipBit(f, at, rng), f.Close())
}
