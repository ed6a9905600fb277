package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"

	"raftmq/transport/remoting"
)

// credentials are signed into requests; a broker without access control passes over them.
var credentials = primitive.Credentials{AccessKey: "RocketMQ", SecretKey: "12345678"}

func sceneSimple(t *testing.T, s *stage) {
	topic := s.topic(t, 4)
	want := numbered("m", 30)
	s.sendAll(t, s.producer(t, producer.WithCredentials(credentials)), topic, want...)
	box := &inbox{}
	s.consume(t, "g-"+topic, topic, consumer.MessageSelector{}, box.add, consumer.WithCredentials(credentials))
	box.await(t, want)
}

func sceneAsync(t *testing.T, s *stage) {
	topic := s.topic(t, 4)
	p, box := s.producer(t), &inbox{}
	s.consume(t, "g-"+topic, topic, consumer.MessageSelector{}, box.add)
	left := numbered("m", 60)
	want := slices.Clone(left)
	for deadline := time.Now().Add(time.Minute); len(left) > 0; {
		var mu sync.Mutex
		var failed []string
		var wg sync.WaitGroup
		for _, body := range left {
			wg.Add(1)
			err := p.SendAsync(t.Context(), func(_ context.Context, res *primitive.SendResult, err error) {
				defer wg.Done()
				if err == nil && res.Status == primitive.SendOK {
					return
				}
				mu.Lock()
				defer mu.Unlock()
				failed = append(failed, body)
			}, primitive.NewMessage(topic, []byte(body)))
			if err != nil {
				t.Fatal(err)
			}
		}
		wg.Wait()
		if left = failed; len(left) > 0 && (!s.moving || time.Now().After(deadline)) {
			t.Fatalf("%d of %d failed", len(left), len(want))
		}
	}
	box.await(t, want)
}

func sceneBatch(t *testing.T, s *stage) {
	topic := s.topic(t, 4)
	p, box := s.producer(t), &inbox{}
	var want []string
	for n := range 4 {
		var batch []*primitive.Message
		for _, body := range numbered(fmt.Sprint("b", n), 10) {
			batch = append(batch, primitive.NewMessage(topic, []byte(body)))
			want = append(want, body)
		}
		if res := s.send(t, p, batch...); strings.Count(res.OffsetMsgID, ",") != 9 {
			t.Errorf("ids %q of 10 messages", res.OffsetMsgID)
		}
	}
	s.consume(t, "g-"+topic, topic, consumer.MessageSelector{}, box.add)
	box.await(t, want)
}

func sceneTag(t *testing.T, s *stage) {
	topic := s.topic(t, 4)
	p, box := s.producer(t), &inbox{}
	s.consume(t, "g-"+topic, topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "TagA || TagC"}, box.add)
	var want []string
	for i, body := range numbered("m", 30) {
		tag := []string{"TagA", "TagB", "TagC"}[i%3]
		s.send(t, p, primitive.NewMessage(topic, []byte(body)).WithTag(tag))
		if tag != "TagB" {
			want = append(want, body)
		}
	}
	box.await(t, want)
}

// Level 3 is 2 s here. A time of delivery (5.x) is an unknown property to 4.9.4, and so it is here: the message comes at once.
func sceneDelay(t *testing.T, s *stage) {
	topic := s.topic(t, 4)
	p := s.producer(t)
	var mu sync.Mutex
	after := map[string]time.Duration{}
	sent := map[string]time.Time{}
	s.consume(t, "g-"+topic, topic, consumer.MessageSelector{}, func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range msgs {
			if body := string(m.Body); after[body] == 0 {
				after[body] = time.Since(sent[body])
			}
		}
		return consumer.ConsumeSuccess, nil
	})
	send := func(body string, m *primitive.Message) {
		mu.Lock()
		sent[body] = time.Now()
		mu.Unlock()
		s.send(t, p, m)
	}
	for _, body := range numbered("level", 10) {
		send(body, primitive.NewMessage(topic, []byte(body)).WithDelayTimeLevel(3))
	}
	send("ms", primitive.NewMessage(topic, []byte("ms")).WithDelayTimestamp(time.Now().Add(time.Hour)))
	eventually(t, 90*time.Second, "11 messages", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(after) == 11
	})
	mu.Lock()
	defer mu.Unlock()
	for body, d := range after {
		if strings.HasPrefix(body, "level") && d < 2*time.Second {
			t.Errorf("%s came after %v", body, d)
		}
	}
}

