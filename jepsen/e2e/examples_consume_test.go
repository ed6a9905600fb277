package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/apache/rocketmq-client-go/v2/admin"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"

	"raftmq/jepsen/cluster"
	"raftmq/jepsen/workload"
	"raftmq/transport/remoting"
)

// Each broadcast consumer gets everything, and keeps its own offsets in a file.
func sceneBroadcast(t *testing.T, s *stage) {
	topic := s.topic(t, 4)
	// The library keeps them in the home folder, by group and client id: those of an earlier run would be gone on from.
	forget := func() {
		if err := os.RemoveAll(filepath.Join(os.Getenv("HOME"), ".rocketmq_client_go", "g-"+topic)); err != nil {
			t.Error(err)
		}
	}
	forget()
	t.Cleanup(forget) // when the consumers have ended
	boxes := [2]*inbox{{}, {}}
	for _, box := range boxes {
		s.consume(t, "g-"+topic, topic, consumer.MessageSelector{}, box.add, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	want := numbered("m", 20)
	s.sendAll(t, s.producer(t), topic, want...)
	for _, box := range boxes {
		box.await(t, want)
	}
	resp := invoke(t, dial(t, leaderOf(t, s.c).Addrs.Client), request(remoting.RequestQueryConsumerOffset, nil, "consumerGroup", "g-"+topic, "topic", topic, "queueId", "0", "setZeroIfNotFound", "false"))
	if resp.Code == 0 {
		t.Errorf("the broker has an offset of a broadcast group: %s", resp.GetString("offset"))
	}
}

// Two consumers that share the queues by the same strategy.
func sceneStrategy(t *testing.T, s *stage) {
	topic := s.topic(t, 4)
	boxes := [2]*inbox{{}, {}}
	for _, box := range boxes {
		s.consume(t, "g-"+topic, topic, consumer.MessageSelector{}, box.add, consumer.WithStrategy(consumer.AllocateByAveragelyCircle))
	}
	p := s.producer(t)
	var sent []string
	eventually(t, 90*time.Second, "both get their share", func() bool {
		before := [2]int{len(boxes[0].bodies()), len(boxes[1].bodies())}
		more := numbered(fmt.Sprint("m", len(sent)), 8)
		s.sendAll(t, p, topic, more...)
		sent = append(sent, more...)
		slices.Sort(sent)
		eventually(t, 90*time.Second, "all delivered", func() bool {
			got := map[string]int{}
			for _, box := range boxes {
				for _, b := range box.bodies() {
					got[b]++
				}
			}
			return slices.Equal(slices.Sorted(maps.Keys(got)), sent)
		})
		return len(boxes[0].bodies()) > before[0] && len(boxes[1].bodies()) > before[1]
	})
}

// An orderly listener suspends its queue: the message comes again, before any other of the queue, and after the last attempt it is given to the retry topic.
func sceneOrderly(t *testing.T, s *stage) {
	topic := s.topic(t, 1)
	var mu sync.Mutex
	var order []string
	tries := map[string]int{}
	s.consume(t, "g-"+topic, topic, consumer.MessageSelector{}, func(ctx context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		if c, ok := primitive.GetOrderlyCtx(ctx); !ok || c.MQ.Topic != topic {
			t.Errorf("orderly context %+v", c)
		}
		mu.Lock()
		defer mu.Unlock()
		body := string(msgs[0].Body)
		order = append(order, body)
		tries[body]++
		if strings.HasPrefix(body, "twice") && tries[body] < 2 {
			return consumer.SuspendCurrentQueueAMoment, nil
		}
		return consumer.ConsumeSuccess, nil
	}, consumer.WithConsumerOrder(true), consumer.WithMaxReconsumeTimes(5), consumer.WithSuspendCurrentQueueTimeMillis(100*time.Millisecond))
	want := []string{"a", "twice-1", "b", "twice-2", "c"}
	p := s.producer(t)
	s.sendAll(t, p, topic, want...)
	// A Go consumer that has pulled messages and lost its lock before it came to them looks at them again when the next message comes, and only then.
	next := time.Now().Add(2 * time.Second)
	eventually(t, 100*time.Second, "all consumed", func() bool {
		if s.moving && time.Now().After(next) {
			next = time.Now().Add(2 * time.Second)
			s.sendAll(t, p, topic, "tick")
		}
		mu.Lock()
		defer mu.Unlock()
		return tries["c"] > 0 && tries["twice-1"] > 1 && tries["twice-2"] > 1
	})
	mu.Lock()
	defer mu.Unlock()
	order = slices.DeleteFunc(order, func(body string) bool { return body == "tick" })
	first := slices.Compact(slices.Clone(order))
	if !s.moving && !slices.Equal(first, want) {
		t.Errorf("order %v", order)
	}
	var seen []string // a new leader may have an older offset: what was consumed comes again, but nothing is overtaken
	for _, body := range order {
		if !slices.Contains(seen, body) {
			seen = append(seen, body)
		}
	}
	if !slices.Equal(seen, want) {
		t.Errorf("first attempts in the order %v", seen)
	}
}

// A message that a concurrent listener does not take comes again at the level that the listener names.
func sceneRetry(t *testing.T, s *stage) {
	topic := s.topic(t, 2)
	group := "g-" + topic
	var mu sync.Mutex
	times := map[int32]int{}
	s.consume(t, group, topic, consumer.MessageSelector{}, func(ctx context.Context, msgs ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		c, _ := primitive.GetConcurrentlyCtx(ctx)
		c.DelayLevelWhenNextConsume = 1
		mu.Lock()
		defer mu.Unlock()
		for _, m := range msgs {
			times[m.ReconsumeTimes]++
			if m.ReconsumeTimes >= 2 {
				return consumer.ConsumeSuccess, nil
			}
		}
		return consumer.ConsumeRetryLater, nil
	})
	s.sendAll(t, s.producer(t), topic, "m")
	eventually(t, 100*time.Second, "the third attempt", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return times[0] > 0 && times[1] > 0 && times[2] > 0
	})
}

// Suspend stops pulling, resume goes on. A pull that waits at the broker when the consumer is suspended still brings what ends it.
func scenePause(t *testing.T, s *stage) {
	const queues = 4
	topic := s.topic(t, queues)
	box := &inbox{}
	c := s.consume(t, "g-"+topic, topic, consumer.MessageSelector{}, box.add)
	send := func(name string, each int) (sent []string) {
		for q := range int32(queues) {
			sender := workload.NewRawSender(s.c.ClientAddrs(), s.name(t), topic, q)
			for _, body := range numbered(fmt.Sprint(name, q), each) {
				m := &workload.Message{Body: []byte(body)}
				eventually(t, time.Minute, "send", func() bool { _, err := sender.Send(t.Context(), m); return err == nil })
				sent = append(sent, body)
			}
			sender.Close()
		}
		return sent
	}
	first := send("first", 2)
	box.await(t, first)
	c.Suspend()
	ending := send("ending", 1)
	delivered, since := 0, time.Now()
	eventually(t, time.Minute, "the end of pulls that these have ended", func() bool { // none came for 2 s
		if n := len(box.bodies()); n != delivered {
			delivered, since = n, time.Now()
		}
		return time.Since(since) > 2*time.Second
	})
	later := send("later", 10)
	time.Sleep(time.Second)
	got := 0
	for _, body := range box.bodies() {
		if strings.HasPrefix(body, "later") {
			got++
		}
	}
	// A pull that was on its way for longer, to a leader that was killed, may bring one queue's.
	if got > len(later)/2 {
		t.Errorf("%d of %d messages came while the consumer was suspended", got, len(later))
	}
	c.Resume()
	box.await(t, slices.Concat(first, ending, later))
}

// Offsets are reset while a push consumer runs (222, which tells it by 220): to the beginning, and to a time. The consumer stores its new offsets by one-way requests: one
// that goes to a node which is being killed or handing over is lost, and an operator who sees it resets again.
func sceneReset(t *testing.T, s *stage) {
	topic := s.topic(t, 4)
	group := "g-" + topic
	j := &journal{}
	s.consume(t, group, topic, consumer.MessageSelector{}, j.add)
	p := s.producer(t)
	early := numbered("early", 12)
	s.sendAll(t, p, topic, early...)
	j.awaitBodies(t, 0, early)
	time.Sleep(1100 * time.Millisecond) // so that a time is between the two, for the clocks of different leaders too
	between := time.Now()
	time.Sleep(1100 * time.Millisecond)
	late := numbered("late", 12)
	s.sendAll(t, p, topic, late...)
	j.awaitBodies(t, 0, late)

	reset := func(timestamp int64, from int, want []string) {
		t.Helper()
		// The consumer's offsets are there when it has told them, and it is known to a node that was killed after its next heartbeat.
		eventually(t, 60*time.Second, "reset", func() bool {
			resp := s.ask(t, request(remoting.RequestInvokeBrokerToResetOffset, nil, "topic", topic, "group", group, "timestamp", fmt.Sprint(timestamp), "isForce", "true"))
			return resp != nil && resp.Code == 0
		})
		for again := time.Now().Add(45 * time.Second); s.moving && time.Now().Before(again); { // the library takes 10 s for it, and up to 20 s to begin anew
			if j.has(from, want) {
				return
			}
			_ = sleep(t.Context(), 100*time.Millisecond)
		}
	}
	settle := func(timestamp int64, want []string) (from int) {
		t.Helper()
		from = len(j.all())
		reset(timestamp, from, want)
		for n := 0; n < 3 && s.moving && !j.has(from, want); n++ {
			reset(timestamp, from, want)
		}
		j.awaitBodies(t, from, want)
		return from
	}
	settle(0, slices.Concat(early, late))
	from := settle(between.UnixMilli(), late)
	if !s.moving { // a consumer that lost its broker may have begun at an older offset
		for _, d := range j.all()[from:] {
			if strings.HasPrefix(d.body, "early") {
				t.Errorf("%s came again after a reset to a later time", d.body)
			}
		}
	}
}

// has reports whether each body is among the deliveries from the n-th on.
func (j *journal) has(n int, want []string) bool {
	got := map[string]bool{}
	for _, d := range j.all()[n:] {
		got[d.body] = true
	}
	return !slices.ContainsFunc(want, func(b string) bool { return !got[b] })
}

// awaitBodies waits until it has.
func (j *journal) awaitBodies(t *testing.T, n int, want []string) {
	t.Helper()
	eventually(t, 100*time.Second, fmt.Sprintf("%d messages", len(want)), func() bool { return j.has(n, want) })
}

// sceneFrom: where a new group begins in a queue whose beginning is still in memory: at its start, whatever it asks for, as 4.9.4 answers its first query with
// offset 0 (wire notes §8). TestConsumeFrom has older queues.
func sceneFrom(t *testing.T, s *stage) {
	topic := s.topic(t, 2)
	want := numbered("m", 10)
	s.sendAll(t, s.producer(t), topic, want...)
	for i, from := range []consumer.ConsumeFromWhere{consumer.ConsumeFromFirstOffset, consumer.ConsumeFromLastOffset, consumer.ConsumeFromTimestamp} {
		box := &inbox{}
		s.consume(t, fmt.Sprintf("g%d-%s", i, topic), topic, consumer.MessageSelector{}, box.add, consumer.WithConsumeFromWhere(from),
			consumer.WithConsumeTimestamp(time.Now().Add(time.Hour).UTC().Format("20060102150405")))
		box.await(t, want)
	}
}

func sceneAdmin(t *testing.T, s *stage) {
	topic, group := topicName(t), "g-"+topicName(t)
	a, err := admin.NewAdmin(admin.WithResolver(s.resolver()), admin.WithCredentials(credentials))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	ctx := withTimeout(t, 90*time.Second)
	// Any node takes the change: a follower passes it on.
	node := s.c.Nodes()[0]
	if s.moving {
		node = s.c.Nodes()[1]
	}
	listed := func(topic string) func() bool {
		return func() bool {
			l, err := a.FetchAllTopicList(ctx)
			return err == nil && slices.Contains(l.TopicList, topic)
		}
	}
	eventually(t, 60*time.Second, "creation", func() bool {
		_ = a.CreateTopic(ctx, admin.WithTopicCreate(topic), admin.WithBrokerAddrCreate(node.Addrs.Client), admin.WithReadQueueNums(3), admin.WithWriteQueueNums(3))
		return listed(topic)()
	})
	if queues, err := a.FetchPublishMessageQueues(ctx, topic); err != nil || len(queues) != 3 {
		t.Errorf("queues %v, %v", queues, err)
	}
	box := &inbox{}
	s.consume(t, group, topic, consumer.MessageSelector{}, box.add)
	eventually(t, 60*time.Second, "the group", func() bool {
		g, err := a.GetAllSubscriptionGroup(ctx, node.Addrs.Client, 3*time.Second)
		return err == nil && g.SubscriptionGroupTable[group].GroupName == group
	})
	eventually(t, 60*time.Second, "deletion", func() bool {
		_ = a.DeleteTopic(ctx, admin.WithTopicDelete(topic), admin.WithBrokerAddrDelete(node.Addrs.Client))
		return !listed(topic)()
	})
}

// TestTLSIsRefused: a client that wants TLS gets no connection, and its bytes harm nobody. (Apache's library cannot be asked here: WithTls changes all clients of the
// process.)
func TestTLSIsRefused(t *testing.T) {
	parallel(t, 2)
	s := &stage{c: startCluster(t, cluster.Config{Nodes: 1})}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 30 * time.Second}, Config: &tls.Config{InsecureSkipVerify: true}}
	if c, err := d.DialContext(withTimeout(t, 30*time.Second), "tcp", s.c.ClientAddrs()[0]); err == nil {
		_ = c.Close()
		t.Error("a TLS handshake succeeded")
	} else if errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a TLS handshake was left hanging: %v", err)
	}
	s.sendAll(t, s.producer(t), topicName(t), "x")
}
