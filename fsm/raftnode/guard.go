package raftnode

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// ErrDisk: a write or fsync of the Raft log or of the stable store failed. The node takes no part any more: it
// must be closed and opened again, which reads back what is really there (F33).
var ErrDisk = errors.New("raftnode: the disk failed")

// ErrHangs: Close gave up on a write that does not end. The stores are still open.
var ErrHangs = errors.New("raftnode: the disk hangs")

// disk watches the writes of both stores: which are under way and since when, and whether one has ever failed. A store
// whose write failed is poisoned: what the kernel did with the pages is unknown, and a later fsync that succeeds says nothing
// about them. So nothing is written after it, and with that nothing acknowledged and no vote given.
type disk struct {
	now func() time.Time

	mu struct {
		sync.Mutex
		running []operation
		next    uint64
		err     error
	}
	failed chan struct{} // closed at the first failure
}

type operation struct {
	id    uint64
	what  string
	since time.Time
}

func newDisk(now func() time.Time) *disk { return &disk{now: now, failed: make(chan struct{})} }

// do runs a write unless one has failed before.
func (d *disk) do(what string, write func() error) error {
	d.mu.Lock()
	if err := d.mu.err; err != nil {
		d.mu.Unlock()
		return err
	}
	d.mu.next++
	id := d.mu.next
	d.mu.running = append(d.mu.running, operation{id, what, d.now()})
	d.mu.Unlock()

	err := write()

	d.mu.Lock()
	defer d.mu.Unlock()
	for i, o := range d.mu.running {
		if o.id == id {
			d.mu.running = append(d.mu.running[:i], d.mu.running[i+1:]...)
			break
		}
	}
	switch {
	case d.mu.err != nil:
		return d.mu.err // another one failed meanwhile: this one's success proves nothing
	case err != nil:
		d.mu.err = fmt.Errorf("%w: %s: %w", ErrDisk, what, err)
		close(d.failed)
		return d.mu.err
	}
	return nil
}

// oldest is the write that has been under way for longest; what is "" when none is.
func (d *disk) oldest() (what string, since time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.mu.running {
		if what == "" || o.since.Before(since) {
			what, since = o.what, o.since
		}
	}
	return what, since
}

// failure is the first failure.
func (d *disk) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.mu.err
}

// guardedLog is the log store as Raft sees it.
type guardedLog struct {
	*logStore
	disk  *disk
	node  *Node
	early *earlyApply // of the seam
	// committed is the last entry that is known to be committed here.
	committed func() uint64
}

// GetLog implements raft.LogStore. An entry that is damaged stops the node: Raft would panic, or leave it out.
func (g *guardedLog) GetLog(index uint64, l *raft.Log) error {
	err := g.logStore.GetLog(index, l)
	if errors.Is(err, ErrLogDamaged) {
		g.disk.refused(fmt.Errorf("read of Raft log entry %d: %w", index, err))
	}
	return err
}

// StoreLog implements raft.LogStore.
func (g *guardedLog) StoreLog(l *raft.Log) error { return g.StoreLogs([]*raft.Log{l}) }

// StoreLogs implements raft.LogStore.
func (g *guardedLog) StoreLogs(logs []*raft.Log) error {
	err := g.disk.do("write to the Raft log", func() error { return g.logStore.StoreLogs(logs) })
	if err == nil {
		g.early.stored(g.node, logs)
	}
	return err
}

// DeleteRange implements raft.LogStore. A leader whose log does not hold what was committed here has it cut here (Flush-Before-Truncate, Never-Clean-Up): one of the two has lost it, and
// this node stops rather than follow.
func (g *guardedLog) DeleteRange(from, to uint64) error {
	first, err := g.FirstIndex()
	if err != nil {
		return err
	}
	if committed := g.committed(); from > first && from <= committed {
		g.disk.refused(fmt.Errorf("%w: the leader's log contradicts this node's from entry %d on, and entries up to %d are committed here", ErrLogDamaged, from, committed))
	}
	return g.disk.do("cut of the Raft log", func() error { return g.logStore.DeleteRange(from, to) })
}

// guardedStable is the stable store (term and vote) as Raft sees it.
type guardedStable struct {
	raft.StableStore
	disk *disk
}

var keyCurrentTerm = []byte("CurrentTerm") // hashicorp/raft's

// Set implements raft.StableStore.
func (g *guardedStable) Set(key, val []byte) error {
	return g.disk.do("write of the vote", func() error { return g.StableStore.Set(key, val) })
}

// SetUint64 implements raft.StableStore. Raft panics when its term cannot be saved. Ending its goroutine instead (its
// deferred calls run) stops it just as well, and lets the process say what is wrong and open everything again.
func (g *guardedStable) SetUint64(key []byte, val uint64) error {
	err := g.disk.do("write of term or vote", func() error { return g.StableStore.SetUint64(key, val) })
	if err != nil && bytes.Equal(key, keyCurrentTerm) {
		runtime.Goexit()
	}
	return err
}