func sceneInterceptor(t *testing.T, s *stage) {
	topic := s.topic(t, 2)
	var calls [4]atomic.Int64
	count := func(i int) primitive.Interceptor {
		return func(ctx context.Context, req, reply any, next primitive.Invoker) error {
			err := next(ctx, req, reply)
			if holder, ok := reply.(*consumer.ConsumeResultHolder); ok && holder.ConsumeResult != consumer.ConsumeSuccess {
				t.Errorf("an interceptor saw %v", holder)
			}
			calls[i].Add(1)
			return err
		}
	}
	p, box := s.producer(t, producer.WithInterceptor(count(0), count(1))), &inbox{}
	s.consume(t, "g-"+topic, topic, consumer.MessageSelector{}, box.add, consumer.WithInterceptor(count(2), count(3)))
	want := numbered("m", 10)
	s.sendAll(t, p, topic, want...)
	box.await(t, want)
	for i := range calls {
		eventually(t, 30*time.Second, "calls of an interceptor", func() bool { return calls[i].Load() >= int64(len(want)) })
	}
}

func sceneNamespace(t *testing.T, s *stage) {
	topic := topicName(t)
	createTopic(t, s.c, topic, 2)
	createTopic(t, s.c, "ns%"+topic, 2)
	inside, outside := &inbox{}, &inbox{}
	s.consume(t, "g-"+topic, topic, consumer.MessageSelector{}, inside.add, consumer.WithNamespace("ns"))
	s.consume(t, "g-"+topic, topic, consumer.MessageSelector{}, outside.add)
	s.sendAll(t, s.producer(t, producer.WithNamespace("ns")), topic, numbered("in", 10)...)
	s.sendAll(t, s.producer(t), topic, numbered("out", 10)...)
	inside.await(t, numbered("in", 10))
	outside.await(t, numbered("out", 10))
}

// What was sent and consumed is told to the trace topic, as one message for each of the three steps or more at once. Traces are sent once and may be
// lost, so messages are sent until one has all its traces.
func sceneTrace(t *testing.T, s *stage) {
	topic := s.topic(t, 2)
	config := func() *primitive.TraceConfig {
		return &primitive.TraceConfig{Access: primitive.Local, Resolver: s.resolver()}
	}
	var mu sync.Mutex
	var traces strings.Builder
	traceTopic := "RMQ_SYS_TRACE_TOPIC"
	eventually(t, 60*time.Second, "the trace topic, which a leader makes soon", func() bool {
		resp := s.ask(t, request(remoting.RequestGetRouteInfoByTopic, nil, "topic", traceTopic))
		return resp != nil && resp.Code == 0
	})
	s.consume(t, "g-trace-"+topic, traceTopic, consumer.MessageSelector{}, func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range msgs {
			traces.Write(m.Body)
		}
		return consumer.ConsumeSuccess, nil
	})
	box := &inbox{}
	s.consume(t, "g-"+topic, topic, consumer.MessageSelector{}, box.add, consumer.WithTrace(config()))
	p := s.producer(t, producer.WithTrace(config()))
	var ids []string
	traced := func(id string) bool {
		mu.Lock()
		defer mu.Unlock()
		seen := map[string]bool{}
		for line := range strings.SplitSeq(traces.String(), "\x02") {
			if strings.Contains(line, id) {
				kind, _, _ := strings.Cut(line, "\x01")
				seen[kind] = true
			}
		}
		return seen["Pub"] && seen["SubBefore"]
	}
	next := time.Time{}
	eventually(t, 100*time.Second, "a message's traces", func() bool {
		if now := time.Now(); now.After(next) {
			next = now.Add(2 * time.Second)
			ids = append(ids, s.send(t, p, primitive.NewMessage(topic, fmt.Append(nil, len(ids)))).MsgID)
		}
		return slices.ContainsFunc(ids, traced)
	})
}

