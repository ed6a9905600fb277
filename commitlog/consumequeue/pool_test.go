package consumequeue

import (
	"math/rand/v2"
	"sync"
	"testing"
)

// TestReadersAndFlush beside the writer, for the race detector; every unit seen is whole.
func TestReadersAndFlush(t *testing.T) {
	w := newWorld(t)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				for i := range int32(4) {
					q := w.set.Queue([]byte("A"), i)
					if q == nil || q.Max() == 0 {
						continue
					}
					for _, n := range []int64{0, q.Max() / 2, q.Max() - 1} {
						if u, err := q.At(n); err != nil || u.TagsCode != n<<8|int64(i) {
							t.Errorf("A/%d %d: %+v %v", i, n, u, err)
							return
						}
					}
				}
				w.set.Range(func(q *Queue) bool { return q.Max() > 0 })
			}
		})
	}
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				if err := w.set.Flush(); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	for i := range 6000 {
		id := int32(i % 4)
		w.add("A", id, int64(i/4)<<8|int64(id))
		if i%31 == 0 {
			w.write()
		}
	}
	w.write()
	close(stop)
	wg.Wait()
	w.check()
}

// TestPool: with few open files everything is as with many, while readers, the writer and
// flushes open and close queues under each other.
func TestPool(t *testing.T) {
	w := newWorld(t)
	w.set.Close()
	reopen := func(p Point) {
		t.Helper()
		c := testConfig(w.dir)
		c.MaxOpenFiles = 4
		s, err := Open(c, p, 0)
		if err != nil {
			t.Fatal(err)
		}
		w.set, w.batch = s, s.NewBatch()
	}
	reopen(Point{})
	const queues = 30
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for reader := range 2 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(reader), 9))
			for {
				select {
				case <-stop:
					return
				default:
				}
				id := rnd.Int32N(queues)
				q := w.set.QueueOf("A", id)
				if q == nil {
					continue
				}
				n := rnd.Int64N(q.Max())
				v, err := q.View(n, 1)
				if err != nil {
					t.Error(err)
					return
				}
				if got := v.Units.At(0).TagsCode; got != n<<8|int64(id) {
					t.Errorf("A/%d %d: %d", id, n, got)
				}
				v.Release()
			}
		})
	}
	for i := range 4000 {
		id := int32(i % queues)
		w.add("A", id, int64(i/queues)<<8|int64(id))
		if i%400 == 0 {
			w.write()
		}
		if i%1500 == 1499 {
			if err := w.set.Flush(); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.write()
	close(stop)
	wg.Wait()
	w.check()
	point := w.set.Point(w.phy)
	if err := w.set.Flush(); err != nil {
		t.Fatal(err)
	}
	w.check() // every queue once: now nothing keeps the others open
	if n := w.set.pool.files; n > 4+4 {
		t.Errorf("%d files are open", n)
	}
	w.set.Close()
	reopen(point)
	w.check()
}

// TestManyNewQueues: more than the limit in one batch, none of them flushed.
func TestManyNewQueues(t *testing.T) {
	w := newWorld(t)
	w.set.Close()
	c := testConfig(w.dir)
	c.MaxOpenFiles = 8
	s, err := Open(c, Point{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	w.set, w.batch = s, s.NewBatch()
	for i := range int32(200) {
		w.add("A", i, int64(i))
	}
	w.write()
	if n := w.set.pool.files; n > 8+8/4 {
		t.Errorf("%d files are open", n)
	}
	w.check()
}
