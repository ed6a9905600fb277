package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"raftmq/jepsen/cluster"
	"raftmq/jepsen/workload"
)

// childEnv makes the test binary some stock push consumers in a process of their own, which can be stopped and killed: a JSON childArgs.
const childEnv = "RAFTMQ_E2E_CONSUMERS"

type childArgs struct {
	Addrs        []string
	Group, Topic string
	Instances    []string
	Orderly      bool
	Log          string
}

// handled is a message as the listener of a consumer had it. Times are Unix nanoseconds: all consumers are on this machine.
type handled struct {
	Consumer string
	Queue    int32
	Offset   int64
	Body     string
	From, To int64
}

// childMain consumes until its standard input ends, and writes what it handled to standard output. The consumers start at the same time.
func childMain(text string) int {
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	var args childArgs
	if err := json.Unmarshal([]byte(text), &args); err != nil {
		return fail(err)
	}
	if err := workload.StockLog(args.Log); err != nil {
		return fail(err)
	}
	var mu sync.Mutex
	out := json.NewEncoder(os.Stdout)
	consumers := make([]rocketmq.PushConsumer, len(args.Instances))
	errs := make([]error, len(consumers))
	var wg sync.WaitGroup
	for i, name := range args.Instances {
		c, err := rocketmq.NewPushConsumer(
			consumer.WithNsResolver(primitive.NewPassthroughResolver(args.Addrs)),
			consumer.WithGroupName(args.Group), consumer.WithInstance(name),
			consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset), consumer.WithConsumerOrder(args.Orderly))
		if err != nil {
			return fail(err)
		}
		consumers[i] = c
		err = c.Subscribe(args.Topic, consumer.MessageSelector{}, func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			from := time.Now()
			time.Sleep(time.Millisecond) // work
			to := time.Now()
			mu.Lock()
			defer mu.Unlock()
			for _, m := range msgs {
				if err := out.Encode(handled{Consumer: name, Queue: int32(m.Queue.QueueId), Offset: m.QueueOffset, Body: string(m.Body), From: from.UnixNano(), To: to.UnixNano()}); err != nil {
					os.Exit(1) // nobody listens
				}
			}
			return consumer.ConsumeSuccess, nil
		})
		if err != nil {
			return fail(err)
		}
		wg.Go(func() { errs[i] = c.Start() })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fail(err)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	for _, c := range consumers {
		wg.Go(func() { _ = c.Shutdown() })
	}
	wg.Wait()
	return 0
}

// childProcess is such a process.
type childProcess struct {
	name  string
	cmd   *exec.Cmd
	stdin io.Closer
	done  chan struct{} // it has ended, and all that it wrote is noted
}

// consumerGroup is a topic with senders and consumers, and all that was handled.
type consumerGroup struct {
	t      *testing.T
	c      *cluster.Cluster
	topic  string
	queues int

	mu      sync.Mutex
	handled []handled
	sent    map[int32]int // acknowledged messages

	stop func()
	wg   sync.WaitGroup
}

// newConsumerGroup creates the topic and starts a sender for each queue, which sends every so often; a message's body is its queue, one of the queue's two keys and its place among those.
func newConsumerGroup(t *testing.T, c *cluster.Cluster, name string, queues int, every time.Duration) *consumerGroup {
	t.Helper()
	g := &consumerGroup{t: t, c: c, topic: topicName(t) + "-" + name, queues: queues, sent: map[int32]int{}}
	createTopic(t, c, g.topic, queues)
	ctx, cancel := context.WithCancel(t.Context())
	g.stop = func() { cancel(); g.wg.Wait() }
	t.Cleanup(g.stop)
	for q := range int32(queues) {
		s := workload.NewRawSender(c.ClientAddrs(), fmt.Sprintf("%s-%d", name, q), g.topic, q)
		g.wg.Go(func() {
			defer s.Close()
			g.send(ctx, s, q, every)
		})
	}
	return g
}

