package e2e

import (
	"cmp"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

// turns lets parallel tests run, some at a time, those that take longest first, so that none of them is left over in the end. Go's own order is that of
// the source.
type turns struct {
	most    int // free in the beginning
	mu      sync.Mutex
	free    int     // guarded by mu
	waiting []*turn // guarded by mu
}

type turn struct {
	seconds, weight int
	begin           chan struct{}
}

// defaultTurns is how many tests run at once unless -parallel says otherwise: they mostly wait for timers of clients and servers. There is one disk, however
// many processors there are.
func defaultTurns() int { return min(max(6, runtime.GOMAXPROCS(0)), 8) }

// gathering is how long tests that are let go at the same time may take to come here.
const gathering = 50 * time.Millisecond

func (q *turns) take(seconds, weight int) (give func()) {
	q.mu.Lock()
	weight = min(weight, q.most)
	w := &turn{seconds, weight, make(chan struct{})}
	q.waiting = append(q.waiting, w)
	slices.SortStableFunc(q.waiting, func(a, b *turn) int { return cmp.Compare(b.seconds, a.seconds) })
	q.mu.Unlock()
	time.AfterFunc(gathering, func() { q.give(0) })
	<-w.begin
	return func() { q.give(weight) }
}

func (q *turns) give(weight int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for q.free += weight; len(q.waiting) > 0 && q.waiting[0].weight <= q.free; q.waiting = q.waiting[1:] {
		q.free -= q.waiting[0].weight
		close(q.waiting[0].begin)
	}
}

// allTurns is set by TestMain.
var allTurns turns

// parallel lets a test, or a subtest, run beside others: one that mostly waits, and for about so many seconds. What it starts it must start later. A test whose
// subtests do this calls t.Parallel instead.
func parallel(t *testing.T, seconds int) {
	t.Helper()
	parallelHeavy(t, seconds, 1)
}

// diskWeight is that of a test whose nodes' disks are this process.
const diskWeight = 2

// parallelHeavy is parallel for a test that is as busy as several of those.
func parallelHeavy(t *testing.T, seconds, weight int) {
	t.Helper()
	t.Parallel()
	give := allTurns.take(seconds, weight)
	began := time.Now()
	t.Cleanup(func() { // the last one of all: nodes have ended, folders are gone
		give()
		t.Logf("ran for %.1f s", time.Since(began).Seconds())
	})
}

func TestTurns(t *testing.T) {
	q := turns{most: 2, free: 2}
	var mu sync.Mutex
	var order []int
	first := q.take(1, 2) // all of it, so that the others wait for each other
	var wg sync.WaitGroup
	for _, seconds := range []int{10, 30, 20} {
		wg.Go(func() {
			give := q.take(seconds, 2)
			mu.Lock()
			order = append(order, seconds)
			mu.Unlock()
			give()
		})
	}
	eventually(t, 30*time.Second, "three wait", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.waiting) == 3
	})
	first()
	wg.Wait()
	if !slices.Equal(order, []int{30, 20, 10}) || q.free != 2 {
		t.Errorf("order %v, %d free", order, q.free)
	}
}