func sceneRPC(t *testing.T, s *stage) {
	topic := s.topic(t, 2)
	replier := s.producer(t)
	s.consume(t, "g-"+topic, topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}, func(_ context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range msgs {
			body := append([]byte("reply to "), m.Body...)
			reply, err := consumer.CreateReplyMessage(m, body)
			if err == nil {
				reply.Body = body // the library takes the body for properties
				_, err = replier.SendSync(context.Background(), reply)
			}
			if err != nil {
				return consumer.ConsumeRetryLater, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	}, consumer.WithPullInterval(0))
	p := s.producer(t)
	const ttl = 5 * time.Second
	ask := func(how string, request func(body string) (string, error)) {
		for n, deadline := 0, time.Now().Add(90*time.Second); ; n++ {
			body := fmt.Sprint(how, "-", n)
			got, err := request(body)
			if err == nil && got == "reply to "+body {
				return
			}
			// A Go consumer may be between two pulls for longer than a request lives when it has just started, or when its broker was killed.
			if err == nil || time.Now().After(deadline) {
				t.Errorf("%s: %q, %v", body, got, err)
				return
			}
			_ = sleep(t.Context(), 50*time.Millisecond)
		}
	}
	ask("sync", func(body string) (string, error) {
		m, err := p.Request(t.Context(), ttl, primitive.NewMessage(topic, []byte(body)))
		if err != nil {
			return "", err
		}
		return string(m.Body), nil
	})
	ask("async", func(body string) (string, error) {
		type outcome struct {
			body string
			err  error
		}
		done := make(chan outcome, 1)
		err := p.RequestAsync(t.Context(), ttl, func(_ context.Context, m *primitive.Message, err error) {
			o := outcome{err: err}
			if err == nil {
				o.body = string(m.Body)
			}
			done <- o
		}, primitive.NewMessage(topic, []byte(body)))
		if err != nil {
			return "", err
		}
		select {
		case o := <-done:
			return o.body, o.err
		case <-time.After(4 * ttl):
			return "", fmt.Errorf("no outcome of %s", body)
		}
	})
}

// outcomes ends transactions by their body: "commit…", "rollback…"; "unknown…" is committed when it is asked about.
type outcomes struct{}

func (outcomes) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	switch {
	case strings.HasPrefix(string(m.Body), "commit"):
		return primitive.CommitMessageState
	case strings.HasPrefix(string(m.Body), "rollback"):
		return primitive.RollbackMessageState
	}
	return primitive.UnkonwnState
}

func (outcomes) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	if strings.HasPrefix(string(m.Body), "rollback") {
		return primitive.RollbackMessageState
	}
	return primitive.CommitMessageState
}

func sceneTransaction(t *testing.T, s *stage) {
	topic := s.topic(t, 2)
	name := s.name(t)
	p, err := rocketmq.NewTransactionProducer(outcomes{}, producer.WithNsResolver(s.resolver()), producer.WithGroupName("pg-"+name), producer.WithInstanceName(name), producer.WithRetry(1))
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Shutdown() })
	box := &inbox{}
	s.consume(t, "g-"+topic, topic, consumer.MessageSelector{}, box.add)
	var want []string
	for _, how := range []string{"commit", "rollback", "unknown"} {
		for _, body := range numbered(how, 5) {
			for deadline := time.Now().Add(time.Minute); ; {
				res, err := p.SendMessageInTransaction(t.Context(), primitive.NewMessage(topic, []byte(body)))
				if err == nil && res.Status == primitive.SendOK {
					break
				}
				if !s.moving || time.Now().After(deadline) {
					t.Fatalf("%s: %v, %v", body, res, err)
				}
			}
			if how != "rollback" {
				want = append(want, body)
			}
		}
	}
	// An end that was lost with a leader is asked for when the leader knows the producer: when that has asked for routes and told the new leader of itself, 30 s each.
	eventually(t, 150*time.Second, "all that was committed", func() bool { return len(box.bodies()) >= len(want) })
	box.await(t, want)
}
