package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"raftmq/transport/client"
	"raftmq/transport/remoting"
)

// Values of --mode.
const (
	benchProduce = "produce"
	benchConsume = "consume"
	benchBoth    = "both"
)

// benchOptions are bench's flags.
type benchOptions struct {
	topic       string
	create      bool
	queues      int
	size        int64
	connections int
	inFlight    int
	batch       int
	rate        float64
	duration    time.Duration
	warmup      time.Duration
	mode        string
	pullBatch   int
	from        string
	group       string
	serialize   string
	uniqueKeys  bool
	asJSON      bool
}

func newBenchCommand() *cobra.Command {
	var flags toolFlags
	var o benchOptions
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure throughput and latency of RaftMQ or any RocketMQ broker",
		Long: `Sends messages over pipelined connections, or reads a topic, and reports throughput, latency
percentiles, errors by code and the longest time without an acknowledged send. It speaks the plain
RocketMQ protocol and follows leader changes.

Without --rate each connection keeps --in-flight requests open, as fast as answers come (closed
loop). With --rate requests leave on schedule whatever the answers do, and latency counts from the
scheduled time, so that a stall shows in every request that it delayed (open loop).

Consuming uses one connection for each queue, reads from the first message, and ends when it has
read what was there at its start.`,
		Example: `  raftmq bench --create --topic speed --size 1KiB --duration 30s
  raftmq bench --topic speed --connections 1 --in-flight 1            # one synchronous client
  raftmq bench --topic speed --rate 10000 --duration 60s
  raftmq bench --topic speed --mode consume
  raftmq bench --name-servers 10.0.0.9:9876 --topic speed --batch 16  # a RocketMQ broker`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(cmd.Flags().Changed); err != nil {
				return err
			}
			addrs, err := flags.addresses()
			if err != nil {
				return err
			}
			ctx, cancel := untilSignal(cmd)
			defer cancel()
			return runBench(ctx, addrs, flags.timeout, &o, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags.register(cmd, 10*time.Second, "a request without an answer for so long has failed")
	o.register(cmd.Flags())
	return cmd
}

func (o *benchOptions) register(fs *pflag.FlagSet) {
	fs.StringVar(&o.topic, "topic", "raftmq-bench", "`topic` to send to or read")
	fs.BoolVar(&o.create, "create", false, "create the topic first, with --queues queues")
	fs.IntVar(&o.queues, "queues", 0, "`number` of queues to use (default all; with --create 8)")
	sizeVar(fs, &o.size, "size", kib, "body of a message, `size`")
	fs.IntVar(&o.connections, "connections", 4, "`number` of connections that send")
	fs.IntVar(&o.inFlight, "in-flight", 256, "`number` of requests that each connection keeps open")
	fs.IntVar(&o.batch, "batch", 1, "`number` of messages in a request")
	fs.Float64Var(&o.rate, "rate", 0, "messages per second over all connections, on schedule; 0 is as fast as answers come")
	fs.DurationVar(&o.duration, "duration", 10*time.Second, "how long to measure")
	fs.DurationVar(&o.warmup, "warmup", 2*time.Second, "how long to send before measuring")
	fs.StringVar(&o.mode, "mode", benchProduce, "`mode`: produce, consume or both")
	fs.IntVar(&o.pullBatch, "pull-batch", 32, "`number` of messages to ask for in a pull")
	fs.StringVar(&o.from, "from", "", "where to begin reading: first or last (default first; last with --mode both)")
	fs.StringVar(&o.group, "group", "raftmq-bench", "consumer `group` to read as; nothing is committed")
	fs.StringVar(&o.serialize, "serialize", "json", "header `format`: json, as clients have it by default, or rocketmq (binary)")
	fs.BoolVar(&o.uniqueKeys, "unique-keys", false, "give each message a UNIQ_KEY property, as stock clients do")
	fs.BoolVar(&o.asJSON, "json", false, "print the result as JSON")
}

func (o *benchOptions) validate(changed func(string) bool) error {
	var errs []error
	number := func(flag string, n, least, most int) {
		if n < least || n > most {
			errs = append(errs, flagError{flag, n, fmt.Sprintf("allowed are %d to %d", least, most)})
		}
	}
	if o.mode != benchProduce && o.mode != benchConsume && o.mode != benchBoth {
		errs = append(errs, flagError{"mode", o.mode, "allowed are produce, consume and both"})
	}
	if o.serialize != "json" && o.serialize != "rocketmq" {
		errs = append(errs, flagError{"serialize", o.serialize, "allowed are json and rocketmq"})
	}
	switch o.from {
	case "":
		o.from = fromFirst
		if o.mode == benchBoth {
			o.from = fromLast
		}
	case fromFirst, fromLast:
	default:
		errs = append(errs, flagError{"from", o.from, "allowed are first and last"})
	}
	least := 0
	if o.create {
		least = 1
		if !changed("queues") {
			o.queues = 8
		}
	}
	number("queues", o.queues, least, maxTopicQueues)
	number("connections", o.connections, 1, 4096)
	number("in-flight", o.inFlight, 1, maxSlots)
	number("batch", o.batch, 1, 4096)
	number("pull-batch", o.pullBatch, 1, 4096)
	errs = append(errs, checkSize("size", o.size, 1, maxRequestBody)...)
	if total := o.size * int64(o.batch); total > maxRequestBody && len(errs) == 0 {
		errs = append(errs, flagError{"batch", o.batch, fmt.Sprintf("contradicts --size %s: a request carries at most %s", formatSize(o.size), formatSize(maxRequestBody))})
	}
	if o.rate < 0 || math.IsInf(o.rate, 0) || math.IsNaN(o.rate) {
		errs = append(errs, flagError{"rate", o.rate, "allowed are 0 and more"})
	}
	errs = append(errs, checkDuration("duration", o.duration, 100*time.Millisecond, 24*time.Hour)...)
	errs = append(errs, checkDuration("warmup", o.warmup, 0, time.Hour)...)
	if o.mode == benchConsume {
		for _, flag := range []string{"size", "connections", "in-flight", "batch", "rate", "warmup", "unique-keys"} {
			if changed(flag) {
				errs = append(errs, fmt.Errorf("--%s contradicts --mode consume, which sends nothing", flag))
			}
		}
	}
	return errors.Join(errs...)
}

// bench is one run. Its goroutines are those of the producers and consumers, which end when
// stop is called and what is in flight has been answered, and one that watches them.
type bench struct {
	o       *benchOptions
	timeout time.Duration
	target  *benchTarget
	epoch   time.Time // of all times in nanoseconds below
	style   remoting.RequestStyle
	gap     gapMeter

	producers []*producer
	consumers []*consumer
	// stopping is closed when nothing new is to be sent.
	stopping chan struct{}
	stopOnce sync.Once
}

func (b *bench) now() int64 { return int64(time.Since(b.epoch)) }

func (b *bench) stopped() bool {
	select {
	case <-b.stopping:
		return true
	default:
		return false
	}
}

func (b *bench) stop() {
	b.stopOnce.Do(func() {
		close(b.stopping)
		for _, p := range b.producers {
			p.wake()
		}
		for _, c := range b.consumers {
			c.close()
		}
	})
}

func runBench(ctx context.Context, nameServers []string, timeout time.Duration, o *benchOptions, out, progress io.Writer) error {
	target := newBenchTarget(nameServers, o.topic)
	defer target.close()
	if o.create {
		createCtx, cancel := context.WithTimeout(ctx, max(timeout, 10*time.Second))
		defer cancel()
		if err := createTopic(createCtx, target.clusters[0], topicSpec{name: o.topic, queues: o.queues, perm: permRead | permWrite}); err != nil {
			return err
		}
	}
	b := &bench{o: o, timeout: timeout, target: target, epoch: time.Now(), stopping: make(chan struct{})}
	if o.serialize == "rocketmq" {
		b.style.Serialize = remoting.SerializeRocketMQ
	}
	if err := b.prepare(ctx); err != nil {
		return err
	}
	result := b.run(ctx, progress)
	if err := result.write(out, o.asJSON); err != nil {
		return err
	}
	if result.failed() {
		return errReported
	}
	return nil
}

// prepare looks up the topic and makes producers and consumers for its queues.
func (b *bench) prepare(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.timeout)
	defer cancel()
	route, err := routeWithRetry(ctx, b.target.clusters[0], b.o.topic)
	if answeredWith(err, remoting.ResponseTopicNotExist) {
		return fmt.Errorf("topic %s does not exist; --create makes it", b.o.topic)
	}
	if err != nil {
		return fmt.Errorf("topic %s: %w", b.o.topic, err)
	}
	if b.o.mode != benchConsume {
		if err := b.prepareProducers(route); err != nil {
			return err
		}
	}
	if b.o.mode != benchProduce {
		return b.prepareConsumers(ctx, route)
	}
	return nil
}

