package e2e

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"raftmq/jepsen/cluster"
	"raftmq/transport/remoting"
)

// call is one send or pull of a stock client, retries of the client's own included.
type call struct {
	begin, end time.Time
	err        error
}

// calls are those of one kind. They are begun at a steady pace, each beside those that have not ended: one that hangs does not keep
// the next from being tried, as in an application of many threads.
type calls struct {
	mu   sync.Mutex
	list []call
}

const callPace = 10 * time.Millisecond

func (c *calls) add(begin time.Time, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.list = append(c.list, call{begin, time.Now(), err})
}

func (c *calls) ended() []call {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.list)
}

// run begins calls until ctx ends; wg knows those under way.
func (c *calls) run(ctx context.Context, wg *sync.WaitGroup, do func() error) {
	tick := time.NewTicker(callPace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			wg.Go(func() {
				begin := time.Now()
				err := do()
				if ctx.Err() == nil {
					c.add(begin, err)
				}
			})
		}
	}
}

// gap is what a change of leader was to one kind of calls.
type gap struct {
	after   time.Duration // from the change to the first success of a call that was begun after it; negative: none yet
	longest time.Duration // the longest time without any success
	hanging int           // calls that were under way at the change
	hung    time.Duration // what the slowest of those still took
	slowest time.Duration // what the slowest call that was begun after the change took
	failed  int           // calls that failed after the change
	failure string        // the first one's error
}

func (g gap) String() string {
	s := fmt.Sprintf("begun after it: first %5.2f s, slowest %5.2f s; under way: %d, slowest %5.2f s; without a success: %5.2f s; failed: %d",
		g.after.Seconds(), g.slowest.Seconds(), g.hanging, g.hung.Seconds(), g.longest.Seconds(), g.failed)
	if g.failure != "" {
		s += " (" + g.failure + ")"
	}
	return s
}

func (c *calls) gap(change time.Time) gap {
	g := gap{after: -1}
	list := c.ended()
	slices.SortFunc(list, func(a, b call) int { return a.end.Compare(b.end) })
	var last time.Time
	for _, o := range list {
		isAfter := o.begin.After(change)
		if o.end.After(change) {
			if isAfter {
				g.slowest = max(g.slowest, o.end.Sub(o.begin))
			} else {
				g.hanging++
				g.hung = max(g.hung, o.end.Sub(change))
			}
			if o.err != nil {
				g.failed++
				g.failure = cmp.Or(g.failure, o.err.Error())
			}
		}
		if o.err != nil {
			continue
		}
		if o.end.After(change) && !last.IsZero() {
			g.longest = max(g.longest, o.end.Sub(last))
		}
		if isAfter && g.after < 0 {
			g.after = o.end.Sub(change)
		}
		last = o.end
	}
	return g
}

// succeeded tells whether a call that was begun after t has.
func (c *calls) succeeded(t time.Time) bool {
	return slices.ContainsFunc(c.ended(), func(o call) bool { return o.err == nil && o.begin.After(t) })
}

// failure is a call that was begun after t and failed.
func (c *calls) failure(t time.Time) (call, bool) {
	list := c.ended()
	i := slices.IndexFunc(list, func(o call) bool { return o.err != nil && o.begin.After(t) })
	if i < 0 {
		return call{}, false
	}
	return list[i], true
}

// gapLoad is stock Go clients at work: each kind of producer and consumer.
type gapLoad struct {
	kinds map[string]*calls
	stop  func()

	mu     sync.Mutex
	pushed map[int]time.Time // by queue: when the newest message that the push consumer got was sent
	queues int
}

// gapKinds are in the order in which they are printed. A call of push is a message, from its birth to its consumption.
var gapKinds = [...]string{"sync", "async", "push", "pull"}

