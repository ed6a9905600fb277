// Package mappedfile is one memory-mapped file of fixed size and the queue of them that
// forms an address space. It is the only place that maps memory; mapped bytes leave it
// only as counted views (Views-Are-Counted).
package mappedfile

import "github.com/hashicorp/go-hclog"

// PageSize is RocketMQ's page: always 4096, whatever the machine's is.
const PageSize = 4096

// Options of a Queue.
type Options struct {
	Dir      string // holds only this queue's files, named by their 20-digit start offset
	FileSize int64
	// AllocateStep is how many bytes are taken with fallocate ahead of the written end;
	// 0 takes the whole file before it is mapped. A fault past allocated bytes is SIGBUS.
	AllocateStep int64
	Random       bool // madvise(MADV_RANDOM)
	ReadOnly     bool
	Logger       hclog.Logger
}

// View is a counted piece of a mapping. Bytes may be used until Release.
type View struct {
	Bytes []byte
	// unexported reference to the file
}

// Release gives the view back; a second call on the same value is a bug.
func (v *View) Release() { panic("stub") }

// Queue is the address space. One writer; any number of readers.
type Queue struct{}

// Open lists, checks and maps the files of o.Dir. Positions start at full; the owner's recovery sets them.
func Open(o Options) (*Queue, error) { panic("stub") }

// Append returns size writable bytes at the write position, all in one file, making the
// next file when the current one is full; size must fit what remains (Remaining). The
// bytes are not readable before Commit.
func (q *Queue) Append(size int) ([]byte, error) { panic("stub") }

// Commit makes n bytes after the last committed position readable (stores the position atomically).
func (q *Queue) Commit(n int64) { panic("stub") }

// WriteAt copies b to offset off (allocated on demand, files made on demand): positional and
// idempotent, for consume queues. It moves the readable end forward when it passes it.
func (q *Queue) WriteAt(b []byte, off int64) error { panic("stub") }

// Remaining is the room left in the file at the write position (FileSize when a new one is due).
func (q *Queue) Remaining() int64 { panic("stub") }

// MinOffset, MaxOffset bound the readable range; FlushedOffset is durable.
func (q *Queue) MinOffset() int64     { panic("stub") }
func (q *Queue) MaxOffset() int64     { panic("stub") }
func (q *Queue) FlushedOffset() int64 { panic("stub") }

// View returns the readable bytes from off to at most off+max within off's file.
func (q *Queue) View(off int64, max int) (View, error) { panic("stub") }

// Flush makes everything up to the readable end durable when at least leastPages pages
// wait (0: any) and returns the durable end. A failed flush poisons the queue: every later
// call returns ErrPoisoned wrapping the first error.
func (q *Queue) Flush(leastPages int) (int64, error) { panic("stub") }

// Truncate sets the readable, written and flushed end to off, zeroes the rest of that file and
// removes later files. Recovery only.
func (q *Queue) Truncate(off int64) error { panic("stub") }

// DeleteBefore removes whole files that end at or before off, never the last. Files with
// views out are removed from the queue at once and unmapped at zero.
func (q *Queue) DeleteBefore(off int64) (removed int, err error) { panic("stub") }

// Prepare makes the next file ahead of need (called by the pre-allocation goroutine).
func (q *Queue) Prepare() error { panic("stub") }

// Close unmaps (after views are gone) without flushing; Flush first.
func (q *Queue) Close() error { panic("stub") }
