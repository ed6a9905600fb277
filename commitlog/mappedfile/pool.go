package mappedfile

import (
	"errors"
	"fmt"
	"sync"

	"github.com/edsrzf/mmap-go"
	"github.com/hashicorp/go-hclog"
)

// Pool lends write buffers, each as long as a file (RocketMQ's TransientStorePool): the writer fills memory that is always there,
// and CommitBuffers carries it to the file. When it is drained, files are written as without a pool.
type Pool struct {
	size   int64
	logger hclog.Logger

	mu   sync.Mutex
	all  []mmap.MMap
	free [][]byte // last in, first out: warm memory is used again
}

// NewPool takes n buffers of size bytes from the system, and locks them into memory if lock is set. That fails where
// the limit on locked memory is lower: it is told, and they are used unlocked.
func NewPool(n int, size int64, lock bool, logger hclog.Logger) (*Pool, error) {
	if logger == nil {
		logger = hclog.NewNullLogger()
	}
	p := &Pool{size: size, logger: logger}
	for range n {
		b, err := mmap.MapRegion(nil, int(size), mmap.RDWR, mmap.ANON, 0)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("mappedfile: %d write buffers of %d bytes: %w", n, size, err), p.Close())
		}
		p.all = append(p.all, b)
		p.free = append(p.free, b)
	}
	if lock {
		for _, b := range p.all {
			if err := Lock(b); err != nil {
				logger.Warn("write buffers are not locked into memory", "buffers", n, "bytes", size, "error", err)
				break
			}
		}
	}
	return p, nil
}

// Available is how many buffers are free.
func (p *Pool) Available() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.free)
}

// borrow returns a buffer, nil when there is none. Its content is anything.
func (p *Pool) borrow() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.free)
	if n == 0 {
		p.logger.Warn("no write buffer is free, writing to the file itself", "buffers", len(p.all))
		return nil
	}
	b := p.free[n-1]
	p.free = p.free[:n-1]
	if left := n - 1; left*10 < len(p.all)*4 {
		p.logger.Warn("few write buffers are left", "free", left, "buffers", len(p.all))
	}
	return b
}

func (p *Pool) giveBack(b []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, b)
}

// Close gives the memory back. The queue must be closed before.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	for _, b := range p.all {
		err = errors.Join(err, b.Unmap())
	}
	p.all, p.free = nil, nil
	return err
}

// CommitBuffers writes what Commit has published from the pool's buffers to their files and makes it readable, when at least
// leastPages pages wait in a file (0: any) or the file is full, and returns the readable end (MappedFileQueue.commit). Without a
// pool Commit does that itself. A write that failed poisons the queue.
func (q *Queue) CommitBuffers(leastPages int) (int64, error) {
	if q.o.Pool == nil {
		return q.readable.Load(), nil
	}
	q.commitMu.Lock()
	defer q.commitMu.Unlock()
	if err := q.writable(); err != nil {
		return q.readable.Load(), err
	}
	return q.commitBuffersLocked(leastPages)
}

// Uncommitted is how many bytes wait for CommitBuffers.
func (q *Queue) Uncommitted() int64 { return max(0, q.published.Load()-q.readable.Load()) }

// commitBuffersLocked is CommitBuffers with commitMu held.
func (q *Queue) commitBuffersLocked(leastPages int) (int64, error) {
	to := q.published.Load()
	for {
		from := q.readable.Load()
		if from >= to {
			return from, nil
		}
		f := q.fileAt(q.list(), from)
		if f == nil {
			return from, fmt.Errorf("%w: no file for offset %d", ErrOutOfRange, from)
		}
		end := min(to, f.from+q.o.FileSize)
		full := end == f.from+q.o.FileSize
		if f.buffer != nil {
			if !full && leastPages > 0 && end/PageSize-from/PageSize < int64(leastPages) {
				return from, nil
			}
			if err := q.commitFile(f, from-f.from, end-f.from); err != nil {
				return from, q.fail(err)
			}
		}
		q.readable.Store(end)
		if full && f.buffer != nil {
			q.o.Pool.giveBack(f.buffer)
			f.buffer = nil // the writer is in another file
		}
	}
}

func (q *Queue) commitFile(f *File, from, end int64) error {
	ok, err := f.acquire()
	if err != nil || !ok {
		return fmt.Errorf("commit %s: %w", f.path, errOrClosed(err))
	}
	defer f.release()
	if err := f.handle.WriteAt(f.buffer[from:end], from); err != nil {
		return fmt.Errorf("commit %s from %d to %d: %w", f.path, from, end, err)
	}
	return nil
}

// dropBuffers gives all buffers back. Nobody writes or commits.
func (q *Queue) dropBuffers(files []*File) {
	for _, f := range files {
		if f.buffer != nil {
			q.o.Pool.giveBack(f.buffer)
			f.buffer = nil
		}
	}
}