// groupQueues is how many of a topic's queues in one broker group are used.
type groupQueues struct {
	broker string
	queues int
}

func (b *bench) groups(route *client.Route, perm int, queues func(client.RouteQueue) int) ([]groupQueues, error) {
	var groups []groupQueues
	for _, q := range route.Queues {
		n := queues(q)
		if b.o.queues > 0 {
			n = min(n, b.o.queues)
		}
		if q.Perm&perm != 0 && n > 0 {
			groups = append(groups, groupQueues{q.Broker, n})
		}
	}
	if len(groups) == 0 {
		return nil, fmt.Errorf("topic %s has no queue with the permission %s", b.o.topic, permText(perm))
	}
	return groups, nil
}

func (b *bench) prepareProducers(route *client.Route) error {
	groups, err := b.groups(route, permWrite, func(q client.RouteQueue) int { return q.WriteQueues })
	if err != nil {
		return err
	}
	for i := range b.o.connections {
		b.producers = append(b.producers, newProducer(b, i, groups[i%len(groups)]))
	}
	return nil
}

func (b *bench) prepareConsumers(ctx context.Context, route *client.Route) error {
	groups, err := b.groups(route, permRead, func(q client.RouteQueue) int { return q.ReadQueues })
	if err != nil {
		return err
	}
	for _, g := range groups {
		leader, ok := route.Leader(g.broker)
		if !ok {
			return fmt.Errorf("no leader of %s is known", g.broker)
		}
		for queue := range g.queues {
			r, err := rangeOf(ctx, b.target.clusters[0], leader, b.o.topic, g.broker, queue)
			if err != nil {
				return err
			}
			b.consumers = append(b.consumers, newConsumer(b, g.broker, r))
		}
	}
	return nil
}

