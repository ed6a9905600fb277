package mappedfile

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/go-hclog"
)

// Queue is the address space. One writer; any number of readers.
type Queue struct {
	o      Options
	fs     FS
	logger hclog.Logger

	// files are the mapped files, contiguous, ascending. The slice is never changed, only
	// replaced, so that readers need no lock. Replaced under filesMu.
	files   atomic.Pointer[[]*File]
	filesMu sync.Mutex

	wrote     int64        // end of what Append handed out; the writer's
	cur       *File        // the file of wrote, when the writer has entered it; the writer's, with a reference
	stage     stage        // the writer's
	published atomic.Int64 // end of what Commit was told; with a pool the readable end follows it
	minOffset atomic.Int64 // the positions of the package comment
	readable  atomic.Int64
	flushed   atomic.Int64 // moved by Flush, recovery and DeleteBefore only
	// rewritten is the lowest offset that WriteAt wrote below the readable end since the last
	// Flush began; none when it is MaxInt64. The durable end is the lower of it and flushed.
	rewritten atomic.Int64

	makeMu   sync.Mutex              // held while a file is made, never across a sync
	aheadMu  sync.Mutex              // held while one moves from prepared to files, or comes into prepared; never across I/O
	prepared atomic.Pointer[[]*File] // made ahead, not yet in files; ascending; the writer takes from it under aheadMu, all else happens under makeMu too

	mapped  atomic.Int64
	evictMu sync.Mutex // guards hand
	hand    int

	commitMu     sync.Mutex   // serialises CommitBuffers; taken before makeMu
	flushMu      sync.Mutex   // serialises Flush; taken before commitMu and makeMu, that before aheadMu, that before filesMu
	nameMu       sync.Mutex   // serialises nameFiles
	removeMu     sync.Mutex   // serialises DeleteBefore
	hanged       atomic.Int64 // removed files that views still hold
	entriesDirty atomic.Bool  // the folder has entries that are not durable
	poison       atomic.Value // of error: the first failed sync
	warned       atomic.Bool
	closed       atomic.Bool
}

func (q *Queue) list() []*File { return *q.files.Load() }

// fileAt returns the file of off, nil if there is none.
func (q *Queue) fileAt(files []*File, off int64) *File {
	if len(files) == 0 || off < files[0].from {
		return nil
	}
	if i := (off - files[0].from) / q.o.FileSize; i < int64(len(files)) {
		return files[i]
	}
	return nil
}

// last returns the last file, nil if there is none.
func (q *Queue) last() *File {
	if files := q.list(); len(files) > 0 {
		return files[len(files)-1]
	}
	return nil
}

// FileSize is the size of each file.
func (q *Queue) FileSize() int64 { return q.o.FileSize }

// Path is the file that holds off, whether it exists or not: for messages.
func (q *Queue) Path(off int64) string {
	return filepath.Join(q.o.Dir, fileName(off-off%q.o.FileSize))
}

// Files is the number of files.
func (q *Queue) Files() int { return len(q.list()) }

// Hanged is the number of files that DeleteBefore has removed and views still hold: their disk space
// comes back with the last of them.
func (q *Queue) Hanged() int { return int(q.hanged.Load()) }

// Room is how many bytes behind the readable end have blocks already, as far as the writer can go on
// without asking the disk for more.
func (q *Queue) Room() int64 {
	prepared := q.ahead() // first: they become last files, not the other way round
	end, room := q.published.Load(), int64(0)
	last, whole := q.last(), true
	if last != nil {
		room = max(last.from+last.allocated.Load()-end, 0)
		whole = last.allocated.Load() >= q.o.FileSize
	}
	for _, f := range prepared {
		if last != nil && f.from <= last.from {
			continue // taken just now
		}
		if !whole {
			break
		}
		room += f.allocated.Load()
		whole = f.allocated.Load() >= q.o.FileSize
	}
	return room
}

// ahead are the files made ahead.
func (q *Queue) ahead() []*File {
	if p := q.prepared.Load(); p != nil {
		return *p
	}
	return nil
}