// startGapLoad starts them, with the client's own settings (a send waits 3 s and a synchronous one is tried three times), and returns
// when all succeed.
func startGapLoad(t *testing.T, c *cluster.Cluster, topic string) *gapLoad {
	t.Helper()
	l := &gapLoad{kinds: map[string]*calls{}, pushed: map[int]time.Time{}}
	for _, k := range gapKinds {
		l.kinds[k] = &calls{}
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	l.stop = func() {
		cancel()
		wg.Wait()
	}
	p := newProducer(t, c, producer.WithRetry(stockRetries))
	names := primitive.NewPassthroughResolver(c.ClientAddrs())
	startPush(t, names, "push-"+topic, "push-"+topic, topic, consumer.MessageSelector{}, l.push)
	pull, err := rocketmq.NewPullConsumer(consumer.WithNsResolver(names), consumer.WithGroupName("pull-"+topic), consumer.WithInstance("pull-"+topic))
	if err != nil {
		t.Fatal(err)
	}
	if err := pull.Subscribe(topic, consumer.MessageSelector{}); err != nil {
		t.Fatal(err)
	}
	if err := pull.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pull.Shutdown() })
	t.Cleanup(l.stop)
	wg.Go(func() {
		l.kinds["sync"].run(ctx, &wg, func() error {
			r, err := p.SendSync(ctx, primitive.NewMessage(topic, []byte("sync")))
			return sendOK(r, err)
		})
	})
	wg.Go(func() {
		l.kinds["async"].run(ctx, &wg, func() error {
			done := make(chan error, 2) // the client may call back twice
			if err := p.SendAsync(ctx, func(_ context.Context, r *primitive.SendResult, err error) { done <- sendOK(r, err) },
				primitive.NewMessage(topic, []byte("async"))); err != nil {
				return err
			}
			return <-done
		})
	})
	queues, err := pull.GetTopicRouteInfo(topic)
	if err != nil {
		t.Fatal(err)
	}
	l.queues = len(queues)
	eventually(t, time.Minute, "a message in each queue", func() bool { return l.going("push", time.Time{}) })
	queue := queues[slices.IndexFunc(queues, func(q *primitive.MessageQueue) bool { return q.QueueId == 0 })]
	wg.Go(func() {
		l.kinds["pull"].run(ctx, &wg, func() error {
			r, err := pull.PullFrom(ctx, queue, 0, 1)
			if err == nil && r.Status != primitive.PullFound {
				err = fmt.Errorf("pull status %d", r.Status)
			}
			return err
		})
	})
	l.settle(t)
	begin := time.Now()
	eventually(t, time.Minute, "a second of success", func() bool { return l.allGo(begin.Add(time.Second)) })
	return l
}

func sendOK(r *primitive.SendResult, err error) error {
	if err == nil && r.Status != primitive.SendOK {
		err = fmt.Errorf("send status %d", r.Status)
	}
	return err
}

func (l *gapLoad) push(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range messages {
		born := time.UnixMilli(m.BornTimestamp)
		l.kinds["push"].add(born, nil)
		if born.After(l.pushed[m.Queue.QueueId]) {
			l.pushed[m.Queue.QueueId] = born
		}
	}
	return consumer.ConsumeSuccess, nil
}

// going tells whether a call of the kind that was begun after t has succeeded; push must have got one from every queue.
func (l *gapLoad) going(kind string, t time.Time) bool {
	if kind != "push" {
		return l.kinds[kind].succeeded(t)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	going := 0
	for _, born := range l.pushed {
		if born.After(t) {
			going++
		}
	}
	return going == l.queues
}

func (l *gapLoad) allGo(since time.Time) bool {
	for _, k := range gapKinds {
		if !l.going(k, since) {
			return false
		}
	}
	return true
}

// lastMoments is how long a leader is stopped before it is killed, so that there are calls under way when it is.
const lastMoments = 50 * time.Millisecond

// leave takes leadership from the leader: "kill", "transfer" or "drain". It returns when that was (the killed leader's last moment), how
// long it took from there until another node took writes, and the node that led.
func leave(t *testing.T, c *cluster.Cluster, how string) (change time.Time, took time.Duration, old *cluster.Node) {
	t.Helper()
	old = leaderOf(t, c)
	change = time.Now()
	var err error
	switch how {
	case "kill":
		if err = old.Pause(); err == nil {
			time.Sleep(lastMoments)
			err = old.Kill()
			change = time.Now()
		}
	case "transfer":
		err = old.Admin(withTimeout(t, 20*time.Second), remoting.RequestTransferLeadership, remoting.TransferRequest{}, nil)
	case "drain":
		err = old.Admin(withTimeout(t, 20*time.Second), remoting.RequestDrain, remoting.DrainRequest{}, nil)
	default:
		t.Fatalf("no way to leave named %q", how)
	}
	if err != nil {
		t.Fatalf("%s of %s: %v", how, old.ID, err)
	}
	eventually(t, time.Minute, "another leader", func() bool {
		next, err := c.Leader(withTimeout(t, time.Second))
		return err == nil && next != old
	})
	return change, time.Since(change), old
}

// settle waits until calls that are begun now succeed and every queue has its consumer: after a change of leader at the latest when
// a pull on a dead connection ends in the Go client, after 30 s, and the client has asked for routes.
func (l *gapLoad) settle(t *testing.T) {
	t.Helper()
	now := time.Now()
	eventually(t, 90*time.Second, "everybody goes on", func() bool { return l.allGo(now) })
}

// table is a line for each kind.
func (l *gapLoad) table(change time.Time) string {
	var b strings.Builder
	for _, k := range gapKinds {
		fmt.Fprintf(&b, "\n  %-5s %s", k, l.kinds[k].gap(change))
	}
	return b.String()
}