// run lets them work for the warm-up and the measured time, and returns what was measured.
func (b *bench) run(ctx context.Context, progress io.Writer) *benchResult {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var sending, reading sync.WaitGroup
	for _, p := range b.producers {
		sending.Go(func() { p.run(ctx) })
	}
	for _, c := range b.consumers {
		reading.Go(func() { c.run(ctx) })
	}
	watching := make(chan struct{})
	// Also after an interrupt: it is what ends requests that nobody answers.
	watchCtx, endWatch := context.WithCancel(context.WithoutCancel(ctx))
	go func() {
		defer close(watching)
		b.watch(watchCtx)
	}()
	readAll := make(chan struct{})
	go func() {
		reading.Wait()
		close(readAll)
	}()
	m := newMeter(b, progress)
	if b.o.mode == benchConsume {
		m.measure(ctx, b.o.duration, readAll)
	} else {
		m.warmUp(ctx, b.o.warmup)
		m.measure(ctx, b.o.duration, nil)
	}
	b.stop()
	sending.Wait()
	<-readAll
	endWatch()
	<-watching
	return m.result()
}

// watch ends requests that got no answer and connections to brokers that no longer lead.
func (b *bench) watch(ctx context.Context) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		moved := map[string]string{} // silent address → its group's leader
		for _, p := range b.producers {
			broker, addr, silent := p.check()
			if !silent {
				continue
			}
			leader, asked := moved[addr]
			if !asked {
				leader = b.lookUp(ctx, broker, addr)
				moved[addr] = leader
			}
			if leader != "" && leader != addr {
				p.leave(addr)
			}
		}
	}
}

// lookUp asks who leads instead of addr; "" when that is not known.
func (b *bench) lookUp(ctx context.Context, broker, addr string) string {
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	leader, err := b.target.leader(ctx, broker, addr)
	if err != nil {
		return ""
	}
	return leader
}

const (
	watchInterval = 200 * time.Millisecond
	// maxRequestBody keeps frames below the 16 MiB that brokers accept.
	maxRequestBody = 15 * mib
)