// MinOffset is the first readable offset: the start of the first file, or where Reset began.
func (q *Queue) MinOffset() int64 { return q.minOffset.Load() }

// MaxOffset is the end of the readable range.
func (q *Queue) MaxOffset() int64 { return q.readable.Load() }

// FlushedOffset is the end of what is durable.
func (q *Queue) FlushedOffset() int64 { return min(q.flushed.Load(), q.rewritten.Load()) }

// WriteOffset is where the next Append goes. The writer's.
func (q *Queue) WriteOffset() int64 { return q.wrote }

// Remaining is the room left in the file at the write position (FileSize when a new one is due).
func (q *Queue) Remaining() int64 { return q.o.FileSize - q.wrote%q.o.FileSize }

// writable returns why nothing may be written.
func (q *Queue) writable() error {
	switch {
	case q.closed.Load():
		return ErrClosed
	case q.o.ReadOnly:
		return ErrReadOnly
	}
	return q.poisoned()
}

func (q *Queue) poisoned() error {
	if err, ok := q.poison.Load().(error); ok {
		return err
	}
	return nil
}

// Append returns size writable bytes at the write position, all in one file, making the
// next file when the current one is full; size must fit what remains (Remaining), otherwise
// ErrNoRoom. The bytes are not readable before Commit; they may be written until then or, when they are staged, until the next
// Append or WriteOut. Staged ones hold anything, others are zero. After an error nothing has changed. It waits for no disk.
func (q *Queue) Append(size int) ([]byte, error) {
	if err := q.writable(); err != nil {
		return nil, err
	}
	if int64(size) > q.Remaining() || size < 0 {
		return nil, fmt.Errorf("%w: %d bytes at offset %d, %d remain", ErrNoRoom, size, q.wrote, q.Remaining())
	}
	f, err := q.enter(int64(size))
	if err != nil {
		return nil, err
	}
	pos := q.wrote - f.from
	end := pos + int64(size)
	if end > f.allocated.Load() {
		if err := q.allocate(f, end, end); err != nil {
			return nil, err
		}
	}
	var b []byte
	switch {
	case f.buffer != nil:
		b = f.buffer[pos:end:end]
	case q.o.Staged:
		if b, err = q.stageBytes(size); err != nil {
			return nil, err
		}
	default:
		b = f.data[pos:end:end]
	}
	q.wrote += int64(size)
	return b, nil
}

// Commit makes n bytes after the last committed position readable (stores the position atomically), or with a pool hands them to
// CommitBuffers. Staged bytes must be written out before.
func (q *Queue) Commit(n int64) {
	end := q.published.Load() + n
	if n < 0 || end > q.wrote-int64(len(q.stage.buf)) {
		panic(fmt.Sprintf("mappedfile: commit of %d bytes up to %d, written up to %d", n, end, q.wrote-int64(len(q.stage.buf))))
	}
	q.published.Store(end)
	if q.o.Pool == nil {
		q.readable.Store(end)
	}
}

// WriteAt copies b to offset off (allocated on demand, files made on demand): positional and
// idempotent, for consume queues. It moves the readable end forward when it passes it, and
// the flushed end back when it writes below it. An empty queue begins with the file of off.
// Below the first file it is ErrOutOfRange. It waits for no disk.
func (q *Queue) WriteAt(b []byte, off int64) error {
	if err := q.writable(); err != nil {
		return err
	}
	if files := q.list(); off < 0 || len(files) > 0 && off < files[0].from {
		return fmt.Errorf("%w: write at %d, first file starts at %d", ErrOutOfRange, off, q.MinOffset())
	}
	for len(b) > 0 {
		f, err := q.extend(off, min(off%q.o.FileSize+int64(len(b)), q.o.FileSize))
		if err != nil {
			return err
		}
		pos := off - f.from
		n := min(int64(len(b)), q.o.FileSize-pos)
		if err := q.allocateHeld(f, pos+n, pos+n); err != nil {
			return err
		}
		if err := f.copyAt(b[:n], pos); err != nil {
			return fmt.Errorf("write %s at %d: %w", f.path, pos, err)
		}
		q.wrote = max(q.wrote, off+n)
		readable := q.readable.Load()
		if off < readable {
			// A running Flush may have passed these bytes already: the next one takes them in.
			lowerTo(&q.rewritten, off)
		}
		if readable < off+n {
			q.readable.Store(off + n)
			q.published.Store(off + n)
		}
		b, off = b[n:], off+n
	}
	return nil
}