func (g *consumerGroup) send(ctx context.Context, s workload.Sender, q int32, every time.Duration) {
	for n := 0; ctx.Err() == nil; n++ {
		m := &workload.Message{Body: fmt.Appendf(nil, "%d-%d %d", q, n%2, n/2)}
		for {
			_, err := s.Send(context.WithoutCancel(ctx), m)
			if err == nil {
				break
			}
			_ = sleep(context.WithoutCancel(ctx), 20*time.Millisecond)
		}
		g.mu.Lock()
		g.sent[q]++
		g.mu.Unlock()
		_ = sleep(ctx, every)
	}
}

// start starts an orderly consumer.
func (g *consumerGroup) start(name string) *childProcess {
	g.t.Helper()
	return g.startProcess(name, true, name)
}

// startProcess starts consumers in one process.
func (g *consumerGroup) startProcess(process string, orderly bool, names ...string) *childProcess {
	g.t.Helper()
	text, err := json.Marshal(childArgs{Addrs: g.c.ClientAddrs(), Group: "g-" + g.topic, Topic: g.topic, Instances: names, Orderly: orderly, Log: filepath.Join(g.t.TempDir(), "client.log")})
	if err != nil {
		g.t.Fatal(err)
	}
	c := &childProcess{name: process, cmd: exec.Command(os.Args[0]), done: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childEnv+"="+string(text))
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	if err == nil {
		c.stdin, err = c.cmd.StdinPipe()
	}
	if err == nil {
		err = startOnThread(c.cmd, c.done)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	go func() {
		defer close(c.done)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var h handled
			if json.Unmarshal(lines.Bytes(), &h) != nil || h.Consumer == "" {
				continue // the library prints too
			}
			g.mu.Lock()
			g.handled = append(g.handled, h)
			g.mu.Unlock()
		}
	}()
	g.t.Cleanup(func() { g.end(c) })
	return c
}

// startOnThread starts a process that dies with this program (Pdeathsig). That is with the thread that forked it, and threads end that were in another
// network namespace: so this one is kept until done is closed.
func startOnThread(cmd *exec.Cmd, done <-chan struct{}) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			<-done
		}
	}()
	return <-started
}

// end ends a consumer.
func (g *consumerGroup) end(c *childProcess) {
	if c.cmd == nil {
		return
	}
	_ = c.cmd.Process.Signal(syscall.SIGCONT)
	_ = c.stdin.Close()
	kill := time.AfterFunc(time.Minute, func() { _ = c.cmd.Process.Kill() })
	<-c.done
	kill.Stop()
	if err := c.cmd.Wait(); err != nil {
		g.t.Errorf("consumer %s: %v", c.name, err)
	}
	c.cmd = nil
}

// kill ends a process with SIGKILL.
func (g *consumerGroup) kill(c *childProcess) {
	g.t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		g.t.Fatal(err)
	}
	<-c.done
	_ = c.cmd.Wait()
	c.cmd = nil
}

func (g *consumerGroup) signal(c *childProcess, sig syscall.Signal) {
	g.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		g.t.Fatalf("consumer %s: %v", c.name, err)
	}
}

// since returns who has handled messages of which queues since a time: by queue, consumers sorted.
func (g *consumerGroup) since(at time.Time) map[int32][]string {
	g.mu.Lock()
	defer g.mu.Unlock()
	out := map[int32][]string{}
	for _, h := range g.handled {
		if h.From > at.UnixNano() && !slices.Contains(out[h.Queue], h.Consumer) {
			out[h.Queue] = append(out[h.Queue], h.Consumer)
		}
	}
	return out
}

// all reports whether messages of all queues have been handled since a time.
func (g *consumerGroup) all(at time.Time) bool { return len(g.since(at)) == g.queues }

// gap is the longest time between two messages of one queue, with the queue, of those that ended after a time.
func (g *consumerGroup) gap(after time.Time) (longest time.Duration, queue int32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	last := map[int32]int64{}
	for _, h := range g.sorted() {
		if before, ok := last[h.Queue]; ok && h.From > after.UnixNano() {
			if d := time.Duration(h.From - before); d > longest {
				longest, queue = d, h.Queue
			}
		}
		last[h.Queue] = h.From
	}
	return longest, queue
}

