package workload

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"raftmq/jepsen/cluster"
	"raftmq/jepsen/history"
	"raftmq/transport/client"
)

// Config of a Queue workload. Zero values take the defaults in parentheses.
type Config struct {
	Topic     string  // (jepsen)
	Queues    int     // of the topic (8)
	Producers int     // (8)
	Groups    int     // consumer groups (2)
	Consumers int     // in each group (2)
	Rate      float64 // messages per second of all producers together (2000); negative: no limit
	BodySize  int     // bytes (256)
	Messages  int     // to send in all; 0 for as many as the time allows
	Client    Client  // (mixed)
	// Grace is how long a send that has begun goes on trying when the load ends (50 s: a stock client
	// may need 30 to hear of a new leader).
	Grace time.Duration
}

func (c *Config) fillIn() {
	def := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	def(&c.Queues, 8)
	def(&c.Producers, 8)
	def(&c.Groups, 2)
	def(&c.Consumers, 2)
	def(&c.BodySize, 256)
	if c.Topic == "" {
		c.Topic = "jepsen"
	}
	if c.Rate == 0 {
		c.Rate = 2000
	}
	if c.Client == "" {
		c.Client = Mixed
	}
	if c.Grace == 0 {
		c.Grace = 50 * time.Second
	}
}

// Queue is the workload that all promises are checked with: producers send unique values, each
// again and again until it is acknowledged; consumers of some groups read them.
type Queue struct {
	cfg       Config
	cluster   *cluster.Cluster
	rec       *history.Recorder
	groups    []string
	consumers []Consumer
	taken     atomic.Int64 // of cfg.Messages

	mu struct {
		sync.Mutex
		acked    map[string]bool
		received map[string]map[string]bool // by group
	}
}

// NewQueue returns the workload; nothing runs yet.
func NewQueue(c *cluster.Cluster, rec *history.Recorder, cfg Config) *Queue {
	cfg.fillIn()
	w := &Queue{cfg: cfg, cluster: c, rec: rec}
	w.mu.acked = map[string]bool{}
	w.mu.received = map[string]map[string]bool{}
	for g := range cfg.Groups {
		group := fmt.Sprintf("%s-group-%d", cfg.Topic, g+1)
		w.groups = append(w.groups, group)
		w.mu.received[group] = map[string]bool{}
	}
	return w
}

// Groups are the consumer groups' names.
func (w *Queue) Groups() []string { return w.groups }

// SetUp creates the topic and starts the consumers.
func (w *Queue) SetUp(ctx context.Context) error {
	addrs := w.cluster.ClientAddrs()
	if err := CreateTopic(ctx, w.cluster.RunningAddrs(), w.cfg.Topic, w.cfg.Queues); err != nil {
		return err
	}
	for g := range w.groups {
		for i := range w.cfg.Consumers {
			c, err := w.newConsumer(addrs, g, i)
			if err != nil {
				return errors.Join(err, ctx.Err())
			}
			w.consumers = append(w.consumers, c)
		}
	}
	return nil
}

// stock tells whether the i-th of some clients is a stock one.
func (w *Queue) stock(i int) bool {
	return w.cfg.Client == Stock || w.cfg.Client == Mixed && i%2 == 0
}

func (w *Queue) newConsumer(addrs []string, g, i int) (Consumer, error) {
	group := w.groups[g]
	name := fmt.Sprintf("%s-c%d", group, i+1)
	deliver := func(d Delivery) { w.deliver(name, group, d) }
	if w.stock(g) {
		return NewStockConsumer(addrs, name, group, w.cfg.Topic, deliver)
	}
	var queues []int32
	for q := i; q < w.cfg.Queues; q += w.cfg.Consumers {
		queues = append(queues, int32(q))
	}
	return NewRawConsumer(addrs, i, group, w.cfg.Topic, queues, deliver), nil
}

func (w *Queue) deliver(process, group string, d Delivery) {
	w.rec.Add(history.Op{Kind: history.Receive, Process: process, Group: group, Outcome: history.OK,
		Value: d.Value, UniqKey: d.UniqKey, Topic: w.cfg.Topic, Queue: d.Queue, Offset: d.Offset, Node: d.Node})
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.received[group][d.Value] = true
}

// Produce sends until ctx ends or all messages are sent, then lets each producer finish the message it is at.
func (w *Queue) Produce(ctx context.Context) error {
	giveUp, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() { time.AfterFunc(w.cfg.Grace, cancel) })
	defer stop()
	senders := make([]Sender, w.cfg.Producers)
	for i := range senders {
		s, err := w.newSender(i)
		if err != nil {
			return err
		}
		defer s.Close()
		senders[i] = s
	}
	var wg sync.WaitGroup
	for i, s := range senders {
		wg.Go(func() { w.produce(ctx, giveUp, fmt.Sprintf("p%d", i+1), s) })
	}
	wg.Wait()
	return nil
}

