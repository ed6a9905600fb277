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
	"time"

	"raftmq/jepsen/cluster"
)

// raftRot times: how long a minority misses messages, at least, and at most when few come, and how long those that start first may look for
// a leader.
const (
	raftRotMissing = 2 * time.Second
	raftRotWrites  = 10 * time.Second
	raftRotAlone   = 8 * time.Second
)

// raftRot is what a Raft log that is cut where it is damaged cannot stand: a minority is down while messages are acknowledged; then the others are
// killed, a bit of what the target has written to its Raft log meanwhile flips, and it starts with those that have missed it, a majority in number.
// They may not choose a leader among them, as none of them has all that was acknowledged and the target cannot know it. The others start when
// the fault is healed.
func raftRot(ctx context.Context, s *site) (*wound, error) {
	others := s.others(len(s.nodes) - 1)
	behind, ahead := others[:len(others)/2], others[len(others)/2:]
	w := &wound{nodes: append([]*cluster.Node{s.target}, others...)}
	w.heal = func(ctx context.Context) (string, error) {
		for _, n := range w.nodes {
			if !n.Running() {
				if err := n.Start(); err != nil {
					return "", err
				}
			}
		}
		return untilWell(ctx, s.c, s.target)
	}
	for _, n := range behind {
		if err := n.Kill(); err != nil {
			return w, err
		}
	}
	before, err := raftLogEnd(s.target)
	if err != nil {
		return w, err
	}
	wait(ctx, raftRotMissing)
	for deadline := time.Now().Add(raftRotWrites); time.Now().Before(deadline); wait(ctx, 10*waitEvery) {
		after, err := raftLogEnd(s.target)
		if err != nil {
			return w, err
		}
		if after.since(before) >= raftRotLeast {
			break
		}
	}
	for _, n := range append([]*cluster.Node{s.target}, ahead...) {
		if err := n.Kill(); err != nil {
			return w, err
		}
	}
	after, err := raftLogEnd(s.target)
	if err != nil {
		return w, err
	}
	at, err := flipBetween(before, after, s.rng)
	if err != nil {
		return w, err
	}
	for _, n := range w.nodes {
		if err := n.ForgetShadow(); err != nil {
			return w, err
		}
	}
	for _, n := range append([]*cluster.Node{s.target}, behind...) {
		if err := n.Start(); err != nil {
			return w, err
		}
	}
	w.proof = fmt.Sprintf("%s: a bit of byte %d of %s, which ends at %d, flipped", s.target.ID, at, filepath.Base(after.path), after.end)
	alone, cancel := context.WithTimeout(ctx, raftRotAlone)
	defer cancel()
	if leader, err := s.c.Leader(alone); err == nil {
		w.proof += fmt.Sprintf("; %s leads without those that had all", leader.ID)
	}
	return w, nil
}

// logEnd is where what is written to a node's Raft log ends.
type logEnd struct {
	path string // of its last file that has something in it
	end  int64
}

// since is how much of the file was written since another look.
func (e logEnd) since(before logEnd) int64 {
	if e.path == before.path {
		return e.end - before.end
	}
	return e.end - walHead
}

// raftLogEnd looks at the files of raft-wal, whose names sort by their first entry.
func raftLogEnd(n *cluster.Node) (at logEnd, err error) {
	files, err := filepath.Glob(filepath.Join(n.DataDir, "raft", "wal", "*.wal"))
	if err != nil {
		return at, err
	}
	slices.Sort(files)
	for _, path := range slices.Backward(files) {
		b, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue // compacted meanwhile
		}
		if err != nil {
			return at, fmt.Errorf("nemesis: %w", err)
		}
		if end := len(bytes.TrimRight(b, "\x00")); end > 0 {
			return logEnd{path, int64(end)}, nil
		}
	}
	return at, fmt.Errorf("%w: the Raft log of %s is empty", ErrNoEffect, n.ID)
}

const (
	walHead      = 32      // bytes of a raft-wal file before its first entry
	raftRotLeast = 4 << 10 // bytes to choose from: some entries
)

// flipBetween flips a bit of the first half of what was written between two looks: with entries behind it, it is no torn write.
func flipBetween(before, after logEnd, rng *rand.Rand) (at int64, err error) {
	from := after.end - after.since(before)
	if after.end-from < raftRotLeast {
		return -1, fmt.Errorf("%w: %d bytes were written to %s meanwhile", ErrNoEffect, after.end-from, after.path)
	}
	f, err := os.OpenFile(after.path, os.O_RDWR, 0)
	if err != nil {
		return -1, fmt.Errorf("nemesis: %w", err)
	}
	at = from + rng.Int64N((after.end-from)/2)
	return at, errors.Join(flipBit(f, at, rng), f.Close())
}
