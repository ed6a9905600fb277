package raftnode

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	wal "github.com/hashicorp/raft-wal"
	"go.etcd.io/bbolt"
)

// ErrLogDamaged: entries that this node may have acknowledged, or its term and vote, are not on its disk as they were written. It takes no part any more: it cannot know what it
// has promised (Never-Guess), and nothing is cut from what is there (Never-Clean-Up). The others can fill it again as a newcomer.
var ErrLogDamaged = errors.New("raftnode: the Raft log is damaged")

func damaged(format string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrLogDamaged, fmt.Errorf(format, args...))
}

// asDamage calls an error of reading or opening a store damage if what is on the disk is to blame: not the disk, and not this process.
func asDamage(err error) error {
	if err == nil || errors.Is(err, ErrLogDamaged) {
		return err
	}
	for _, bad := range []error{wal.ErrCorrupt, io.EOF, io.ErrUnexpectedEOF, io.ErrShortBuffer, os.ErrNotExist, errFault,
		bbolt.ErrInvalid, bbolt.ErrChecksum, bbolt.ErrVersionMismatch, bbolt.ErrBucketNotFound} {
		if errors.Is(err, bad) {
			return fmt.Errorf("%w: %w", ErrLogDamaged, err)
		}
	}
	return err
}

// errFault: a library met bytes that it cannot make sense of, or a page that is not there.
var errFault = errors.New("bytes make no sense")

// guarded runs f, which reads what may be damaged: the stores' libraries panic over some of it, and a mapped file that was cut faults.
func guarded(f func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errFault, p)
		}
	}()
	return f()
}

// openStable opens the file with term and vote.
func openStable(path string, options *bbolt.Options) (s *raftboltdb.BoltStore, err error) {
	err = guarded(func() error {
		if s, err = raftboltdb.New(raftboltdb.Options{Path: path, BoltOptions: options}); err != nil {
			return err
		}
		_, err := s.GetUint64(keyCurrentTerm)
		if errors.Is(err, raftboltdb.ErrKeyNotFound) {
			err = nil
		}
		return err
	})
	if err != nil {
		if s != nil {
			_ = guarded(s.Close)
		}
		return nil, asDamage(fmt.Errorf("raftnode: open stable store %s: %w", path, err))
	}
	return s, nil
}

// checkState compares what the stores say of themselves and of each other, before Raft believes them. applied is the last entry whose effect the FSM's store holds.
func (n *Node) checkState(applied uint64) error {
	first, err := n.logs.FirstIndex()
	if err != nil {
		return fmt.Errorf("raftnode: read log: %w", err)
	}
	last, err := n.logs.LastIndex()
	if err != nil {
		return fmt.Errorf("raftnode: read log: %w", err)
	}
	term, err := n.stable.GetUint64(keyCurrentTerm)
	if err != nil && !errors.Is(err, raftboltdb.ErrKeyNotFound) {
		return fmt.Errorf("raftnode: read term: %w", err)
	}
	snaps, err := n.cfg.Snapshots.List()
	if err != nil {
		return fmt.Errorf("raftnode: list snapshots: %w", err)
	}
	var snapshot, newest uint64
	if len(snaps) > 0 {
		snapshot, newest = snaps[0].Index, snaps[0].Term
	}
	if last > 0 {
		var l raft.Log
		if err := n.logs.GetLog(last, &l); err != nil {
			return fmt.Errorf("raftnode: read log entry %d: %w", last, err)
		}
		newest = max(newest, l.Term)
	}
	switch {
	case last > 0 && first > snapshot+1:
		return damaged("the log in %s starts at entry %d, and no usable snapshot covers what came before (the newest is at entry %d)", n.cfg.Dir, first, snapshot)
	case max(last, snapshot) == 0 && applied > 0:
		return damaged("its Raft log in %s is gone, and this node has applied entries up to %d", n.cfg.Dir, applied)
	case max(last, snapshot) < applied:
		return damaged("log and snapshots in %s end at entry %d, and this node has applied entries up to %d", n.cfg.Dir, max(last, snapshot), applied)
	case term < newest:
		return damaged("%s has entries of term %d and stable.db knows only term %d: the vote is lost", n.cfg.Dir, newest, term)
	}
	return nil
}

// refused is how Raft's own goroutine ends that must not go on with an entry that cannot be read: it would panic, or leave out what it must not. What it would have answered nobody
// gets, and the node is told to stop.
func (d *disk) refused(err error) {
	d.mu.Lock()
	if d.mu.err == nil {
		d.mu.err = err
		close(d.failed)
	}
	d.mu.Unlock()
	runtime.Goexit()
}
