package keyindex

import (
	"context"
	"errors"
	"fmt"

	"raftmq/commitlog/mappedfile"
)

// stepsAtOnce is how many entries are looked at between two looks at the context.
const stepsAtOnce = 4096

// Find calls yield with the physical offset of each record that may have the key in the topic
// and a store time within [begin, end], ms, the newest first, until it returns false. It is
// for yield to compare topic and key (F41), and the time if it matters: entries keep seconds,
// so the record may be up to 999 ms outside. A record is not named twice. yield must not call
// the index. ErrDamaged: what was yielded so far is all there can be had; see Repair.
func (ix *Index) Find(ctx context.Context, topic, key string, begin, end int64, yield func(phyOffset int64) bool) error {
	if ix.closed.Load() {
		return ErrClosed
	}
	q := query{ctx, keyHash(javaHash(0, topic), key), begin, end, yield, -1}
	files := ix.list()
	for i := len(files) - 1; i >= 0; i-- {
		f := files[i]
		if !f.acquire() {
			if ix.closed.Load() {
				return ErrClosed
			}
			continue // old, and removed just now
		}
		more, err := q.file(ix, f)
		f.release()
		if err != nil {
			return ix.findFailed(f, err)
		}
		if !more {
			return nil
		}
	}
	return nil
}

// findFailed names the file, and notes it for Repair when it is damaged.
func (ix *Index) findFailed(f *file, err error) error {
	if errors.Is(err, ErrDamaged) {
		for {
			old := ix.damaged.Load()
			if old != nil && old.name <= f.name || ix.damaged.CompareAndSwap(old, f) {
				break
			}
		}
	}
	return fmt.Errorf("keyindex: %s: %w", f.path, err)
}

type query struct {
	ctx        context.Context
	hash       int32
	begin, end int64
	yield      func(int64) bool
	last       int64 // the offset yielded before
}

// file yields what one file has. more is false when older ones need not be looked at.
func (q *query) file(ix *Index, f *file) (more bool, err error) {
	defer mappedfile.CatchFault(mappedfile.ArmFault(), &err)
	h, slot := ix.look(f, q.hash)
	if h.Count <= 1 {
		return true, nil
	}
	if q.begin > h.EndTimestamp {
		return false, nil
	}
	if q.end >= h.BeginTimestamp {
		c, err := f.table.chain(h, q.hash, slot, q.begin)
		for err == nil {
			var phyOffset, storeTime int64
			var ok bool
			phyOffset, storeTime, ok, err = c.next(stepsAtOnce)
			switch {
			case err != nil:
			case !ok && c.at == 0:
				return h.BeginTimestamp >= q.begin, nil
			case !ok:
				err = q.ctx.Err()
			case storeTime <= q.end && phyOffset != q.last:
				// A record that has a key twice has its entries next to each other.
				q.last = phyOffset
				if !q.yield(phyOffset) {
					return false, nil
				}
			}
		}
		return false, err
	}
	return h.BeginTimestamp >= q.begin, nil
}

// look reads the header and the slot as of one moment.
func (ix *Index) look(f *file, hash int32) (Header, int32) {
	ix.mu.Lock()
	defer ix.mu.Unlock()
	return f.header, f.table.Slot(f.table.slotOf(hash))
}
