package consumequeue

import "fmt"

// Batch gathers the units of a stretch of log and writes them queue by queue, each run with
// one write, whatever the order of the queues in the log. It is reused without allocation.
// One goroutine, the only writer of its set.
type Batch struct {
	set     *Set
	entries []entry
	runs    []run // one a queue, in order of first appearance
	units   []byte
	written bool // Write was called
	done    int  // runs that are written
}

type entry struct {
	slot int // index of its run
	unit Unit
}

type run struct {
	queue *Queue
	first int64 // queue offset
	count int
	at    int // first byte in units; during Add unused
}

// NewBatch returns the writer of s.
func (s *Set) NewBatch() *Batch { return &Batch{set: s} }

// Len is the number of units that Write will write.
func (b *Batch) Len() int {
	if b.written {
		return 0
	}
	return len(b.entries)
}

// Add takes the unit of queue offset n. A queue's units come in order: ErrOrder when n is
// behind the queue's end, unless the queue is new and begins there; below the end it is a
// rewrite of the same unit. ErrTopic, ErrQueueID when there can be no such queue.
func (b *Batch) Add(topic []byte, queueID int32, n int64, u Unit) error {
	if b.written {
		b.reset()
	}
	q, err := b.queue(topic, queueID)
	if err != nil {
		return err
	}
	if q.slot < 0 {
		if max := q.max.Load(); n < 0 || n > max && max != 0 || n < q.min.Load() {
			return fmt.Errorf("%w: %s/%d got %d, has [%d, %d)", ErrOrder, topic, queueID, n, q.min.Load(), max)
		}
		q.slot = len(b.runs)
		b.runs = append(b.runs, run{queue: q, first: n})
	}
	r := &b.runs[q.slot]
	if want := r.first + int64(r.count); n != want {
		return fmt.Errorf("%w: %s/%d got %d, expected %d", ErrOrder, topic, queueID, n, want)
	}
	r.count++
	b.entries = append(b.entries, entry{slot: q.slot, unit: u})
	return nil
}

// queue finds or makes the queue. Only this goroutine changes the map, so it reads it unlocked.
func (b *Batch) queue(topic []byte, queueID int32) (*Queue, error) {
	// Neighbours in the log are often neighbours in their queue.
	if n := len(b.entries); n > 0 {
		if q := b.runs[b.entries[n-1].slot].queue; q.id == queueID && q.topic == string(topic) {
			return q, nil
		}
	}
	if q := b.set.queues[key{string(topic), queueID}]; q != nil {
		return q, nil
	}
	return b.set.create(topic, queueID)
}

// Write stores all units and makes them readable. On a full disk (mappedfile.ErrNoSpace, ENOSPC) it may be called
// again, any number of times, and so it may when Mend has made files of Failing again; after another error the batch is useless and so is the set: the store stops.
func (b *Batch) Write() error {
	if !b.written {
		b.written = true
		b.sort()
	}
	for ; b.done < len(b.runs); b.done++ {
		r := &b.runs[b.done]
		if r.queue.files.Load() == nil && b.set.pool.full() {
			if err := b.set.Flush(); err != nil {
				return err
			}
		}
		n, err := r.queue.write(b.set, b.unitsOf(r), r.first)
		if err != nil {
			return err
		}
		r.queue.slot = -1
		b.set.total.Add(n)
	}
	return nil
}

// sort puts the units into the order of their queues.
func (b *Batch) sort() {
	at := 0
	for i := range b.runs {
		r := &b.runs[i]
		r.at = at
		at += r.count * UnitSize
	}
	if cap(b.units) < at {
		b.units = make([]byte, at+at/4)
	}
	b.units = b.units[:at]
	for i := range b.entries {
		r := &b.runs[b.entries[i].slot]
		putUnit(b.units[r.at:], b.entries[i].unit)
		r.at += UnitSize
	}
	for i := range b.runs {
		r := &b.runs[i]
		r.at -= r.count * UnitSize
	}
}

func (b *Batch) unitsOf(r *run) Units {
	return Units(b.units[r.at : r.at+r.count*UnitSize])
}

// Range calls f for what the last Write made readable, queue by queue in order of first
// appearance, and in a queue once for each stretch of equal tags codes: next is the queue
// offset after it. topic must not be changed or kept. Until the next Add.
func (b *Batch) Range(f func(topic []byte, queueID int32, next, tagsCode int64)) {
	if !b.written {
		return
	}
	for i := range b.runs {
		r := &b.runs[i]
		units := b.unitsOf(r)
		for k, n := 0, units.Len(); k < n; k++ {
			tagsCode := units.At(k).TagsCode
			if k+1 < n && units.At(k+1).TagsCode == tagsCode {
				continue
			}
			f(r.queue.name, r.queue.id, r.first+int64(k)+1, tagsCode)
		}
	}
}

func (b *Batch) reset() {
	clear(b.runs)
	b.runs, b.entries, b.written, b.done = b.runs[:0], b.entries[:0], false, 0
}
