package jepsen

import (
	"context"
	"sync"
	"time"

	"raftmq/jepsen/cluster"
	"raftmq/jepsen/history"
)

const (
	// watchEvery is how often each node is asked whether it takes writes.
	watchEvery = 50 * time.Millisecond
	// watchFresh is how long an answer counts. Together they bound the error of Leaderless.
	watchFresh = 400 * time.Millisecond
)

// Leaderless is the time during which no node that can be asked took writes.
type Leaderless struct {
	Total, Longest time.Duration
	Changes        int // of leader
}

// LeaderWatch asks all nodes again and again who takes writes.
type LeaderWatch struct {
	cancel context.CancelFunc
	wg     sync.WaitGroup
	rec    *history.Recorder // nil: nobody is told

	mu struct {
		sync.Mutex
		nodes  []sighting
		leader string
		told   map[string]uint64 // terms in which a node was seen to take writes
		lost   time.Time         // since when nobody takes writes; zero while somebody does
		result Leaderless
	}
}

// sighting is a node's last answer.
type sighting struct {
	ready bool
	term  uint64
	asked time.Time
}

// WatchLeader starts watching; the cluster has a leader now. Each node that takes writes in a term is told to rec, if that is not nil.
func WatchLeader(c *cluster.Cluster, rec *history.Recorder) *LeaderWatch {
	ctx, cancel := context.WithCancel(context.Background())
	w := &LeaderWatch{cancel: cancel, rec: rec}
	w.mu.told = map[string]uint64{}
	w.mu.nodes = make([]sighting, len(c.Nodes()))
	for i, n := range c.Nodes() {
		// Until the first answer the node counts as ready, so that starting is no loss.
		w.mu.nodes[i] = sighting{ready: true, asked: time.Now()}
		w.wg.Go(func() { w.ask(ctx, i, n) })
	}
	w.wg.Go(func() { w.judge(ctx, c) })
	return w
}

// Stop ends the watch and says what it saw.
func (w *LeaderWatch) Stop() Leaderless {
	w.cancel()
	w.wg.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.foundLocked(time.Now())
	return w.mu.result
}

// ask keeps one node's sighting up to date. A paused node holds up nobody else's.
func (w *LeaderWatch) ask(ctx context.Context, i int, n *cluster.Node) {
	for tick := time.NewTicker(watchEvery); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
		}
		s := sighting{asked: time.Now()}
		if n.Running() {
			actx, cancel := context.WithTimeout(ctx, watchFresh)
			if st, err := n.Status(actx); err == nil {
				s.ready, s.term = st.Ready, st.Term
			}
			cancel()
		}
		w.mu.Lock()
		w.mu.nodes[i] = s
		if w.rec != nil && s.ready && w.mu.told[n.ID] < s.term {
			w.mu.told[n.ID] = s.term
			w.rec.Add(history.Op{Kind: history.Leader, Process: "harness", Outcome: history.OK, Node: n.ID, Term: s.term, Queue: -1, Offset: -1})
		}
		w.mu.Unlock()
	}
}

// judge decides at each tick whether somebody takes writes.
func (w *LeaderWatch) judge(ctx context.Context, c *cluster.Cluster) {
	for tick := time.NewTicker(watchEvery / 2); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return
		case <-tick.C:
			w.look(time.Now(), c)
		}
	}
}

func (w *LeaderWatch) look(now time.Time, c *cluster.Cluster) {
	w.mu.Lock()
	defer w.mu.Unlock()
	leader, term := "", uint64(0)
	for i, s := range w.mu.nodes {
		if s.ready && s.term >= term && now.Sub(s.asked) <= watchFresh {
			leader, term = c.Nodes()[i].ID, s.term
		}
	}
	switch {
	case leader == "" && w.mu.lost.IsZero():
		w.mu.lost = now
	case leader != "" && term > 0:
		w.foundLocked(now)
		if w.mu.leader != "" && w.mu.leader != leader {
			w.mu.result.Changes++
		}
		w.mu.leader = leader
	}
}

// foundLocked ends a time without a leader.
func (w *LeaderWatch) foundLocked(now time.Time) {
	if w.mu.lost.IsZero() {
		return
	}
	d := now.Sub(w.mu.lost)
	w.mu.lost = time.Time{}
	w.mu.result.Total += d
	w.mu.result.Longest = max(w.mu.result.Longest, d)
}