// distinct counts the messages that were handled.
func (g *consumerGroup) distinct() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	bodies := map[string]bool{}
	for _, h := range g.handled {
		bodies[h.Body] = true
	}
	return len(bodies)
}

func (g *consumerGroup) sorted() []handled {
	return slices.SortedFunc(slices.Values(g.handled), func(a, b handled) int { return int(a.From - b.From) })
}

// finish stops the senders and waits until all that they sent has been handled, then looks at what was: the order of each key, and one owner of a queue
// at a time. Whoever was stopped in the middle of a message is spared for that message: nobody could know.
func (g *consumerGroup) finish(stopped ...stopSpan) {
	t := g.t
	t.Helper()
	g.stop()
	want := 0
	for _, n := range g.sent {
		want += n
	}
	eventually(t, 3*time.Minute, "all messages handled", func() bool { return g.distinct() >= want })
	g.mu.Lock()
	defer g.mu.Unlock()
	next := map[string]int{}
	lastOf := map[int32]handled{}
	owners, owned := map[int32]int{}, map[int32]int64{} // changes of owner, and when the newest was
	woken := map[wakened]bool{}
	repeated := 0
	for _, h := range g.sorted() {
		key, number, _ := strings.Cut(h.Body, " ")
		var n int
		if _, err := fmt.Sscan(number, &n); err != nil {
			t.Fatalf("body %q", h.Body)
		}
		switch {
		case n > next[key]:
			t.Errorf("key %s: %s handled %d when %d was next", key, h.Consumer, n, next[key])
			next[key] = n + 1
		case n == next[key]:
			next[key]++
		default:
			repeated++
		}
		if slices.ContainsFunc(stopped, func(s stopSpan) bool { return s.within(h) || s.first(h, woken) }) {
			continue
		}
		if last, ok := lastOf[h.Queue]; ok && last.Consumer != h.Consumer {
			if h.From < last.To {
				t.Errorf("queue %d: %s began with offset %d while %s was at offset %d", h.Queue, h.Consumer, h.Offset, last.Consumer, last.Offset)
			}
			// Nobody gives a queue up here, so its owner has it for a lease at least.
			if since := time.Duration(h.From - owned[h.Queue]); owned[h.Queue] > 0 && since < 30*time.Second {
				t.Errorf("queue %d: %s after %s, which has had it for %v only", h.Queue, h.Consumer, last.Consumer, since)
			}
			owners[h.Queue]++
			owned[h.Queue] = h.From
		}
		lastOf[h.Queue] = h
	}
	t.Logf("%s: %d messages, %d of them again; changes of owner by queue: %v", g.topic, want, repeated, owners)
}

// halt stops a process and returns when it stood.
func (g *consumerGroup) halt(c *childProcess) time.Time {
	g.t.Helper()
	g.signal(c, syscall.SIGSTOP)
	eventually(g.t, time.Minute, "the process stands", func() bool { return standsStill(g.t, c.cmd.Process.Pid) })
	return time.Now()
}

// stopSpan is when a consumer stood: from at the earliest, to at the latest.
type stopSpan struct {
	consumer string
	from, to time.Time
}

func (s stopSpan) within(h handled) bool {
	return h.Consumer == s.consumer && h.From <= s.from.UnixNano() && h.To >= s.to.UnixNano()
}

// wakened is a consumer that went on with a queue.
type wakened struct {
	stopSpan
	queue int32
}

// first reports whether h is the first message of its queue that the consumer began when it went on: it may have been stopped between looking at its lock
// and beginning. Of the next one no such thing can be said.
func (s stopSpan) first(h handled, woken map[wakened]bool) bool {
	key := wakened{s, h.Queue}
	if h.Consumer != s.consumer || h.From < s.to.UnixNano() || woken[key] {
		return false
	}
	woken[key] = true
	return true
}

// brokerName is the one that all nodes of the cluster share.
func brokerName(t *testing.T, n *cluster.Node) string {
	t.Helper()
	st, err := n.Status(withTimeout(t, 30*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return st.Group
}
