package store

import (
	"sync"
	"sync/atomic"
)

type queueKey struct {
	topic string
	id    int32
}

// tail is what the FSM's side knows of a queue before dispatch has built its units. It makes
// the max offset that readers see keep up with acknowledgements: an acknowledged message is
// published, and what is published is counted here.
type tail struct {
	// first is where the queue begins when it has no units at all: its first append, or the
	// next offset of a queue whose messages are all gone.
	first     atomic.Int64
	published atomic.Int64 // next queue offset as of the last Publish
	// The FSM goroutine's own.
	appended int64
	listed   bool
}

// tails is one tail a queue. The FSM goroutine writes, and reads the map unlocked.
type tails struct {
	mu      sync.RWMutex
	byQueue map[queueKey]*tail
	changed []*tail // appended since the last publish
}

func newTails() *tails { return &tails{byQueue: map[queueKey]*tail{}} }

// find is for readers.
func (t *tails) find(topic []byte, id int32) *tail {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byQueue[queueKey{string(topic), id}]
}

// findOf is find for a string.
func (t *tails) findOf(topic string, id int32) *tail {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.byQueue[queueKey{topic, id}]
}

// append notes n records from queue offset first on. Of what a replay brings again the units are there, or
// gone for good.
func (t *tails) append(topic []byte, id int32, first int64, n int, replayed bool) {
	x := t.byQueue[queueKey{string(topic), id}]
	if x == nil {
		x = &tail{}
		x.first.Store(first)
		t.mu.Lock()
		t.byQueue[queueKey{string(topic), id}] = x
		t.mu.Unlock()
	}
	x.appended = first + int64(n)
	if replayed && x.appended > x.first.Load() {
		x.first.Store(x.appended)
	}
	if !x.listed {
		x.listed = true
		t.changed = append(t.changed, x)
	}
}

func (t *tails) publish() {
	for i, x := range t.changed {
		x.listed = false
		// During replay appended may be below what is there.
		if x.appended > x.published.Load() {
			x.published.Store(x.appended)
		}
		t.changed[i] = nil
	}
	t.changed = t.changed[:0]
}

// restore takes a snapshot's next offsets.
func (t *tails) restore(offsets []QueueOffset) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range offsets {
		k := queueKey{q.Topic, q.QueueID}
		x := t.byQueue[k]
		if x == nil {
			x = &tail{}
			x.first.Store(q.Next)
			t.byQueue[k] = x
		}
		if q.Next > x.published.Load() {
			x.published.Store(q.Next)
		}
	}
}

// clear forgets everything: the log was replaced.
func (t *tails) clear() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.byQueue = map[queueKey]*tail{}
	t.changed = t.changed[:0]
}
