package consumequeue

import (
	"fmt"
	"sync"
	"syscall"

	"raftmq/commitlog/mappedfile"
)

// pool bounds how many queue files are open: each costs a descriptor and a mapping, and a
// cluster whose nodes all run out of them at the same queue is no cluster. Queues that were
// not used lately and have nothing to flush are closed, and opened again by their next use.
type pool struct {
	limit int // files

	mu     sync.Mutex
	open   []*Queue // in no order; a clock goes round
	hand   int
	files  int
	closed bool
}

// Bounds of the default limit.
const (
	minOpenFiles = 64
	maxOpenFiles = 16384
)

// DefaultOpenFiles is how many queue files are open and mapped at a time unless Config says otherwise: two fifths of the descriptors that the process may
// have; the rest is for connections and for what is not counted here.
func DefaultOpenFiles() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return minOpenFiles
	}
	return int(min(max(l.Cur/5*2, minOpenFiles), maxOpenFiles))
}

// get returns the open files of a queue that has some, or is to get some. They may be closed
// again at any time (mappedfile.ErrClosed), unless the caller holds q.rw and q is dirty.
func (p *pool) get(q *Queue) (*mappedfile.Queue, error) {
	if files := q.files.Load(); files != nil {
		if !q.used.Load() {
			q.used.Store(true)
		}
		return files, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if files := q.files.Load(); files != nil {
		return files, nil
	}
	if p.closed || q.gone {
		return nil, fmt.Errorf("%w: %s/%d", ErrClosed, q.topic, q.id)
	}
	p.evict()
	files, err := q.openFiles()
	if err != nil {
		return nil, fmt.Errorf("consumequeue %s/%d: %w", q.topic, q.id, err)
	}
	p.add(q, files)
	return files, nil
}

// offer keeps the files of a queue that was opened otherwise, if there is room.
func (p *pool) offer(q *Queue, files *mappedfile.Queue) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.files >= p.limit {
		return files.Close()
	}
	p.add(q, files)
	return nil
}

func (p *pool) add(q *Queue, files *mappedfile.Queue) {
	q.opened = max(files.Files(), 1)
	p.files += q.opened
	p.open = append(p.open, q)
	q.files.Store(files)
}

// evict closes queues until there is room, or none can be closed. p.mu is held.
func (p *pool) evict() {
	for looks := 2 * len(p.open); looks > 0 && p.files >= p.limit; looks-- {
		if p.hand >= len(p.open) {
			p.hand = 0
		}
		q := p.open[p.hand]
		if q.used.Swap(false) || !p.closeIdle(q) {
			p.hand++
			continue
		}
		last := len(p.open) - 1
		p.open[p.hand], p.open[last] = p.open[last], nil
		p.open = p.open[:last]
		p.files -= q.opened
	}
}

// closeIdle closes the files of a queue that nobody writes or flushes, and that has nothing
// to flush. Readers with views keep theirs mapped.
func (p *pool) closeIdle(q *Queue) bool {
	if q.dirty.Load() || !q.rw.TryLock() {
		return false
	}
	defer q.rw.Unlock()
	if q.dirty.Load() {
		return false
	}
	// An error would be of a file made ahead, and queues make none.
	_ = q.files.Swap(nil).Close()
	return true
}

// full tells that even what can't be closed is too much: a flush must come first.
func (p *pool) full() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.files >= p.limit+p.limit/4
}

// closeAll closes all files. gone are queues that shall not come back.
func (p *pool) closeAll(gone map[key]*Queue) (err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, q := range gone {
		q.gone = true
	}
	for _, q := range p.open {
		if cerr := q.files.Swap(nil).Close(); err == nil {
			err = cerr
		}
	}
	p.open, p.files = nil, 0
	return err
}

func (p *pool) close() error {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	return p.closeAll(nil)
}
