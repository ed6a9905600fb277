package workload

import (
	"context"
	"time"

	"raftmq/jepsen/history"
)

const (
	retryPrefix = "%RETRY%"
	deadPrefix  = "%DLQ%"
	// retryTries is how often a message is sent back before it becomes a dead letter.
	retryTries = 3
)

// verdict of the retry workload's consumers on a delivery.
func (w *Queue) verdict(d Delivery) history.Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch wish := w.mu.wish[d.Value]; {
	case wish == history.WishDead, wish == history.WishRetry && d.Tries == 0:
		return history.Fail
	}
	return history.OK
}

// awaitDead waits until every message that is to be a dead letter is one: it was sent back for the last time before, by a client that
// does not tell when the broker has answered. The end of ctx is no error.
func (w *Queue) awaitDead(ctx context.Context) {
	for {
		missing := map[string]bool{}
		w.mu.Lock()
		for value := range w.mu.acked {
			if w.mu.wish[value] == history.WishDead {
				missing[value] = true
			}
		}
		w.mu.Unlock()
		leader, err := w.cluster.Leader(ctx)
		if err != nil {
			return
		}
		c, err := leader.Dial(ctx)
		if err == nil {
			_, _ = ReadQueue(ctx, c, "jepsen-dead", deadPrefix+w.groups[0], 0, func(d Delivery) { delete(missing, d.Value) })
			_ = c.Close()
		}
		if err == nil && len(missing) == 0 || !sleep(ctx, 300*time.Millisecond) {
			return
		}
	}
}
