package keyindex

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"raftmq/commitlog/mappedfile"
)

// Defaults of Config (RocketMQ's maxHashSlotNum and maxIndexNum).
const (
	DefaultSlots        = 5_000_000
	DefaultEntries      = 20_000_000
	DefaultAllocateStep = 4 << 20
)

// Config of an Index. Zero values take the defaults.
type Config struct {
	Dir     string // holds the index files
	Point   string // recovery point: two files, this path with ".0" and ".1"; not in Dir
	Slots   int    // maxHashSlotNum (5,000,000)
	Entries int    // maxIndexNum (20,000,000); one less can be used
	// AllocateStep is how many bytes of entries are taken with fallocate ahead of the last one
	// (4 MiB).
	AllocateStep int64
	Now          func() time.Time // names new files (time.Now)
	FS           mappedfile.FS    // (the operating system's)
	Logger       hclog.Logger
}

func (c *Config) fillIn() error {
	if c.Slots == 0 {
		c.Slots = DefaultSlots
	}
	if c.Entries == 0 {
		c.Entries = DefaultEntries
	}
	if c.AllocateStep == 0 {
		c.AllocateStep = DefaultAllocateStep
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.FS == nil {
		c.FS = mappedfile.OS{}
	}
	if c.Logger == nil {
		c.Logger = hclog.NewNullLogger()
	}
	return c.Validate()
}

// Limits of Config: what a 4-byte number can count, and enough for one key.
const (
	maxSlots   = 1 << 28
	maxEntries = 1<<31 - 1
	minEntries = 2
)

// Validate tells whether slots and entries can make a file. Zero is a default and so fine.
func (c *Config) Validate() error {
	switch {
	case c.Slots < 0 || c.Slots > maxSlots:
		return fmt.Errorf("keyindex: %d slots: must be 1 to %d", c.Slots, maxSlots)
	case c.Entries != 0 && (c.Entries < minEntries || c.Entries > maxEntries):
		return fmt.Errorf("keyindex: %d entries: must be %d to %d", c.Entries, minEntries, maxEntries)
	case c.AllocateStep < 0:
		return fmt.Errorf("keyindex: allocate step %d: must be positive", c.AllocateStep)
	}
	return nil
}

// position is a place in the log: all keys of records below phyOffset are entered, and of the
// record at it the first keys ones.
type position struct {
	phyOffset int64
	keys      int32
}

// Index is the open index.
type Index struct {
	c      Config
	fs     mappedfile.FS
	logger hclog.Logger
	warned bool // the writer's

	// The writer's.
	next    position
	minName int64 // of the next file: later than all before
	pending [pendingKeys]pending
	waiting int   // of pending
	near    int32 // see write

	// mu guards the bytes and header of the last file beyond the entries that its count tells,
	// changes of files, and mark. Entries below a count that was read under mu never change.
	mu    sync.Mutex
	files atomic.Pointer[[]*file] // ascending; the slice is never changed, only replaced
	mark  Mark

	// flushMu serialises Flush, DeleteBefore, Reset, Repair and Close; taken before mu.
	flushMu    sync.Mutex
	point      pointFile
	generation uint64 // of the files; marks of another one are void

	damaged atomic.Pointer[file] // what a query found to be so
	failure atomic.Pointer[error]
	closed  atomic.Bool
}

func (ix *Index) list() []*file   { return *ix.files.Load() }
func (ix *Index) fileSize() int64 { return FileSize(ix.c.Slots, ix.c.Entries) }

// usable is nil while the index can be written.
func (ix *Index) usable() error {
	if err := ix.failure.Load(); err != nil {
		return *err
	}
	if ix.closed.Load() {
		return ErrClosed
	}
	return nil
}

// fail stops all writing: what a failed sync or a fault left is unknown (F33, F37).
func (ix *Index) fail(err error) error {
	failed := fmt.Errorf("%w: %w", ErrFailed, err)
	ix.failure.CompareAndSwap(nil, &failed)
	return *ix.failure.Load()
}

// From is the physical offset from which on records must be fed: those below have their keys
// in the index, the one there perhaps some. For the writer.
func (ix *Index) From() int64 { return ix.next.phyOffset }

// Put takes the keys of the record at phyOffset: uniqKey if there is one, and each token of
// keys (separated by spaces). storeTime is in ms. Records come in log order; what was put
// before is not put again. Nothing is kept of the slices. Keys can be found after Commit.
// mappedfile.ErrNoSpace: the disk is full, the same Put may be tried again. No allocation but
// at a new file.
func (ix *Index) Put(topic, uniqKey, keys []byte, phyOffset, storeTime int64) error {
	if err := ix.usable(); err != nil {
		return err
	}
	if phyOffset < ix.next.phyOffset {
		return nil
	}
	if phyOffset > ix.next.phyOffset {
		ix.next = position{phyOffset, 0}
	}
	topicHash := javaHash(0, topic)
	n := int32(0)
	if len(uniqKey) > 0 {
		if err := ix.put(n, keyHash(topicHash, uniqKey), storeTime); err != nil {
			return err
		}
		n++
	}
	for key, rest := nextKey(keys); len(key) > 0; key, rest = nextKey(rest) {
		if err := ix.put(n, keyHash(topicHash, key), storeTime); err != nil {
			return err
		}
		n++
	}
	return nil
}

// pendingKeys is how many keys are entered together. The slots of a large index are in no cache;
// waiting for all of them at once instead of one after the other is what makes Put fast.
const pendingKeys = 256

// pending is a key that is put and not entered yet.
type pending struct {
	phyOffset, storeTime int64
	hash                 int32
}

// put takes the n-th key of the record at next, if that has not been done.
func (ix *Index) put(n, hash int32, storeTime int64) error {
	if n < ix.next.keys {
		return nil
	}
	if ix.waiting == len(ix.pending) {
		if err := ix.enter(); err != nil {
			return err
		}
	}
	ix.pending[ix.waiting] = pending{ix.next.phyOffset, storeTime, hash}
	ix.waiting++
	ix.next.keys++
	return nil
}

// enter enters the pending keys. What an error leaves is still pending.
func (ix *Index) enter() error {
	left := ix.pending[:ix.waiting]
	for len(left) > 0 {
		f, n, err := ix.room(len(left))
		if err == nil {
			err = ix.write(f, left[:n])
			left = left[n:]
		}
		if err != nil {
			ix.waiting = copy(ix.pending[:], left)
			return err
		}
	}
	ix.waiting = 0
	return nil
}

func (ix *Index) write(f *file, keys []pending) (err error) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	defer func() {
		if err != nil {
			err = ix.fail(fmt.Errorf("write %s: %w", f.path, err))
		}
	}()
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	// One independent look at each slot brings them all near.
	var slots int32
	for i := range keys {
		slots |= f.table.Slot(f.table.slotOf(keys[i].hash))
	}
	ix.near = slots // or the compiler would leave the loop out
	for i := range keys {
		k := &keys[i]
		f.table.put(&f.header, k.hash, k.phyOffset, k.storeTime)
	}
	return nil
}

