package keyindex

import (
	"fmt"

	"raftmq/commitlog/mappedfile"
)

// verifyStep is how many bytes are looked at between two calls of pace.
const verifyStep = 1 << 20

// Verify reads all that is durable and compares it with its checksums; of full files also counts, order, chains and slots. pace is called with the bytes that were
// looked at since, and waits; its error ends the work. ErrDamaged: as for Find, see Repair.
func (ix *Index) Verify(pace func(bytes int64) error) error {
	if ix.closed.Load() {
		return ErrClosed
	}
	for _, f := range ix.list() {
		if !f.acquire() {
			continue // old, and removed just now
		}
		err := ix.verify(f, pace)
		f.release()
		if err != nil {
			return ix.findFailed(f, err)
		}
	}
	return nil
}

func (ix *Index) verify(f *file, pace func(bytes int64) error) error {
	ix.flushMu.Lock()
	summed, want, whole := f.summed, f.sum, f.whole
	ix.flushMu.Unlock()
	var sum uint32
	const most = verifyStep / entrySize
	for from := int32(1); from < summed; from += most {
		to := min(from+most, summed)
		err := guarded(func() error { sum = f.table.sum(sum, from, to); return nil })
		if err == nil {
			err = pace(int64(to-from) * entrySize)
		}
		if err != nil {
			return err
		}
	}
	if sum != want {
		return fmt.Errorf("%w: checksum of %d entries is %#x, expected %#x", ErrDamaged, summed-1, sum, want)
	}
	if !whole {
		return nil // its slots are made again at the next Open
	}
	if err := guarded(f.table.Check); err != nil {
		return err
	}
	return pace(ix.fileSize())
}

func guarded(f func() error) (err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	return f()
}
