package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"raftmq/jepsen/workload"
)

// rollingLoad sends one message after another from several producers, with the retries that clients make by themselves and no more.
type rollingLoad struct {
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu     sync.Mutex
	acked  map[string]workload.Ack
	failed []string
	sent   map[string]int // by kind of producer
	tries  atomic.Int64   // of the raw producers, beyond the first
}

// stockRetries is what applications of RocketMQ's clients get without asking.
const stockRetries = 2

func startLoad(t *testing.T, addrs []string, topic string, stock int) *rollingLoad {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	l := &rollingLoad{stop: cancel, acked: map[string]workload.Ack{}, sent: map[string]int{}}
	t.Cleanup(l.end)
	for i := range stock {
		p, err := rocketmq.NewProducer(producer.WithNsResolver(primitive.NewPassthroughResolver(addrs)), producer.WithGroupName("rolling"),
			producer.WithInstanceName(fmt.Sprintf("%s-%d", topic, i)), producer.WithRetry(stockRetries), producer.WithSendMsgTimeout(10*time.Second))
		if err == nil {
			err = p.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Shutdown() })
		l.wg.Go(func() {
			l.run(ctx, fmt.Sprintf("sync-%d", i), func(body string) (workload.Ack, error) { return stockSync(ctx, p, topic, body) })
		})
		l.wg.Go(func() {
			l.run(ctx, fmt.Sprintf("async-%d", i), func(body string) (workload.Ack, error) { return stockAsync(ctx, p, topic, body) })
		})
	}
	for i := range 2 {
		s := workload.NewRawSender(addrs, fmt.Sprintf("raw-%d", i), topic, int32(i))
		t.Cleanup(s.Close)
		l.wg.Go(func() {
			l.run(ctx, fmt.Sprintf("raw-%d", i), func(body string) (workload.Ack, error) { return l.raw(ctx, s, body) })
		})
	}
	return l
}

func stockSync(ctx context.Context, p rocketmq.Producer, topic, body string) (workload.Ack, error) {
	r, err := p.SendSync(ctx, primitive.NewMessage(topic, []byte(body)))
	return stockAck(r, err)
}

// stockAsync has no retries at all: the client makes none.
func stockAsync(ctx context.Context, p rocketmq.Producer, topic, body string) (ack workload.Ack, err error) {
	done := make(chan struct{})
	begun := p.SendAsync(ctx, func(_ context.Context, r *primitive.SendResult, failed error) {
		ack, err = stockAck(r, failed)
		close(done)
	}, primitive.NewMessage(topic, []byte(body)))
	if begun != nil {
		return ack, begun
	}
	<-done
	return ack, err
}

func stockAck(r *primitive.SendResult, err error) (workload.Ack, error) {
	if err != nil {
		return workload.Ack{}, err
	}
	if r.Status != primitive.SendOK {
		return workload.Ack{}, fmt.Errorf("status %d", r.Status)
	}
	return workload.Ack{Queue: int32(r.MessageQueue.QueueId), Offset: r.QueueOffset}, nil
}

func (l *rollingLoad) raw(ctx context.Context, s workload.Sender, body string) (ack workload.Ack, err error) {
	m := workload.NewMessage(body, 0)
	m.Body = []byte(body)
	for try := range 1 + stockRetries {
		if try > 0 {
			l.tries.Add(1)
		}
		if ack, err = s.Send(ctx, m); err == nil {
			break
		}
	}
	return ack, err
}

