// Package mappedfile is one memory-mapped file of fixed size and the queue of them that
// forms an address space. It is the only place that maps memory; mapped bytes leave it
// only as counted views (Views-Are-Counted).
//
// It knows nothing of what the bytes mean: no records, no checksums, no recovery decisions.
// It keeps three positions of the address space, minimum ≤ flushed ≤ readable ≤ written, and these
// rules:
//
//   - Views-Are-Counted: a file is unmapped when the queue and the last view have let go.
//   - Allocated-Before-Touched: a byte is only written after fallocate has taken its block,
//     so that a full disk is ErrNoSpace and not SIGBUS.
//   - Named-Before-Durable: the flushed position never enters a file whose size and directory
//     entry are not on disk (F35).
//   - Poisoned-For-Ever: after a failed sync the kernel may have dropped dirty pages and
//     forgotten the error, so no later sync can be believed (F33).
//
// One goroutine writes (Append, Commit, WriteAt); any number read; flushes are serialised.
package mappedfile

import (
	"errors"

	"github.com/hashicorp/go-hclog"
)

// PageSize is RocketMQ's page: always 4096, whatever the machine's is.
const PageSize = 4096

// nameLen is the length of a file name: its start offset in decimal, zero-padded (RocketMQ's UtilAll.offset2FileName).
const nameLen = 20

// Sentinel errors; they come wrapped with file, offset and sizes.
var (
	// ErrClosed: the queue was closed.
	ErrClosed = errors.New("mappedfile: closed")
	// ErrReadOnly: a write to a queue opened read-only.
	ErrReadOnly = errors.New("mappedfile: read-only")
	// ErrOutOfRange: the offset is not in the readable range.
	ErrOutOfRange = errors.New("mappedfile: offset out of range")
	// ErrNoRoom: an append is larger than what remains of the file.
	ErrNoRoom = errors.New("mappedfile: no room in this file")
	// ErrNoSpace: the disk or quota is full. Nothing was touched; it may be tried again.
	ErrNoSpace = errors.New("mappedfile: no space on device")
	// ErrPoisoned: a sync failed once, so nothing later can be called durable.
	ErrPoisoned = errors.New("mappedfile: poisoned by a failed sync")
	// ErrFault: touching mapped memory failed: device error, or the file was truncated from outside.
	ErrFault = errors.New("mappedfile: page fault on mapped memory")
	// ErrQuarantined: the owner knows the bytes to be damaged and gives them to nobody until they are repaired.
	ErrQuarantined = errors.New("mappedfile: bytes are damaged and in quarantine")
	// ErrLayout: the folder holds something that is not this queue's: a foreign name, a wrong
	// size, a gap between files.
	ErrLayout = errors.New("mappedfile: unexpected file")
)

// Options of a Queue.
type Options struct {
	Dir      string // holds only this queue's files, named by their 20-digit start offset
	FileSize int64
	// AllocateStep is how many bytes are taken with fallocate ahead of the written end;
	// 0 takes the whole file before it is mapped. A fault past allocated bytes is SIGBUS.
	AllocateStep int64
	Random       bool // madvise(MADV_RANDOM)
	// Staged lets Append hand out memory that WriteOut copies to the file as a whole, instead of the mapping: pages that are touched
	// for the first time are made ready by one system call then, and not by a fault each.
	Staged bool
	// Pool lends a buffer for each file that the writer enters: what Append handed out is not written before
	// CommitBuffers. Needs Staged.
	Pool *Pool
	// MaxMapped bounds how many files are mapped at a time (0: all are). Others are unmapped and closed, and mapped
	// again by whoever reads them; views, the writer's file and what is not durable keep theirs.
	MaxMapped int
	// Ahead is how many files Prepare makes ahead (1).
	Ahead    int
	ReadOnly bool
	// Recover says that the owner knows that everything below DurableEnd was durable once, and gets back
	// from elsewhere what was behind it. Open then makes files whole that are short behind that end, removes those behind a
	// hole there, and takes for named what begins below it.
	Recover    bool
	DurableEnd int64
	Logger     hclog.Logger // default: none
	FS         FS           // default: the operating system's
}

// View is a counted piece of a mapping. Bytes may be used until Release.
type View struct {
	Bytes []byte
	file  *File
}

// Release gives the view back; a second call on the same value is a bug and panics.
func (v *View) Release() {
	f := v.file
	if f == nil {
		panic("mappedfile: Views-Are-Counted: view released twice")
	}
	v.file, v.Bytes = nil, nil
	q := f.q
	f.release()
	if limit := int64(q.o.MaxMapped); limit > 0 && q.mapped.Load() > limit {
		q.evict() // views held more than the limit
	}
}
