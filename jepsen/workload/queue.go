package workload

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"
	"sync/atomic"
	"time"

	"raftmq/jepsen/checker"
	"raftmq/jepsen/cluster"
	"raftmq/jepsen/history"
)

// Config of a workload. Zero values take the defaults in parentheses; a workload may have others of its own.
type Config struct {
	Kind      string // of Kinds (queue)
	Topic     string // (jepsen)
	Queues    int    // of the topic (8)
	Producers int    // (8)
	Groups    int    // consumer groups (2)
	Consumers int    // in each group (2)
	// Late is how long after the load's begin one consumer more joins each group (0: none does).
	Late time.Duration
	// Work is how long an ordered consumer works on what it is given at once (10 ms): two that own a queue at the same time are seen by that.
	Work     time.Duration
	Rate     float64 // messages per second of all producers together (2000); negative: no limit
	BodySize int     // bytes (256)
	Messages int     // to send in all; 0 for as many as the time allows
	Client   Client  // (mixed)
	// SendTimeout is how long a raw producer waits for one answer (1.5 s). One that is shorter than a pause makes it send again what may be
	// stored already.
	SendTimeout time.Duration
	Seed        uint64 // of what the workload draws
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
	if c.Kind == "" {
		c.Kind = checker.Queue
	}
	rate, client := 2000.0, Mixed
	switch c.Kind {
	case checker.Sizes:
		rate = 100
	case checker.Ordered, checker.Transaction, checker.Delay, checker.Membership:
		rate = 400
	case checker.Retry:
		rate = 50
		def(&c.Groups, 1)
		c.Groups = 1 // dead letters are one group's
	case checker.Retention:
		client = Raw // stock consumers may sleep longer than messages are kept
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
		c.Rate = rate
	}
	if c.Client == "" {
		c.Client = client
	}
	if c.Work == 0 {
		c.Work = 10 * time.Millisecond
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
	wishes    *wishes      // of transactions

	transactors []transactor // that are still asked

	mu struct {
		sync.Mutex
		acked    map[string]bool            // that all groups are to get
		received map[string]map[string]bool // by group
		wish     map[string]string          // of values that have one
	}
}

// NewQueue returns the workload; nothing runs yet.
func NewQueue(c *cluster.Cluster, rec *history.Recorder, cfg Config) *Queue {
	cfg.fillIn()
	w := &Queue{cfg: cfg, cluster: c, rec: rec, wishes: newWishes(rec)}
	w.mu.acked = map[string]bool{}
	w.mu.wish = map[string]string{}
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

// Info tells the checkers what they need to know.
func (w *Queue) Info() history.RunInfo {
	info := history.RunInfo{Workload: w.cfg.Kind, Groups: w.groups, Trimmed: w.cfg.Kind == checker.Retention}
	if info.Trimmed {
		info.Kept = kept
	}
	if w.cfg.Kind == checker.Retry {
		info.Dead, info.Tries = deadPrefix+w.groups[0], retryTries
	}
	return info
}

// SetUp creates the topics and starts the consumers.
func (w *Queue) SetUp(ctx context.Context) error {
	addrs := w.cluster.ClientAddrs()
	for _, t := range w.topics() {
		if err := CreateTopic(ctx, w.cluster.RunningAddrs(), t.name, t.queues); err != nil {
			return err
		}
	}
	if w.cfg.Kind == checker.Retry {
		// The topic of a new group is made at its first heartbeat; a Go consumer that asked for its route just before asks again
		// after 30 s.
		if err := CreateTopic(ctx, w.cluster.RunningAddrs(), retryPrefix+w.groups[0], 1); err != nil {
			return err
		}
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

// topicQueues is a topic that is drained in the end.
type topicQueues struct {
	name   string
	queues int
}

func (w *Queue) topics() []topicQueues {
	topics := []topicQueues{{w.cfg.Topic, w.cfg.Queues}}
	if w.cfg.Kind == checker.Retry {
		topics = append(topics, topicQueues{deadPrefix + w.groups[0], 1})
	}
	return topics
}

// stock tells whether the i-th of some clients is a stock one.
func (w *Queue) stock(i int) bool {
	return w.cfg.Client == Stock || w.cfg.Client == Mixed && i%2 == 0
}

func (w *Queue) newConsumer(addrs []string, g, i int) (Consumer, error) {
	group := w.groups[g]
	name := fmt.Sprintf("%s-c%d", group, i+1)
	deliver := func(d Delivery) { w.deliver(name, group, d, history.OK) }
	switch {
	case w.cfg.Kind == checker.Retry: // sending back is the stock client's business
		return newStockConsumer(addrs, name, group, w.cfg.Topic, stockConsumption{tries: retryTries, deliver: func(d Delivery) bool {
			return w.deliver(name, group, d, w.verdict(d)) == history.OK
		}})
	case w.cfg.Kind == checker.Ordered: // and so is the lock
		return newStockConsumer(addrs, name, group, w.cfg.Topic, stockConsumption{ordered: true, now: w.rec.Now, deliver: func(d Delivery) bool {
			deliver(d)
			return true
		}, work: w.cfg.Work})
	case w.stock(g):
		return NewStockConsumer(addrs, name, group, w.cfg.Topic, deliver)
	}
	var queues []int32
	for q := i; q < w.cfg.Queues; q += w.cfg.Consumers {
		queues = append(queues, int32(q))
	}
	return NewRawConsumer(addrs, i, group, w.cfg.Topic, queues, deliver), nil
}

func (w *Queue) deliver(process, group string, d Delivery, verdict history.Outcome) history.Outcome {
	op := history.Op{Kind: history.Receive, Process: process, Group: group, Outcome: verdict,
		Value: d.Value, UniqKey: d.UniqKey, Topic: d.Topic, Queue: d.Queue, Offset: d.Offset, Node: d.Node,
		Size: d.Size, Sum: d.Sum, Stored: d.Stored, Tries: d.Tries}
	if d.Began > 0 {
		op.Start, op.End = d.Began, w.rec.Now()
	}
	w.rec.Add(op)
	w.mu.Lock()
	defer w.mu.Unlock()
	if verdict == history.OK || w.mu.wish[d.Value] == history.WishDead && d.Tries >= retryTries {
		w.mu.received[group][d.Value] = true
	}
	return verdict
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
		wg.Go(func() { w.produce(ctx, giveUp, i, s) })
	}
	err := w.joinLate(ctx)
	wg.Wait()
	return err
}

// joinLate adds the consumers that join during the load.
func (w *Queue) joinLate(ctx context.Context) error {
	if w.cfg.Late == 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(w.cfg.Late):
	}
	for g := range w.groups {
		c, err := w.newConsumer(w.cluster.ClientAddrs(), g, w.cfg.Consumers)
		if err != nil {
			return err
		}
		w.consumers = append(w.consumers, c)
	}
	return nil
}

func (w *Queue) newSender(i int) (Sender, error) {
	name := fmt.Sprintf("%s-p%d", w.cfg.Topic, i+1)
	addrs := w.cluster.ClientAddrs()
	switch {
	case w.cfg.Kind == checker.Transaction && w.stock(i):
		t, err := newStockTransactor(addrs, name, w.cfg.Topic, w.wishes)
		if err == nil {
			w.transactors = append(w.transactors, t)
		}
		return t, err
	case w.cfg.Kind == checker.Transaction:
		t := newRawTransactor(addrs, name, w.cfg.Topic, int32(i%w.cfg.Queues), w.wishes)
		w.transactors = append(w.transactors, t)
		return t, nil
	case w.stock(i):
		return NewStockSender(addrs, name, w.cfg.Topic)
	}
	s := newRawSender(addrs, name, w.cfg.Topic, int32(i%w.cfg.Queues), w.cfg.Queues)
	if w.cfg.SendTimeout > 0 {
		s.timeout = w.cfg.SendTimeout
	}
	return s, nil
}

// produce sends the i-th producer's messages one after the other at its share of the rate. Time lost to a
// fault is not made up for.
func (w *Queue) produce(ctx, giveUp context.Context, i int, s Sender) {
	process := fmt.Sprintf("p%d", i+1)
	var every time.Duration
	if w.cfg.Rate > 0 {
		every = time.Duration(float64(w.cfg.Producers) / w.cfg.Rate * float64(time.Second))
	}
	plan := newPlan(&w.cfg, process, w.stock(i))
	next := time.Now()
	for ctx.Err() == nil {
		batch := plan.next()
		if w.cfg.Messages > 0 && w.taken.Add(int64(len(batch))) > int64(w.cfg.Messages) {
			return
		}
		if now := time.Now(); next.After(now) {
			if !sleep(ctx, next.Sub(now)) {
				return
			}
		} else if now.Sub(next) > time.Second {
			next = now
		}
		next = next.Add(every * time.Duration(len(batch)))
		w.send(giveUp, process, s, batch...)
	}
}

// send tries until the messages are acknowledged or ctx ends.
func (w *Queue) send(ctx context.Context, process string, s Sender, batch ...*Message) {
	ops := make([]*history.Op, len(batch))
	for i, m := range batch {
		w.wish(m)
		op := history.Op{Kind: history.Send, Process: process, Value: m.Value, Topic: w.cfg.Topic, Queue: -1, Offset: -1,
			Size: len(m.Body), Sum: crc32.ChecksumIEEE(m.Body), Key: m.Key, Wish: m.Wish, Delay: m.Delay}
		if len(batch) > 1 {
			op.Batch = batch[0].Value
		}
		ops[i] = w.rec.Begin(op)
	}
	defer func() {
		for _, op := range ops {
			w.rec.End(op)
		}
	}()
	refused := true
	wait := 5 * time.Millisecond
	for {
		ack, err := s.Send(ctx, batch...)
		for i, m := range batch {
			ops[i].Attempts++
			ops[i].UniqKey = m.UniqKey
		}
		if err == nil {
			w.acknowledged(ops, ack)
			return
		}
		for _, op := range ops {
			op.Error = err.Error()
		}
		if errors.Is(err, ErrRefused) {
			for _, op := range ops {
				op.Refused++
			}
		} else {
			refused = false
		}
		if !sleep(ctx, wait) {
			break
		}
		wait = min(2*wait, 100*time.Millisecond)
	}
	if refused {
		for _, op := range ops {
			op.Outcome = history.Fail
		}
	}
}

// wish notes what is to become of a message.
func (w *Queue) wish(m *Message) {
	if m.Wish == "" {
		return
	}
	w.wishes.set(m.Value, m.Wish)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mu.wish[m.Value] = m.Wish
}

func (w *Queue) acknowledged(ops []*history.Op, ack Ack) {
	for i, op := range ops {
		op.Outcome, op.Queue, op.Offset, op.Node = history.OK, ack.Queue, ack.Offset+int64(i), ack.Node
		if op.Delay > 0 || w.cfg.Kind == checker.Transaction {
			op.Queue, op.Offset = -1, -1 // where it waits, not where it will be read
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, op := range ops {
		if op.Wish != history.WishRollback {
			w.mu.acked[op.Value] = true
		}
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
			break
		}
	}
	if w.cfg.Kind == checker.Retry {
		w.awaitDead(ctx)
	}
}

// Close stops the consumers, and the producers that are asked about transactions.
func (w *Queue) Close() {
	var wg sync.WaitGroup
	for _, c := range w.consumers {
		wg.Go(c.Close)
	}
	for _, t := range w.transactors {
		wg.Go(t.end)
	}
	wg.Wait()
	w.consumers, w.transactors = nil, nil
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
	for _, t := range w.topics() {
		for q := range int32(t.queues) {
			op := w.rec.Begin(history.Op{Kind: history.Drained, Process: "drain", Node: n.ID, Topic: t.name, Queue: q, Offset: -1})
			read, first, err := drainQueue(ctx, n, t.name, q)
			for _, d := range read {
				w.rec.Add(history.Op{Kind: history.Drain, Process: "drain", Outcome: history.OK, Node: n.ID,
					Value: d.Value, UniqKey: d.UniqKey, Topic: t.name, Queue: q, Offset: d.Offset, Size: d.Size, Sum: d.Sum, Stored: d.Stored})
			}
			op.Count, op.First = len(read), first
			op.Outcome = history.OK
			if err != nil {
				op.Outcome, op.Error = history.Fail, err.Error()
			}
			w.rec.End(op)
		}
	}
}

// drainQueue reads a queue of one node. A node that goes down meanwhile (its disk may report late what it could not write) is read
// again from the beginning when it is back.
func drainQueue(ctx context.Context, n *cluster.Node, topic string, queue int32) (read []Delivery, first int64, err error) {
	for {
		read = nil
		c, err := n.Dial(ctx)
		if err == nil {
			_, first, err = readQueue(ctx, c, "jepsen-drain", topic, queue, func(d Delivery) { read = append(read, d) })
			_ = c.Close()
		}
		if err == nil || !sleep(ctx, 500*time.Millisecond) {
			return read, first, err
		}
	}
}