// room returns the last file, or a new one, and how many of n entries it has room and blocks for.
func (ix *Index) room(n int) (*file, int, error) {
	files := ix.list()
	var f *file
	var err error
	switch {
	case len(files) == 0:
		f, err = ix.roll(Header{})
	case int(files[len(files)-1].header.Count) == ix.c.Entries:
		f = files[len(files)-1]
		if err = ix.writeHeader(f); err == nil {
			f, err = ix.roll(f.header)
		}
	default:
		f = files[len(files)-1]
	}
	if err != nil {
		return nil, 0, err
	}
	n = min(n, ix.c.Entries-int(f.header.Count))
	return f, n, f.allocate(ix, FileSize(ix.c.Slots, int(f.header.Count)+n))
}

// roll makes the file that follows one with header prev.
func (ix *Index) roll(prev Header) (*file, error) {
	f, err := ix.create(max(nameOf(ix.c.Now()), ix.minName), prev)
	if err != nil {
		return nil, err
	}
	ix.minName = nameAfter(f.name)
	ix.mu.Lock()
	defer ix.mu.Unlock()
	files := append(make([]*file, 0, len(ix.list())+1), ix.list()...)
	files = append(files, f)
	ix.files.Store(&files)
	return f, nil
}

// writeHeader brings the header's bytes up to date. They are for other readers of the file:
// this package keeps the last file's header in memory and in the point.
func (ix *Index) writeHeader(f *file) (err error) {
	defer func() {
		if err != nil {
			err = ix.fail(fmt.Errorf("write %s: %w", f.path, err))
		}
	}()
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	putHeader(f.table.b, f.header)
	return nil
}

// Commit says that all records below to were put, and makes them found. For the writer; a Mark
// taken afterwards covers them. mappedfile.ErrNoSpace: as for Put.
func (ix *Index) Commit(to int64) error {
	if err := ix.usable(); err != nil {
		return err
	}
	if to < ix.next.phyOffset {
		return fmt.Errorf("keyindex: commit up to physical offset %d, a record at %d was put", to, ix.next.phyOffset)
	}
	if err := ix.enter(); err != nil {
		return err
	}
	if to > ix.next.phyOffset {
		ix.next = position{to, 0}
	}
	ix.mu.Lock()
	defer ix.mu.Unlock()
	ix.mark = Mark{generation: ix.generation, next: ix.next, files: ix.list()}
	if n := len(ix.mark.files); n > 0 {
		ix.mark.header = ix.mark.files[n-1].header
	}
	return nil
}

// Last is the newest entry's store time, ms, and physical offset; 0 without entries.
func (ix *Index) Last() (storeTime, phyOffset int64) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	if files := ix.list(); len(files) > 0 {
		h := files[len(files)-1].header
		return h.EndTimestamp, h.EndPhyOffset
	}
	return 0, 0
}

// Stats of an index.
type Stats struct {
	Files   int
	Entries int64
	Bytes   int64 // in use, of the files' sizes
}

// Stats returns a snapshot.
func (ix *Index) Stats() Stats {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	var st Stats
	for _, f := range ix.list() {
		st.Files++
		st.Entries += int64(f.header.Count) - 1
		st.Bytes += FileSize(ix.c.Slots, int(f.header.Count))
	}
	return st
}

// Close unmaps the files once their readers are done. It doesn't flush. Not beside the writer; a
// second call does nothing.
func (ix *Index) Close() error {
	ix.flushMu.Lock()
	defer ix.flushMu.Unlock()
	if ix.closed.Swap(true) {
		return nil
	}
	var errs []error
	files := ix.list()
	if n := len(files); n > 0 && ix.failure.Load() == nil {
		errs = append(errs, ix.writeHeader(files[n-1]))
	}
	ix.mu.Lock()
	ix.files.Store(&[]*file{})
	ix.mu.Unlock()
	for _, f := range files {
		f.release()
	}
	return errors.Join(errs...)
}
