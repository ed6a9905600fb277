package transport

import (
	"sync"

	"raftmq/transport/remoting"
)

// job is a request for a pooled handler, which owns cmd.
type job struct {
	handle Handler
	answer Responder
	cmd    *remoting.Command
}

// workers is a bounded pool: a fixed number of goroutines and a queue that refuses when it is full.
type workers struct {
	queue chan job
	wg    sync.WaitGroup
}

func (w *workers) init(queue int) { w.queue = make(chan job, queue) }

func (w *workers) start(n int, run func(job)) {
	for range n {
		w.wg.Go(func() {
			for j := range w.queue {
				run(j)
			}
		})
	}
}

// submit reports false when the queue is full.
func (w *workers) submit(j job) bool {
	select {
	case w.queue <- j:
		return true
	default:
		return false
	}
}

// stop ends the pool once the queue is empty; nobody may submit any more.
func (w *workers) stop() {
	close(w.queue)
	w.wg.Wait()
}