func (w *Queue) newSender(i int) (Sender, error) {
	name := fmt.Sprintf("%s-p%d", w.cfg.Topic, i+1)
	if w.stock(i) {
		return NewStockSender(w.cluster.ClientAddrs(), name, w.cfg.Topic)
	}
	return NewRawSender(w.cluster.ClientAddrs(), name, w.cfg.Topic, int32(i%w.cfg.Queues)), nil
}

// produce sends process's messages one after the other at its share of the rate. Time lost to a
// fault is not made up for.
func (w *Queue) produce(ctx, giveUp context.Context, process string, s Sender) {
	var every time.Duration
	if w.cfg.Rate > 0 {
		every = time.Duration(float64(w.cfg.Producers) / w.cfg.Rate * float64(time.Second))
	}
	next := time.Now()
	for seq := 0; ctx.Err() == nil; seq++ {
		if w.cfg.Messages > 0 && w.taken.Add(1) > int64(w.cfg.Messages) {
			return
		}
		if now := time.Now(); next.After(now) {
			if !sleep(ctx, next.Sub(now)) {
				return
			}
		} else if now.Sub(next) > time.Second {
			next = now
		}
		next = next.Add(every)
		w.send(giveUp, process, s, NewMessage(fmt.Sprintf("%s-%d", process, seq), w.cfg.BodySize))
	}
}

// send tries until the message is acknowledged or ctx ends.
func (w *Queue) send(ctx context.Context, process string, s Sender, m *Message) {
	op := w.rec.Begin(history.Op{Kind: history.Send, Process: process, Value: m.Value, Topic: w.cfg.Topic, Queue: -1, Offset: -1})
	defer w.rec.End(op)
	refused := true
	wait := 5 * time.Millisecond
	for {
		op.Attempts++
		ack, err := s.Send(ctx, m)
		op.UniqKey = m.UniqKey
		if err == nil {
			op.Outcome, op.Queue, op.Offset, op.Node = history.OK, ack.Queue, ack.Offset, ack.Node
			w.mu.Lock()
			w.mu.acked[m.Value] = true
			w.mu.Unlock()
			return
		}
		op.Error = err.Error()
		refused = refused && errors.Is(err, ErrRefused)
		if !sleep(ctx, wait) {
			break
		}
		wait = min(2*wait, 100*time.Millisecond)
	}
	if refused {
		op.Outcome = history.Fail
	}
}

// Progress counts acknowledged messages, and those of them that every group has got.
func (w *Queue) Progress() (acked, delivered int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for value := range w.mu.acked {
		all := true
		for _, got := range w.mu.received {
			all = all && got[value]
		}
		if all {
			delivered++
		}
	}
	return len(w.mu.acked), delivered
}

// AwaitDelivered waits until every group has got all that was acknowledged. Whether it has is the
// checker's to say, so the end of ctx is no error.
func (w *Queue) AwaitDelivered(ctx context.Context) {
	for {
		if acked, delivered := w.Progress(); acked == delivered || !sleep(ctx, 200*time.Millisecond) {
			return
		}
	}
}

// Close stops the consumers.
func (w *Queue) Close() {
	var wg sync.WaitGroup
	for _, c := range w.consumers {
		wg.Go(c.Close)
	}
	wg.Wait()
	w.consumers = nil
}

// Drain reads every queue from every node, each on its own, and records what is there.
func (w *Queue) Drain(ctx context.Context) {
	var wg sync.WaitGroup
	for _, n := range w.cluster.Nodes() {
		wg.Go(func() { w.drainNode(ctx, n) })
	}
	wg.Wait()
}

func (w *Queue) drainNode(ctx context.Context, n *cluster.Node) {
	var c *client.Client
	c, dialErr := n.Dial(ctx)
	if dialErr == nil {
		defer c.Close()
	}
	for q := range int32(w.cfg.Queues) {
		op := w.rec.Begin(history.Op{Kind: history.Drained, Process: "drain", Node: n.ID, Topic: w.cfg.Topic, Queue: q, Offset: -1})
		err := dialErr
		if err == nil {
			op.Count, err = ReadQueue(ctx, c, "jepsen-drain", w.cfg.Topic, q, func(d Delivery) {
				w.rec.Add(history.Op{Kind: history.Drain, Process: "drain", Outcome: history.OK, Node: n.ID,
					Value: d.Value, UniqKey: d.UniqKey, Topic: w.cfg.Topic, Queue: q, Offset: d.Offset})
			})
		}
		op.Outcome = history.OK
		if err != nil {
			op.Outcome, op.Error = history.Fail, err.Error()
		}
		w.rec.End(op)
	}
}
