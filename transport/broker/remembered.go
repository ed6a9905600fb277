package broker

import (
	"maps"
	"sync"
	"time"
)

// remembered keeps for a while what other nodes have told of each group: their addresses, or ids of clients. Whoever asks while they are
// being asked waits for their answer.
type remembered struct {
	mu     sync.Mutex
	groups map[string]*recollection
}

type recollection struct {
	done  chan struct{} // closed when the rest is there
	names []string
	until time.Time
}

func (r *recollection) over(now time.Time) bool {
	select {
	case <-r.done:
		return !now.Before(r.until)
	default:
		return false
	}
}

// get returns what is remembered of a group, and that it was, or what ask finds out, which is kept from now on for as long as ask says.
func (r *remembered) get(group string, now time.Time, ask func() (names []string, keep time.Duration)) (names []string, known bool) {
	r.mu.Lock()
	old := r.groups[group]
	if old != nil && !old.over(now) {
		r.mu.Unlock()
		<-old.done
		return old.names, true
	}
	maps.DeleteFunc(r.groups, func(_ string, old *recollection) bool { return old.over(now) })
	if r.groups == nil {
		r.groups = map[string]*recollection{}
	}
	found := &recollection{done: make(chan struct{})}
	r.groups[group] = found
	r.mu.Unlock()
	defer close(found.done)
	names, keep := ask()
	found.names, found.until = names, now.Add(keep)
	return names, false
}

// forget: what is remembered of a group is not so.
func (r *remembered) forget(group string) {
	r.mu.Lock()
	delete(r.groups, group)
	r.mu.Unlock()
}
