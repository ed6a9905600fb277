package e2e

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"raftmq/jepsen"
	"raftmq/jepsen/cluster"
	"raftmq/transport/remoting"
)

// What the example programs of rocketmq-client-go v2 do, as tests: examples/<folder> → scenes here.
//
//	producer: simple acl → simple; async, batch, tag → async, batch, tag; delay delayms → delay; interceptor, namespace, trace → those;
//	rpc/sync rpc/async → rpc; transaction → transaction
//	consumer: simple acl → simple; tag, delay, interceptor, namespace, rpc, trace → those; broadcast, strategy → broadcast, strategy;
//	orderly retry/order → orderly, and TestF79_OrderlyConsumers; retry/concurrent → retry, and TestRetryAndDeadLetter;
//	pull/poll pull/poll_assign → poll, assign; pull/pull pull/pull_from → pull
//	admin: group topic → admin
//	tls (both): there is no TLS; TestTLSIsRefused
//
// And what applications do besides: pause and resume, resetting offsets while consuming, where a new group begins.
var scenes = map[string]func(t *testing.T, s *stage){
	"simple": sceneSimple, "async": sceneAsync, "batch": sceneBatch, "tag": sceneTag, "delay": sceneDelay, "interceptor": sceneInterceptor,
	"namespace": sceneNamespace, "rpc": sceneRPC, "transaction": sceneTransaction, "broadcast": sceneBroadcast,
	"strategy": sceneStrategy, "orderly": sceneOrderly, "retry": sceneRetry, "poll": scenePoll, "assign": sceneAssign, "pull": scenePull,
	"admin": sceneAdmin, "pause": scenePause, "reset": sceneReset, "from": sceneFrom,
}

// stage is a cluster on which scenes play.
type stage struct {
	c      *cluster.Cluster
	moving bool // leadership moves all the time
	names  atomic.Int64
}

// TestExamples plays all scenes at once, in calm.
func TestExamples(t *testing.T) {
	long(t)
	parallel(t, 42)
	play(t, &stage{c: startCluster(t, cluster.Config{Flags: exampleFlags()})})
}

// TestExamplesWhileTheLeaderMoves plays them while leadership is handed over every second or so, and one leader is killed. Followers pass writes on: without it
// stock producers, which ask for the leader every 30 s, would wait for most of the time.
func TestExamplesWhileTheLeaderMoves(t *testing.T) {
	long(t)
	parallel(t, 46)
	s := &stage{c: startCluster(t, cluster.Config{Flags: append(exampleFlags(), "--forward-writes")}), moving: true}
	// The library sends traces by one client for the whole process, so that only one cluster can be told: this one, in calm too.
	s.moving = false
	t.Run("trace-in-calm", func(t *testing.T) { sceneTrace(t, s) })
	s.moving = true
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := s.move(ctx); err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	}()
	var wg sync.WaitGroup
	wg.Go(func() { t.Run("trace", func(t *testing.T) { sceneTrace(t, s) }) })
	play(t, s)
	wg.Wait()
	cancel()
	<-done
}

func exampleFlags() []string {
	return append(jepsen.DefaultFlags(), "--message-delay-level", "1s 1s 2s 2s 2s 2s", "--trace-topic-enable",
		"--transaction-timeout", "1s", "--transaction-check-interval", "2s", "--transaction-check-max", "60")
}

// play plays all scenes at once, whatever -parallel says: they wait for clients' timers.
func play(t *testing.T, s *stage) {
	var wg sync.WaitGroup
	for name, scene := range scenes {
		wg.Go(func() { t.Run(name, func(t *testing.T) { scene(t, s) }) })
	}
	wg.Wait()
}

// move hands leadership over every second, 15 times; the third time the leader is killed, and comes back. Then it rests for 45 s between moves: clients' timers of 30 s
// and the server's checks get to something.
func (s *stage) move(ctx context.Context) error {
	for n := 1; ; n++ {
		rest := time.Second
		if n > 15 {
			rest = 45 * time.Second
		}
		if err := sleep(ctx, rest); err != nil {
			return err
		}
		leader, err := s.c.WaitServing(ctx)
		if err != nil {
			return err
		}
		if n != 3 {
			// Refused now and then: the one that would lead is not there yet.
			_ = leader.Admin(ctx, remoting.RequestTransferLeadership, remoting.TransferRequest{}, nil)
			continue
		}
		if err := leader.Kill(); err != nil {
			return err
		}
		err = sleep(ctx, 2*time.Second)
		if err := errors.Join(err, leader.Start()); err != nil {
			return err
		}
	}
}

// name returns names of which each exists once: clients of one name in one process share their connections.
func (s *stage) name(t *testing.T) string { return fmt.Sprintf("%s-%d", topicName(t), s.names.Add(1)) }

func (s *stage) resolver() primitive.NsResolver {
	return primitive.NewPassthroughResolver(s.c.ClientAddrs())
}

func (s *stage) producer(t *testing.T, opts ...producer.Option) rocketmq.Producer {
	t.Helper()
	name := s.name(t)
	p, err := rocketmq.NewProducer(append([]producer.Option{producer.WithNsResolver(s.resolver()), producer.WithGroupName("pg-" + name),
		producer.WithInstanceName(name), producer.WithRetry(2)}, opts...)...)
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Shutdown() })
	return p
}

// send sends until it is acknowledged: at the first attempt in calm.
func (s *stage) send(t *testing.T, p rocketmq.Producer, msgs ...*primitive.Message) *primitive.SendResult {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		res, err := p.SendSync(t.Context(), msgs...)
		if err == nil && res.Status == primitive.SendOK {
			return res
		}
		if !s.moving || time.Now().After(deadline) {
			t.Fatalf("send: %v, %v", res, err)
		}
		_ = sleep(t.Context(), 100*time.Millisecond)
	}
}

// sendAll sends a message for each body, in order.
func (s *stage) sendAll(t *testing.T, p rocketmq.Producer, topic string, bodies ...string) {
	t.Helper()
	for _, body := range bodies {
		s.send(t, p, primitive.NewMessage(topic, []byte(body)))
	}
}

func numbered(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(prefix, "-", i))
	}
	return out
}

type listener = func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error)

// consume starts a push consumer, from the first offset unless told otherwise.
func (s *stage) consume(t *testing.T, group, topic string, selector consumer.MessageSelector, f listener, opts ...consumer.Option) rocketmq.PushConsumer {
	t.Helper()
	c, _ := startPush(t, s.resolver(), group, s.name(t), topic, selector, f, opts...)
	return c
}

// topic creates the scene's topic.
func (s *stage) topic(t *testing.T, queues int) string {
	t.Helper()
	topic := topicName(t)
	createTopic(t, s.c, topic, queues)
	return topic
}
