package mappedfile

import (
	"fmt"
	"time"
)

// stageSize is how much Append gathers before it writes by itself.
const stageSize = 1 << 20

// stage is what Append handed out and WriteOut has not written: bytes of the writer's file from an offset on. The writer's.
type stage struct {
	buf  []byte
	from int64
}

// stageBytes returns size bytes for offset q.wrote. What is staged is behind each other.
func (q *Queue) stageBytes(size int) ([]byte, error) {
	s := &q.stage
	if len(s.buf)+size > cap(s.buf) {
		if err := q.WriteOut(); err != nil {
			return nil, err
		}
		if size > cap(s.buf) {
			s.buf = make([]byte, 0, max(size, stageSize))
		}
	}
	n := len(s.buf)
	if n == 0 {
		s.from = q.wrote
	}
	s.buf = s.buf[:n+size]
	return s.buf[n : n+size : n+size], nil
}

// WriteOut writes what Append handed out to its file, so that Commit may make it readable; with a pool that is CommitBuffers'
// work. After ErrNoSpace it may be tried again; after any other error the file may hold a part. It does not sync.
func (q *Queue) WriteOut() error {
	s := &q.stage
	if len(s.buf) == 0 {
		return nil
	}
	if err := q.writable(); err != nil {
		return err
	}
	f := q.cur
	if err := f.handle.WriteAt(s.buf, s.from-f.from); err != nil {
		return fmt.Errorf("write %s at %d, %d bytes: %w", f.path, s.from-f.from, len(s.buf), err)
	}
	s.buf = s.buf[:0]
	return nil
}

// Skip moves the write position over n bytes of the current file that are to read as zero. They are already: files
// begin so, and cutting restores it. As Append, it must not pass the file's end.
func (q *Queue) Skip(n int64) error {
	if n == 0 {
		return nil
	}
	if n < 0 || n > q.Remaining() || q.cur == nil || q.wrote >= q.cur.from+q.o.FileSize {
		return fmt.Errorf("%w: skip %d bytes at offset %d, %d remain", ErrNoRoom, n, q.wrote, q.Remaining())
	}
	if err := q.WriteOut(); err != nil {
		return err
	}
	if b := q.cur.buffer; b != nil {
		pos := q.wrote - q.cur.from
		clear(b[pos : pos+n]) // an earlier file's bytes
	}
	q.wrote += n
	return nil
}

// enter makes the file of the write position the writer's, with blocks for its first need bytes if it is new. It
// holds a reference on it until it goes on to the next.
func (q *Queue) enter(need int64) (*File, error) {
	if f := q.cur; f != nil && q.wrote < f.from+q.o.FileSize {
		return f, nil
	}
	if err := q.WriteOut(); err != nil {
		return nil, err
	}
	fresh := q.fileAt(q.list(), q.wrote) == nil
	f, err := q.extend(q.wrote, need)
	if err != nil {
		return nil, err
	}
	if ok, err := f.acquire(); err != nil || !ok {
		return nil, fmt.Errorf("enter %s: %w", f.path, errOrClosed(err))
	}
	if q.cur != nil {
		q.cur.left.Store(time.Now().UnixNano())
	}
	q.leave()
	q.cur = f
	if fresh && q.o.Pool != nil {
		f.buffer = q.o.Pool.borrow()
	}
	return f, nil
}

func errOrClosed(err error) error {
	if err == nil {
		return ErrClosed
	}
	return err
}

// leave gives up the writer's file and what is staged for it.
func (q *Queue) leave() {
	q.stage.buf = q.stage.buf[:0]
	if q.cur != nil {
		q.cur.release()
		q.cur = nil
	}
}