func (l *rollingLoad) run(ctx context.Context, name string, send func(body string) (workload.Ack, error)) {
	kind, _, _ := strings.Cut(name, "-")
	for i := 0; ctx.Err() == nil; i++ {
		body := fmt.Sprintf("%s-%d", name, i)
		began := time.Now()
		ack, err := send(body)
		l.mu.Lock()
		l.sent[kind]++
		if err == nil {
			l.acked[body] = ack
		} else if ctx.Err() == nil {
			l.failed = append(l.failed, fmt.Sprintf("%s at %s after %v: %v", body, began.Format("15:04:05.000"), time.Since(began).Round(time.Millisecond), err))
		}
		l.mu.Unlock()
		select { // a steady load that leaves the machine some air
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func (l *rollingLoad) end() {
	l.stop()
	l.wg.Wait()
}

// check ends the load: nothing failed, the nodes are equal, and every acknowledged message is where its acknowledgement said.
func (l *rollingLoad) check(t *testing.T, s *scriptCluster, topic string, queues int) {
	t.Helper()
	l.end()
	s.tool("cluster", "verify") // it waits for all of them to come to its mark
	t.Logf("sent %v, %d further attempts of raw producers", l.sent, l.tries.Load())
	for i, f := range l.failed {
		if i == 10 {
			break
		}
		t.Errorf("failed: %s", f)
	}
	if len(l.failed) > 10 {
		t.Errorf("%d sends failed", len(l.failed))
	}
	for kind, sent := range l.sent {
		if sent < 50 {
			t.Errorf("only %d sends of %s producers: that is no load", sent, kind)
		}
	}
	stored := pullAll(t, s.node(1), topic, queues)
	for body, ack := range l.acked {
		if q := stored[ack.Queue]; int64(len(q)) <= ack.Offset || string(q[ack.Offset].Body) != body {
			t.Errorf("%s was acknowledged at queue %d offset %d and is not there", body, ack.Queue, ack.Offset)
		}
	}
}

// TestRollingRestart: all three nodes are restarted one after another under load, the leader last, and no send fails: not with the stock client's own
// two retries, and not even without any, although it asks for routes every 30 s only.
func TestRollingRestart(t *testing.T) {
	long(t)
	parallel(t, 42)
	s := startScript(t, serverBin(t), "--mapped-file-size-commit-log", "16MiB")
	topic := topicName(t)
	const queues = 4
	s.tool("topic", "create", topic, "--queues", "4")
	l := startLoad(t, s.addrs(), topic, 2)
	before := strings.TrimSpace(s.cluster("leader"))
	began := time.Now()
	out := s.must("scripts/rolling-restart", "-d", s.dir)
	t.Logf("%v\n%s", time.Since(began).Round(time.Second), out)
	if after := strings.TrimSpace(s.cluster("leader")); after == before {
		t.Errorf("n%s led and leads: it was not restarted last, or took leadership back", after)
	}
	if !strings.Contains(out, "restarted: ") || !strings.Contains(out, "writes on") {
		t.Errorf("the script says\n%s", out)
	}
	l.check(t, s, topic, queues)
}

// TestRollingRestartRefusals: nothing is restarted while that would take the cluster's majority.
func TestRollingRestartRefusals(t *testing.T) {
	long(t)
	parallel(t, 7)
	s := startScript(t, serverBin(t), "--mapped-file-size-commit-log", "16MiB")
	if out, err := s.try("scripts/rolling-restart", "-d", s.dir, "4"); err == nil || !strings.Contains(out, "no node 4") {
		t.Errorf("%v: %s", err, out)
	}
	leader := strings.TrimSpace(s.cluster("leader"))
	follower := "1"
	if leader == "1" {
		follower = "2"
	}
	s.cluster("kill", follower)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	// The script waits for long for a node to come back; what it waits with says what is missing.
	out, err := s.try(s.bin, "cluster", "wait", "--timeout", "2s", "--name-servers", s.addrs()[0]+","+s.addrs()[1]+","+s.addrs()[2])
	if err == nil || !strings.Contains(out, "n"+follower+" does not answer") {
		t.Errorf("%v: %s", err, out)
	}
	s.cluster("start", follower)
	if ctx.Err() != nil {
		t.Error(errors.New("too slow"))
	}
	s.tool("cluster", "wait", "--timeout", "60s")
}

// TestForwardWrites: with --forward-writes leadership moves under load without a drain, and a follower is restarted; stock clients, which know the old leader for
// up to 30 s, notice nothing.
func TestForwardWrites(t *testing.T) {
	long(t)
	parallel(t, 9)
	s := startScript(t, serverBin(t), "--mapped-file-size-commit-log", "16MiB", "--forward-writes")
	topic := topicName(t)
	s.tool("topic", "create", topic, "--queues", "4")
	l := startLoad(t, s.addrs(), topic, 2)
	first := strings.TrimSpace(s.cluster("leader"))
	for range 3 {
		before := strings.TrimSpace(s.cluster("leader"))
		s.tool("cluster", "transfer")
		eventually(t, time.Minute, "another leader, and load on it", func() bool {
			out, err := s.try("scripts/cluster", "-d", s.dir, "leader")
			return err == nil && strings.TrimSpace(out) != before
		})
		time.Sleep(time.Second) // load, to the old leader's address
	}
	// The node that stock clients send to stays; one that nobody needs goes and comes.
	leader := strings.TrimSpace(s.cluster("leader"))
	for n := 1; n <= 3; n++ {
		if other := fmt.Sprint(n); other != first && other != leader {
			s.must("scripts/rolling-restart", "-d", s.dir, "--clients-ask-every", "0s", other)
			break
		}
	}
	l.check(t, s, topic, 4)
}