// Overwrite copies b over readable bytes at off, beside the writer: for the repair of damaged ones. It is durable with the next
// Flush; a crash before that leaves any mixture. Readers with views see the change.
func (q *Queue) Overwrite(b []byte, off int64) error {
	if err := q.writable(); err != nil {
		return err
	}
	if end := q.readable.Load(); off < q.minOffset.Load() || off+int64(len(b)) > end {
		return fmt.Errorf("%w: overwrite %d to %d, readable is %d to %d", ErrOutOfRange, off, off+int64(len(b)), q.MinOffset(), end)
	}
	for len(b) > 0 {
		f := q.fileAt(q.list(), off)
		if f == nil {
			return fmt.Errorf("%w: overwrite at %d, there is no file", ErrOutOfRange, off)
		}
		pos := off - f.from
		n := min(int64(len(b)), q.o.FileSize-pos)
		if err := q.allocateHeld(f, pos+n, pos+n); err != nil { // a file that was made again has no blocks
			return err
		}
		if err := f.copyAt(b[:n], pos); err != nil {
			return fmt.Errorf("write %s at %d: %w", f.path, pos, err)
		}
		lowerTo(&q.rewritten, off)
		b, off = b[n:], off+n
	}
	return nil
}

func lowerTo(a *atomic.Int64, v int64) {
	for {
		old := a.Load()
		if old <= v || a.CompareAndSwap(old, v) {
			return
		}
	}
}

// copyAt writes into the mapping.
func (f *File) copyAt(b []byte, pos int64) (err error) {
	ok, err := f.acquire()
	if err != nil || !ok {
		return errOrClosed(err)
	}
	defer f.release()
	defer CatchFault(ArmFault(), &err)
	copy(f.data[pos:], b)
	return nil
}

// View returns the readable bytes from off to at most off+max within off's file. Outside
// [MinOffset, MaxOffset) it is ErrOutOfRange. No allocation but for the error.
func (q *Queue) View(off int64, max int) (View, error) {
	// The end first: a file is in the list before its bytes are readable.
	end := q.readable.Load()
	if off >= q.minOffset.Load() && off < end && max >= 0 {
		if f := q.fileAt(q.list(), off); f != nil {
			ok, err := f.acquire()
			if err != nil {
				return View{}, err
			}
			if ok {
				pos := off - f.from
				to := min(end-f.from, q.o.FileSize, pos+int64(max))
				return View{Bytes: f.data[pos:to:to], file: f}, nil
			}
		}
	}
	if q.closed.Load() {
		return View{}, ErrClosed
	}
	return View{}, fmt.Errorf("%w: %d, readable is %d to %d", ErrOutOfRange, off, q.MinOffset(), end)
}

// Close unmaps (each file after its views are gone) without flushing; Flush first. The writer and
// Prepare must have stopped. Files made ahead are removed. A second call does nothing.
func (q *Queue) Close() error {
	if !q.closed.CompareAndSwap(false, true) {
		return nil
	}
	q.flushMu.Lock() // a running Flush uses the mappings
	defer q.flushMu.Unlock()
	q.commitMu.Lock()
	defer q.commitMu.Unlock()
	q.makeMu.Lock()
	defer q.makeMu.Unlock()
	had := len(q.ahead()) > 0
	err := q.dropPrepared()
	if had && err == nil {
		err = q.fs.SyncDir(q.o.Dir)
	}
	q.leave()
	q.filesMu.Lock()
	files := q.list()
	q.files.Store(&[]*File{})
	q.filesMu.Unlock()
	q.dropBuffers(files)
	for _, f := range files {
		f.drop()
	}
	return err
}
